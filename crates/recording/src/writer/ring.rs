//! Rings: recordings that keep the last hours and never exceed a maximum size.
//!
//! Whole segments of five minutes are dropped, the oldest first. This happens when they are older than the length to keep, or earlier if
//! the file is full. Their pages stay in the file and are reused, so a full ring neither grows nor is copied.
//!
//! # Size limit
//!
//! SQLite refuses to allocate a page beyond `max_page_count`; the oldest segment is then dropped. Part of the maximum size is reserved
//! for the log, which is checkpointed and restarted before it exceeds this part. If the file system has less free space than the log
//! may need, the file is not allowed to grow. So there is always enough space to drop segments, which also needs the log.

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
    /// Length to keep. A segment of five minutes is dropped when all its data are older.
    pub keep: Nanos,
    /// Maximum size of the file and its log together.
    pub max_bytes: u64,
}

impl Ring {
    /// Minimum useful size: enough for five minutes of a large node, and the log.
    pub const MIN_BYTES: u64 = 10_000_000;

    pub(super) fn store(&self, connection: &Connection, node: &str) -> rusqlite::Result<()> {
        let mut set = connection.prepare("INSERT OR REPLACE INTO meta(key, value) VALUES (?1, ?2)")?;
        set.execute((meta::RING_KEEP, self.keep.to_string()))?;
        set.execute((meta::RING_BYTES, self.max_bytes.to_string()))?;
        set.execute((meta::RING_NODE, node))?;
        Ok(())
    }
}

/// The part of the maximum size that is reserved for the log is 1/`LOG_SHARE`, limited to the range `LOG_BYTES`.
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
    /// The part of the maximum size that is reserved for the log.
    log_bytes: u64,
    /// The current `max_page_count`; 0 if not set yet.
    max_pages: u64,
    /// Whether free disk space, rather than the ring's bounds, limits the file.
    is_disk_low: bool,
    /// Whether the user was notified that the maximum size is too small for the length to keep, or that the disk is nearly full.
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
        // A restarted log keeps half of its reserved space, so that segments can be dropped on a full disk.
        let limit = (bounds.log_bytes / 2) as i64;
        connection.pragma_update_and_check(None, "journal_size_limit", limit, |_| Ok(()))?;
        Ok(bounds)
    }

    /// Returns new messages for the user; each is returned once.
    pub(super) fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Whether the current segment must be sealed now, so that its chunks fit into the log even if the log cannot grow.
    pub(super) fn must_seal(&self, waiting_bytes: u64) -> bool {
        waiting_bytes >= self.log_bytes / 4
    }

    /// Whether the file has enough free pages for any single write. If a write fails nevertheless, the log is full.
    pub(super) fn has_free_pages(&self, connection: &Connection) -> rusqlite::Result<bool> {
        Ok(number(connection, "PRAGMA freelist_count")? * self.page_bytes > self.log_bytes / 2)
    }

    /// Sets the current size limit of the file. Returns false if the log is full and cannot be restarted because of a reader.
    pub(super) fn prepare(&mut self, connection: &Connection) -> rusqlite::Result<bool> {
        let log = length(&self.log);
        if log > self.log_bytes / 2 && !restart_log(connection)? && log >= self.log_bytes {
            return Ok(false);
        }
        let pages = number(connection, "PRAGMA page_count")?;
        let own = (self.ring.max_bytes - self.log_bytes) / self.page_bytes;
        // Space for possible growth of the log, and for pages in the log that are not in the file yet.
        let unfiled = (pages * self.page_bytes).saturating_sub(length(&self.file));
        let reserve = self.log_bytes.saturating_sub(log) + unfiled;
        let growth = self.room_on_disk().map(|room| room.saturating_sub(reserve) / self.page_bytes);
        let by_disk = growth.map_or(u64::MAX, |growth| pages.saturating_add(growth));
        self.is_disk_low = by_disk < own;
        let max_pages = own.min(by_disk).max(1);
        if max_pages != self.max_pages {
            // SQLite does not set a maximum below the current number of pages.
            connection.pragma_update_and_check(None, "max_page_count", max_pages as i64, |_| Ok(()))?;
            self.max_pages = max_pages;
        }
        Ok(true)
    }

    /// Whether free disk space, rather than the ring's bounds, limits the file.
    pub(super) fn is_disk_low(&self) -> bool {
        self.is_disk_low
    }

    /// Creates the error for a ring that is too small even for the current segment.
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

    /// Drops the oldest segment to make room. Returns false if there is none before `current`, the start of the current segment.
    pub(super) fn drop_oldest(&mut self, connection: &Connection, current: Nanos) -> rusqlite::Result<bool> {
        // Without a checkpoint, the log may not have enough space for the deletion.
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
                "the disk is nearly full: the ring does not grow beyond {} MB and drops its oldest data; it contains {held} min; \
                 free space, or use a smaller --max-size",
                self.max_pages * self.page_bytes / 1_000_000
            ));
        }
        if !self.is_disk_low && !self.noticed_short {
            self.noticed_short = true;
            let wanted = self.ring.keep / (60 * SECOND_NS);
            self.notices.push(format!(
                "{} MB are enough for {held} min of this node, not {wanted}: the oldest data are dropped; use a larger --max-size to keep more",
                self.ring.max_bytes / 1_000_000
            ));
        }
        Ok(())
    }

    /// Returns free pages to the file system when a recording starts: all pages beyond the maximum. If more than
    /// half of the file is free, also all free pages but a quarter; this happens after a pause, or if the bounds
    /// were larger before. Free pages that remain are used by the next segments.
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

/// Checkpoints the log and restarts it, without waiting for readers. Returns false if a reader prevents this.
pub(super) fn restart_log(connection: &Connection) -> rusqlite::Result<bool> {
    connection.busy_timeout(Duration::ZERO)?;
    let done = connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get::<_, i64>(0));
    connection.busy_timeout(BUSY_TIMEOUT)?;
    match done {
        Ok(busy) => Ok(busy == 0),
        // If the disk is full, nothing is lost: the log still contains all data.
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Deletes all data before an instant, in one transaction. Returns false if there were none.
///
/// Tables that are read by increasing id always keep their last row, so that new ids are larger than all earlier ones.
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
        // Rows are ordered by tick, so all rows before the first one to keep are deleted.
        remove(&format!(
            "DELETE FROM {table} WHERE id < coalesce((SELECT id FROM {table} WHERE tick >= ?1 ORDER BY id LIMIT 1), \
             (SELECT max(id) FROM {table}))"
        ))?;
    }
    // A gap that ends after this instant explains missing data, so it is kept.
    remove("DELETE FROM gap WHERE t1 < ?1 AND id < (SELECT max(id) FROM gap)")?;
    // The last value of each fact before this instant still applies, so it is kept.
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

/// Deletes texts that no row refers to. Reads all rows, which takes 0.2 s for six hours of a large node.
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
