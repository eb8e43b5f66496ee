//! The typed tables: data stored as rows rather than in chunks, with writing and reading of each type side by side.

mod exits;
mod locks;
mod memory;
mod messages;
mod wait_samples;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use beamtune_model::{
    AllocationRow, CarrierRow, CodeRow, CollectRow, CollectionRow, Event, ExitRow, Gap, HolderRow, LockRow,
    LockSession, MessageRow, Nanos, PortRow, ProcessRow, RanRow, Rank, Snapshot, SpawnRow, StandRow,
    TableRow, TroubleKind, WaitRow,
};
use rusqlite::types::{FromSql, FromSqlError, Type};
use rusqlite::{Connection, OptionalExtension, Row, Statement, ToSql};
use serde::de::DeserializeOwned;

use crate::codec::packed::Packed;

/// Maximum number of strings cached when writing and when reading; others are looked up in the file.
const CACHED_TEXTS: usize = 10_000;

/// A type with its own table, whose first columns are `id` and `tick`.
pub(crate) trait Record: Sized {
    /// Name of the table.
    const TABLE: &'static str;
    /// Its other columns.
    const COLUMNS: &'static [&'static str];
    /// Writes the values of these columns, in order.
    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()>;
    /// Reads the values of these columns, in order.
    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self>;
    /// Whether the row still applies at an instant after its own sample was dropped.
    fn holds_at(&self, _t: Nanos) -> bool {
        false
    }
}

/// Stores the rows of the sample at `tick`.
pub(crate) fn insert<R: Record>(
    connection: &Connection,
    texts: &mut TextIds,
    tick: i64,
    rows: &[R],
) -> rusqlite::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let placeholders = ", ?".repeat(R::COLUMNS.len());
    let sql = format!("INSERT INTO {}(tick, {}) VALUES (?{placeholders})", R::TABLE, R::COLUMNS.join(", "));
    let mut statement = connection.prepare_cached(&sql)?;
    for row in rows {
        let mut writer = Writer { connection, statement: &mut statement, texts, next: 1 };
        writer.put(tick)?;
        row.write(&mut writer)?;
        statement.raw_execute()?;
    }
    Ok(())
}

/// SQL that selects rows after an id, ordered by id. Columns that the file lacks, because an older version created it, are null.
pub(crate) fn select<R: Record>(lacks: impl Fn(&str, &str) -> bool) -> String {
    let column = |name: &&'static str| if lacks(R::TABLE, name) { "NULL" } else { name };
    let columns: Vec<&str> = R::COLUMNS.iter().map(column).collect();
    format!("SELECT id, tick, {} FROM {} WHERE id > ?1 ORDER BY id", columns.join(", "), R::TABLE)
}

/// Writes the values of a row to a statement.
pub(crate) struct Writer<'a, 's> {
    connection: &'a Connection,
    statement: &'a mut Statement<'s>,
    texts: &'a mut TextIds,
    next: usize,
}

impl Writer<'_, '_> {
    fn put(&mut self, value: impl ToSql) -> rusqlite::Result<()> {
        self.statement.raw_bind_parameter(self.next, value)?;
        self.next += 1;
        Ok(())
    }

    fn text(&mut self, text: &str) -> rusqlite::Result<()> {
        let id = self.texts.id(self.connection, text)?;
        self.put(id)
    }

    fn maybe_text(&mut self, text: Option<&str>) -> rusqlite::Result<()> {
        match text {
            Some(text) => self.text(text),
            None => self.put(None::<i64>),
        }
    }
}

/// Reads the values of a row from a statement.
pub(crate) struct Reader<'a> {
    row: &'a Row<'a>,
    connection: &'a Connection,
    texts: &'a Texts,
    next: usize,
}

impl<'a> Reader<'a> {
    /// Starts after the columns `id` and `tick`.
    pub(crate) fn new(row: &'a Row<'a>, connection: &'a Connection, texts: &'a Texts) -> Self {
        Reader { row, connection, texts, next: 2 }
    }

    fn get<T: FromSql>(&mut self) -> rusqlite::Result<T> {
        self.next += 1;
        self.row.get(self.next - 1)
    }

    fn text(&mut self) -> rusqlite::Result<String> {
        let id = self.get()?;
        self.texts.get(self.connection, id)
    }

    fn maybe_text(&mut self) -> rusqlite::Result<Option<String>> {
        self.get::<Option<i64>>()?.map(|id| self.texts.get(self.connection, id)).transpose()
    }

    /// A JSON list of strings.
    fn list(&mut self) -> rusqlite::Result<Vec<String>> {
        let json = self.text()?;
        self.parsed(&json)
    }

    /// The same for a nullable column; null is an empty list.
    fn maybe_list(&mut self) -> rusqlite::Result<Vec<String>> {
        self.maybe_text()?.map_or_else(|| Ok(Vec::new()), |json| self.parsed(&json))
    }

    /// A column that holds JSON itself.
    fn json<T: DeserializeOwned>(&mut self) -> rusqlite::Result<T> {
        let json: String = self.get()?;
        self.parsed(&json)
    }

    fn parsed<T: DeserializeOwned>(&self, json: &str) -> rusqlite::Result<T> {
        serde_json::from_str(json).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(self.next - 1, Type::Text, error.into())
        })
    }
}

/// Tables whose rows are dropped together with their tick.
pub(crate) const BY_TICK: &[&str] = &[
    ProcessRow::TABLE,
    TableRow::TABLE,
    PortRow::TABLE,
    SpawnRow::TABLE,
    StandRow::TABLE,
    MessageRow::TABLE,
    RanRow::TABLE,
    ExitRow::TABLE,
    CarrierRow::TABLE,
    AllocationRow::TABLE,
    CodeRow::TABLE,
    HolderRow::TABLE,
    CollectionRow::TABLE,
    CollectRow::TABLE,
    LockSession::TABLE,
    LockRow::TABLE,
    WaitRow::TABLE,
    Snapshot::TABLE,
    Event::TABLE,
];

/// Ids of all texts that rows refer to.
pub(crate) fn used_texts(connection: &Connection) -> rusqlite::Result<HashSet<i64>> {
    fn add<R: Record>(connection: &Connection, used: &mut HashSet<i64>) -> rusqlite::Result<()> {
        let columns: Vec<&str> =
            R::COLUMNS.iter().copied().filter(|column| column.ends_with("_text")).collect();
        let mut all = connection.prepare(&format!("SELECT {} FROM {}", columns.join(", "), R::TABLE))?;
        let mut rows = all.query([])?;
        while let Some(row) = rows.next()? {
            for column in 0..columns.len() {
                used.extend(row.get::<_, Option<i64>>(column)?);
            }
        }
        Ok(())
    }
    let mut used = HashSet::new();
    add::<ProcessRow>(connection, &mut used)?;
    add::<TableRow>(connection, &mut used)?;
    add::<PortRow>(connection, &mut used)?;
    add::<SpawnRow>(connection, &mut used)?;
    add::<StandRow>(connection, &mut used)?;
    add::<RanRow>(connection, &mut used)?;
    add::<ExitRow>(connection, &mut used)?;
    add::<CarrierRow>(connection, &mut used)?;
    add::<AllocationRow>(connection, &mut used)?;
    add::<CodeRow>(connection, &mut used)?;
    add::<HolderRow>(connection, &mut used)?;
    add::<CollectionRow>(connection, &mut used)?;
    add::<CollectRow>(connection, &mut used)?;
    add::<LockRow>(connection, &mut used)?;
    add::<WaitRow>(connection, &mut used)?;
    Ok(used)
}

/// Ids of stored strings.
#[derive(Debug, Default)]
pub(crate) struct TextIds {
    ids: HashMap<Box<str>, i64>,
    /// Number of strings added to the file.
    pub(crate) added: u64,
}

impl TextIds {
    fn id(&mut self, connection: &Connection, text: &str) -> rusqlite::Result<i64> {
        if let Some(id) = self.ids.get(text) {
            return Ok(*id);
        }
        let known = connection
            .prepare_cached("SELECT id FROM text WHERE string = ?1")?
            .query_row([text], |row| row.get(0))
            .optional()?;
        let id = match known {
            Some(id) => id,
            None => {
                self.added += 1;
                connection.prepare_cached("INSERT INTO text(string) VALUES (?1)")?.insert([text])?
            }
        };
        if self.ids.len() >= CACHED_TEXTS {
            self.ids.clear();
        }
        self.ids.insert(text.into(), id);
        Ok(id)
    }

    /// Must be called after a rollback or after texts were deleted, which invalidate ids.
    pub(crate) fn forget(&mut self) {
        self.ids.clear();
    }
}

/// Strings by id.
#[derive(Debug, Default)]
pub(crate) struct Texts(RefCell<HashMap<i64, Rc<str>>>);

impl Texts {
    fn get(&self, connection: &Connection, id: i64) -> rusqlite::Result<String> {
        if let Some(text) = self.0.borrow().get(&id) {
            return Ok(text.to_string());
        }
        let text: Rc<str> = connection
            .prepare_cached("SELECT string FROM text WHERE id = ?1")?
            .query_row([id], |row| row.get(0))?;
        let mut cache = self.0.borrow_mut();
        if cache.len() >= CACHED_TEXTS {
            cache.clear();
        }
        cache.insert(id, Rc::clone(&text));
        Ok(text.to_string())
    }
}

/// A JSON list of strings.
fn json<'a>(items: impl Iterator<Item = &'a str>) -> String {
    serde_json::Value::from_iter(items).to_string()
}

impl Record for ProcessRow {
    const TABLE: &'static str = "process";
    const COLUMNS: &'static [&'static str] = &[
        "t",
        "pid",
        "ranks_text",
        "name_text",
        "label_text",
        "initial_call_text",
        "current_function_text",
        "application_text",
        "parent",
        "status_text",
        "reductions",
        "queue",
        "message_queue_data_text",
        "memory_bytes",
        "total_heap_words",
        "binary_bytes",
        "minor_gcs",
        "fullsweep_after",
        "min_heap_words",
        "total_bytes",
        "fragment_bytes",
        "stack_text",
        "priority_text",
    ];

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(self.t)?;
        out.put(&self.pid)?;
        out.text(&json(self.ranks.iter().map(|rank| rank.text())))?;
        out.maybe_text(self.name.as_deref())?;
        out.maybe_text(self.label.as_deref())?;
        out.maybe_text(self.initial_call.as_deref())?;
        out.maybe_text(self.current_function.as_deref())?;
        out.maybe_text(self.application.as_deref())?;
        out.put(&self.parent)?;
        out.maybe_text(self.status.as_deref())?;
        out.put(self.reductions)?;
        out.put(self.queue)?;
        out.maybe_text(self.message_queue_data.as_deref())?;
        out.put(self.memory_bytes)?;
        out.put(self.total_heap_words)?;
        out.put(self.binary_bytes)?;
        out.put(self.minor_gcs)?;
        out.put(self.fullsweep_after)?;
        out.put(self.min_heap_words)?;
        out.put(self.total_bytes)?;
        out.put(self.fragment_bytes)?;
        out.maybe_text(
            (!self.stack.is_empty()).then(|| json(self.stack.iter().map(String::as_str))).as_deref(),
        )?;
        out.maybe_text(self.priority.as_deref())
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        Ok(ProcessRow {
            t: from.get()?,
            pid: from.get()?,
            // Ranks of newer versions are skipped.
            ranks: from.list()?.iter().filter_map(|rank| Rank::from_text(rank)).collect(),
            name: from.maybe_text()?,
            label: from.maybe_text()?,
            initial_call: from.maybe_text()?,
            current_function: from.maybe_text()?,
            application: from.maybe_text()?,
            parent: from.get()?,
            status: from.maybe_text()?,
            reductions: from.get()?,
            queue: from.get()?,
            message_queue_data: from.maybe_text()?,
            memory_bytes: from.get()?,
            total_heap_words: from.get()?,
            binary_bytes: from.get()?,
            minor_gcs: from.get()?,
            fullsweep_after: from.get()?,
            min_heap_words: from.get()?,
            total_bytes: from.get()?,
            fragment_bytes: from.get()?,
            stack: from.maybe_list()?,
            priority: from.maybe_text()?,
        })
    }
}

impl Record for RanRow {
    const TABLE: &'static str = "ran";
    const COLUMNS: &'static [&'static str] =
        &["t", "pid", "stack_text", "looks", "waits", "kind_text", "collects"];

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(self.t)?;
        out.put(&self.pid)?;
        out.text(&json(self.stack.iter().map(String::as_str)))?;
        out.put(self.looks)?;
        out.put(self.waits)?;
        out.maybe_text(self.kind.as_deref())?;
        out.put(self.collects)
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        Ok(RanRow {
            t: from.get()?,
            pid: from.get()?,
            stack: from.list()?,
            looks: from.get()?,
            waits: from.get::<Option<bool>>()?.unwrap_or(false),
            kind: from.maybe_text()?,
            collects: from.get::<Option<bool>>()?.unwrap_or(false),
        })
    }
}

impl Record for TableRow {
    const TABLE: &'static str = "ets";
    const COLUMNS: &'static [&'static str] = &[
        "t",
        "table_id",
        "name_text",
        "owner",
        "owner_name_text",
        "objects",
        "memory_bytes",
        "kind_text",
        "protection_text",
        "options_text",
    ];

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(self.t)?;
        out.put(&self.id)?;
        out.text(&self.name)?;
        out.put(&self.owner)?;
        out.maybe_text(self.owner_name.as_deref())?;
        out.put(self.objects)?;
        out.put(self.memory_bytes)?;
        out.text(&self.kind)?;
        out.text(&self.protection)?;
        out.text(&json(self.options.iter().map(String::as_str)))
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        Ok(TableRow {
            t: from.get()?,
            id: from.get()?,
            name: from.text()?,
            owner: from.get()?,
            owner_name: from.maybe_text()?,
            objects: from.get()?,
            memory_bytes: from.get()?,
            kind: from.text()?,
            protection: from.text()?,
            options: from.list()?,
        })
    }
}

impl Record for PortRow {
    const TABLE: &'static str = "port";
    const COLUMNS: &'static [&'static str] =
        &["t", "port_id", "name_text", "connected", "input_bytes", "output_bytes", "queue_bytes", "os_pid"];

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(self.t)?;
        out.put(&self.id)?;
        out.text(&self.name)?;
        out.put(&self.connected)?;
        out.put(self.input_bytes)?;
        out.put(self.output_bytes)?;
        out.put(self.queue_bytes)?;
        out.put(self.os_pid)
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        Ok(PortRow {
            t: from.get()?,
            id: from.get()?,
            name: from.text()?,
            connected: from.get()?,
            input_bytes: from.get()?,
            output_bytes: from.get()?,
            queue_bytes: from.get()?,
            os_pid: from.get()?,
        })
    }
}

impl Record for SpawnRow {
    const TABLE: &'static str = "spawn";
    const COLUMNS: &'static [&'static str] =
        &["t", "what_text", "kind_text", "maker_text", "count", "of", "bytes"];

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(self.t)?;
        out.text(&self.what)?;
        out.text(&self.kind)?;
        out.maybe_text(self.maker.as_deref())?;
        out.put(self.count)?;
        out.put(self.of)?;
        out.put(self.bytes)
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        Ok(SpawnRow {
            t: from.get()?,
            what: from.text()?,
            kind: from.text()?,
            maker: from.maybe_text()?,
            count: from.get()?,
            of: from.get()?,
            bytes: from.get()?,
        })
    }
}

impl Record for Snapshot {
    const TABLE: &'static str = "snapshot";
    const COLUMNS: &'static [&'static str] = &["t", "kind", "codec", "crc", "blob"];

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        let packed = Packed::compressed(&self.blob);
        out.put(self.t)?;
        out.put(&self.kind)?;
        out.put(packed.codec)?;
        out.put(packed.crc)?;
        out.put(&*packed.bytes)
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        let (t, kind) = (from.get()?, from.get()?);
        let (codec, crc, bytes) = (from.get()?, from.get()?, from.get::<Vec<u8>>()?);
        let blob = Packed { codec, crc, bytes: bytes.into() }
            .unpack()
            .map_err(|error| rusqlite::Error::FromSqlConversionFailure(6, Type::Blob, error.into()))?;
        Ok(Snapshot { t, kind, blob: blob.into_owned() })
    }
}

impl Record for Event {
    const TABLE: &'static str = "event";
    const COLUMNS: &'static [&'static str] = &["t", "kind", "subject", "detail"];

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(self.t)?;
        out.put(&self.kind)?;
        out.put(&self.subject)?;
        out.put(&self.detail)
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        Ok(Event { t: from.get()?, kind: from.get()?, subject: from.get()?, detail: from.get()? })
    }
}

impl Record for Gap {
    const TABLE: &'static str = "gap";
    const COLUMNS: &'static [&'static str] = &["t0", "t1", "source", "kind", "reason"];

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(self.begin)?;
        out.put(self.end)?;
        out.put(&self.source)?;
        out.put(self.kind.text())?;
        out.put(&self.reason)
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        let (begin, end, source) = (from.get()?, from.get()?, from.get()?);
        let kind: String = from.get()?;
        let kind =
            TroubleKind::from_text(&kind).ok_or(FromSqlError::Other("an unknown kind of gap".into()))?;
        Ok(Gap { begin, end, source, kind, reason: from.get()? })
    }

    fn holds_at(&self, t: Nanos) -> bool {
        self.end >= t
    }
}

/// A new, changed or removed fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FactRow {
    pub incarnation: u32,
    pub key: String,
    pub value: String,
}

impl Record for FactRow {
    const TABLE: &'static str = "fact";
    const COLUMNS: &'static [&'static str] = &["inc", "key", "value"];

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(self.incarnation)?;
        out.put(&self.key)?;
        out.put(&self.value)
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        Ok(FactRow { incarnation: from.get()?, key: from.get()?, value: from.get()? })
    }

    fn holds_at(&self, _t: Nanos) -> bool {
        true
    }
}
