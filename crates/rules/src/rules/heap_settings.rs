//! BT067: heap settings, of the VM or of one kind of processes, cost CPU time or memory.

use beamtune_model::{
    Account, Code, Cost, Evidence, Group, Missing, Period, ProcessRow, Rank, Scale, Subject, Threshold, Unit,
    Use, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::signals::counts::largest_first;
use crate::signals::memory::{self, DEFAULT_FIRST_HEAP_WORDS, FEW_SWEEPS};
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT067"),
    name: "heap-settings",
    question: "Do heap settings cost CPU or memory?",
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
    let found = full_sweeps(period, after)
        .into_iter()
        .chain(first_heaps(period, words))
        .chain(first_heaps_of_kind(period, words))
        .collect();
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

/// Of the processes looked at for their memory, so many of one kind, and this share, must have it (judgement).
const KIND_ROWS: usize = 10;
const KIND_SHARE: f64 = 0.5;

/// A first heap was meant to be large that is as many times the VM's default, and no smaller than 32 kB (judgement).
const KIND_FACTOR: i64 = 10;
const FIRST_LARGE_WORDS: i64 = 4_096;

/// A heap with what is young and what is old may be so many times the first one without having grown (a collection copies into a second one
/// of that size; judgement).
const KIND_GROWN: i64 = 4;

/// A large min_heap_size that one kind of processes is started with.
fn first_heaps_of_kind(period: &Period, default: i64) -> Option<Draft> {
    let largest: Vec<&ProcessRow> = period
        .processes
        .iter()
        .filter_map(|process| process.row.as_ref())
        .filter(|row| row.ranks.contains(&Rank::Memory))
        .collect();
    let is_large = |words: i64| words >= KIND_FACTOR * default && words >= FIRST_LARGE_WORDS;
    let given = largest.iter().filter_map(|row| {
        let words = row.min_heap_words.filter(|words| is_large(*words))?;
        // One that has grown beyond it is that large anyway.
        row.total_heap_words.filter(|total| *total <= KIND_GROWN * words)?;
        Some(((row.initial_call.as_deref()?, words), 1))
    });
    let ((kind, words), rows) = largest_first(given).into_iter().next()?;
    if (rows as usize) < KIND_ROWS || (rows as f64) < KIND_SHARE * largest.len() as f64 {
        return None;
    }
    let memory = |kind: &str| Some(period.find(Group::Memory, "", kind)?.last.value as f64);
    let (heaps, used) = (memory("processes")?, memory("total")?);
    let each = words as f64 * memory::WORD_BYTES;
    // How many there are is not recorded: no more than have room in the memory of processes.
    let processes = period.stat(&metrics::PROCESS_COUNT, "").ok()?.mean().min(heaps / each);
    let bytes = processes * (words - default).max(0) as f64 * memory::WORD_BYTES;
    let share = bytes / used.max(1.0);
    let severity = FIRST_HEAPS.of(period).severity(share).filter(|_| bytes >= WORTH_BYTES)?;
    let draft = Draft::new(
        severity,
        format!(
            "processes started with {kind} have a min_heap_size of {words} words ({:.0} kB each): up to {}, {:.0} % of the VM's memory",
            each / 1e3,
            memory::megabytes(bytes),
            share.min(1.0) * 100.0
        ),
    )
    .about(Subject::kind(kind))
    .costs(Cost::MemoryBytes(bytes))
    .inferred_if(true)
    .because(Evidence::number("min_heap_size of these", each, Unit::Bytes).with_text(format!("{words} words")))
    .because(Evidence::number("processes with it, of the largest that were looked at", rows as f64, Unit::Count).with_text(format!("of {}", largest.len())))
    .because(Evidence::number("default of the node", default as f64 * memory::WORD_BYTES, Unit::Bytes))
    .because(Evidence::number("of what the VM uses", share.min(1.0), Unit::Ratio).against_scale(FIRST_HEAPS.of(period)))
    .but("processes that need such heaps would grow to that size anyway")
    .confirmed_by("process_info(Pid, garbage_collection_info) after erlang:garbage_collect(Pid): heap_size is what is alive, heap_block_size what is held")
    .fix(remedy::of(
        period,
        "process.min_heap_size",
        &format!("leave {{min_heap_size, {words}}} out of the options with which {kind} is started, or take twice what is alive after a collection"),
        "a heap never gets smaller than that, and is full of garbage before it is collected",
        "memory of processes and collections a second under the same load",
    ));
    Some(draft)
}

/// A large VM-wide min_heap_size.
fn first_heaps(period: &Period, words: i64) -> Option<Draft> {
    let processes = period.stat(&metrics::PROCESS_COUNT, "").ok()?.mean();
    let used = period.find(Group::Memory, "", "total")?.last.value as f64;
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
