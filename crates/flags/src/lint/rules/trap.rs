//! BF015: a value that works and is a trap.

use crate::OtpVersion;
use crate::lint::case::{Case, Judged, Says, is_prevented, releases_text, works};
use crate::lint::hazards::{HazardLevel, Makes, Trap, hazards};
use crate::lint::node::Value;
use crate::lint::outcome::Outcome;
use crate::lint::rules::cancelled::together;
use crate::lint::{Code, Finding, Level, Rule};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF015"),
    name: "trap",
    finds: "A value, or two that stand together, with which the VM starts and which has an effect that few expect.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known().filter(|judged| !judged.lacks_value()) {
        if judged.overridden.is_some() {
            continue;
        }
        for (beside, other) in judged.besides.iter().filter(|(beside, _)| beside.makes == Makes::Risk) {
            found.push(together(case, &RULE, Level::Warning, judged, beside, other));
        }
        if judged.is_dead() {
            continue;
        }
        for trap in hazards().trap.iter().filter(|trap| trap.flag == judged.setting.id()) {
            found.extend(alone(case, judged, trap));
        }
    }
}

fn alone(case: &Case<'_, '_>, judged: &Judged<'_, '_>, trap: &Trap) -> Option<Finding> {
    let setting = judged.setting;
    let known = setting.value != Value::Unknown;
    if !(known || trap.is_every()) || !trap.is_about(setting.known_value(), setting.letter) {
        return None;
    }
    let holds = |outcome: &Outcome| works(outcome) && trap.holds_in(&OtpVersion::from(outcome.release));
    let releases = judged.releases(holds);
    if releases.is_empty() || is_prevented(case.node, setting, &trap.unless) {
        return None;
    }
    let bound = trap.from.is_some() || trap.until.is_some();
    let within = if bound { format!(", in {}", releases_text(&releases)) } else { String::new() };
    let says = Says {
        message: format!("{} {}{within}", case.quoted(setting), trap.says),
        reason: trap.why.clone(),
        remedy: trap.remedy.clone(),
    };
    let level = match trap.level {
        HazardLevel::Note => Level::Note,
        HazardLevel::Warning => Level::Warning,
    };
    let mut finding = case.about(&RULE, level, setting, releases, says);
    if trap.removable {
        finding.fix = case.node.removal(setting, true);
    }
    Some(finding)
}
