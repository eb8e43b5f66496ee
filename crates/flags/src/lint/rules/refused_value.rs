//! BF003: a value that the emulator refuses.

use crate::OtpVersion;
use crate::entry::Entry;
use crate::lint::case::{Case, Judged, Says, releases_text, why};
use crate::lint::hazards::hazards;
use crate::lint::node::Via;
use crate::lint::outcome::{Outcome, Presence};
use crate::lint::rules::unknown_flag::{distance, minus};
use crate::lint::{Code, Finding, Level, Rule};
use crate::takes::{Takes, Verdict};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF003"),
    name: "refused-value",
    finds: "A value that the flag does not take.",
    level: Level::Error,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known().filter(|judged| !judged.lacks_value()) {
        let Some(entry) = judged.setting.entry else { continue };
        let releases = judged.releases(is_refused);
        let Some(newest) = releases.last() else { continue };
        let takes = entry.takes_for(judged.setting.letter, &OtpVersion::from(*newest));
        let parameter = judged.setting.via == Via::Kernel && !hazards().vital.contains(&entry.id);
        let message = if parameter {
            format!("{} is no value that {} uses", case.quoted(judged.setting), releases_text(&releases))
        } else {
            format!("{} is refused by {}", case.quoted(judged.setting), releases_text(&releases))
        };
        let reason = format!("{}.", capital(&why(judged, &releases)));
        let says = Says { message, reason, remedy: remedy(entry, judged, takes) };
        // Whoever reads a parameter decides what becomes of a wrong one.
        let level = if parameter { Level::Warning } else { Level::Error };
        let mut finding = case.about(&RULE, level, judged.setting, releases, says);
        if removable(&entry.id) {
            finding.fix = case.node.removal(judged.setting, true);
        }
        found.push(finding);
    }
}

fn is_refused(outcome: &Outcome) -> bool {
    matches!(outcome.verdict, Verdict::Refused { .. })
        && matches!(outcome.presence, Presence::There | Presence::From(_))
}

/// Whether a VM that boots with the flag does the same without it.
fn removable(id: &str) -> bool {
    hazards().trap.iter().any(|trap| trap.flag == id && trap.removable)
}

fn remedy(entry: &Entry, judged: &Judged<'_, '_>, takes: Option<&Takes>) -> String {
    if let Some(minus) = minus(judged.setting.name) {
        return format!("If `{minus}` is meant, write it with a minus.");
    }
    if removable(&entry.id) {
        return "Remove it.".to_owned();
    }
    let Some(takes) = takes else { return "Remove it.".to_owned() };
    let text = judged.setting.known_value().unwrap_or_default();
    let near = takes
        .words
        .iter()
        .map(|word| (distance(text, word), word))
        .filter(|(distance, word)| *distance <= 2 && word.len() > 3)
        .min();
    match near {
        Some((_, word)) => {
            format!("`{word}` is the nearest that is taken; all of them: {}.", takes.describe())
        }
        None => format!("It takes: {}.", takes.describe()),
    }
}

/// With a capital at the beginning, unless that is code.
pub(in crate::lint) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}
