//! BF010: two flags that together prevent the start of the VM.

use crate::lint::case::{Case, FindingText, JudgedSetting, takes_effect};
use crate::lint::hazards::{Conflict, ConflictKind, hazards};
use crate::lint::rules::cancelled::together;
use crate::lint::{Code, Finding, Level, Rule};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF010"),
    name: "refused-together",
    description: "Two flags that are valid separately, but together prevent the start of the VM.",
    level: Level::Error,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known().filter(|judged| judged.overridden.is_none()) {
        for (conflict, other) in &judged.conflicts {
            if matches!(conflict.makes, ConflictKind::Refused | ConflictKind::Fatal) {
                found.push(together(case, &RULE, Level::Error, judged, conflict, other));
            }
        }
        found.extend(
            hazards().conflicts.iter().filter_map(|conflict| against_default(case, judged, conflict)),
        );
    }
}

/// Returns a finding if a setting conflicts with the default of another setting that is not given.
fn against_default(
    case: &Case<'_, '_>,
    judged: &JudgedSetting<'_, '_>,
    conflict: &Conflict,
) -> Option<Finding> {
    let setting = judged.setting;
    let default = conflict.its_default.as_deref().filter(|_| conflict.flag == setting.id())?;
    let scope = case.node.part_of(setting).scope;
    let absent = !case.node.is_given(scope, &conflict.other) && !case.node.is_opaque(scope);
    if !absent || !conflict.is_about(Some(setting.known_value()?), Some(default)) {
        return None;
    }
    let other = format!("`{} {default}`, the default,", conflict.other);
    let texts = FindingText {
        message: format!("{} {}", case.quoted(setting), conflict.says.replace("{other}", &other)),
        reason: conflict.why.clone(),
        remedy: conflict.remedy.replace("{other}", &conflict.other),
    };
    Some(case.about(&RULE, Level::Error, setting, judged.releases(takes_effect), texts))
}
