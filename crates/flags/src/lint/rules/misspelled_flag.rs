//! BF033: a flag with a minus that is nearly one that everybody knows.

use crate::entry;
use crate::entry::Kind;
use crate::init_flags::{common, is_known};
use crate::lint::case::{Case, Says, short};
use crate::lint::node::InitFlag;
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::{Change, Place, Word};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF033"),
    name: "misspelled-flag",
    finds: "A flag with a minus that is nearly one for init or the launcher, and so does nothing.",
    level: Level::Warning,
};

/// One letter in shorter words makes other words: `-name` and `-game`.
const LONG_ENOUGH: usize = 8;
/// No flag has more letters.
const LONGEST: usize = 24;

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for flag in &case.node.arguments {
        let Some(part) = case.node.parts.get(flag.part) else { continue };
        let words = &part.fragment.words;
        let Some(word) = words.get(flag.at) else { continue };
        if word.dynamic || part.fragment.place == Place::LiveNode || is_known(&word.text) {
            continue;
        }
        let Some(meant) = meant(flag, words) else { continue };
        let says = Says {
            message: format!("`{}` does nothing; `{meant}` is a flag", short(&word.text)),
            reason: "init keeps words with a minus that it does not know for applications, and tells nobody (seen on OTP 23, 25, 27 and 29)."
                .to_owned(),
            remedy: format!("Write `{meant}`, if that is meant."),
        };
        let mut finding = part.finding(&RULE, Level::Warning, word.span.clone(), &word.text, says);
        // It switches on what has been off so far: somebody has to look.
        let change = Change::Replace { word: flag.at, text: meant.to_owned() };
        finding.fix = case.node.fix(part, format!("Write `{meant}`"), false, &[change]);
        found.push(finding);
    }
}

/// The flag that was probably meant: with one minus too many, by the words behind it, or by all letters but one.
fn meant(flag: &InitFlag, words: &[Word]) -> Option<&'static str> {
    let name = words.get(flag.at)?.text.as_str();
    if name.len() > LONGEST {
        return None;
    }
    if let Some(single) = name.strip_prefix('-').filter(|single| single.starts_with('-')) {
        return common().find(|known| *known == single);
    }
    let value = flag.values.first().and_then(|at| words.get(*at)).filter(|value| !value.dynamic);
    let value = value.map(|value| value.text.as_str()).unwrap_or_default();
    let is_variable = entry(value).is_some_and(|entry| entry.kind == Kind::Environment);
    let is_parameter = entry(&format!("kernel.{value}")).is_some();
    let near = |known: &&str| known.len().abs_diff(name.len()) <= 2;
    common().filter(near).find(|known| {
        let differs = || strsim::osa_distance(name, known);
        match *known {
            "-env" if is_variable => differs() <= 2,
            "-kernel" if is_parameter => differs() <= 2,
            _ => known.len() >= LONG_ENOUGH && differs() == 1,
        }
    })
}
