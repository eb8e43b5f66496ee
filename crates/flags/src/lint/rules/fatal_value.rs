//! BF004: a value with which the emulator crashes, hangs or exits while it starts.

use crate::init_flags::exits;
use crate::lint::case::{Case, FindingText, JudgedSetting, noun, releases_text, why};
use crate::lint::outcome::Outcome;
use crate::lint::rules::unit::meant;
use crate::lint::{Code, Finding, Level, Rule};
use crate::takes::{FatalValues, SilentChange, Verdict};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF004"),
    name: "fatal-value",
    description: "A value with which the VM crashes, hangs or exits while it starts.",
    level: Level::Error,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    ending(case, found);
    for judged in case.known().filter(|judged| !judged.lacks_value() && counts(judged)) {
        let is_fatal = |outcome: &Outcome| matches!(outcome.verdict, Verdict::Fatal { .. });
        let releases = judged.releases(is_fatal);
        if releases.is_empty() {
            continue;
        }
        let mut reason = why(judged, &releases);
        let (meant, noun) = (meant(judged), noun(judged.setting));
        if meant.is_some() {
            reason.push_str(
                " The VM parses only the digits before the first letter, because it does not support units.",
            );
        }
        let texts = FindingText {
            message: format!(
                "{} makes {} crash, hang or exit at start",
                case.quoted(judged.setting),
                releases_text(&releases)
            ),
            reason,
            remedy: match meant {
                Some(meant) => format!("If you mean `{meant}`, write that; otherwise remove the {noun}."),
                None => format!("Remove the {noun}; the default works."),
            },
        };
        found.push(case.about(&RULE, Level::Error, judged.setting, releases, texts));
    }
}

/// Reports flags with which `erl` exits instead of starting a node.
fn ending(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for flag in &case.node.arguments {
        let Some(part) = case.node.parts.get(flag.part) else { continue };
        let Some(word) = part.fragment.words.get(flag.at).filter(|word| exits(&word.text)) else { continue };
        let texts = FindingText {
            message: format!("`{}` makes erl exit: no node starts", word.text),
            reason: "The launcher prints information or runs another program, and exits (tested on OTP 23, 25, 27 and 29)."
                .to_owned(),
            remedy: "Remove the flag.".to_owned(),
        };
        found.push(part.finding(&RULE, Level::Error, word.span.clone(), &word.text, texts));
    }
}

/// Whether a fatal value is fatal in this place. A number is not fatal if a later value overrides it. A keyword is always fatal, because it
/// is parsed immediately: `+Mea r9c` is fatal even before `+Mea max` (tested on OTP 23, 25, 27 and 29).
fn counts(judged: &JudgedSetting<'_, '_>) -> bool {
    let value = judged.setting.known_value();
    let at_once = |fatal: &FatalValues| fatal.words.iter().any(|word| Some(word.as_str()) == value);
    judged.overridden.is_none() || judged.setting.entry.is_some_and(|entry| entry.fatal.iter().any(at_once))
}

/// Returns the ignored text after a number.
pub(in crate::lint) fn cut(altered: &[SilentChange]) -> Option<&str> {
    altered.iter().find_map(|altered| match altered {
        SilentChange::Cut(rest) => Some(rest.as_str()),
        _ => None,
    })
}
