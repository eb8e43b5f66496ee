//! BF029: a port table whose size follows a high limit of open files.

use crate::lint::case::{Case, Says};
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::Place;

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF029"),
    name: "port-table-by-ulimit",
    finds: "A high limit of open files without +Q: the port table takes its size from it.",
    level: Level::Note,
};

/// Up to here the table has its usual size.
const USUAL: u64 = 65_536;
/// Bytes that a slot of the table takes.
const SLOT_BYTES: u64 = 16;
/// The largest table.
const MOST: u64 = 134_217_727;

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    let mut told: Vec<(usize, Option<usize>)> = Vec::new();
    for part in &case.node.parts {
        let key = (part.file, part.site.container);
        let Some((files, span)) = &part.site.open_files else { continue };
        if *files <= USUAL || told.contains(&key) || part.fragment.place == Place::FileNames {
            continue;
        }
        let given = ["+Q", "ERL_MAX_PORTS"].iter().any(|id| case.node.is_given(part.scope, id));
        if given || case.node.is_opaque(part.scope) {
            continue;
        }
        told.push(key);
        let slots = (*files).min(MOST).next_power_of_two();
        let says = Says {
            message: format!(
                "No +Q is given here, so the port table follows the limit of open files: {slots} slots"
            ),
            reason: format!(
                "The default of +Q is that limit where it is above {USUAL}; {slots} slots take about {} MB, used or not.",
                slots * SLOT_BYTES / 1_000_000
            ),
            remedy: "Set +Q to what is needed, or a lower limit of open files.".to_owned(),
        };
        let releases = case.node.target.releases.clone();
        found.push(Finding { releases, ..part.finding(&RULE, Level::Note, span.clone(), "+Q", says) });
    }
}
