//! Processes that hibernate again and again, by samples of running processes.

use beamtune_model::{Period, WorkSample};

use crate::signals::counts::largest_first;
use crate::signals::hot_code::{MIN_COLLECTED, MIN_SAMPLES};
use crate::signals::stack;

/// Minimum share of a kind's samples that must be just before or after hibernation (judgement: half). The other samples show how it handles
/// its messages.
const MOST: f64 = 0.5;

/// Kinds of processes that hibernate while they work.
#[derive(Debug)]
pub(crate) struct Hibernation<'a> {
    /// Registered names or initial calls, with their samples, most first.
    pub kinds: Vec<(&'a str, i64)>,
    /// Number of samples of running processes: of these kinds, and of all.
    pub samples: (i64, i64),
    /// Number of samples of these kinds that went into hibernation or had just come out of it.
    pub at_rest: i64,
    /// Their share of all sampled garbage collection.
    pub collected: f64,
}

impl<'a> Hibernation<'a> {
    /// Returns the kinds of processes that hibernate; `None` if absent, or too few samples.
    pub(crate) fn of(period: &'a Period) -> Option<Self> {
        // A process that was just woken in a loop, a call or a sleep has not run.
        let waits = |at: &String| stack::is_wait(at) || stack::is_sleep(at);
        let is_woken =
            |one: &&WorkSample| one.is_runnable && one.stack.first().is_some_and(waits) && !hibernates(one);
        let samples: Vec<&WorkSample> = period.work_samples.iter().filter(|one| !is_woken(one)).collect();
        let sum = |of: &dyn Fn(&WorkSample) -> bool| -> i64 {
            samples.iter().filter(|one| of(one)).fold(0, |sum, one| sum.saturating_add(one.samples))
        };
        let of_kinds =
            largest_first(samples.iter().filter_map(|one| Some((one.kind.as_deref()?, one.samples))));
        let is_meant = |(kind, _): &(&str, i64)| {
            // Samples of GC are left out: GC may have causes other than hibernation.
            let seen = sum(&|one| one.kind.as_deref() == Some(*kind) && !one.is_collecting);
            let resting =
                sum(&|one| one.kind.as_deref() == Some(*kind) && !one.is_collecting && hibernates(one));
            resting > 0 && resting as f64 >= MOST * seen as f64
        };
        let kinds: Vec<(&str, i64)> = of_kinds.into_iter().filter(is_meant).collect();
        let is_own = |one: &WorkSample| {
            one.kind.as_deref().is_some_and(|kind| kinds.iter().any(|(own, _)| *own == kind))
        };
        let (own, all) = (sum(&is_own), sum(&|_| true));
        if own < MIN_SAMPLES {
            return None;
        }
        let collected = (sum(&|one| one.is_collecting && is_own(one)), sum(&|one| one.is_collecting));
        Some(Hibernation {
            samples: (own, all),
            at_rest: sum(&|one| is_own(one) && hibernates(one)),
            // GC by hibernation is hardly ever sampled as such: the process that works makes the garbage.
            collected: match collected {
                (own, all) if all >= MIN_COLLECTED => own as f64 / all as f64,
                _ => own as f64 / all.max(1) as f64,
            },
            kinds,
        })
    }
}

/// Whether the innermost function goes into hibernation or has just come out of it. Functions further out do not count:
/// `proc_lib:wake_up/3` stays on the stack of a process that has hibernated once, for as long as it lives.
fn hibernates(sample: &WorkSample) -> bool {
    sample.stack.first().is_some_and(|at| stack::is_hibernation(at))
}
