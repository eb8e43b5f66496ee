//! Selects the threads to watch.

use std::cmp::Reverse;

use beamtune_model::units::SECOND_NS;

use crate::threads::{Change, Thread};

/// Maximum number of watched threads. Each needs up to three rings and as many open files.
pub(super) const MAX_THREADS: usize = 64;

/// The selected threads.
#[derive(Debug, PartialEq)]
pub(super) struct Chosen<'a> {
    pub(super) threads: Vec<&'a Thread>,
    /// Number of active threads beyond the limit.
    pub(super) left_out: usize,
    /// CPU use of all active threads, in cores.
    pub(super) cores: f64,
    /// Context switches of all active threads per second.
    pub(super) switches: f64,
}

/// Selects active threads. Those that slept most often come first, since waiting shows in sleeps; then those that ran longest.
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
    let left_out = threads.len().saturating_sub(MAX_THREADS);
    threads.truncate(MAX_THREADS);
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
    fn threads_that_sleep_most_come_first_and_idle_threads_are_omitted() {
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
    fn number_of_watched_threads_is_bounded() {
        let threads = (1..=100).map(|tid| thread(tid, 1_000, 0)).collect();
        let change = Change { length: SECOND_NS, threads };
        let chosen = choose(&change);
        assert_eq!((chosen.threads.len(), chosen.left_out), (MAX_THREADS, 36));
    }

    #[test]
    fn an_idle_vm_has_no_threads_to_watch() {
        let idle = Change { length: 0, threads: vec![thread(1, 0, 0)] };
        let chosen = choose(&idle);
        assert!(chosen.threads.is_empty());
    }
}
