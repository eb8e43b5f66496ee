//! BF029: a port table whose size is determined by a high limit of open files.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use crate::lint::case::{Case, FindingText};
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::Place;

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF029"),
    name: "port-table-by-ulimit",
    description: "A high limit of open files without +Q: it determines the size of the port table.",
    level: Level::Note,
};

/// The default size of the table. If the limit of open files is higher, the limit is the default size.
const DEFAULT_SLOTS: u64 = 65_536;
/// Bytes per slot of the port or process table. With +Q 16777216, erlang:memory(system) grew by 12.0 bytes per slot on OTP 23 and 25, and
/// by 16.0 on OTP 27 and 29. OTP 26 was not measured.
const SLOT_BYTES: [(RangeInclusive<u32>, u64, &str); 2] =
    [(0..=25, 12, "up to OTP 25"), (26..=u32::MAX, 16, "from OTP 26 on")];
/// Maximum size of the table.
const MAX_SLOTS: u64 = 134_217_727;

/// Formats the memory of a process or port table: `12 MB up to OTP 25, 16 MB from OTP 26 on`.
pub(in crate::lint) fn memory(slots: u64, releases: &[u32]) -> String {
    let sizes =
        SLOT_BYTES.iter().filter(|(these, ..)| releases.iter().any(|release| these.contains(release)));
    let sizes: Vec<String> = sizes
        .map(|(_, bytes, when)| format!("{} MB {when}", slots.saturating_mul(*bytes) / 1_000_000))
        .collect();
    sizes.join(", ")
}

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    let mut reported: BTreeSet<(usize, Option<usize>)> = BTreeSet::new();
    let mut names_rabbitmq: BTreeMap<usize, bool> = BTreeMap::new();
    for part in &case.node.parts {
        let key = (part.file, part.site.container);
        let Some((files, span)) = &part.site.open_files else { continue };
        if *files <= DEFAULT_SLOTS || reported.contains(&key) || part.fragment.place == Place::FileNames {
            continue;
        }
        // rabbitmq-env sets ERL_MAX_PORTS to 65536 if the variable is not set.
        let mut is_named = || {
            *names_rabbitmq.entry(part.file).or_insert_with(|| {
                let text = part.fragment.file_text();
                text.contains("rabbitmq") || text.contains("RabbitMQ")
            })
        };
        let of_rabbitmq = case.node.is_of_product(part.scope) || part.site.container.is_none() && is_named();
        let given =
            of_rabbitmq || ["+Q", "ERL_MAX_PORTS"].iter().any(|id| case.node.is_given(part.scope, id));
        if given || case.node.is_opaque(part.scope) {
            continue;
        }
        reported.insert(key);
        let slots = (*files).min(MAX_SLOTS).next_power_of_two();
        let releases = case.node.target.releases.clone();
        let texts = FindingText {
            message: format!(
                "No +Q is given, so the limit of open files sets the size of the port table: {slots} slots"
            ),
            reason: format!(
                "+Q defaults to that limit if it is above {DEFAULT_SLOTS}; {slots} slots take about {}, even if unused.",
                memory(slots, &releases)
            ),
            remedy: "Set +Q to the number of ports needed, or lower the limit of open files.".to_owned(),
        };
        found.push(Finding { releases, ..part.finding(&RULE, Level::Note, span.clone(), "+Q", texts) });
    }
}
