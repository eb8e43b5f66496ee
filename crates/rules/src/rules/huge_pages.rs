//! BT020: transparent huge pages keep memory resident that the VM does not use.
//!
//! With `always` the kernel backs each 2 MB of a carrier as a whole once a byte of it is touched, and khugepaged joins small
//! pages later. What the VM has freed within them stays resident.

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Group, Missing, Period, Scale, Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};

pub const RULE: Rule = Rule {
    code: Code("BT020"),
    name: "huge-pages",
    question: "Do transparent huge pages hold memory that the VM does not use?",
    confirm: "AnonHugePages and Rss in smaps_rollup under the same load, before, and after madvise and a restart of the VM",
    needs: &[&metrics::RSS],
    account: Account::Memory,
    topics: &[Topic::Memory],
    judge,
    thresholds: &[UNUSED],
    ..Rule::COMMON
};

/// Share of the resident memory that the VM does not use.
const UNUSED: Threshold = Threshold::new(
    "huge-pages.unused_share",
    "resident memory that the VM does not use, share of resident memory",
    Scale {
        notice: 0.25,
        warning: 0.50,
        critical: 0.90,
        source: "judgement; operators call use below 50 % fragmented",
    },
);

/// Below this it is not worth a change of the host.
const WORTH_BYTES: f64 = 256.0 * (1 << 20) as f64;

/// Huge pages can only be to blame for what they hold: at least this part of what is not used.
const SHARE_OF_BLAME: f64 = 0.5;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let rss = period.stat(&metrics::RSS, "")?.last.value as f64;
    let setting = period.facts.get(facts::HUGE_PAGES).ok_or_else(|| {
        period.missing_group(Group::HostProcess, "the host's setting of transparent huge pages")
    })?;
    if setting != "always" {
        return Ok(Judgement::Healthy(format!(
            "transparent huge pages are used only where a program asks for them ({setting})"
        )));
    }
    let huge = period.stat(&metrics::ANON_HUGE, "")?.last.value as f64;
    let used = period
        .find(Group::Memory, "", "total")
        .map(|stat| stat.last.value as f64)
        .ok_or_else(|| period.missing_group(Group::Memory, "what the VM uses (erlang:memory(total))"))?;
    let unused = (rss - used).max(0.0);
    let share = if rss > 0.0 { unused / rss } else { 0.0 };
    let blamed = unused >= WORTH_BYTES && huge >= SHARE_OF_BLAME * unused;
    let megabytes = |bytes: f64| format!("{:.0} MB", bytes / (1 << 20) as f64);
    let Some(severity) = UNUSED.of(period).severity(share).filter(|_| blamed) else {
        return Ok(Judgement::Healthy(format!(
            "transparent huge pages are always used: {} of the VM's {} stand in some, and it uses {}",
            megabytes(huge),
            megabytes(rss),
            megabytes(used)
        )));
    };
    Ok(Judgement::found(
        // Fragmented carriers look the same, so this is never beyond doubt.
        Draft::new(
            severity,
            format!(
                "{} are resident and {} of them used; {} stand in transparent huge pages",
                megabytes(rss),
                megabytes(used),
                megabytes(huge)
            ),
        )
        .confidence(Confidence::Inferred)
        .costs(Cost::MemoryBytes(unused))
        .because(Evidence::number("resident", rss, Unit::Bytes))
        .because(Evidence::number("used, by the VM", used, Unit::Bytes))
        .because(Evidence::number("resident and not used", share, Unit::Ratio).against_scale(UNUSED.of(period)))
        .because(Evidence::number("in transparent huge pages", huge, Unit::Bytes))
        .because(Evidence::text("setting of the host", "always"))
        .but("carriers that became sparse after a peak hold memory too, with small pages as well: compare block and carrier sizes")
        .but("huge pages save misses of the TLB: a node with a large heap may be slower without them")
        .fix(remedy::of(
            period,
            "host.huge_pages",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, then restart the VM",
            "memory then becomes resident in pages of 4 kB as it is touched, and goes back page by page",
            "resident memory under the same load, and CPU per request, for it can become slower",
        )),
    ))
}
