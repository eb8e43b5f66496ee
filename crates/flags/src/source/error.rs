//! Errors of files, with their places.

use std::fmt;

use thiserror::Error;

use super::lines::{characters_in, line_begin};

/// A place in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The byte offset, from 0.
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

/// Why a file could not be read or changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SourceError {
    /// The file contains a NUL byte.
    #[error("{at}: a NUL byte: not a text file (erl silently drops the rest of an args file)")]
    Binary {
        /// The first one.
        at: Position,
    },
    /// The file is not valid UTF-8.
    #[error("{at}: bytes that are not UTF-8: save the file as UTF-8")]
    NotUtf8 {
        /// The first such byte.
        at: Position,
    },
    /// The file is too large for a file with flags.
    #[error("the file has {bytes} bytes, but at most {limit} are read; check that it is the right file")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A quote that is never closed.
    #[error("{at}: this {quote} is never closed, so {effect}; close it, or put a backslash before it")]
    UnclosedQuote {
        /// The place of the quote.
        at: Position,
        /// The character.
        quote: char,
        /// What the program that reads the file does.
        effect: &'static str,
    },
    /// A template tag or `${` that is never closed.
    #[error("{at}: `{tag}` is never closed")]
    UnclosedTag {
        /// The start of the tag.
        at: Position,
        /// The opening delimiter.
        tag: String,
    },
    /// A tag of a different kind of template.
    #[error("{at}: `{tag}` belongs to another kind of template than {expected}; {advice}")]
    UnknownTag {
        /// The start of the tag.
        at: Position,
        /// The opening delimiter.
        tag: String,
        /// The kind of template that the file is read as.
        expected: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// The file cannot be judged: it is not plain YAML, or uses syntax that is not supported.
    #[error("{at}: not judged: {reason}")]
    NotJudged {
        /// The place.
        at: Position,
        /// The reason, and what to do.
        reason: String,
    },
    /// A change that cannot be written at this place.
    #[error("{at}: {text:?} cannot be written here: {reason}")]
    CannotWrite {
        /// The word to change.
        at: Position,
        /// The text to write.
        text: String,
        /// The reason.
        reason: &'static str,
    },
}

impl SourceError {
    /// Whether the file may be valid but uses syntax that is not supported. All other errors are faults of the file.
    pub fn is_not_judged(&self) -> bool {
        matches!(self, SourceError::NotJudged { .. })
    }

    /// The place of the error, if it has one.
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
