//! BT046: the kernel maps, clears and unmaps memory again and again, though the cache of segments does what it can: what comes and goes
//! at once is more than it keeps.

use beamtune_model::memory::{Allocator, allocators};
use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, Scale, Subject, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule, Topic};
use crate::signals::memory::{self, PAGE_BYTES, PAGE_SECONDS, Segments, megabytes};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT046"),
    name: "mmap-churn",
    question: "Does memory go back to the kernel only to be fetched again?",
    confirm: "a super carrier under the same load: page faults and system CPU must fall (beamtune compare)",
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

/// Of the CPU that the VM uses, what its page faults take.
const COST: Threshold = Threshold::new(
    "mmap-churn.cpu_share",
    "page faults, share of the CPU that the VM uses",
    Scale {
        notice: 0.05,
        warning: 0.15,
        critical: 0.50,
        source: "judgement; operators saved about 10 % CPU with a super carrier, 2.2 µs a page were measured",
    },
);

/// Below this nobody would win anything by a change.
const WORTH_CORES: f64 = 0.02;

/// With fewer segments that come and go it is something else that faults: malloc, files, or another's memory.
const FEW_SEGMENTS: f64 = 2.0;

/// … and less than this, however much of what the VM uses, is a notice (judgement).
const LITTLE_SHARE: f64 = 0.03;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let faults = period.rate(&metrics::MINOR_FAULTS, "")?;
    let system = period.cores(&metrics::PROCESS_SYSTEM, "")?;
    let total = view::process_cores(period)?;
    let resident = period.stat(&metrics::RSS, "")?;
    let segments = Segments::of(period)?;
    // Memory that is needed for the first time, and stays, has to be fetched.
    let grown =
        (resident.last.value - resident.first.value).max(0) as f64 / PAGE_BYTES / period.seconds().max(1.0);
    let again = (faults - grown).max(0.0);
    let cores = (again * PAGE_SECONDS).min(system);
    let share = if total > 0.0 { cores / total } else { 0.0 };
    let healthy = |why: &str| {
        Ok(Judgement::Healthy(format!(
            "{again:.0} page faults a second take about {cores:.2} cores of the kernel{why}"
        )))
    };
    let Some(severity) = COST.of(period).severity(share).filter(|_| cores >= WORTH_CORES) else {
        return healthy("");
    };
    if segments.mapped < FEW_SEGMENTS {
        return healthy(", and not for the VM's carriers: hardly any is unmapped");
    }
    let is_little = view::capacity(period).is_ok_and(|capacity| cores / capacity.cores < LITTLE_SHARE);
    let all = allocators(period);
    let most =
        all.iter().max_by(|a, b| turnover(a).total_cmp(&turnover(b))).filter(|most| turnover(most) > 0.0);
    let peak = memory::peak(&all);
    let super_carrier = view::emulator_flag(&period.facts, "+MMscs");
    let overflows = super_carrier.value().is_some();
    let present = super_carrier.value().and_then(|value| value.parse::<f64>().ok()).unwrap_or(0.0);
    let larger = memory::fitting_super_carrier_mb(period, &all).filter(|megabytes| *megabytes > present);
    let may_map = view::emulator_flag(&period.facts, "+MMsco").value() == Some("false");
    let prove = "the same load: page faults and CPU in the kernel, per request; and resident memory, which stays at its peak";
    let draft = Draft::new(
        severity,
        format!(
            "{} a second are mapped, cleared and given back again, for about {:.0} % of the VM's CPU{}",
            megabytes(again * PAGE_BYTES),
            share * 100.0,
            most.map_or(String::new(), |most| format!("; most of it by {}", most.name))
        ),
    )
    .minor_if(is_little)
    .about(most.map(|most| Subject::allocator(most.name.clone())))
    .costs(Cost::CpuCores(cores))
    .because(Evidence::number("page faults that growth does not explain", again, Unit::PerSecond))
    .because(Evidence::number("CPU that these take", cores, Unit::Cores))
    .because(
        Evidence::number("of the CPU that the VM uses", share, Unit::Ratio).against_scale(COST.of(period)),
    )
    .because(Evidence::number("CPU in the kernel", system, Unit::Cores))
    .because(Evidence::number("segments mapped and unmapped", segments.mapped, Unit::PerSecond))
    .because(Evidence::number("served by the cache of segments", segments.hits, Unit::Ratio))
    .because_some((peak > 0.0).then(|| Evidence::number("largest size of all carriers", peak, Unit::Bytes)))
    .because_some(super_carrier.value().map(|size| Evidence::text("super carrier", format!("+MMscs {size}"))))
    .but("drivers and NIFs that use malloc for large blocks fault, too");
    Ok(Judgement::found(
        draft
            .fix_if(larger.is_some(), || {
                remedy::of(
                    period,
                    "+MMscs",
                    &format!("+MMscs {:.0} +MMsco false", larger.unwrap_or_default()),
                    match overflows {
                        true => "it is too small for the peak: what does not fit in is mapped as before",
                        false => "carriers then come out of one mapping that is kept; what does not fit in is mapped as before",
                    },
                    prove,
                )
            })
            .fix_if(peak > 0.0 && larger.is_none() && overflows && !may_map, || {
                remedy::of(
                    period,
                    "+MMsco",
                    "+MMsco false",
                    "there is no memory for a larger super carrier; what does not fit is then mapped by the VM, whose cache keeps some of it",
                    prove,
                )
            })
            .fix(memory::larger_segment_cache(
                period,
                "the cache then keeps three times as many segments (10 by default), which may do for small waves",
                prove,
            )),
    ))
}

/// Bytes of segments that an allocator asks for, per second, as if all were of the mean size of its carriers.
fn turnover(allocator: &Allocator) -> f64 {
    let all = allocator.all();
    let mean = all.size as f64 / all.count.max(1) as f64;
    allocator.segments_asked_per_s.unwrap_or(0.0) * mean
}
