//! Which threads are worth watching.

use std::cmp::Reverse;

use beamtune_model::units::SECOND_NS;

use crate::threads::{Change, Thread};

/// Threads that are watched, those first that sleep and run the most. Each takes up to three rings and as many files.
pub(super) const MOST_THREADS: usize = 64;

/// The threads that are worth watching.
#[derive(Debug, PartialEq)]
pub(super) struct Chosen<'a> {
    pub(super) threads: Vec<&'a Thread>,
    /// Active ones that are not among them.
    pub(super) left_out: usize,
    /// What they all used of the CPUs.
    pub(super) cores: f64,
    /// How often they all left their CPUs in a second.
    pub(super) switches: f64,
}

/// Chooses threads that have done anything: those first that slept the most often, which is what waiting shows by, then those that ran
/// the longest.
pub(super) fn choose(before: &Change) -> Chosen<'_> {
    let mut threads: Vec<&Thread> = before
        .threads
        .iter()
        .filter(|thread| {
            let counts = [thread.ran, thread.sleeps, thread.preempted];
            counts.iter().flatten().any(|count| *count > 0)
        })
        .collect();
    threads.sort_by_key(|thread| Reverse((thread.sleeps.unwrap_or(0), thread.ran.unwrap_or(0), thread.tid)));
    let seconds = (before.length.max(1) as f64) / SECOND_NS as f64;
    let ran: i64 = threads.iter().filter_map(|thread| thread.ran).fold(0, i64::saturating_add);
    let switches = threads.iter().flat_map(|thread| [thread.sleeps, thread.preempted]).flatten();
    let switches: i64 = switches.fold(0, i64::saturating_add);
    let left_out = threads.len().saturating_sub(MOST_THREADS);
    threads.truncate(MOST_THREADS);
    Chosen {
        threads,
        left_out,
        cores: ran as f64 / SECOND_NS as f64 / seconds,
        switches: switches as f64 / seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(tid: u32, ran: i64, sleeps: i64) -> Thread {
        Thread {
            tid,
            kind: "scheduler".to_owned(),
            ran: Some(ran),
            queued: Some(0),
            sleeps: Some(sleeps),
            preempted: Some(0),
        }
    }

    #[test]
    fn threads_that_sleep_the_most_come_first_and_those_that_do_nothing_not_at_all() {
        let threads = vec![
            thread(1, 0, 0),
            thread(2, SECOND_NS, 0),
            thread(3, 2_000_000, 900),
            Thread { preempted: Some(7), ..thread(4, 500_000_000, 100) },
        ];
        let change = Change { length: SECOND_NS, threads };
        let chosen = choose(&change);
        let tids: Vec<u32> = chosen.threads.iter().map(|thread| thread.tid).collect();
        assert_eq!(tids, [3, 4, 2]);
        assert_eq!((chosen.left_out, chosen.switches), (0, 1_007.0));
        assert!((chosen.cores - 1.502).abs() < 1e-9);
    }

    #[test]
    fn not_more_threads_are_watched_than_there_is_room_for() {
        let threads = (1..=100).map(|tid| thread(tid, 1_000, 0)).collect();
        let change = Change { length: SECOND_NS, threads };
        let chosen = choose(&change);
        assert_eq!((chosen.threads.len(), chosen.left_out), (MOST_THREADS, 36));
    }

    #[test]
    fn a_vm_that_does_nothing_has_nothing_to_watch() {
        let chosen_nothing = Change { length: 0, threads: vec![thread(1, 0, 0)] };
        let chosen = choose(&chosen_nothing);
        assert!(chosen.threads.is_empty());
    }
}
