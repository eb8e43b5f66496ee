//! BT078: processes hibernate again and again, and collecting their heaps for that takes much of the CPU.
//!
//! Hibernation collects the whole heap, copies what lives into one of just that size, and gives the rest back. Many processes that stay in
//! hibernation are healthy: what costs is going there for each message.

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Missing, Period, Scale, Signal, Subject, Threshold, Unit, Use,
    metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::hibernation::Hibernation;
use crate::signals::kinds;
use crate::signals::memory::WORD_BYTES;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT078"),
    name: "hibernation",
    question: "Do processes hibernate too often?",
    confirm: "the same load without hibernate in the returns of these processes: collections a second and CPU must fall",
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
    "GC of processes that hibernate, share of the schedulers' work",
    Scale {
        notice: 0.10,
        warning: 0.25,
        critical: 0.60,
        source: "judgement: a little below those of gc-share, of which it is the cause",
    },
);

/// Below this nobody would win anything by a change (judgement, as of gc-share).
const WORTH_CORES: f64 = 0.10;

/// Kinds of processes that are named.
const MAX_KINDS: usize = 3;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let collecting = view::collecting(period, &[kind::SCHEDULER, kind::DIRTY_CPU])?;
    let rate = period.rate(&metrics::GARBAGE_COLLECTIONS, "")?;
    let healthy = |what: String| Ok(Judgement::Healthy(what));
    if collecting.gc < WORTH_CORES {
        return healthy(format!("garbage collection took {:.2} cores", collecting.gc));
    }
    // A node that is busy, and no process that ran: an older recording.
    if period.work_samples.is_empty() {
        return Err(Missing {
            what: "where any processes run".to_owned(),
            why: "it was not recorded".to_owned(),
            next: "record the node with this version of beamtune: beamtune record TARGET".to_owned(),
        });
    }
    let Some(found) = Hibernation::of(period) else {
        return healthy("hardly any process was seen to hibernate while it worked".to_owned());
    };
    let cores = collecting.gc * found.collected;
    let share = cores / collecting.worked.max(f64::MIN_POSITIVE);
    let Some(severity) = SHARE.of(period).severity(share).filter(|_| cores >= WORTH_CORES) else {
        return healthy(format!("GC of processes that hibernate took {cores:.2} cores"));
    };
    let names: Vec<&str> = found.kinds.iter().take(MAX_KINDS).map(|(name, _)| *name).collect();
    let who = names.first().map(|name| kinds::in_words(name)).unwrap_or_default();
    let draft = Draft::new(
        severity,
        format!("{:.0} % of the schedulers' work is GC for hibernation: {who}", 100.0 * share),
    )
    .minor_if(view::is_little_cpu(period, cores))
    .about(names.first().map(|name| Subject::kind(*name)))
    .signals(names.iter().map(|name| Signal::RunBy(Subject::kind(*name))))
    .costs(Cost::CpuCores(cores))
    .part(Use::Collections)
    .because(Evidence::number("GC of these processes, share of the work", share, Unit::Ratio).against_scale(SHARE.of(period)))
    .because(
        Evidence::number("samples of them going into hibernation, or just out of it", found.at_rest as f64 / found.samples.0 as f64, Unit::Ratio)
            .with_text(format!("{} of {}", found.at_rest, found.samples.0)),
    )
    .because(Evidence::number("collections of all processes", rate, Unit::PerSecond))
    .because_some(heap_bytes(period, &names).map(|bytes| {
        Evidence::number("heaps of those that stand out, the median", bytes, Unit::Bytes)
    }))
    .because_some((names.len() > 1).then(|| Evidence::text("processes that do so", names.join(", "))))
    .but("some of these collections would come without hibernation, too: it is the most that can be saved")
    .fix(remedy::of(
        period,
        "code.hibernate",
        "do not return hibernate (or call erlang:hibernate/3) for each message: {hibernate_after, 15000} in the start options instead",
        "each hibernation collects the whole heap and shrinks it to what lives, so that the next message makes it grow again",
        "collections a second and CPU under the same load; memory grows by the garbage that stays until the next collection",
    ));
    Ok(Judgement::found(draft))
}

/// The median heap of the processes of these names, or that were started with this.
fn heap_bytes(period: &Period, names: &[&str]) -> Option<f64> {
    let rows = period.processes.iter().filter_map(|process| process.row.as_ref());
    let is_one = |name: &Option<String>| name.as_deref().is_some_and(|name| names.contains(&name));
    let own = rows.filter(|row| is_one(&row.name) || is_one(&row.initial_call));
    let mut heaps: Vec<i64> = own.filter_map(|row| row.total_heap_words).collect();
    heaps.sort_unstable();
    heaps.get(heaps.len() / 2).map(|words| *words as f64 * WORD_BYTES)
}
