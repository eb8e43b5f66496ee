//! BT032: a job collects every process again and again: background collectors of old advice.
//!
//! It is seen by the counter of collections: it jumps by the number of processes, from one reading to the next, while the work between two
//! jumps needs few. Where a round follows the other without a pause, there are no jumps; then a process that was seen collecting others tells
//! it, on a node on which each process is collected at least once a second.

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Group, Missing, Period, ProcessUse, Rank, Remedy, Scale,
    Signal, Threshold, Unit, Use, cpu::kind, metrics, units::SECOND_NS,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::signals::stack;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT032"),
    name: "forced-collections",
    question: "Does a job collect all processes over and over?",
    confirm: "switch the job off for ten minutes: collections fall, and memory that stays as it was says that it gave back nothing",
    needs: &[&metrics::GARBAGE_COLLECTIONS, &metrics::PROCESS_COUNT],
    account: Account::CpuUsed,
    topics: &[Topic::MemoryCpu],
    judge,
    thresholds: &[RATE],
    ..Rule::COMMON
};

/// Collections of a jump for each process of the node.
const ALL_OF_THEM: f64 = 0.8;

/// More than that are no round through all processes, but waves of work.
const MORE_THAN_ALL: f64 = 2.0;

/// A jump stands out if the readings around it have this many times fewer.
const STANDS_OUT: f64 = 4.0;

/// Jumps that make a job.
const ENOUGH: usize = 3;

/// Nodes with fewer processes have as many collections in any second.
const FEW_PROCESSES: f64 = 50.0;

/// Where each process is collected so often in a second, and one was seen collecting others, it does nothing else (judgement: rounds of a
/// second and more have jumps).
const EACH_PER_SECOND: f64 = 1.0;

/// So many minor collections a process that does little may have had since it was collected as a whole some seconds ago (seen in the lab).
const MINOR_ONES: i64 = 1;

/// Who does it, or where he was seen at it.
const SEEN_COLLECTING: &str = "seen collecting others";

/// Processes collected in vain per second.
const RATE: Threshold = Threshold::new(
    "forced-collections.collections_per_s",
    "forced collections a second",
    Scale {
        notice: 1.0,
        warning: 500.0,
        critical: 50_000.0,
        source: "judgement: a collection of a small process takes some 10 µs, and its caches",
    },
);

/// When all processes were collected, in seconds, and how many collections there were then. A round that falls into two steps
/// from one reading to the next is one.
fn jumps(steps: &[(f64, f64)], all: f64, usual: f64) -> Vec<(f64, f64)> {
    let is_jump = |size: f64, steps: f64| size >= all && size >= STANDS_OUT * steps * usual;
    let mut found = Vec::new();
    let mut at = 0;
    while let Some((seconds, size)) = steps.get(at) {
        let alone = |step: &(f64, f64)| is_jump(step.1, 1.0);
        match steps.get(at + 1) {
            _ if is_jump(*size, 1.0) => found.push((*seconds, *size)),
            Some(next) if !alone(next) && is_jump(size + next.1, 2.0) => {
                found.push((next.0, size + next.1 - usual));
                at += 1;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let stat = period.stat(&metrics::GARBAGE_COLLECTIONS, "")?;
    let processes = period.stat(&metrics::PROCESS_COUNT, "")?.mean();
    let rate = period.rate(&metrics::GARBAGE_COLLECTIONS, "")?;
    let steps: Vec<(f64, f64)> = stat
        .trace
        .points()
        .windows(2)
        .map(|pair| (pair[1].0 as f64 / SECOND_NS as f64, (pair[1].1 - pair[0].1).max(0) as f64))
        .collect();
    let mut sizes: Vec<f64> = steps.iter().map(|step| step.1).collect();
    sizes.sort_by(f64::total_cmp);
    // Of short recordings up to two thirds of the steps may have a part of a round.
    let usual = sizes.get(sizes.len() / 4).copied().unwrap_or(0.0);
    let jumps = jumps(&steps, ALL_OF_THEM * processes, usual.max(1.0));
    let healthy = || {
        Ok(Judgement::Healthy(format!(
            "{rate:.0} collections a second, and no three moments in {:.0} s at which all processes are collected",
            period.seconds()
        )))
    };
    if processes < FEW_PROCESSES {
        return healthy();
    }
    if jumps.len() < ENOUGH {
        let caller = who_collects(period)
            .filter(|_| rate >= EACH_PER_SECOND * processes && !collect_themselves(period));
        return match caller.zip(RATE.of(period).severity(rate)) {
            Some((caller, severity)) => {
                Ok(Judgement::found(without_pause(period, caller, severity, rate, processes)))
            }
            None => healthy(),
        };
    }
    let mut apart: Vec<f64> = jumps.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    apart.sort_by(f64::total_cmp);
    let median = apart[apart.len() / 2].max(1.0);
    // A moment is known to a step from one reading to the next: rounds of 2.5 s are two or three apart.
    let step_s = period.seconds() / sizes.len() as f64;
    let tolerance = (0.25 * median).max(1.1 * step_s);
    let regular: Vec<f64> =
        apart.iter().copied().filter(|seconds| (seconds - median).abs() < tolerance).collect();
    let every = (regular.iter().sum::<f64>() / regular.len() as f64).max(1.0);
    // What happens at random moments is the load's doing.
    if regular.len() * 4 < apart.len() * 3 {
        return healthy();
    }
    let forced = jumps.iter().map(|jump| jump.1 - usual).sum::<f64>() / jumps.len() as f64;
    if forced > MORE_THAN_ALL * processes {
        return healthy();
    }
    let Some(severity) = RATE.of(period).severity(forced / every) else { return healthy() };
    let caller = who_collects(period);
    if caller.is_none() && collect_themselves(period) {
        return healthy();
    }
    // Of a long recording fewer readings are kept than there were.
    let step = if step_s < 1.5 { "a second".to_owned() } else { format!("{step_s:.1} s") };
    let draft = Draft::new(
        severity,
        format!(
            "about every {} some job collects all processes: {forced:.0} collections within {step}, on a node of {processes:.0} processes",
            view::duration_text(every)
        ),
    )
    .confidence(Confidence::Inferred)
    .because(Evidence::number("collections at such a moment", forced, Unit::Count))
    .because(Evidence::number(format!("in {step} without one, usually"), usual, Unit::Count))
    .because(Evidence::number("such moments", jumps.len() as f64, Unit::Count))
    .because(Evidence::number("processes", processes, Unit::Count))
    .because_some(caller.and_then(seen_collecting))
    .but("the load itself may come in such waves")
    .fix(no_such_job(period));
    Ok(Judgement::found(match caller {
        Some(process) => draft.about(process.subject()),
        None => draft,
    }))
}

/// A job that begins its next round when one is over.
fn without_pause(period: &Period, caller: &ProcessUse, severity: f64, rate: f64, processes: f64) -> Draft {
    let who = caller.title();
    let each = rate / processes;
    let gc = view::collecting(period, &[kind::SCHEDULER, kind::DIRTY_CPU]).ok();
    let binaries = period.find(Group::Memory, "", "binary");
    Draft::new(
        severity,
        format!(
            "{who} collects other processes all the time: {rate:.0} collections a second, {each:.1} of each of {processes:.0} processes"
        ),
    )
    .confidence(Confidence::Inferred)
    .about(caller.subject())
    .signals(binaries.map(|_| Signal::BinariesStay))
    .costs(gc.map(|collecting| Cost::CpuCores(collecting.gc)))
    .part(Use::Collections)
    .because(Evidence::number("collections", rate, Unit::PerSecond).against_scale(RATE.of(period)))
    .because(Evidence::number("of each process", each, Unit::PerSecond).against(EACH_PER_SECOND, "judgement"))
    .because_some(seen_collecting(caller))
    .because_some(binaries.map(|stat| {
        Evidence::number("memory of binaries all the while, at least", stat.min as f64, Unit::Bytes)
            .with_text("what stays when all are collected is no garbage: a process, a table or a queue keeps it (beamtune memory --holders)")
    }))
    .but("who makes much garbage is collected as often by itself")
    .fix(no_such_job(period))
}

/// A collection that is asked for is a full one, with no minor one after it until the process has filled its heap again (the largest heaps,
/// which are told, are of those that just have): where most of those told that do little have had more, not all are collected, and those that
/// are fill their heaps in step, as many that are told the same do.
fn collect_themselves(period: &Period) -> bool {
    let rows = period.processes.iter().filter_map(|process| process.row.as_ref());
    let idle = rows.filter(|row| !row.ranks.contains(&Rank::Reductions));
    let minor: Vec<i64> = idle.filter_map(|row| row.minor_gcs).collect();
    2 * minor.iter().filter(|count| **count > MINOR_ONES).count() > minor.len()
}

/// Seen in a collection of another process, at the last closer look.
fn was_collecting(process: &ProcessUse) -> bool {
    process.row.as_ref().is_some_and(|row| {
        row.current_function.as_deref().is_some_and(stack::collects_others)
            || row.stack.first().is_some_and(|function| stack::collects_others(function))
    })
}

/// The process that was seen so most often, at work, or at the last closer look. Most of the time it waits for those that it collects.
fn who_collects(period: &Period) -> Option<&ProcessUse> {
    let seen = period.processes.iter().map(|process| (process, count(looks_at_it_collecting(process))));
    // Of those alike the busiest, which comes first.
    let most = seen.rev().max_by_key(|(_, looks)| *looks).filter(|(_, looks)| *looks > 0);
    most.map(|(process, _)| process)
        .or_else(|| period.processes.iter().find(|process| was_collecting(process)))
}

/// How many looks these are.
fn count<'a>(looks: impl Iterator<Item = &'a (Vec<String>, i64)>) -> i64 {
    looks.fold(0, |sum, (_, looks)| sum.saturating_add(*looks))
}

/// The stacks with which it was seen so at work, and how often.
fn looks_at_it_collecting(process: &ProcessUse) -> impl Iterator<Item = &(Vec<String>, i64)> {
    let does = |stack: &[String]| stack.iter().take(2).any(|function| stack::collects_others(function));
    process.ran.iter().chain(&process.stood).filter(move |(stack, _)| does(stack))
}

/// How often it was seen so; once, where only the last closer look tells it.
fn seen_collecting(process: &ProcessUse) -> Option<Evidence> {
    let times = count(looks_at_it_collecting(process));
    let Some((stack, _)) = looks_at_it_collecting(process).max_by_key(|(_, looks)| *looks) else {
        return Some(Evidence::text(SEEN_COLLECTING, stack::told(process.row.as_ref()?)?));
    };
    let of = count(process.ran.iter().chain(&process.stood));
    let at = stack.first()?;
    Some(Evidence::text(
        SEEN_COLLECTING,
        format!("{}, in {times} of {of} looks", stack::with_caller(at, stack)),
    ))
}

fn no_such_job(period: &Period) -> Option<Remedy> {
    remedy::of(
        period,
        "code.no_forced_collections",
        "take the job away (a timer that calls erlang:garbage_collect/1 for erlang:processes(); in RabbitMQ background_gc_enabled)",
        "processes collect themselves when they need to; those that hold binaries for long can hibernate or have fullsweep_after",
        "beamtune memory --what-if collect measures what such a job returns; then resident memory and CPU per request without it",
    )
}
