//! What is wrong with a scenario: where, the offending text, and what would be right.

use std::fmt;
use std::ops::Range;

/// Of a line that is shown, in characters.
const WIDEST: usize = 160;
/// Faults that are shown: more are those of a file that is no scenario.
const MOST_SHOWN: usize = 20;

/// Everything that is wrong with a scenario, in the order of the file; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    /// The file's name, as it was given.
    pub file: String,
    /// What is wrong.
    pub faults: Vec<Fault>,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// What is wrong, and what would be right.
    pub message: String,
    /// The line's text.
    pub excerpt: String,
    /// How many characters of it are meant, at least one.
    pub length: usize,
}

impl Faults {
    /// From places in a text (ranges of bytes) and what is wrong there.
    pub(super) fn new(file: &str, text: &str, mut found: Vec<(Range<usize>, String)>) -> Self {
        found.sort_by_key(|(at, _)| at.start);
        found.dedup();
        let faults = found.into_iter().map(|(at, message)| Fault::new(text, &at, message)).collect();
        Self { file: file.to_owned(), faults }
    }
}

impl Fault {
    fn new(text: &str, at: &Range<usize>, message: String) -> Self {
        // What is missing at the end of a file is missing behind its last line.
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

/// The beginning of the character that a byte belongs to.
fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Of a long line what stands around the place.
        let skipped = self.column.saturating_sub(WIDEST / 2);
        let before = self.column - 1 - skipped;
        let shown: String = self.excerpt.chars().skip(skipped).take(WIDEST).collect();
        // Tabs stay tabs below, so that the mark stands where the text does.
        let indent: String = shown.chars().take(before).map(|c| if c == '\t' { c } else { ' ' }).collect();
        let mark = "^".repeat(self.length.min(WIDEST - before));
        write!(f, "{}:{}: {}\n    {shown}\n    {indent}{mark}", self.line, self.column, self.message)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().take(MOST_SHOWN).enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{}:{fault}", self.file)?;
        }
        match self.faults.len().saturating_sub(MOST_SHOWN) {
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
    fn columns_count_characters_and_not_bytes() {
        let text = "a = 1\nä = \"ö\" # ü\n";
        let at = text.find("\"ö\"").unwrap();
        let fault = fault(text, at..at + 4);
        assert_eq!((fault.line, fault.column, fault.length), (2, 5, 3));
        assert_eq!(fault.to_string(), "2:5: x\n    ä = \"ö\" # ü\n        ^^^");
    }

    #[test]
    fn a_place_behind_the_end_or_over_several_lines_is_cut_to_a_line() {
        let behind = fault("a = 1\n\n", 7..7);
        assert_eq!((behind.line, behind.column, behind.length), (1, 6, 1));
        let long = fault("a = [\r\n1]", 4..9);
        assert_eq!((long.line, long.column, long.length, long.excerpt.as_str()), (1, 5, 1, "a = ["));
        assert_eq!(fault("", 0..0).line, 1);
    }

    #[test]
    fn of_long_lines_and_of_many_faults_a_part_is_shown() {
        let text = format!("{}\tyes{}", "x".repeat(3000), "z".repeat(3000));
        let shown = fault(&text, 3001..3004).to_string();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!((lines[0], lines[1].len()), ("1:3002: x", 4 + WIDEST), "{shown}");
        let at = lines[2].find('^').unwrap();
        assert_eq!((&lines[1][at..at + 3], &lines[2][at..]), ("yes", "^^^"), "{shown}");
        let many = Faults::new("f", &text, (0..30).map(|at| (at..at + 1, at.to_string())).collect());
        assert!(many.to_string().ends_with("\nf: and 10 more"), "{many}");
    }

    #[test]
    fn faults_stand_in_the_order_of_the_file() {
        let found = vec![(3..4, "b".to_owned()), (0..1, "a".to_owned()), (3..4, "b".to_owned())];
        let faults = Faults::new("f.toml", "x\n yz", found);
        assert_eq!(faults.to_string(), "f.toml:1:1: a\n    x\n    ^\nf.toml:2:2: b\n     yz\n     ^");
    }
}
