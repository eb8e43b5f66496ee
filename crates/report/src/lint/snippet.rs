//! The line of a file that a finding is about, with a mark below it.
//!
//! Characters take zero, one or two columns on a terminal, and files contain tabs and characters that must not reach a terminal. So
//! marks are positioned in displayed columns. A line that is too long is cut around the mark. Cookies and passwords are not shown,
//! because readers of a CI log may not be allowed to read the file.

use std::borrow::Cow;
use std::ops::Range;

use beamtune_flags::source::Lines;
use unicode_width::UnicodeWidthChar;

use crate::text::clean;

/// Replacement of a tab, whose width depends on the user's editor.
const TAB: &str = "    ";
/// Replacement of text that is cut off.
const CUT: &str = "…";
/// Replacement of a secret.
const HIDDEN: &str = "*";
/// Additional bytes to read on either side of the mark, because some bytes take no column, such as those of a secret.
const LOOK: usize = 1024;
/// Maximum number of bytes per column, not counting combining marks.
const COLUMN_BYTES: usize = 4;

/// A line to show.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Snippet {
    pub(super) line: String,
    /// Spaces and marks to show below the line.
    pub(super) marks: String,
}

/// A character as it is displayed.
struct Cell {
    shown: Shown,
    columns: usize,
}

enum Shown {
    /// Unchanged.
    Same(char),
    /// Replaced by other text.
    Text(Cow<'static, str>),
}

/// A text from which snippets are taken.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) text: &'a str,
    pub(super) lines: &'a Lines<'a>,
    /// Spans of secrets in the text, in ascending order.
    pub(super) hidden: &'a [Range<usize>],
}

/// Returns the first line of a span with its mark, in at most `width` columns.
pub(super) fn snippet(source: &Source<'_>, span: &Range<usize>, width: usize) -> Snippet {
    let Source { text, lines, hidden } = *source;
    let begin = floor(text, span.start);
    let line = lines.line_at(begin);
    let rest = text[begin..line.end].trim_end_matches('\r');
    let end = begin + floor(rest, span.end.saturating_sub(begin));
    let line_end = begin + rest.len();

    let far = LOOK + COLUMN_BYTES * width;
    let looked_at = floor(text, begin.saturating_sub(far))..floor(text, end.saturating_add(far));
    let first = hidden.partition_point(|secret| secret.end <= looked_at.start);
    let last = hidden.partition_point(|secret| secret.start < looked_at.end);
    let hidden = hidden.get(first..last).unwrap_or_default();
    let cells = |range: Range<usize>| {
        text[range.clone()].char_indices().map(move |(at, c)| Cell::of(range.start + at, c, hidden))
    };
    let before = cells(line.start.max(looked_at.start)..begin);
    let (marked, after) = (cells(begin..end), cells(end..line_end.min(looked_at.end)));

    let room = width.saturating_sub(2).max(1);
    // Takes more columns than fit, to detect whether something is cut off.
    let marked = Cells::take(marked, room);
    let mut before_all = Cells::take(before.rev(), room + 2);
    let mut after_all = Cells::take(after, room + 2);
    let whole = !(before_all.is_cut || marked.is_cut || after_all.is_cut);
    if !whole || before_all.columns + marked.columns.max(1) + after_all.columns > width {
        let free = room - marked.columns.max(1).min(room);
        // Each side gets half of the free columns, plus those that the other side does not need.
        let left = (free / 2).max(free.saturating_sub(after_all.columns)).min(before_all.columns);
        before_all.cut(left);
        after_all.cut(free - left.min(free));
    }
    before_all.cells.reverse();

    let mut line = String::new();
    let mut indent = before_all.columns;
    if before_all.is_cut {
        line.push_str(CUT);
        indent += 1;
    }
    for cell in before_all.cells.iter().chain(&marked.cells) {
        cell.shown.write(&mut line);
    }
    if marked.is_cut {
        line.push_str(CUT);
    } else {
        after_all.cells.iter().for_each(|cell| cell.shown.write(&mut line));
        if after_all.is_cut {
            line.push_str(CUT);
        }
    }
    Snippet { line, marks: format!("{}{}", " ".repeat(indent), "^".repeat(marked.columns.max(1))) }
}

/// Characters on one side of the mark, or in it.
struct Cells {
    cells: Vec<Cell>,
    columns: usize,
    is_cut: bool,
}

impl Cells {
    /// Takes as many characters as fit. Of a long line, no more characters are read than can be shown.
    fn take(cells: impl Iterator<Item = Cell>, room: usize) -> Cells {
        let mut taken = Cells { cells: Vec::new(), columns: 0, is_cut: false };
        for cell in cells {
            if taken.columns + cell.columns > room {
                taken.is_cut = true;
                break;
            }
            taken.columns += cell.columns;
            taken.cells.push(cell);
        }
        taken
    }

    fn cut(&mut self, room: usize) {
        while self.columns > room {
            let Some(last) = self.cells.pop() else { break };
            self.columns -= last.columns;
            self.is_cut = true;
        }
    }
}

impl Cell {
    /// Creates the cell of the character that begins at this byte.
    fn of(at: usize, c: char, hidden: &[Range<usize>]) -> Cell {
        if let Some(secret) = hidden.iter().find(|secret| secret.contains(&at)) {
            let shown = if at == secret.start { HIDDEN } else { "" };
            return Cell { shown: Shown::Text(shown.into()), columns: shown.len() };
        }
        if c == '\t' {
            return Cell { shown: Shown::Text(TAB.into()), columns: TAB.len() };
        }
        if matches!(c, ' '..='~') {
            return Cell { shown: Shown::Same(c), columns: 1 };
        }
        let shown = clean(c.encode_utf8(&mut [0; 4]));
        if shown.starts_with(c) && shown.len() == c.len_utf8() {
            return Cell { shown: Shown::Same(c), columns: c.width().unwrap_or(0) };
        }
        // An escape sequence, which is ASCII.
        Cell { columns: shown.len(), shown: Shown::Text(shown.into()) }
    }
}

impl Shown {
    fn write(&self, line: &mut String) {
        match self {
            Shown::Same(c) => line.push(*c),
            Shown::Text(text) => line.push_str(text),
        }
    }
}

/// Returns the beginning of the character that contains a byte.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use beamtune_flags::lint::secrets;
    use proptest::prelude::*;
    use unicode_width::UnicodeWidthStr;

    use super::*;

    fn of(text: &str, span: &Range<usize>, width: usize) -> Snippet {
        snippet(&Source { text, lines: &Lines::of(text), hidden: &secrets(text) }, span, width)
    }

    /// Returns the snippet for the first occurrence of `marked` in a text, as two lines.
    fn shown(text: &str, marked: &str, width: usize) -> String {
        let begin = text.find(marked).expect("an occurrence");
        let snippet = of(text, &(begin..begin + marked.len()), width);
        format!("{}\n{}", snippet.line, snippet.marks)
    }

    #[test]
    fn the_mark_is_below_the_span() {
        let check =
            |text: &str, marked: &str, expect: &str| assert_eq!(shown(text, marked, 40), expect, "{text:?}");
        check("+P 1\n+Q 2 # x\n", "+Q 2", "+Q 2 # x\n^^^^");
        check("+P 1\r\n+Q 2\r\n", "2", "+Q 2\n   ^");
        check("\t+P\t1", "1", "    +P    1\n          ^");
        check("-x 日本 +P 1", "+P 1", "-x 日本 +P 1\n        ^^^^");
        check("-x e\u{301} +P", "+P", "-x e\u{301} +P\n     ^^");
        check("-x \u{1b}[31m +P", "+P", "-x \\u{1b}[31m +P\n              ^^");
        check("-x 'a\nb' c", "'a\nb'", "-x 'a\n   ^^");
        check("+P", "", "+P\n^");
    }

    #[test]
    fn a_secret_is_not_shown() {
        let check = |text: &str, marked: &str, expect: &str| {
            assert_eq!(shown(text, marked, 40), expect, "{text:?}");
        };
        check("-setcookie abc +P 1", "+P 1", "-setcookie * +P 1\n             ^^^^");
        check("-setcookie my#secret", "my", "-setcookie *\n           ^");
        check("-setcookie abc", "-setcookie", "-setcookie *\n^^^^^^^^^^");
        check("-setcookie\nabc +P 1", "+P 1", "* +P 1\n  ^^^^");
        let long = format!("+P 1 {} -setcookie abc {}", "a".repeat(3000), "b".repeat(3000));
        check(&long, "abc", "…aaaaaa -setcookie * bbbbbbbbbbbbbbbbbb…\n                   ^");
    }

    #[test]
    fn a_long_line_is_cut_around_the_span() {
        let line = format!("{} +P 1 {}", "a".repeat(100), "b".repeat(100));
        assert_eq!(shown(&line, "+P 1", 20), "…aaaaaa +P 1 bbbbbb…\n        ^^^^");
        let line = format!("+P 1 {}", "b".repeat(100));
        assert_eq!(shown(&line, "+P 1", 20), "+P 1 bbbbbbbbbbbbb…\n^^^^");
        let line = format!("{} +P 1", "a".repeat(100));
        assert_eq!(shown(&line, "+P 1", 20), "…aaaaaaaaaaaaa +P 1\n               ^^^^");
        let line = "c".repeat(100);
        assert_eq!(shown(&line, &line, 20), format!("{}…\n{}", "c".repeat(18), "^".repeat(18)));
    }

    #[test]
    fn invalid_spans_do_not_panic() {
        assert_eq!(of("ab", &(7..9), 20).line, "ab");
        assert_eq!(of("é", &(1..2), 20), Snippet { line: "é".to_owned(), marks: "^".to_owned() });
        #[expect(clippy::reversed_empty_ranges, reason = "an invalid span")]
        let reversed = of("abc", &(2..1), 20);
        assert_eq!(reversed.marks, "  ^");
    }

    proptest! {
        #[test]
        fn no_snippet_exceeds_the_width(text in "[a-z日é\t\u{1b}\n ]{0,120}", a in 0..130_usize, b in 0..130_usize, width in 20..60_usize) {
            let snippet = of(&text, &(a.min(b)..a.max(b)), width);
            prop_assert!(snippet.line.width() <= width, "{snippet:?}");
            prop_assert!(snippet.marks.len() <= width, "{snippet:?}");
            prop_assert!(snippet.marks.ends_with('^'));
            prop_assert!(!snippet.line.contains(['\n', '\t', '\x1b']));
        }
    }
}
