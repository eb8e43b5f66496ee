//! What can go wrong with a study as a file.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use crate::FORMAT;

/// Why a study cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is a file of that name.
    #[error("{path} exists already: go on with it by beamtune study resume {path}, or choose another name", path = .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Another beamtune adds trials to it.
    #[error("{} is being worked on by another beamtune: wait for it or stop it first", .path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("no study: {} {what}", .path.display())]
    NotAStudy {
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
    /// What stands in it cannot be read.
    #[error("{} is damaged ({reason}); copy it again from where it was written", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// No room to write.
    #[error("{path}: the disk is full; all trials up to the last one are kept: make room, then beamtune study resume {path}", path = .path.display())]
    DiskFull {
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
        /// The file.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
}

impl Error {
    /// An error of SQLite, told apart as far as it matters to the user.
    pub(crate) fn sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Error::DiskFull { path },
            Some(ErrorCode::DatabaseCorrupt) => Error::Damaged { path, reason: source.to_string() },
            Some(ErrorCode::NotADatabase) => {
                Error::NotAStudy { path, what: "is another kind of file".to_owned() }
            }
            _ => Error::Sqlite { path, source },
        }
    }

    pub(crate) fn io(path: &Path, why: io::Error) -> Self {
        let path = path.to_owned();
        match why.kind() {
            io::ErrorKind::StorageFull => Error::DiskFull { path },
            io::ErrorKind::AlreadyExists => Error::Exists { path },
            _ => Error::Io { path, why },
        }
    }
}
