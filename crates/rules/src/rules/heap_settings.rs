//! BT067: heap settings of the VM, or of one kind of processes, cost CPU time or memory.

use beamtune_model::{
    Account, Code, Cost, CpuUse, Evidence, Group, Missing, Period, ProcessRow, Rank, Scale, Subject,
    Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::signals::counts::largest_first;
use crate::signals::memory::{self, DEFAULT_FIRST_HEAP_WORDS, FEW_SWEEPS};
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT067"),
    name: "heap-settings",
    question: "Do heap settings cost CPU or memory?",
    confirm: "run beamtune compare under the same load, with the setting as --a-env or --a-flags: CPU or memory falls without it",
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
    "GC, share of scheduler work, if nearly every GC is a fullsweep",
    Scale {
        notice: 0.05,
        warning: 0.15,
        critical: 0.60,
        source: "judgement: half of what gc-share allows, because the cause is known",
    },
);

/// Memory of minimum heaps beyond the default.
const FIRST_HEAPS: Threshold = Threshold::new(
    "heap-settings.memory_share",
    "minimum heaps beyond the default, share of the VM's memory",
    Scale {
        notice: 0.10,
        warning: 0.30,
        critical: 0.80,
        source: "judgement: less memory makes no noticeable difference",
    },
);

/// A fullsweep of a smaller heap costs next to nothing (judgement: copying 0.5 MB takes about 100 µs).
const MIN_SWEPT_WORDS: i64 = 65_536;

/// Minimum memory in minimum heaps that is reported (judgement).
const MIN_BYTES: f64 = 100e6;

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
        format!("fullsweep_after {after} and min_heap_size {words} words cost little"),
    ))
}

/// Drafts a finding about a low VM-wide fullsweep_after.
fn full_sweeps(period: &Period, after: i64) -> Option<Draft> {
    let rows = || period.processes.iter().filter_map(|process| process.row.as_ref());
    let heaps: Vec<i64> = rows()
        .filter(|row| row.fullsweep_after == Some(after))
        .filter_map(|row: &ProcessRow| row.total_heap_words)
        .filter(|words| *words >= MIN_SWEPT_WORDS)
        .collect();
    let largest = heaps.iter().max().filter(|_| after <= FEW_SWEEPS)?;
    let collecting = view::gc(period, &[kind::SCHEDULER, kind::DIRTY_CPU]).ok()?;
    let share = collecting.share();
    let severity = FULL_SWEEPS.of(period).severity(share)?;
    let nearly = if after == 0 { "every" } else { "nearly every" };
    Some(
        Draft::new(
            severity,
            format!("fullsweep_after {after} for all processes: GC takes {:.0} % of scheduler time", share * 100.0),
        )
        .detail(format!("{nearly} GC copies the whole heap"))
        .detail(format!("{} cores of GC", text::cores(collecting.gc)))
        .detail(format!("largest heap {}", text::bytes(*largest as f64 * memory::WORD_BYTES)))
        .about(Subject::Flag { name: "ERL_FULLSWEEP_AFTER".to_owned() })
        .costs(Cost::CpuCores(collecting.gc))
        .part(CpuUse::GarbageCollection)
        // The GC share without the setting was not measured.
        .inferred_if(true)
        .evidence(Evidence::number("GC time", collecting.gc, Unit::Cores))
        .evidence(Evidence::number("GC share of work", share, Unit::Ratio).against_scale(FULL_SWEEPS.of(period)))
        .because_some(
            period
                .rate(&metrics::GARBAGE_COLLECTIONS, "")
                .ok()
                .map(|rate| Evidence::number("GC rate", rate, Unit::PerSecond)),
        )
        .evidence(Evidence::number("large heaps with this setting", heaps.len() as f64, Unit::Count))
        .evidence(Evidence::number("largest heap", *largest as f64 * memory::WORD_BYTES, Unit::Bytes))
        .counter_evidence("page faults and cache misses from new heaps are an additional cost that is not included")
        .remedy(remedy::of(
            period,
            "ERL_FULLSWEEP_AFTER",
            "remove ERL_FULLSWEEP_AFTER (default 65535); set {fullsweep_after, N} with spawn_opt only for processes that hold binaries",
            "old data is then copied once instead of at every GC",
            "GC share and CPU per request under the same load; binary memory, which may be freed later",
        )),
    )
}

/// Minimum number, and minimum share, of the largest processes that are of one kind and have the setting (judgement).
const MIN_KIND_ROWS: usize = 10;
const MIN_KIND_SHARE: f64 = 0.5;

/// A first heap is regarded as intentional if it is at least this multiple of the VM's default, and at least [`MIN_FIRST_WORDS`]
/// (judgement).
const MIN_KIND_FACTOR: i64 = 10;
const MIN_FIRST_WORDS: i64 = 4_096;

/// Young and old heap together may reach this multiple of the first heap without having grown (judgement). A GC copies into a second heap
/// of the same size.
const MAX_UNGROWN: i64 = 4;

/// Drafts a finding about a large min_heap_size with which processes of one kind are started.
fn first_heaps_of_kind(period: &Period, default: i64) -> Option<Draft> {
    let largest: Vec<&ProcessRow> = period
        .processes
        .iter()
        .filter_map(|process| process.row.as_ref())
        .filter(|row| row.ranks.contains(&Rank::Memory))
        .collect();
    let is_large = |words: i64| words >= MIN_KIND_FACTOR * default && words >= MIN_FIRST_WORDS;
    let given = largest.iter().filter_map(|row| {
        let words = row.min_heap_words.filter(|words| is_large(*words))?;
        // A heap that has grown beyond the setting would be as large without it.
        row.total_heap_words.filter(|total| *total <= MAX_UNGROWN * words)?;
        Some(((row.initial_call.as_deref()?, words), 1))
    });
    let ((kind, words), rows) = largest_first(given).into_iter().next()?;
    if (rows as usize) < MIN_KIND_ROWS || (rows as f64) < MIN_KIND_SHARE * largest.len() as f64 {
        return None;
    }
    let memory = |kind: &str| Some(period.find(Group::Memory, "", kind)?.last.value as f64);
    let (heaps, used) = (memory("processes")?, memory("total")?);
    let each = words as f64 * memory::WORD_BYTES;
    // The number of such processes is not recorded. It is at most the number that fits into process memory.
    let processes = period.stat(&metrics::PROCESS_COUNT, "").ok()?.mean().min(heaps / each);
    let bytes = processes * (words - default).max(0) as f64 * memory::WORD_BYTES;
    let share = bytes / used.max(1.0);
    let severity = FIRST_HEAPS.of(period).severity(share).filter(|_| bytes >= MIN_BYTES)?;
    let draft = Draft::new(
        severity,
        format!("min_heap_size of {} takes up to {}", text::processes(kind), text::bytes(bytes)),
    )
    .detail(format!("{} words ({}) each", text::number(words as f64), text::bytes(each)))
    .detail(format!("{:.0} % of VM memory", share.min(1.0) * 100.0))
    .about(Subject::kind(kind))
    .costs(Cost::MemoryBytes(bytes))
    .inferred_if(true)
    .evidence(Evidence::number("min_heap_size", each, Unit::Bytes).with_text(format!("{words} words")))
    .evidence(
        Evidence::number("processes with this setting", rows as f64, Unit::Count)
            .with_text(format!("of the {} with most memory", largest.len())),
    )
    .evidence(Evidence::number("default of the node", default as f64 * memory::WORD_BYTES, Unit::Bytes))
    .evidence(
        Evidence::number("share of VM memory", share.min(1.0), Unit::Ratio)
            .against_scale(FIRST_HEAPS.of(period)),
    )
    .counter_evidence("heaps of processes that need this much would grow to that size anyway")
    .confirmed_by("call erlang:garbage_collect(Pid), then process_info(Pid, garbage_collection_info): heap_size is live data, heap_block_size is the allocated heap")
    .remedy(remedy::of(
        period,
        "process.min_heap_size",
        &format!("remove {{min_heap_size, {words}}} from the spawn options of {kind}, or set it to twice the live data after a GC"),
        "a heap never gets smaller than that, and fills with garbage before the next GC",
        "process memory and GC rate under the same load",
    ));
    Some(draft)
}

/// Drafts a finding about a large VM-wide min_heap_size.
fn first_heaps(period: &Period, words: i64) -> Option<Draft> {
    let processes = period.stat(&metrics::PROCESS_COUNT, "").ok()?.mean();
    let used = period.find(Group::Memory, "", "total")?.last.value as f64;
    let bytes = processes * (words - DEFAULT_FIRST_HEAP_WORDS).max(0) as f64 * memory::WORD_BYTES;
    let share = bytes / used.max(1.0);
    let severity = FIRST_HEAPS.of(period).severity(share).filter(|_| bytes >= MIN_BYTES)?;
    Some(
        Draft::new(
            severity,
            format!(
                "min_heap_size of {} words takes up to {}",
                text::number(words as f64),
                text::bytes(bytes)
            ),
        )
        .detail(format!("in {} processes", text::number(processes.round())))
        .detail(format!("{:.0} % of VM memory", share.min(1.0) * 100.0))
        .detail(format!("default {DEFAULT_FIRST_HEAP_WORDS} words"))
        .about(Subject::Flag { name: "+hms".to_owned() })
        .costs(Cost::MemoryBytes(bytes))
        // Heaps may have grown without the setting.
        .inferred_if(true)
        .evidence(Evidence::number("min_heap_size", words as f64 * memory::WORD_BYTES, Unit::Bytes))
        .evidence(Evidence::number("processes", processes, Unit::Count))
        .evidence(
            Evidence::number("share of VM memory", share.min(1.0), Unit::Ratio)
                .against_scale(FIRST_HEAPS.of(period)),
        )
        .counter_evidence("heaps of processes that need this much would grow to that size anyway")
        .remedy(remedy::of(
            period,
            "process.min_heap_size",
            "remove +hms; set {min_heap_size, Words} with spawn_opt only for processes with frequent GC",
            "most processes need a few hundred words",
            "process memory and GC rate under the same load",
        )),
    )
}
