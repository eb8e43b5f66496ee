//! Opening a recording in any state, or identifying a file that is not a recording.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::{Error, NOT_SQLITE, code};
use crate::schema::{self, APPLICATION_ID, FORMAT, meta};
use crate::writer::sidecar_path;

/// How long a statement waits for a lock, which a writer takes when it finishes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum size of a value. SQLite's default is a gigabyte, more than a reader should have to allocate.
const MAX_VALUE_BYTES: i32 = 256 << 20;

pub(super) struct Opened {
    pub connection: Connection,
    /// If the file is truncated: number of missing bytes.
    pub missing_bytes: Option<u64>,
}

/// How SQLite accesses a file.
#[derive(Debug, Clone, Copy)]
enum Access {
    /// With locks: there is a log, so another process may be writing.
    Shared,
    /// Without locks and shared memory: there is a log, but no file can be created next to it (read-only directory).
    Unlocked,
    /// As an immutable file: there is no log, so no process is writing.
    Immutable,
}

pub(super) fn open(path: &Path) -> Result<Opened, Error> {
    let file = fs::metadata(path).map_err(|error| Error::io(path, error))?;
    let not_a_recording = |what: &str| Error::NotARecording { path: path.to_owned(), what: what.to_owned() };
    if !file.is_file() {
        return Err(not_a_recording("is not a regular file"));
    }
    if file.len() == 0 {
        return Err(not_a_recording("is empty"));
    }
    // SQLite would treat very short files as empty databases.
    if file.len() < MIN_PAGE_BYTES {
        return Err(not_a_recording(other_kind(&header(path)?)));
    }
    let accesses: &[Access] = if sidecar_path(path, "-wal").exists() {
        &[Access::Shared, Access::Unlocked]
    } else {
        &[Access::Immutable]
    };
    let mut refused = None;
    for &access in accesses {
        match connect(path, access, false) {
            Ok(connection) => {
                check_format(path, &connection)?;
                // SQLite accepts a file whose last page is incomplete.
                let missing_bytes = match access {
                    Access::Immutable => missing_bytes(&connection, file.len()),
                    Access::Shared | Access::Unlocked => None,
                };
                return Ok(Opened { connection, missing_bytes });
            }
            Err(error) => match code(&error) {
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                    return salvage(path, access, &error);
                }
                Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::SystemIoFailure) => {
                    refused = Some(error);
                }
                _ => return Err(Error::sqlite(path, error)),
            },
        }
    }
    // The error of the operating system is more precise than SQLite's.
    File::open(path).map_err(|error| Error::io(path, error))?;
    Err(refused.map_or_else(|| not_a_recording("cannot be opened"), |error| Error::sqlite(path, error)))
}

fn connect(path: &Path, access: Access, salvage: bool) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = match access {
        Access::Shared => Connection::open_with_flags(path, flags)?,
        Access::Unlocked => Connection::open_with_flags_and_vfs(path, flags, c"unix-none")?,
        Access::Immutable => {
            Connection::open_with_flags(immutable_uri(path), flags | OpenFlags::SQLITE_OPEN_URI)?
        }
    };
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)?;
    if matches!(access, Access::Unlocked) {
        // SQLite then keeps the index of the log in private memory instead of a file.
        connection.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(()))?;
    }
    if salvage {
        // Without this, SQLite rejects a file that is shorter than its header states.
        connection.pragma_update(None, "writable_schema", true)?;
    }
    // SQL in the file is untrusted.
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "query_only", true)?;
    // Reads the first page, so that errors are reported now.
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(connection)
}

/// Number of bytes by which a file is shorter than its page count requires.
fn missing_bytes(connection: &Connection, size: u64) -> Option<u64> {
    let number = |pragma| connection.query_row(pragma, [], |row| row.get::<_, u32>(0)).ok();
    let expected = u64::from(number("PRAGMA page_count")?) * u64::from(number("PRAGMA page_size")?);
    expected.checked_sub(size).filter(|missing| *missing > 0)
}

/// The URI by which SQLite opens a file as immutable.
fn immutable_uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => uri.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => uri.push(byte.into()),
            _ => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri + "?immutable=1"
}

/// Checks that the database is a recording in a supported format, with all required tables.
fn check_format(path: &Path, connection: &Connection) -> Result<(), Error> {
    let at = |error| Error::sqlite(path, error);
    let number = |pragma| connection.query_row(pragma, [], |row| row.get::<_, i64>(0)).map_err(at);
    if number("PRAGMA application_id")? != APPLICATION_ID {
        return Err(Error::NotARecording {
            path: path.to_owned(),
            what: "is an SQLite database of another application".to_owned(),
        });
    }
    let found = number("PRAGMA user_version")?;
    if found != FORMAT {
        let sql = "SELECT value FROM meta WHERE key = ?1";
        let by = connection.query_row(sql, [meta::WRITTEN_BY], |row| row.get(0)).ok();
        return Err(Error::NewerFormat { path: path.to_owned(), found, by });
    }
    let tables = tables(connection).map_err(at)?;
    match schema::required_tables().find(|name| !tables.iter().any(|table| table == name)) {
        Some(name) => {
            let reason = format!("the table {name} is missing");
            Err(Error::Damaged { path: path.to_owned(), reason })
        }
        None => Ok(()),
    }
}

/// Returns the names of all tables. Views and virtual tables are excluded: in a hostile file, reading them might never end.
pub(super) fn tables(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'";
    connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
}

/// Handles a file that SQLite rejects: identifies its kind, or opens the readable part of a truncated recording.
fn salvage(path: &Path, access: Access, why: &rusqlite::Error) -> Result<Opened, Error> {
    let header = header(path)?;
    let size = fs::metadata(path).map_err(|error| Error::io(path, error))?.len();
    let Some(expected) = expected_size(&header) else {
        return Err(Error::NotARecording { path: path.to_owned(), what: other_kind(&header).to_owned() });
    };
    let ours = header.get(68..72) == Some(&(APPLICATION_ID as u32).to_be_bytes());
    if !ours {
        let what = "is a damaged SQLite database of another application".to_owned();
        return Err(Error::NotARecording { path: path.to_owned(), what });
    }
    let Some(missing_bytes) = expected.checked_sub(size).filter(|missing| *missing > 0) else {
        return Err(Error::Damaged { path: path.to_owned(), reason: why.to_string() });
    };
    match connect(path, access, true).map_err(|error| Error::sqlite(path, error)) {
        Ok(connection) if check_format(path, &connection).is_ok() => {
            Ok(Opened { connection, missing_bytes: Some(missing_bytes) })
        }
        _ => Err(Error::Truncated { path: path.to_owned(), missing_bytes }),
    }
}

const MAGIC: &[u8] = b"SQLite format 3\0";

/// Minimum page size of a database, in bytes.
const MIN_PAGE_BYTES: u64 = 512;

/// Reads the first bytes of a file. This is safe only because no connection of this process writes to the file. Closing any handle of a
/// file releases all POSIX locks of the process on it, including those of SQLite.
fn header(path: &Path) -> Result<Vec<u8>, Error> {
    let mut header = Vec::new();
    File::open(path)
        .and_then(|file| file.take(100).read_to_end(&mut header))
        .map_err(|error| Error::io(path, error))?;
    Ok(header)
}

/// Describes the kind of a file that is not a complete database.
fn other_kind(header: &[u8]) -> &'static str {
    if header.starts_with(&MAGIC[..header.len().min(MAGIC.len())]) {
        "is only the beginning of an SQLite database: copy it again from its origin"
    } else {
        NOT_SQLITE
    }
}

/// Size of a database according to its header (<https://www.sqlite.org/fileformat2.html>); `None` if the header is not one of SQLite.
fn expected_size(header: &[u8]) -> Option<u64> {
    if header.len() < 100 || !header.starts_with(MAGIC) {
        return None;
    }
    let page = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65_536,
        size => u64::from(size),
    };
    let pages = u32::from_be_bytes([header[28], header[29], header[30], header[31]]);
    Some(page * u64::from(pages))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn names_with_any_character_become_uris() {
        assert_eq!(immutable_uri(Path::new("/a b/c?d#e%.btr")), "file:/a%20b/c%3fd%23e%25.btr?immutable=1");
        assert_eq!(immutable_uri(Path::new(OsStr::from_bytes(b"\xff"))), "file:%ff?immutable=1");
    }
}
