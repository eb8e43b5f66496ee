//! The typed tables: data that are stored as rows rather than in chunks. Each row type is declared once.

mod record;
mod stored;
mod texts;

use std::collections::HashSet;

use beamtune_model::{
    AllocationRow, BinaryHolderRow, CarrierRow, CodeRow, CollectedProcessRow, Event, ExitRow, Gap, LockRow,
    LockSession, LockWaitRow, MessageRow, Nanos, PeriodBuilder, PortRow, ProcessRow, ProfileRow,
    RequestedGcRow, RunSampleRow, Sample, Snapshot, SpawnRow, TableRow, WaitSampleRow,
};
use rusqlite::Connection;

use crate::codec::packed::Packed;
pub(crate) use record::{Column, Reader, Record, SampleRow, insert, select};
use record::{Writer, column_name, is_later, sql_type, stored, table};
use stored::{Blocks, Flag, Json, KindName, Plain, Sizes, Stored, Text, TextOrNull};
pub(crate) use texts::{TextIds, Texts};

table! { "process" of ProcessRow, Sample::processes, PeriodBuilder::process;
    t;
    pid;
    ranks: Text;
    name: Text;
    label: Text;
    initial_call: Text;
    current_function: Text;
    application: Text;
    parent;
    status: Text;
    reductions;
    queue;
    message_queue_data: Text;
    memory_bytes;
    total_heap_words;
    binary_bytes;
    minor_gcs;
    fullsweep_after;
    min_heap_words;
    #[later] total_bytes;
    #[later] fragment_bytes;
    #[later] stack: TextOrNull;
    #[later] priority: Text;
}

table! { "ets" of TableRow, Sample::tables, PeriodBuilder::table;
    t;
    id as "table_id";
    name: Text;
    owner;
    owner_name: Text;
    objects;
    memory_bytes;
    kind: Text;
    protection: Text;
    options: Text;
}

table! { "port" of PortRow, Sample::ports, PeriodBuilder::port;
    t;
    id as "port_id";
    name: Text;
    connected;
    input_bytes;
    output_bytes;
    queue_bytes;
    os_pid;
}

table! { "spawn" of SpawnRow, Sample::spawns, PeriodBuilder::spawn;
    t;
    what: Text;
    kind: Text;
    creator as "maker_text": Text;
    count;
    sample_size as "of";
    #[later] bytes;
}

table! { #[later] "stand" of WaitSampleRow, Sample::wait_samples, PeriodBuilder::wait_sample;
    t;
    pid;
    status: Text;
    stack: Text;
    count;
    queued;
    sample_size as "of";
    targets as "waits_for": Json;
    #[later] kind: Text;
}

table! { #[later] "message" of MessageRow, Sample::messages, PeriodBuilder::message;
    t;
    pid;
    messages;
    bytes;
    off_heap;
    us;
    active;
    sampled;
}

table! { #[later] "ran" of RunSampleRow, Sample::run_samples, PeriodBuilder::run_sample;
    t;
    pid;
    stack: Text;
    samples as "looks";
    #[later] is_waiting as "waits": Flag;
    #[later] kind: Text;
    #[later] is_collecting as "collects": Flag;
}

table! { #[later] "exit" of ExitRow, Sample::exits, PeriodBuilder::exit;
    t;
    parent;
    parent_name: Text;
    parent_call: Text;
    name: Text;
    call: Text;
    reason: Text;
    stack: Json;
    callee: Text;
    count;
    heap_limit_words;
}

table! { #[later] "carrier" of CarrierRow, Sample::carriers, PeriodBuilder::carriers;
    t;
    allocator: Text;
    skipped: Text;
    in_pool;
    single;
    size_log2;
    used_tenths;
    carriers;
    bytes;
    unscanned_bytes;
    blocks: Blocks;
    free: Sizes;
}

table! { #[later] "allocation" of AllocationRow, Sample::allocations, PeriodBuilder::allocations;
    t;
    origin: Text;
    kind: Text;
    skipped: Text;
    blocks;
    bytes;
    sizes: Sizes;
}

table! { #[later] "code" of CodeRow, Sample::code, PeriodBuilder::code;
    t;
    application: Text;
    modules;
    bytes;
    old_bytes;
}

table! { #[later] "holder" of BinaryHolderRow, Sample::holders, PeriodBuilder::holder;
    t;
    pid;
    name: Text;
    label: Text;
    initial_call: Text;
    skipped: Text;
    heap_bytes;
    binary_vheap_bytes;
    references as "refs";
    binaries;
    bytes;
    exclusive as "alone";
    alone_bytes;
}

table! { #[later] "collection" of RequestedGcRow, Sample::collections, PeriodBuilder::collection;
    t;
    selection as "how_text": Text;
    processes;
    chosen;
    largest;
    rest_bytes;
    collected;
    gone;
    no_answer;
    large;
    stopped: Text;
    heap_before;
    heap_after;
    binary_before;
    binary_after;
    random as "chance";
    chance_heap_kib;
    chance_heap_kib_squares;
    chance_binary_kib;
    chance_binary_kib_squares;
    memory_processes_before;
    memory_processes_after;
    memory_binary_before;
    memory_binary_after;
    took;
    longest;
    late;
    queue;
}

table! { #[later] "collected" of CollectedProcessRow, Sample::collected, PeriodBuilder::collected;
    t;
    pid;
    name: Text;
    label: Text;
    initial_call: Text;
    heap_before;
    heap_after;
    binary_before;
    binary_after;
    took;
}

table! { #[later] "lock_session" of LockSession, Sample::lock_sessions, PeriodBuilder::lock_session;
    t;
    length;
    categories: Json;
    locks;
    single_locks as "told";
    reductions;
    processes;
    cost_bytes;
    remark;
}

table! { #[later] "lock" of LockRow, Sample::locks, PeriodBuilder::lock;
    t;
    class: Text;
    kind: Text;
    id as "lock_id_text": Text;
    entity: Text;
    locks;
    file: Text;
    line;
    tries;
    collisions;
    wait_time as "waited";
    waits;
    histogram: Json;
}

table! { #[later] "lock_wait" of LockWaitRow, Sample::lock_waits, PeriodBuilder::lock_wait;
    t;
    length;
    thread: Text;
    how: Text;
    stack: Json;
    samples as "seen";
    waited;
}

table! { "event" of Event, Sample::events, PeriodBuilder::event;
    t;
    kind;
    subject;
    detail;
}

table! { "gap" of Gap, Sample::gaps, PeriodBuilder::gap, holds_at |gap, t| gap.end >= t;
    begin as "t0";
    end as "t1";
    source;
    kind: KindName;
    reason;
}

/// A new, changed or removed fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FactRow {
    pub incarnation: u32,
    pub key: String,
    pub value: String,
}

table! { "fact" of FactRow, holds_at |_, _| true;
    incarnation as "inc";
    key;
    value;
}

/// Runs an expression for each row type of a sample. A row type that is missing in this list is not stored.
macro_rules! for_each_row_type {
    ($row:ident => $run:expr) => {
        $crate::rows::for_each_row_type! { $row => $run;
            ProcessRow TableRow PortRow SpawnRow WaitSampleRow MessageRow RunSampleRow ExitRow
            CarrierRow AllocationRow CodeRow BinaryHolderRow RequestedGcRow CollectedProcessRow
            LockSession LockRow LockWaitRow ProfileRow Event Gap
        }
    };
    ($row:ident => $run:expr; $($type:ident)+) => {
        $({
            type $row = beamtune_model::$type;
            $run;
        })+
    };
}
pub(crate) use for_each_row_type;

/// The columns of a compressed blob. They are not declared by the macro, since one field takes three columns.
fn blob_columns() -> [Column; 3] {
    [column("codec", "INTEGER NOT NULL"), column("crc", "INTEGER NOT NULL"), column("blob", "BLOB NOT NULL")]
}

fn column(name: &'static str, sql: &'static str) -> Column {
    Column { name, sql, is_later: false }
}

fn put_blob(blob: &[u8], out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
    let packed = Packed::compressed(blob);
    out.put(packed.codec)?;
    out.put(packed.crc)?;
    out.put(&*packed.bytes)
}

fn get_blob(from: &mut Reader<'_>) -> rusqlite::Result<Vec<u8>> {
    let (codec, crc, bytes) = (from.get()?, from.get()?, from.get::<Vec<u8>>()?);
    let packed = Packed { codec, crc, bytes: bytes.into() };
    Ok(packed.unpack().map_err(|error| from.malformed(error))?.into_owned())
}

impl Record for Snapshot {
    const TABLE: &'static str = "snapshot";

    fn columns() -> Vec<Column> {
        let own = [column("t", "INTEGER NOT NULL"), column("kind", "TEXT NOT NULL")];
        own.into_iter().chain(blob_columns()).collect()
    }

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(self.t)?;
        out.put(&self.kind)?;
        put_blob(&self.blob, out)
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        Ok(Snapshot { t: from.get()?, kind: from.get()?, blob: get_blob(from)? })
    }
}

impl Record for ProfileRow {
    const TABLE: &'static str = "profile";
    const IS_LATER: bool = true;

    fn columns() -> Vec<Column> {
        [column("t", "INTEGER NOT NULL")].into_iter().chain(blob_columns()).collect()
    }

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        let json = serde_json::to_vec(&self.profile);
        out.put(self.t)?;
        put_blob(&json.map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?, out)
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        let (t, blob) = (from.get()?, get_blob(from)?);
        let profile = serde_json::from_slice(&blob).map_err(|error| from.malformed(error))?;
        Ok(ProfileRow { t, profile })
    }
}

impl SampleRow for ProfileRow {
    fn of(sample: &Sample) -> &[Self] {
        &sample.profiles
    }

    fn add_to_sample(sample: &mut Sample, row: Self) {
        sample.profiles.push(row);
    }

    fn add_to_period(builder: &mut PeriodBuilder, row: Self) {
        builder.profile(row);
    }
}

/// A table as declared.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) is_later: bool,
    pub(crate) columns: Vec<Column>,
}

impl Table {
    fn of<R: Record>() -> Self {
        Table { name: R::TABLE, is_later: R::IS_LATER, columns: R::columns() }
    }

    /// The SQL statement that creates the table.
    pub(crate) fn sql(&self) -> String {
        let columns: Vec<String> =
            self.columns.iter().map(|column| format!("{} {}", column.name, column.sql)).collect();
        let (name, columns) = (self.name, columns.join(", "));
        format!("CREATE TABLE {name}(id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, {columns});")
    }
}

/// All typed tables.
pub(crate) fn tables() -> Vec<Table> {
    let mut tables = vec![Table::of::<FactRow>(), Table::of::<Snapshot>()];
    for_each_row_type!(R => tables.push(Table::of::<R>()));
    tables
}

/// Tables whose rows are dropped together with their tick: all except those whose rows may still apply later.
pub(crate) fn tables_by_tick() -> Vec<&'static str> {
    let mut tables: Vec<&str> = tables().iter().map(|table| table.name).collect();
    tables.retain(|table| ![Gap::TABLE, FactRow::TABLE].contains(table));
    tables
}

/// Ids of all texts that rows refer to.
pub(crate) fn used_texts(connection: &Connection) -> rusqlite::Result<HashSet<i64>> {
    let mut used = HashSet::new();
    for table in tables() {
        let columns = table.columns.iter().filter(|column| column.is_text()).map(|column| column.name);
        let columns: Vec<&str> = columns.collect();
        if columns.is_empty() {
            continue;
        }
        let mut all = connection.prepare(&format!("SELECT {} FROM {}", columns.join(", "), table.name))?;
        let mut rows = all.query([])?;
        while let Some(row) = rows.next()? {
            for column in 0..columns.len() {
                used.extend(row.get::<_, Option<i64>>(column)?);
            }
        }
    }
    Ok(used)
}
