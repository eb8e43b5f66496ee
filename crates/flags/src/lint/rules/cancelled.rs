//! BF009: a flag from which another flag takes the effect.

use crate::OtpVersion;
use crate::lint::case::{Case, Judged, Says, works};
use crate::lint::hazards::{Beside, Makes};
use crate::lint::node::Setting;
use crate::lint::{Code, Finding, Level, Rule};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF009"),
    name: "cancelled",
    finds: "A flag from which another one takes the effect, or which takes it from another.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known().filter(|judged| judged.overridden.is_none()) {
        if let Some(switch) = judged.disabled {
            disabled(case, judged, switch, found);
            continue;
        }
        for (beside, other) in judged.besides.iter().filter(|(beside, _)| beside.makes == Makes::Cancelled) {
            let mut finding = together(case, &RULE, Level::Warning, judged, beside, other);
            finding.fix =
                case.node.removal(judged.setting, beside.removable && judged.setting.part == other.part);
            found.push(finding);
        }
    }
}

fn disabled(case: &Case<'_, '_>, judged: &Judged<'_, '_>, switch: &Setting<'_>, found: &mut Vec<Finding>) {
    let off = case.quoted(switch);
    let says = Says {
        message: format!("{} has no effect: {off} switches the allocator off", case.quoted(judged.setting)),
        reason: "An allocator that is switched off takes its memory from malloc, and its settings do not count (manual of erts_alloc)."
            .to_owned(),
        remedy: format!("Remove it; or remove {off}, if the allocator is to be used."),
    };
    let mut finding = case.about(&RULE, Level::Warning, judged.setting, judged.releases(works), says);
    finding.related.push(case.related(switch, "switches it off"));
    finding.fix = case.node.removal(judged.setting, false);
    found.push(finding);
}

/// A finding about two settings that do not go together.
pub(in crate::lint) fn together(
    case: &Case<'_, '_>,
    rule: &Rule,
    level: Level,
    judged: &Judged<'_, '_>,
    beside: &Beside,
    other: &Setting<'_>,
) -> Finding {
    let theirs = &case.node.part_of(other).releases;
    let has_other = |release: u32| other.entry.is_none_or(|entry| entry.exists_in(release));
    let releases = judged.releases(|outcome| {
        works(outcome)
            && theirs.contains(&outcome.release)
            && has_other(outcome.release)
            && beside.from.as_ref().is_none_or(|from| OtpVersion::from(outcome.release) >= *from)
    });
    let quoted = case.quoted(other);
    let says = Says {
        message: format!("{} {}", case.quoted(judged.setting), beside.says.replace("{other}", &quoted)),
        reason: beside.why.clone(),
        remedy: beside.remedy.replace("{other}", &quoted),
    };
    let mut finding = case.about(rule, level, judged.setting, releases, says);
    finding.related.push(case.related(other, "stands against it"));
    finding
}
