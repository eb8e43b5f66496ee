//! BT032: a job repeatedly forces a GC of every process, as outdated advice recommends.
//!
//! Such a job works in rounds: the GC counter jumps by the number of processes from one sample to the next, and rises little between two
//! jumps. Without a pause between rounds there are no jumps. In that case a process must be sampled in `erlang:garbage_collect/1,2` while
//! every process is collected at least once a second on average.

use beamtune_model::{
    Account, Code, Confidence, Cost, CpuUse, Evidence, Group, Missing, Period, ProcessActivity, Scale,
    Threshold, Unit, cpu::kind, metrics, units::SECOND_NS,
};

use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::signals::forced_gc::{self, Forced, MIN_PROCESSES, MIN_RATE_PER_PROCESS};
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT032"),
    name: "forced-collections",
    question: "Does a job repeatedly force a GC of all processes?",
    confirm: "switch the job off for ten minutes: the GC rate falls; if memory does not change, the job freed nothing",
    needs: &[&metrics::GARBAGE_COLLECTIONS, &metrics::PROCESS_COUNT],
    account: Account::CpuUsed,
    topics: &[Topic::MemoryCpu],
    judge,
    thresholds: &[RATE],
    ..Rule::COMMON
};

/// Minimum number of GCs in a jump, per process of the node.
const MIN_GCS_PER_PROCESS: f64 = 0.8;

/// A jump with more GCs per process is a wave of work, not a round through all processes.
const MAX_GCS_PER_PROCESS: f64 = 2.0;

/// Minimum number of GCs in a jump, divided by those in a usual step.
const MIN_JUMP: f64 = 4.0;

const MIN_JUMPS: usize = 3;

const RATE: Threshold = Threshold::new(
    "forced-collections.collections_per_s",
    "forced GCs per second",
    Scale {
        notice: 1.0,
        warning: 500.0,
        critical: 50_000.0,
        source: "judgement: a GC of a small process takes some 10 µs, and its caches",
    },
);

/// Returns the times at which all processes were collected, in seconds, with the number of GCs. A round that two adjacent steps share is
/// one jump.
fn jumps(steps: &[(f64, f64)], all: f64, usual: f64) -> Vec<(f64, f64)> {
    let is_jump = |size: f64, steps: f64| size >= all && size >= MIN_JUMP * steps * usual;
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
    // The lower quartile: in a short recording, two thirds of the steps may contain a part of a round.
    let usual = sizes.get(sizes.len() / 4).copied().unwrap_or(0.0);
    let jumps = jumps(&steps, MIN_GCS_PER_PROCESS * processes, usual.max(1.0));
    let healthy = || {
        Ok(Judgement::Healthy(format!(
            "{} GCs/s, no rounds through all processes in {:.0} s",
            text::number(rate),
            period.seconds()
        )))
    };
    if processes < MIN_PROCESSES {
        return healthy();
    }
    if jumps.len() < MIN_JUMPS {
        return match Forced::of(period).zip(RATE.of(period).severity(rate)) {
            Some((forced, severity)) => Ok(Judgement::found(without_pause(period, &forced, severity))),
            None => healthy(),
        };
    }
    let mut apart: Vec<f64> = jumps.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    apart.sort_by(f64::total_cmp);
    let median = apart[apart.len() / 2].max(1.0);
    // A time is known only to within a step: rounds every 2.5 s are two or three seconds apart.
    let step_s = period.seconds() / sizes.len() as f64;
    let tolerance = (0.25 * median).max(1.1 * step_s);
    let regular: Vec<f64> =
        apart.iter().copied().filter(|seconds| (seconds - median).abs() < tolerance).collect();
    let every = (regular.iter().sum::<f64>() / regular.len() as f64).max(1.0);
    // Irregular jumps come from the load.
    if regular.len() * 4 < apart.len() * 3 {
        return healthy();
    }
    let forced = jumps.iter().map(|jump| jump.1 - usual).sum::<f64>() / jumps.len() as f64;
    if forced > MAX_GCS_PER_PROCESS * processes {
        return healthy();
    }
    let Some(severity) = RATE.of(period).severity(forced / every) else { return healthy() };
    let caller = forced_gc::caller(period);
    if caller.is_none() && forced_gc::collect_themselves(period) {
        return healthy();
    }
    // A long recording keeps fewer samples than were taken.
    let step = if step_s < 1.5 { "1 s".to_owned() } else { format!("{step_s:.1} s") };
    let subject = caller.map(ProcessActivity::subject);
    let by = subject.as_ref().map_or_else(|| "a job".to_owned(), text::name);
    let draft = Draft::new(
        severity,
        format!("GC of all processes every {}, likely forced by {by}", view::duration_text(every)),
    )
    .detail(subject.as_ref().map_or("", text::pid))
    .detail(format!(
        "{} GCs within {step} for {} processes, {} otherwise",
        text::number(forced.round()),
        text::number(processes.round()),
        text::number(usual)
    ))
    .detail(format!("{} rounds", jumps.len()))
    .confidence(Confidence::Inferred)
    .evidence(Evidence::number("GCs in a round", forced, Unit::Count).with_text(format!("within {step}")))
    .evidence(Evidence::number("GCs between rounds", usual, Unit::Count).with_text(format!("within {step}")))
    .evidence(Evidence::number("rounds", jumps.len() as f64, Unit::Count))
    .evidence(Evidence::number("processes", processes, Unit::Count))
    .because_some(caller.and_then(forced_gc::evidence))
    .counter_evidence("the load may come in such waves")
    .remedy(forced_gc::remedy(period, caller));
    Ok(Judgement::found(draft.about(subject)))
}

/// Drafts a finding about a job that starts its next round as soon as one is finished.
fn without_pause(period: &Period, forced: &Forced<'_>, severity: f64) -> Draft {
    let &Forced { caller, rate, processes } = forced;
    let subject = caller.subject();
    let each = rate / processes;
    let gc = view::gc(period, &[kind::SCHEDULER, kind::DIRTY_CPU]).ok();
    let binaries = period.find(Group::Memory, "", "binary");
    Draft::new(
        severity,
        format!(
            "{} likely forces {} GCs/s of other processes",
            text::name(&subject),
            text::number(rate.round())
        ),
    )
    .detail(text::pid(&subject))
    .detail(format!("each of {} processes is collected {each:.1} times/s", text::number(processes.round())))
    .confidence(Confidence::Inferred)
    .about(subject)
    .costs(gc.map(|collecting| Cost::CpuCores(collecting.gc)))
    .part(CpuUse::GarbageCollection)
    .evidence(Evidence::number("GC rate", rate, Unit::PerSecond).against_scale(RATE.of(period)))
    .evidence(
        Evidence::number("GC rate per process", each, Unit::PerSecond)
            .against(MIN_RATE_PER_PROCESS, "judgement"),
    )
    .because_some(forced_gc::evidence(caller))
    .because_some(binaries.map(|stat| {
        Evidence::number("binaries of the node, minimum", stat.min as f64, Unit::Bytes)
            .with_text("not garbage: held by a process, a table or a queue (beamtune memory --holders)")
    }))
    .counter_evidence("processes that produce much garbage have as many GCs without such a job")
    .remedy(forced_gc::remedy(period, Some(caller)))
}
