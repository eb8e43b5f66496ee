//! Describes the host, and measures the CPU time that other processes use.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result};

/// Clock ticks per second of the counters in /proc (USER_HZ), which is the same on all Linux systems that beamtune supports.
pub const TICKS_PER_S: f64 = 100.0;

/// Describes the host in one line.
pub fn describe() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = field(&cpuinfo, "model name").unwrap_or("unknown processor");
    let virtual_machine =
        field(&cpuinfo, "flags").is_some_and(|flags| flags.split(' ').any(|f| f == "hypervisor"));
    let cores = std::thread::available_parallelism().map_or(0, |cores| cores.get());
    let kib = field(&read("/proc/meminfo"), "MemTotal")
        .and_then(|text| text.strip_suffix(" kB")?.parse::<f64>().ok());
    format!(
        "{model}, {cores} cores{}, {:.0} GB of memory, Linux {}",
        if virtual_machine { " of a virtual machine" } else { "" },
        kib.unwrap_or_default() * 1024.0 / 1e9,
        kernel(&read("/proc/sys/kernel/osrelease"))
    )
}

/// Returns the first two numbers of a kernel release; the rest identifies the build.
fn kernel(release: &str) -> String {
    release.trim().split('.').take(2).collect::<Vec<_>>().join(".")
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim_start().strip_prefix(':')?.trim()))
}

/// CPU use by others, in cores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interference {
    /// Processes other than xtask and its children.
    pub others: f64,
    /// CPU time taken by the hypervisor (steal).
    pub stolen: f64,
}

/// Measures the CPU time that others use during a benchmark.
///
/// Children are counted as our own once they have been waited for. So all of them must start after `begin`, and be reaped before `end`.
pub struct Meter {
    begin: Instant,
    host: Host,
    own_ticks: u64,
}

/// Clock ticks since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Host {
    busy: u64,
    stolen: u64,
}

impl Meter {
    /// Starts the measurement.
    pub fn begin() -> Result<Meter> {
        Ok(Meter { begin: Instant::now(), host: host()?, own_ticks: own()? })
    }

    /// Ends the measurement.
    pub fn end(self) -> Result<Interference> {
        let (host, own) = (host()?, own()?);
        let cores = |ticks: u64| ticks as f64 / TICKS_PER_S / self.begin.elapsed().as_secs_f64();
        let others = (host.busy - self.host.busy).saturating_sub(own - self.own_ticks);
        Ok(Interference { others: cores(others), stolen: cores(host.stolen - self.host.stolen) })
    }
}

fn host() -> Result<Host> {
    parse_host(&fs::read_to_string("/proc/stat")?).context("cannot parse /proc/stat")
}

/// Parses the first line of /proc/stat (proc(5)): user nice system idle iowait irq softirq steal.
fn parse_host(stat: &str) -> Option<Host> {
    let ticks: Option<Vec<u64>> = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .map(|ticks| ticks.parse().ok())
        .collect();
    match ticks?[..] {
        [user, nice, system, _, _, irq, softirq, stolen, ..] => {
            Some(Host { busy: user + nice + system + irq + softirq, stolen })
        }
        _ => None,
    }
}

fn own() -> Result<u64> {
    parse_ticks(&fs::read_to_string("/proc/self/stat")?).context("cannot parse /proc/self/stat")
}

/// Returns the CPU time in /proc/PID/stat, of the process and of the children that it waited for. utime, stime, cutime and cstime are
/// fields 14 to 17 (proc(5)); field 2, the name, may contain blanks.
pub fn parse_ticks(stat: &str) -> Option<u64> {
    let fields = stat.rsplit_once(')')?.1.split_whitespace();
    let ticks: Option<Vec<u64>> = fields.skip(11).take(4).map(|ticks| ticks.parse().ok()).collect();
    ticks.filter(|ticks| ticks.len() == 4).map(|ticks| ticks.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_excludes_idle_iowait_and_steal() {
        let stat = "cpu  100 20 3 5000 600 7 8 90 1000 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n";
        assert_eq!(parse_host(stat), Some(Host { busy: 138, stolen: 90 }));
        assert_eq!(parse_host("cpu  1 2 3\n"), None);
        assert_eq!(parse_host(""), None);
    }

    #[test]
    fn own_time_is_parsed_after_a_name_with_blanks_and_brackets() {
        let stat = "42 (a ) b) S 1 42 42 0 -1 4194304 100 0 0 0 11 22 33 44 20 0 1 0";
        assert_eq!(parse_ticks(stat), Some(110));
        assert_eq!(parse_ticks("42 (a) S 1"), None);
    }

    #[test]
    fn cpu_of_a_child_is_counted_once_it_was_waited_for() {
        let before = own().expect("/proc/self/stat");
        let spin = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(std::process::Command::new("sh").args(["-c", spin]).status().expect("sh").success());
        assert!(own().expect("/proc/self/stat") > before);
    }
}
