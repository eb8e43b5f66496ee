//! BT067: VM-wide heap settings cost CPU time or memory.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessRow, Scale, Subject, Threshold, Unit, Use, facts,
    metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::signals::memory::{self, DEFAULT_FIRST_HEAP_WORDS, FEW_SWEEPS};
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT067"),
    name: "heap-settings",
    question: "Do VM-wide heap settings cost CPU or memory?",
    confirm: "the same load without the setting: beamtune compare, with it as --a-env or --a-flags",
    needs: &[],
    account: Account::CpuUsed,
    topics: &[Topic::Memory, Topic::MemoryCpu],
    judge,
    thresholds: &[FULL_SWEEPS, FIRST_HEAPS],
    ..Rule::COMMON
};

/// GC share of scheduler work if (nearly) every GC is a fullsweep.
const FULL_SWEEPS: Threshold = Threshold::new(
    "heap-settings.gc_share",
    "GC, share of the schedulers' work, where (nearly) every GC is a fullsweep",
    Scale {
        notice: 0.05,
        warning: 0.15,
        critical: 0.60,
        source: "judgement: half of what gc-share allows, as this much is known to be spent without need",
    },
);

/// Share of the VM's memory that minimum heaps take beyond the default.
const FIRST_HEAPS: Threshold = Threshold::new(
    "heap-settings.memory_share",
    "minimum heaps beyond the default, share of the VM's memory",
    Scale { notice: 0.10, warning: 0.30, critical: 0.80, source: "judgement: less would hardly be missed" },
);

/// A fullsweep of a smaller heap costs next to nothing (judgement: 0.5 MB are copied in about 100 µs). In words.
const LARGE_WORDS: i64 = 65_536;

/// Less memory in minimum heaps is not worth a finding (judgement). In bytes.
const WORTH_BYTES: f64 = 100e6;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let after = period.fact_number(facts::FULLSWEEP_AFTER)?;
    let words = period.facts.number(facts::MIN_HEAP_WORDS).unwrap_or(DEFAULT_FIRST_HEAP_WORDS);
    let found = full_sweeps(period, after).into_iter().chain(first_heaps(period, words)).collect();
    Ok(Judgement::found_or_healthy(
        found,
        format!("default fullsweep_after {after} and min_heap_size {words} words cost next to nothing"),
    ))
}

/// A low VM-wide fullsweep_after.
fn full_sweeps(period: &Period, after: i64) -> Option<Draft> {
    let rows = || period.processes.iter().filter_map(|process| process.row.as_ref());
    let heaps: Vec<i64> = rows()
        .filter(|row| row.fullsweep_after == Some(after))
        .filter_map(|row: &ProcessRow| row.total_heap_words)
        .filter(|words| *words >= LARGE_WORDS)
        .collect();
    let largest = heaps.iter().max().filter(|_| after <= FEW_SWEEPS)?;
    let collecting = view::collecting(period, &[kind::SCHEDULER, kind::DIRTY_CPU]).ok()?;
    let share = collecting.share();
    let severity = FULL_SWEEPS.of(period).severity(share)?;
    let each =
        if after == 0 { "every GC copies the whole heap" } else { "nearly every GC copies the whole heap" };
    Some(
        Draft::new(
            severity,
            format!(
                "fullsweep_after is {after} for all processes: {each}, and GC takes {:.0} % of scheduler work",
                share * 100.0
            ),
        )
        .about(Subject::Flag { name: "ERL_FULLSWEEP_AFTER".to_owned() })
        .costs(Cost::CpuCores(collecting.gc))
        .part(Use::Collections)
        // The GC share without the setting was not measured.
        .inferred_if(true)
        .because(Evidence::number("time in collections", collecting.gc, Unit::Cores))
        .because(Evidence::number("share of the work", share, Unit::Ratio).against_scale(FULL_SWEEPS.of(period)))
        .because_some(period.rate(&metrics::GARBAGE_COLLECTIONS, "").ok().map(|rate| Evidence::number("collections", rate, Unit::PerSecond)))
        .because(Evidence::number("sampled large heaps with this setting", heaps.len() as f64, Unit::Count))
        .because(Evidence::number("largest of them", *largest as f64 * memory::WORD_BYTES, Unit::Bytes))
        .but("page faults and cache misses from fresh heaps come on top and are not counted here")
        .fix(remedy::of(
            period,
            "ERL_FULLSWEEP_AFTER",
            "remove it (default 65535); set {fullsweep_after, N} with spawn_opt only for processes that hold binaries",
            "old data is then copied once instead of at every GC",
            "GC share and CPU per request under the same load; binary memory, which may be freed later",
        )),
    )
}

/// A large VM-wide min_heap_size.
fn first_heaps(period: &Period, words: i64) -> Option<Draft> {
    let processes = period.stat(&metrics::PROCESS_COUNT, "").ok()?.mean();
    let total = period.family(&metrics::MEMORY, "").find(|(name, _)| *name == "total")?;
    let used = total.1.last.value as f64;
    let bytes = processes * (words - DEFAULT_FIRST_HEAP_WORDS).max(0) as f64 * memory::WORD_BYTES;
    let share = bytes / used.max(1.0);
    let severity = FIRST_HEAPS.of(period).severity(share).filter(|_| bytes >= WORTH_BYTES)?;
    Some(
        Draft::new(
            severity,
            format!(
                "min_heap_size is {words} words instead of {DEFAULT_FIRST_HEAP_WORDS} for every process: up to {} in {processes:.0} processes, {:.0} % of the VM's memory",
                memory::megabytes(bytes),
                share.min(1.0) * 100.0
            ),
        )
        .about(Subject::Flag { name: "+hms".to_owned() })
        .costs(Cost::MemoryBytes(bytes))
        // Processes may have grown anyway.
        .inferred_if(true)
        .because(Evidence::number("first heap", words as f64 * memory::WORD_BYTES, Unit::Bytes))
        .because(Evidence::number("processes", processes, Unit::Count))
        .because(Evidence::number("of what the VM uses", share.min(1.0), Unit::Ratio).against_scale(FIRST_HEAPS.of(period)))
        .but("processes that need such heaps would grow to that size anyway")
        .fix(remedy::of(
            period,
            "process.min_heap_size",
            "remove +hms; set {min_heap_size, Words} with spawn_opt only for processes with frequent GC",
            "most processes need a few hundred words",
            "memory of processes and collections a second under the same load",
        )),
    )
}
