//! What can go wrong with a recording as a file. Trouble with what is recorded is not here: it is data, a gap.

use std::io;
use std::path::{Path, PathBuf};

use beamtune_model::Nanos;
use rusqlite::ErrorCode;

use crate::schema::FORMAT;

/// Why a recording cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is a file of that name, and nobody asked to replace it.
    #[error("{} exists already: choose another name, or remove it first", .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Another process records into the file.
    #[error("{} is being recorded by another beamtune: choose another name, or stop that one first", .path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The file is something else, or nothing.
    #[error("no recording: {} {what}", .path.display())]
    NotARecording {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        what: String,
    },
    /// The file has a format that this version does not know.
    #[error("{} was written by a newer beamtune{}: upgrade (it has format {found}, this version reads {FORMAT})",
        .path.display(), .by.as_ref().map(|by| format!(" ({by})")).unwrap_or_default())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The version that wrote it, if it says so.
        by: Option<String>,
    },
    /// The file is cut off so early that nothing in it can be read.
    #[error("{} is truncated: {missing_bytes} bytes are missing, and nothing of what is left can be read; \
        copy it again from where it was recorded", .path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// By how much it is shorter than it says.
        missing_bytes: u64,
    },
    /// The file is damaged so badly that nothing in it can be read.
    #[error("{} is damaged and nothing in it can be read ({reason}); copy it again from where it was recorded",
        .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// No room to write.
    #[error("{}: the disk is full; what was recorded before stays readable; make room, or record elsewhere with -o",
        .path.display())]
    DiskFull {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a ring that this recording can go on in.
    #[error("{} cannot be continued: {why}; choose another file with -o, or move this one away", .path.display())]
    CannotContinue {
        /// The file.
        path: PathBuf,
        /// What it is.
        why: String,
    },
    /// A ring has no room for a sample even when it holds nothing else.
    #[error("{}: {max_bytes} bytes are too few for five minutes of this node: use a larger --max-size", .path.display())]
    RingTooSmall {
        /// The file.
        path: PathBuf,
        /// The size that it may have.
        max_bytes: u64,
    },
    /// The log of a ring is full, and cannot be begun anew because somebody is reading it.
    #[error("{}: somebody has been reading it for so long that its log is full; samples are lost until they end",
        .path.display())]
    HeldByReader {
        /// The file.
        path: PathBuf,
    },
    /// The operating system refuses.
    #[error("{}: {why}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Its reason, which stands in the message already.
        why: io::Error,
    },
    /// SQLite refuses.
    #[error("{}: {source}", .path.display())]
    Sqlite {
        /// The file; `:memory:` for none.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
    /// The samples do not follow one another.
    #[error(
        "a sample at {t} ns of incarnation {incarnation} cannot follow one at {last_t} ns of {last_incarnation}"
    )]
    OutOfOrder {
        /// The sample's instant.
        t: Nanos,
        /// The sample's incarnation.
        incarnation: u32,
        /// The instant of the one before.
        last_t: Nanos,
        /// The incarnation of the one before.
        last_incarnation: u32,
    },
    /// A reading's series is not in the table, or the table is another one than before.
    #[error("the sample's readings do not belong to the table of series")]
    ForeignSeries,
    /// A sample with more of something than the format can hold.
    #[error("a sample holds {count} {what}, more than a recording can hold")]
    Oversized {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
    },
    /// The recording has no such life of the VM.
    #[error("there is no incarnation {asked} in the recording; it has {known:?}")]
    NoSuchIncarnation {
        /// The one asked for.
        asked: u32,
        /// Those that are there.
        known: Vec<u32>,
    },
}

impl Error {
    /// An error of SQLite, told apart as far as it matters to the user.
    pub(crate) fn sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match code(&source) {
            Some(ErrorCode::DiskFull) => Error::DiskFull { path },
            Some(ErrorCode::DatabaseCorrupt) => Error::Damaged { path, reason: source.to_string() },
            Some(ErrorCode::NotADatabase) => {
                Error::NotARecording { path, what: "is not an SQLite database".to_owned() }
            }
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

/// Without the path that the crate tempfile puts into its errors, since that is of a file which nobody knows.
fn plain(error: io::Error) -> io::Error {
    if error.raw_os_error().is_some() { error } else { error.kind().into() }
}

/// SQLite's code of an error, if it has one.
pub(crate) fn code(error: &rusqlite::Error) -> Option<ErrorCode> {
    error.sqlite_error_code()
}
