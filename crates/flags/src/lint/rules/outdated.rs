//! BF007: a setting that is given for a purpose that it no longer has.

use crate::OtpVersion;
use crate::lint::case::{Case, FindingText, JudgedSetting, takes_effect};
use crate::lint::hazards::{Outdated, hazards};
use crate::lint::outcome::Outcome;
use crate::lint::{Code, Finding, Level, Rule};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF007"),
    name: "outdated",
    description: "A setting whose usual purpose no longer exists.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known().filter(|judged| judged.overridden.is_none()) {
        let Some(outdated) = of(judged) else { continue };
        let releases = releases(judged, outdated);
        if releases.is_empty() {
            continue;
        }
        let texts = FindingText {
            message: format!("{} {}", case.quoted(judged.setting), outdated.says),
            reason: outdated.why.clone(),
            remedy: outdated.remedy.clone(),
        };
        let mut finding = case.about(&RULE, Level::Warning, judged.setting, releases, texts);
        finding.fix = case.node.removal(judged.setting, false);
        found.push(finding);
    }
}

/// Whether this rule reports that the setting no longer has its purpose. Ignores whether the setting is overridden.
pub(in crate::lint) fn is_reported(judged: &JudgedSetting<'_, '_>) -> bool {
    of(judged).is_some_and(|outdated| !outdated.deprecated && !releases(judged, outdated).is_empty())
}

fn releases(judged: &JudgedSetting<'_, '_>, outdated: &Outdated) -> Vec<u32> {
    judged.releases(|outcome| {
        takes_effect(outcome)
            && OtpVersion::from(outcome.release) >= outdated.since
            && !is_default(judged, outcome)
    })
}

fn of(judged: &JudgedSetting<'_, '_>) -> Option<&'static Outdated> {
    let value = judged.setting.known_value();
    let is_about =
        |outdated: &&Outdated| !outdated.except.iter().any(|except| Some(except.as_str()) == value);
    hazards().outdated.iter().filter(is_about).find(|outdated| outdated.flag == judged.setting.id())
}

/// Whether the value equals the default and is therefore harmless.
fn is_default(judged: &JudgedSetting<'_, '_>, outcome: &Outcome) -> bool {
    let default = judged.setting.entry.and_then(|entry| entry.default_value_in(outcome.release));
    default.is_some() && judged.setting.known_value() == default
}
