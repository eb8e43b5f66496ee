//! BF016: a `#` inside of a word of an args file, which begins a comment there.

use crate::lint::case::{Case, Says, short};
use crate::lint::node::is_args_file;
use crate::lint::{Code, Finding, Level, Rule};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF016"),
    name: "comment-in-word",
    finds: "A # inside of a word of an args file: the rest of the line is a comment.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for part in case.node.parts.iter().filter(|part| is_args_file(part.fragment)) {
        for (at, word) in part.fragment.words.iter().enumerate() {
            let behind = part.fragment.behind(at);
            let length = behind.find(char::is_whitespace).unwrap_or(behind.len());
            let lost = behind.get(..length).unwrap_or_default();
            // `+Q 65536# ports` is a comment that somebody put close to the word.
            if word.dynamic || !lost.starts_with('#') || lost.trim_start_matches('#').is_empty() {
                continue;
            }
            let whole = format!("{}{lost}", word.text);
            let before = at.checked_sub(1).and_then(|at| part.fragment.words.get(at));
            let flag = before.filter(|before| before.text.starts_with(['-', '+'])).unwrap_or(word);
            // Logs of a linter are no place for a cookie.
            let secret = flag.text == "-setcookie";
            let says = Says {
                message: if secret {
                    "The value of `-setcookie` ends at its #, which begins a comment, inside of a word too".to_owned()
                } else {
                    format!("`{}` is read as `{}`: # begins a comment, inside of a word too", short(&whole), short(&word.text))
                },
                reason: "The launcher drops all from # to the end of the line, wherever it stands outside of quotes (seen on OTP 23, 25, 27 and 29)."
                    .to_owned(),
                remedy: if secret { "Put the word in quotes.".to_owned() } else { format!("Put the word in quotes: '{}'.", short(&whole)) },
            };
            let span = word.span.start..word.span.end;
            found.push(part.finding(&RULE, Level::Warning, span, &flag.text, says));
        }
    }
}
