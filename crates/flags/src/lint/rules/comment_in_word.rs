//! BF016: a `#` within a word of an args file, where it starts a comment.

use crate::lint::case::{Case, FindingText, short};
use crate::lint::node::is_args_file;
use crate::lint::{Code, Finding, Level, Rule};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF016"),
    name: "comment-in-word",
    description: "A # within a word of an args file: the rest of the line becomes a comment.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for part in case.node.parts.iter().filter(|part| is_args_file(part.fragment)) {
        for (at, word) in part.fragment.words.iter().enumerate() {
            let rest = part.fragment.text_after(at);
            let length = rest.find(char::is_whitespace).unwrap_or(rest.len());
            let lost = rest.get(..length).unwrap_or_default();
            // `+Q 65536# ports` is a comment that follows without a space.
            if word.dynamic || !lost.starts_with('#') || lost.trim_start_matches('#').is_empty() {
                continue;
            }
            let whole = format!("{}{lost}", word.text);
            let before = at.checked_sub(1).and_then(|at| part.fragment.words.get(at));
            let flag = before.filter(|before| before.text.starts_with(['-', '+'])).unwrap_or(word);
            // The message must not show a cookie.
            let secret = flag.text == "-setcookie";
            let texts = FindingText {
                message: if secret {
                    "The value of `-setcookie` is cut at its #, which starts a comment even within a word".to_owned()
                } else {
                    format!("`{}` is parsed as `{}`: # starts a comment even within a word", short(&whole), short(&word.text))
                },
                reason: "Outside quotes, the launcher drops everything from # to the end of the line (tested on OTP 23, 25, 27 and 29)."
                    .to_owned(),
                remedy: if secret { "Quote the word.".to_owned() } else { format!("Quote the word: '{}'.", short(&whole)) },
            };
            let span = word.span.start..word.span.end;
            found.push(part.finding(&RULE, Level::Warning, span, &flag.text, texts));
        }
    }
}
