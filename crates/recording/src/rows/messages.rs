//! Rows of message sizes.

use beamtune_model::MessageRow;

use super::{Reader, Record, Writer};

impl Record for MessageRow {
    const TABLE: &'static str = "message";
    const COLUMNS: &'static [&'static str] =
        &["t", "pid", "messages", "bytes", "off_heap", "us", "active", "sampled"];

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(self.t)?;
        out.put(&self.pid)?;
        out.put(self.messages)?;
        out.put(self.bytes)?;
        out.put(self.off_heap)?;
        out.put(self.us)?;
        out.put(self.active)?;
        out.put(self.sampled)
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        Ok(MessageRow {
            t: from.get()?,
            pid: from.get()?,
            messages: from.get()?,
            bytes: from.get()?,
            off_heap: from.get()?,
            us: from.get()?,
            active: from.get()?,
            sampled: from.get()?,
        })
    }
}
