//! Rows of what is read only when somebody asks for it. What they hold as lists stands in the tables as JSON.

use beamtune_model::{AllocationRow, BlockSum, CarrierRow, CodeRow, SizeCount};

use super::{Reader, Record, Writer};

/// Entries of a list in a row: an honest one has a dozen.
const MOST_ENTRIES: usize = 64;

/// `[["eheap_alloc", 3, 4096], …]`
fn blocks_json(blocks: &[BlockSum]) -> String {
    let blocks = blocks.iter().map(|sum| serde_json::json!([sum.allocator, sum.count, sum.bytes]));
    serde_json::Value::from_iter(blocks).to_string()
}

fn blocks(from: &mut Reader<'_>) -> rusqlite::Result<Vec<BlockSum>> {
    let list: Vec<(String, i64, i64)> = from.json()?;
    let sum = |(allocator, count, bytes)| BlockSum { allocator, count, bytes };
    Ok(list.into_iter().take(MOST_ENTRIES).map(sum).collect())
}

/// `[[1024, 7], …]`
fn sizes_json(sizes: &[SizeCount]) -> String {
    serde_json::Value::from_iter(sizes.iter().map(|size| serde_json::json!([size.from, size.count])))
        .to_string()
}

fn sizes(from: &mut Reader<'_>) -> rusqlite::Result<Vec<SizeCount>> {
    let list: Vec<(i64, i64)> = from.json()?;
    Ok(list.into_iter().take(MOST_ENTRIES).map(|(from, count)| SizeCount { from, count }).collect())
}

impl Record for CarrierRow {
    const TABLE: &'static str = "carrier";
    const COLUMNS: &'static [&'static str] = &[
        "t",
        "allocator_text",
        "skipped_text",
        "in_pool",
        "single",
        "size_log2",
        "used_tenths",
        "carriers",
        "bytes",
        "unscanned_bytes",
        "blocks",
        "free",
    ];

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(self.t)?;
        out.text(&self.allocator)?;
        out.maybe_text(self.skipped.as_deref())?;
        out.put(self.in_pool)?;
        out.put(self.single)?;
        out.put(self.size_log2)?;
        out.put(self.used_tenths)?;
        out.put(self.carriers)?;
        out.put(self.bytes)?;
        out.put(self.unscanned_bytes)?;
        out.put(blocks_json(&self.blocks))?;
        out.put(sizes_json(&self.free))
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        Ok(CarrierRow {
            t: from.get()?,
            allocator: from.text()?,
            skipped: from.maybe_text()?,
            in_pool: from.get()?,
            single: from.get()?,
            size_log2: from.get()?,
            used_tenths: from.get()?,
            carriers: from.get()?,
            bytes: from.get()?,
            unscanned_bytes: from.get()?,
            blocks: blocks(from)?,
            free: sizes(from)?,
        })
    }
}

impl Record for AllocationRow {
    const TABLE: &'static str = "allocation";
    const COLUMNS: &'static [&'static str] =
        &["t", "origin_text", "kind_text", "skipped_text", "blocks", "bytes", "sizes"];

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(self.t)?;
        out.text(&self.origin)?;
        out.text(&self.kind)?;
        out.maybe_text(self.skipped.as_deref())?;
        out.put(self.blocks)?;
        out.put(self.bytes)?;
        out.put(sizes_json(&self.sizes))
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        Ok(AllocationRow {
            t: from.get()?,
            origin: from.text()?,
            kind: from.text()?,
            skipped: from.maybe_text()?,
            blocks: from.get()?,
            bytes: from.get()?,
            sizes: sizes(from)?,
        })
    }
}

impl Record for CodeRow {
    const TABLE: &'static str = "code";
    const COLUMNS: &'static [&'static str] = &["t", "application_text", "modules", "bytes", "old_bytes"];

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(self.t)?;
        out.maybe_text(self.application.as_deref())?;
        out.put(self.modules)?;
        out.put(self.bytes)?;
        out.put(self.old_bytes)
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        Ok(CodeRow {
            t: from.get()?,
            application: from.maybe_text()?,
            modules: from.get()?,
            bytes: from.get()?,
            old_bytes: from.get()?,
        })
    }
}
