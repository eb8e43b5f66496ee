//! BF018: a comment in the style of another language, which is not a comment in an args file.

use crate::lint::case::{Case, FindingText, short};
use crate::lint::node::is_args_file;
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::{Fragment, Word};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF018"),
    name: "not-a-comment",
    description: "A comment that starts with %, // or ; in an args file, where only # starts one.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for (index, part) in case.node.parts.iter().enumerate().filter(|(_, part)| is_args_file(part.fragment)) {
        let words = &part.fragment.words;
        let mut at = 0;
        while let Some(word) = words.get(at) {
            if word.dynamic || !looks_like_comment(&word.text) {
                at += 1;
                continue;
            }
            let end = end_of_line(part.fragment, at);
            let line = words.get(at..end).unwrap_or_default();
            let flag = line.iter().find(|word| is_flag(word));
            // Words before the first flag are ignored.
            let taken = case.node.arguments_of(index).first().is_some_and(|flag| flag.at < at);
            if let (Some(last), true) = (line.last(), flag.is_some() || taken) {
                let message = match flag {
                    Some(flag) => format!(
                        "`{}` is in effect: `{}` does not start a comment",
                        short(&flag.text),
                        short(&word.text)
                    ),
                    None => format!(
                        "`{}` does not start a comment: the words after it are arguments",
                        short(&word.text)
                    ),
                };
                let texts = FindingText {
                    message,
                    reason: "Only # starts a comment in an args file; all other words are passed to the VM."
                        .to_owned(),
                    remedy: "Start the comment with #.".to_owned(),
                };
                let span = word.span.start..last.span.end;
                let name = &flag.unwrap_or(word).text;
                found.push(part.finding(&RULE, Level::Warning, span, name, texts));
            }
            at = end.max(at + 1);
        }
    }
}

fn looks_like_comment(text: &str) -> bool {
    text.starts_with('%') || text.starts_with("//") || text.starts_with(";;") || text == ";"
}

fn is_flag(word: &Word) -> bool {
    let mut chars = word.text.chars();
    !word.dynamic
        && matches!(chars.next(), Some('+' | '-'))
        && chars.next().is_some_and(|second| second.is_ascii_alphabetic())
}

/// Returns the index of the first word on a later line.
fn end_of_line(fragment: &Fragment, begin: usize) -> usize {
    let words = &fragment.words;
    let mut at = begin + 1;
    while at < words.len() {
        let rest = fragment.text_after(at - 1);
        let blank = rest.len() - rest.trim_start().len();
        if rest.get(..blank).is_none_or(|blank| blank.contains('\n')) || rest.trim_start().starts_with('#') {
            break;
        }
        at += 1;
    }
    at
}
