//! Forced GCs: the process that forces them in others (`erlang:garbage_collect/1,2`), and how often each process is collected.

use beamtune_model::{Evidence, Period, ProcessActivity, Rank, Remedy, metrics};

use crate::remedy;
use crate::signals::stack;

/// A node with fewer processes reaches the GC rate below without forced GCs.
pub(crate) const MIN_PROCESSES: f64 = 50.0;

/// Minimum mean GC rate of a process, per second, while a job forces GCs without a pause (judgement). If a round takes a second or more,
/// the GC rate shows jumps.
pub(crate) const MIN_RATE_PER_PROCESS: f64 = 1.0;

/// Maximum number of minor GCs of a nearly idle process in the seconds since a forced GC (measured in the lab).
const MAX_MINOR_GCS: i64 = 1;

/// Name of the evidence that shows where a process forces GCs.
const GC_CALL: &str = "garbage_collect call";

/// GCs that one process forces without a pause.
pub(crate) struct Forced<'p> {
    pub caller: &'p ProcessActivity,
    /// GCs of the node per second.
    pub rate: f64,
    /// Processes of the node.
    pub processes: f64,
}

impl Forced<'_> {
    /// Returns `None` unless each process is collected at least once a second and a process was sampled while it forced GCs.
    pub(crate) fn of(period: &Period) -> Option<Forced<'_>> {
        let processes = period.stat(&metrics::PROCESS_COUNT, "").ok()?.mean();
        let rate = period.rate(&metrics::GARBAGE_COLLECTIONS, "").ok()?;
        let is_often = processes >= MIN_PROCESSES && rate >= MIN_RATE_PER_PROCESS * processes;
        let caller = caller(period).filter(|_| is_often && !collect_themselves(period))?;
        Some(Forced { caller, rate, processes })
    }
}

/// Whether the processes collect themselves. A forced GC is a fullsweep, after which a nearly idle process has no minor GC for long (the
/// processes with the largest heaps, which have rows, are those that just had a GC). If most nearly idle processes had more minor GCs,
/// their heaps fill at the same time. That happens if all of them receive the same messages.
pub(crate) fn collect_themselves(period: &Period) -> bool {
    let rows = period.processes.iter().filter_map(|process| process.row.as_ref());
    let idle = rows.filter(|row| !row.ranks.contains(&Rank::Reductions));
    let minor: Vec<i64> = idle.filter_map(|row| row.minor_gcs).collect();
    2 * minor.iter().filter(|count| **count > MAX_MINOR_GCS).count() > minor.len()
}

/// Whether its last row shows it in a forced GC of another process.
fn was_collecting(process: &ProcessActivity) -> bool {
    process.row.as_ref().is_some_and(|row| {
        row.current_function.as_deref().is_some_and(stack::collects_others)
            || row.stack.first().is_some_and(|function| stack::collects_others(function))
    })
}

/// Returns the process that was sampled most often in a forced GC, running or waiting; otherwise one whose last row shows it there. Most of
/// the time it waits for the processes that it collects.
pub(crate) fn caller(period: &Period) -> Option<&ProcessActivity> {
    let sampled = period.processes.iter().map(|process| (process, count(samples_in_gc_call(process))));
    // If several have as many samples, the busiest one, which comes first.
    let most = sampled.rev().max_by_key(|(_, count)| *count).filter(|(_, count)| *count > 0);
    most.map(|(process, _)| process)
        .or_else(|| period.processes.iter().find(|process| was_collecting(process)))
}

/// Returns the number of samples of these stacks.
fn count<'a>(stacks: impl Iterator<Item = &'a (Vec<String>, i64)>) -> i64 {
    stacks.fold(0, |sum, (_, count)| sum.saturating_add(*count))
}

/// Returns the stacks in which a process forces a GC of others, with the number of samples.
fn samples_in_gc_call(process: &ProcessActivity) -> impl Iterator<Item = &(Vec<String>, i64)> {
    let does = |stack: &[String]| stack.iter().take(2).any(|function| stack::collects_others(function));
    process.run_stacks.iter().chain(&process.wait_stacks).filter(move |(stack, _)| does(stack))
}

/// Returns where a process forces GCs of others, by its samples or by its last row.
pub(crate) fn evidence(process: &ProcessActivity) -> Option<Evidence> {
    let times = count(samples_in_gc_call(process));
    let Some((stack, _)) = samples_in_gc_call(process).max_by_key(|(_, count)| *count) else {
        return Some(Evidence::text(GC_CALL, stack::current_function(process.row.as_ref()?)?));
    };
    let of = count(process.run_stacks.iter().chain(&process.wait_stacks));
    let at = stack.first()?;
    Some(Evidence::text(GC_CALL, format!("{}, in {times} of {of} samples", stack::with_caller(at, stack))))
}

/// Returns the remedy to stop forcing GCs. It names the function that forces them, if that was sampled.
pub(crate) fn remedy(period: &Period, caller: Option<&ProcessActivity>) -> Option<Remedy> {
    let sampled = caller.and_then(|caller| samples_in_gc_call(caller).max_by_key(|(_, count)| *count));
    let own = sampled.and_then(|(stack, _)| stack::of_program(stack)).map(stack::without_fun);
    let change = match own {
        Some(own) => format!("remove the calls of erlang:garbage_collect in {own}"),
        None => "remove the job that calls erlang:garbage_collect/1 for erlang:processes() (in RabbitMQ: background_gc_enabled)".to_owned(),
    };
    remedy::of(
        period,
        "code.no_forced_collections",
        &change,
        "processes run GC when they need to; those that hold binaries for long can hibernate or use a lower fullsweep_after",
        "beamtune memory --what-if collect shows what such a job frees; then compare RSS and CPU per request without it",
    )
}
