//! Binaries in the objects of single ETS tables, estimated from a sample of their objects.
//!
//! The agent finds binaries that are elements of an object, or of a small tuple in it, but not those in maps or lists.

use std::cmp::Ordering;

use beamtune_model::{Group, Metric, Period, Subject, TableRow, metrics};

/// Minimum ratio of the bytes kept alive to the bytes used, if objects have parts of larger binaries; less is not worth a copy (judgement).
const PARTS: f64 = 2.0;

/// The binaries of one table.
pub(crate) struct TableBinaries<'p> {
    pub(crate) id: &'p str,
    pub(crate) row: Option<&'p TableRow>,
    /// Number of its objects at the end of the period.
    pub(crate) rows: f64,
    /// Number of sampled objects; 0 if the table cannot be sampled.
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
        let measured = last(&metrics::TABLE_BINARY_OBJECTS)?;
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

    /// Returns all measured tables, those that keep the most bytes alive first; empty if none was measured.
    pub(crate) fn all(period: &'p Period) -> Vec<Self> {
        let ids = period.entities(Group::Table).into_iter();
        let mut all: Vec<Self> = ids.filter_map(|id| TableBinaries::of(period, id)).collect();
        all.sort_by(|a, b| match b.held_bytes().total_cmp(&a.held_bytes()) {
            Ordering::Equal => b.rows.total_cmp(&a.rows).then_with(|| a.id.cmp(b.id)),
            other => other,
        });
        all
    }

    /// Returns the ratio of all objects to the sampled ones.
    fn scale(&self) -> f64 {
        self.rows / self.sampled.max(1.0)
    }

    /// Estimates the bytes of the binaries that all its objects keep alive.
    pub(crate) fn held_bytes(&self) -> f64 {
        self.held * self.scale()
    }

    /// Estimates the part of these bytes that its objects use.
    pub(crate) fn own_bytes(&self) -> f64 {
        self.bytes * self.scale()
    }

    /// Returns the ratio of the bytes kept alive to the bytes used.
    pub(crate) fn factor(&self) -> f64 {
        self.held / self.bytes.max(1.0)
    }

    /// Returns the mean size of a binary, in bytes.
    pub(crate) fn mean_bytes(&self) -> f64 {
        self.bytes / self.count.max(1.0)
    }

    /// Returns the mean number of bytes that a binary keeps alive.
    pub(crate) fn mean_held_bytes(&self) -> f64 {
        self.held / self.count.max(1.0)
    }

    /// Estimates the number of binaries in all its objects.
    pub(crate) fn all_count(&self) -> f64 {
        self.count * self.scale()
    }

    /// Whether its binaries are parts of larger ones, so that copies of them would save memory.
    pub(crate) fn has_parts(&self) -> bool {
        self.count > 0.0 && self.factor() >= PARTS
    }

    /// Whether all binaries of the sampled objects were found.
    pub(crate) fn is_seen(&self) -> bool {
        self.sampled > 0.0 && self.hidden == 0.0
    }

    /// Whether its objects have no binaries.
    pub(crate) fn has_none(&self) -> bool {
        self.is_seen() && self.count == 0.0
    }

    /// Whether the sampled objects represent all of them: those of an ordered set are from one of its ends.
    pub(crate) fn is_fair(&self) -> bool {
        self.sampled >= self.rows || self.row.is_some_and(|row| row.kind == "set")
    }

    pub(crate) fn name(&self) -> &str {
        self.row.map_or(self.id, |row| &row.name)
    }

    /// Returns its name with its owner, if known.
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
