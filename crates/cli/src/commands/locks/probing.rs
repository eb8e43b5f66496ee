//! Which locks a stock VM waits for, seen from outside: no restart, and nothing of the node is changed.
//!
//! First a part of the time without any probe: how long each thread ran, wanted to, and how often it slept. That says which threads are
//! worth watching. Then those are watched for the rest of the time ([`beamtune_profile::watch`]). What cannot be had becomes a remark with
//! the way out, and what is left is done all the same.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use beamtune_host::tree::LocalTree;
use beamtune_model::cpu::kind;
use beamtune_model::units::SECOND_NS;
use beamtune_model::{Clock, Period, WaitRow};
use beamtune_profile::ProfileError;
use beamtune_profile::threads::{self, Change, Thread};
use beamtune_profile::watch::{Cost, Seen, Sleeps, Watch};
use beamtune_recording::{Stop, SystemClock};
use beamtune_rules::contention::blocked::{self, Blocked, Times};

use crate::take;

/// Samples in a second, if nobody says it: 0.3 to 1 % of a core where it was measured, and some thousand stacks in five seconds.
pub const RATE: u32 = 1_000;

/// Which part of the time is free of probes.
const FREE_PART: u32 = 5;
/// Bounds of that: in less than half a second little happens, and more than two say nothing new.
const FREE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(2));
/// How often the kernel's rings are emptied.
const EVERY: Duration = Duration::from_millis(10);
/// Samples within locks' functions are worth a remark from this share of all on; a VM at work is there for 1 to 2 % anyway (judgement).
const MUCH_LOCKING: f64 = 0.05;
/// Below so many samples no share is told.
const LEAST_SAMPLES: i64 = 50;
/// More than this share of stacks without an end make the rest doubtful.
const MANY_LOST: f64 = 0.2;
/// A scheduler that has run for more than this share of the time should have been watched (judgement).
const HAS_RUN: f64 = 0.05;
/// More than this share of records that were lost makes the times too small to clear a node (judgement).
const MANY_MISSING: f64 = 0.1;

/// What was seen.
#[derive(Debug, Clone)]
pub struct Probed {
    /// Waits for locks, the longest first; their instant is left at 0, since only the recording knows it.
    pub waits: Vec<WaitRow>,
    /// Whether the schedulers are blocked, of each kind.
    pub blocked: Vec<Blocked>,
    /// How long it was watched for waits: what the time of the rows refers to. 0: not at all.
    pub length: Duration,
    /// Waits were missed: sleeps were not seen, or many records were lost. What was seen is the least then.
    pub is_least: bool,
    /// What is missing or not exact, and what can be done about it.
    pub remarks: Vec<String>,
    /// What it has cost the VM.
    pub cost: Cost,
}

impl Probed {
    /// Says again whether schedulers are blocked, now from a recording of the same time, in which the VM says when they had work.
    pub fn judge_by(&mut self, period: &Period) {
        if let Ok(times) = blocked::of_period(period) {
            self.blocked = times.into_iter().map(blocked::judge).collect();
        }
    }
}

/// Looks at the threads of a VM of this host for so long, with so many samples in a second at most. Of what can go wrong only that there is
/// no such process is an error.
pub fn look(pid: u32, length: Duration, rate: u32, stop: &Stop) -> Result<Probed> {
    let tree = LocalTree::default();
    let clock = SystemClock::new(stop.clone());
    let look = || {
        threads::look(&tree, pid, &clock)
            .with_context(|| format!("cannot look at the threads of process {pid}"))
    };
    let free = (length / FREE_PART).clamp(FREE.0, FREE.1);
    let left = length.saturating_sub(free).max(free);
    let before = look()?;
    stop.wait(free);
    let chosen = look()?;
    let change = threads::between(&before, &chosen);
    let mut probed = Probed {
        waits: Vec::new(),
        blocked: schedulers(&change),
        length: Duration::ZERO,
        is_least: true,
        remarks: Vec::new(),
        cost: Cost::default(),
    };
    let mut watch = match Watch::open(&tree, pid, &change, rate) {
        Ok(watch) => watch,
        Err(error) => {
            probed.remarks.push(unseen(&error));
            stop.wait(left);
            probed.blocked = schedulers(&threads::between(&before, &look()?));
            return Ok(probed);
        }
    };
    // Opening takes its time, in which nothing was seen.
    let opened = look()?;
    let begin = clock.now();
    let left = take::nanos(left);
    while clock.now().saturating_sub(begin) < left && !stop.is_requested() {
        stop.wait(EVERY);
        watch.drain();
    }
    let watched = clock.now().saturating_sub(begin).max(1);
    probed.remarks.append(&mut watch.remarks);
    // Of a VM that has ended meanwhile, what was seen counts.
    let during = look().map(|last| threads::between(&opened, &last)).ok();
    let tids = watch.tids();
    let unwatched = during.as_ref().map_or(0, |during| unwatched(during, &tids));
    let queued = during.map(|during| {
        let watched = during.threads.iter().filter(|thread| tids.contains(&thread.tid));
        watched.filter_map(|thread| thread.queued).fold(0_i64, i64::saturating_add)
    });
    let seen = watch.finish(watched, queued);
    probed.remarks.extend(remarks(&seen));
    if unwatched > 0 {
        probed.remarks.push(format!(
            "{unwatched} schedulers that were not watched have worked meanwhile, most likely because they had no work before: look again"
        ));
    }
    probed.is_least = unwatched > 0 || is_least(&seen);
    probed.cost = seen.cost;
    probed.length = Duration::from_nanos(watched.unsigned_abs());
    probed.waits = seen.found.rows;
    Ok(probed)
}

/// How the schedulers spent their time.
fn schedulers(change: &Change) -> Vec<Blocked> {
    times(change).into_iter().map(blocked::judge).collect()
}

/// How the schedulers of each kind spent their time between two looks. The VM was not asked.
fn times(change: &Change) -> Vec<Times> {
    let mut kinds: BTreeMap<&str, Times> = BTreeMap::new();
    for thread in change.threads.iter().filter(|thread| kind::SCHEDULERS.contains(&thread.kind.as_str())) {
        let times = kinds.entry(&thread.kind).or_insert_with(|| Times {
            kind: thread.kind.clone(),
            length: change.length,
            ran: Some(0),
            queued: Some(0),
            sleeps: Some(0),
            ..Times::default()
        });
        let add = |sum: Option<i64>, more: Option<i64>| Some(sum?.saturating_add(more?));
        times.threads += 1;
        times.ran = add(times.ran, thread.ran);
        times.queued = add(times.queued, thread.queued);
        times.sleeps = add(times.sleeps, thread.sleeps);
    }
    kinds.into_values().collect()
}

/// Why no waits were seen, with the way out.
fn unseen(error: &ProfileError) -> String {
    let way_out = match error.is_denied() {
        // An error of rights says what is needed.
        true => "",
        false => "; or count locks (beamtune emulator run --type lcnt)",
    };
    format!("what threads wait for was not seen: {error}{way_out}")
}

/// How many schedulers have run though they are not among those that are watched.
fn unwatched(during: &Change, watched: &[u32]) -> usize {
    let has_run = |thread: &&Thread| {
        thread.ran.is_some_and(|ran| ran as f64 > HAS_RUN * during.length as f64)
            && kind::SCHEDULERS.contains(&thread.kind.as_str())
            && !watched.contains(&thread.tid)
    };
    during.threads.iter().filter(has_run).count()
}

/// Whether waits were missed.
fn is_least(seen: &Seen) -> bool {
    let missing = seen.cost.lost.saturating_add(seen.found.left_out);
    seen.sleeps == Sleeps::Unseen || missing as f64 > MANY_MISSING * seen.cost.samples as f64
}

/// What is to be said of what was seen.
fn remarks(seen: &Seen) -> Vec<String> {
    let found = &seen.found;
    let mut remarks = Vec::new();
    let locking: i64 = found.locking.iter().map(|(_, count)| count).sum();
    let share = locking as f64 / found.on_cpu.max(1) as f64;
    if found.on_cpu >= LEAST_SAMPLES && share >= MUCH_LOCKING {
        let most = found.locking.first().map_or("", |(name, _)| name.as_str());
        let of = if most.is_empty() { String::new() } else { format!(", above all for {most}") };
        remarks.push(format!(
            "threads on a CPU were taking locks in {:.0} % of the samples{of}, without waiting for them: that costs time where several \
             cores take the same one, and is not in the rows",
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
            "{blocks} of the sampled sleeps were of threads that had stopped all others, or were stopped so (code loading, trace, crash dump)"
        ));
    }
    let all = found.on_cpu + found.other.iter().map(|(_, count)| count).sum::<i64>();
    if found.lost as f64 > MANY_LOST * all.max(1) as f64 {
        remarks.push(format!("{} stacks could not be followed: who waits is not known of them", found.lost));
    }
    if found.left_out > 0 {
        remarks.push(format!(
            "{} samples were left out, since there were more different stacks than are kept: look for a shorter time",
            found.left_out
        ));
    }
    if seen.cost.lost > 0 {
        remarks.push(format!(
            "{} records were lost, since beamtune did not get to read them in time: times are too small by that",
            seen.cost.lost
        ));
    }
    remarks
}

/// What it has cost, for a person; `length` is how long it was watched.
pub fn cost_sentence(cost: &Cost, length: Duration) -> String {
    let taken = cost.time.map(|time| {
        let share = time as f64 / SECOND_NS as f64 / length.as_secs_f64().max(0.001);
        format!(" of some {:.1} ms CPU time, {:.2} % of a core", time as f64 / 1e6, share * 100.0)
    });
    format!(
        "watching took {} samples and {} traps{}",
        cost.samples,
        cost.traps,
        taken.unwrap_or_else(|| ", whose cost could not be measured".to_owned())
    )
}

#[cfg(test)]
mod tests {
    use beamtune_profile::waits::Found;
    use beamtune_profile::watch::Sleeps;

    use super::*;

    fn seen(found: Found) -> Seen {
        Seen { found, sleeps: Sleeps::Entries, cost: Cost::default() }
    }

    #[test]
    fn a_quiet_look_needs_no_words() {
        let found = Found {
            on_cpu: 1_000,
            locking: vec![("ets_lookup_2".to_owned(), 20)],
            other: vec![(Some("erts_schedule".to_owned()), 500), (None, 3)],
            lost: 10,
            ..Found::default()
        };
        assert_eq!(remarks(&seen(found)), Vec::<String>::new());
    }

    #[test]
    fn what_rows_do_not_say_is_remarked() {
        let check = |seen: Seen, expect: &str| {
            let remarks = remarks(&seen);
            assert!(remarks.len() == 1 && remarks[0].contains(expect), "{remarks:?}");
        };
        let locking = vec![("ets_update_counter_3".to_owned(), 90), ("alcu_alloc".to_owned(), 10)];
        check(
            seen(Found { on_cpu: 1_000, locking, ..Found::default() }),
            "in 10 % of the samples, above all for ets_update_counter_3",
        );
        let other = vec![(Some("erts_thr_progress_block".to_owned()), 3)];
        check(seen(Found { other, ..Found::default() }), "3 of the sampled sleeps");
        check(seen(Found { on_cpu: 100, lost: 30, ..Found::default() }), "30 stacks could not be followed");
        let cost = Cost { lost: 7, ..Cost::default() };
        check(Seen { cost, ..seen(Found::default()) }, "7 records were lost");
        check(seen(Found { left_out: 5, ..Found::default() }), "5 samples were left out");
    }

    #[test]
    fn threads_are_added_up_by_their_kinds() {
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
        let of = |kind: &str, threads, ran, queued, sleeps| Times {
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
    fn schedulers_that_work_and_are_not_watched_are_counted() {
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
    fn where_waits_were_missed_what_was_seen_is_the_least() {
        let check = |sleeps, samples, lost, left_out, expect| {
            let cost = Cost { samples, lost, ..Cost::default() };
            let found = Found { left_out, ..Found::default() };
            let what = format!("{sleeps:?} {samples} {lost} {left_out}");
            assert_eq!(is_least(&Seen { found, sleeps, cost }), expect, "{what}");
        };
        check(Sleeps::Entries, 1_000, 0, 0, false);
        check(Sleeps::Switches, 1_000, 99, 0, false);
        check(Sleeps::Switches, 1_000, 60, 60, true);
        check(Sleeps::Unseen, 1_000, 0, 0, true);
        // Nothing happened, and nothing was missed.
        check(Sleeps::Switches, 0, 0, 0, false);
    }

    #[test]
    fn the_cost_is_told_as_time_where_it_could_be_measured() {
        let cost = Cost { traps: 10_000, samples: 400, lost: 0, time: Some(12_000_000) };
        let expect = "watching took 400 samples and 10000 traps of some 12.0 ms CPU time, 0.30 % of a core";
        assert_eq!(cost_sentence(&cost, Duration::from_secs(4)), expect);
        let unknown = cost_sentence(&Cost::default(), Duration::ZERO);
        assert_eq!(unknown, "watching took 0 samples and 0 traps, whose cost could not be measured");
    }

    #[test]
    fn who_may_not_look_is_told_how_he_may() {
        let error = ProfileError::Denied { what: "the CPU's clock", paranoid: Some(4) };
        let told = unseen(&error);
        assert!(told.contains("perf_event_paranoid is 4") && told.contains("as root"), "{told}");
        let error = ProfileError::NoSymbols {
            path: "/x/beam.smp".to_owned(),
            missing: vec!["ethr_event_wait".to_owned()],
        };
        let told = unseen(&error);
        assert!(
            told.contains("without the symbols ethr_event_wait") && told.contains("--type lcnt"),
            "{told}"
        );
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        let error = look(u32::MAX, Duration::from_millis(10), 10, &Stop::default()).unwrap_err();
        assert!(error.to_string().contains("cannot look at the threads of process"), "{error:#}");
    }
}
