//! BF002: a flag that a release does not yet have or no longer has.

use crate::OtpVersion;
use crate::lint::case::{Case, FindingText, JudgedSetting, releases_and_verb, releases_text};
use crate::lint::node::SettingKind;
use crate::lint::outcome::{Outcome, Presence};
use crate::lint::{Code, Finding, Level, Rule};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF002"),
    name: "not-in-release",
    description: "A flag or value that a release does not have yet, or no longer has.",
    level: Level::Error,
};

/// Flags that were added to a release in this minor version or later are reported, because older versions of the release are in use. Flags
/// that were added earlier are assumed to exist.
const FIRST_REPORTED_MINOR: u32 = 2;

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known() {
        if judged.setting.kind == SettingKind::Kernel {
            parameter(case, judged, found);
        } else {
            absent(case, judged, found);
            patched(case, judged, found);
        }
    }
}

/// Reports releases that reject the flag.
fn absent(case: &Case<'_, '_>, judged: &JudgedSetting<'_, '_>, found: &mut Vec<Finding>) {
    let Some(entry) = judged.setting.entry else { return };
    let refused = |outcome: &Outcome| {
        !outcome.starts() && matches!(outcome.presence, Presence::NotYet(_) | Presence::Gone(_))
    };
    let releases = judged.releases(refused);
    let Some(first) = judged.outcomes.iter().find(|outcome| refused(outcome)) else { return };
    let (when, remedy) = match &first.presence {
        Presence::Gone(version) => (format!("it was removed in {version}"), "Remove the flag.".to_owned()),
        _ => {
            let since: Vec<_> = entry.since.iter().map(OtpVersion::to_string).collect();
            let (first, others) =
                since.split_first().map_or(("", &[][..]), |(first, others)| (first.as_str(), others));
            let others =
                if others.is_empty() { String::new() } else { format!(" (and in {})", others.join(", ")) };
            (
                format!("it was added in {first}{others}"),
                format!("Omit the flag for releases before {first}, or require a newer one."),
            )
        }
    };
    let texts = FindingText {
        message: format!(
            "{} {}: {when}",
            releases_and_verb(&releases, "reject"),
            case.quoted(judged.setting)
        ),
        reason: format!("The VM does not start with an unknown flag. This flag {}", entry.effect()),
        remedy,
    };
    let everywhere = releases.len() == judged.outcomes.len();
    let mut finding = case.about(&RULE, Level::Error, judged.setting, releases, texts);
    if everywhere {
        finding.fix = case.node.removal(judged.setting, false);
    }
    found.push(finding);
}

/// Reports releases if only later versions of the release accept the flag.
fn patched(case: &Case<'_, '_>, judged: &JudgedSetting<'_, '_>, found: &mut Vec<Finding>) {
    for outcome in judged.outcomes.iter().filter(|outcome| outcome.starts()) {
        let from = match (&outcome.presence, &outcome.value_from) {
            (Presence::From(version), _) | (_, Some(version)) => version,
            _ => continue,
        };
        let first_reported = OtpVersion::parse(&format!("{}.{FIRST_REPORTED_MINOR}", outcome.release));
        if first_reported.is_none_or(|first| *from < first) {
            continue;
        }
        let texts = FindingText {
            message: format!(
                "Versions of OTP {} before {from} reject {}",
                outcome.release,
                case.quoted(judged.setting)
            ),
            reason: format!("It was added in {from}; older patch levels of the release reject it."),
            remedy: format!("Make sure that the VM is {from} or later, or omit the flag."),
        };
        found.push(case.about(&RULE, Level::Warning, judged.setting, vec![outcome.release], texts));
    }
}

/// Reports a parameter of an application that older releases do not read.
fn parameter(case: &Case<'_, '_>, judged: &JudgedSetting<'_, '_>, found: &mut Vec<Finding>) {
    let releases = judged.releases(|outcome| matches!(outcome.presence, Presence::NotYet(_)));
    let Some(since) = judged.setting.entry.and_then(|entry| entry.since.first()) else { return };
    if releases.is_empty() {
        return;
    }
    let texts = FindingText {
        message: format!(
            "{} has no effect in {}: it was added in {since}",
            case.quoted(judged.setting),
            releases_text(&releases)
        ),
        reason: "An unknown parameter is silently ignored.".to_owned(),
        remedy: "Nothing to do if it is meant for newer releases.".to_owned(),
    };
    found.push(case.about(&RULE, Level::Note, judged.setting, releases, texts));
}
