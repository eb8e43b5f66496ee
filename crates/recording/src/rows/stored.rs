//! Ways to store the value of a field in one column.

use beamtune_model::{BlockSum, Rank, SizeCount, TroubleKind};
use rusqlite::ToSql;
use rusqlite::types::{FromSql, FromSqlError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::record::{Reader, Writer};

/// Maximum length of a list; longer lists are truncated when read. A thread's stack has some dozens of frames, a histogram of lock
/// counting thirty bins.
const MAX_ENTRIES: usize = 256;

/// A way to store values of `T`.
pub(crate) trait Stored<T> {
    /// SQL type of the column.
    const SQL: &'static str;
    fn put(value: &T, out: &mut Writer<'_, '_>) -> rusqlite::Result<()>;
    fn get(from: &mut Reader<'_>) -> rusqlite::Result<T>;
}

/// Stores the value itself. Null is `None`, which means "not recorded" and must not be read as zero.
pub(crate) struct Plain;
/// Stores the id of a string in the table `text`, for strings that occur repeatedly. Lists are stored as their JSON string.
pub(crate) struct Text;
/// Like [`Text`], for a list that may not have been recorded: null is the empty list.
pub(crate) struct TextOrNull;
/// Stores a boolean that may not have been recorded: null is `false`.
pub(crate) struct Flag;
/// Stores a list as JSON.
pub(crate) struct Json;
/// Stores `[["eheap_alloc", 3, 4096], …]`: allocator, number, bytes.
pub(crate) struct Blocks;
/// Stores `[[1024, 7], …]`: minimum size, number.
pub(crate) struct Sizes;
/// Stores the name of a [`TroubleKind`].
pub(crate) struct KindName;

pub(crate) trait Value: ToSql + FromSql {
    const SQL: &'static str;
}

macro_rules! values {
    ($($type:ty = $sql:literal;)+) => { $(impl Value for $type { const SQL: &'static str = $sql; })+ };
}

values! {
    i64 = "INTEGER NOT NULL";
    u32 = "INTEGER NOT NULL";
    bool = "INTEGER NOT NULL";
    String = "TEXT NOT NULL";
    Option<i64> = "INTEGER";
    Option<String> = "TEXT";
}

impl<T: Value> Stored<T> for Plain {
    const SQL: &'static str = T::SQL;

    fn put(value: &T, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(value)
    }

    fn get(from: &mut Reader<'_>) -> rusqlite::Result<T> {
        from.get()
    }
}

impl Stored<String> for Text {
    const SQL: &'static str = "INTEGER NOT NULL";

    fn put(value: &String, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        let id = out.text_id(value)?;
        out.put(id)
    }

    fn get(from: &mut Reader<'_>) -> rusqlite::Result<String> {
        let id = from.get()?;
        from.text(id)
    }
}

impl Stored<Option<String>> for Text {
    const SQL: &'static str = "INTEGER";

    fn put(value: &Option<String>, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        let id = value.as_deref().map(|text| out.text_id(text)).transpose()?;
        out.put(id)
    }

    fn get(from: &mut Reader<'_>) -> rusqlite::Result<Option<String>> {
        from.get::<Option<i64>>()?.map(|id| from.text(id)).transpose()
    }
}

impl Stored<Vec<String>> for Text {
    const SQL: &'static str = "INTEGER NOT NULL";

    fn put(value: &Vec<String>, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        Text::put(&json(value)?, out)
    }

    fn get(from: &mut Reader<'_>) -> rusqlite::Result<Vec<String>> {
        let json: String = Text::get(from)?;
        list(&json, from)
    }
}

impl Stored<Vec<Rank>> for Text {
    const SQL: &'static str = "INTEGER NOT NULL";

    fn put(value: &Vec<Rank>, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        let ranks: Vec<&str> = value.iter().map(|rank| rank.text()).collect();
        Text::put(&json(&ranks)?, out)
    }

    fn get(from: &mut Reader<'_>) -> rusqlite::Result<Vec<Rank>> {
        let ranks: Vec<String> = Text::get(from)?;
        // Ranks that only newer versions know are skipped.
        Ok(ranks.iter().filter_map(|rank| Rank::from_text(rank)).collect())
    }
}

impl Stored<Vec<String>> for TextOrNull {
    const SQL: &'static str = "INTEGER";

    fn put(value: &Vec<String>, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        if value.is_empty() { out.put(None::<i64>) } else { Text::put(value, out) }
    }

    fn get(from: &mut Reader<'_>) -> rusqlite::Result<Vec<String>> {
        let json: Option<String> = Text::get(from)?;
        json.map_or_else(|| Ok(Vec::new()), |json| list(&json, from))
    }
}

impl Stored<bool> for Flag {
    const SQL: &'static str = "INTEGER";

    fn put(value: &bool, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(value)
    }

    fn get(from: &mut Reader<'_>) -> rusqlite::Result<bool> {
        Ok(from.get::<Option<bool>>()?.unwrap_or(false))
    }
}

impl<T: Serialize + DeserializeOwned> Stored<Vec<T>> for Json {
    const SQL: &'static str = "TEXT NOT NULL";

    fn put(value: &Vec<T>, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(json(value)?)
    }

    fn get(from: &mut Reader<'_>) -> rusqlite::Result<Vec<T>> {
        let json: String = from.get()?;
        list(&json, from)
    }
}

impl Stored<Vec<BlockSum>> for Blocks {
    const SQL: &'static str = "TEXT NOT NULL";

    fn put(value: &Vec<BlockSum>, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        let sums: Vec<_> = value.iter().map(|sum| (&sum.allocator, sum.count, sum.bytes)).collect();
        out.put(json(&sums)?)
    }

    fn get(from: &mut Reader<'_>) -> rusqlite::Result<Vec<BlockSum>> {
        let sums = Json::get(from)?.into_iter();
        Ok(sums.map(|(allocator, count, bytes)| BlockSum { allocator, count, bytes }).collect())
    }
}

impl Stored<Vec<SizeCount>> for Sizes {
    const SQL: &'static str = "TEXT NOT NULL";

    fn put(value: &Vec<SizeCount>, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        let sizes: Vec<_> = value.iter().map(|size| (size.from, size.count)).collect();
        out.put(json(&sizes)?)
    }

    fn get(from: &mut Reader<'_>) -> rusqlite::Result<Vec<SizeCount>> {
        Ok(Json::get(from)?.into_iter().map(|(from, count)| SizeCount { from, count }).collect())
    }
}

impl Stored<TroubleKind> for KindName {
    const SQL: &'static str = "TEXT NOT NULL";

    fn put(value: &TroubleKind, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(value.text())
    }

    fn get(from: &mut Reader<'_>) -> rusqlite::Result<TroubleKind> {
        let kind = TroubleKind::from_text(&from.get::<String>()?);
        kind.ok_or_else(|| FromSqlError::Other("an unknown kind of gap".into()).into())
    }
}

fn json<T: Serialize>(list: &[T]) -> rusqlite::Result<String> {
    serde_json::to_string(list).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

fn list<T: DeserializeOwned>(json: &str, from: &Reader<'_>) -> rusqlite::Result<Vec<T>> {
    let mut list: Vec<T> = serde_json::from_str(json).map_err(|error| from.malformed(error))?;
    list.truncate(MAX_ENTRIES);
    Ok(list)
}
