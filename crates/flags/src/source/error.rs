//! What can be wrong with a file, and a place in it.

use std::fmt;

use thiserror::Error;

use super::lines::{characters_in, line_begin};

/// A place in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The byte, from 0.
    pub offset: usize,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

impl Position {
    pub(crate) fn of(text: &str, offset: usize) -> Position {
        let before = &text.as_bytes()[..offset.min(text.len())];
        let begin = line_begin(text, before.len());
        let characters = characters_in(&before[begin..]);
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        Position { offset: before.len(), line, column: characters + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Why a file could not be read, or not be changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SourceError {
    /// It holds a NUL byte.
    #[error(
        "{at}: a NUL byte: this is no text file (erl would drop the rest of an args file without a word)"
    )]
    Binary {
        /// The first one.
        at: Position,
    },
    /// It is not encoded in UTF-8.
    #[error("{at}: bytes that are not UTF-8: save the file as UTF-8")]
    NotUtf8 {
        /// The first such byte.
        at: Position,
    },
    /// It is too large to be what it seems.
    #[error("{bytes} bytes are more than the {limit} that a file with flags may have: is it the right file?")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The longest that is read.
        limit: usize,
    },
    /// A quote without its counterpart.
    #[error("{at}: this {quote} is never closed, so {effect}: close it, or write a backslash before it")]
    UnclosedQuote {
        /// The quote.
        at: Position,
        /// The character.
        quote: char,
        /// What the program that reads the file makes of it.
        effect: &'static str,
    },
    /// A tag of a template, or `${`, without its end.
    #[error("{at}: `{tag}` is never closed")]
    UnclosedTag {
        /// Its begin.
        at: Position,
        /// What it begins with.
        tag: String,
    },
    /// A tag that this kind of template does not have.
    #[error("{at}: `{tag}` belongs to another kind of template than {expected}; {advice}")]
    UnknownTag {
        /// Its begin.
        at: Position,
        /// What it begins with.
        tag: String,
        /// The kind of template that the file is read as.
        expected: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// The file can not be judged: it is not plain YAML, or is written in a way that we do not follow.
    #[error("{at}: not judged: {reason}")]
    NotJudged {
        /// Where.
        at: Position,
        /// Why, and what to do.
        reason: String,
    },
    /// A change that can not be written at this place.
    #[error("{at}: {text:?} cannot be written here: {reason}")]
    CannotWrite {
        /// The word that was to be changed.
        at: Position,
        /// What was to be written.
        text: String,
        /// Why.
        reason: &'static str,
    },
}

impl SourceError {
    /// Whether the file may well be right, but is written in a way that we do not follow; all others are faults of the
    /// file.
    pub fn is_not_judged(&self) -> bool {
        matches!(self, SourceError::NotJudged { .. })
    }

    /// Where, if it is about a place.
    pub fn position(&self) -> Option<Position> {
        match self {
            SourceError::TooLarge { .. } => None,
            SourceError::Binary { at }
            | SourceError::NotUtf8 { at }
            | SourceError::UnclosedQuote { at, .. }
            | SourceError::UnclosedTag { at, .. }
            | SourceError::UnknownTag { at, .. }
            | SourceError::NotJudged { at, .. }
            | SourceError::CannotWrite { at, .. } => Some(*at),
        }
    }
}
