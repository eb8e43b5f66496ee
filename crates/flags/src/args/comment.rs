//! Puts a comment above the line of a flag.
//!
//! All supported formats have comments that begin with `#` on a line of their own, but not on every line: not inside of quotes, not
//! within a continued line, not in the text of a YAML block. Where it is uncertain that the text would be a comment, none is added.

use crate::source::{Place, line_begin};

use super::{Given, Input, place_name};

/// How far above the first flag the name of its variable may be, in lines.
const MAX_LINES_ABOVE: usize = 20;

/// What may precede the name of a variable on its line.
const BEFORE_NAME: &[&str] =
    &["", "export", "-", "- name:", "name:", "ENV", "env", "Environment=", "Environment ="];

/// The file with the comment above a flag or its variable; `None` if there is no room for one. A comment that is already there is not
/// repeated.
pub(super) fn insert_above(input: &Input, given: &Given, comment: &[String]) -> Option<Input> {
    let text = &input.text;
    let begin = line_of_comment(input, given)?;
    let line = text.get(begin..)?.split('\n').next().unwrap_or_default();
    let eol = if line.ends_with('\r') { "\r\n" } else { "\n" };
    let indent: String = line.chars().take_while(|c| matches!(c, ' ' | '\t')).collect();
    let lines: String = comment.iter().map(|line| format!("{indent}# {}{eol}", sanitized(line))).collect();
    if lines.is_empty() || text.get(..begin)?.ends_with(&lines) {
        return Some(input.clone());
    }
    let new = input.with_text(format!("{}{lines}{}", text.get(..begin)?, text.get(begin..)?)).ok()?;
    same_words(input, &new).then_some(new)
}

/// Start of the line that the comment goes above.
fn line_of_comment(input: &Input, given: &Given) -> Option<usize> {
    let text = &input.text;
    let fragment = input.fragments.get(given.fragment)?;
    let begin = match &fragment.place {
        Place::ArgsFile { .. } => line_begin(text, given.span.start),
        Place::Variable { .. } => {
            let name = place_name(&fragment.place);
            let mut begin = line_begin(text, fragment.span().start);
            let mut searched = 0;
            loop {
                let line = text.get(begin..)?.split('\n').next().unwrap_or_default();
                if let Some(at) = line.find(name) {
                    let before = line.get(..at)?.trim().trim_end_matches(['"', '\'']).trim();
                    if !BEFORE_NAME.contains(&before) {
                        return None;
                    }
                    break;
                }
                searched += 1;
                if begin == 0 || searched > MAX_LINES_ABOVE {
                    return None;
                }
                begin = line_begin(text, begin - 1);
            }
            // A continued line cannot have a comment above it.
            if text.get(..begin)?.trim_end_matches(['\n', '\r']).ends_with('\\') {
                return None;
            }
            begin
        }
        Place::CommandLine { .. } | Place::FileNames | Place::LiveNode => return None,
    };
    let mut words = input.fragments.iter().flat_map(|fragment| &fragment.words);
    let inside_a_word = words.any(|word| word.span.start < begin && begin < word.span.end);
    (!inside_a_word).then_some(begin)
}

/// Without control characters, and without the delimiters of any template language: templates are expanded even in comments.
fn sanitized(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut result = text.trim().to_owned();
    for mark in ["<%", "%>", "{{", "}}", "{%", "%}", "{#", "#}", "${"] {
        while result.contains(mark) {
            let (first, second) = mark.split_at(1);
            result = result.replace(mark, &format!("{first} {second}"));
        }
    }
    result
}

fn same_words(old: &Input, new: &Input) -> bool {
    let words = |input: &Input| -> Vec<(Place, Vec<String>)> {
        let of = |fragment: &crate::source::Fragment| {
            (fragment.place.clone(), fragment.words.iter().map(|word| word.text.clone()).collect())
        };
        input.fragments.iter().map(of).collect()
    };
    words(old) == words(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_contains_no_template_tags() {
        let check = |text: &str, expect: &str| assert_eq!(sanitized(text), expect);
        check("finding BT001 on 2026-11-20", "finding BT001 on 2026-11-20");
        check("a\nb\u{1b}[31m", "a b [31m");
        check("<%= x %> ${Y} {{{z}}}", "< %= x % > $ {Y} { { {z} } }");
    }
}
