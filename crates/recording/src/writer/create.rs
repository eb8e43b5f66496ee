//! Creating the file atomically, with a lock against other writers.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::error::Error;
use crate::schema;

/// What to do if the file exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Fail with [`Error::Exists`].
    Refuse,
    /// Replace it, unless it is still being recorded.
    Replace,
}

/// How long a statement waits for a lock of a reader.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// Suffixes of the files that SQLite keeps next to a database.
const SIDECARS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Creates an empty recording and opens it. The returned file has the lock that excludes other writers. It must be closed after the
/// connection, because closing any handle of a file releases all POSIX locks on it, including those of SQLite.
///
/// `extra` is called before the file becomes visible.
pub(super) fn create(
    path: &Path,
    existing: Existing,
    extra: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> Result<(Connection, File), Error> {
    let at = |error| Error::io(path, error);
    let old = match existing {
        Existing::Refuse if fs::symlink_metadata(path).is_ok() => {
            return Err(Error::Exists { path: path.to_owned() });
        }
        Existing::Refuse => None,
        Existing::Replace => lock_old(path)?,
    };

    // The file is created under a temporary name and renamed, so that nobody sees an incomplete file.
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".beamtune-").suffix(".new");
    // The same permissions as for any output file: the umask is applied.
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    // Checked first, because the error of the crate tempfile has no details if the directory is missing.
    fs::metadata(directory).map_err(at)?;
    let file = builder.tempfile_in(directory).map_err(at)?;
    lock(file.as_file(), path)?;
    prepare(file.path(), extra).map_err(|error| Error::sqlite(path, error))?;
    let kept = match existing {
        Existing::Refuse => file.persist_noclobber(path),
        Existing::Replace => {
            remove_sidecars(path).map_err(at)?;
            file.persist(path)
        }
    };
    let lock = kept.map_err(|error| match error.error.kind() {
        io::ErrorKind::AlreadyExists => Error::Exists { path: path.to_owned() },
        _ => Error::io(path, error.error),
    })?;
    drop(old);
    // Sidecars of a removed recording would be taken for parts of this one.
    remove_sidecars(path).map_err(at)?;
    let connection = open(path).map_err(|error| Error::sqlite(path, error))?;
    Ok((connection, lock))
}

/// Locks a file that is to be replaced or continued; `None` if it does not exist. Fails while another process is writing to it.
pub(super) fn lock_old(path: &Path) -> Result<Option<File>, Error> {
    match File::open(path) {
        Ok(file) => {
            if !file.metadata().map_err(|error| Error::io(path, error))?.is_file() {
                return Err(Error::Exists { path: path.to_owned() });
            }
            lock(&file, path)?;
            Ok(Some(file))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(path, error)),
    }
}

fn lock(file: &File, path: &Path) -> Result<(), Error> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => Error::Locked { path: path.to_owned() },
        TryLockError::Error(error) => Error::io(path, error),
    })
}

fn prepare(path: &Path, extra: impl FnOnce(&Connection) -> rusqlite::Result<()>) -> rusqlite::Result<()> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    schema::create(&connection)?;
    extra(&connection)?;
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection.close().map_err(|(_, error)| error)
}

/// Opens a recording for writing, even if it was finished.
pub(super) fn open(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    // Checkpoints are made once a minute, not automatically within a transaction.
    connection.query_row("PRAGMA wal_autocheckpoint = 0", [], |_| Ok(()))?;
    Ok(connection)
}

fn remove_sidecars(path: &Path) -> io::Result<()> {
    for sidecar in SIDECARS {
        match fs::remove_file(sidecar_path(path, sidecar)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Path of a file that SQLite keeps next to a database.
pub(crate) fn sidecar_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
