//! Rings: recordings that hold the last hours and never exceed their size.
//!
//! Whole segments of five minutes are dropped, the oldest first: once they are older than the length to keep, or earlier if there
//! is no room. Their pages stay in the file and are reused, so a full ring neither grows nor moves.
//!
//! # Limit of the size
//!
//! SQLite itself refuses a page beyond `max_page_count`, upon which the oldest segment is dropped. The log has its own share of
//! the size: it is checkpointed and restarted before it exceeds that. If the file system has less free space than the log may
//! need, the file may not grow any further. So there is always room to drop segments, which needs the log too.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use beamtune_model::Nanos;
use beamtune_model::units::SECOND_NS;
use rusqlite::{Connection, OptionalExtension, params};

use super::create::{BUSY_TIMEOUT, sidecar_path};
use crate::error::Error;
use crate::rows;
use crate::schema::meta;

/// Bounds of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ring {
    /// Length to keep. Older data are dropped together with their whole segment of five minutes.
    pub keep: Nanos,
    /// Maximum size of the file and its log together.
    pub max_bytes: u64,
}

impl Ring {
    /// Minimum useful size: five minutes of a large node, and the log.
    pub const SMALLEST_BYTES: u64 = 10_000_000;

    pub(super) fn store(&self, connection: &Connection, node: &str) -> rusqlite::Result<()> {
        let mut set = connection.prepare("INSERT OR REPLACE INTO meta(key, value) VALUES (?1, ?2)")?;
        set.execute((meta::RING_KEEP, self.keep.to_string()))?;
        set.execute((meta::RING_BYTES, self.max_bytes.to_string()))?;
        set.execute((meta::RING_NODE, node))?;
        Ok(())
    }
}

/// The log gets the size divided by `LOG_SHARE`, limited to the range `LOG_BYTES`.
const LOG_SHARE: u64 = 8;
const LOG_BYTES: std::ops::RangeInclusive<u64> = 1_000_000..=48_000_000;

/// Keeps a ring within its bounds.
#[derive(Debug)]
pub(super) struct Bounds {
    ring: Ring,
    file: PathBuf,
    log: PathBuf,
    directory: PathBuf,
    page_bytes: u64,
    /// The log's share of the size.
    log_bytes: u64,
    /// The current `max_page_count`; 0 if not set yet.
    max_pages: u64,
    /// Whether free disk space, rather than the ring's bounds, limits the file.
    is_disk_low: bool,
    /// Whether the respective notice was given.
    noticed_short: bool,
    noticed_low: bool,
    notices: Vec<String>,
}

impl Bounds {
    pub(super) fn new(connection: &Connection, path: &Path, ring: Ring) -> rusqlite::Result<Self> {
        let mut bounds = Bounds {
            ring,
            log_bytes: 0,
            file: path.to_owned(),
            log: sidecar_path(path, "-wal"),
            directory: match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
                _ => PathBuf::from("."),
            },
            page_bytes: number(connection, "PRAGMA page_size")?,
            max_pages: 0,
            is_disk_low: false,
            noticed_short: false,
            noticed_low: false,
            notices: Vec::new(),
        };
        let disk = rustix::fs::statvfs(&bounds.directory);
        let disk_bytes = disk.map_or(u64::MAX, |disk| disk.f_blocks.saturating_mul(disk.f_frsize));
        bounds.log_bytes =
            (ring.max_bytes.min(disk_bytes) / LOG_SHARE).clamp(*LOG_BYTES.start(), *LOG_BYTES.end());
        // A restarted log keeps half of its share, as room for dropping segments on a full disk.
        let limit = (bounds.log_bytes / 2) as i64;
        connection.pragma_update_and_check(None, "journal_size_limit", limit, |_| Ok(()))?;
        Ok(bounds)
    }

    /// Takes new messages for the user.
    pub(super) fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Whether the unsealed bytes must be sealed now, so that they fit into the log even if it cannot grow.
    pub(super) fn must_seal(&self, waiting_bytes: u64) -> bool {
        waiting_bytes >= self.log_bytes / 4
    }

    /// Whether the file has enough free pages for any single write; then it is the log that has no room.
    pub(super) fn has_free_pages(&self, connection: &Connection) -> rusqlite::Result<bool> {
        Ok(number(connection, "PRAGMA freelist_count")? * self.page_bytes > self.log_bytes / 2)
    }

    /// Sets the current limit of the file. Returns false if the log has reached its share and cannot be restarted because of a reader.
    pub(super) fn prepare(&mut self, connection: &Connection) -> rusqlite::Result<bool> {
        let log = length(&self.log);
        if log > self.log_bytes / 2 && !restart_log(connection)? && log >= self.log_bytes {
            return Ok(false);
        }
        let pages = number(connection, "PRAGMA page_count")?;
        let own = (self.ring.max_bytes - self.log_bytes) / self.page_bytes;
        // Possible growth of the log, and pages in it that are not checkpointed yet.
        let unfiled = (pages * self.page_bytes).saturating_sub(length(&self.file));
        let reserve = self.log_bytes.saturating_sub(log) + unfiled;
        let growth = self.room_on_disk().map(|room| room.saturating_sub(reserve) / self.page_bytes);
        let by_disk = growth.map_or(u64::MAX, |growth| pages.saturating_add(growth));
        self.is_disk_low = by_disk < own;
        let max_pages = own.min(by_disk).max(1);
        if max_pages != self.max_pages {
            // SQLite does not go below the current number.
            connection.pragma_update_and_check(None, "max_page_count", max_pages as i64, |_| Ok(()))?;
            self.max_pages = max_pages;
        }
        Ok(true)
    }

    /// Whether free disk space, rather than the ring's bounds, limits the file.
    pub(super) fn is_disk_low(&self) -> bool {
        self.is_disk_low
    }

    /// The error of a ring that cannot even hold the current segment.
    pub(super) fn too_small(&self, path: &Path) -> Error {
        Error::RingTooSmall { path: path.to_owned(), max_bytes: self.ring.max_bytes }
    }

    /// Whether more pages are used than the file may have.
    pub(super) fn exceeds(&mut self, connection: &Connection) -> rusqlite::Result<bool> {
        self.prepare(connection)?;
        let used = number(connection, "PRAGMA page_count")? - number(connection, "PRAGMA freelist_count")?;
        Ok(used > self.max_pages)
    }

    /// Bytes that this process may still write to the file system; `None` if unknown.
    fn room_on_disk(&self) -> Option<u64> {
        let disk = rustix::fs::statvfs(&self.directory).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Drops data that are older than the length to keep.
    pub(super) fn drop_old(&self, connection: &Connection, now: Nanos) -> rusqlite::Result<bool> {
        let cut = now.saturating_sub(self.ring.keep);
        let first: Option<Nanos> = one(connection, "SELECT t FROM tick ORDER BY t LIMIT 1")?;
        if first.is_none_or(|first| first >= cut) {
            return Ok(false);
        }
        let segment: Option<Nanos> = connection
            .prepare_cached("SELECT t0 FROM chunk WHERE t1 >= ?1 ORDER BY id LIMIT 1")?
            .query_row([cut], |row| row.get(0))
            .optional()?;
        drop_before(connection, segment.map_or(cut, |begin| begin.min(cut)))
    }

    /// Drops the oldest segment to make room; false if there is none before `current`, the begin of the unsealed data.
    pub(super) fn drop_oldest(&mut self, connection: &Connection, current: Nanos) -> rusqlite::Result<bool> {
        // The log must be checkpointed before it has room for this.
        restart_log(connection)?;
        let next =
            "SELECT t0 FROM chunk WHERE t0 > (SELECT t1 FROM chunk ORDER BY id LIMIT 1) ORDER BY id LIMIT 1";
        let edge = one(connection, next)?.unwrap_or(current).min(current);
        let dropped = drop_before(connection, edge)?;
        if dropped {
            self.notice_dropped(connection, current)?;
        }
        Ok(dropped)
    }

    fn notice_dropped(&mut self, connection: &Connection, now: Nanos) -> rusqlite::Result<()> {
        let first = one(connection, "SELECT t FROM tick ORDER BY t LIMIT 1")?.unwrap_or(now);
        let held = now.saturating_sub(first) / (60 * SECOND_NS);
        if self.is_disk_low && !self.noticed_low {
            self.noticed_low = true;
            self.notices.push(format!(
                "the disk is nearly full: the ring stays at {} MB and drops its oldest data, {held} min are left; \
                 free space, or use a smaller --max-size",
                self.max_pages * self.page_bytes / 1_000_000
            ));
        }
        if !self.is_disk_low && !self.noticed_short {
            self.noticed_short = true;
            let wanted = self.ring.keep / (60 * SECOND_NS);
            self.notices.push(format!(
                "{} MB hold {held} min of this node, not {wanted}: the oldest data are dropped; a larger --max-size keeps more",
                self.ring.max_bytes / 1_000_000
            ));
        }
        Ok(())
    }

    /// Frees pages at the start: those beyond the maximum, and if more than half are free, because of a pause or of larger bounds
    /// before, down to a quarter. Later, free pages are reused by the next segments.
    pub(super) fn shrink(&self, connection: &Connection) -> rusqlite::Result<()> {
        let pages = number(connection, "PRAGMA page_count")?;
        let free = number(connection, "PRAGMA freelist_count")?;
        let above = pages.saturating_sub(self.max_pages);
        let spare = if free > pages / 2 && !self.is_disk_low { free - pages / 4 } else { 0 };
        let give = above.max(spare).min(free);
        // In steps that fit into the log.
        let step = (self.log_bytes / 8 / self.page_bytes).max(1);
        let mut given = 0;
        while given < give && restart_log(connection)? {
            let mut vacuum =
                connection.prepare(&format!("PRAGMA incremental_vacuum({})", step.min(give - given)))?;
            vacuum.query([])?.mapped(|_| Ok(())).try_for_each(|row| row)?;
            given += step;
        }
        Ok(())
    }
}

/// Checkpoints the log and restarts it; returns false if a reader prevents that. Does not wait.
pub(super) fn restart_log(connection: &Connection) -> rusqlite::Result<bool> {
    connection.busy_timeout(Duration::ZERO)?;
    let done = connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get::<_, i64>(0));
    connection.busy_timeout(BUSY_TIMEOUT)?;
    match done {
        Ok(busy) => Ok(busy == 0),
        // If the file has no room, nothing is lost: the log holds everything.
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Deletes everything before an instant, in one transaction; returns false if there was nothing.
///
/// In tables that followers read by id, the last row always stays, since ids must keep increasing.
fn drop_before(connection: &Connection, edge: Nanos) -> rusqlite::Result<bool> {
    let transaction = connection.unchecked_transaction()?;
    let mut count = 0;
    let mut remove = |sql: &str| -> rusqlite::Result<()> {
        count += transaction.prepare_cached(sql)?.execute([edge])?;
        Ok(())
    };
    remove("DELETE FROM tick WHERE t < ?1")?;
    remove(
        "DELETE FROM chunk WHERE id < coalesce((SELECT id FROM chunk WHERE t1 >= ?1 ORDER BY id LIMIT 1), \
         (SELECT max(id) FROM chunk))",
    )?;
    for table in rows::tables_by_tick() {
        // From the first row up to the first one that stays: rows are ordered by tick.
        remove(&format!(
            "DELETE FROM {table} WHERE id < coalesce((SELECT id FROM {table} WHERE tick >= ?1 ORDER BY id LIMIT 1), \
             (SELECT max(id) FROM {table}))"
        ))?;
    }
    // A gap that reaches beyond the edge explains missing data there.
    remove("DELETE FROM gap WHERE t1 < ?1 AND id < (SELECT max(id) FROM gap)")?;
    // Facts of an incarnation that continues: the last value before the edge stays.
    remove(
        "DELETE FROM fact WHERE tick < ?1 AND EXISTS (SELECT 1 FROM fact AS later WHERE later.inc = fact.inc \
         AND later.key = fact.key AND later.id > fact.id AND later.tick < ?1)",
    )?;
    remove("DELETE FROM clock WHERE t < (SELECT max(t) FROM clock WHERE t <= ?1)")?;
    if let Some(incarnation) = one(&transaction, "SELECT inc FROM tick ORDER BY t LIMIT 1")? {
        transaction.execute("DELETE FROM fact WHERE inc < ?1", [incarnation])?;
        transaction.execute("DELETE FROM incarnation WHERE id < ?1", [incarnation])?;
    }
    transaction.commit()?;
    Ok(count > 0)
}

/// Deletes texts that no row refers to. Reads all rows: 0.2 s for six hours of a large node.
pub(super) fn drop_texts(connection: &Connection) -> rusqlite::Result<()> {
    let transaction = connection.unchecked_transaction()?;
    let used = rows::used_texts(&transaction)?;
    let mut unused = Vec::new();
    {
        let mut all = transaction.prepare("SELECT id FROM text")?;
        let mut ids = all.query([])?;
        while let Some(row) = ids.next()? {
            let id: i64 = row.get(0)?;
            if !used.contains(&id) {
                unused.push(id);
            }
        }
        let mut delete = transaction.prepare("DELETE FROM text WHERE id = ?1")?;
        for id in unused {
            delete.execute(params![id])?;
        }
    }
    transaction.commit()
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |file| file.len())
}

fn one(connection: &Connection, sql: &str) -> rusqlite::Result<Option<i64>> {
    connection.prepare_cached(sql)?.query_row([], |row| row.get(0)).optional()
}

fn number(connection: &Connection, pragma: &str) -> rusqlite::Result<u64> {
    connection.query_row(pragma, [], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
}
