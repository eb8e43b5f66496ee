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
mod segment;

use std::fs::File;
use std::path::{Path, PathBuf};

use beamtune_model::units::SECOND_NS;
use beamtune_model::{Group, Nanos, Sample, SeriesTable};
use rusqlite::{Connection, params};

pub use create::Existing;
pub(crate) use create::sidecar_path;

use crate::codec::busiest;
use crate::codec::column::Encoder;
use crate::error::Error;
use crate::reader::Reader;
use crate::rows::{self, FactRow, TextIds};
use crate::schema::{BUSIEST, meta};
use segment::{Blob, Segment};

/// How often the log is carried over into the file: what a power loss may cost.
const CARRY_OVER_NS: Nanos = 60 * SECOND_NS;

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
    /// Chunks that wait to be stored in place of the rows in `hot`.
    sealed: Vec<Sealed>,
    longer_gaps: Vec<(String, Nanos, Nanos)>,
    /// The tick after which the log was last carried over into the file.
    carried_over: Nanos,
    texts: TextIds,
    encoder: Encoder,
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
        let (connection, lock) = create::create(path, existing)?;
        Ok(Writer::new(connection, path.to_owned(), Some(lock)))
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
            sealed: Vec::new(),
            longer_gaps: Vec::new(),
            carried_over: 0,
            texts: TextIds::default(),
            encoder: Encoder::default(),
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
        if self.segment.is_due(&sample.tick) {
            self.segment.seal(&self.groups, &mut self.encoder, &mut self.sealed);
        }
        self.store_sealed()?;

        let fresh: Vec<Group> =
            table.iter().skip(self.groups.len()).map(|(_, series)| series.group).collect();
        self.groups.extend(&fresh);
        if let Err(error) = self.store(sample, table, fresh.len()) {
            self.groups.truncate(self.groups.len() - fresh.len());
            self.texts.forget();
            return Err(self.error(error));
        }
        self.longer_gaps.clear();
        self.segment.push(sample);
        self.last = Some((sample.tick.t, sample.tick.incarnation));
        self.carry_over(sample.tick.t);
        Ok(())
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
        for blob in segment::of_sample(sample, &self.groups, &self.segment, &mut self.encoder) {
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
        rows::insert(&transaction, texts, t, &sample.snapshots)?;
        rows::insert(&transaction, texts, t, &sample.events)?;
        rows::insert(&transaction, texts, t, &sample.gaps)?;
        prolong(&transaction, &self.longer_gaps)?;
        transaction.commit()
    }

    /// Carries the log over into the file, once a minute.
    fn carry_over(&mut self, t: Nanos) {
        if t.saturating_sub(self.carried_over) >= CARRY_OVER_NS {
            self.carried_over = t;
            // If it fails (a full disk, a reader in the way), all is still in the log, and the next one may succeed.
            let _ = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        }
    }

    /// Puts sealed chunks in place of the rows in `hot`, if there are any.
    fn store_sealed(&mut self) -> Result<(), Error> {
        if self.sealed.is_empty() {
            return Ok(());
        }
        let store = || -> rusqlite::Result<()> {
            let transaction = self.connection.unchecked_transaction()?;
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
            transaction.execute("DELETE FROM hot", [])?;
            transaction.commit()
        };
        store().map_err(|error| self.error(error))?;
        self.sealed.clear();
        Ok(())
    }

    /// Ends the recording: leaves it as one file, and opens it for reading.
    ///
    /// If there is no room left even for this, what was written stays readable as it is.
    pub fn finish(mut self) -> Result<Reader, Error> {
        self.segment.seal(&self.groups, &mut self.encoder, &mut self.sealed);
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
