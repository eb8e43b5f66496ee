//! BF020: a character that nobody sees in front of a flag.

use crate::lint::case::{Case, Says, short};
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::{Change, Place};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF020"),
    name: "invisible-character",
    finds: "A byte order mark, a no-break space or the like in front of a flag, which is none with it.",
    level: Level::Warning,
};

const INVISIBLE: &[char] =
    &['\u{feff}', '\u{a0}', '\u{200b}', '\u{200c}', '\u{200d}', '\u{2060}', '\u{202f}', '\u{3000}', '\u{85}'];
/// What word processors make of a minus.
const DASHES: &[char] = &['\u{2010}', '\u{2011}', '\u{2012}', '\u{2013}', '\u{2014}', '\u{2212}'];

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for part in &case.node.parts {
        if matches!(part.fragment.place, Place::LiveNode | Place::FileNames) {
            continue;
        }
        for (at, word) in part.fragment.words.iter().enumerate() {
            let Some(first) = word.text.chars().next() else { continue };
            let bare = word.text.trim_start_matches(INVISIBLE);
            let (meant, what) = if INVISIBLE.contains(&first) && bare.starts_with(['-', '+']) {
                (bare.to_owned(), "a character that is not seen")
            } else if DASHES.contains(&first)
                && word.text.chars().nth(1).is_some_and(|c| c.is_ascii_lowercase())
            {
                (word.text.replacen(first, "-", 1), "a dash that is no minus")
            } else {
                continue;
            };
            let says = Says {
                message: format!("`{}` is no flag: {what} (U+{:04X}) stands in front of it", short(&meant), u32::from(first)),
                reason: "To the launcher only six characters are white space, and a flag begins with + or -; everything else is a word that nobody asks for."
                    .to_owned(),
                remedy: "Remove the character; save the file as UTF-8 without a byte order mark.".to_owned(),
            };
            let span = word.span.clone();
            let mut finding = part.finding(&RULE, Level::Warning, span, &meant, says);
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
