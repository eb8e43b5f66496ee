//! The line of headings, which says what the columns hold.

use crate::text::{Token, Tokens};

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// The class, or, once keys were swapped, a process or port. In a table of places all classes that were taken there.
    Name,
    /// The single lock; of a class, how many locks it has.
    Id,
    /// The kind of lock.
    Kind,
    /// File and line of the emulator's source.
    Place,
    Tries,
    Collisions,
    /// Percent of the tries.
    CollisionShare,
    /// Time waited, in microseconds.
    Time,
    /// Percent of the duration.
    Duration,
    /// Marks for the shares of waits by their length. They are no counts.
    Histogram,
}

impl Column {
    /// The least that makes a table: something was measured.
    fn is_measured(self) -> bool {
        !matches!(self, Column::Name | Column::Id | Column::Kind | Column::Place | Column::Histogram)
    }
}

/// The headings, without their spaces.
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
    /// Characters in the line up to the end of each heading, which is where its column ends; empty where they do not stand in one line.
    pub ends: Vec<usize>,
    /// Words that it takes.
    pub words: usize,
}

/// Reads the headings that begin here; `None` if there are none.
pub fn read(tokens: &mut Tokens<'_>) -> Option<Head> {
    let first = tokens.peek(0)?;
    // Most words are none, and are passed by at once.
    if !HEADINGS.iter().any(|(_, heading)| first.text.get(..2) == heading.get(..2)) {
        return None;
    }
    let (mut columns, mut ends) = (Vec::new(), Vec::new());
    let mut at = (0, 0);
    let mut in_line = true;
    while let Some((column, behind, last)) = HEADINGS.iter().find_map(|(column, heading)| {
        let follows = !columns.contains(column);
        follows.then(|| follow(tokens, at, heading)).flatten().map(|(behind, last)| (*column, behind, last))
    }) {
        in_line &= last.0.line == first.line;
        columns.push(column);
        ends.push(last.0.column - 1 + last.1);
        at = behind;
    }
    // A word that goes on is none, but for the dashes of the line below.
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

/// A part of the line below the headings.
pub fn is_divider(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte == b'-')
}

/// A place: so many words on, and so many bytes in that word.
type Place = (usize, usize);

/// Where a heading ends that begins at a place, and the word in which its last letter stands, with the bytes up to there.
fn follow<'a>(tokens: &mut Tokens<'a>, begin: Place, heading: &str) -> Option<(Place, (Token<'a>, usize))> {
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
    fn headings_are_found_however_they_are_spaced() {
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
    fn words_that_only_look_so_are_none() {
        check("lock id", None);
        check("lock identity #tries", None);
        check("time [us]", None);
        check("the lock id #tries", None);
        check("loc i #tr", None);
        check("", None);
    }

    #[test]
    fn columns_end_where_their_headings_end() {
        let head = read(&mut Tokens::new("  lock   id  time [us]")).expect("headings");
        assert_eq!(head.ends, [6, 11, 22]);
        assert_eq!(head.words, 4);
        let broken = read(&mut Tokens::new("  lock   id  time\n[us]")).expect("headings");
        assert!(broken.ends.is_empty());
    }
}
