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

/// The names of the tables that all files have.
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

/// Those that files of an older beamtune do not have. A reader takes them for empty there; who goes on in such a file adds them.
pub(crate) const LATER_TABLES: &[&str] = &[
    "stand",
    "message",
    "ran",
    "exit",
    "carrier",
    "allocation",
    "code",
    "holder",
    "collection",
    "collected",
    "lock_session",
    "lock",
    "lock_wait",
];

/// A column that a table did not have from the start.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) table: &'static str,
    pub(crate) name: &'static str,
}

/// All are whole numbers that may be null.
const LATER_COLUMNS: &[Column] = &[
    Column { table: "process", name: "total_bytes" },
    Column { table: "process", name: "fragment_bytes" },
    Column { table: "process", name: "stack_text" },
    Column { table: "process", name: "priority_text" },
    Column { table: "spawn", name: "bytes" },
    Column { table: "stand", name: "kind_text" },
    Column { table: "ran", name: "waits" },
    Column { table: "ran", name: "kind_text" },
    Column { table: "ran", name: "collects" },
];

/// Those that a file does not have, because an older beamtune has made it.
pub(crate) fn absent_columns(connection: &Connection) -> Vec<&'static Column> {
    let is_there = |column: &Column| {
        // Nothing is read: a statement that names a column which is not there cannot be prepared.
        connection.prepare(&format!("SELECT {} FROM {}", column.name, column.table)).is_ok()
    };
    LATER_COLUMNS.iter().filter(|column| !is_there(column)).collect()
}

/// Adds the tables and columns that a file of an older beamtune does not have.
pub(crate) fn add_missing(connection: &Connection) -> rusqlite::Result<()> {
    for name in LATER_TABLES {
        let is_missing = connection
            .prepare("SELECT 1 FROM sqlite_schema WHERE name = ?1")
            .and_then(|mut known| known.exists([name]).map(|known| !known))?;
        let begin = SCHEMA.find(&format!("CREATE TABLE {name}("));
        if let (true, Some(statement)) = (is_missing, begin.and_then(|begin| SCHEMA.get(begin..)))
            && let Some((statement, _)) = statement.split_once(';')
        {
            connection.execute_batch(statement)?;
        }
    }
    for Column { table, name } in absent_columns(connection) {
        connection.execute_batch(&format!("ALTER TABLE {table} ADD COLUMN {name} INTEGER"))?;
    }
    Ok(())
}

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
        let mut found: Vec<String> = definitions(&connection).into_iter().map(|(name, _)| name).collect();
        found.retain(|name| !LATER_TABLES.contains(&name.as_str()));
        assert_eq!(found, TABLES);
        assert_eq!(APPLICATION_ID.to_be_bytes()[4..], *b"btun");
    }

    /// Tables with what they were made by.
    fn definitions(connection: &Connection) -> Vec<(String, String)> {
        let sql = "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid";
        let mut all = connection.prepare(sql).expect("prepared");
        let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("listed");
        rows.collect::<Result<_, _>>().expect("listed")
    }

    #[test]
    fn tables_and_columns_that_are_added_later_are_those_of_the_schema() {
        let connection = Connection::open_in_memory().expect("sqlite");
        create(&connection).expect("created");
        let mut new = definitions(&connection);
        for Column { table, name } in LATER_COLUMNS {
            connection.execute_batch(&format!("ALTER TABLE {table} DROP COLUMN {name}")).expect("dropped");
        }
        add_missing(&connection).expect("added");
        assert_eq!(definitions(&connection), new);
        for Column { table, name } in LATER_COLUMNS {
            connection.execute_batch(&format!("ALTER TABLE {table} DROP COLUMN {name}")).expect("dropped");
        }
        for name in LATER_TABLES {
            assert!(new.iter().any(|(found, _)| found == name), "{name}");
            connection.execute_batch(&format!("DROP TABLE {name}")).expect("dropped");
        }
        assert_eq!(absent_columns(&connection).len(), LATER_COLUMNS.len());
        for _ in 0..2 {
            add_missing(&connection).expect("added");
            let mut old = definitions(&connection);
            old.sort();
            new.sort();
            assert_eq!(old, new);
        }
    }
}
