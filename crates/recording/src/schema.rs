//! The recording as a database: its tables, and the numbers by which it is known.

use rusqlite::Connection;

/// The file's `application_id`: `btun`. It stands at offset 68 of the file, where `file` shows it.
pub const APPLICATION_ID: i64 = 0x6274_756e;

/// The file's `user_version`. Grows only when an older beamtune would misread a newer file: tables,
/// columns, groups and keys that are new do not count, readers pass over what they do not know.
pub const FORMAT: i64 = 1;

/// The tables.
pub(crate) const SCHEMA: &str = include_str!("schema.sql");

/// What a ring has besides.
pub(crate) const RING_SCHEMA: &str = "CREATE TABLE clock(t INTEGER PRIMARY KEY, wall INTEGER NOT NULL)";

/// The tables' names.
pub(crate) const TABLES: &[&str] = &[
    "meta",
    "incarnation",
    "fact",
    "series",
    "tick",
    "chunk",
    "hot",
    "text",
    "process",
    "ets",
    "port",
    "spawn",
    "snapshot",
    "event",
    "gap",
];

/// The group of chunks that hold [`beamtune_model::ProcessTick`]s; not one of [`beamtune_model::Group`].
pub(crate) const BUSIEST: &str = "busiest";

/// Keys of `meta`.
pub(crate) mod meta {
    /// The beamtune that wrote the file.
    pub(crate) const WRITTEN_BY: &str = "written_by";
    /// Wall-clock time at the recording's zero, nanoseconds since 1970.
    pub(crate) const WALL_AT_ZERO: &str = "wall_at_zero";
    /// `1` once the recording was ended in order.
    pub(crate) const CLOSED: &str = "closed";
    /// Of a ring: how much it is to hold, nanoseconds.
    pub(crate) const RING_KEEP: &str = "ring_keep";
    /// Of a ring: how large it may become, with its log, bytes.
    pub(crate) const RING_BYTES: &str = "ring_bytes";
    /// Of a ring: the node that it records.
    pub(crate) const RING_NODE: &str = "ring_node";
}

/// Makes an empty recording of an empty database.
pub(crate) fn create(connection: &Connection) -> rusqlite::Result<()> {
    // Only before the first table; lets `incremental_vacuum` give back at the end what `hot` took.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    let transaction = connection.unchecked_transaction()?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", FORMAT)?;
    transaction.execute_batch(SCHEMA)?;
    let mut meta = transaction.prepare("INSERT INTO meta(key, value) VALUES (?1, ?2)")?;
    meta.execute((meta::WRITTEN_BY, concat!("beamtune ", env!("CARGO_PKG_VERSION"))))?;
    drop(meta);
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_tables_is_that_of_the_schema() {
        let connection = Connection::open_in_memory().expect("sqlite");
        create(&connection).expect("created");
        let mut found: Vec<String> = connection
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid")
            .and_then(|mut all| all.query_map([], |row| row.get(0))?.collect())
            .expect("listed");
        found.retain(|name| !name.starts_with("sqlite_"));
        assert_eq!(found, TABLES);
        assert_eq!(APPLICATION_ID.to_be_bytes()[4..], *b"btun");
    }
}
