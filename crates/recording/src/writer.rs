//! Writing a recording, one sample at a time.
//!
//! Each sample is one transaction, which stores its tick, its rows, and its readings as one small row per group in `hot`. The
//! readings of the current segment are also kept in memory. Every five minutes one transaction stores them as chunks in `chunk` and
//! deletes the rows of `hot`. So at any time the file contains each reading exactly once.
//!
//! # After a crash
//!
//! The database is in WAL mode with `synchronous = NORMAL`. A killed process loses no committed data, since the kernel already has
//! them. An `fsync` per second would disturb the disk of the recorded production host. So there are only two per minute, at a checkpoint
//! of the log. After a power loss the file is consistent, and at most the last minute is missing.

mod create;
mod ring;
mod segment;

use std::fs::File;
use std::path::{Path, PathBuf};

use beamtune_model::units::SECOND_NS;
use beamtune_model::{Group, Nanos, Sample, SeriesTable};
use rusqlite::{Connection, params};

pub use create::Existing;
pub(crate) use create::sidecar_path;
pub use ring::Ring;

use crate::codec::busiest;
use crate::codec::column::Encoder;
use crate::error::Error;
use crate::reader::{self, Leftover, Reader, ResumePoint};
use crate::rows::{self, FactRow, SampleRow, TextIds, for_each_row_type};
use crate::schema::{BUSIEST, RING_SCHEMA, meta};
use ring::Bounds;
use segment::{Blob, Segment};

/// Interval of checkpoints; a power loss loses at most the data of this time.
const CHECKPOINT_INTERVAL_NS: Nanos = 60 * SECOND_NS;

/// Number of texts after whose addition a ring deletes unreferenced texts.
const TEXTS_PER_CLEANUP: u64 = 10_000;

/// Replaces the file name in messages about an in-memory recording.
const IN_MEMORY: &str = ":memory:";

/// A recording that is being written. A writer that is dropped without [`finish`](Writer::finish) leaves the recording as after a crash:
/// complete, but in more than one file.
#[derive(Debug)]
pub struct Writer {
    connection: Connection,
    path: PathBuf,
    /// Excludes other writers; closed after the connection. `None` in memory.
    lock: Option<File>,
    /// Group of each stored series; ids are dense.
    groups: Vec<Group>,
    last: Option<(Nanos, u32)>,
    segment: Segment,
    /// Size of the blobs in `hot`; as chunks, they take a little less.
    hot_bytes: u64,
    /// Size of the blobs that the last sample added to `hot`.
    stored_bytes: u64,
    /// Chunks that are ready to replace the rows in `hot`.
    sealed: Vec<Sealed>,
    prolonged_gaps: Vec<(String, Nanos, Nanos)>,
    /// Tick of the last checkpoint.
    last_checkpoint: Nanos,
    texts: TextIds,
    encoder: Encoder,
    /// Bounds of a ring; `None` otherwise.
    bounds: Option<Bounds>,
    /// State that an earlier process has left in the file.
    past: Option<ResumePoint>,
    /// Instants with their wall-clock times, to be stored with the next sample.
    clock: Vec<(Nanos, i64)>,
}

#[derive(Debug)]
struct Sealed {
    begin: Nanos,
    end: Nanos,
    blob: Blob,
}

impl Writer {
    /// Starts a recording in a new file, which is created atomically. No other process can write to it.
    pub fn create(path: &Path, existing: Existing) -> Result<Self, Error> {
        let (connection, lock) = create::create(path, existing, |_| Ok(()))?;
        Ok(Writer::new(connection, path.to_owned(), Some(lock)))
    }

    /// Starts a ring for a node, or continues an existing ring, even if its last writer crashed.
    pub fn ring(path: &Path, ring: Ring, node: &str) -> Result<Self, Error> {
        let at = |error| Error::sqlite(path, error);
        let ring = Ring { max_bytes: ring.max_bytes.max(Ring::MIN_BYTES), ..ring };
        let Some(lock) = create::lock_old(path)? else {
            let (connection, lock) = create::create(path, Existing::Refuse, |connection| {
                connection.execute_batch(RING_SCHEMA)?;
                ring.store(connection, node)
            })?;
            let bounds = Bounds::new(&connection, path, ring).map_err(at)?;
            let writer = Writer::new(connection, path.to_owned(), Some(lock));
            return Ok(Writer { bounds: Some(bounds), ..writer });
        };
        let Leftover { past, unsealed, lost } = reader::read_leftover(path, node)?;
        let connection = create::open(path).map_err(at)?;
        crate::schema::add_missing(&connection).map_err(at)?;
        ring.store(&connection, node).map_err(at)?;
        connection.execute("DELETE FROM meta WHERE key = ?1", [meta::CLOSED]).map_err(at)?;
        let bounds = Bounds::new(&connection, path, ring).map_err(at)?;
        let mut writer = Writer {
            bounds: Some(bounds),
            groups: past.table.iter().map(|(_, series)| series.group).collect(),
            last: past.last,
            last_checkpoint: past.last.map_or(0, |(t, _)| t),
            ..Writer::new(connection, path.to_owned(), Some(lock))
        };
        writer.past = Some(past);
        writer.seal_leftover(&unsealed, &lost)?;
        Ok(writer)
    }

    /// Stores the readings that the last writer left in `hot` as chunks.
    fn seal_leftover(&mut self, unsealed: &[Sample], lost: &[beamtune_model::Gap]) -> Result<(), Error> {
        unsealed.iter().for_each(|sample| self.segment.push(sample));
        self.seal();
        let tick = self.last.map_or(0, |(t, _)| t);
        rows::insert(&self.connection, &mut self.texts, tick, lost).map_err(|error| self.error(error))?;
        self.store_sealed()?;
        ring::drop_texts(&self.connection).map_err(|error| self.error(error))?;
        // The new bounds may be tighter than those of the last writer.
        self.keep_bounds(tick)?;
        while let Some(bounds) = &mut self.bounds
            && bounds.exceeds(&self.connection).map_err(|error| Error::sqlite(&self.path, error))?
            && self.make_room()?
        {}
        self.shrink()
    }

    /// Takes the state that an earlier process has left in the file; `None` after the first call.
    pub(crate) fn take_past(&mut self) -> Option<ResumePoint> {
        self.past.take()
    }

    /// Returns the instant at which a recording to this file begins if the wall clock shows `wall`. It is 0 in a new file; otherwise it is
    /// after the last tick.
    pub fn first_instant(&self, wall: i64) -> Nanos {
        self.past.as_ref().map_or(0, |past| past.resume(wall).0)
    }

    /// Returns new messages for the user about the bounds of a ring; each is returned once.
    pub fn take_notices(&mut self) -> Vec<String> {
        self.bounds.as_mut().map(Bounds::take_notices).unwrap_or_default()
    }

    /// If this is a ring, adds the wall-clock time of an instant, to be stored with the next sample.
    pub(crate) fn note_wall(&mut self, t: Nanos, wall: i64) {
        if self.bounds.is_some() {
            self.clock.push((t, wall));
        }
    }

    /// Starts a recording in memory.
    pub fn in_memory() -> Result<Self, Error> {
        let path = PathBuf::from(IN_MEMORY);
        let connection = Connection::open_in_memory()
            .and_then(|connection| crate::schema::create(&connection).map(|()| connection))
            .map_err(|error| Error::sqlite(&path, error))?;
        Ok(Writer::new(connection, path, None))
    }

    fn new(connection: Connection, path: PathBuf, lock: Option<File>) -> Self {
        connection.set_prepared_statement_cache_capacity(64);
        Writer {
            connection,
            path,
            lock,
            groups: Vec::new(),
            last: None,
            segment: Segment::default(),
            hot_bytes: 0,
            stored_bytes: 0,
            sealed: Vec::new(),
            prolonged_gaps: Vec::new(),
            last_checkpoint: 0,
            texts: TextIds::default(),
            encoder: Encoder::default(),
            bounds: None,
            past: None,
            clock: Vec::new(),
        }
    }

    /// Stores the wall-clock time at the zero of the recording, in nanoseconds since 1970.
    pub fn set_wall_at_zero(&mut self, wall: i64) -> Result<(), Error> {
        self.set_meta(meta::WALL_AT_ZERO, &wall.to_string()).map_err(|error| self.error(error))
    }

    fn set_meta(&self, key: &str, value: &str) -> rusqlite::Result<()> {
        let sql = "INSERT OR REPLACE INTO meta(key, value) VALUES (?1, ?2)";
        self.connection.prepare_cached(sql)?.execute((key, value)).map(drop)
    }

    /// Adds a sample; the series ids of its readings refer to `table`. Ticks must increase, incarnations must not decrease, and
    /// the table must be the same as before, except for added series.
    ///
    /// Once this returns, the sample survives the end of this process. After an error, no part of the sample is in the file, and further
    /// samples may be added.
    pub fn append(&mut self, sample: &Sample, table: &SeriesTable) -> Result<(), Error> {
        self.check(sample, table)?;
        if let Some(bounds) = &mut self.bounds
            && !bounds.prepare(&self.connection).map_err(|error| Error::sqlite(&self.path, error))?
        {
            return Err(Error::BlockedByReader { path: self.path.clone() });
        }
        let must_seal = self.bounds.as_ref().is_some_and(|bounds| bounds.must_seal(self.hot_bytes));
        if self.segment.is_due(&sample.tick) || must_seal {
            self.seal();
        }
        if !self.sealed.is_empty() {
            self.store_sealed()?;
            self.keep_bounds(sample.tick.t)?;
        }

        let fresh: Vec<Group> =
            table.iter().skip(self.groups.len()).map(|(_, series)| series.group).collect();
        self.groups.extend(&fresh);
        if let Err(error) = self.with_room(|writer| writer.store(sample, table, fresh.len())) {
            self.groups.truncate(self.groups.len() - fresh.len());
            return Err(error);
        }
        self.prolonged_gaps.clear();
        self.clock.clear();
        self.segment.push(sample);
        self.hot_bytes += self.stored_bytes;
        self.last = Some((sample.tick.t, sample.tick.incarnation));
        self.checkpoint(sample.tick.t);
        Ok(())
    }

    /// Runs a transaction. If the file is full, a ring drops old data and tries again.
    fn with_room(&mut self, mut work: impl FnMut(&mut Self) -> rusqlite::Result<()>) -> Result<(), Error> {
        let mut is_log_new = false;
        loop {
            let Err(error) = work(self) else { return Ok(()) };
            self.texts.forget();
            let can_go_on = is_full(&error)
                && if self.has_free_pages()? {
                    !std::mem::replace(&mut is_log_new, true)
                        && ring::restart_log(&self.connection).map_err(|error| self.error(error))?
                } else {
                    self.make_room()?
                };
            if !can_go_on {
                return Err(match &self.bounds {
                    Some(bounds) if is_full(&error) && !bounds.is_disk_low() => bounds.too_small(&self.path),
                    _ => self.error(error),
                });
            }
        }
    }

    fn has_free_pages(&self) -> Result<bool, Error> {
        let free = self.bounds.as_ref().map_or(Ok(false), |bounds| bounds.has_free_pages(&self.connection));
        free.map_err(|error| self.error(error))
    }

    /// Drops the oldest segment of a ring, or seals the current segment if there is no other. Returns false if neither makes room.
    fn make_room(&mut self) -> Result<bool, Error> {
        let Some(bounds) = &mut self.bounds else { return Ok(false) };
        let present = self.segment.begin().or(self.last.map(|(t, _)| t)).unwrap_or(0);
        match bounds.drop_oldest(&self.connection, present) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) if is_full(&error) => return Ok(false),
            Err(error) => return Err(self.error(error)),
        }
        if self.segment.begin().is_none() {
            return Ok(false);
        }
        self.seal();
        match self.put_sealed() {
            Ok(()) => {
                self.sealed.clear();
                Ok(true)
            }
            Err(error) if is_full(&error) => Ok(false),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Drops data that are too old for a ring, after a segment was sealed.
    fn keep_bounds(&mut self, now: Nanos) -> Result<(), Error> {
        let Some(bounds) = &self.bounds else { return Ok(()) };
        let mut drop = || -> rusqlite::Result<()> {
            if bounds.drop_old(&self.connection, now)? && self.texts.added > TEXTS_PER_CLEANUP {
                self.texts.forget();
                ring::restart_log(&self.connection)?;
                ring::drop_texts(&self.connection)?;
                self.texts.added = 0;
            }
            Ok(())
        };
        match drop() {
            // Tried again after the next segment.
            Err(error) if is_full(&error) => Ok(()),
            other => other.map_err(|error| self.error(error)),
        }
    }

    fn shrink(&self) -> Result<(), Error> {
        match self.bounds.as_ref().map_or(Ok(()), |bounds| bounds.shrink(&self.connection)) {
            Err(error) if is_full(&error) => Ok(()),
            other => other.map_err(|error| self.error(error)),
        }
    }

    /// Moves the end of a gap of an earlier sample. This is stored with the next sample, or by [`finish`](Writer::finish).
    pub fn prolong_gap(&mut self, source: &str, begin: Nanos, end: Nanos) {
        self.prolonged_gaps
            .retain(|(other, other_begin, _)| (other.as_str(), *other_begin) != (source, begin));
        self.prolonged_gaps.push((source.to_owned(), begin, end));
    }

    fn check(&self, sample: &Sample, table: &SeriesTable) -> Result<(), Error> {
        let tick = &sample.tick;
        // No tick is before the zero of the recording.
        let (last_t, last_incarnation) = self.last.unwrap_or((-1, 0));
        if tick.t <= last_t || tick.incarnation < last_incarnation {
            let (t, incarnation) = (tick.t, tick.incarnation);
            return Err(Error::OutOfOrder { t, incarnation, last_t, last_incarnation });
        }
        if table.len() < self.groups.len() || sample.readings.iter().any(|(id, _)| id.index() >= table.len())
        {
            return Err(Error::ForeignSeries);
        }
        if sample.busiest.len() > busiest::MAX_ENTRIES / 2 {
            return Err(Error::Oversized { what: "processes", count: sample.busiest.len() });
        }
        Ok(())
    }

    fn store(&mut self, sample: &Sample, table: &SeriesTable, fresh: usize) -> rusqlite::Result<()> {
        let transaction = self.connection.unchecked_transaction()?;
        let tick = &sample.tick;
        let t = tick.t;
        if fresh > 0 {
            let mut insert = transaction.prepare_cached(
                "INSERT INTO series(id, grp, entity, name, unit, kind) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?;
            for (id, series) in table.iter().skip(table.len() - fresh) {
                let (group, unit, kind) = (series.group.text(), series.unit.text(), series.kind.text());
                insert.execute(params![id.0, group, series.entity, series.name, unit, kind])?;
            }
        }
        transaction
            .prepare_cached(
                "INSERT INTO tick(t, inc, vm_t0, vm_t1, host_t0, host_t1, late) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                t,
                tick.incarnation,
                tick.vm.map(|span| span.begin),
                tick.vm.map(|span| span.end),
                tick.host.map(|span| span.begin),
                tick.host.map(|span| span.end),
                tick.late,
            ])?;
        if let Some(incarnation) = &sample.incarnation {
            transaction.execute(
                "INSERT INTO incarnation(id, tick, node, os_pid, boot, mono0, wall0) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    incarnation.id,
                    t,
                    incarnation.node,
                    incarnation.os_pid,
                    incarnation.boot,
                    incarnation.mono0,
                    incarnation.wall0
                ],
            )?;
        }
        self.stored_bytes = 0;
        for blob in segment::of_sample(sample, &self.groups, &self.segment, &mut self.encoder) {
            self.stored_bytes += blob.packed.bytes.len() as u64;
            transaction
                .prepare_cached("INSERT INTO hot(grp, t, codec, crc, blob) VALUES (?1, ?2, ?3, ?4, ?5)")?
                .execute(params![blob.name(), t, blob.packed.codec, blob.packed.crc, blob.packed.bytes])?;
        }
        let facts: Vec<FactRow> = sample
            .facts
            .iter()
            .map(|(key, value)| FactRow {
                incarnation: tick.incarnation,
                key: key.clone(),
                value: value.clone(),
            })
            .collect();
        let texts = &mut self.texts;
        rows::insert(&transaction, texts, t, &facts)?;
        rows::insert(&transaction, texts, t, &sample.snapshots)?;
        for_each_row_type!(R => rows::insert(&transaction, texts, t, R::of(sample))?);
        prolong(&transaction, &self.prolonged_gaps)?;
        for (t, wall) in &self.clock {
            transaction
                .prepare_cached("INSERT OR REPLACE INTO clock(t, wall) VALUES (?1, ?2)")?
                .execute((t, wall))?;
        }
        transaction.commit()
    }

    /// Checkpoints the log once a minute.
    fn checkpoint(&mut self, t: Nanos) {
        if t.saturating_sub(self.last_checkpoint) >= CHECKPOINT_INTERVAL_NS {
            self.last_checkpoint = t;
            // If this fails (because of a full disk or a reader), all data are still in the log, and the next checkpoint may succeed.
            let _ = match self.bounds {
                Some(_) => ring::restart_log(&self.connection).map(drop),
                None => self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())),
            };
        }
    }

    /// Encodes the current segment as chunks.
    fn seal(&mut self) {
        self.segment.seal(&self.groups, &mut self.encoder, &mut self.sealed);
        self.hot_bytes = 0;
    }

    /// Replaces the rows in `hot` by the sealed chunks, if there are any.
    fn store_sealed(&mut self) -> Result<(), Error> {
        if !self.sealed.is_empty() {
            if self.bounds.is_some() {
                // Makes room in the log for all chunks.
                ring::restart_log(&self.connection).map_err(|error| self.error(error))?;
            }
            self.with_room(|writer| writer.put_sealed())?;
            self.sealed.clear();
        }
        Ok(())
    }

    fn put_sealed(&self) -> rusqlite::Result<()> {
        let transaction = self.connection.unchecked_transaction()?;
        // Done first, so that the chunks can reuse the pages.
        transaction.execute("DELETE FROM hot", [])?;
        for Sealed { begin, end, blob } in &self.sealed {
            transaction
                .prepare_cached(
                    "INSERT INTO chunk(grp, t0, t1, codec, crc, blob) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                )?
                .execute(params![
                    blob.name(),
                    begin,
                    end,
                    blob.packed.codec,
                    blob.packed.crc,
                    blob.packed.bytes
                ])?;
        }
        transaction.commit()
    }

    /// Finishes the recording: leaves a single file, and opens it for reading.
    ///
    /// If there is not enough space to finish, all data written so far remain readable.
    pub fn finish(mut self) -> Result<Reader, Error> {
        self.seal();
        self.store_sealed()?;
        prolong(&self.connection, &self.prolonged_gaps)
            .and_then(|()| self.set_meta(meta::CLOSED, "1"))
            .map_err(|error| self.error(error))?;
        if self.lock.is_none() {
            return Ok(Reader::from_memory(self.connection, self.path));
        }
        self.leave_one_file().map_err(|error| self.error(error))?;
        let Writer { connection, path, lock, .. } = self;
        connection.close().map_err(|(_, error)| Error::sqlite(&path, error))?;
        drop(lock);
        Reader::open(&path)
    }

    fn leave_one_file(&self) -> rusqlite::Result<()> {
        self.connection
            .prepare("PRAGMA incremental_vacuum")?
            .query([])?
            .mapped(|_| Ok(()))
            .try_for_each(|row| row)?;
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        // SQLite refuses this while another process reads; then an empty log remains next to the complete file.
        match self.connection.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(())) {
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => Ok(()),
            other => other,
        }
    }

    fn error(&self, error: rusqlite::Error) -> Error {
        Error::sqlite(&self.path, error)
    }
}

fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
}

fn prolong(connection: &Connection, gaps: &[(String, Nanos, Nanos)]) -> rusqlite::Result<()> {
    for (source, begin, end) in gaps {
        connection
            .prepare_cached("UPDATE gap SET t1 = ?3 WHERE source = ?1 AND t0 = ?2")?
            .execute((source, begin, end))?;
    }
    Ok(())
}

impl Blob {
    fn name(&self) -> &'static str {
        self.group.map_or(BUSIEST, Group::text)
    }
}
