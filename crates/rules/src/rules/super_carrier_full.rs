//! BT028: the super carrier (`+MMscs`) is full: what does not fit comes from malloc, or ends the VM.

use beamtune_model::memory::allocators;
use beamtune_model::{Code, Evidence, Missing, Period, Scale, Unit, metrics};

use crate::memory::megabytes;
use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT028"),
    name: "super-carrier-full",
    question: "Does the super carrier suffice?",
    confirm: "erlang:system_info({allocator, erts_mmap}) during the peak: what is used beside the super carrier is what it lacks",
    needs: &[&metrics::MMAP_OS_USED],
    since: 21,
    judge,
};

/// Used share of the super carrier.
const FULL: Scale = Scale {
    notice: 0.85,
    warning: 0.93,
    critical: 0.995,
    source: "judgement: carriers are some megabytes, so the last per cents are seldom usable",
};

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
    let Some(score) = FULL.score(share) else {
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
    Ok(Judgement::found(
        Draft::new(
            if only && !malloc { score.max(75.0) } else { score.min(74.0) },
            format!("the super carrier of {} is used to {:.1} %; {next}", megabytes(total), share * 100.0),
        )
        .about("super carrier")
        .because(Evidence::number("size", total, Unit::Bytes))
        .because(Evidence::number("used", share, Unit::Ratio).against(FULL.warning, FULL.source))
        .because_some(from_malloc.map(|bytes| Evidence::number("carriers from malloc", bytes, Unit::Bytes)))
        .because_some((outside > 0.0).then(|| Evidence::number("mapped outside of it", outside, Unit::Bytes)))
        .but("each allocator's first carriers are malloc's on any node")
        .fix(remedy::of(
            period,
            "+MMscs",
            &format!("+MMscs {wanted_mb:.0}"),
            "half as much again as is in use now; it takes address space, and memory only where it is used",
            "the same load: beamtune memory shows how far it is used, and no more carriers from malloc",
        ))
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
