//! Samples the lock waits of a stock VM from outside, without a restart and without changing the node.
//!
//! The first part of the time is without probes: it measures how long each thread ran and was runnable, and how often it slept. This
//! shows which threads to watch for the rest of the time ([`beamtune_profile::watch`]). If data are not available, a remark says how to
//! get them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use beamtune_host::tree::LocalTree;
use beamtune_model::cpu::kind;
use beamtune_model::units::{SECOND_NS, nanos};
use beamtune_model::{Clock, LockWaitRow, Period};
use beamtune_profile::ProfileError;
use beamtune_profile::threads::{self, Change, Thread};
use beamtune_profile::watch::{Cost, SleepDetection, Watch, WatchResult};
use beamtune_recording::{Stop, SystemClock};
use beamtune_rules::contention::blocked::{self, KindVerdict, ThreadTimes};

/// Default number of stack samples per second. In measurements, this cost 0.3 to 1 % of a core and gave thousands of stacks in 5 s.
pub const DEFAULT_RATE_PER_S: u32 = 1_000;

/// The total time divided by this number is the time without probes.
const PROBE_FREE_DIVISOR: u32 = 5;
/// Bounds of the time without probes: little happens in less than 0.5 s, and more than 2 s show nothing new.
const PROBE_FREE_BOUNDS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(2));
/// Time between two readings of the kernel's ring buffers.
const DRAIN_INTERVAL: Duration = Duration::from_millis(10);
/// Minimum share of samples within lock functions for a remark; a busy VM has 1 to 2 % (judgement).
const MIN_LOCKING_SHARE: f64 = 0.05;
/// Minimum number of samples for printing a share.
const MIN_SAMPLES: i64 = 50;
/// If the share of incomplete stacks is larger, the results are doubtful.
const MAX_LOST_SHARE: f64 = 0.2;
/// A scheduler that ran for a larger share of the time should have been watched (judgement).
const MAX_UNWATCHED_SHARE: f64 = 0.05;
/// If the share of lost records is larger, the times are too small to rule out contention (judgement).
const MAX_MISSING_SHARE: f64 = 0.1;

/// The results of probes.
#[derive(Debug, Clone)]
pub struct ProbeResult {
    /// Lock waits, longest first. Their timestamps are 0; the recording sets them.
    pub waits: Vec<LockWaitRow>,
    /// Whether schedulers of each kind are blocked.
    pub blocked: Vec<KindVerdict>,
    /// Sampled time that the durations of the waits refer to; 0 if nothing was sampled.
    pub length: Duration,
    /// True if waits were missed: sleeps were not observed, or many records were lost.
    pub is_lower_bound: bool,
    /// Missing or inexact data, with the next step for the user.
    pub remarks: Vec<String>,
    /// The cost to the VM.
    pub cost: Cost,
}

impl ProbeResult {
    /// Evaluates the schedulers again with a recording of the same time, since only the VM knows when they had work.
    pub fn judge_by(&mut self, period: &Period) {
        if let Ok(times) = blocked::of_period(period) {
            self.blocked = times.into_iter().map(blocked::judge).collect();
        }
    }
}

/// Samples the threads of a VM on this host, with at most `rate` samples per second.
///
/// # Errors
/// If there is no such process. Anything else that fails becomes a remark.
pub fn sample(pid: u32, length: Duration, rate: u32, stop: &Stop) -> Result<ProbeResult> {
    let tree = LocalTree::default();
    let clock = SystemClock::new(stop.clone());
    let read_threads = || {
        threads::snapshot(&tree, pid, &clock)
            .with_context(|| format!("cannot read the threads of process {pid}"))
    };
    let free = (length / PROBE_FREE_DIVISOR).clamp(PROBE_FREE_BOUNDS.0, PROBE_FREE_BOUNDS.1);
    let left = length.saturating_sub(free).max(free);
    let before = read_threads()?;
    stop.wait(free);
    let chosen = read_threads()?;
    let change = threads::changes(&before, &chosen);
    let mut result = ProbeResult {
        waits: Vec::new(),
        blocked: schedulers(&change),
        length: Duration::ZERO,
        is_lower_bound: true,
        remarks: Vec::new(),
        cost: Cost::default(),
    };
    let mut watch = match Watch::open(&tree, pid, &change, rate) {
        Ok(watch) => watch,
        Err(error) => {
            result.remarks.push(not_sampled(&error));
            stop.wait(left);
            result.blocked = schedulers(&threads::changes(&before, &read_threads()?));
            return Ok(result);
        }
    };
    // Opening the probes takes time, which does not count as sampled.
    let opened = read_threads()?;
    let begin = clock.now();
    let left = nanos(left);
    while clock.now().saturating_sub(begin) < left && !stop.is_requested() {
        stop.wait(DRAIN_INTERVAL);
        watch.drain();
    }
    let watched = clock.now().saturating_sub(begin).max(1);
    result.remarks.append(&mut watch.remarks);
    // If the VM has ended, the waits so far are used.
    let during = read_threads().map(|last| threads::changes(&opened, &last)).ok();
    let tids = watch.tids();
    let unwatched = during.as_ref().map_or(0, |during| unwatched(during, &tids));
    let queued = during.map(|during| {
        let watched = during.threads.iter().filter(|thread| tids.contains(&thread.tid));
        watched.filter_map(|thread| thread.queued).fold(0_i64, i64::saturating_add)
    });
    let seen = watch.finish(watched, queued);
    result.remarks.extend(remarks(&seen));
    if unwatched > 0 {
        result.remarks.push(format!(
            "{unwatched} schedulers were not watched but ran, probably because they were idle before: repeat the command"
        ));
    }
    result.is_lower_bound = unwatched > 0 || is_lower_bound(&seen);
    result.cost = seen.cost;
    result.length = Duration::from_nanos(watched.unsigned_abs());
    result.waits = seen.summary.rows;
    Ok(result)
}

/// Evaluates how the schedulers spent their time.
fn schedulers(change: &Change) -> Vec<KindVerdict> {
    times(change).into_iter().map(blocked::judge).collect()
}

/// Sums up how the schedulers of each kind spent their time, without data of the VM.
fn times(change: &Change) -> Vec<ThreadTimes> {
    let mut kinds: BTreeMap<&str, ThreadTimes> = BTreeMap::new();
    for thread in change.threads.iter().filter(|thread| kind::SCHEDULERS.contains(&thread.kind.as_str())) {
        let times = kinds.entry(&thread.kind).or_insert_with(|| ThreadTimes {
            kind: thread.kind.clone(),
            length: change.length,
            ran: Some(0),
            queued: Some(0),
            sleeps: Some(0),
            ..ThreadTimes::default()
        });
        let add = |sum: Option<i64>, more: Option<i64>| Some(sum?.saturating_add(more?));
        times.threads += 1;
        times.ran = add(times.ran, thread.ran);
        times.queued = add(times.queued, thread.queued);
        times.sleeps = add(times.sleeps, thread.sleeps);
    }
    kinds.into_values().collect()
}

/// Returns the remark for waits that could not be sampled, with an alternative.
fn not_sampled(error: &ProfileError) -> String {
    let way_out = match error.is_denied() {
        // The error already names the required rights.
        true => "",
        false => "; or count locks (beamtune emulator run --type lcnt)",
    };
    format!("cannot sample lock waits: {error}{way_out}")
}

/// Counts the schedulers that ran but were not watched.
fn unwatched(during: &Change, watched: &[u32]) -> usize {
    let has_run = |thread: &&Thread| {
        thread.ran.is_some_and(|ran| ran as f64 > MAX_UNWATCHED_SHARE * during.length as f64)
            && kind::SCHEDULERS.contains(&thread.kind.as_str())
            && !watched.contains(&thread.tid)
    };
    during.threads.iter().filter(has_run).count()
}

/// True if waits were missed.
fn is_lower_bound(seen: &WatchResult) -> bool {
    let missing = seen.cost.lost.saturating_add(seen.summary.left_out);
    seen.sleeps == SleepDetection::None || missing as f64 > MAX_MISSING_SHARE * seen.cost.samples as f64
}

/// Returns remarks on missing or unusual samples.
fn remarks(seen: &WatchResult) -> Vec<String> {
    let found = &seen.summary;
    let mut remarks = Vec::new();
    let locking: i64 = found.locking.iter().map(|(_, count)| count).sum();
    let share = locking as f64 / found.on_cpu.max(1) as f64;
    if found.on_cpu >= MIN_SAMPLES && share >= MIN_LOCKING_SHARE {
        let function = found.locking.first().map_or("", |(name, _)| name.as_str());
        let of = if function.is_empty() { String::new() } else { format!(", mostly for {function}") };
        remarks.push(format!(
            "running threads were inside lock functions in {:.0} % of the samples{of}, without waiting: this costs time if several \
             cores acquire the same lock, and is not included in the rows",
            share * 100.0
        ));
    }
    let blocks: i64 = found
        .other
        .iter()
        .filter(|(function, _)| function.as_deref().is_some_and(|name| name.starts_with("erts_thr_progress")))
        .map(|(_, count)| count)
        .sum();
    if blocks > 0 {
        remarks.push(format!(
            "{blocks} of the sampled sleeps belong to threads that blocked all others (code loading, tracing, crash dump), or were blocked by one"
        ));
    }
    let all = found.on_cpu + found.other.iter().map(|(_, count)| count).sum::<i64>();
    if found.lost as f64 > MAX_LOST_SHARE * all.max(1) as f64 {
        remarks.push(format!("{} stacks are incomplete, so the waiting operation is unknown", found.lost));
    }
    if found.left_out > 0 {
        remarks.push(format!(
            "{} samples were discarded, since there were too many different stacks: sample for a shorter time",
            found.left_out
        ));
    }
    if seen.cost.lost > 0 {
        remarks.push(format!(
            "{} records were lost, since beamtune could not read them in time, so the times are too low",
            seen.cost.lost
        ));
    }
    remarks
}

/// Describes the cost in a sentence; `length` is the sampled time.
pub fn cost_sentence(cost: &Cost, length: Duration) -> String {
    let taken = cost.time.map(|time| {
        let share = time as f64 / SECOND_NS as f64 / length.as_secs_f64().max(0.001);
        format!(": {:.1} ms CPU time, {:.2} % of a core", time as f64 / 1e6, share * 100.0)
    });
    format!(
        "{} stack samples and {} traps{}",
        cost.samples,
        cost.traps,
        taken.unwrap_or_else(|| ", at an unknown cost".to_owned())
    )
}

#[cfg(test)]
mod tests {
    use beamtune_profile::waits::WaitSummary;
    use beamtune_profile::watch::SleepDetection;

    use super::*;

    fn seen(found: WaitSummary) -> WatchResult {
        WatchResult { summary: found, sleeps: SleepDetection::Uprobes, cost: Cost::default() }
    }

    #[test]
    fn a_normal_result_has_no_remarks() {
        let found = WaitSummary {
            on_cpu: 1_000,
            locking: vec![("ets_lookup_2".to_owned(), 20)],
            other: vec![(Some("erts_schedule".to_owned()), 500), (None, 3)],
            lost: 10,
            ..WaitSummary::default()
        };
        assert_eq!(remarks(&seen(found)), Vec::<String>::new());
    }

    #[test]
    fn missing_data_cause_a_remark() {
        let check = |seen: WatchResult, expect: &str| {
            let remarks = remarks(&seen);
            assert!(remarks.len() == 1 && remarks[0].contains(expect), "{remarks:?}");
        };
        let locking = vec![("ets_update_counter_3".to_owned(), 90), ("alcu_alloc".to_owned(), 10)];
        check(
            seen(WaitSummary { on_cpu: 1_000, locking, ..WaitSummary::default() }),
            "in 10 % of the samples, mostly for ets_update_counter_3",
        );
        let other = vec![(Some("erts_thr_progress_block".to_owned()), 3)];
        check(seen(WaitSummary { other, ..WaitSummary::default() }), "3 of the sampled sleeps");
        check(
            seen(WaitSummary { on_cpu: 100, lost: 30, ..WaitSummary::default() }),
            "30 stacks are incomplete",
        );
        let cost = Cost { lost: 7, ..Cost::default() };
        check(WatchResult { cost, ..seen(WaitSummary::default()) }, "7 records were lost");
        check(seen(WaitSummary { left_out: 5, ..WaitSummary::default() }), "5 samples were discarded");
    }

    #[test]
    fn times_are_summed_by_thread_kind() {
        let thread = |tid, kind: &str, ran, sleeps| Thread {
            tid,
            kind: kind.to_owned(),
            ran,
            queued: Some(5),
            sleeps: Some(sleeps),
            preempted: None,
        };
        let change = Change {
            length: 100,
            threads: vec![
                thread(1, "scheduler", Some(10), 1),
                thread(2, "dirty_io_scheduler", None, 7),
                thread(4, "aux", Some(9), 9),
                thread(3, "scheduler", Some(20), 2),
            ],
        };
        let of = |kind: &str, threads, ran, queued, sleeps| ThreadTimes {
            kind: kind.to_owned(),
            threads,
            length: 100,
            awake: None,
            working: None,
            ran,
            queued: Some(queued),
            sleeps: Some(sleeps),
        };
        let expect = [of("dirty_io_scheduler", 1, None, 5, 7), of("scheduler", 2, Some(30), 10, 3)];
        assert_eq!(times(&change), expect);
    }

    #[test]
    fn busy_schedulers_that_are_not_watched_are_counted() {
        let thread = |tid, kind: &str, ran| Thread {
            tid,
            kind: kind.to_owned(),
            ran,
            queued: None,
            sleeps: None,
            preempted: None,
        };
        let threads = vec![
            thread(1, "scheduler", Some(90)),
            thread(2, "scheduler", Some(90)),
            thread(3, "scheduler", Some(5)),
            thread(4, "scheduler", None),
            thread(5, "aux", Some(90)),
            thread(6, "dirty_cpu_scheduler", Some(6)),
        ];
        let during = Change { length: 100, threads };
        assert_eq!((unwatched(&during, &[1]), unwatched(&during, &[1, 2, 6])), (2, 0));
    }

    #[test]
    fn missed_waits_make_the_result_a_lower_bound() {
        let check = |sleeps, samples, lost, left_out, expect| {
            let cost = Cost { samples, lost, ..Cost::default() };
            let found = WaitSummary { left_out, ..WaitSummary::default() };
            let what = format!("{sleeps:?} {samples} {lost} {left_out}");
            assert_eq!(is_lower_bound(&WatchResult { summary: found, sleeps, cost }), expect, "{what}");
        };
        check(SleepDetection::Uprobes, 1_000, 0, 0, false);
        check(SleepDetection::Switches, 1_000, 99, 0, false);
        check(SleepDetection::Switches, 1_000, 60, 60, true);
        check(SleepDetection::None, 1_000, 0, 0, true);
        // Nothing happened, so nothing was missed.
        check(SleepDetection::Switches, 0, 0, 0, false);
    }

    #[test]
    fn the_cost_is_in_cpu_time_if_it_was_measured() {
        let cost = Cost { traps: 10_000, samples: 400, lost: 0, time: Some(12_000_000) };
        let expect = "400 stack samples and 10000 traps: 12.0 ms CPU time, 0.30 % of a core";
        assert_eq!(cost_sentence(&cost, Duration::from_secs(4)), expect);
        let unknown = cost_sentence(&Cost::default(), Duration::ZERO);
        assert_eq!(unknown, "0 stack samples and 0 traps, at an unknown cost");
    }

    #[test]
    fn the_remark_on_missing_rights_or_symbols_names_an_alternative() {
        let error = ProfileError::Denied { what: "the CPU's clock", paranoid: Some(4) };
        let remark = not_sampled(&error);
        assert!(remark.contains("perf_event_paranoid is 4") && remark.contains("as root"), "{remark}");
        let error = ProfileError::NoSymbols {
            path: "/x/beam.smp".to_owned(),
            missing: vec!["ethr_event_wait".to_owned()],
        };
        let remark = not_sampled(&error);
        assert!(
            remark.contains("without the symbols ethr_event_wait") && remark.contains("--type lcnt"),
            "{remark}"
        );
    }

    #[test]
    fn a_missing_process_is_an_error() {
        let error = sample(u32::MAX, Duration::from_millis(10), 10, &Stop::default()).unwrap_err();
        assert!(error.to_string().contains("cannot read the threads of process"), "{error:#}");
    }
}
