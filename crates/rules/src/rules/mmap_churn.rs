//! BT046: the VM maps and unmaps memory all the time, although its segment cache works: each wave frees more memory than the cache keeps.

use beamtune_model::memory::{Allocator, allocators};
use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessActivity, Scale, Subject, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule, Topic};
use crate::signals::counts::largest_first;
use crate::signals::hot_code;
use crate::signals::memory::{self, PAGE_BYTES, PAGE_SECONDS, Segments, WORD_BYTES, format_bytes};
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT046"),
    name: "mmap-churn",
    question: "Do page faults for remapped memory take CPU?",
    confirm: "run with a super carrier under the same load (beamtune compare): page faults and system CPU fall",
    needs: &[
        &metrics::MINOR_FAULTS,
        &metrics::PROCESS_SYSTEM,
        &metrics::PROCESS_USER,
        &metrics::RSS,
        &metrics::MSEG_CREATES,
        &metrics::MSEG_DESTROYS,
        &metrics::MSEG_ALLOCATIONS,
    ],
    account: Account::CpuUsed,
    role: Role::Symptom,
    topics: &[Topic::MemoryCpu],
    judge,
    thresholds: &[COST],
    ..Rule::COMMON
};

const COST: Threshold = Threshold::new(
    "mmap-churn.cpu_share",
    "page faults, share of the CPU that the VM uses",
    Scale {
        notice: 0.05,
        warning: 0.15,
        critical: 0.50,
        source: "judgement; operators saved about 10 % CPU with a super carrier; 2.2 µs a page were measured",
    },
);

/// A lower cost is not worth a change.
const MIN_CORES: f64 = 0.02;

/// With fewer unmapped segments per second, the page faults have another cause: malloc, files or new memory.
const MIN_SEGMENTS_PER_S: f64 = 2.0;

/// If the cost is a smaller share of the CPU that the node may use, the finding is a notice (judgement).
const MINOR_SHARE: f64 = 0.03;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let faults = period.rate(&metrics::MINOR_FAULTS, "")?;
    let system = period.cores(&metrics::PROCESS_SYSTEM, "")?;
    let total = view::process_cores(period)?;
    let resident = period.stat(&metrics::RSS, "")?;
    let segments = Segments::of(period)?;
    // New memory that stays has to be mapped anyway.
    let grown =
        (resident.last.value - resident.first.value).max(0) as f64 / PAGE_BYTES / period.seconds().max(1.0);
    let again = (faults - grown).max(0.0);
    let cores = (again * PAGE_SECONDS).min(system);
    let share = if total > 0.0 { cores / total } else { 0.0 };
    let healthy = |why: &str| {
        Ok(Judgement::Healthy(format!(
            "{} page faults/s, {cores:.2} cores{why}",
            text::number(again.round())
        )))
    };
    let Some(severity) = COST.of(period).severity(share).filter(|_| cores >= MIN_CORES) else {
        return healthy("");
    };
    if segments.mapped < MIN_SEGMENTS_PER_S {
        return healthy(", not for carriers: few segments are unmapped");
    }
    let is_minor = view::capacity(period).is_ok_and(|capacity| cores / capacity.cores < MINOR_SHARE);
    let all = allocators(period);
    let busiest = all
        .iter()
        .max_by(|a, b| turnover(a).total_cmp(&turnover(b)))
        .filter(|busiest| turnover(busiest) > 0.0);
    let peak = memory::peak(&all);
    let super_carrier = view::emulator_flag(&period.facts, "+MMscs");
    let overflows = super_carrier.value().is_some();
    let present = super_carrier.value().and_then(|value| value.parse::<f64>().ok()).unwrap_or(0.0);
    let larger = memory::fitting_super_carrier_mb(period, &all).filter(|megabytes| *megabytes > present);
    let may_map = view::emulator_flag(&period.facts, "+MMsco").value() == Some("false");
    let prove =
        "page faults and system CPU per request under the same load; resident memory stays at its peak";
    let by = busiest.map_or(String::new(), |busiest| format!(", most for {}", busiest.name));
    let draft = Draft::new(severity, format!("Page faults take {:.0} % of the VM's CPU{by}", share * 100.0))
        .detail(format!("{}/s mapped, cleared and unmapped again", format_bytes(again * PAGE_BYTES)))
        .detail(format!("{} cores", text::cores(cores)))
        .detail(users(period))
        .minor_if(is_minor)
        .about(busiest.map(|busiest| Subject::allocator(busiest.name.clone())))
        .costs(Cost::CpuCores(cores))
        .evidence(Evidence::number("page faults not explained by growth", again, Unit::PerSecond))
        .evidence(Evidence::number("CPU of these page faults", cores, Unit::Cores))
        .evidence(
            Evidence::number("share of the VM's CPU", share, Unit::Ratio).against_scale(COST.of(period)),
        )
        .evidence(Evidence::number("system CPU", system, Unit::Cores))
        .evidence(Evidence::number("segments mapped and unmapped", segments.mapped, Unit::PerSecond))
        .evidence(Evidence::number("segment cache hit rate", segments.hits, Unit::Ratio))
        .because_some((peak > 0.0).then(|| Evidence::number("peak size of all carriers", peak, Unit::Bytes)))
        .because_some(
            super_carrier.value().map(|size| Evidence::text("super carrier", format!("+MMscs {size}"))),
        )
        .counter_evidence("drivers and NIFs that malloc large blocks cause page faults too");
    Ok(Judgement::found(
        draft
            .fix_if(larger.is_some(), || {
                remedy::of(
                    period,
                    "+MMscs",
                    &format!("+MMscs {:.0} +MMsco false", larger.unwrap_or_default()),
                    match overflows {
                        true => "it is too small for the peak: the rest is mapped and unmapped as before",
                        false => "carriers then come from one mapping that is kept",
                    },
                    prove,
                )
            })
            .fix_if(peak > 0.0 && larger.is_none() && overflows && !may_map, || {
                remedy::of(
                    period,
                    "+MMsco",
                    "+MMsco false",
                    "there is no memory for a larger super carrier; the VM then maps the rest itself, and its cache keeps some of it",
                    prove,
                )
            })
            .remedy(memory::larger_segment_cache(
                period,
                "the cache then keeps three times as many segments (default: 10), which may suffice for small waves",
                prove,
            )),
    ))
}

/// Minimum number of samples of running processes in one function for it to be named (judgement).
const MIN_SAMPLES: i64 = 3;

/// Heaps of this size may have their own carriers: half of the default `sbct`, which the next growth doubles.
const MIN_HEAP_BYTES: f64 = 256e3;

/// Maximum number of processes that are named.
const MAX_NAMED: usize = 2;

/// Formats what allocates this memory, by samples or by heap sizes.
fn users(period: &Period) -> String {
    let samples = hot_code::samples(period);
    let all = samples.iter().fold(0, |sum: i64, sample| sum.saturating_add(sample.looks));
    let functions =
        samples.iter().filter_map(|sample| Some((sample.functions.first()?.as_str(), sample.looks)));
    if let Some((function, looks)) =
        largest_first(functions).first().filter(|(_, looks)| *looks >= MIN_SAMPLES && 2 * looks > all)
    {
        return format!("{looks} of {all} running processes sampled were in {function}");
    }
    let heap = |process: &&ProcessActivity| {
        let words = process.row.as_ref().and_then(|row| row.total_heap_words).unwrap_or(0);
        words as f64 * WORD_BYTES
    };
    let mut large: Vec<&ProcessActivity> = period
        .processes
        .iter()
        .filter(|process| process.reductions > 0 && heap(process) >= MIN_HEAP_BYTES)
        .collect();
    large.sort_by(|a, b| heap(b).total_cmp(&heap(a)).then_with(|| a.pid.cmp(&b.pid)));
    let named: Vec<String> = large
        .iter()
        .map(|process| format!("{} {}", text::name(&process.subject()), text::bytes(heap(process))))
        .collect();
    match named.is_empty() {
        true => "which processes allocate it is not recorded".to_owned(),
        false => format!("largest heaps at work: {}", text::names(&named, MAX_NAMED)),
    }
}

/// Estimates the bytes of segments that an allocator requests per second, from the mean size of its carriers.
fn turnover(allocator: &Allocator) -> f64 {
    let all = allocator.all();
    let mean = all.size as f64 / all.count.max(1) as f64;
    allocator.segment_requests_per_s.unwrap_or(0.0) * mean
}
