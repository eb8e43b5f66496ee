//! BF006: a flag or a value that is accepted but ignored.

use std::collections::BTreeSet;

use crate::lint::case::{Case, FindingText, noun, releases_text, short};
use crate::lint::hazards::hazards;
use crate::lint::node::InitFlag;
use crate::lint::outcome::{Outcome, Presence};
use crate::lint::{Code, Finding, Level, Rule};
use crate::takes::SilentChange;

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF006"),
    name: "without-effect",
    description: "A flag that is accepted but ignored.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known().filter(|judged| !judged.lacks_value()) {
        let Some(entry) = judged.setting.entry else { continue };
        let releases = judged.releases(is_ignored);
        let Some(first) = judged.outcomes.iter().find(|outcome| is_ignored(outcome)) else { continue };
        let (written, noun) = (case.quoted(judged.setting), noun(judged.setting));
        let does = entry.effect();
        let all = releases_text(&releases);
        let (reason, whole) = match (&first.ignored_since, &first.presence) {
            (Some(since), _) => {
                (format!("Since OTP {since}, the {noun} has no effect. In earlier releases, it {does}"), true)
            }
            (None, Presence::NotYet(since)) => {
                (format!("It was added in {since}; earlier releases ignore it. It {does}"), true)
            }
            (None, Presence::Gone(gone)) => {
                (format!("It was removed in {gone}. In earlier releases, it {does}"), true)
            }
            (None, _) => {
                let takes =
                    entry.accepted_in(first.release).map(|takes| takes.in_words()).unwrap_or_default();
                (format!("Accepted: {takes}. Any other value is replaced by the default."), false)
            }
        };
        let texts = FindingText {
            message: format!("{written} has no effect in {all}"),
            reason,
            remedy: if whole {
                format!("Remove the {noun}.")
            } else {
                format!("Write a valid value, or remove the {noun}.")
            },
        };
        // The flag must stay if any release uses it.
        let useless = judged.outcomes.iter().all(|outcome| is_ignored(outcome) || !outcome.starts());
        let mut finding = case.about(&RULE, Level::Warning, judged.setting, releases, texts);
        if whole && useless {
            finding.fix = case.node.removal(judged.setting, true);
        }
        found.push(finding);
    }
    parameters(case, found);
}

/// Reports parameters that their application reads only in a mode that is not enabled.
fn parameters(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    let words = |flag: &InitFlag| case.node.parts.get(flag.part).map_or(&[][..], |part| &part.fragment.words);
    let is =
        |flag: &InitFlag, at: usize, text: &str| words(flag).get(at).is_some_and(|word| word.text == text);
    for known in &hazards().parameter {
        let gives = |flag: &&InitFlag| {
            is(flag, flag.at, "-kernel") && flag.values.iter().any(|at| is(flag, *at, &known.unless))
        };
        let scope = |flag: &InitFlag| case.node.parts.get(flag.part).map(|part| part.scope);
        let given: BTreeSet<Option<usize>> = case.node.arguments.iter().filter(gives).map(scope).collect();
        for flag in case.node.arguments.iter().filter(|flag| is(flag, flag.at, &known.application)) {
            let Some(part) = case.node.parts.get(flag.part) else { continue };
            if given.contains(&Some(part.scope)) || case.node.is_opaque(part.scope) {
                continue;
            }
            for pair in flag.values.chunks_exact(2) {
                let [Some(key), Some(value)] = [pair.first(), pair.last()].map(|at| words(flag).get(*at?))
                else {
                    continue;
                };
                if key.dynamic || !known.names.contains(&key.text) {
                    continue;
                }
                let name = format!("{} {}", known.application, key.text);
                let texts = FindingText {
                    message: format!("`{name} {}` {}", short(&value.text), known.says),
                    reason: known.why.clone(),
                    remedy: known.remedy.clone(),
                };
                let span = key.span.start..value.span.end;
                found.push(part.finding(&RULE, Level::Warning, span, name, texts));
            }
        }
    }
}

/// Whether a release accepts the setting but ignores it.
pub(in crate::lint) fn is_ignored(outcome: &Outcome) -> bool {
    outcome.starts()
        && (outcome.ignored_since.is_some() || outcome.altered().contains(&SilentChange::Ignored))
}
