//! BF014: an emulator flag with a minus instead of a plus.

use crate::catalog::recognise;
use crate::entry::{Argument, Entry};
use crate::init_flags::is_known;
use crate::lint::case::{Case, FindingText, short};
use crate::lint::node::InitFlag;
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::{Change, Place, Word};
use crate::takes::{Form, Verdict};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF014"),
    name: "minus-for-plus",
    description: "An emulator flag written with a minus, which has no effect.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for flag in &case.node.arguments {
        let Some(part) = case.node.parts.get(flag.part) else { continue };
        if part.fragment.place == Place::RunningNode {
            continue;
        }
        let words = &part.fragment.words;
        let Some(word) = words.get(flag.at) else { continue };
        let Some(Meant { entry, value, glued }) = meant(case, flag, words) else { continue };
        // Suggest the effective value, so that the corrected flag has no further finding.
        let newest = part.releases.last().copied().unwrap_or_default();
        let effective = match entry.check(Some(value), newest) {
            Verdict::Accepted { effective: Some(effective), changes: altered }
                if !altered.is_empty() && effective.bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                effective
            }
            _ => value.to_owned(),
        };
        let flag_text = word.text.strip_suffix(value).filter(|_| glued).unwrap_or(&word.text);
        let plus = format!("+{}", flag_text.get(1..).unwrap_or_default());
        let (between, shown) = (if glued { "" } else { " " }, short(&effective));
        let texts = FindingText {
            message: format!(
                "`{flag_text}{between}{}` has no effect: with a minus it is not an emulator flag",
                short(value)
            ),
            reason: "Words with a minus are passed to init, which silently keeps them for applications (tested on OTP 23, 25, 27 and 29)."
                .to_owned(),
            remedy: format!("Write `{plus}{between}{effective}`. It {}", entry.effect()),
        };
        let last = if glued { word } else { words.get(flag.at + 1).unwrap_or(word) };
        let span = word.span.start..last.span.end;
        let mut finding = part.finding(&RULE, Level::Warning, span, &word.text, texts);
        let what = format!("Write `{plus}{between}{shown}`");
        let mut changes = Vec::new();
        if glued {
            changes.push(Change::Replace { word: flag.at, text: format!("{plus}{effective}") });
        } else {
            changes.push(Change::Replace { word: flag.at, text: plus });
            if effective != value {
                changes.push(Change::Replace { word: flag.at + 1, text: effective });
            }
        }
        // The fix is not safe, because it enables a flag that had no effect. Further words would become values of the previous flag.
        if flag.values.len() == usize::from(!glued) {
            finding.fix = case.node.fix(part, what, false, &changes);
        }
        found.push(finding);
    }
}

/// The emulator flag that the author of a flag with a minus probably intended.
struct Meant<'w> {
    entry: &'static Entry,
    value: &'w str,
    /// Whether the value is in the same word as the flag.
    glued: bool,
}

/// Returns the emulator flag with the name of a flag with a minus, if the value is valid for it.
fn meant<'w>(case: &Case<'_, '_>, flag: &InitFlag, words: &'w [Word]) -> Option<Meant<'w>> {
    let word = words.get(flag.at)?;
    let name = word.text.strip_prefix('-')?;
    let plus = format!("+{name}");
    let known = recognise(&plus)?;
    let entry = known.entry;
    if entry.argument != Some(Argument::Required) || !entry.spelling().starts_with('+') {
        return None;
    }
    let is_taken = |value: &str| {
        case.node.target.releases.iter().any(|release| {
            let anything = entry.accepted_in(*release).is_some_and(|takes| takes.form == Some(Form::Any));
            matches!(entry.check(Some(value), *release), Verdict::Accepted { .. })
                && (!anything || matches!(value, "true" | "false"))
        })
    };
    if !known.glued.is_empty() {
        // `-A30` can only be an emulator flag, but `-h2 a b` may be an application with parameters.
        let value = name.get(name.len() - known.glued.len()..)?;
        let is_number = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
        let alone = flag.values.is_empty() && !is_known(&word.text);
        return (entry.glued && alone && is_number && is_taken(value)).then_some(Meant {
            entry,
            value,
            glued: true,
        });
    }
    let value = flag.values.first().filter(|at| **at == flag.at + 1).and_then(|at| words.get(*at))?;
    // A short name could be the name of an application.
    let meant = if value.dynamic { name.len() >= 4 } else { is_taken(&value.text) };
    meant.then_some(Meant { entry, value: &value.text, glued: false })
}
