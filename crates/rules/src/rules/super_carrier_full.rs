//! BT028: the super carrier (`+MMscs`) is full. Carriers that do not fit come from malloc, or end the VM.

use beamtune_model::memory::allocators;
use beamtune_model::{Account, Code, Evidence, Missing, Period, Scale, Subject, Threshold, Unit, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::signals::memory;
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT028"),
    name: "super-carrier-full",
    question: "Is the super carrier full?",
    confirm: "call erlang:system_info({allocator, erts_mmap}) during the peak: memory is used outside the super carrier",
    needs: &[&metrics::MMAP_OS_USED],
    account: Account::Memory,
    topics: &[Topic::Memory],
    judges_dumps: true,
    judge,
    thresholds: &[FULL],
    ..Rule::COMMON
};

const FULL: Threshold = Threshold::new(
    "super-carrier-full.used_share",
    "used share of the super carrier",
    Scale {
        notice: 0.85,
        warning: 0.93,
        critical: 0.995,
        source: "judgement: carriers are some megabytes large, so the last percent is rarely usable",
    },
);

/// Ratio of the advised size to what is needed now.
const HEADROOM_FACTOR: f64 = 1.5;

const ON_DEMAND: &str = "it uses memory only on demand, but counts as committed from the start";

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let last = |metric: &'static beamtune_model::Metric| {
        period.stat(metric, "default").map(|stat| stat.last.value as f64)
    };
    let (Ok(total), Ok(used)) = (last(&metrics::MMAP_TOTAL), last(&metrics::MMAP_USED)) else {
        // This is recorded whenever allocators are.
        let mapped = last(&metrics::MMAP_OS_USED)?;
        return Ok(Judgement::Healthy(format!("no super carrier; {} mapped on demand", text::bytes(mapped))));
    };
    let share = used / total.max(1.0);
    let all = allocators(period);
    let carriers: f64 = all.iter().map(|allocator| allocator.all().size as f64).sum();
    let segments: Option<i64> = all.iter().map(|allocator| allocator.segments).sum();
    let from_malloc = segments.map(|bytes| (carriers - bytes as f64).max(0.0));
    let outside = last(&metrics::MMAP_OS_USED).unwrap_or(0.0);
    let Some(severity) = FULL.of(period).severity(share) else {
        return Ok(Judgement::Healthy(format!(
            "super carrier: {} of {} used",
            text::bytes(used),
            text::bytes(total)
        )));
    };
    let is_only = view::emulator_flag(&period.facts, "+MMsco").value() != Some("false");
    let has_malloc = view::emulator_flag(&period.facts, "+Musac").value() != Some("false");
    let ends_vm = is_only && !has_malloc;
    let next = match (is_only, has_malloc) {
        (false, _) => "further carriers are mapped outside it",
        (true, true) => "further carriers come from malloc, with a call and a lock for each",
        (true, false) => "the VM ends when it needs another carrier",
    };
    let wanted_mb =
        ((used + from_malloc.unwrap_or(0.0) + outside) * HEADROOM_FACTOR / f64::from(1 << 20)).ceil();
    let max_mb = memory::largest_super_carrier_mb(period);
    // The VM subtracts its own bookkeeping from the configured size.
    let set_mb =
        view::emulator_flag(&period.facts, "+MMscs").value().and_then(|value| value.parse::<f64>().ok());
    let current_mb = set_mb.unwrap_or(0.0).max(total / f64::from(1 << 20));
    let larger_mb = Some(wanted_mb.min(max_mb)).filter(|megabytes| *megabytes > current_mb);
    let consequence = if ends_vm { ": the next carrier ends the VM" } else { "" };
    Ok(Judgement::found(
        Draft::new(severity, format!("Super carrier is {:.1} % full{consequence}", share * 100.0))
            .detail(format!("{} of {} used", text::bytes(used), text::bytes(total)))
            .detail(next)
            // It is critical only if the next carrier ends the VM.
            .at_most_warning_if(!ends_vm)
            .about(Subject::allocator("erts_mmap"))
            .evidence(Evidence::number("size", total, Unit::Bytes))
            .evidence(Evidence::number("used share", share, Unit::Ratio).against_scale(FULL.of(period)))
            .because_some(
                from_malloc.map(|bytes| Evidence::number("carriers from malloc", bytes, Unit::Bytes)),
            )
            .because_some(
                (outside > 0.0).then(|| Evidence::number("mapped outside it", outside, Unit::Bytes)),
            )
            .counter_evidence("the first carriers of each allocator come from malloc on any node")
            .but_if(
                larger_mb.is_none(),
                "the memory of the host or of the control group has no room for a larger one",
            )
            .fix_if(larger_mb.is_some(), || {
                remedy::of(
                    period,
                    "+MMscs",
                    &format!("+MMscs {:.0}", larger_mb.unwrap_or_default()),
                    &match wanted_mb > max_mb {
                        true => format!("as large as the host's memory allows; {ON_DEMAND}"),
                        false => format!("half as much again as is in use now; {ON_DEMAND}"),
                    },
                    "under the same load beamtune memory shows its use, and no more carriers from malloc",
                )
            })
            .fix_if(is_only, || {
                remedy::of(
                    period,
                    "+MMsco",
                    "+MMsco false",
                    "the VM then maps carriers that do not fit itself, instead of using malloc",
                    "memory mapped outside it, and system CPU time, under the same load",
                )
            }),
    ))
}
