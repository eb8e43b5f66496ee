//! The heading of a page: node name, product, release, schedulers, and how long the node was sampled.

use beamtune_model::units::SECOND_NS;
use beamtune_model::{Period, facts, metrics};

use crate::text::{self, Style};

/// Renders the heading: one line, plus remarks on the recording that are needed to understand the page.
pub fn heading(period: &Period, style: Style) -> String {
    heading_at(period, None, style)
}

/// Like [`heading`], with the time at which a recording was made.
pub(super) fn heading_at(period: &Period, recorded_at: Option<&str>, style: Style) -> String {
    let facts = &period.facts;
    let mut first = vec![text::clean(node_title(period))];
    // The name of a release or product. A value that is only the beginning of a command line (`erl …`) is skipped.
    first.extend(facts.get(facts::PRODUCT).filter(|product| !product.starts_with("erl ")).map(text::clean));
    if let Some(otp) = facts.get(facts::OTP_VERSION).or(facts.get(facts::OTP_RELEASE)) {
        let flavor = facts.get(facts::EMU_FLAVOR).filter(|flavor| *flavor != "jit");
        let flavor = flavor.map_or(String::new(), |flavor| format!(" ({flavor})"));
        first.push(text::clean(&format!("OTP {otp}{flavor}")));
    }
    let count = |fact, one: &str, many: &str| {
        let count = text::clean(facts.get(fact)?);
        let noun = if count == "1" { one } else { many };
        Some(format!("{count} {noun}"))
    };
    let quota = period.stat(&metrics::CGROUP_QUOTA, "cpu").ok().map(|stat| stat.mean() / 1_000.0);
    let size = [
        count(facts::SCHEDULERS_ONLINE, "scheduler", "schedulers"),
        count(facts::HOST_CPUS, "CPU", "CPUs"),
        quota.map(|cores| format!("quota {cores:.2} cores")),
    ];
    let size: Vec<String> = size.into_iter().flatten().collect();
    first.extend((!size.is_empty()).then(|| size.join(", ")));
    first.extend(period.uptime_seconds().map(|uptime| format!("up {}", text::seconds(uptime))));
    let recorded_at = recorded_at.map_or(String::new(), |at| format!(" recorded {}", text::clean(at)));
    first.push(format!("{}{recorded_at}", extent(period)));
    let mut lines = vec![String::new()];
    for part in first {
        match lines.last_mut() {
            Some(line) if line.is_empty() => *line = part,
            Some(line) if text::width(line) + 3 + text::width(&part) <= style.width => {
                line.push_str(&format!(" · {part}"));
            }
            _ => lines.push(part),
        }
    }
    if let Some(line) = lines.first_mut() {
        *line = style.bold(line);
    }
    let remarks = [
        (period.incarnation_count > 1).then(|| {
            format!(
                "The VM was started {} times in this recording; this is one of the runs.",
                period.incarnation_count
            )
        }),
        clock_difference(period),
        match period.thresholds.names().len() {
            0 => None,
            1 => Some(format!("1 threshold changed by {}", text::clean(&period.thresholds.file))),
            count => Some(format!("{count} thresholds changed by {}", text::clean(&period.thresholds.file))),
        },
        facts
            .get(facts::SYNTHETIC)
            .map(|what| format!("SYNTHETIC, not measured: {}", text::clean_words(what))),
    ];
    for remark in remarks.into_iter().flatten() {
        lines.extend(text::lines(&remark, style.width, usize::MAX));
    }
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

/// Returns how long the node was sampled, or the source of an import.
pub fn extent(period: &Period) -> String {
    match period.facts.get(facts::IMPORTED_FROM) {
        Some(facts::CRASH_DUMP) => match period.facts.get(facts::CRASH_TIME) {
            Some(time) => format!("crash dump of {}", text::clean(time)),
            None => "crash dump".to_owned(),
        },
        Some(tools) => {
            let remark = period.facts.get(facts::IMPORTED_REMARK);
            let remark = remark.map_or(String::new(), |remark| format!(" ({})", text::clean_words(remark)));
            format!("output of {}{remark}", text::clean(tools))
        }
        None => text::seconds(period.seconds()),
    }
}

/// Returns a remark if the node's clock is wrong by a second or more, which misleads people who compare logs.
fn clock_difference(period: &Period) -> Option<String> {
    let ahead = period.host_wall_ahead()?;
    let seconds = ahead.unsigned_abs() as f64 / SECOND_NS as f64;
    (seconds >= 1.0).then(|| {
        let by = text::seconds(seconds);
        format!("The node's clock is {by} {} the recorder's.", if ahead > 0 { "ahead of" } else { "behind" })
    })
}

/// Returns the node name, or a substitute for a VM without a name.
pub fn node_title(period: &Period) -> &str {
    let named = period.incarnation.as_ref().map(|inc| inc.node.as_str()).filter(|node| !node.is_empty());
    let imported = period.facts.get(facts::IMPORTED_FROM).filter(|from| *from != facts::CRASH_DUMP);
    let imported = imported.map(|_| "imported text");
    named.or(period.facts.get(facts::NODE_NAME)).or(imported).unwrap_or("VM without a name")
}
