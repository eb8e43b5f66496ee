//! BT047: short-lived processes start with the smallest heap. Each time it is full, a GC copies all their data.

use beamtune_model::{
    Account, Code, Cost, CpuUse, Evidence, Missing, Period, Scale, Subject, Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::signals::new_processes;
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT047"),
    name: "small-first-heaps",
    question: "Do new processes grow their heap step by step?",
    confirm: "set min_heap_size for these processes under the same load: GCs per request fall, and memory stays within its limit",
    needs: &[&metrics::GARBAGE_COLLECTIONS, &metrics::SPAWNED, &metrics::PROCESS_COUNT],
    account: Account::CpuUsed,
    topics: &[Topic::MemoryCpu],
    judge,
    thresholds: &[SHARE],
    ..Rule::COMMON
};

const SHARE: Threshold = Threshold::new(
    "small-first-heaps.gc_share",
    "GC, share of the work of normal schedulers",
    Scale {
        notice: 0.10,
        warning: 0.25,
        critical: 0.75,
        source: "judgement: a heap that is large enough saves most of that",
    },
);

/// Less GC, in cores, is not worth a change (judgement).
const MIN_GC_CORES: f64 = 0.03;
/// If the cost is a smaller share of the CPU that the node could use, the finding is a notice (judgement).
const MIN_GC_SHARE: f64 = 0.05;

/// With fewer new processes per second, most GCs come from other processes.
const MIN_SPAWN_RATE: f64 = 20.0;

/// GCs per new process. Fewer are no growth worth reporting. More than are needed to grow to gigabytes must come from other processes.
const GCS_PER_PROCESS: std::ops::RangeInclusive<f64> = 3.0..=40.0;

/// Share of the GCs of a growing process that enlarge its heap: 12 of 18 (lab small-first-heaps, OTP 25).
const GROWING_GCS: f64 = 2.0 / 3.0;

/// Heaps grow by about this factor, as in the Fibonacci sequence (grow_heap in erl_gc.c).
const GROWTH_FACTOR: f64 = 1.618;

/// Maximum first heap that is advised (371 kB, a heap size of the VM). A heap above 512 kB has its own carrier, which is created and
/// destroyed with each process.
const MAX_WORDS: f64 = 46_422.0;

/// Maximum number of kinds of new processes that the evidence lists.
const MAX_KINDS: usize = 3;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let collecting = view::gc(period, &[kind::SCHEDULER])?;
    let gcs_per_s = period.rate(&metrics::GARBAGE_COLLECTIONS, "")?;
    let spawned = view::spawn_rate(period)?;
    let first_words = period.fact_number(facts::MIN_HEAP_WORDS)? as f64;
    let gcs_each = gcs_per_s / spawned.max(0.1);
    let share = collecting.share();
    let grows =
        spawned >= MIN_SPAWN_RATE && GCS_PER_PROCESS.contains(&gcs_each) && collecting.gc >= MIN_GC_CORES;
    let Some(severity) = SHARE.of(period).severity(share).filter(|_| grows) else {
        return Ok(Judgement::Healthy(format!(
            "{} new processes/s, {} GCs/s, {:.2} cores of GC on normal schedulers",
            text::number(spawned.round()),
            text::number(gcs_per_s.round()),
            collecting.gc
        )));
    };
    let capacity =
        view::capacity(period).map(|capacity| capacity.cores).or_else(|_| view::schedulers_online(period))?;
    let is_little = collecting.gc < MIN_GC_SHARE * capacity;
    let kinds = new_processes::kinds(period);
    let main = kinds.first().filter(|kind| kind.1 > 0.5).map(|kind| kind.0);
    let (words, is_measured) = needed_words(period, main, first_words, gcs_each);
    let prove = "GCs per second, CPU per request and resident memory under the same load (beamtune compare)";
    let processes = main.unwrap_or("New");
    let draft =
        Draft::new(severity, format!("{processes} processes need {gcs_each:.0} GCs each to grow their heap"))
            .detail(format!("{} started/s", text::number(spawned.round())))
            .detail(format!("first heap: {} words", text::number(first_words)))
            .detail(format!(
                "GC takes {} cores, {:.0} % of the work",
                text::cores(collecting.gc),
                share * 100.0
            ))
            .minor_if(is_little)
            .costs(Cost::CpuCores(collecting.gc))
            .part(CpuUse::GarbageCollection)
            .evidence(Evidence::number("GCs", gcs_per_s, Unit::PerSecond))
            .evidence(Evidence::number("new processes", spawned, Unit::PerSecond))
            .evidence(
                Evidence::number("GCs per new process", gcs_each, Unit::Count)
                    .against(*GCS_PER_PROCESS.start(), "judgement"),
            )
            .evidence(Evidence::number("GC time of normal schedulers", collecting.gc, Unit::Cores))
            .evidence(
                Evidence::number("share of their work", share, Unit::Ratio).against_scale(SHARE.of(period)),
            )
            .evidence(Evidence::number("heap that they grow to", words * 8.0, Unit::Bytes).with_text(
                if is_measured { "largest one sampled" } else { "estimated from the number of GCs" },
            ))
            .because_some((!kinds.is_empty()).then(|| {
                let text: Vec<String> = kinds
                    .iter()
                    .take(MAX_KINDS)
                    .map(|(kind, share)| format!("{kind} {:.0} %", share * 100.0))
                    .collect();
                Evidence::text("kinds of sampled new processes", text.join(", "))
            }))
            .counter_evidence(
                "the VM does not count GCs per process: they may be those of long-lived processes (gc-share)",
            )
            .but_if(
                period.facts.number(facts::FULLSWEEP_AFTER).is_some_and(|after| after < 100),
                "fullsweep_after is low, so each GC copies everything: try the default (65535) first",
            );
    let words = words.round();
    Ok(Judgement::found(
        match main {
            Some(main) => draft.about(Subject::kind(main.to_owned())),
            None => draft,
        }
        .remedy(remedy::of(
            period,
            "process.min_heap_size",
            &format!(
                "use spawn_opt {{min_heap_size, {words}}} where {} started",
                match main {
                    Some(main) => format!("{main} is"),
                    None => "short-lived processes are".to_owned(),
                }
            ),
            "the heap is then large enough from the start, and is freed with the process",
            prove,
        ))
        .remedy(remedy::of(
            period,
            "+hms",
            &format!(
                "+hms {words}, if nearly all processes are like that; {:.0} MB for each 1,000 processes alive",
                words * 8.0 * 1_000.0 / 1e6
            ),
            "the same for every process",
            prove,
        )),
    ))
}

/// Returns the heap that such a process grows to, in words, and whether it was sampled rather than estimated.
fn needed_words(period: &Period, main: Option<&str>, first_words: f64, gcs_each: f64) -> (f64, bool) {
    let sampled = period
        .processes
        .iter()
        .filter_map(|process| process.row.as_ref())
        .filter(|row| main.is_some() && row.initial_call.as_deref() == main)
        .filter_map(|row| row.total_heap_words)
        .max()
        .map(|words| words as f64)
        .filter(|words| *words > first_words);
    let estimated = first_words * GROWTH_FACTOR.powf(gcs_each * GROWING_GCS);
    (sampled.unwrap_or(estimated).min(MAX_WORDS), sampled.is_some())
}
