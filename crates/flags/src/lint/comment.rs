//! Finds the comment that belongs to a flag: what somebody wanted of it.

use std::ops::Range;

/// Lines of a comment above a flag that are read; longer ones are about the whole file.
const LINES: usize = 12;
/// Bytes to look back for the begin of a line: more is no line that somebody has commented.
const LINE_BYTES: usize = 1000;

/// The comment directly above the line of a flag, and the one behind it on its line: their bytes in the file, from above. Every format
/// that is read has comments that begin with `#`.
pub(super) fn comments(text: &str, flag: &Range<usize>) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let Some(mut begin) = line_begin(text, flag.start) else { return found };
    while begin > 0
        && found.len() < LINES
        && let Some(above) = line_begin(text, begin - 1)
        && let Some(line) = text.get(above..begin - 1)
        && line.trim_start().starts_with('#')
    {
        found.push(above..above + line.trim_end().len());
        begin = above;
    }
    found.reverse();
    let behind = text.get(flag.end..).unwrap_or_default();
    let comment = behind.trim_start_matches([' ', '\t']);
    if comment.starts_with('#') {
        let begin = flag.end + behind.len() - comment.len();
        found.push(begin..begin + comment.lines().next().unwrap_or_default().trim_end().len());
    }
    found
}

fn line_begin(text: &str, at: usize) -> Option<usize> {
    let before = text.as_bytes().get(..at)?;
    let newline = before.iter().rev().take(LINE_BYTES).position(|byte| *byte == b'\n');
    newline.map(|length| at - length).or_else(|| (at < LINE_BYTES).then_some(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_stands_above_a_flag_or_behind_it() {
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
