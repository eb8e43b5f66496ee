//! Errors that concern the recording file. Failures to measure something are not errors but data: gaps.

use std::io;
use std::path::{Path, PathBuf};

use beamtune_model::Nanos;
use rusqlite::ErrorCode;

use crate::schema::FORMAT;

/// Predicate of [`Error::NotARecording`] for a file that is not an SQLite database, with the command that may read it.
pub(crate) const NOT_SQLITE: &str = "is not an SQLite database; beamtune import reads text and crash dumps";

/// Why a recording cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file exists and must not be replaced.
    #[error("{} already exists: choose another name, or remove it", .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Another process is recording to the file.
    #[error("{} is being recorded by another beamtune: choose another name, or stop that one", .path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a recording.
    #[error("{} is not a recording: it {what}", .path.display())]
    NotARecording {
        /// The file.
        path: PathBuf,
        /// What it is instead, as a predicate: `is empty`.
        what: String,
    },
    /// The file has a format that this version cannot read.
    #[error("{} was written by a newer beamtune{}: upgrade beamtune (file format {found}, this version reads {FORMAT})",
        .path.display(), .by.as_ref().map(|by| format!(" ({by})")).unwrap_or_default())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Format of the file.
        found: i64,
        /// The version of beamtune that wrote the file, if known.
        by: Option<String>,
    },
    /// The file is truncated so early that nothing can be read.
    #[error("{} is truncated: {missing_bytes} bytes are missing, and the rest is unreadable; \
        copy it again from its origin", .path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Size according to its header minus actual size.
        missing_bytes: u64,
    },
    /// The file is damaged so badly that nothing can be read.
    #[error("{} is damaged and unreadable ({reason}); copy it again from its origin",
        .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// The disk is full.
    #[error("{}: the disk is full; earlier samples stay readable; free space, or record elsewhere with -o",
        .path.display())]
    DiskFull {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a ring that can be continued with this node.
    #[error("{} cannot be continued: {why}; choose another file with -o, or move this one away", .path.display())]
    CannotContinue {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A ring is too small for its current segment of five minutes.
    #[error("{}: {max_bytes} bytes are not enough for five minutes of this node: use a larger --max-size", .path.display())]
    RingTooSmall {
        /// The file.
        path: PathBuf,
        /// Maximum size of the ring.
        max_bytes: u64,
    },
    /// The log of a ring is full, and cannot be restarted because of a reader.
    #[error("{}: its log is full because another program reads the file; samples are lost until that program closes it",
        .path.display())]
    BlockedByReader {
        /// The file.
        path: PathBuf,
    },
    /// An error of the operating system.
    #[error("{}: {why}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error; part of the message, so it is not the source.
        why: io::Error,
    },
    /// An error of SQLite.
    #[error("{}: {source}", .path.display())]
    Sqlite {
        /// The file; `:memory:` if there is no file.
        path: PathBuf,
        /// The error.
        source: rusqlite::Error,
    },
    /// The samples are not in order.
    #[error(
        "a sample at {t} ns of incarnation {incarnation} cannot follow one at {last_t} ns of {last_incarnation}"
    )]
    OutOfOrder {
        /// Instant of the sample.
        t: Nanos,
        /// Incarnation of the sample.
        incarnation: u32,
        /// Instant of the previous sample.
        last_t: Nanos,
        /// Incarnation of the previous sample.
        last_incarnation: u32,
    },
    /// The series of a reading is not in the table of series, or the table has fewer series than before.
    #[error("the readings of the sample do not belong to the table of series")]
    ForeignSeries,
    /// A sample exceeds a limit of the format.
    #[error("a sample has {count} {what}, more than the recording format allows")]
    Oversized {
        /// Plural noun of the items.
        what: &'static str,
        /// Number of items.
        count: usize,
    },
    /// The recording has no such incarnation.
    #[error("the recording has no incarnation {requested}, only {known:?}")]
    NoSuchIncarnation {
        /// The requested incarnation.
        requested: u32,
        /// The recorded incarnations.
        known: Vec<u32>,
    },
}

impl Error {
    /// Converts an error of SQLite. Errors that users can do something about become separate variants.
    pub(crate) fn sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match code(&source) {
            Some(ErrorCode::DiskFull) => Error::DiskFull { path },
            Some(ErrorCode::DatabaseCorrupt) => Error::Damaged { path, reason: source.to_string() },
            Some(ErrorCode::NotADatabase) => Error::NotARecording { path, what: NOT_SQLITE.to_owned() },
            _ => Error::Sqlite { path, source },
        }
    }

    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull => Error::DiskFull { path: path.to_owned() },
            _ => Error::Io { path: path.to_owned(), why: plain(source) },
        }
    }
}

/// Removes the path that the crate tempfile adds to its errors: the name of a temporary file means nothing to a user.
fn plain(error: io::Error) -> io::Error {
    if error.raw_os_error().is_some() { error } else { error.kind().into() }
}

/// SQLite's code of an error, if any.
pub(crate) fn code(error: &rusqlite::Error) -> Option<ErrorCode> {
    error.sqlite_error_code()
}
