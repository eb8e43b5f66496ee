//! The database schema, and the numbers that identify the format.

use rusqlite::Connection;

/// `application_id` of the file: `btun`. It is at offset 68, where the command `file` finds it.
pub const APPLICATION_ID: i64 = 0x6274_756e;

/// `user_version` of the file. It grows only if older versions would misread a newer file. New tables, columns, groups and
/// keys do not count, since readers ignore what they do not know.
pub const FORMAT: i64 = 1;

/// All tables except those of a ring.
pub(crate) const SCHEMA: &str = include_str!("schema.sql");

/// The additional table of a ring.
pub(crate) const RING_SCHEMA: &str = "CREATE TABLE clock(t INTEGER PRIMARY KEY, wall INTEGER NOT NULL)";

/// Names of the tables that exist in all files.
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

/// Tables that older versions did not create. A reader treats them as empty; a writer that continues such a file adds them.
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

/// A column that was added to a table later.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) table: &'static str,
    pub(crate) name: &'static str,
}

/// All are nullable integers.
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

/// Columns missing in a file, because an older version created it.
pub(crate) fn absent_columns(connection: &Connection) -> Vec<&'static Column> {
    let is_there = |column: &Column| {
        // Nothing is executed: a statement with an unknown column cannot be prepared.
        connection.prepare(&format!("SELECT {} FROM {}", column.name, column.table)).is_ok()
    };
    LATER_COLUMNS.iter().filter(|column| !is_there(column)).collect()
}

/// Adds the tables and columns that are missing in a file of an older version.
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

/// Name of the chunks that hold [`beamtune_model::ProcessTick`]s; not one of [`beamtune_model::Group`].
pub(crate) const BUSIEST: &str = "busiest";

/// Keys of `meta`.
pub(crate) mod meta {
    /// Version of beamtune that wrote the file.
    pub(crate) const WRITTEN_BY: &str = "written_by";
    /// Wall-clock time at the zero of the recording, in nanoseconds since 1970.
    pub(crate) const WALL_AT_ZERO: &str = "wall_at_zero";
    /// `1` once the recording was finished properly.
    pub(crate) const CLOSED: &str = "closed";
    /// Rings: length to keep, in nanoseconds.
    pub(crate) const RING_KEEP: &str = "ring_keep";
    /// Rings: maximum size of file and log, in bytes.
    pub(crate) const RING_BYTES: &str = "ring_bytes";
    /// Rings: name of the recorded node.
    pub(crate) const RING_NODE: &str = "ring_node";
}

/// Creates an empty recording in an empty database.
pub(crate) fn create(connection: &Connection) -> rusqlite::Result<()> {
    // Must precede the first table. Enables `incremental_vacuum`, which frees the pages of `hot` at the end.
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
    fn list_of_tables_matches_the_schema() {
        let connection = Connection::open_in_memory().expect("sqlite");
        create(&connection).expect("created");
        let mut found: Vec<String> = definitions(&connection).into_iter().map(|(name, _)| name).collect();
        found.retain(|name| !LATER_TABLES.contains(&name.as_str()));
        assert_eq!(found, TABLES);
        assert_eq!(APPLICATION_ID.to_be_bytes()[4..], *b"btun");
    }

    /// Tables with the statements that created them.
    fn definitions(connection: &Connection) -> Vec<(String, String)> {
        let sql = "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid";
        let mut all = connection.prepare(sql).expect("prepared");
        let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("listed");
        rows.collect::<Result<_, _>>().expect("listed")
    }

    #[test]
    fn tables_and_columns_added_later_match_the_schema() {
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
