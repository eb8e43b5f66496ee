//! BT028: the super carrier (`+MMscs`) is full: what does not fit comes from malloc, or ends the VM.

use beamtune_model::memory::allocators;
use beamtune_model::{Account, Code, Evidence, Missing, Period, Scale, Subject, Threshold, Unit, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::signals::memory::{self, megabytes};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT028"),
    name: "super-carrier-full",
    question: "Does the super carrier suffice?",
    confirm: "erlang:system_info({allocator, erts_mmap}) during the peak: what is used beside the super carrier is what it lacks",
    needs: &[&metrics::MMAP_OS_USED],
    account: Account::Memory,
    topics: &[Topic::Memory],
    judges_dumps: true,
    judge,
    thresholds: &[FULL],
    ..Rule::COMMON
};

/// Used share of the super carrier.
const FULL: Threshold = Threshold::new(
    "super-carrier-full.used_share",
    "used share of the super carrier",
    Scale {
        notice: 0.85,
        warning: 0.93,
        critical: 0.995,
        source: "judgement: carriers are some megabytes, so the last per cents are seldom usable",
    },
);

/// A larger one is asked for with so much room.
const ROOM: f64 = 1.5;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let last = |metric: &'static beamtune_model::Metric| {
        period.stat(metric, "default").map(|stat| stat.last.value as f64)
    };
    let (Ok(total), Ok(used)) = (last(&metrics::MMAP_TOTAL), last(&metrics::MMAP_USED)) else {
        // It is told whenever the allocators were read.
        let mapped = last(&metrics::MMAP_OS_USED)?;
        return Ok(Judgement::Healthy(format!(
            "there is none; {} are mapped as they are needed",
            megabytes(mapped)
        )));
    };
    let share = used / total.max(1.0);
    let all = allocators(period);
    let carriers: f64 = all.iter().map(|allocator| allocator.all().size as f64).sum();
    let segments: Option<i64> = all.iter().map(|allocator| allocator.segments).sum();
    let from_malloc = segments.map(|bytes| (carriers - bytes as f64).max(0.0));
    let outside = last(&metrics::MMAP_OS_USED).unwrap_or(0.0);
    let Some(severity) = FULL.of(period).severity(share) else {
        return Ok(Judgement::Healthy(format!(
            "{} of the super carrier's {} are used",
            megabytes(used),
            megabytes(total)
        )));
    };
    let only = view::emulator_flag(&period.facts, "+MMsco").value() != Some("false");
    let malloc = view::emulator_flag(&period.facts, "+Musac").value() != Some("false");
    let next = match (only, malloc) {
        (false, _) => "more is mapped outside of it",
        (true, true) => "further carriers come from malloc, one call and one lock for each",
        (true, false) => "the VM ends when it needs another carrier",
    };
    let wanted_mb = ((used + from_malloc.unwrap_or(0.0) + outside) * ROOM / f64::from(1 << 20)).ceil();
    let most_mb = memory::largest_super_carrier_mb(period);
    // What it describes itself with is no part of its size.
    let set_mb =
        view::emulator_flag(&period.facts, "+MMscs").value().and_then(|value| value.parse::<f64>().ok());
    let now_mb = set_mb.unwrap_or(0.0).max(total / f64::from(1 << 20));
    let larger_mb = Some(wanted_mb.min(most_mb)).filter(|megabytes| *megabytes > now_mb);
    Ok(Judgement::found(
        Draft::new(
            // Only where the next carrier ends the VM is it critical.
            severity,
            format!("the super carrier of {} is used to {:.1} %; {next}", megabytes(total), share * 100.0),
        )
        .at_most_warning_if(!only || malloc)
        .about(Subject::allocator("erts_mmap"))
        .because(Evidence::number("size", total, Unit::Bytes))
        .because(Evidence::number("used", share, Unit::Ratio).against_scale(FULL.of(period)))
        .because_some(from_malloc.map(|bytes| Evidence::number("carriers from malloc", bytes, Unit::Bytes)))
        .because_some((outside > 0.0).then(|| Evidence::number("mapped outside of it", outside, Unit::Bytes)))
        .but("each allocator's first carriers are malloc's on any node")
        .but_if(larger_mb.is_none(), "the node's memory, or its control group's limit, has no room for a larger one")
        .fix_if(larger_mb.is_some(), || {
            remedy::of(
                period,
                "+MMscs",
                &format!("+MMscs {:.0}", larger_mb.unwrap_or_default()),
                match wanted_mb > most_mb {
                    true => "as large as the node's memory allows; it is touched only where it is used, but counts as committed from the start",
                    false => "half as much again as is in use now; it is touched only where it is used, but counts as committed from the start",
                },
                "the same load: beamtune memory shows how far it is used, and no more carriers from malloc",
            )
        })
        .fix_if(only, || {
            remedy::of(
                period,
                "+MMsco",
                "+MMsco false",
                "what does not fit is then mapped by the VM itself and not taken from malloc",
                "the same load: mapped outside of it, and CPU in the kernel",
            )
        }),
    ))
}
