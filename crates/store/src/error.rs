//! Errors of study files.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use crate::FORMAT;

/// Why a study cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file with this name already exists.
    #[error("{path} already exists: continue it with beamtune study resume {path}, or choose another name", path = .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Another beamtune is adding trials to the study.
    #[error("{} is in use by another beamtune: wait for it, or stop it", .path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a study.
    #[error("{} is not a study: {what}", .path.display())]
    NotAStudy {
        /// The file.
        path: PathBuf,
        /// Why not.
        what: String,
    },
    /// The file has a format that this version does not know.
    #[error("{} was written by a newer beamtune{}: upgrade (its format is {found}, this version reads {FORMAT})",
        .path.display(), .by.as_ref().map(|by| format!(" ({by})")).unwrap_or_default())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The version that wrote it, if it is recorded.
        by: Option<String>,
    },
    /// The content of the file cannot be read.
    #[error("{} is damaged ({reason}); copy it again from where it was written", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The disk is full.
    #[error("{path}: the disk is full; all earlier trials are kept: free some space, then run beamtune study resume {path}", path = .path.display())]
    DiskFull {
        /// The file.
        path: PathBuf,
    },
    /// An error of the operating system.
    #[error("{}: {why}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason. It is not named `source`, because the message includes it.
        why: io::Error,
    },
    /// Any other error of SQLite.
    #[error("{}: {source}", .path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: rusqlite::Error,
    },
}

impl Error {
    /// Classifies an SQLite error by the advice that it needs.
    pub(crate) fn sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Error::DiskFull { path },
            Some(ErrorCode::DatabaseCorrupt) => Error::Damaged { path, reason: source.to_string() },
            Some(ErrorCode::NotADatabase) => {
                Error::NotAStudy { path, what: "it is not an SQLite database".to_owned() }
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
