//! Writing a recording, a sample at a time.
//!
//! Each sample is one transaction: its tick, its rows, and its readings as one small row per group in
//! `hot`. Every five minutes the readings of those minutes, which are also kept in memory, go as chunks
//! into `chunk`, and the rows of `hot` go away, in one transaction. So at every instant each reading
//! stands in the file exactly once.
//!
//! # What a crash leaves
//!
//! The database is in WAL mode with `synchronous = NORMAL`. A killed process loses nothing that was
//! committed: it is with the kernel. There is no `fsync` per second, which on a production host would
//! disturb the disk of the very node that is measured; there are two per minute, when the log is
//! carried over into the file. So after a power loss the file is consistent, and at most the last
//! minute is missing.

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
use crate::reader::{self, Left, Past, Reader};
use crate::rows::{self, FactRow, TextIds};
use crate::schema::{BUSIEST, RING_SCHEMA, meta};
use ring::Bounds;
use segment::{Blob, Segment};

/// How often the log is carried over into the file: what a power loss may cost.
const CARRY_OVER_NS: Nanos = 60 * SECOND_NS;

/// Texts that a ring adds before those that nobody refers to any more are looked for.
const MANY_TEXTS: u64 = 10_000;

/// What stands for a file's name in messages about a recording in memory.
const IN_MEMORY: &str = ":memory:";

/// A recording being written. Dropped without [`finish`](Writer::finish), it is left as by a crash: whole, but in
/// more than one file.
#[derive(Debug)]
pub struct Writer {
    connection: Connection,
    path: PathBuf,
    /// Keeps other writers away; closed after the connection, `None` in memory.
    lock: Option<File>,
    /// The group of each series stored so far; ids are dense.
    groups: Vec<Group>,
    last: Option<(Nanos, u32)>,
    segment: Segment,
    /// Bytes in `hot`, which become a little less in chunks.
    hot_bytes: u64,
    /// Of them, those of the sample stored last.
    stored_bytes: u64,
    /// Chunks that wait to be stored in place of the rows in `hot`.
    sealed: Vec<Sealed>,
    longer_gaps: Vec<(String, Nanos, Nanos)>,
    /// The tick after which the log was last carried over into the file.
    carried_over: Nanos,
    texts: TextIds,
    encoder: Encoder,
    /// Of a ring.
    bounds: Option<Bounds>,
    /// What an earlier process has left in the file.
    past: Option<Past>,
    /// Instants with the wall-clock time at them, to be stored with the next sample.
    clock: Vec<(Nanos, i64)>,
}

#[derive(Debug)]
struct Sealed {
    begin: Nanos,
    end: Nanos,
    blob: Blob,
}

impl Writer {
    /// Starts a recording in a new file. It appears whole or not at all, and nobody else can write to it.
    pub fn create(path: &Path, existing: Existing) -> Result<Self, Error> {
        let (connection, lock) = create::create(path, existing, |_| Ok(()))?;
        Ok(Writer::new(connection, path.to_owned(), Some(lock)))
    }

    /// Starts a ring of a node, or goes on in the one that is there, in whatever state its last writer has left it.
    pub fn ring(path: &Path, ring: Ring, node: &str) -> Result<Self, Error> {
        let at = |error| Error::sqlite(path, error);
        let ring = Ring { max_bytes: ring.max_bytes.max(Ring::SMALLEST_BYTES), ..ring };
        let Some(lock) = create::lock_old(path)? else {
            let (connection, lock) = create::create(path, Existing::Refuse, |connection| {
                connection.execute_batch(RING_SCHEMA)?;
                ring.store(connection, node)
            })?;
            let bounds = Bounds::new(&connection, path, ring).map_err(at)?;
            let writer = Writer::new(connection, path.to_owned(), Some(lock));
            return Ok(Writer { bounds: Some(bounds), ..writer });
        };
        let Left { past, unsealed, lost } = reader::left(path, node)?;
        let connection = create::open(path).map_err(at)?;
        crate::schema::add_missing(&connection).map_err(at)?;
        ring.store(&connection, node).map_err(at)?;
        connection.execute("DELETE FROM meta WHERE key = ?1", [meta::CLOSED]).map_err(at)?;
        let bounds = Bounds::new(&connection, path, ring).map_err(at)?;
        let mut writer = Writer {
            bounds: Some(bounds),
            groups: past.table.iter().map(|(_, series)| series.group).collect(),
            last: past.last,
            carried_over: past.last.map_or(0, |(t, _)| t),
            ..Writer::new(connection, path.to_owned(), Some(lock))
        };
        writer.past = Some(past);
        writer.seal_left(&unsealed, &lost)?;
        Ok(writer)
    }

    /// Makes chunks of the readings that the last writer has left unsealed.
    fn seal_left(&mut self, unsealed: &[Sample], lost: &[beamtune_model::Gap]) -> Result<(), Error> {
        unsealed.iter().for_each(|sample| self.segment.push(sample));
        self.seal();
        let tick = self.last.map_or(0, |(t, _)| t);
        rows::insert(&self.connection, &mut self.texts, tick, lost).map_err(|error| self.error(error))?;
        self.store_sealed()?;
        ring::drop_texts(&self.connection).map_err(|error| self.error(error))?;
        // With other bounds than before there may be too much.
        self.keep_bounds(tick)?;
        while let Some(bounds) = &mut self.bounds
            && bounds.exceeds(&self.connection).map_err(|error| Error::sqlite(&self.path, error))?
            && self.make_room()?
        {}
        self.shrink()
    }

    /// What an earlier process has left in the file; once.
    pub(crate) fn take_past(&mut self) -> Option<Past> {
        self.past.take()
    }

    /// The instant at which a recording of this file begins when the wall clock shows `wall`: 0 in a new one, else after
    /// the last tick.
    pub fn begins_at(&self, wall: i64) -> Nanos {
        self.past.as_ref().map_or(0, |past| past.resume(wall).0)
    }

    /// What the user should be told of a ring's bounds, each once.
    pub fn take_notices(&mut self) -> Vec<String> {
        self.bounds.as_mut().map(Bounds::take_notices).unwrap_or_default()
    }

    /// Notes what the wall clock shows at an instant, if this is a ring; stored with the next sample.
    pub(crate) fn note_wall(&mut self, t: Nanos, wall: i64) {
        if self.bounds.is_some() {
            self.clock.push((t, wall));
        }
    }

    /// Starts a recording that is in no file and is gone with the process.
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
            longer_gaps: Vec::new(),
            carried_over: 0,
            texts: TextIds::default(),
            encoder: Encoder::default(),
            bounds: None,
            past: None,
            clock: Vec::new(),
        }
    }

    /// Notes the wall-clock time at the recording's zero, in nanoseconds since 1970.
    pub fn set_wall_at_zero(&mut self, wall: i64) -> Result<(), Error> {
        self.set_meta(meta::WALL_AT_ZERO, &wall.to_string()).map_err(|error| self.error(error))
    }

    fn set_meta(&self, key: &str, value: &str) -> rusqlite::Result<()> {
        let sql = "INSERT OR REPLACE INTO meta(key, value) VALUES (?1, ?2)";
        self.connection.prepare_cached(sql)?.execute((key, value)).map(drop)
    }

    /// Adds a sample, whose readings' ids are those of `table`. Ticks grow, incarnations do not shrink, and the
    /// table is the same as before, perhaps longer.
    ///
    /// When this returns, the sample survives the end of this process. After an error nothing of it is in the
    /// file, and the next sample may be tried.
    pub fn append(&mut self, sample: &Sample, table: &SeriesTable) -> Result<(), Error> {
        self.check(sample, table)?;
        if let Some(bounds) = &mut self.bounds
            && !bounds.prepare(&self.connection).map_err(|error| Error::sqlite(&self.path, error))?
        {
            return Err(Error::HeldByReader { path: self.path.clone() });
        }
        let is_much = self.bounds.as_ref().is_some_and(|bounds| bounds.is_much(self.hot_bytes));
        if self.segment.is_due(&sample.tick) || is_much {
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
        self.longer_gaps.clear();
        self.clock.clear();
        self.segment.push(sample);
        self.hot_bytes += self.stored_bytes;
        self.last = Some((sample.tick.t, sample.tick.incarnation));
        self.carry_over(sample.tick.t);
        Ok(())
    }

    /// Does something in one transaction; where there is no room for it, a ring makes some.
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

    /// Drops the oldest of a ring; if there is nothing but the present segment, seals that. False if nothing is left to
    /// be done.
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

    /// After a segment was sealed: drops what a ring is not to hold any more.
    fn keep_bounds(&mut self, now: Nanos) -> Result<(), Error> {
        let Some(bounds) = &self.bounds else { return Ok(()) };
        let mut drop = || -> rusqlite::Result<()> {
            if bounds.drop_old(&self.connection, now)? && self.texts.added > MANY_TEXTS {
                self.texts.forget();
                ring::restart_log(&self.connection)?;
                ring::drop_texts(&self.connection)?;
                self.texts.added = 0;
            }
            Ok(())
        };
        match drop() {
            // Next time, then.
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

    /// Moves the end of a gap that was added with an earlier sample; stored with the next sample, or at the end.
    pub fn prolong_gap(&mut self, source: &str, begin: Nanos, end: Nanos) {
        self.longer_gaps.retain(|(other, other_begin, _)| (other.as_str(), *other_begin) != (source, begin));
        self.longer_gaps.push((source.to_owned(), begin, end));
    }

    fn check(&self, sample: &Sample, table: &SeriesTable) -> Result<(), Error> {
        let tick = &sample.tick;
        // Nothing is before the recording's zero.
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
        if let Some(life) = &sample.incarnation {
            transaction.execute(
                "INSERT INTO incarnation(id, tick, node, os_pid, boot, mono0, wall0) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![life.id, t, life.node, life.os_pid, life.boot, life.mono0, life.wall0],
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
        rows::insert(&transaction, texts, t, &sample.processes)?;
        rows::insert(&transaction, texts, t, &sample.tables)?;
        rows::insert(&transaction, texts, t, &sample.ports)?;
        rows::insert(&transaction, texts, t, &sample.spawns)?;
        rows::insert(&transaction, texts, t, &sample.stands)?;
        rows::insert(&transaction, texts, t, &sample.messages)?;
        rows::insert(&transaction, texts, t, &sample.ran)?;
        rows::insert(&transaction, texts, t, &sample.exits)?;
        rows::insert(&transaction, texts, t, &sample.carriers)?;
        rows::insert(&transaction, texts, t, &sample.allocations)?;
        rows::insert(&transaction, texts, t, &sample.code)?;
        rows::insert(&transaction, texts, t, &sample.holders)?;
        rows::insert(&transaction, texts, t, &sample.collections)?;
        rows::insert(&transaction, texts, t, &sample.collected)?;
        rows::insert(&transaction, texts, t, &sample.lock_sessions)?;
        rows::insert(&transaction, texts, t, &sample.locks)?;
        rows::insert(&transaction, texts, t, &sample.waits)?;
        rows::insert(&transaction, texts, t, &sample.snapshots)?;
        rows::insert(&transaction, texts, t, &sample.events)?;
        rows::insert(&transaction, texts, t, &sample.gaps)?;
        prolong(&transaction, &self.longer_gaps)?;
        for (t, wall) in &self.clock {
            transaction
                .prepare_cached("INSERT OR REPLACE INTO clock(t, wall) VALUES (?1, ?2)")?
                .execute((t, wall))?;
        }
        transaction.commit()
    }

    /// Carries the log over into the file, once a minute.
    fn carry_over(&mut self, t: Nanos) {
        if t.saturating_sub(self.carried_over) >= CARRY_OVER_NS {
            self.carried_over = t;
            // If it fails (a full disk, a reader in the way), all is still in the log, and the next one may succeed.
            let _ = match self.bounds {
                Some(_) => ring::restart_log(&self.connection).map(drop),
                None => self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())),
            };
        }
    }

    /// Makes chunks of what is in memory.
    fn seal(&mut self) {
        self.segment.seal(&self.groups, &mut self.encoder, &mut self.sealed);
        self.hot_bytes = 0;
    }

    /// Puts sealed chunks in place of the rows in `hot`, if there are any.
    fn store_sealed(&mut self) -> Result<(), Error> {
        if !self.sealed.is_empty() {
            if self.bounds.is_some() {
                // So that the log has room for all of them.
                ring::restart_log(&self.connection).map_err(|error| self.error(error))?;
            }
            self.with_room(|writer| writer.put_sealed())?;
            self.sealed.clear();
        }
        Ok(())
    }

    fn put_sealed(&self) -> rusqlite::Result<()> {
        let transaction = self.connection.unchecked_transaction()?;
        // First, so that the chunks have its pages.
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

    /// Ends the recording: leaves it as one file, and opens it for reading.
    ///
    /// If there is no room left even for this, what was written stays readable as it is.
    pub fn finish(mut self) -> Result<Reader, Error> {
        self.seal();
        self.store_sealed()?;
        prolong(&self.connection, &self.longer_gaps)
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
        // Refused while somebody reads; then an empty log stays beside the file, which is whole all the same.
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
