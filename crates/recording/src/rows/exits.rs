//! Rows of process exits.

use beamtune_model::ExitRow;

use super::{Reader, Record, Writer};

/// Maximum number of frames of a stack; the agent sends three.
const MAX_FRAMES: usize = 16;

impl Record for ExitRow {
    const TABLE: &'static str = "exit";
    const COLUMNS: &'static [&'static str] = &[
        "t",
        "parent",
        "parent_name_text",
        "parent_call_text",
        "name_text",
        "call_text",
        "reason_text",
        "stack",
        "callee_text",
        "count",
        "heap_limit_words",
    ];

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        let stack = self.stack.iter().map(|(function, line)| serde_json::json!([function, line]));
        out.put(self.t)?;
        out.put(&self.parent)?;
        out.maybe_text(self.parent_name.as_deref())?;
        out.maybe_text(self.parent_call.as_deref())?;
        out.maybe_text(self.name.as_deref())?;
        out.maybe_text(self.call.as_deref())?;
        out.maybe_text(self.reason.as_deref())?;
        out.put(serde_json::Value::from_iter(stack).to_string())?;
        out.maybe_text(self.callee.as_deref())?;
        out.put(self.count)?;
        out.put(self.heap_limit_words)
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        let mut row = ExitRow {
            t: from.get()?,
            parent: from.get()?,
            parent_name: from.maybe_text()?,
            parent_call: from.maybe_text()?,
            name: from.maybe_text()?,
            call: from.maybe_text()?,
            reason: from.maybe_text()?,
            stack: from.json()?,
            callee: from.maybe_text()?,
            count: from.get()?,
            heap_limit_words: from.get()?,
        };
        row.stack.truncate(MAX_FRAMES);
        Ok(row)
    }
}
