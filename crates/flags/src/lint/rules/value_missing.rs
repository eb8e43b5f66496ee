//! BF005: a flag without its value, which takes the next word as its value.

use crate::OtpVersion;
use crate::entry::Argument;
use crate::lint::case::{Case, FindingText, JudgedSetting, releases_text, short};
use crate::lint::node::Value;
use crate::lint::outcome::{Presence, is_taken_for_flag};
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::{Change, Place};
use crate::takes::{ValueQuery, Verdict};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF005"),
    name: "value-missing",
    description: "A flag without a value, which takes the next flag as its value.",
    level: Level::Error,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known().filter(|judged| judged.lacks_value()) {
        let setting = judged.setting;
        let Some(entry) = setting.entry else { continue };
        let (mut stops, mut starts) = (Vec::new(), Vec::new());
        for outcome in judged.outcomes.iter() {
            // Another rule reports flags that the release does not have.
            if !matches!(outcome.presence, Presence::There | Presence::From(_)) {
                continue;
            }
            if is_refused(judged, outcome.release) {
                stops.push(outcome.release);
            } else {
                starts.push(outcome.release);
            }
        }
        let spelling = setting.name;
        let describe = entry
            .accepted_for(setting.letter, &OtpVersion::from(*case.node.target.releases.last().unwrap_or(&0)))
            .map(|takes| takes.describe())
            .unwrap_or_default();
        let glued = entry.argument == Some(Argument::Glued);
        let what = match &setting.value {
            Value::Text(eaten) => format!("it has no value and takes `{}` as its value", short(eaten)),
            _ if glued => "its value must be in the same word".to_owned(),
            _ => "it has no value".to_owned(),
        };
        let remedy = if glued {
            format!("Write it without a space: `{spelling}N`, where N is {describe}.")
        } else {
            format!("Add a value: {describe}.")
        };
        for (level, releases) in [(Level::Error, stops), (Level::Warning, starts)] {
            if releases.is_empty() {
                continue;
            }
            let all = releases_text(&releases);
            let (message, reason) = if level == Level::Error {
                (
                    format!("{all} will not start with `{spelling}`: {what}"),
                    "The launcher takes the next word as the value, even if it is a flag, and stops if no word follows.",
                )
            } else {
                (
                    format!("`{spelling}` gets an unintended value in {all}: {what}"),
                    "The launcher takes the next word as the value, even if it is a flag, and any value is accepted.",
                )
            };
            let texts = FindingText { message, reason: reason.to_owned(), remedy: remedy.clone() };
            let mut finding = case.about(&RULE, level, setting, releases, texts);
            if glued {
                finding.fix = joined(case, judged);
            }
            found.push(finding);
        }
    }
}

/// Whether a release rejects the word that it takes as the value: the next word, or the word that the launcher adds at the end.
fn is_refused(judged: &JudgedSetting<'_, '_>, release: u32) -> bool {
    const LAUNCHERS_OWN: &str = "--";
    let value = judged.setting.known_value().unwrap_or(LAUNCHERS_OWN);
    let otp = OtpVersion::from(release);
    let question =
        ValueQuery { value: Some(value), otp: &otp, allocator: judged.setting.letter, host_cpus: None };
    is_taken_for_flag(judged.setting.name, value, release)
        || judged.setting.entry.is_some_and(|entry| {
            matches!(entry.judge(&question), Verdict::Refused { .. } | Verdict::Fatal { .. })
        })
}

/// Creates a fix that joins the flag with the value after it.
fn joined(case: &Case<'_, '_>, judged: &JudgedSetting<'_, '_>) -> Option<crate::lint::Fix> {
    let setting = judged.setting;
    let part = case.node.part_of(setting);
    if part.fragment.place == Place::RunningNode {
        return None;
    }
    let next = part.fragment.words.get(setting.words.end)?;
    let entry = setting.entry?;
    let taken =
        matches!(entry.check(Some(&next.text), *case.node.target.releases.last()?), Verdict::Accepted { .. });
    if next.dynamic || !taken {
        return None;
    }
    let text = format!("{}{}", setting.name, next.text);
    let what = format!("Write `{text}`");
    let changes = [
        Change::Replace { word: setting.words.start, text },
        Change::Remove { words: setting.words.end..setting.words.end + 1 },
    ];
    case.node.fix(part, what, false, &changes)
}
