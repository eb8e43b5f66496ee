//! BF033: a misspelled flag with a minus.

use crate::entry;
use crate::entry::Kind;
use crate::init_flags::{common_flags, is_known};
use crate::lint::case::{Case, FindingText, short};
use crate::lint::node::InitFlag;
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::{Change, Place, Word};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF033"),
    name: "misspelled-flag",
    description: "A misspelled flag of init or the launcher, which therefore has no effect.",
    level: Level::Warning,
};

/// Minimum length of a known flag. Shorter names are too similar to other words: `-name` and `-game`.
const MIN_LETTERS: usize = 8;
/// Maximum length of a word. No flag is longer.
const MAX_LETTERS: usize = 24;

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for flag in &case.node.arguments {
        let Some(part) = case.node.parts.get(flag.part) else { continue };
        let words = &part.fragment.words;
        let Some(word) = words.get(flag.at) else { continue };
        if word.dynamic || part.fragment.place == Place::RunningNode || is_known(&word.text) {
            continue;
        }
        let Some(meant) = meant(flag, words) else { continue };
        let texts = FindingText {
            message: format!("`{}` has no effect; the flag is `{meant}`", short(&word.text)),
            reason: "init silently keeps unknown words with a minus for applications (tested on OTP 23, 25, 27 and 29)."
                .to_owned(),
            remedy: format!("Write `{meant}` if you mean that."),
        };
        let mut finding = part.finding(&RULE, Level::Warning, word.span.clone(), &word.text, texts);
        // The fix is not safe, because it enables a flag that had no effect.
        let change = Change::Replace { word: flag.at, text: meant.to_owned() };
        finding.fix = case.node.fix(part, format!("Write `{meant}`"), false, &[change]);
        found.push(finding);
    }
}

/// Returns the flag that was probably intended: the word with one minus removed, or a flag that differs in one letter, or in two letters if
/// the next word is a known value.
fn meant(flag: &InitFlag, words: &[Word]) -> Option<&'static str> {
    let name = words.get(flag.at)?.text.as_str();
    if name.len() > MAX_LETTERS {
        return None;
    }
    if let Some(single) = name.strip_prefix('-').filter(|single| single.starts_with('-')) {
        return common_flags().find(|known| *known == single);
    }
    let value = flag.values.first().and_then(|at| words.get(*at)).filter(|value| !value.dynamic);
    let value = value.map(|value| value.text.as_str()).unwrap_or_default();
    let is_variable = entry(value).is_some_and(|entry| entry.kind == Kind::Environment);
    let is_parameter = entry(&format!("kernel.{value}")).is_some();
    let near = |known: &&str| known.len().abs_diff(name.len()) <= 2;
    common_flags().filter(near).find(|known| {
        let differs = || strsim::osa_distance(name, known);
        match *known {
            "-env" if is_variable => differs() <= 2,
            "-kernel" if is_parameter => differs() <= 2,
            _ => known.len() >= MIN_LETTERS && differs() == 1,
        }
    })
}
