//! BF003: a value that the emulator refuses.

use crate::OtpVersion;
use crate::entry::Entry;
use crate::lint::case::{Case, Judged, Says, releases_text, short, why};
use crate::lint::hazards::hazards;
use crate::lint::node::{Value, Via};
use crate::lint::outcome::{Outcome, Presence};
use crate::lint::rules::unknown_flag::{distance, minus};
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::Place;
use crate::takes::{Takes, Verdict};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF003"),
    name: "refused-value",
    finds: "A value that the flag does not take.",
    level: Level::Error,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known().filter(|judged| !judged.lacks_value()) {
        found.extend(greedy(case, judged));
        let Some(entry) = judged.setting.entry else { continue };
        // Whoever reads a parameter decides what becomes of a wrong one. Of one that came with a patch level it is not known whether
        // anybody does.
        let is_vital = hazards().vital.contains(&entry.id);
        let stops = |outcome: &Outcome| {
            judged.setting.via != Via::Kernel || is_vital && outcome.presence == Presence::There
        };
        for (level, releases) in [
            (Level::Error, judged.releases(|outcome| is_refused(outcome) && stops(outcome))),
            (Level::Warning, judged.releases(|outcome| is_refused(outcome) && !stops(outcome))),
        ] {
            let Some(newest) = releases.last() else { continue };
            let takes = entry.takes_for(judged.setting.letter, &OtpVersion::from(*newest));
            let (written, all) = (case.quoted(judged.setting), releases_text(&releases));
            let message = match level {
                Level::Error => format!("{written} is refused by {all}"),
                _ => format!("{written} is no value that {all} uses"),
            };
            let reason = format!("{}.", capital(&why(judged, &releases)));
            let says = Says { message, reason, remedy: remedy(entry, judged, takes) };
            let mut finding = case.about(&RULE, level, judged.setting, releases, says);
            if removable(&entry.id) {
                finding.fix = case.node.removal(judged.setting, true);
            }
            found.push(finding);
        }
    }
}

/// A word behind a flag without a value, which the launcher takes for a wrong one.
fn greedy(case: &Case<'_, '_>, judged: &Judged<'_, '_>) -> Option<Finding> {
    let setting = judged.setting;
    let greedy = hazards().greedy.iter().find(|greedy| greedy.flag == setting.id())?;
    let part = case.node.part_of(setting);
    let word = part.fragment.words.get(setting.words.end)?;
    let is_certain = !word.dynamic && word.conditional == setting.conditional;
    let is_fine = word.text.starts_with(['-', '+']) || word.text.starts_with(&greedy.except);
    if setting.value != Value::Absent || part.fragment.place == Place::LiveNode || !is_certain || is_fine {
        return None;
    }
    let releases =
        judged.releases(|outcome| outcome.starts() && OtpVersion::from(outcome.release) < greedy.until);
    let says = Says {
        message: format!(
            "{} is refused by {}, with `{}` behind it",
            case.quoted(setting),
            releases_text(&releases),
            short(&word.text)
        ),
        reason: format!(
            "Their launcher takes a word that is no flag for its value; later ones, from OTP {} on, do not.",
            greedy.until
        ),
        remedy: "Remove the word, or put a flag between the two.".to_owned(),
    };
    let mut finding = case.about(&RULE, Level::Error, setting, releases, says);
    finding.related.push((part.file, word.span.clone(), "is taken for its value".to_owned()));
    Some(finding)
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
