//! The process that forces GCs of others (`erlang:garbage_collect/1,2`), and how often each process is collected.

use beamtune_model::{Evidence, Period, ProcessUse, Rank, Remedy, metrics};

use crate::remedy;
use crate::signals::stack;

/// A node with fewer processes has as many GCs in any second.
pub(crate) const MIN_PROCESSES: f64 = 50.0;

/// Mean GC rate of a process under a job without pauses, at least (judgement: rounds of a second or more make jumps).
pub(crate) const MIN_RATE_PER_PROCESS: f64 = 1.0;

/// Minor GCs of a nearly idle process since a forced one some seconds ago, at most (measured in the lab).
const MAX_MINOR_GCS: i64 = 1;

/// Evidence: where a process was sampled that forces GCs.
const GC_CALL: &str = "garbage_collect call";

/// GCs that one process forces without a pause.
pub(crate) struct Forced<'p> {
    pub caller: &'p ProcessUse,
    /// GCs of the node per second.
    pub rate: f64,
    /// Processes of the node.
    pub processes: f64,
}

impl Forced<'_> {
    /// `None` unless each process is collected at least once a second and a process was sampled forcing that.
    pub(crate) fn of(period: &Period) -> Option<Forced<'_>> {
        let processes = period.stat(&metrics::PROCESS_COUNT, "").ok()?.mean();
        let rate = period.rate(&metrics::GARBAGE_COLLECTIONS, "").ok()?;
        let is_often = processes >= MIN_PROCESSES && rate >= MIN_RATE_PER_PROCESS * processes;
        let caller = caller(period).filter(|_| is_often && !collect_themselves(period))?;
        Some(Forced { caller, rate, processes })
    }
}

/// Whether the GCs are the processes' own. A forced GC is a fullsweep, and a nearly idle process has no minor GC for long after it (the largest
/// heaps, which have rows, belong to those that just had one). If most of the nearly idle ones had more, their heaps fill at the same time,
/// as in processes that all receive the same messages.
pub(crate) fn collect_themselves(period: &Period) -> bool {
    let rows = period.processes.iter().filter_map(|process| process.row.as_ref());
    let idle = rows.filter(|row| !row.ranks.contains(&Rank::Reductions));
    let minor: Vec<i64> = idle.filter_map(|row| row.minor_gcs).collect();
    2 * minor.iter().filter(|count| **count > MAX_MINOR_GCS).count() > minor.len()
}

/// Whether its last row shows it in a forced GC of another process.
fn was_collecting(process: &ProcessUse) -> bool {
    process.row.as_ref().is_some_and(|row| {
        row.current_function.as_deref().is_some_and(stack::collects_others)
            || row.stack.first().is_some_and(|function| stack::collects_others(function))
    })
}

/// The process that was sampled most often in a forced GC, running or waiting; else one whose last row shows it there. Most of the time it waits
/// for the processes that it collects.
pub(crate) fn caller(period: &Period) -> Option<&ProcessUse> {
    let sampled = period.processes.iter().map(|process| (process, count(samples_in_gc_call(process))));
    // Of equal ones the busiest, which comes first.
    let most = sampled.rev().max_by_key(|(_, count)| *count).filter(|(_, count)| *count > 0);
    most.map(|(process, _)| process)
        .or_else(|| period.processes.iter().find(|process| was_collecting(process)))
}

/// Number of samples of some stacks.
fn count<'a>(stacks: impl Iterator<Item = &'a (Vec<String>, i64)>) -> i64 {
    stacks.fold(0, |sum, (_, count)| sum.saturating_add(*count))
}

/// The stacks in which it forces a GC of others, with the number of samples.
fn samples_in_gc_call(process: &ProcessUse) -> impl Iterator<Item = &(Vec<String>, i64)> {
    let does = |stack: &[String]| stack.iter().take(2).any(|function| stack::collects_others(function));
    process.ran.iter().chain(&process.stood).filter(move |(stack, _)| does(stack))
}

/// Where it forces GCs of others, by its samples or by its last row.
pub(crate) fn evidence(process: &ProcessUse) -> Option<Evidence> {
    let times = count(samples_in_gc_call(process));
    let Some((stack, _)) = samples_in_gc_call(process).max_by_key(|(_, count)| *count) else {
        return Some(Evidence::text(GC_CALL, stack::told(process.row.as_ref()?)?));
    };
    let of = count(process.ran.iter().chain(&process.stood));
    let at = stack.first()?;
    Some(Evidence::text(GC_CALL, format!("{}, in {times} of {of} samples", stack::with_caller(at, stack))))
}

/// To force no GCs, with the function that does where that was sampled.
pub(crate) fn remedy(period: &Period, caller: Option<&ProcessUse>) -> Option<Remedy> {
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
        "processes collect themselves when they need to; those that hold binaries for long can hibernate or have a lower fullsweep_after",
        "beamtune memory --what-if collect shows what such a job returns; then RSS and CPU per request without it",
    )
}
