//! Finds the comment of a flag, which explains its purpose.

use std::ops::Range;

/// Maximum number of comment lines above a flag. Longer comments are about the whole file.
const MAX_LINES: usize = 12;
/// Maximum distance to the start of a line. On a longer line, no comment is searched.
const MAX_LINE_BYTES: usize = 1000;

/// Returns the byte ranges of the comment lines directly above a flag and of the comment after it on the same line, in order. Comments
/// start with `#` in all supported formats.
pub(super) fn comments(text: &str, flag: &Range<usize>) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let Some(mut begin) = line_begin(text, flag.start) else { return found };
    while begin > 0
        && found.len() < MAX_LINES
        && let Some(above) = line_begin(text, begin - 1)
        && let Some(line) = text.get(above..begin - 1)
        && line.trim_start().starts_with('#')
    {
        found.push(above..above + line.trim_end().len());
        begin = above;
    }
    found.reverse();
    let rest = text.get(flag.end..).unwrap_or_default();
    let comment = rest.trim_start_matches([' ', '\t']);
    if comment.starts_with('#') {
        let begin = flag.end + rest.len() - comment.len();
        found.push(begin..begin + comment.lines().next().unwrap_or_default().trim_end().len());
    }
    found
}

fn line_begin(text: &str, at: usize) -> Option<usize> {
    let before = text.as_bytes().get(..at)?;
    let newline = before.iter().rev().take(MAX_LINE_BYTES).position(|byte| *byte == b'\n');
    newline.map(|length| at - length).or_else(|| (at < MAX_LINE_BYTES).then_some(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_above_and_after_a_flag_are_found() {
        let check = |text: &str, flag: &str, expect: &[&str]| {
            let at = text.find(flag).expect(flag);
            let found: Vec<&str> =
                comments(text, &(at..at + flag.len())).into_iter().map(|span| &text[span]).collect();
            assert_eq!(found, expect, "{text:?}");
        };
        check("+P 5\n# a\n  ## b \n+Q 6 # c\n+A 1", "+Q 6", &["# a", "  ## b", "# c"]);
        check("+P 5\n# a\n\n+Q 6", "+Q 6", &[]);
        check("# a\n+P 5 +Q 6", "+Q 6", &["# a"]);
        check("+Q 6 +P 5 # a", "+Q 6", &[]);
        check("+Q 6", "+Q 6", &[]);
        check(&format!("# a\n{} +Q 6", "é".repeat(600)), "+Q 6", &[]);
    }
}
