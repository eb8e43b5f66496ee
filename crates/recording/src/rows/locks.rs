//! Rows of lock contention. Categories, histograms and stacks are stored as JSON.

use beamtune_model::{LockRow, LockSession, WaitRow};

use super::{Reader, Record, Writer, json};

/// Maximum length of a list; lock counting has eight categories and thirty bins, and a thread's stack has some dozens of frames.
const MAX_ENTRIES: usize = 256;

/// `[3, 0, 7]`
fn numbers_json(numbers: &[i64]) -> String {
    serde_json::Value::from_iter(numbers.iter().copied()).to_string()
}

fn numbers(from: &mut Reader<'_>) -> rusqlite::Result<Vec<i64>> {
    let mut numbers: Vec<i64> = from.json()?;
    numbers.truncate(MAX_ENTRIES);
    Ok(numbers)
}

fn names(from: &mut Reader<'_>) -> rusqlite::Result<Vec<String>> {
    let mut names: Vec<String> = from.json()?;
    names.truncate(MAX_ENTRIES);
    Ok(names)
}

impl Record for LockSession {
    const TABLE: &'static str = "lock_session";
    const COLUMNS: &'static [&'static str] =
        &["t", "length", "categories", "locks", "told", "reductions", "processes", "cost_bytes", "remark"];

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(self.t)?;
        out.put(self.length)?;
        out.put(json(self.categories.iter().map(String::as_str)))?;
        out.put(self.locks)?;
        out.put(self.told)?;
        out.put(self.reductions)?;
        out.put(self.processes)?;
        out.put(self.cost_bytes)?;
        out.put(&self.remark)
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        Ok(LockSession {
            t: from.get()?,
            length: from.get()?,
            categories: names(from)?,
            locks: from.get()?,
            told: from.get()?,
            reductions: from.get()?,
            processes: from.get()?,
            cost_bytes: from.get()?,
            remark: from.get()?,
        })
    }
}

impl Record for LockRow {
    const TABLE: &'static str = "lock";
    const COLUMNS: &'static [&'static str] = &[
        "t",
        "class_text",
        "kind_text",
        "lock_id_text",
        "entity_text",
        "locks",
        "file_text",
        "line",
        "tries",
        "collisions",
        "waited",
        "waits",
        "histogram",
    ];

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(self.t)?;
        out.text(&self.class)?;
        out.text(&self.kind)?;
        out.maybe_text(self.id.as_deref())?;
        out.maybe_text(self.entity.as_deref())?;
        out.put(self.locks)?;
        out.maybe_text(self.file.as_deref())?;
        out.put(self.line)?;
        out.put(self.tries)?;
        out.put(self.collisions)?;
        out.put(self.waited)?;
        out.put(self.waits)?;
        out.put(numbers_json(&self.histogram))
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        Ok(LockRow {
            t: from.get()?,
            class: from.text()?,
            kind: from.text()?,
            id: from.maybe_text()?,
            entity: from.maybe_text()?,
            locks: from.get()?,
            file: from.maybe_text()?,
            line: from.get()?,
            tries: from.get()?,
            collisions: from.get()?,
            waited: from.get()?,
            waits: from.get()?,
            histogram: numbers(from)?,
        })
    }
}

impl Record for WaitRow {
    const TABLE: &'static str = "lock_wait";
    const COLUMNS: &'static [&'static str] =
        &["t", "length", "thread_text", "how_text", "stack", "seen", "waited"];

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(self.t)?;
        out.put(self.length)?;
        out.text(&self.thread)?;
        out.text(&self.how)?;
        out.put(json(self.stack.iter().map(String::as_str)))?;
        out.put(self.seen)?;
        out.put(self.waited)
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        Ok(WaitRow {
            t: from.get()?,
            length: from.get()?,
            thread: from.text()?,
            how: from.text()?,
            stack: names(from)?,
            seen: from.get()?,
            waited: from.get()?,
        })
    }
}
