//! The binaries in the rows of single tables, by a sample of their rows.
//!
//! The agent sees binaries that are elements of a row, or of a small tuple in it. What is in a map or a list is not seen.

use std::cmp::Ordering;

use beamtune_model::{Group, Metric, Period, Subject, TableRow, metrics};

/// Rows with parts of larger binaries refer to at least this many times their own bytes; less is not worth a copy (judgement).
const PARTS: f64 = 2.0;

/// One table.
pub(crate) struct TableBinaries<'p> {
    pub(crate) id: &'p str,
    pub(crate) row: Option<&'p TableRow>,
    /// Its rows at the end.
    pub(crate) rows: f64,
    /// Rows of the sample; 0 if the table cannot be read like that.
    pub(crate) sampled: f64,
    hidden: f64,
    pub(crate) count: f64,
    bytes: f64,
    held: f64,
}

impl<'p> TableBinaries<'p> {
    fn of(period: &'p Period, id: &'p str) -> Option<Self> {
        let last = |metric: &Metric| Some(period.stat(metric, id).ok()?.last.value as f64);
        let row = period.tables.iter().find(|table| table.id == id);
        let measured = last(&metrics::TABLE_BINARY_ROWS)?;
        // It may have grown since its binaries were measured.
        let rows = last(&metrics::TABLE_ROWS).or(row.map(|row| row.objects as f64)).unwrap_or(measured);
        Some(TableBinaries {
            id,
            row,
            rows,
            sampled: last(&metrics::TABLE_BINARY_SAMPLED)?,
            hidden: last(&metrics::TABLE_BINARY_HIDDEN)?,
            count: last(&metrics::TABLE_BINARIES)?,
            bytes: last(&metrics::TABLE_BINARY_BYTES)?,
            held: last(&metrics::TABLE_BINARY_HELD)?,
        })
    }

    /// All measured tables, those that hold the most first; empty if none was.
    pub(crate) fn all(period: &'p Period) -> Vec<Self> {
        let ids = period.entities(Group::Table).into_iter();
        let mut all: Vec<Self> = ids.filter_map(|id| TableBinaries::of(period, id)).collect();
        all.sort_by(|a, b| match b.held_bytes().total_cmp(&a.held_bytes()) {
            Ordering::Equal => b.rows.total_cmp(&a.rows).then_with(|| a.id.cmp(b.id)),
            other => other,
        });
        all
    }

    /// One of this many rows is in the sample.
    fn scale(&self) -> f64 {
        self.rows / self.sampled.max(1.0)
    }

    /// The binaries that all of its rows keep, in bytes.
    pub(crate) fn held_bytes(&self) -> f64 {
        self.held * self.scale()
    }

    /// The part of these that its rows use, in bytes.
    pub(crate) fn own_bytes(&self) -> f64 {
        self.bytes * self.scale()
    }

    /// The ratio of kept bytes to its rows' own bytes.
    pub(crate) fn factor(&self) -> f64 {
        self.held / self.bytes.max(1.0)
    }

    /// Mean size of a binary, in bytes.
    pub(crate) fn mean_bytes(&self) -> f64 {
        self.bytes / self.count.max(1.0)
    }

    /// Mean size of what one of them keeps alive, in bytes.
    pub(crate) fn mean_held_bytes(&self) -> f64 {
        self.held / self.count.max(1.0)
    }

    /// Binaries in all of its rows.
    pub(crate) fn all_count(&self) -> f64 {
        self.count * self.scale()
    }

    /// Its rows are parts of larger binaries, so that copies of them would be smaller.
    pub(crate) fn has_parts(&self) -> bool {
        self.count > 0.0 && self.factor() >= PARTS
    }

    /// All that its rows may hold was sampled.
    pub(crate) fn is_seen(&self) -> bool {
        self.sampled > 0.0 && self.hidden == 0.0
    }

    /// It holds none.
    pub(crate) fn has_none(&self) -> bool {
        self.is_seen() && self.count == 0.0
    }

    /// The rows of the sample represent all: those of an ordered set are from one of its ends.
    pub(crate) fn is_fair(&self) -> bool {
        self.sampled >= self.rows || self.row.is_some_and(|row| row.kind == "set")
    }

    pub(crate) fn name(&self) -> &str {
        self.row.map_or(self.id, |row| &row.name)
    }

    /// With its owner, if known.
    pub(crate) fn title(&self) -> String {
        match self.row {
            Some(row) => format!("{} of {}", row.name, row.owner_title()),
            None => self.id.to_owned(),
        }
    }

    pub(crate) fn subject(&self) -> Subject {
        self.row.map_or_else(|| Subject::table(self.id), TableRow::subject)
    }
}
