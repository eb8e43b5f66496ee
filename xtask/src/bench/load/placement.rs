//! Runs servers and generators on one core each, with the hard limit on file descriptors, and ties their lifetime to this program.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::bench::process::command;

/// The CPUs of a measurement; both are the same if there is only one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cores {
    /// CPU of the server.
    pub server: usize,
    /// CPU of the generator.
    pub generator: usize,
}

impl Cores {
    /// Returns the first and the last CPU that this process may use.
    pub fn of_this_process() -> Result<Cores> {
        let status = fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
        outermost(&status).context("cannot parse Cpus_allowed_list in /proc/self/status")
    }
}

/// Parses the first and the last number of a list such as `0,2-5` (proc(5)).
fn outermost(status: &str) -> Option<Cores> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim();
    let mut numbers = list.split([',', '-']).map(|number| number.parse().ok());
    let server = numbers.next()??;
    Some(Cores { server, generator: numbers.next_back().unwrap_or(Some(server))? })
}

/// Creates a command on a core. The kernel kills its process when this program ends.
pub fn on_core(core: usize, program: impl AsRef<OsStr>) -> Result<Command> {
    let mut placed = tied_to_parent()?;
    placed.args(["taskset", "-c", &core.to_string()]).arg(program);
    Ok(placed)
}

/// Creates a command on any core. The kernel kills its process when this program ends.
pub fn anywhere(program: impl AsRef<OsStr>) -> Result<Command> {
    let mut placed = tied_to_parent()?;
    placed.arg(program);
    Ok(placed)
}

fn tied_to_parent() -> Result<Command> {
    let mut placed = command("setpriv");
    placed.args(["--pdeathsig", "KILL", "prlimit", &format!("--nofile={}", descriptors()?)]);
    Ok(placed)
}

/// Returns the hard limit on file descriptors.
pub fn descriptors() -> Result<u64> {
    let limits = fs::read_to_string("/proc/self/limits").context("cannot read /proc/self/limits")?;
    hard_limit(&limits).context("cannot parse /proc/self/limits")
}

/// Parses the hard limit on open files in /proc/PID/limits.
fn hard_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_and_generator_get_the_outermost_cpus() {
        let check = |list: &str, expect: Option<(usize, usize)>| {
            let found = outermost(&format!("Name:\tx\nCpus_allowed_list:\t{list}\n"));
            assert_eq!(found.map(|cores| (cores.server, cores.generator)), expect, "{list}");
        };
        check("0-1", Some((0, 1)));
        check("2,4-6,9", Some((2, 9)));
        check("3", Some((3, 3)));
        check("", None);
    }

    #[test]
    fn the_hard_limit_is_in_the_second_column() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 20000                files     \n";
        assert_eq!(hard_limit(limits), Some(20_000));
        assert_eq!(hard_limit(""), None);
    }
}
