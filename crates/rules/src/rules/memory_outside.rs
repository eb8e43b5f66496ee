//! BT025: much of the resident memory is malloc's, of which the VM's allocators know nothing: NIFs, drivers, libraries.

use beamtune_model::memory::{Bridge, all_together, allocators, content, mapping, moved_while_looking};
use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Group, Missing, Period, Scale, Subject, Threshold, Unit,
    facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::signals::memory::{self, megabytes};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT025"),
    name: "memory-outside",
    question: "Does something beside the VM's own allocators hold memory?",
    confirm: "LD_PRELOAD of a malloc that profiles (jemalloc), or the same node without the library that is suspected",
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

/// malloc's part of what is resident.
const SHARE: Threshold = Threshold::new(
    "memory-outside.malloc_share",
    "malloc's part, share of resident memory",
    Scale {
        notice: 0.15,
        warning: 0.30,
        critical: 0.70,
        source: "judgement: an ordinary node has 5 to 15 MB of it",
    },
);

/// Below this every node has it.
const WORTH_BYTES: f64 = 48e6;

/// Stacks, programs and libraries, tables of the emulator: what is outside of carriers on any node, where nobody looked.
/// 25 to 60 MB were measured on OTP 23 to 29.
const USUAL_BYTES: f64 = 64e6;

/// Of malloc's memory, if less than this share is handed out, the rest is what malloc keeps.
const KEPT: f64 = 0.5;

/// What pages are told as that nothing is known of: perhaps another malloc than glibc's.
const NOT_RECOGNISED: &str = "not recognised";

/// So many looks one behind the other may be those at which resident memory, carriers and the content of pages were read.
const LOOKS_APART: usize = 3;

/// The most by which resident memory became less within a few looks, in bytes.
fn largest_fall(period: &Period) -> Result<f64, Missing> {
    let resident = period.stat(&metrics::RSS, "")?.trace.points();
    let falls = resident.iter().enumerate().flat_map(|(place, from)| {
        let next = resident.iter().skip(place + 1).take(LOOKS_APART);
        next.map(|to| from.1.saturating_sub(to.1))
    });
    Ok(falls.max().unwrap_or(0).max(0) as f64)
}

/// Resident memory that machine code takes which the JIT has made, in bytes. It is mapped twice, to be written and to be run, and each of
/// its pages is resident twice. Where mappings were not read it is taken for twice what the VM tells of code.
fn machine_code(period: &Period, bridge: &Bridge) -> f64 {
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
    let bridge = Bridge::of(period);
    let disabled: Vec<String> = period
        .facts
        .list(facts::ALLOCATORS)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|name| name.strip_suffix("=false").map(str::to_owned))
        .collect();
    let all = allocators(period);
    let by_allocator: f64 = all.iter().map(|allocator| allocator.all().size as f64).sum();
    let told = all_together(period).map_or(0.0, |(carriers, _)| carriers as f64);
    let carriers = if by_allocator > 0.0 { by_allocator } else { told };
    if carriers <= 0.0 {
        return Err(period.missing_group(Group::Allocator, "sizes of carriers"));
    }
    if !period.is_imported() {
        period.stat(&metrics::MBCS_CARRIERS_SIZE, &format!("{}/0", all[0].name))?;
    }
    let looked = bridge.explained().is_some();
    let (bytes, label, in_use) = if looked {
        let malloc = || bridge.parts_of("malloc");
        let in_use: Option<i64> = malloc().map(|part| part.in_use).sum();
        // Unknown memory is nobody's; malloc of another kind than glibc's stands there.
        let unknown = bridge.unknown.as_ref().map_or(0, |part| part.resident) as f64;
        let known = bridge.resident_of("malloc") as f64;
        match known >= unknown {
            true => (known, "malloc", in_use.map(|bytes| bytes as f64)),
            false => (unknown, NOT_RECOGNISED, None),
        }
    } else {
        // What the VM has mapped for itself can be resident as a whole at most: carriers, cached segments, the super carrier.
        // So at least this much is something else.
        let segments: Option<i64> = all.iter().map(|allocator| allocator.segments).sum();
        let from_malloc = (carriers - segments.unwrap_or(0) as f64).max(0.0);
        let mapped: f64 = [&metrics::MMAP_OS_USED, &metrics::MMAP_TOTAL]
            .iter()
            .filter_map(|metric| period.stat(metric, "default").ok())
            .fold(0.0, |sum, stat| sum + stat.last.value as f64);
        let outside =
            resident - carriers.max(mapped + from_malloc) - machine_code(period, &bridge) - USUAL_BYTES;
        (outside.max(0.0), "outside of carriers, at least", None)
    };
    let share = bytes / resident.max(1.0);
    let healthy = || {
        Ok(Judgement::Healthy(format!("{label}: {} of {} resident", megabytes(bytes), megabytes(resident))))
    };
    let Some(severity) = SHARE.of(period).severity(share).filter(|_| bytes >= WORTH_BYTES) else {
        return healthy();
    };
    // What is resident and what is in carriers are read one after the other, which are of one instant only where little moves.
    let moves = largest_fall(period)?.max(moved_while_looking(period));
    if bytes < moves {
        return Ok(Judgement::NotJudged {
            reason: format!(
                "{} of resident memory may have come and gone while it was looked at, and {} are to be explained",
                megabytes(moves),
                megabytes(bytes)
            ),
            next: "look when the node has less to do: beamtune memory".to_owned(),
        });
    }
    let kept = in_use.is_some_and(|used| used < KEPT * bytes);
    let what = match (&disabled[..], kept) {
        ([], true) => "most of it is free and kept by malloc",
        ([], false) => "the VM does not know of it: NIFs, drivers or libraries have it",
        _ => "the VM's own memory stands there too, since allocators are disabled",
    };
    let entities = [
        ("its first arena", content::MALLOC_HEAP),
        ("arenas of further threads", content::MALLOC_ARENAS),
        ("large chunks, each mapped by itself", content::MALLOC_MAPPED),
        (NOT_RECOGNISED, content::UNKNOWN),
    ];
    let mut draft = Draft::new(
        severity,
        format!(
            "{} of the {} resident are outside of the VM's carriers; {what}",
            megabytes(bytes),
            megabytes(resident)
        ),
    )
    // What was allocated on purpose looks the same.
    .confidence(Confidence::Inferred)
    .about(Subject::allocator("malloc"))
    .costs(Cost::MemoryBytes(bytes))
    .because(
        Evidence::number(label, bytes, Unit::Bytes)
            .with_text(format!("{:.0} % of what is resident", share * 100.0)),
    )
    .because_some(in_use.map(|used| Evidence::number("of it handed out", used, Unit::Bytes)));
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
                "libraries that are not the system's",
                list.trim_matches(['[', ']']).replace('"', ""),
            )
        }))
        .but("a NIF may hold it on purpose: a cache, a database, a machine-learning model")
        .but_if(label == NOT_RECOGNISED, "what came or went while the pages were looked at stands there, too")
        .but_if(!looked, view::not_looked_at(period));
    Ok(Judgement::found(if disabled.is_empty() {
        draft
            .fix_if(kept || !looked, || {
                remedy::of(
                    period,
                    "host.malloc_arenas",
                    "start the VM with MALLOC_ARENA_MAX=2 in its environment",
                    "each thread that calls malloc otherwise gets an arena of its own, which keeps what was freed in it",
                    "resident memory after the same load, and beamtune memory: the lines of malloc",
                )
            })
            .fix_if(!kept, || {
                remedy::of(
                    period,
                    "code.native_memory",
                    "find who allocates: look at the NIFs that are loaded, take one away after the other, or start with jemalloc and its heap profiler",
                    "what the VM did not allocate, it cannot free",
                    "beamtune memory twice: the lines of malloc must not grow under the same load",
                ).map(|remedy| remedy.saving(bytes))
            })
    } else {
        draft.fix(remedy::of(
            period,
            "+M<S>e",
            "take +M<S>e false (or +Mea min) out of the flags",
            "then the VM can tell what holds its memory, and each scheduler allocates without a lock",
            "erlang:memory() answers again; resident memory under the same load",
        ))
    }))
}
