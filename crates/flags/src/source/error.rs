//! Errors in files, with their positions.

use std::fmt;

use thiserror::Error;

use super::lines::{characters_in, line_begin};

/// A position in a text.
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

/// The reason why a file could not be read or changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SourceError {
    /// The file contains a NUL byte.
    #[error("{at}: a NUL byte: not a text file (erl silently drops the rest of an args file)")]
    Binary {
        /// The position of the first NUL byte.
        at: Position,
    },
    /// The file is not valid UTF-8.
    #[error("{at}: invalid UTF-8: save the file as UTF-8")]
    NotUtf8 {
        /// The position of the first invalid byte.
        at: Position,
    },
    /// The file is too large for a file with flags.
    #[error("the file has {bytes} bytes, but the limit is {limit}; check that it is the right file")]
    TooLarge {
        /// The size of the file.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A quote is never closed.
    #[error("{at}: this {quote} is never closed, so {effect}; close it, or put a backslash before it")]
    UnclosedQuote {
        /// The position of the opening quote.
        at: Position,
        /// The quote character.
        quote: char,
        /// How the program that reads the file reacts.
        effect: &'static str,
    },
    /// A template tag or `${` is never closed.
    #[error("{at}: `{tag}` is never closed")]
    UnclosedTag {
        /// The start of the tag.
        at: Position,
        /// The opening delimiter.
        tag: String,
    },
    /// A tag belongs to a different kind of template.
    #[error("{at}: `{tag}` belongs to another kind of template than {expected}; {advice}")]
    UnknownTag {
        /// The start of the tag.
        at: Position,
        /// The opening delimiter.
        tag: String,
        /// The kind of template as which the file is parsed.
        expected: &'static str,
        /// How the user can proceed.
        advice: &'static str,
    },
    /// The file cannot be checked: it is not plain YAML, or uses syntax that is not supported.
    #[error("{at}: not checked: {reason}")]
    NotJudged {
        /// The position of the unsupported syntax.
        at: Position,
        /// The reason, and how the user can proceed.
        reason: String,
    },
    /// A change cannot be written at this position.
    #[error("{at}: {text:?} cannot be written here: {reason}")]
    CannotWrite {
        /// The position of the word to change.
        at: Position,
        /// The text to write.
        text: String,
        /// The reason.
        reason: &'static str,
    },
}

impl SourceError {
    /// Whether the file may be valid, but uses syntax that is not supported. All other errors are mistakes in the file.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, SourceError::NotJudged { .. })
    }

    /// Returns the position of the error, if it has one.
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
