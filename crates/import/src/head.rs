//! Parses the line of headings, which defines the columns of a table.

use crate::text::{Token, Tokens};

/// The content of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// The class; with swapped keys, a process or port; in a table of locations, all classes that were locked there.
    Name,
    /// The single lock; for a class, the number of its locks.
    Id,
    /// The kind of lock.
    Kind,
    /// The location: file and line of the emulator's source.
    Place,
    Tries,
    Collisions,
    /// Percentage of the tries.
    CollisionShare,
    /// Wait time, in microseconds.
    Time,
    /// Percentage of the duration.
    Duration,
    /// Marks that show the distribution of wait times; these are not counts.
    Histogram,
}

impl Column {
    /// Whether the column contains measured values; a table has at least one such column.
    fn is_measured(self) -> bool {
        !matches!(self, Column::Name | Column::Id | Column::Kind | Column::Place | Column::Histogram)
    }
}

/// The headings, without spaces.
const HEADINGS: [(Column, &str); 10] = [
    (Column::Name, "lock"),
    (Column::Id, "id"),
    (Column::Kind, "type"),
    (Column::Place, "location"),
    (Column::Tries, "#tries"),
    (Column::Collisions, "#collisions"),
    (Column::CollisionShare, "collisions[%]"),
    (Column::Time, "time[us]"),
    (Column::Duration, "duration[%]"),
    (Column::Histogram, "histogram[log2(us)]"),
];

/// A line of headings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub columns: Vec<Column>,
    /// End of each heading, in characters from the beginning of the line, which is also the end of its column. Empty if the headings are on
    /// several lines.
    pub ends: Vec<usize>,
    /// Number of words.
    pub words: usize,
}

/// Reads headings at the current word; `None` for other text.
pub fn read(tokens: &mut Tokens<'_>) -> Option<Head> {
    let first = tokens.peek(0)?;
    // Most words are rejected here.
    if !HEADINGS.iter().any(|(_, heading)| first.text.get(..2) == heading.get(..2)) {
        return None;
    }
    let (mut columns, mut ends) = (Vec::new(), Vec::new());
    let mut at = (0, 0);
    let mut in_line = true;
    while let Some((column, after, last)) = HEADINGS.iter().find_map(|(column, heading)| {
        let follows = !columns.contains(column);
        follows
            .then(|| match_heading(tokens, at, heading))
            .flatten()
            .map(|(after, last)| (*column, after, last))
    }) {
        in_line &= last.0.line == first.line;
        columns.push(column);
        ends.push(last.0.column - 1 + last.1);
        at = after;
    }
    // A word that continues after the heading is not a heading, unless it continues with the dashes of the next line.
    if at.1 > 0 {
        let rest = tokens.peek(at.0)?.text.get(at.1..)?;
        if !is_divider(rest) {
            return None;
        }
        at = (at.0 + 1, 0);
    }
    let is_table = columns.len() >= 2 && columns.iter().any(|column| column.is_measured());
    is_table.then(|| Head { columns, ends: if in_line { ends } else { Vec::new() }, words: at.0 })
}

/// Whether the word is a part of the line of dashes below the headings.
pub fn is_divider(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte == b'-')
}

/// A position: number of words after the current one, and bytes within that word.
type Place = (usize, usize);

/// Matches a heading at `begin`. Returns the position after it, and its last word with the number of bytes up to the end of the heading.
fn match_heading<'a>(
    tokens: &mut Tokens<'a>,
    begin: Place,
    heading: &str,
) -> Option<(Place, (Token<'a>, usize))> {
    let (mut word, mut byte) = begin;
    let mut last = None;
    for wanted in heading.bytes() {
        let token = tokens.peek(word)?;
        if token.text.as_bytes().get(byte) != Some(&wanted) {
            return None;
        }
        byte += 1;
        last = Some((token, byte));
        if byte == token.text.len() {
            (word, byte) = (word + 1, 0);
        }
    }
    Some(((word, byte), last?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Column::*;

    fn check(text: &str, expect: Option<&[Column]>) {
        let head = read(&mut Tokens::new(text));
        assert_eq!(head.as_ref().map(|head| head.columns.as_slice()), expect, "{text}");
    }

    #[test]
    fn headings_are_found_with_or_without_spaces() {
        let all = [Name, Id, Tries, Collisions, CollisionShare, Time, Duration];
        let usual = "      lock   id  #tries  #collisions  collisions [%]  time [us]  duration [%]\n";
        check(usual, Some(&all));
        check("lock id #tries #collisions collisions\n[%] time [us] duration [%] run_queue 10", Some(&all));
        check("lockid#tries#collisionscollisions [%]time [us]duration [%]", Some(&all));
        check("lockid#tries#collisionscollisions [%]time [us]duration [%]---- ---", Some(&all));
        check("lock\u{a0}id\u{a0}#tries", Some(&[Name, Id, Tries]));
        let places = [Place, Tries, Time, Histogram];
        check("location #tries time [us] histogram [log2(us)]", Some(&places));
        check("lock type #collisions", Some(&[Name, Kind, Collisions]));
    }

    #[test]
    fn similar_words_are_not_headings() {
        check("lock id", None);
        check("lock identity #tries", None);
        check("time [us]", None);
        check("the lock id #tries", None);
        check("loc i #tr", None);
        check("", None);
    }

    #[test]
    fn a_column_ends_at_the_end_of_its_heading() {
        let head = read(&mut Tokens::new("  lock   id  time [us]")).expect("headings");
        assert_eq!(head.ends, [6, 11, 22]);
        assert_eq!(head.words, 4);
        let broken = read(&mut Tokens::new("  lock   id  time\n[us]")).expect("headings");
        assert!(broken.ends.is_empty());
    }
}
