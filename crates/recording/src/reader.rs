//! Reading a recording in any state: finished, still being written, left by a crash, truncated, or damaged.
//!
//! Nothing is trusted. The checksum of a blob is verified before the blob is decoded. An unreadable page of the database only
//! loses its own content. Losses are reported as gaps.

mod open;
mod parts;
mod period;
mod resume;
mod samples;
mod scan;
mod wall;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use beamtune_model::{
    Facts, Gap, Group, Incarnation, Kind, Nanos, SeriesId, SeriesTable, Span, Tick, TroubleKind, Unit,
};
use rusqlite::{Connection, OptionalExtension, Row};

pub use period::Selection;
pub use resume::ResumePoint;
pub(crate) use resume::{Leftover, read_leftover};
pub use samples::Samples;

use crate::error::Error;
use crate::rows::{FactRow, Record, Texts};
use crate::schema::{self, AbsentColumn, meta};

/// `source` of gaps that concern the whole recording.
const RECORDING: &str = "recording";

/// A recording open for reading.
#[derive(Debug)]
pub struct Reader {
    connection: Connection,
    path: PathBuf,
    texts: Texts,
    missing_bytes: Option<u64>,
    /// Names of the tables in the file.
    tables: Vec<String>,
    /// Columns that this file lacks, because an older version of beamtune wrote it.
    absent_columns: Vec<AbsentColumn>,
}

/// An incarnation of the node in a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedIncarnation {
    /// Number, from 0.
    pub id: u32,
    /// Data of the incarnation; `None` if no source has announced it.
    pub incarnation: Option<Incarnation>,
    /// Number of recorded ticks.
    pub ticks: u32,
    /// The first recorded tick.
    pub begin: Nanos,
    /// The last recorded tick.
    pub end: Nanos,
}

impl Reader {
    /// Opens a recording. Another process may still be writing to it; each call then returns a consistent state. The recording may also
    /// have been left by a crash, even in a read-only directory.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let opened = open::open(path)?;
        let reader = Reader::new(opened.connection, path.to_owned(), opened.missing_bytes);
        if let Some(missing_bytes) = reader.missing_bytes
            && reader.recorded_incarnations().map_or(true, |lives| lives.is_empty())
        {
            return Err(Error::Truncated { path: path.to_owned(), missing_bytes });
        }
        Ok(reader)
    }

    /// Creates a reader of the database of an in-memory writer.
    pub(crate) fn from_memory(connection: Connection, path: PathBuf) -> Self {
        Reader::new(connection, path, None)
    }

    fn new(connection: Connection, path: PathBuf, missing_bytes: Option<u64>) -> Self {
        connection.set_prepared_statement_cache_capacity(64);
        let tables = open::tables(&connection).unwrap_or_default();
        let absent_columns = schema::absent_columns(&connection);
        Reader { connection, path, texts: Texts::default(), missing_bytes, tables, absent_columns }
    }

    /// Path of the file; `:memory:` if there is no file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of missing bytes if the file is truncated: its size according to the header minus its actual size.
    pub fn missing_bytes(&self) -> Option<u64> {
        self.missing_bytes
    }

    /// Version of beamtune that wrote the file: `beamtune 0.1.0`.
    pub fn written_by(&self) -> Option<String> {
        self.meta(meta::WRITTEN_BY)
    }

    /// Wall-clock time at the zero of the recording, in nanoseconds since 1970.
    pub fn wall_at_zero(&self) -> Option<i64> {
        self.meta(meta::WALL_AT_ZERO)?.parse().ok()
    }

    /// Whether the recording was finished properly; false while it is being written and after a crash.
    pub fn is_closed(&self) -> bool {
        self.meta(meta::CLOSED).is_some()
    }

    fn meta(&self, key: &str) -> Option<String> {
        let sql = "SELECT value FROM meta WHERE key = ?1";
        self.connection.query_row(sql, [key], |row| row.get(0)).optional().ok().flatten()
    }

    /// Returns the recorded incarnations, in order. Reads all ticks, which takes about 20 ms for a day.
    pub fn recorded_incarnations(&self) -> Result<Vec<RecordedIncarnation>, Error> {
        let mut lives: Vec<RecordedIncarnation> = Vec::new();
        self.ticks(scan::BEFORE_ALL_KEYS, Nanos::MAX, |tick| {
            let (id, t) = (tick.incarnation, tick.t);
            match lives.last_mut() {
                Some(life) if life.id == id => (life.ticks, life.end) = (life.ticks + 1, t),
                _ => lives.push(RecordedIncarnation { id, incarnation: None, ticks: 1, begin: t, end: t }),
            }
            true
        })?;
        // Each id occurs once, unless the file is damaged or hostile; then the first occurrence is used.
        let mut places = HashMap::new();
        for (place, life) in lives.iter().enumerate() {
            places.entry(life.id).or_insert(place);
        }
        self.incarnations(&mut 0, Nanos::MAX, |_, incarnation| {
            if let Some(life) = places.get(&incarnation.id).and_then(|place| lives.get_mut(*place)) {
                life.incarnation = Some(incarnation);
            }
        })?;
        Ok(lives)
    }

    /// Returns the facts of an incarnation, as of its end.
    pub fn facts(&self, incarnation: u32) -> Result<Facts, Error> {
        self.facts_until(incarnation, Nanos::MAX)
    }

    fn facts_until(&self, incarnation: u32, end: Nanos) -> Result<Facts, Error> {
        let mut facts = Facts::default();
        self.records(&mut 0, end, |_, fact: FactRow| {
            if fact.incarnation == incarnation {
                facts.set(&fact.key, fact.value);
            }
        })?;
        Ok(facts)
    }

    /// Returns all series, except those whose group, unit or kind this version does not know.
    pub fn series(&self) -> Result<SeriesTable, Error> {
        let mut series = SeriesMap::default();
        series.extend(self)?;
        Ok(series.table)
    }

    /// Calls `each` with the incarnations from id `next` up to tick `end` and their ticks; advances `next`.
    fn incarnations(
        &self,
        next: &mut i64,
        end: Nanos,
        mut each: impl FnMut(Nanos, Incarnation),
    ) -> Result<(), Error> {
        let sql =
            "SELECT id, tick, node, os_pid, boot, mono0, wall0 FROM incarnation WHERE id > ?1 ORDER BY id";
        self.scan(sql, next.saturating_sub(1), 1, |row| {
            let (id, tick): (u32, Nanos) = (row.get(0)?, row.get(1)?);
            if tick > end {
                return scan::STOP;
            }
            *next = i64::from(id) + 1;
            let incarnation = Incarnation {
                id,
                node: row.get(2)?,
                os_pid: row.get(3)?,
                boot: row.get(4)?,
                mono0: row.get(5)?,
                wall0: row.get(6)?,
            };
            each(tick, incarnation);
            scan::MORE
        })?;
        Ok(())
    }

    /// Calls `each` with the ticks after `after` up to `end`, until it returns false. Returns true if ticks may be missing.
    fn ticks(&self, after: Nanos, end: Nanos, mut each: impl FnMut(Tick) -> bool) -> Result<bool, Error> {
        let sql = "SELECT t, inc, vm_t0, vm_t1, host_t0, host_t1, late FROM tick WHERE t > ?1 ORDER BY t";
        // Consecutive ticks are more than a millisecond apart, and rarely much more than a second.
        self.scan(sql, after, 1_000_000, |row| {
            let tick = tick(row)?;
            if tick.t <= end && each(tick) { scan::MORE } else { scan::STOP }
        })
    }
}

/// Limit of instants and durations, 36 years, so that the difference of two garbled values does not overflow.
const MAX_TIME_NS: Nanos = 1 << 60;

fn tick(row: &Row<'_>) -> rusqlite::Result<Tick> {
    let span = |begin: Option<Nanos>, end: Option<Nanos>| Some(Span { begin: begin?, end: end? });
    let tick = Tick {
        t: row.get(0)?,
        incarnation: row.get(1)?,
        vm: span(row.get(2)?, row.get(3)?),
        host: span(row.get(4)?, row.get(5)?),
        late: row.get(6)?,
    };
    let near = |time: Nanos| (-MAX_TIME_NS..MAX_TIME_NS).contains(&time);
    let sound = |span: Span| near(span.begin) && near(span.end) && span.begin <= span.end;
    if near(tick.t) && near(tick.late) && tick.vm.is_none_or(sound) && tick.host.is_none_or(sound) {
        Ok(tick)
    } else {
        Err(rusqlite::Error::InvalidQuery)
    }
}

/// A gap for data lost by damage.
fn lost(begin: Nanos, end: Nanos, source: impl Into<String>, why: &str) -> Gap {
    Gap {
        begin,
        end,
        source: source.into(),
        kind: TroubleKind::Garbled,
        reason: format!("the recording is damaged here: {why}"),
    }
}

/// The last id that was read from each table.
#[derive(Debug, Default)]
struct Cursors {
    chunk: i64,
    hot: i64,
    /// The last id plus one.
    incarnation: i64,
    /// Tables of rows, by name.
    rows: HashMap<&'static str, i64>,
}

impl Cursors {
    fn of<R: Record>(&mut self) -> &mut i64 {
        self.rows.entry(R::TABLE).or_default()
    }
}

/// Maps the series ids of a file to those of a [`SeriesTable`]. They differ only if the file is damaged, or has groups or units that
/// this version does not know.
#[derive(Debug, Default)]
struct SeriesMap {
    table: SeriesTable,
    ids: Vec<Option<SeriesId>>,
}

impl SeriesMap {
    /// Adds series that are new since the last call. Returns true if series may be missing.
    fn extend(&mut self, reader: &Reader) -> Result<bool, Error> {
        let sql = "SELECT id, grp, entity, name, unit, kind FROM series WHERE id > ?1 ORDER BY id";
        let after = self.ids.len() as i64 - 1;
        reader.scan(sql, after, 1, |row| {
            let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
            let known = (|| {
                let group = Group::from_text(text(1).ok()?)?;
                Some((group, Unit::from_text(text(4).ok()?)?, Kind::from_text(text(5).ok()?)?))
            })();
            let id: u32 = row.get(0)?;
            // Ids are dense unless the file is damaged; a wild id must not exhaust the memory.
            if id as usize > self.ids.len() + 1_000_000 {
                return scan::STOP;
            }
            self.ids.resize(id as usize, None);
            let (entity, name) = (text(2)?, text(3)?);
            self.ids
                .push(known.map(|(group, unit, kind)| self.table.intern(group, entity, name, unit, kind)));
            scan::MORE
        })
    }

    fn id(&self, stored: u32) -> Option<SeriesId> {
        self.ids.get(stored as usize).copied().flatten()
    }
}
