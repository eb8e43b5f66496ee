//! Rows of waiting processes. Stacks are stored as texts, since they occur repeatedly.

use beamtune_model::StandRow;

use super::{Reader, Record, Writer, json};

/// Maximum length of a list; the agent sends eight entries.
const MAX_ENTRIES: usize = 16;

impl Record for StandRow {
    const TABLE: &'static str = "stand";
    const COLUMNS: &'static [&'static str] =
        &["t", "pid", "status_text", "stack_text", "count", "queued", "of", "waits_for", "kind_text"];

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        let on = self.on.iter().map(|(who, count)| serde_json::json!([who, count]));
        out.put(self.t)?;
        out.put(&self.pid)?;
        out.text(&self.status)?;
        out.text(&json(self.stack.iter().map(String::as_str)))?;
        out.put(self.count)?;
        out.put(self.queued)?;
        out.put(self.of)?;
        out.put(serde_json::Value::from_iter(on).to_string())?;
        out.maybe_text(self.kind.as_deref())
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        let mut row = StandRow {
            t: from.get()?,
            pid: from.get()?,
            status: from.text()?,
            stack: from.list()?,
            count: from.get()?,
            queued: from.get()?,
            of: from.get()?,
            on: from.json()?,
            kind: from.maybe_text()?,
        };
        row.stack.truncate(MAX_ENTRIES);
        row.on.truncate(MAX_ENTRIES);
        Ok(row)
    }
}
