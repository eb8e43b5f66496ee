//! Walking a table of which some pages may be unreadable.

use std::ops::ControlFlow;

use beamtune_model::Nanos;
use rusqlite::{ErrorCode, Row};

use super::Reader;
use crate::error::{Error, code};
use crate::rows::{self, Record};
use crate::schema::LATER_TABLES;

/// Go on with the next row.
pub(super) const MORE: rusqlite::Result<ControlFlow<()>> = Ok(ControlFlow::Continue(()));
/// No further row is wanted.
pub(super) const ENOUGH: rusqlite::Result<ControlFlow<()>> = Ok(ControlFlow::Break(()));

/// Below all keys: ids begin at 0, and ticks at the recording's zero.
pub(super) const NO_KEY: i64 = -1;

impl Reader {
    /// Calls `each` with the rows of a statement of the form `SELECT key, … WHERE key > ?1 ORDER BY key`, from above
    /// `after`. True if some rows may be missing.
    ///
    /// Where a page cannot be read, the scan starts again behind it: `stride` above the last key, then twice as far, and
    /// so on. So it loses what the page held, and at most as much again.
    pub(super) fn scan(
        &self,
        sql: &str,
        after: i64,
        stride: i64,
        mut each: impl FnMut(&Row<'_>) -> rusqlite::Result<ControlFlow<()>>,
    ) -> Result<bool, Error> {
        let (mut last, mut skip, mut damaged) = (after.max(NO_KEY), 0_i64, false);
        while let Some(from) = last.checked_add(skip) {
            let end = self.run(sql, from, &mut |row| {
                let key = row.get(0)?;
                // Keys that do not grow come from a page that stands where another should. Passing over them also
                // keeps a page that leads back to itself from being walked for ever.
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

    /// Rows of one of the typed tables with ids above the cursor, which is moved on, up to those of the tick `end`. None where an
    /// older beamtune did not make the table. True if some may be missing.
    pub(super) fn records<R: Record>(
        &self,
        cursor: &mut i64,
        end: Nanos,
        mut each: impl FnMut(Nanos, R),
    ) -> Result<bool, Error> {
        if LATER_TABLES.contains(&R::TABLE) && !self.later_tables.contains(&R::TABLE) {
            return Ok(false);
        }
        let lacks = |table: &str, column: &str| {
            self.absent_columns.iter().any(|absent| (absent.table, absent.name) == (table, column))
        };
        self.scan(&rows::select::<R>(lacks), *cursor, 1, |row| {
            let (id, tick) = (row.get(0)?, row.get(1)?);
            if tick > end {
                return ENOUGH;
            }
            *cursor = id;
            each(tick, R::read(&mut rows::Reader::new(row, &self.connection, &self.texts))?);
            MORE
        })
    }
}

/// True for what comes of a damaged file, false for what comes from elsewhere (a lock, no memory).
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    match code(error) {
        Some(code) => matches!(
            code,
            ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                // A bad sector: what stands elsewhere can still be read.
                | ErrorCode::SystemIoFailure
                // A table or column is missing: our statements do not change, so the file's definitions are damaged.
                | ErrorCode::Unknown
                // A length that is beyond the limit.
                | ErrorCode::TooBig
        ),
        // Values of another type than the column's, missing texts, and the like.
        None => true,
    }
}
