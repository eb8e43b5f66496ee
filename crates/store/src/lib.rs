//! Storage of studies: one SQLite file per study.
//!
//! A trial and its recording are added in one transaction, after the trial has ended. So after a crash, each trial is complete or
//! absent, and an interrupted trial is run again. Writers ([`Study::create`], [`Study::resume`]) hold the file's lock; readers
//! ([`Study::read`]) do not need it.

mod error;

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use beamtune_model::study::{StudyStore, Trial};
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use rustix::fs::{FlockOperation, flock};

pub use error::Error;

/// The file's `application_id`: `btst`. SQLite stores it at offset 68, where file(1) finds it.
pub const APPLICATION_ID: i64 = 0x6274_7374;

/// The file's `user_version`. It is increased if older versions of beamtune would misread newer files.
pub const FORMAT: i64 = 1;

/// How long a statement waits while a reader holds SQLite's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Key of the study's question. Its text is opaque to this crate.
const QUESTION: &str = "question";
/// Key of the beamtune version that created the study.
const WRITTEN_BY: &str = "written_by";

const SCHEMA: &str = include_str!("schema.sql");

/// An open study file.
#[derive(Debug)]
pub struct Study {
    connection: Connection,
    path: PathBuf,
    /// The locked file, for a writer. Closing it releases the lock.
    _lock: Option<File>,
}

impl Study {
    /// Creates a study in a new file.
    ///
    /// # Errors
    /// If the file already exists or cannot be created.
    pub fn create(path: &Path, question: &str) -> Result<Self, Error> {
        let lock = OpenOptions::new().read(true).write(true).create_new(true).open(path);
        let lock = lock.map_err(|error| Error::io(path, error))?;
        lock_file(path, &lock)?;
        let study = Study::open(path, OpenFlags::SQLITE_OPEN_READ_WRITE, Some(lock))?;
        let create = || {
            let transaction = study.connection.unchecked_transaction()?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", FORMAT)?;
            transaction.execute_batch(SCHEMA)?;
            let version = concat!("beamtune ", env!("CARGO_PKG_VERSION"));
            for (key, value) in [(QUESTION, question), (WRITTEN_BY, version)] {
                transaction.execute("INSERT INTO meta(key, value) VALUES (?1, ?2)", (key, value))?;
            }
            transaction.commit()
        };
        create().map_err(|error| study.error(error))?;
        Ok(study)
    }

    /// Opens a study to add trials to it.
    ///
    /// # Errors
    /// If the file is not a study or has a newer format, or another beamtune is adding trials to it.
    pub fn resume(path: &Path) -> Result<Self, Error> {
        let lock = OpenOptions::new().read(true).write(true).open(path);
        let lock = lock.map_err(|error| Error::io(path, error))?;
        lock_file(path, &lock)?;
        let study = Study::open(path, OpenFlags::SQLITE_OPEN_READ_WRITE, Some(lock))?;
        study.check_format()?;
        Ok(study)
    }

    /// Opens a study for reading, even while trials are added.
    ///
    /// # Errors
    /// If the file is not a study or has a newer format.
    pub fn read(path: &Path) -> Result<Self, Error> {
        File::open(path).map_err(|error| Error::io(path, error))?;
        let study = Study::open(path, OpenFlags::SQLITE_OPEN_READ_ONLY, None)?;
        study.check_format()?;
        Ok(study)
    }

    fn open(path: &Path, flags: OpenFlags, lock: Option<File>) -> Result<Self, Error> {
        let open = || {
            let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
            connection.busy_timeout(BUSY_TIMEOUT)?;
            Ok(connection)
        };
        let connection = open().map_err(|error| Error::sqlite(path, error))?;
        Ok(Study { connection, path: path.to_owned(), _lock: lock })
    }

    fn check_format(&self) -> Result<(), Error> {
        let pragma = |name: &str| {
            let number: rusqlite::Result<i64> =
                self.connection.pragma_query_value(None, name, |row| row.get(0));
            number.map_err(|error| self.error(error))
        };
        let path = || self.path.clone();
        if pragma("application_id")? != APPLICATION_ID {
            return Err(Error::NotAStudy {
                path: path(),
                what: "it is an SQLite file of another program".to_owned(),
            });
        }
        match pragma("user_version")? {
            FORMAT => Ok(()),
            found => Err(Error::NewerFormat { path: path(), found, by: self.meta(WRITTEN_BY)? }),
        }
    }

    /// Returns the question that was passed to [`Study::create`].
    pub fn question(&self) -> Result<String, Error> {
        self.meta(QUESTION)?.ok_or_else(|| Error::NotAStudy {
            path: self.path.clone(),
            what: "it has no question, because beamtune was stopped while creating it; remove it".to_owned(),
        })
    }

    /// Returns the version of beamtune that created the study, if it is recorded.
    pub fn written_by(&self) -> Result<Option<String>, Error> {
        self.meta(WRITTEN_BY)
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the recording of a trial as the bytes of a file. `None` if there is no such trial, or if it has no recording.
    /// Trials are numbered from 0.
    pub fn recording(&self, trial: usize) -> Result<Option<Vec<u8>>, Error> {
        let number = i64::try_from(trial).unwrap_or(i64::MAX);
        self.connection
            .query_row("SELECT recording FROM trial WHERE number = ?1", [number], |row| row.get(0))
            .optional()
            .map(Option::flatten)
            .map_err(|error| self.error(error))
    }

    fn meta(&self, key: &str) -> Result<Option<String>, Error> {
        self.connection
            .query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0))
            .optional()
            .map_err(|error| self.error(error))
    }

    fn error(&self, error: rusqlite::Error) -> Error {
        Error::sqlite(&self.path, error)
    }
}

impl StudyStore for Study {
    type Error = Error;

    fn add(&mut self, trial: &Trial, recording: Option<&[u8]>) -> Result<(), Error> {
        let text = serde_json::to_string(trial).map_err(|error| Error::Damaged {
            path: self.path.clone(),
            reason: format!("a trial cannot be written ({error})"),
        })?;
        let add = || {
            let transaction = self.connection.unchecked_transaction()?;
            transaction.execute(
                "INSERT INTO trial(number, content, recording) SELECT count(*), ?1, ?2 FROM trial",
                (&text, recording),
            )?;
            transaction.commit()
        };
        add().map_err(|error| self.error(error))
    }

    fn trials(&self) -> Result<Vec<Trial>, Error> {
        let read = || {
            let mut rows = self.connection.prepare("SELECT number, content FROM trial ORDER BY number")?;
            rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<rusqlite::Result<Vec<(i64, String)>>>()
        };
        let rows = read().map_err(|error| self.error(error))?;
        let trial = |(number, text): (i64, String)| {
            serde_json::from_str(&text).map_err(|error| Error::Damaged {
                path: self.path.clone(),
                reason: format!("trial {number}: {error}"),
            })
        };
        rows.into_iter().map(trial).collect()
    }
}

/// Takes an exclusive flock(2) on the file, independently of SQLite's own locks. The kernel releases it when the process ends.
fn lock_file(path: &Path, file: &File) -> Result<(), Error> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Locked { path: path.to_owned() }),
        Err(errno) => Err(Error::io(path, errno.into())),
    }
}

#[cfg(test)]
mod tests;
