//! Limits of the operating system, checked before the start: descriptors, open files and local ports for all connections.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::LoadError;
use crate::program::Source;

/// Descriptors of a process besides its connections: epoll, timers, pipes, standard streams, files.
const OTHER_DESCRIPTORS: u64 = 64;
/// Maximum number of processes of a run.
const MAX_PROCESSES: u64 = 128;
/// Devices that one thread serves easily.
const DEVICES_PER_THREAD: u64 = 10_000;
/// Arrivals per second that one thread serves easily: a third of its capacity.
const ARRIVALS_PER_THREAD: f64 = 50_000.0;

/// The processes and threads of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Division {
    /// Number of processes.
    pub processes: u64,
    /// Threads per process.
    pub threads: u64,
}

/// Divides a run into the fewest processes that have enough descriptors, and into as many threads as the work needs. `threads` is the
/// requested total for all processes. `arrivals` is the rate per second; `None` if the devices set the pace.
pub fn divide(
    devices: u64,
    arrivals: Option<f64>,
    threads: Option<u64>,
    cores: u64,
    descriptors: u64,
) -> Division {
    let room = descriptors.saturating_sub(OTHER_DESCRIPTORS).max(1);
    let processes = devices.div_ceil(room).max(1);
    let work = match arrivals {
        Some(arrivals) => {
            ((arrivals / ARRIVALS_PER_THREAD).ceil() as u64).max(devices.div_ceil(DEVICES_PER_THREAD))
        }
        None => cores,
    };
    let threads = threads.unwrap_or_else(|| work.clamp(1, cores.max(1))).clamp(1, devices.max(1));
    Division { processes, threads: threads.div_ceil(processes) }
}

/// Returns the soft limit on descriptors (RLIMIT_NOFILE); `None` if unlimited.
pub fn descriptors() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Restores the soft limit from before [`raise_descriptors`], because child processes inherit it.
pub fn lower_descriptors(to: u64) -> std::io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(to), maximum: limit.maximum })?)
}

/// Raises the soft limit on descriptors to the hard limit; returns the new soft limit.
pub fn raise_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if setrlimit(Resource::Nofile, wanted).is_ok() {
        return limit.maximum.unwrap_or(u64::MAX);
    }
    limit.current.unwrap_or(u64::MAX)
}

/// Checks that [`MAX_PROCESSES`] have enough descriptors for all connections.
///
/// # Errors
/// [`LoadError::Descriptors`] if not.
pub fn check_descriptors(devices: u64, limit: u64) -> Result<(), LoadError> {
    let needed = devices.div_ceil(MAX_PROCESSES) + OTHER_DESCRIPTORS;
    if needed > limit { Err(LoadError::Descriptors { devices, needed, limit }) } else { Ok(()) }
}

/// Checks that the system-wide limit on open files allows all connections. `file_nr` is the text of /proc/sys/fs/file-nr
/// (proc_sys_fs(5)): open files, a zero, the limit.
///
/// # Errors
/// [`LoadError::OpenFiles`].
pub fn check_open_files(devices: u64, file_nr: &str) -> Result<(), LoadError> {
    let numbers: Vec<u64> = file_nr.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let [open, _, max] = numbers[..] else { return Ok(()) };
    let needed = open.saturating_add(devices).saturating_add(OTHER_DESCRIPTORS);
    if needed > max { Err(LoadError::OpenFiles { devices, open, max, needed }) } else { Ok(()) }
}

/// Returns source addresses that have enough local ports for all connections: the given ones, or for a loopback target as many addresses of
/// 127.0.0.0/8 as needed. Returns none if the system's default address suffices.
///
/// # Errors
/// [`LoadError::Ports`].
pub fn sources(
    target: SocketAddr,
    devices: u64,
    given: &[Source],
    ports: &RangeInclusive<u16>,
) -> Result<Vec<Source>, LoadError> {
    let each = ports.len() as u64;
    // Loopback addresses are free to use, so half of their ports may stay unused.
    let is_plenty = given.is_empty() && matches!(target, SocketAddr::V4(target) if target.ip().is_loopback());
    // Some ports are always in use by other programs, or in TIME_WAIT.
    let usable = if is_plenty { each / 2 } else { each - each / 10 }.max(1);
    let needed = devices.div_ceil(usable).max(1);
    if !given.is_empty() && (given.len() as u64) < needed {
        return Err(LoadError::Ports { devices, ports: each * given.len() as u64, sources: needed });
    }
    let source = |address| Source { address, ports: Some(ports.clone()) };
    match needed {
        _ if !given.is_empty() => Ok(given.iter().map(|given| source(given.address)).collect()),
        1 => Ok(Vec::new()),
        // 127.0.0.1 is left to other programs.
        2..250 if is_plenty => {
            Ok((2..needed as u8 + 2).map(|last| source(Ipv4Addr::new(127, 0, 0, last).into())).collect())
        }
        _ => Err(LoadError::Ports { devices, ports: each, sources: needed }),
    }
}

/// Returns the ephemeral ports, from the text of net.ipv4.ip_local_port_range; Linux' default (ip(7)) if the text cannot be parsed.
pub fn local_ports(range: &str) -> RangeInclusive<u16> {
    let mut bounds = range.split_whitespace().filter_map(|bound| bound.parse().ok());
    match (bounds.next(), bounds.next()) {
        (Some(low), Some(high)) if 0 < low && low <= high => low..=high,
        _ => 32_768..=60_999,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_as_many_threads_as_its_work_needs() {
        let check = |devices, arrivals, asked, processes, threads| {
            let division = divide(devices, arrivals, asked, 8, 20_000);
            assert_eq!(division, Division { processes, threads }, "{devices} {arrivals:?} {asked:?}");
        };
        check(100, Some(2_000.0), None, 1, 1);
        check(100, Some(120_000.0), None, 1, 3);
        check(100, None, None, 1, 8);
        check(3, None, None, 1, 3);
        check(15_000, Some(0.0), None, 1, 2);
        check(100_000, Some(1_000.0), None, 6, 2);
        check(100_000, None, Some(4), 6, 1);
        check(100, None, Some(2), 1, 2);
    }

    #[test]
    fn too_few_descriptors_are_reported_with_the_number_needed() {
        assert!(check_descriptors(100_000, 1024).is_ok());
        assert!(check_descriptors(1, 65).is_ok());
        let error = check_descriptors(1_000_000, 1024).unwrap_err().to_string();
        assert!(error.contains("`ulimit -n 7877`"), "{error}");
        assert_eq!(divide(1_000_000, None, None, 2, 7877).processes, MAX_PROCESSES);
        assert!(check_open_files(10_000, "1504\t0\t9223372036854775807\n").is_ok());
        assert!(check_open_files(10_000, "").is_ok());
        let error = check_open_files(10_000, "1504\t0\t8000\n").unwrap_err().to_string();
        assert!(error.contains("fs.file-max=11568"), "{error}");
    }

    #[test]
    fn source_addresses_are_added_if_ports_do_not_suffice() {
        let loopback: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let far: SocketAddr = "192.0.2.1:80".parse().unwrap();
        let ports = local_ports("32768\t60999\n");
        let found = |target, devices, given| sources(target, devices, given, &ports);
        let count = |target, devices| found(target, devices, &[]).unwrap().len();
        assert_eq!([10_000, 20_000, 100_000].map(|devices| count(loopback, devices)), [0, 2, 8]);
        assert_eq!([10_000, 20_000].map(|devices| count(far, devices)), [0, 0]);
        let error = found(far, 100_000, &[]).unwrap_err().to_string();
        assert!(error.contains("give 4 addresses of this host with --source"), "{error}");
        let given = vec![Source { address: far.ip(), ports: None }; 4];
        let taken = Source { address: far.ip(), ports: Some(ports.clone()) };
        assert_eq!(found(far, 100_000, &given).unwrap(), vec![taken; 4]);
        assert!(found(far, 100_000, &given[..2]).is_err());
    }

    #[test]
    fn the_local_port_range_is_parsed() {
        assert_eq!(local_ports("1024\t65535\n"), 1024..=65_535);
        for unknown in ["", "0 5", "9 8", "1 70000"] {
            assert_eq!(local_ports(unknown), 32_768..=60_999, "{unknown}");
        }
    }
}
