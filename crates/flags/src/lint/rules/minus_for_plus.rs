//! BF014: a flag of the emulator that is written with a minus.

use crate::catalog::recognise;
use crate::entry::{Argument, Entry};
use crate::lint::case::{Case, Says, short};
use crate::lint::node::InitFlag;
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::{Change, Place, Word};
use crate::takes::{Form, Verdict};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF014"),
    name: "minus-for-plus",
    finds: "A flag of the emulator that is written with a minus, and so does nothing.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for flag in &case.node.arguments {
        let Some(part) = case.node.parts.get(flag.part) else { continue };
        if part.fragment.place == Place::LiveNode {
            continue;
        }
        let words = &part.fragment.words;
        let Some(word) = words.get(flag.at) else { continue };
        let Some((entry, value)) = meant(case, flag, words) else { continue };
        let plus = format!("+{}", word.text.get(1..).unwrap_or_default());
        // Write what will be in effect, so that nothing is left to say.
        let newest = part.releases.last().copied().unwrap_or_default();
        let effective = match entry.check(Some(if value.dynamic { "" } else { &value.text }), newest) {
            Verdict::Accepted { effective: Some(effective), altered }
                if !altered.is_empty() && effective.bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                effective
            }
            _ => value.text.clone(),
        };
        let says = Says {
            message: format!(
                "`{} {}` does nothing: with a minus it is no flag of the emulator",
                word.text,
                short(&value.text)
            ),
            reason: "Words with a minus go to init, which keeps them for applications and tells nobody (seen on OTP 23, 25, 27 and 29)."
                .to_owned(),
            remedy: format!("Write `{plus} {effective}`. {}", entry.does),
        };
        let span = word.span.start..value.span.end;
        let mut finding = part.finding(&RULE, Level::Warning, span, &word.text, says);
        let shown = effective.clone();
        let mut changes = vec![Change::Replace { word: flag.at, text: plus.clone() }];
        if effective != value.text {
            changes.push(Change::Replace { word: flag.at + 1, text: effective });
        }
        // It switches on what has been off so far: somebody has to look. Further words would join the flag before it.
        if flag.values.len() == 1 {
            finding.fix = case.node.fix(part, format!("Write `{plus} {}`", short(&shown)), false, &changes);
        }
        found.push(finding);
    }
}

/// The emulator's flag of that name, if the value behind it is one of its own.
fn meant<'w>(case: &Case<'_, '_>, flag: &InitFlag, words: &'w [Word]) -> Option<(&'static Entry, &'w Word)> {
    let name = words.get(flag.at)?.text.strip_prefix('-')?;
    let plus = format!("+{name}");
    let known = recognise(&plus).filter(|known| known.glued.is_empty())?;
    let entry = known.entry;
    if entry.argument != Some(Argument::Required) || !entry.spelling().starts_with('+') {
        return None;
    }
    let value = flag.values.first().filter(|at| **at == flag.at + 1).and_then(|at| words.get(*at))?;
    if value.dynamic {
        // A short name may be anybody's.
        return (name.len() >= 4).then_some((entry, value));
    }
    let taken = case.node.target.releases.iter().any(|release| {
        let anything = entry.takes_in(*release).is_some_and(|takes| takes.form == Some(Form::Any));
        let verdict = entry.check(Some(&value.text), *release);
        matches!(verdict, Verdict::Accepted { .. })
            && (!anything || matches!(value.text.as_str(), "true" | "false"))
    });
    taken.then_some((entry, value))
}
