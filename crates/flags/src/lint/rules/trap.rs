//! BF015: a value that works, but has an effect that few people expect.

use std::ops::Range;

use crate::OtpVersion;
use crate::lint::case::{Case, FindingText, JudgedSetting, is_prevented, releases_text, takes_effect};
use crate::lint::comment::comments;
use crate::lint::hazards::{ConflictKind, HazardLevel, Trap, hazards};
use crate::lint::node::{Setting, Value};
use crate::lint::outcome::Outcome;
use crate::lint::rules::cancelled::together;
use crate::lint::rules::port_table::memory;
use crate::lint::{Code, Finding, Level, Rule};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF015"),
    name: "trap",
    description: "A value, or a pair of values, that the VM accepts but that has an unexpected effect.",
    level: Level::Warning,
};

/// Maximum size of files that are searched for other paths. Each setting searches the file again.
const MAX_SEARCHED_BYTES: usize = 256 << 10;

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known().filter(|judged| !judged.lacks_value()) {
        if judged.overridden.is_some() {
            continue;
        }
        for (conflict, other) in
            judged.conflicts.iter().filter(|(conflict, _)| conflict.makes == ConflictKind::Risk)
        {
            found.push(together(case, &RULE, Level::Warning, judged, conflict, other));
        }
        if judged.is_without_effect() {
            continue;
        }
        for trap in hazards().trap.iter().filter(|trap| trap.flag == judged.setting.id()) {
            found.extend(alone(case, judged, trap));
        }
    }
}

fn alone(case: &Case<'_, '_>, judged: &JudgedSetting<'_, '_>, trap: &Trap) -> Option<Finding> {
    let setting = judged.setting;
    let known = setting.value != Value::Unknown;
    let is_folder = || trap.folder && is_folder(case, setting);
    if !(known || trap.is_every()) || !(trap.is_about(setting.known_value(), setting.letter) || is_folder()) {
        return None;
    }
    let holds = |outcome: &Outcome| {
        let low = !trap.below_default || is_below_default(judged, outcome);
        takes_effect(outcome) && trap.holds_in(&OtpVersion::from(outcome.release)) && low
    };
    let releases = judged.releases(holds);
    if releases.is_empty() || is_prevented(case.node, setting, &trap.unless) {
        return None;
    }
    let bound = trap.from.is_some() || trap.until.is_some() || trap.below_default;
    let within = if bound { format!(", in {}", releases_text(&releases)) } else { String::new() };
    let texts = FindingText {
        message: format!(
            "{} {}{within}",
            case.quoted(setting),
            trap.says
                .replace("{default}", &defaults(judged, &releases))
                .replace("{table}", &table(judged, &releases))
        ),
        reason: trap.why.clone(),
        remedy: trap.remedy.clone(),
    };
    let level = match trap.level {
        HazardLevel::Note => Level::Note,
        HazardLevel::Warning => Level::Warning,
    };
    let mut finding = case.about(&RULE, level, setting, releases, texts);
    if let Some(comment) = comment_against(case, setting, trap) {
        finding.level = Level::Warning;
        finding.related.push((finding.file, comment, "contradicts the value".to_owned()));
    }
    if trap.removable {
        finding.fix = case.node.removal(setting, true);
    }
    Some(finding)
}

/// Whether the rest of the file shows that a path is a directory: another path is below it, or a variable is named accordingly
/// (`LOG_DIR=`).
fn is_folder(case: &Case<'_, '_>, setting: &Setting<'_>) -> bool {
    let Some(path) = setting.known_value().filter(|path| path.len() > 1 && path.starts_with('/')) else {
        return false;
    };
    let text = case.node.part_of(setting).fragment.file_text();
    if text.len() > MAX_SEARCHED_BYTES {
        return false;
    }
    let is_of_path = |c: char| c.is_ascii_alphanumeric() || "/-_.~$}".contains(c);
    text.match_indices(path).any(|(at, _)| {
        let (before, after) =
            (text.get(..at).unwrap_or_default(), text.get(at + path.len()..).unwrap_or_default());
        let ends = !after.starts_with(is_of_path);
        let goes_on = after.strip_prefix('/').is_some_and(|after| after.starts_with(is_of_path));
        let name = before.trim_end_matches(['"', '\'', ' ']).strip_suffix(['=', ':']);
        let is_named = name.is_some_and(|name| name.ends_with("_DIR") || name.ends_with("_dir"));
        !before.ends_with(is_of_path) && (goes_on || ends && is_named)
    })
}

/// Whether the effective number is less than the default.
fn is_below_default(judged: &JudgedSetting<'_, '_>, outcome: &Outcome) -> bool {
    let default = judged.setting.entry.and_then(|entry| entry.default_value_in(outcome.release));
    let number = |text: &str| text.parse::<u64>().ok();
    let given = outcome.effective().or(judged.setting.known_value()).and_then(number);
    given.zip(default.and_then(number)).is_some_and(|(given, default)| given < default)
}

/// Formats the defaults of the releases: `262144, and 1048576 from OTP 27.0 on`.
fn defaults(judged: &JudgedSetting<'_, '_>, releases: &[u32]) -> String {
    let Some(entry) = judged.setting.entry else { return String::new() };
    let mut known: Vec<&str> = Vec::new();
    let mut texts: Vec<String> = Vec::new();
    for release in releases {
        let Some(default) = entry.default_value_in(*release).filter(|default| !known.contains(default))
        else {
            continue;
        };
        let step = entry.default.iter().find(|step| step.value.as_deref() == Some(default));
        texts.push(match step.and_then(|step| step.from.as_ref()).filter(|_| !known.is_empty()) {
            Some(from) => format!("{default} from OTP {from} on"),
            None => default.to_owned(),
        });
        known.push(default);
    }
    texts.join(", and ")
}

/// Formats the memory of a table whose number of slots is the value of the setting.
fn table(judged: &JudgedSetting<'_, '_>, releases: &[u32]) -> String {
    let effective = judged.outcomes.iter().find_map(|outcome| outcome.effective());
    let slots = effective.or(judged.setting.known_value()).and_then(|slots| slots.parse().ok());
    memory(slots.unwrap_or_default(), releases)
}

/// Finds the comment of a flag if the comment contradicts the effect of the flag.
fn comment_against(case: &Case<'_, '_>, setting: &Setting<'_>, trap: &Trap) -> Option<Range<usize>> {
    let text = case.node.part_of(setting).fragment.file_text();
    let says_so = |span: &Range<usize>| {
        let comment = text.get(span.clone()).unwrap_or_default().to_ascii_lowercase();
        trap.against.iter().any(|word| comment.contains(word.as_str()))
    };
    if trap.against.is_empty() {
        return None;
    }
    comments(text, &case.node.span_of(setting)).into_iter().find(says_so)
}
