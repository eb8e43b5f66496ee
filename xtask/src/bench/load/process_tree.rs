//! A process with all its descendants: measures their CPU time and memory, and kills all of them.

use std::fs;
use std::process::Command;

use anyhow::Result;

use crate::bench::process::{Running, cpu_ns, output, peak_rss_bytes};

/// A process tree that is killed when dropped.
pub struct ProcessTree {
    /// The root of the tree.
    pub first: Running,
}

impl ProcessTree {
    /// Starts the root of the tree.
    pub fn start(command: &mut Command) -> Result<ProcessTree> {
        Ok(ProcessTree { first: Running::start(command)? })
    }

    /// Returns all living processes of the tree.
    pub fn pids(&self) -> Vec<u32> {
        descendants(self.first.pid(), &parents())
    }

    /// Returns the CPU time of all processes, in nanoseconds.
    pub fn cpu_ns(&self) -> Result<u64> {
        self.pids().into_iter().map(cpu_ns).sum()
    }

    /// Returns the sum of the peak RSS of all processes.
    pub fn peak_bytes(&self) -> u64 {
        self.pids().into_iter().filter_map(peak_rss_bytes).sum()
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        for pid in self.pids().into_iter().filter(|pid| *pid != self.first.pid()) {
            // This fails if the process has ended. `Running` kills and reaps the root.
            let _ = output(Command::new("kill").args(["-s", "KILL", &pid.to_string()]));
        }
    }
}

/// Returns a process, its children, their children, and so on.
fn descendants(first: u32, parents: &[(u32, u32)]) -> Vec<u32> {
    let mut tree = vec![first];
    let mut at = 0;
    while let Some(parent) = tree.get(at).copied() {
        at += 1;
        tree.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| pid));
    }
    tree
}

/// Returns all processes with their parents.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| {
        Some((pid, parent_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?))
    })
    .collect()
}

/// Parses the parent in /proc/PID/stat (proc(5)): field 4; field 2, the name, may contain blanks.
fn parent_in(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::process::{TIMEOUT, wait_for};

    #[test]
    fn a_tree_has_all_descendants() {
        let parents = [(1, 0), (10, 1), (20, 1), (11, 10), (12, 11), (21, 20)];
        assert_eq!(descendants(10, &parents), [10, 11, 12]);
        assert_eq!(parent_in("42 (a ) b) S 7 42 42 0"), Some(7));
    }

    #[test]
    fn a_dropped_tree_is_killed() {
        let script = "sleep 1000 & sleep 1000 & wait";
        let tree = ProcessTree::start(Command::new("sh").args(["-c", script])).expect("sh starts");
        let started = || Ok((tree.pids().len() == 3).then_some(()));
        wait_for("both to start", TIMEOUT, started).expect("they start");
        let pids = tree.pids();
        assert!(tree.peak_bytes() > 0 && tree.cpu_ns().expect("they run") > 0);
        drop(tree);
        // Init or a subreaper reaps the orphans some time later.
        let are_gone = || Ok(pids.iter().all(|pid| peak_rss_bytes(*pid).is_none()).then_some(()));
        wait_for("their exit", TIMEOUT, are_gone).expect("they exit");
    }
}
