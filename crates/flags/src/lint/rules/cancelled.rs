//! BF009: a flag whose effect another flag cancels.

use crate::OtpVersion;
use crate::lint::case::{Case, FindingText, JudgedSetting, takes_effect};
use crate::lint::hazards::{Conflict, ConflictKind};
use crate::lint::node::Setting;
use crate::lint::{Code, Finding, Level, Rule};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF009"),
    name: "cancelled",
    description: "A flag that cancels the effect of another flag, or vice versa.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known().filter(|judged| judged.overridden.is_none()) {
        if let Some(switch) = judged.disabled {
            disabled(case, judged, switch, found);
            continue;
        }
        for (conflict, other) in
            judged.conflicts.iter().filter(|(conflict, _)| conflict.makes == ConflictKind::Cancelled)
        {
            let mut finding = together(case, &RULE, Level::Warning, judged, conflict, other);
            finding.fix =
                case.node.removal(judged.setting, conflict.removable && judged.setting.part == other.part);
            found.push(finding);
        }
    }
}

fn disabled(
    case: &Case<'_, '_>,
    judged: &JudgedSetting<'_, '_>,
    switch: &Setting<'_>,
    found: &mut Vec<Finding>,
) {
    let off = case.quoted(switch);
    let texts = FindingText {
        message: format!("{} has no effect: {off} disables the allocator", case.quoted(judged.setting)),
        reason: "A disabled allocator uses malloc, and its settings have no effect (manual of erts_alloc)."
            .to_owned(),
        remedy: format!("Remove the flag, or remove {off} to use the allocator."),
    };
    let mut finding = case.about(&RULE, Level::Warning, judged.setting, judged.releases(takes_effect), texts);
    finding.related.push(case.related(switch, "disables it"));
    finding.fix = case.node.removal(judged.setting, false);
    found.push(finding);
}

/// Creates a finding about two conflicting settings.
pub(in crate::lint) fn together(
    case: &Case<'_, '_>,
    rule: &Rule,
    level: Level,
    judged: &JudgedSetting<'_, '_>,
    conflict: &Conflict,
    other: &Setting<'_>,
) -> Finding {
    let theirs = &case.node.part_of(other).releases;
    let has_other = |release: u32| other.entry.is_none_or(|entry| entry.exists_in(release));
    let releases = judged.releases(|outcome| {
        takes_effect(outcome)
            && theirs.contains(&outcome.release)
            && has_other(outcome.release)
            && conflict.from.as_ref().is_none_or(|from| OtpVersion::from(outcome.release) >= *from)
    });
    let quoted = case.quoted(other);
    let texts = FindingText {
        message: format!("{} {}", case.quoted(judged.setting), conflict.says.replace("{other}", &quoted)),
        reason: conflict.why.clone(),
        remedy: conflict.remedy.replace("{other}", &quoted),
    };
    let mut finding = case.about(rule, level, judged.setting, releases, texts);
    finding.related.push(case.related(other, "conflicts with it"));
    finding
}
