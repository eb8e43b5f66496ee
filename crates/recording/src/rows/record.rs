//! Declaration of typed tables, and the SQL that follows from it.
//!
//! No existing crate can be used: they read columns by name, and support neither the table `text` nor columns that a file lacks.

use beamtune_model::{Nanos, PeriodBuilder, Sample};
use rusqlite::types::{FromSql, Type};
use rusqlite::{Connection, Row, Statement, ToSql};

use super::stored::Stored;
use super::texts::{TextIds, Texts};

/// A type with its own table, whose first columns are `id` and `tick`.
pub(crate) trait Record: Sized {
    /// Name of the table.
    const TABLE: &'static str;
    /// Whether files of older versions lack the table.
    const IS_LATER: bool = false;
    /// The columns after `id` and `tick`.
    fn columns() -> Vec<Column>;
    /// Writes the values of these columns, in order.
    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()>;
    /// Reads the values of these columns, in order.
    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self>;
    /// Whether the row still applies at an instant after the sample that it belongs to was dropped.
    fn holds_at(&self, _t: Nanos) -> bool {
        false
    }
}

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
    /// Whether files of older versions lack the column; its values are then null.
    pub(crate) is_later: bool,
}

impl Column {
    /// Whether the column contains ids of the table `text`.
    pub(crate) fn is_text(&self) -> bool {
        self.name.ends_with("_text")
    }
}

/// A row type that is part of samples, and from which periods are built.
pub(crate) trait SampleRow: Record {
    fn of(sample: &Sample) -> &[Self];
    fn add_to_sample(sample: &mut Sample, row: Self);
    fn add_to_period(builder: &mut PeriodBuilder, row: Self);
}

/// Declares the table of a row type: its name, the field of [`Sample`] and the method of [`PeriodBuilder`] for the rows, and one line per
/// column. This line consists of the field, and how it is stored if not as `Plain`. A column has the name of its field, with the
/// suffix `_text` if it is stored as an id of the table `text`. Tables and columns that older released versions do not write are marked
/// `#[later]`; such columns come last, and their types have a value for "not recorded".
macro_rules! table {
    (
        $(#[$table_mark:ident])? $table:literal of $row:ident
        $(, Sample::$rows:ident, PeriodBuilder::$add:ident)? $(, holds_at $holds_at:expr)?;
        $($(#[$mark:ident])? $field:ident $(as $column:literal)? $(: $stored:ident)?;)+
    ) => {
        impl Record for $row {
            const TABLE: &'static str = $table;
            const IS_LATER: bool = is_later!($($table_mark)?);

            fn columns() -> Vec<Column> {
                vec![$(Column {
                    name: column_name!($($column)? $field $($stored)?),
                    sql: sql_type(stored!($($stored)?), |row: &$row| &row.$field),
                    is_later: is_later!($($mark)?),
                }),+]
            }

            fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
                $(<stored!($($stored)?) as Stored<_>>::put(&self.$field, out)?;)+
                Ok(())
            }

            fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
                Ok($row { $($field: <stored!($($stored)?) as Stored<_>>::get(from)?),+ })
            }

            $(fn holds_at(&self, t: Nanos) -> bool {
                let holds_at: fn(&Self, Nanos) -> bool = $holds_at;
                holds_at(self, t)
            })?
        }

        $(impl SampleRow for $row {
            fn of(sample: &Sample) -> &[Self] {
                &sample.$rows
            }

            fn add_to_sample(sample: &mut Sample, row: Self) {
                sample.$rows.push(row);
            }

            fn add_to_period(builder: &mut PeriodBuilder, row: Self) {
                builder.$add(row);
            }
        })?
    };
}
pub(super) use table;

macro_rules! stored {
    () => {
        Plain
    };
    ($stored:ident) => {
        $stored
    };
}
pub(super) use stored;

macro_rules! column_name {
    ($column:literal $field:ident $($stored:ident)?) => {
        $column
    };
    ($field:ident Text) => {
        concat!(stringify!($field), "_text")
    };
    ($field:ident TextOrNull) => {
        concat!(stringify!($field), "_text")
    };
    ($field:ident $($stored:ident)?) => {
        stringify!($field)
    };
}
pub(super) use column_name;

macro_rules! is_later {
    () => {
        false
    };
    (later) => {
        true
    };
}
pub(super) use is_later;

/// Returns the SQL type of a field that is stored as `S`.
pub(super) fn sql_type<R, T, S: Stored<T>>(_: S, _: fn(&R) -> &T) -> &'static str {
    S::SQL
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
    let columns: Vec<&str> = R::columns().iter().map(|column| column.name).collect();
    let placeholders = ", ?".repeat(columns.len());
    let sql = format!("INSERT INTO {}(tick, {}) VALUES (?{placeholders})", R::TABLE, columns.join(", "));
    let mut statement = connection.prepare_cached(&sql)?;
    for row in rows {
        let mut writer = Writer { connection, statement: &mut statement, texts, next: 1 };
        writer.put(tick)?;
        row.write(&mut writer)?;
        statement.raw_execute()?;
    }
    Ok(())
}

/// Returns SQL that selects rows after an id, ordered by id. Columns that the file lacks are selected as null.
pub(crate) fn select<R: Record>(lacks: impl Fn(&str) -> bool) -> String {
    let column = |column: &Column| if lacks(column.name) { "NULL" } else { column.name };
    let columns: Vec<&str> = R::columns().iter().map(column).collect();
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
    pub(super) fn put(&mut self, value: impl ToSql) -> rusqlite::Result<()> {
        self.statement.raw_bind_parameter(self.next, value)?;
        self.next += 1;
        Ok(())
    }

    pub(super) fn text_id(&mut self, text: &str) -> rusqlite::Result<i64> {
        self.texts.id(self.connection, text)
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
    /// Creates a reader that starts after the columns `id` and `tick`.
    pub(crate) fn new(row: &'a Row<'a>, connection: &'a Connection, texts: &'a Texts) -> Self {
        Reader { row, connection, texts, next: 2 }
    }

    pub(super) fn get<T: FromSql>(&mut self) -> rusqlite::Result<T> {
        self.next += 1;
        self.row.get(self.next - 1)
    }

    pub(super) fn text(&self, id: i64) -> rusqlite::Result<String> {
        self.texts.get(self.connection, id)
    }

    /// Creates the error for a malformed value in the column that was read last.
    pub(super) fn malformed(&self, error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
        rusqlite::Error::FromSqlConversionFailure(self.next - 1, Type::Text, Box::new(error))
    }
}
