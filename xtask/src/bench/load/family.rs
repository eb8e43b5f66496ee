//! A generator with all the processes that it has started: what they cost, and that all of them end.

use std::fs;
use std::process::Command;

use anyhow::Result;

use crate::bench::process::{Running, cpu_ns, output, peak_rss_bytes};

/// Killed, all of it, when it goes out of scope.
pub struct Family {
    /// The first one.
    pub first: Running,
}

impl Family {
    /// Starts the first one.
    pub fn start(command: &mut Command) -> Result<Family> {
        Ok(Family { first: Running::start(command)? })
    }

    /// All that are there now.
    pub fn pids(&self) -> Vec<u32> {
        family_of(self.first.pid(), &parents())
    }

    /// CPU time that they have had, in nanoseconds.
    pub fn cpu_ns(&self) -> Result<u64> {
        self.pids().into_iter().map(cpu_ns).sum()
    }

    /// The sum of the most memory that each of them had, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        self.pids().into_iter().filter_map(peak_rss_bytes).sum()
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        for pid in self.pids().into_iter().filter(|pid| *pid != self.first.pid()) {
            // One that has ended meanwhile has nothing to be killed; the first one is waited for as it is dropped.
            let _ = output(Command::new("kill").args(["-s", "KILL", &pid.to_string()]));
        }
    }
}

/// A process and those that it has started, and they in turn.
fn family_of(first: u32, parents: &[(u32, u32)]) -> Vec<u32> {
    let mut family = vec![first];
    let mut at = 0;
    while let Some(parent) = family.get(at).copied() {
        at += 1;
        family.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| pid));
    }
    family
}

/// Each process with its parent.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| {
        Some((pid, parent_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?))
    })
    .collect()
}

/// proc(5): the fourth field; the second one, a name, may hold blanks.
fn parent_in(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::process::{PATIENCE, wait_for};

    #[test]
    fn a_family_is_all_descendants() {
        let parents = [(1, 0), (10, 1), (20, 1), (11, 10), (12, 11), (21, 20)];
        assert_eq!(family_of(10, &parents), [10, 11, 12]);
        assert_eq!(parent_in("42 (a ) b) S 7 42 42 0"), Some(7));
    }

    #[test]
    fn all_of_a_family_ends_with_it() {
        let script = "sleep 1000 & sleep 1000 & wait";
        let family = Family::start(Command::new("sh").args(["-c", script])).expect("sh starts");
        let started = || Ok((family.pids().len() == 3).then_some(()));
        wait_for("both to start", PATIENCE, started).expect("they start");
        let pids = family.pids();
        assert!(family.peak_bytes() > 0 && family.cpu_ns().expect("they are there") > 0);
        drop(family);
        // Orphans are waited for by whoever inherits them.
        let are_gone = || Ok(pids.iter().all(|pid| peak_rss_bytes(*pid).is_none()).then_some(()));
        wait_for("their end", PATIENCE, are_gone).expect("they end");
    }
}
