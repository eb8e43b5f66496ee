//! BF010: two flags with which the VM does not start.

use crate::lint::case::{Case, Judged, Says, works};
use crate::lint::hazards::{Beside, Makes, hazards};
use crate::lint::rules::cancelled::together;
use crate::lint::{Code, Finding, Level, Rule};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF010"),
    name: "refused-together",
    finds: "Two flags that are taken one by one, and stop the VM together.",
    level: Level::Error,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known().filter(|judged| judged.overridden.is_none()) {
        for (beside, other) in &judged.besides {
            if matches!(beside.makes, Makes::Refused | Makes::Fatal) {
                found.push(together(case, &RULE, Level::Error, judged, beside, other));
            }
        }
        found.extend(hazards().beside.iter().filter_map(|beside| against_default(case, judged, beside)));
    }
}

/// A flag that does not go with the default of another one, which is not given.
fn against_default(case: &Case<'_, '_>, judged: &Judged<'_, '_>, beside: &Beside) -> Option<Finding> {
    let setting = judged.setting;
    let default = beside.its_default.as_deref().filter(|_| beside.flag == setting.id())?;
    let scope = case.node.part_of(setting).scope;
    let absent = !case.node.is_given(scope, &beside.other) && !case.node.is_opaque(scope);
    if !absent || !beside.is_about(Some(setting.known_value()?), Some(default)) {
        return None;
    }
    let other = format!("`{} {default}`, the default,", beside.other);
    let says = Says {
        message: format!("{} {}", case.quoted(setting), beside.says.replace("{other}", &other)),
        reason: beside.why.clone(),
        remedy: beside.remedy.replace("{other}", &beside.other),
    };
    Some(case.about(&RULE, Level::Error, setting, judged.releases(works), says))
}
