//! A ring: a recording that holds the last hours and never outgrows its size.
//!
//! Whole segments of five minutes go, the oldest first: when they are older than what is to be kept, and
//! earlier where the room does not suffice. Their pages stay in the file and are written again, so a ring
//! that is full neither grows nor moves.
//!
//! # How the size is kept
//!
//! SQLite itself refuses a page beyond `max_page_count`; the refusal is what makes the oldest segment go. The log gets
//! its own share of the size: it is carried over and begun anew before it outgrows it. Where the file system has less
//! room left than the log may need, the file is not let grow any further, so that there is always room to drop
//! segments: that needs the log, too.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use beamtune_model::Nanos;
use beamtune_model::units::SECOND_NS;
use rusqlite::{Connection, OptionalExtension, params};

use super::create::{PATIENCE, sidecar_path};
use crate::error::Error;
use crate::rows;
use crate::schema::meta;

/// What a ring holds, and how large it may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ring {
    /// What is older may go; it goes with the whole segment of five minutes that it is in.
    pub keep: Nanos,
    /// Bytes that the file and its log take together at most.
    pub max_bytes: u64,
}

impl Ring {
    /// The smallest size that is of use: five minutes of a large node, and its log.
    pub const SMALLEST_BYTES: u64 = 10_000_000;

    pub(super) fn store(&self, connection: &Connection, node: &str) -> rusqlite::Result<()> {
        let mut set = connection.prepare("INSERT OR REPLACE INTO meta(key, value) VALUES (?1, ?2)")?;
        set.execute((meta::RING_KEEP, self.keep.to_string()))?;
        set.execute((meta::RING_BYTES, self.max_bytes.to_string()))?;
        set.execute((meta::RING_NODE, node))?;
        Ok(())
    }
}

/// Of the size, the log has this part, as far as it is of use to it.
const LOG_PART: u64 = 8;
const LOG_BYTES: std::ops::RangeInclusive<u64> = 1_000_000..=48_000_000;

/// Keeps a ring within its bounds.
#[derive(Debug)]
pub(super) struct Bounds {
    ring: Ring,
    file: PathBuf,
    log: PathBuf,
    directory: PathBuf,
    page_bytes: u64,
    /// The part of the size that is the log's.
    log_bytes: u64,
    /// The `max_page_count` that is set; 0 before.
    max_pages: u64,
    /// The disk, not the ring, says how large the file may be.
    is_disk_low: bool,
    /// What was told already.
    told_short: bool,
    told_low: bool,
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
            told_short: false,
            told_low: false,
            notices: Vec::new(),
        };
        let disk = rustix::fs::statvfs(&bounds.directory);
        let disk_bytes = disk.map_or(u64::MAX, |disk| disk.f_blocks.saturating_mul(disk.f_frsize));
        bounds.log_bytes =
            (ring.max_bytes.min(disk_bytes) / LOG_PART).clamp(*LOG_BYTES.start(), *LOG_BYTES.end());
        // A log that was begun anew keeps half of its share: room that dropping segments on a full disk can rely on.
        let limit = (bounds.log_bytes / 2) as i64;
        connection.pragma_update_and_check(None, "journal_size_limit", limit, |_| Ok(()))?;
        Ok(bounds)
    }

    /// What the user should be told, each once.
    pub(super) fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// True if so much is waiting to be sealed that it must be, for the log to have room for it even where it cannot grow.
    pub(super) fn is_much(&self, waiting_bytes: u64) -> bool {
        waiting_bytes >= self.log_bytes / 4
    }

    /// True if the file has pages free for anything that is written at once: then it is the log that has no room.
    pub(super) fn has_free_pages(&self, connection: &Connection) -> rusqlite::Result<bool> {
        Ok(number(connection, "PRAGMA freelist_count")? * self.page_bytes > self.log_bytes / 2)
    }

    /// Says how large the file may be now. False if the log has used up its share because a reader holds it.
    pub(super) fn prepare(&mut self, connection: &Connection) -> rusqlite::Result<bool> {
        let log = length(&self.log);
        if log > self.log_bytes / 2 && !restart_log(connection)? && log >= self.log_bytes {
            return Ok(false);
        }
        let pages = number(connection, "PRAGMA page_count")?;
        let own = (self.ring.max_bytes - self.log_bytes) / self.page_bytes;
        // What the log may still grow by, and the pages in it that are still to be carried over.
        let unfiled = (pages * self.page_bytes).saturating_sub(length(&self.file));
        let reserve = self.log_bytes.saturating_sub(log) + unfiled;
        let growth = self.room_on_disk().map(|room| room.saturating_sub(reserve) / self.page_bytes);
        let by_disk = growth.map_or(u64::MAX, |growth| pages.saturating_add(growth));
        self.is_disk_low = by_disk < own;
        let max_pages = own.min(by_disk).max(1);
        if max_pages != self.max_pages {
            // SQLite does not go below what there is.
            connection.pragma_update_and_check(None, "max_page_count", max_pages as i64, |_| Ok(()))?;
            self.max_pages = max_pages;
        }
        Ok(true)
    }

    /// True if the disk, not the ring, says how large the file may be.
    pub(super) fn is_disk_low(&self) -> bool {
        self.is_disk_low
    }

    /// That a ring of this size cannot hold even what is recorded now.
    pub(super) fn too_small(&self, path: &Path) -> Error {
        Error::RingTooSmall { path: path.to_owned(), max_bytes: self.ring.max_bytes }
    }

    /// True if more pages are used than the file may have.
    pub(super) fn exceeds(&mut self, connection: &Connection) -> rusqlite::Result<bool> {
        self.prepare(connection)?;
        let used = number(connection, "PRAGMA page_count")? - number(connection, "PRAGMA freelist_count")?;
        Ok(used > self.max_pages)
    }

    /// Bytes that this process may still write on the file system; `None` where it does not say.
    fn room_on_disk(&self) -> Option<u64> {
        let disk = rustix::fs::statvfs(&self.directory).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Drops what is older than is to be kept.
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

    /// Drops the oldest segment, because there is no room; false if there is none before `current`, the begin of what is
    /// not yet sealed.
    pub(super) fn drop_oldest(&mut self, connection: &Connection, current: Nanos) -> rusqlite::Result<bool> {
        // What the log holds must be in the file before the log can be used for this.
        restart_log(connection)?;
        let next =
            "SELECT t0 FROM chunk WHERE t0 > (SELECT t1 FROM chunk ORDER BY id LIMIT 1) ORDER BY id LIMIT 1";
        let edge = one(connection, next)?.unwrap_or(current).min(current);
        let dropped = drop_before(connection, edge)?;
        if dropped {
            self.tell_dropped(connection, current)?;
        }
        Ok(dropped)
    }

    fn tell_dropped(&mut self, connection: &Connection, now: Nanos) -> rusqlite::Result<()> {
        let first = one(connection, "SELECT t FROM tick ORDER BY t LIMIT 1")?.unwrap_or(now);
        let held = now.saturating_sub(first) / (60 * SECOND_NS);
        if self.is_disk_low && !self.told_low {
            self.told_low = true;
            self.notices.push(format!(
                "the disk is nearly full: the ring stays at {} MB and drops its oldest, {held} min are left; \
                 make room, or use a smaller --max-size",
                self.max_pages * self.page_bytes / 1_000_000
            ));
        }
        if !self.is_disk_low && !self.told_short {
            self.told_short = true;
            let wanted = self.ring.keep / (60 * SECOND_NS);
            self.notices.push(format!(
                "{} MB hold {held} min of this node, not {wanted}: the oldest is dropped; a larger --max-size keeps more",
                self.ring.max_bytes / 1_000_000
            ));
        }
        Ok(())
    }

    /// Gives pages back at the start: those above what the file may have, and where more than half are free, because
    /// there was a pause, or more was kept before. Later on, free pages are what the next segment is written to.
    pub(super) fn shrink(&self, connection: &Connection) -> rusqlite::Result<()> {
        let pages = number(connection, "PRAGMA page_count")?;
        let free = number(connection, "PRAGMA freelist_count")?;
        let above = pages.saturating_sub(self.max_pages);
        let spare = if free > pages / 2 && !self.is_disk_low { free - pages / 4 } else { 0 };
        let give = above.max(spare).min(free);
        // In steps that the log has room for.
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

/// Carries the log over into the file and lets it begin anew; false if a reader is in the way. Does not wait for one.
pub(super) fn restart_log(connection: &Connection) -> rusqlite::Result<bool> {
    connection.busy_timeout(Duration::ZERO)?;
    let done = connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get::<_, i64>(0));
    connection.busy_timeout(PATIENCE)?;
    match done {
        Ok(busy) => Ok(busy == 0),
        // Without room for the file nothing is lost: it is all in the log.
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes what is before an instant, in one transaction; false if there was nothing.
///
/// Of the tables that a follower reads by id, the last row stays, however old: ids must go on growing.
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
    for table in rows::BY_TICK {
        // From the beginning up to the first that stays: the rows are in the order of their ticks.
        remove(&format!(
            "DELETE FROM {table} WHERE id < coalesce((SELECT id FROM {table} WHERE tick >= ?1 ORDER BY id LIMIT 1), \
             (SELECT max(id) FROM {table}))"
        ))?;
    }
    // A gap that reaches to here says why something is missing here.
    remove("DELETE FROM gap WHERE t1 < ?1 AND id < (SELECT max(id) FROM gap)")?;
    // Of the facts of a life that goes on, those count that held at the edge.
    remove(
        "DELETE FROM fact WHERE tick < ?1 AND EXISTS (SELECT 1 FROM fact AS later WHERE later.inc = fact.inc \
         AND later.key = fact.key AND later.id > fact.id AND later.tick < ?1)",
    )?;
    remove("DELETE FROM clock WHERE t < (SELECT max(t) FROM clock WHERE t <= ?1)")?;
    if let Some(life) = one(&transaction, "SELECT inc FROM tick ORDER BY t LIMIT 1")? {
        transaction.execute("DELETE FROM fact WHERE inc < ?1", [life])?;
        transaction.execute("DELETE FROM incarnation WHERE id < ?1", [life])?;
    }
    transaction.commit()?;
    Ok(count > 0)
}

/// Removes the texts that no row refers to any more. Reads all rows: 0.2 s for six hours of a large node.
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
