//! A process and all of its descendants: reads their CPU time, waits for them, and terminates them.
//!
//! When a process ends, its children are adopted by its nearest ancestor that is a subreaper ([`adopt_orphans`]), otherwise by process 1.
//! So the descendants of a subreaper include even daemons that detach themselves.

use std::collections::HashMap;
use std::io;

use beamtune_model::Nanos;
use rustix::process::{Pid, Signal, WaitOptions};

use crate::error::HostError;
use crate::process::{SMALL_FILE_BYTES, Stat, tick_ns};
use crate::text;
use crate::tree::FileTree;

/// Linux has at most 4,194,304 processes.
const MAX_PROCESSES: usize = 5_000_000;

/// A process and its descendants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Family {
    /// Process ids without those of zombies. The ancestor is the first if it exists.
    pub pids: Vec<u32>,
    /// CPU time of all these processes, including children that they waited for.
    pub cpu_ns: Nanos,
}

impl Family {
    /// Reads the descendants of a process. Those that start or end during the read may be missed.
    pub fn of(tree: &impl FileTree, ancestor: u32) -> Result<Self, HostError> {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        let mut known: HashMap<u32, (bool, i64)> = HashMap::new();
        let mut content = Vec::new();
        for name in tree.list("/proc", MAX_PROCESSES)? {
            let Some(pid) = text::number(name.as_bytes()).and_then(|pid| u32::try_from(pid).ok()) else {
                continue;
            };
            // The process has ended since it was listed, or is hidden from us and thus not a descendant.
            if tree.read_start(&format!("/proc/{pid}/stat"), SMALL_FILE_BYTES, &mut content).is_err() {
                continue;
            }
            let Ok(stat) = Stat::parse(&content) else { continue };
            children.entry(stat.ppid).or_default().push(pid);
            known.insert(pid, (stat.is_ending(), stat.user_ticks + stat.system_ticks + stat.children_ticks));
        }
        let mut family = Family::default();
        let mut left = vec![ancestor];
        while let Some(pid) = left.pop() {
            // The process is removed, so that the loop ends even if there is a cycle.
            let Some((is_ending, ticks)) = known.remove(&pid) else { continue };
            if !is_ending {
                family.pids.push(pid);
            }
            family.cpu_ns += ticks.saturating_mul(tick_ns());
            left.extend(children.remove(&pid).unwrap_or_default());
        }
        Ok(family)
    }
}

/// Reads the CPU time of all threads of a process, and its resident memory in bytes.
pub fn usage(tree: &impl FileTree, pid: u32) -> Result<(Nanos, i64), HostError> {
    let mut content = Vec::new();
    let stat = crate::process::read_stat(tree, pid, &mut content)?;
    let page_bytes = i64::try_from(rustix::param::page_size()).unwrap_or(4096);
    let ticks = stat.user_ticks + stat.system_ticks;
    Ok((ticks.saturating_mul(tick_ns()), stat.rss_pages.unwrap_or(0).saturating_mul(page_bytes)))
}

/// Makes this process a subreaper: it adopts descendants whose parents have ended.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// It exited with this status.
    Exited(i32),
    /// It was terminated by this signal.
    Killed(i32),
}

/// Waits for any child, including adopted ones; `None` if there are no children.
pub fn wait_for_any() -> io::Result<Option<(u32, ExitReason)>> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => {
                let pid = pid.as_raw_pid().unsigned_abs();
                match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => return Ok(Some((pid, ExitReason::Exited(code)))),
                    (_, Some(signal)) => return Ok(Some((pid, ExitReason::Killed(signal)))),
                    // The child was stopped or continued, which was not requested.
                    (None, None) => {}
                }
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CHILD) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// How to terminate a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Termination {
    /// SIGTERM, after which a VM stops its applications.
    Graceful,
    /// SIGKILL.
    Kill,
}

/// Terminates a process that beamtune started. Not an error if the process has already ended.
pub fn end(pid: u32, how: Termination) -> io::Result<()> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
    let signal = match how {
        Termination::Graceful => Signal::TERM,
        Termination::Kill => Signal::KILL,
    };
    match rustix::process::kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeHost;
    use crate::tree::LocalTree;

    fn stat(pid: u32, ppid: u32, state: char, ticks: i64, children_ticks: i64) -> (String, String) {
        let line = format!(
            "{pid} (a) b) {state} {ppid} 1 1 0 -1 4194304 0 0 0 0 {ticks} 0 {children_ticks} 0 20 0 1 0 5 1000 7 18446744073709551615 0\n"
        );
        (format!("/proc/{pid}/stat"), line)
    }

    #[test]
    fn a_family_has_all_descendants() {
        let host = FakeHost::new();
        for (path, line) in [
            stat(1, 0, 'S', 100, 0),
            stat(10, 1, 'S', 1, 2),
            stat(11, 10, 'R', 30, 0),
            stat(12, 11, 'Z', 400, 0),
            stat(13, 11, 'S', 5_000, 0),
            stat(20, 1, 'S', 60_000, 0),
        ] {
            host.file(&path, line);
        }
        let mut family = Family::of(&host.tree(), 10).expect("read");
        family.pids.sort_unstable();
        assert_eq!(family, Family { pids: vec![10, 11, 13], cpu_ns: 5_433 * tick_ns() });
        assert_eq!(Family::of(&host.tree(), 99).expect("read"), Family::default());
    }

    #[test]
    fn a_started_process_is_found_and_terminated() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("started");
        let family = Family::of(&LocalTree::default(), std::process::id()).expect("read");
        assert!(family.pids.contains(&child.id()));
        let (_, rss_bytes) = usage(&LocalTree::default(), std::process::id()).expect("read");
        assert!(rss_bytes > 100_000, "{rss_bytes}");
        end(child.id(), Termination::Kill).expect("ended");
        assert!(!child.wait().expect("waited").success());
        end(child.id(), Termination::Kill).expect("has ended already");
    }
}
