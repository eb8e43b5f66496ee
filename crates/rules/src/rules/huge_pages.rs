//! BT020: transparent huge pages keep memory resident that the VM does not use.
//!
//! With `always`, the kernel backs 2 MB of a carrier as soon as one byte is touched, and khugepaged merges small pages later. Memory that
//! the VM frees within a huge page stays resident.

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Group, Missing, Period, Scale, Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::text;

pub const RULE: Rule = Rule {
    code: Code("BT020"),
    name: "huge-pages",
    question: "Do transparent huge pages keep memory resident that the VM does not use?",
    confirm: "compare AnonHugePages and Rss in smaps_rollup under the same load, before, and after madvise and a restart of the VM",
    needs: &[&metrics::RSS],
    account: Account::Memory,
    topics: &[Topic::Memory],
    judge,
    thresholds: &[UNUSED],
    ..Rule::COMMON
};

const UNUSED: Threshold = Threshold::new(
    "huge-pages.unused_share",
    "memory that the VM does not use, share of resident memory",
    Scale {
        notice: 0.25,
        warning: 0.50,
        critical: 0.90,
        source: "judgement; operators call utilization below 50 % fragmented",
    },
);

/// Minimum unused memory that is worth a change of the host.
const MIN_BYTES: f64 = 256.0 * (1 << 20) as f64;

/// Minimum memory in huge pages, as a share of the unused memory that is attributed to them.
const MIN_HUGE_SHARE: f64 = 0.5;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let rss = period.stat(&metrics::RSS, "")?.last.value as f64;
    let setting = period
        .facts
        .get(facts::HUGE_PAGES)
        .ok_or_else(|| period.missing_group(Group::HostProcess, "setting of transparent huge pages"))?;
    if setting != "always" {
        return Ok(Judgement::Healthy(format!(
            "transparent huge pages: {setting}, only where a program asks for them"
        )));
    }
    let huge = period.stat(&metrics::ANON_HUGE, "")?.last.value as f64;
    let used = period
        .find(Group::Memory, "", "total")
        .map(|stat| stat.last.value as f64)
        .ok_or_else(|| period.missing_group(Group::Memory, "erlang:memory(total)"))?;
    let unused = (rss - used).max(0.0);
    let share = if rss > 0.0 { unused / rss } else { 0.0 };
    let is_blamed = unused >= MIN_BYTES && huge >= MIN_HUGE_SHARE * unused;
    let Some(severity) = UNUSED.of(period).severity(share).filter(|_| is_blamed) else {
        return Ok(Judgement::Healthy(format!(
            "transparent huge pages hold {} of {} resident; the VM uses {}",
            text::bytes(huge),
            text::bytes(rss),
            text::bytes(used)
        )));
    };
    Ok(Judgement::found(
        // Inferred: fragmented carriers look the same.
        Draft::new(
            severity,
            format!("Huge pages likely hold {} that the VM does not use", text::bytes(unused)),
        )
        .detail(format!("{} resident, {} used", text::bytes(rss), text::bytes(used)))
        .detail(format!("{} in transparent huge pages", text::bytes(huge)))
        .confidence(Confidence::Inferred)
        .costs(Cost::MemoryBytes(unused))
        .evidence(Evidence::number("resident memory", rss, Unit::Bytes))
        .evidence(Evidence::number("used by the VM", used, Unit::Bytes))
        .evidence(
            Evidence::number("resident and not used", share, Unit::Ratio).against_scale(UNUSED.of(period)),
        )
        .evidence(Evidence::number("transparent huge pages", huge, Unit::Bytes))
        .evidence(Evidence::text("setting of the host", "always"))
        .counter_evidence(
            "carriers that are sparse after a peak look the same: compare block and carrier sizes",
        )
        .counter_evidence("huge pages save TLB misses: a node with a large heap may be slower without them")
        .remedy(remedy::of(
            period,
            "host.huge_pages",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, then restart the VM",
            "memory then becomes resident in pages of 4 kB as it is touched, and is freed page by page",
            "resident memory and CPU per request (which may rise) under the same load",
        )),
    ))
}
