//! BF011: a value that the emulator changes silently.

use std::collections::BTreeMap;

use crate::OtpVersion;
use crate::lint::case::{Case, FindingText, JudgedSetting, noun, releases_text};
use crate::lint::hazards::ConflictKind;
use crate::lint::node::SettingKind;
use crate::lint::outcome::Outcome;
use crate::lint::rules::cancelled::together;
use crate::lint::rules::fatal_value::cut;
use crate::lint::rules::outdated;
use crate::lint::rules::without_effect::is_ignored;
use crate::lint::{Code, Finding, Level, Rule};
use crate::takes::{AcceptedValues, Rounding, SilentChange};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF011"),
    name: "value-changed",
    description: "A value that is silently rounded, raised, lowered, wrapped around or parsed as another flag.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known().filter(|judged| judged.overridden.is_none() && !judged.lacks_value()) {
        read_as_another(case, judged, found);
        number(case, judged, found);
        for (conflict, other) in
            judged.conflicts.iter().filter(|(conflict, _)| conflict.makes == ConflictKind::Changed)
        {
            found.push(together(case, &RULE, Level::Warning, judged, conflict, other));
        }
    }
}

fn read_as_another(case: &Case<'_, '_>, judged: &JudgedSetting<'_, '_>, found: &mut Vec<Finding>) {
    let other = |outcome: &Outcome| {
        outcome.altered().iter().find_map(|altered| match altered {
            SilentChange::ReadAs { flag, value } => Some(format!("{flag} {value}")),
            _ => None,
        })
    };
    let releases = judged.releases(|outcome| other(outcome).is_some());
    let (Some(read), Some(entry)) = (judged.outcomes.iter().find_map(other), judged.setting.entry) else {
        return;
    };
    let texts = FindingText {
        message: format!(
            "{} is parsed as `{read}` by {}",
            case.quoted(judged.setting),
            releases_text(&releases)
        ),
        reason: entry.risk.clone(),
        remedy: "Omit the flag for these releases.".to_owned(),
    };
    found.push(case.about(&RULE, Level::Warning, judged.setting, releases, texts));
}

/// Whether this rule reports an outcome.
fn is_reported(outcome: &Outcome) -> bool {
    let number = [
        SilentChange::Rounded,
        SilentChange::Raised,
        SilentChange::Lowered,
        SilentChange::Wrapped,
        SilentChange::NotANumber,
    ];
    !is_ignored(outcome)
        && cut(outcome.altered()).is_none()
        && outcome.altered().iter().any(|altered| number.contains(altered))
}

fn number(case: &Case<'_, '_>, judged: &JudgedSetting<'_, '_>, found: &mut Vec<Finding>) {
    let setting = judged.setting;
    let Some(entry) = setting.entry else { return };
    // The exact value of an outdated setting does not matter.
    if outdated::is_reported(judged) {
        return;
    }
    let is_default = |outcome: &Outcome| entry.default_value_in(outcome.release) == setting.known_value();
    let releases = judged
        .releases(|outcome| is_reported(outcome) && !is_default(outcome) && !is_heap_size(judged, outcome));
    let Some(newest) = releases.last() else { return };
    let mut results: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for outcome in judged.outcomes.iter().filter(|outcome| releases.contains(&outcome.release)) {
        results.entry(outcome.effective().unwrap_or("a different value")).or_default().push(outcome.release);
    }
    let gives = match results.iter().collect::<Vec<_>>().as_slice() {
        [(value, _)] => format!("becomes {value}"),
        several => {
            let each: Vec<_> = several
                .iter()
                .map(|(value, releases)| format!("{value} in {}", releases_text(releases)))
                .collect();
            format!("becomes {}", each.join(" and "))
        }
    };
    let altered: Vec<&SilentChange> = judged
        .outcomes
        .iter()
        .filter(|outcome| releases.contains(&outcome.release))
        .flat_map(|outcome| outcome.altered())
        .collect();
    let rounded = altered.iter().all(|altered| **altered == SilentChange::Rounded);
    let takes = entry.accepted_for(setting.letter, &OtpVersion::from(*newest));
    let rounds = takes.and_then(|takes| takes.rounds);
    let takes = takes.map(AcceptedValues::in_words).unwrap_or_default();
    let none = altered.contains(&&SilentChange::NotANumber);
    let wrapped = altered.contains(&&SilentChange::Wrapped);
    let glued = none && setting.words.len() == 1 && setting.kind == SettingKind::Flag;
    let read = match setting.known_value().filter(|_| glued) {
        Some(value) => format!("is parsed as `{} {value}` and {gives}", setting.flag),
        None => gives,
    };
    let single = (results.len() == 1).then(|| results.keys().next().copied()).flatten();
    let single = single.filter(|value| !none && !wrapped && value.bytes().all(|byte| byte.is_ascii_digit()));
    let texts = FindingText {
        message: format!("{} {read}: {}", case.quoted(setting), what_happens(&altered, rounds)),
        reason: format!("Accepted: {takes}. The VM does not report the change."),
        remedy: match single {
            Some(value) => format!("If that is intended, write {value}."),
            None => format!("Write a value that is accepted unchanged, or remove the {}.", noun(setting)),
        },
    };
    let everywhere = releases.len() == judged.outcomes.iter().filter(|outcome| outcome.starts()).count();
    let level = if rounded { Level::Note } else { Level::Warning };
    let mut finding = case.about(&RULE, level, setting, releases.clone(), texts);
    if let Some(value) = single {
        finding.fix = case.node.new_value(setting, value, rounded && everywhere);
    }
    found.push(finding);
}

/// Whether a number was rounded to a heap size. Nobody writes exact heap sizes, so this is expected.
fn is_heap_size(judged: &JudgedSetting<'_, '_>, outcome: &Outcome) -> bool {
    let takes = judged.setting.entry.and_then(|entry| entry.accepted_in(outcome.release));
    takes.is_some_and(|takes| takes.rounds == Some(Rounding::HeapSize))
        && outcome.altered() == [SilentChange::Rounded]
}

fn what_happens(altered: &[&SilentChange], rounds: Option<Rounding>) -> &'static str {
    let has = |what: &SilentChange| altered.contains(&what);
    if has(&SilentChange::NotANumber) {
        "the value is not a number"
    } else if has(&SilentChange::Wrapped) {
        "the number is too large and wraps around"
    } else if has(&SilentChange::Raised) {
        "the number is below the minimum"
    } else if has(&SilentChange::Lowered) {
        "the number is above the maximum"
    } else {
        match rounds {
            Some(Rounding::AtMost(_)) => "the number is above the maximum",
            Some(Rounding::AtLeast(_)) => "the number is below the minimum",
            _ => "the number is rounded",
        }
    }
}
