//! BT078: processes hibernate too often, and the GC that this causes takes much of the CPU.
//!
//! Hibernation is a fullsweep into a heap without free space. Processes that stay hibernated are healthy, but hibernating for each message
//! is expensive.

use beamtune_model::{
    Account, Code, Confidence, Cost, CpuUse, Evidence, Missing, Period, Scale, Signal, Subject, Threshold,
    Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::hibernation::Hibernation;
use crate::signals::memory::WORD_BYTES;
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT078"),
    name: "hibernation",
    question: "Do processes hibernate too often?",
    confirm: "remove hibernate from the returns of these processes: GCs per second and CPU must fall under the same load",
    needs: &[&metrics::GARBAGE_COLLECTIONS],
    account: Account::CpuUsed,
    confidence: Confidence::Inferred,
    explains_as_notice: true,
    judge,
    thresholds: &[SHARE],
    ..Rule::COMMON
};

const SHARE: Threshold = Threshold::new(
    "hibernation.gc_share",
    "GC of hibernating processes, share of scheduler work",
    Scale {
        notice: 0.10,
        warning: 0.25,
        critical: 0.60,
        source: "judgement: a little below gc-share, because the cause is known",
    },
);

/// Minimum GC that is reported, in cores (judgement, as in gc-share).
const MIN_CORES: f64 = 0.10;

/// Maximum number of kinds of processes that a finding names.
const MAX_KINDS: usize = 3;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let collecting = view::gc(period, &[kind::SCHEDULER, kind::DIRTY_CPU])?;
    let rate = period.rate(&metrics::GARBAGE_COLLECTIONS, "")?;
    let healthy = |what: String| Ok(Judgement::Healthy(what));
    if collecting.gc < MIN_CORES {
        return healthy(format!("GC: {:.2} cores", collecting.gc));
    }
    // A busy node without samples of running processes comes from an older recording.
    if period.work_samples.is_empty() {
        return Err(Missing {
            what: "stacks of running processes".to_owned(),
            why: "not recorded".to_owned(),
            next_step: "record the node with this version: beamtune record TARGET".to_owned(),
        });
    }
    let Some(found) = Hibernation::of(period) else {
        return healthy("no kind of process hibernates while it works".to_owned());
    };
    let cores = collecting.gc * found.collected;
    let share = cores / collecting.worked.max(f64::MIN_POSITIVE);
    let Some(severity) = SHARE.of(period).severity(share).filter(|_| cores >= MIN_CORES) else {
        return healthy(format!("GC of hibernating processes: {cores:.2} cores"));
    };
    let names: Vec<&str> = found.kinds.iter().take(MAX_KINDS).map(|(name, _)| *name).collect();
    let who = names.first().map_or_else(|| "processes".to_owned(), |name| text::processes(name));
    let at_rest = found.at_rest as f64 / found.samples.0 as f64;
    let others = names.get(1..).filter(|others| !others.is_empty());
    let draft = Draft::new(severity, format!("Hibernation of {who} likely costs {} cores", text::cores(cores)))
        .detail(format!("{:.0} % of scheduler time", 100.0 * share))
        .detail(format!("{:.0} % of their samples before or after hibernation", 100.0 * at_rest))
        .detail(others.map_or(String::new(), |others| format!("also {}", others.join(", "))))
        .minor_if(view::is_little_cpu(period, cores))
        .about(names.first().map(|name| Subject::kind(*name)))
        .signals(names.iter().map(|name| Signal::RunBy(Subject::kind(*name))))
        .costs(Cost::CpuCores(cores))
        .part(CpuUse::GarbageCollection)
        .evidence(
            Evidence::number("GC of these processes, share of work", share, Unit::Ratio)
                .against_scale(SHARE.of(period)),
        )
        .evidence(
            Evidence::number("samples before or after hibernation", at_rest, Unit::Ratio)
                .with_text(format!("{} of {}", found.at_rest, found.samples.0)),
        )
        .evidence(Evidence::number("GC rate of the node", rate, Unit::PerSecond))
        .because_some(
            heap_bytes(period, &names).map(|bytes| Evidence::number("median heap", bytes, Unit::Bytes)),
        )
        .because_some((names.len() > 1).then(|| Evidence::text("kinds of processes", names.join(", "))))
        .counter_evidence("part of this GC would also run without hibernation: this is an upper bound of the savings")
        .remedy(remedy::of(
            period,
            "code.hibernate",
            "use {hibernate_after, 15000} in the start options instead of returning hibernate (or calling erlang:hibernate/3) for each message",
            "each hibernation is a fullsweep that shrinks the heap to its live data, so that the next message makes it grow again",
            "GC rate and CPU under the same load; memory grows by garbage that stays until the next GC",
        ));
    Ok(Judgement::found(draft))
}

/// Median heap of the processes with these registered names or initial calls, in bytes.
fn heap_bytes(period: &Period, names: &[&str]) -> Option<f64> {
    let rows = period.processes.iter().filter_map(|process| process.row.as_ref());
    let is_one = |name: &Option<String>| name.as_deref().is_some_and(|name| names.contains(&name));
    let own = rows.filter(|row| is_one(&row.name) || is_one(&row.initial_call));
    let mut heaps: Vec<i64> = own.filter_map(|row| row.total_heap_words).collect();
    heaps.sort_unstable();
    heaps.get(heaps.len() / 2).map(|words| *words as f64 * WORD_BYTES)
}
