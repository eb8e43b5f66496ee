//! BT030: the literal area is nearly full; the VM terminates when it is.

use beamtune_model::{Account, Code, Evidence, Missing, Period, Scale, Subject, Threshold, Unit, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::signals::limits::time_left;
use crate::text;

pub const RULE: Rule = Rule {
    code: Code("BT030"),
    name: "literal-area",
    question: "Is there room for literals and persistent terms?",
    confirm: "call persistent_term:info() and code:all_loaded() an hour apart: what grows fills the area",
    needs: &[&metrics::MMAP_USED, &metrics::MMAP_TOTAL],
    account: Account::Memory,
    topics: &[Topic::Memory],
    judges_dumps: true,
    judge,
    thresholds: &[FULL],
    ..Rule::COMMON
};

const FULL: Threshold = Threshold::new(
    "literal-area.used_share",
    "used share of the literal area",
    Scale {
        notice: 0.5,
        warning: 0.7,
        critical: 0.9,
        source: "judgement: the VM terminates when a literal does not fit",
    },
);

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let used = period.stat(&metrics::MMAP_USED, "literal")?;
    let total = period.stat(&metrics::MMAP_TOTAL, "literal")?.last.value as f64;
    let (now, share) = (used.last.value as f64, used.last.value as f64 / total.max(1.0));
    let Some(severity) = FULL.of(period).severity(share) else {
        return Ok(Judgement::Healthy(format!(
            "literal area: {} of {} used",
            text::bytes(now),
            text::bytes(total)
        )));
    };
    // Larger than the present area, even if that differs from the default of 1,024 MB.
    let wanted_mb = (2.0 * total.max(2.0 * now) / f64::from(1 << 20)).ceil();
    let grown = (used.last.value - used.first.value) as f64;
    Ok(Judgement::found(
        Draft::new(
            severity,
            format!("Literal area is {:.0} % full: {} of {}", share * 100.0, text::bytes(now), text::bytes(total)),
        )
        .detail("the VM terminates when a literal or persistent term does not fit")
        .detail(if grown > 0.0 { format!("+{} in this period", text::bytes(grown)) } else { String::new() })
        .about(Subject::allocator("literal_alloc"))
        .costs(time_left(period, used, (total - now).max(0.0)))
        .evidence(Evidence::number("used", now, Unit::Bytes))
        .evidence(Evidence::number("size", total, Unit::Bytes))
        .evidence(Evidence::number("used share", share, Unit::Ratio).against_scale(FULL.of(period)))
        .because_some((grown > 0.0).then(|| Evidence::number("growth in this period", grown, Unit::Bytes)))
        .counter_evidence("old code and erased persistent terms stay until no process refers to them: part of it may be freed")
        .remedy(remedy::of(
            period,
            "+MIscs",
            &format!("+MIscs {wanted_mb:.0}"),
            "the area is address space, and takes memory only where it is used",
            "used share of the literal area in beamtune memory after a restart",
        ))
        .remedy(remedy::of(
            period,
            "code.less_persistent",
            "keep large or changing data in ETS, not in persistent_term",
            "a persistent term is a literal, and replacing one scans every process",
            "persistent_term:info() and beamtune memory after the same work",
        )),
    ))
}
