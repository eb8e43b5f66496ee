//! BT025: NIFs, drivers and libraries hold much resident memory in malloc, outside the VM's allocators.

use beamtune_model::memory::{
    MemoryBreakdown, allocator_totals, allocators, content, mapping, moved_during_scan,
};
use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Group, Missing, Period, Scale, Subject, Threshold, Unit,
    facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::signals::memory::{self, format_bytes};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT025"),
    name: "memory-outside",
    question: "Is much memory held outside the VM's allocators?",
    confirm: "start with LD_PRELOAD of a profiling malloc (jemalloc): its profile names the caller; or without the suspected library: the memory is gone",
    needs: &[&metrics::RSS, &metrics::MBCS_CARRIERS_SIZE],
    account: Account::Memory,
    topics: &[Topic::Memory],
    text: Some(
        "what rabbitmq-diagnostics status --formatter json prints, or status and recon_alloc:fragmentation(current)",
    ),
    judge,
    thresholds: &[SHARE],
    ..Rule::COMMON
};

const SHARE: Threshold = Threshold::new(
    "memory-outside.malloc_share",
    "memory of malloc, share of resident memory",
    Scale {
        notice: 0.15,
        warning: 0.30,
        critical: 0.70,
        source: "judgement: an ordinary node has 5 to 15 MB of it",
    },
);

/// Less than this is normal on any node.
const MIN_BYTES: f64 = 48e6;

/// Memory outside carriers that any node has: stacks, executable, libraries and tables of the emulator. Used if the pages were not read. 25
/// to 60 MB were measured on OTP 23 to 29.
const USUAL_BYTES: f64 = 64e6;

/// If less than this share of malloc's memory is in use, malloc keeps most of it although it is free.
const MIN_USED_SHARE: f64 = 0.5;

/// Name of pages with unknown content, perhaps of a malloc other than glibc's.
const UNRECOGNIZED: &str = "unrecognized memory";

/// Maximum number of samples between the readings of resident memory, carriers and the content of pages.
const MAX_SAMPLES_APART: usize = 3;

/// Returns the largest fall of resident memory within a few samples, in bytes.
fn largest_fall(period: &Period) -> Result<f64, Missing> {
    let resident = period.stat(&metrics::RSS, "")?.trace.points();
    let falls = resident.iter().enumerate().flat_map(|(index, from)| {
        let next = resident.iter().skip(index + 1).take(MAX_SAMPLES_APART);
        next.map(|to| from.1.saturating_sub(to.1))
    });
    Ok(falls.max().unwrap_or(0).max(0) as f64)
}

/// Returns the resident memory of the JIT's machine code, in bytes. The code is mapped twice, writable and executable, and its pages count
/// as resident twice. If mappings were not read, it is estimated as twice `memory.code`.
fn machine_code(period: &Period, bridge: &MemoryBreakdown) -> f64 {
    if !bridge.mappings.is_empty() {
        return bridge.mapping(mapping::JIT).map_or(0.0, |mapped| mapped.resident as f64);
    }
    let is_jit = period.facts.get(facts::EMU_FLAVOR) == Some("jit");
    let code = period.find(Group::Memory, "", "code").filter(|_| is_jit);
    code.map_or(0.0, |stat| 2.0 * stat.last.value as f64)
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let resident = memory::resident(period)?;
    memory::all_carriers(period)?;
    let bridge = MemoryBreakdown::of(period);
    let disabled: Vec<String> = period
        .facts
        .list(facts::ALLOCATORS)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|name| name.strip_suffix("=false").map(str::to_owned))
        .collect();
    let all = allocators(period);
    let by_allocator: f64 = all.iter().map(|allocator| allocator.all().size as f64).sum();
    let sum = allocator_totals(period).map_or(0.0, |(carriers, _)| carriers as f64);
    let carriers = if by_allocator > 0.0 { by_allocator } else { sum };
    if carriers <= 0.0 {
        return Err(period.missing_group(Group::Allocator, "sizes of carriers"));
    }
    if !period.is_imported() {
        period.stat(&metrics::MBCS_CARRIERS_SIZE, &format!("{}/0", all[0].name))?;
    }
    let has_pages = bridge.explained().is_some();
    let (bytes, label, in_use) = if has_pages {
        let malloc = || bridge.parts_of("malloc");
        let in_use: Option<i64> = malloc().map(|part| part.in_use).sum();
        // The memory of a malloc other than glibc's is not recognized.
        let unknown = bridge.unknown.as_ref().map_or(0, |part| part.resident) as f64;
        let known = bridge.resident_of("malloc") as f64;
        match known >= unknown {
            true => (known, "malloc", in_use.map(|bytes| bytes as f64)),
            false => (unknown, UNRECOGNIZED, None),
        }
    } else {
        // A lower bound: everything that the VM has mapped (carriers, cached segments, the super carrier) is assumed to be resident.
        let segments: Option<i64> = all.iter().map(|allocator| allocator.segments).sum();
        let from_malloc = (carriers - segments.unwrap_or(0) as f64).max(0.0);
        let mapped: f64 = [&metrics::MMAP_OS_USED, &metrics::MMAP_TOTAL]
            .iter()
            .filter_map(|metric| period.stat(metric, "default").ok())
            .fold(0.0, |sum, stat| sum + stat.last.value as f64);
        let outside =
            resident - carriers.max(mapped + from_malloc) - machine_code(period, &bridge) - USUAL_BYTES;
        (outside.max(0.0), "outside carriers, at least", None)
    };
    let share = bytes / resident.max(1.0);
    let healthy = || {
        Ok(Judgement::Healthy(format!(
            "{label}: {} of {} resident",
            format_bytes(bytes),
            format_bytes(resident)
        )))
    };
    let Some(severity) = SHARE.of(period).severity(share).filter(|_| bytes >= MIN_BYTES) else {
        return healthy();
    };
    // Resident memory and carriers are read one after the other. So they match only if little memory changes in between.
    let moves = largest_fall(period)?.max(moved_during_scan(period));
    if bytes < moves {
        return Ok(Judgement::NotJudged {
            reason: format!(
                "resident memory moved by {} between readings, and only {} is unexplained",
                format_bytes(moves),
                format_bytes(bytes)
            ),
            next: "run beamtune memory TARGET when the node is less busy".to_owned(),
        });
    }
    let kept = in_use.is_some_and(|used| used < MIN_USED_SHARE * bytes);
    let holder = match (&disabled[..], kept) {
        ([], true) => "most of it is free and kept by malloc",
        ([], false) => "held by NIFs, drivers or libraries",
        _ => "includes memory of the VM, because allocators are disabled",
    };
    let entities = [
        ("first arena of malloc", content::MALLOC_HEAP),
        ("arenas of other threads", content::MALLOC_ARENAS),
        ("large chunks with a mapping of their own", content::MALLOC_MAPPED),
        (UNRECOGNIZED, content::UNKNOWN),
    ];
    let mut draft = Draft::new(
        severity,
        format!(
            "{} outside the VM's allocators, {:.0} % of resident memory",
            format_bytes(bytes),
            share * 100.0
        ),
    )
    .detail(format!("{} resident; {holder}", format_bytes(resident)))
    // Memory that is allocated on purpose looks the same.
    .confidence(Confidence::Inferred)
    .about(Subject::allocator("malloc"))
    .costs(Cost::MemoryBytes(bytes))
    .evidence(
        Evidence::number(label, bytes, Unit::Bytes)
            .with_text(format!("{:.0} % of resident memory", share * 100.0)),
    )
    .because_some(in_use.map(|used| Evidence::number("in use by native code", used, Unit::Bytes)));
    for (name, entity) in entities.into_iter().filter(|(name, _)| *name != label) {
        let part = bridge.parts.iter().chain(&bridge.unknown).find(|part| part.entity == entity);
        draft = draft.because_some(
            part.filter(|part| part.resident as f64 > 0.05 * bytes)
                .map(|part| Evidence::number(name, part.resident as f64, Unit::Bytes)),
        );
    }
    let draft = draft
        .because_some(
            (!disabled.is_empty()).then(|| Evidence::text("disabled allocators", disabled.join(", "))),
        )
        .because_some(period.facts.get(facts::NATIVE_LIBRARIES).map(|list| {
            Evidence::text(
                "native libraries outside system folders",
                list.trim_matches(['[', ']']).replace('"', ""),
            )
        }))
        .counter_evidence("a NIF may hold it on purpose: a cache, a database, a machine-learning model")
        .but_if(label == UNRECOGNIZED, "memory that came or went while the pages were read counts too")
        .but_if(!has_pages, view::pages_not_read(period));
    Ok(Judgement::found(if disabled.is_empty() {
        draft
            .fix_if(kept || !has_pages, || {
                remedy::of(
                    period,
                    "host.malloc_arenas",
                    "set MALLOC_ARENA_MAX=2 in the VM's environment",
                    "by default each thread that calls malloc has an arena, which keeps the memory freed in it",
                    "resident memory after the same load; the malloc lines of beamtune memory",
                )
            })
            .fix_if(!kept, || {
                remedy::of(
                    period,
                    "code.native_memory",
                    "find the library: remove loaded NIFs one by one, or start with jemalloc and its heap profiler",
                    "the VM cannot free memory that it did not allocate",
                    "the malloc lines of beamtune memory do not grow under the same load",
                ).map(|remedy| remedy.saving(bytes))
            })
    } else {
        draft.remedy(remedy::of(
            period,
            "+M<S>e",
            "remove +M<S>e false (or +Mea min) from the flags",
            "the VM then accounts for its memory, and schedulers allocate without a lock",
            "erlang:memory() works again; resident memory under the same load",
        ))
    }))
}
