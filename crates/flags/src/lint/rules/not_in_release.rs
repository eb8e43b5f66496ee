//! BF002: a flag that a release does not have yet, or not any more.

use crate::OtpVersion;
use crate::lint::case::{Case, Judged, Says, releases_text};
use crate::lint::node::Via;
use crate::lint::outcome::{Outcome, Presence};
use crate::lint::{Code, Finding, Level, Rule};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF002"),
    name: "not-in-release",
    finds: "A flag, or a value, that a release does not have yet or not any more.",
    level: Level::Error,
};

/// What came with the second minor version of a release, or later, is told: VMs older than that are in use. What came earlier is
/// taken to be there.
const USUAL_MINOR: u32 = 2;

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known() {
        if judged.setting.via == Via::Kernel {
            parameter(case, judged, found);
        } else {
            absent(case, judged, found);
            patched(case, judged, found);
        }
    }
}

/// Releases that refuse the flag.
fn absent(case: &Case<'_, '_>, judged: &Judged<'_, '_>, found: &mut Vec<Finding>) {
    let Some(entry) = judged.setting.entry else { return };
    let refused = |outcome: &Outcome| {
        !outcome.starts() && matches!(outcome.presence, Presence::NotYet(_) | Presence::Gone(_))
    };
    let releases = judged.releases(refused);
    let Some(first) = judged.outcomes.iter().find(|outcome| refused(outcome)) else { return };
    let (when, remedy) = match &first.presence {
        Presence::Gone(version) => (format!("it was removed in {version}"), "Remove it.".to_owned()),
        _ => {
            let since: Vec<_> = entry.since.iter().map(OtpVersion::to_string).collect();
            let (first, others) =
                since.split_first().map_or(("", &[][..]), |(first, others)| (first.as_str(), others));
            let others =
                if others.is_empty() { String::new() } else { format!(" (and with {})", others.join(", ")) };
            (
                format!("it came with {first}{others}"),
                format!("Leave it out before {first}; or raise the release that you build for."),
            )
        }
    };
    let says = Says {
        message: format!(
            "{} is refused by {}: {when}",
            case.quoted(judged.setting),
            releases_text(&releases)
        ),
        reason: format!("A flag that it does not have stops the VM. {}", entry.does),
        remedy,
    };
    let everywhere = releases.len() == judged.outcomes.len();
    let mut finding = case.about(&RULE, Level::Error, judged.setting, releases, says);
    if everywhere {
        finding.fix = case.node.removal(judged.setting, false);
    }
    found.push(finding);
}

/// Releases of which only later versions take it.
fn patched(case: &Case<'_, '_>, judged: &Judged<'_, '_>, found: &mut Vec<Finding>) {
    for outcome in judged.outcomes.iter().filter(|outcome| outcome.starts()) {
        let from = match (&outcome.presence, &outcome.value_from) {
            (Presence::From(version), _) | (_, Some(version)) => version,
            _ => continue,
        };
        let usual = OtpVersion::parse(&format!("{}.{USUAL_MINOR}", outcome.release));
        if usual.is_none_or(|usual| *from < usual) {
            continue;
        }
        let says = Says {
            message: format!(
                "{} is refused by versions of OTP {} before {from}",
                case.quoted(judged.setting),
                outcome.release
            ),
            reason: format!("It came with {from}; older patch levels of the release do not start with it."),
            remedy: format!("See that the VM is {from} or later, or leave it out."),
        };
        found.push(case.about(&RULE, Level::Warning, judged.setting, vec![outcome.release], says));
    }
}

/// A parameter of an application that nobody asks for yet.
fn parameter(case: &Case<'_, '_>, judged: &Judged<'_, '_>, found: &mut Vec<Finding>) {
    let releases = judged.releases(|outcome| matches!(outcome.presence, Presence::NotYet(_)));
    let Some(since) = judged.setting.entry.and_then(|entry| entry.since.first()) else { return };
    if releases.is_empty() {
        return;
    }
    let says = Says {
        message: format!(
            "{} has no effect in {}: it came with {since}",
            case.quoted(judged.setting),
            releases_text(&releases)
        ),
        reason: "A parameter that nobody asks for is taken and kept, without a word.".to_owned(),
        remedy: "Nothing is to be done where newer releases are what it is meant for.".to_owned(),
    };
    found.push(case.about(&RULE, Level::Note, judged.setting, releases, says));
}
