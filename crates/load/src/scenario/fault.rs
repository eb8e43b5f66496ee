//! Faults of a scenario: position, offending text, and what would be correct.

use std::fmt;
use std::ops::Range;

/// Maximum width of a displayed line, in characters.
const MAX_COLUMNS: usize = 160;
/// Maximum number of displayed faults. A file with more is probably not a scenario.
const MAX_SHOWN: usize = 20;

/// All faults of a scenario, in the order of the file. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    /// File name, as passed by the caller.
    pub file: String,
    /// The faults.
    pub faults: Vec<Fault>,
}

/// A fault in a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong, and what would be correct.
    pub message: String,
    /// Text of the line.
    pub excerpt: String,
    /// Number of marked characters, at least 1.
    pub length: usize,
}

impl Faults {
    /// Creates faults from messages and their byte ranges in a text.
    pub(super) fn new(file: &str, text: &str, mut found: Vec<(Range<usize>, String)>) -> Self {
        found.sort_by_key(|(at, _)| at.start);
        found.dedup();
        let faults = found.into_iter().map(|(at, message)| Fault::new(text, &at, message)).collect();
        Self { file: file.to_owned(), faults }
    }
}

impl Fault {
    fn new(text: &str, at: &Range<usize>, message: String) -> Self {
        // A fault at the end of the file is shown at the end of the last line.
        let end = text.trim_end_matches(['\n', '\r']).len();
        let start = floor(text, at.start.min(end));
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find(['\r', '\n']).map_or(text.len(), |length| start + length);
        let end = floor(text, at.end.clamp(start, line_end));
        Self {
            line: text[..start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            message,
            excerpt: text[line_start..line_end].to_owned(),
            length: text[start..end].chars().count().max(1),
        }
    }
}

/// Returns the start of the character that contains a byte.
fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Long lines are cut around the fault.
        let skipped = self.column.saturating_sub(MAX_COLUMNS / 2);
        let before = self.column - 1 - skipped;
        let shown: String = self.excerpt.chars().skip(skipped).take(MAX_COLUMNS).collect();
        // Tabs are kept in the indentation, so that the mark is aligned with the text.
        let indent: String = shown.chars().take(before).map(|c| if c == '\t' { c } else { ' ' }).collect();
        let mark = "^".repeat(self.length.min(MAX_COLUMNS - before));
        write!(f, "{}:{}: {}\n    {shown}\n    {indent}{mark}", self.line, self.column, self.message)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().take(MAX_SHOWN).enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{}:{fault}", self.file)?;
        }
        match self.faults.len().saturating_sub(MAX_SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n{}: and {more} more", self.file),
        }
    }
}

impl std::error::Error for Faults {}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str, at: Range<usize>) -> Fault {
        Faults::new("f", text, vec![(at, "x".to_owned())]).faults.remove(0)
    }

    #[test]
    fn columns_count_characters() {
        let text = "a = 1\nä = \"ö\" # ü\n";
        let at = text.find("\"ö\"").unwrap();
        let fault = fault(text, at..at + 4);
        assert_eq!((fault.line, fault.column, fault.length), (2, 5, 3));
        assert_eq!(fault.to_string(), "2:5: x\n    ä = \"ö\" # ü\n        ^^^");
    }

    #[test]
    fn ranges_beyond_the_end_or_over_several_lines_are_cut_to_a_line() {
        let at_end = fault("a = 1\n\n", 7..7);
        assert_eq!((at_end.line, at_end.column, at_end.length), (1, 6, 1));
        let long = fault("a = [\r\n1]", 4..9);
        assert_eq!((long.line, long.column, long.length, long.excerpt.as_str()), (1, 5, 1, "a = ["));
        assert_eq!(fault("", 0..0).line, 1);
    }

    #[test]
    fn long_lines_and_many_faults_are_shortened() {
        let text = format!("{}\tyes{}", "x".repeat(3000), "z".repeat(3000));
        let shown = fault(&text, 3001..3004).to_string();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!((lines[0], lines[1].len()), ("1:3002: x", 4 + MAX_COLUMNS), "{shown}");
        let at = lines[2].find('^').unwrap();
        assert_eq!((&lines[1][at..at + 3], &lines[2][at..]), ("yes", "^^^"), "{shown}");
        let many = Faults::new("f", &text, (0..30).map(|at| (at..at + 1, at.to_string())).collect());
        assert!(many.to_string().ends_with("\nf: and 10 more"), "{many}");
    }

    #[test]
    fn faults_are_in_the_order_of_the_file() {
        let found = vec![(3..4, "b".to_owned()), (0..1, "a".to_owned()), (3..4, "b".to_owned())];
        let faults = Faults::new("f.toml", "x\n yz", found);
        assert_eq!(faults.to_string(), "f.toml:1:1: a\n    x\n    ^\nf.toml:2:2: b\n     yz\n     ^");
    }
}
