//! The database schema, and the numbers that identify the format.

use rusqlite::Connection;

use crate::rows;

/// `application_id` of the file: `btun`. It is stored at offset 68, where the command `file` finds it.
pub const APPLICATION_ID: i64 = 0x6274_756e;

/// `user_version` of the file. It is increased only if older versions would misread a newer file. New tables, columns, groups and
/// keys do not require an increase, since readers ignore what they do not know.
pub const FORMAT: i64 = 1;

/// The tables other than typed tables, which [`crate::rows`] declares.
const SCHEMA: &str = include_str!("schema.sql");

/// Names of the tables in [`SCHEMA`].
const TABLES: &[&str] = &["meta", "incarnation", "series", "tick", "chunk", "hot", "text"];

/// The index for prolonging a gap, which is identified by source and begin.
const INDEX: &str = "CREATE INDEX gap_source ON gap(source, t0);";

/// The additional table of a ring.
pub(crate) const RING_SCHEMA: &str = "CREATE TABLE clock(t INTEGER PRIMARY KEY, wall INTEGER NOT NULL)";

/// Names of the tables that exist in all files.
pub(crate) fn required_tables() -> impl Iterator<Item = &'static str> {
    let of_rows = rows::tables().into_iter().filter(|table| !table.is_later).map(|table| table.name);
    TABLES.iter().copied().chain(of_rows)
}

/// A column that a file lacks, because an older version created the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AbsentColumn {
    pub(crate) table: &'static str,
    pub(crate) name: &'static str,
    sql: &'static str,
}

pub(crate) fn absent_columns(connection: &Connection) -> Vec<AbsentColumn> {
    let later = rows::tables().into_iter().flat_map(|table| {
        let later = table.columns.into_iter().filter(|column| column.is_later);
        later.map(move |column| AbsentColumn { table: table.name, name: column.name, sql: column.sql })
    });
    // A statement with an unknown column cannot be prepared. The statement is not executed.
    let is_absent = |column: &AbsentColumn| {
        connection.prepare(&format!("SELECT {} FROM {}", column.name, column.table)).is_err()
    };
    later.filter(is_absent).collect()
}

/// Adds the tables and columns that a file of an older version lacks.
pub(crate) fn add_missing(connection: &Connection) -> rusqlite::Result<()> {
    for table in rows::tables().iter().filter(|table| table.is_later) {
        if !connection.table_exists(None, table.name)? {
            connection.execute_batch(&table.sql())?;
        }
    }
    for AbsentColumn { table, name, sql } in absent_columns(connection) {
        connection.execute_batch(&format!("ALTER TABLE {table} ADD COLUMN {name} {sql}"))?;
    }
    Ok(())
}

/// Group name of the chunks that contain [`beamtune_model::ProcessTick`]s; it is not a [`beamtune_model::Group`].
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
    // Must be set before the first table is created. Enables `incremental_vacuum`, which frees the pages of `hot` at the end.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    let transaction = connection.unchecked_transaction()?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", FORMAT)?;
    transaction.execute_batch(SCHEMA)?;
    for table in rows::tables() {
        transaction.execute_batch(&table.sql())?;
    }
    transaction.execute_batch(INDEX)?;
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
        let later: Vec<_> = rows::tables().into_iter().filter(|table| table.is_later).collect();
        let mut found: Vec<String> = definitions(&connection).into_iter().map(|(name, _)| name).collect();
        found.retain(|name| !later.iter().any(|table| table.name == name));
        assert_eq!(found, required_tables().collect::<Vec<_>>());
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
        let drop_columns = || {
            for table in rows::tables() {
                for column in table.columns.iter().filter(|column| column.is_later) {
                    let sql = format!("ALTER TABLE {} DROP COLUMN {}", table.name, column.name);
                    connection.execute_batch(&sql).expect("dropped");
                }
            }
            absent_columns(&connection).len()
        };
        let dropped = drop_columns();
        assert!(dropped > 0);
        add_missing(&connection).expect("added");
        assert_eq!(definitions(&connection), new, "columns added later come last, and may be null");
        drop_columns();
        for table in rows::tables().iter().filter(|table| table.is_later) {
            connection.execute_batch(&format!("DROP TABLE {}", table.name)).expect("dropped");
        }
        assert_eq!(absent_columns(&connection).len(), dropped);
        for _ in 0..2 {
            add_missing(&connection).expect("added");
            let mut old = definitions(&connection);
            old.sort();
            new.sort();
            assert_eq!(old, new);
        }
    }
}
