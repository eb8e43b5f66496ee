//! Puts a comment above the line of a flag.
//!
//! In all supported formats, a comment is a line that starts with `#`. This is not true within quotes, continued lines and YAML
//! blocks. If it is uncertain that the text would be parsed as a comment, no comment is added.

use crate::source::{Place, line_begin};

use super::{FlagUse, Input, place_name};

/// Maximum number of lines between the name of a variable and its first flag.
const MAX_LINES_ABOVE: usize = 20;

/// Text that may precede the name of a variable on its line.
const BEFORE_NAME: &[&str] =
    &["", "export", "-", "- name:", "name:", "ENV", "env", "Environment=", "Environment ="];

/// Adds a comment above a flag or its variable; `None` if the syntax does not allow a comment there. A comment that is already there is
/// not repeated.
pub(super) fn insert_above(input: &Input, given: &FlagUse, comment: &[String]) -> Option<Input> {
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

/// Returns the start of the line above which the comment is inserted.
fn line_of_comment(input: &Input, given: &FlagUse) -> Option<usize> {
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
        Place::CommandLine { .. } | Place::FileNames | Place::RunningNode => return None,
    };
    let mut words = input.fragments.iter().flat_map(|fragment| &fragment.words);
    let inside_a_word = words.any(|word| word.span.start < begin && begin < word.span.end);
    (!inside_a_word).then_some(begin)
}

/// Removes control characters and the delimiters of all template languages, because templates are expanded even in comments.
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
    fn comments_contain_no_template_tags() {
        let check = |text: &str, expect: &str| assert_eq!(sanitized(text), expect);
        check("finding BT001 on 2026-11-20", "finding BT001 on 2026-11-20");
        check("a\nb\u{1b}[31m", "a b [31m");
        check("<%= x %> ${Y} {{{z}}}", "< %= x % > $ {Y} { { {z} } }");
    }
}
