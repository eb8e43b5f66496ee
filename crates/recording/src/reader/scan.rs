//! Scanning tables that may have unreadable pages.

use std::ops::ControlFlow;

use beamtune_model::Nanos;
use rusqlite::{ErrorCode, Row};

use super::Reader;
use crate::error::{Error, code};
use crate::rows::{self, Record};

/// Result of a callback: continue with the next row.
pub(super) const MORE: rusqlite::Result<ControlFlow<()>> = Ok(ControlFlow::Continue(()));
/// Result of a callback: stop the scan.
pub(super) const STOP: rusqlite::Result<ControlFlow<()>> = Ok(ControlFlow::Break(()));

/// A value below all keys, since ids and ticks start at 0.
pub(super) const BEFORE_ALL_KEYS: i64 = -1;

impl Reader {
    /// Calls `each` for the rows of a statement of the form `SELECT key, … WHERE key > ?1 ORDER BY key`, after key `after`.
    /// Returns true if some rows may be missing.
    ///
    /// If a page is unreadable, the scan restarts after it: first `stride` above the last key, then at twice the distance, and so on.
    /// So it loses the content of the page, and at most the same amount of data after it.
    pub(super) fn scan(
        &self,
        sql: &str,
        after: i64,
        stride: i64,
        mut each: impl FnMut(&Row<'_>) -> rusqlite::Result<ControlFlow<()>>,
    ) -> Result<bool, Error> {
        let (mut last, mut skip, mut damaged) = (after.max(BEFORE_ALL_KEYS), 0_i64, false);
        while let Some(from) = last.checked_add(skip) {
            let end = self.run(sql, from, &mut |row| {
                let key = row.get(0)?;
                // Keys that do not increase come from a misplaced page. Skipping them also ends the scan if a page refers to itself.
                if key <= last {
                    return Err(rusqlite::Error::InvalidQuery);
                }
                (last, skip) = (key, 0);
                match each(row) {
                    Err(error) if is_damage(&error) => {
                        damaged = true;
                        MORE
                    }
                    other => other,
                }
            });
            match end {
                Ok(()) => return Ok(damaged),
                Err(error) if is_damage(&error) => {
                    damaged = true;
                    let Some(further) = skip.checked_mul(2) else { break };
                    skip = further.max(stride);
                }
                Err(error) => return Err(Error::sqlite(&self.path, error)),
            }
        }
        Ok(true)
    }

    fn run(
        &self,
        sql: &str,
        after: i64,
        each: &mut dyn FnMut(&Row<'_>) -> rusqlite::Result<ControlFlow<()>>,
    ) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([after])?;
        while let Some(row) = rows.next()? {
            if each(row)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Calls `each` with the rows of a typed table whose ids are above the cursor, up to tick `end`, and advances the cursor. Returns
    /// true if rows may be missing. A table that the file lacks, because an older version wrote it, is treated as empty.
    pub(super) fn records<R: Record>(
        &self,
        cursor: &mut i64,
        end: Nanos,
        mut each: impl FnMut(Nanos, R),
    ) -> Result<bool, Error> {
        if R::IS_LATER && !self.tables.iter().any(|table| table == R::TABLE) {
            return Ok(false);
        }
        let lacks = |column: &str| {
            self.absent_columns.iter().any(|absent| (absent.table, absent.name) == (R::TABLE, column))
        };
        self.scan(&rows::select::<R>(lacks), *cursor, 1, |row| {
            let (id, tick) = (row.get(0)?, row.get(1)?);
            if tick > end {
                return STOP;
            }
            *cursor = id;
            each(tick, R::read(&mut rows::Reader::new(row, &self.connection, &self.texts))?);
            MORE
        })
    }
}

/// Whether an error is due to a damaged file, rather than, for example, to a lock or a lack of memory.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    match code(error) {
        Some(code) => matches!(
            code,
            ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                // A bad sector; other pages may be readable.
                | ErrorCode::SystemIoFailure
                // A missing table or column: beamtune's statements are fixed, so the definitions in the file are damaged.
                | ErrorCode::Unknown
                // A length above the limit.
                | ErrorCode::TooBig
        ),
        // Values of a wrong type, missing texts, and the like.
        None => true,
    }
}
