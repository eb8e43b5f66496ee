//! BF003: a value that the emulator rejects.

use crate::OtpVersion;
use crate::entry::Entry;
use crate::lint::case::{
    Case, FindingText, JudgedSetting, noun, releases_and_verb, releases_text, short, why,
};
use crate::lint::hazards::hazards;
use crate::lint::node::{SettingKind, Value};
use crate::lint::outcome::{Outcome, Presence};
use crate::lint::rules::unknown_flag::{distance, minus};
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::Place;
use crate::takes::{AcceptedValues, Verdict};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF003"),
    name: "refused-value",
    description: "A value that the flag does not accept.",
    level: Level::Error,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known().filter(|judged| !judged.lacks_value()) {
        found.extend(greedy(case, judged));
        let Some(entry) = judged.setting.entry else { continue };
        // The effect of an invalid value depends on the code that reads the parameter. If the parameter was added in a patch level, it is
        // unknown whether it is read.
        let is_vital = hazards().vital.contains(&entry.id);
        let stops = |outcome: &Outcome| {
            judged.setting.kind != SettingKind::Kernel || is_vital && outcome.presence == Presence::There
        };
        for (level, releases) in [
            (Level::Error, judged.releases(|outcome| is_refused(outcome) && stops(outcome))),
            (Level::Warning, judged.releases(|outcome| is_refused(outcome) && !stops(outcome))),
        ] {
            let Some(newest) = releases.last() else { continue };
            let takes = entry.accepted_for(judged.setting.letter, &OtpVersion::from(*newest));
            let written = case.quoted(judged.setting);
            let message = match level {
                Level::Error => format!("{} {written}", releases_and_verb(&releases, "reject")),
                _ => format!("{written} is not valid in {}", releases_text(&releases)),
            };
            let reason = format!("{}.", capital(&why(judged, &releases)));
            let texts = FindingText { message, reason, remedy: remedy(entry, judged, takes) };
            let mut finding = case.about(&RULE, level, judged.setting, releases, texts);
            if removable(&entry.id) {
                finding.fix = case.node.removal(judged.setting, true);
            }
            found.push(finding);
        }
    }
}

/// Reports a word after a flag without a value, if the launcher parses that word as an invalid value.
fn greedy(case: &Case<'_, '_>, judged: &JudgedSetting<'_, '_>) -> Option<Finding> {
    let setting = judged.setting;
    let greedy = hazards().greedy.iter().find(|greedy| greedy.flag == setting.id())?;
    let part = case.node.part_of(setting);
    let word = part.fragment.words.get(setting.words.end)?;
    let is_certain = !word.dynamic && word.conditional == setting.conditional;
    let is_fine = word.text.starts_with(['-', '+']) || word.text.starts_with(&greedy.except);
    if setting.value != Value::Absent || part.fragment.place == Place::RunningNode || !is_certain || is_fine {
        return None;
    }
    let releases =
        judged.releases(|outcome| outcome.starts() && OtpVersion::from(outcome.release) < greedy.until);
    let texts = FindingText {
        message: format!(
            "{} {} followed by `{}`",
            releases_and_verb(&releases, "reject"),
            case.quoted(setting),
            short(&word.text)
        ),
        reason: format!(
            "Before OTP {}, the launcher parses a word that is not a flag as the value.",
            greedy.until
        ),
        remedy: "Remove the word, or put a flag between the two.".to_owned(),
    };
    let mut finding = case.about(&RULE, Level::Error, setting, releases, texts);
    finding.related.push((part.file, word.span.clone(), "parsed as the value".to_owned()));
    Some(finding)
}

fn is_refused(outcome: &Outcome) -> bool {
    matches!(outcome.verdict, Verdict::Refused { .. })
        && matches!(outcome.presence, Presence::There | Presence::From(_))
}

/// Whether a VM that starts with the flag behaves the same without it.
fn removable(id: &str) -> bool {
    hazards().trap.iter().any(|trap| trap.flag == id && trap.removable)
}

fn remedy(entry: &Entry, judged: &JudgedSetting<'_, '_>, takes: Option<&AcceptedValues>) -> String {
    if let Some(minus) = minus(judged.setting.name) {
        return format!("If you mean `{minus}`, write it with a minus.");
    }
    let Some(takes) = takes.filter(|_| !removable(&entry.id)) else {
        return format!("Remove the {}.", noun(judged.setting));
    };
    let text = judged.setting.known_value().unwrap_or_default();
    let near = takes
        .words
        .iter()
        .map(|word| (distance(text, word), word))
        .filter(|(distance, word)| *distance <= 2 && word.len() > 3)
        .min();
    match near {
        Some((_, word)) => format!("Write a valid value; the closest one is `{word}`."),
        None => "Use one of the accepted values.".to_owned(),
    }
}

/// Capitalises the first letter.
pub(in crate::lint) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}
