//! BF020: an invisible character before a flag.

use crate::lint::case::{Case, FindingText, short};
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::{Change, Place};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF020"),
    name: "invisible-character",
    description: "A byte order mark, a no-break space or a similar character before a flag, which is then not recognised.",
    level: Level::Warning,
};

const INVISIBLE: &[char] =
    &['\u{feff}', '\u{a0}', '\u{200b}', '\u{200c}', '\u{200d}', '\u{2060}', '\u{202f}', '\u{3000}', '\u{85}'];
/// Dashes by which word processors replace a minus.
const DASHES: &[char] = &['\u{2010}', '\u{2011}', '\u{2012}', '\u{2013}', '\u{2014}', '\u{2212}'];

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for part in &case.node.parts {
        if matches!(part.fragment.place, Place::RunningNode | Place::FileNames) {
            continue;
        }
        for (at, word) in part.fragment.words.iter().enumerate() {
            let Some(first) = word.text.chars().next() else { continue };
            let bare = word.text.trim_start_matches(INVISIBLE);
            let (meant, what) = if INVISIBLE.contains(&first) && bare.starts_with(['-', '+']) {
                (bare.to_owned(), "an invisible character precedes it")
            } else if DASHES.contains(&first)
                && word.text.chars().nth(1).is_some_and(|c| c.is_ascii_lowercase())
            {
                (word.text.replacen(first, "-", 1), "it starts with a dash instead of a minus")
            } else {
                continue;
            };
            let texts = FindingText {
                message: format!("`{}` is not a flag: {what} (U+{:04X})", short(&meant), u32::from(first)),
                reason: "The launcher treats only six characters as white space, and a flag starts with + or -; any other word is ignored."
                    .to_owned(),
                remedy: "Remove the character; save the file as UTF-8 without a byte order mark.".to_owned(),
            };
            let span = word.span.clone();
            let mut finding = part.finding(&RULE, Level::Warning, span, &meant, texts);
            finding.fix = case.node.fix(
                part,
                format!("Write `{}`", short(&meant)),
                false,
                &[Change::Replace { word: at, text: meant }],
            );
            found.push(finding);
        }
    }
}
