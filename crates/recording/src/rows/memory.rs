//! Rows of memory data that are read on request only. Their lists are stored as JSON.

use beamtune_model::{
    AllocationRow, BlockSum, CarrierRow, CodeRow, CollectRow, CollectionRow, HolderRow, SizeCount,
};

use super::{Reader, Record, Writer};

/// Maximum length of a list; honest ones have a dozen entries.
const MAX_ENTRIES: usize = 64;

/// `[["eheap_alloc", 3, 4096], …]`
fn blocks_json(blocks: &[BlockSum]) -> String {
    let blocks = blocks.iter().map(|sum| serde_json::json!([sum.allocator, sum.count, sum.bytes]));
    serde_json::Value::from_iter(blocks).to_string()
}

fn blocks(from: &mut Reader<'_>) -> rusqlite::Result<Vec<BlockSum>> {
    let list: Vec<(String, i64, i64)> = from.json()?;
    let sum = |(allocator, count, bytes)| BlockSum { allocator, count, bytes };
    Ok(list.into_iter().take(MAX_ENTRIES).map(sum).collect())
}

/// `[[1024, 7], …]`
fn sizes_json(sizes: &[SizeCount]) -> String {
    serde_json::Value::from_iter(sizes.iter().map(|size| serde_json::json!([size.from, size.count])))
        .to_string()
}

fn sizes(from: &mut Reader<'_>) -> rusqlite::Result<Vec<SizeCount>> {
    let list: Vec<(i64, i64)> = from.json()?;
    Ok(list.into_iter().take(MAX_ENTRIES).map(|(from, count)| SizeCount { from, count }).collect())
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

impl Record for HolderRow {
    const TABLE: &'static str = "holder";
    const COLUMNS: &'static [&'static str] = &[
        "t",
        "pid",
        "name_text",
        "label_text",
        "initial_call_text",
        "skipped_text",
        "heap_bytes",
        "binary_vheap_bytes",
        "refs",
        "binaries",
        "bytes",
        "alone",
        "alone_bytes",
    ];

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(self.t)?;
        out.put(&self.pid)?;
        out.maybe_text(self.name.as_deref())?;
        out.maybe_text(self.label.as_deref())?;
        out.maybe_text(self.initial_call.as_deref())?;
        out.maybe_text(self.skipped.as_deref())?;
        out.put(self.heap_bytes)?;
        out.put(self.binary_vheap_bytes)?;
        out.put(self.references)?;
        out.put(self.binaries)?;
        out.put(self.bytes)?;
        out.put(self.alone)?;
        out.put(self.alone_bytes)
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        Ok(HolderRow {
            t: from.get()?,
            pid: from.get()?,
            name: from.maybe_text()?,
            label: from.maybe_text()?,
            initial_call: from.maybe_text()?,
            skipped: from.maybe_text()?,
            heap_bytes: from.get()?,
            binary_vheap_bytes: from.get()?,
            references: from.get()?,
            binaries: from.get()?,
            bytes: from.get()?,
            alone: from.get()?,
            alone_bytes: from.get()?,
        })
    }
}

impl Record for CollectionRow {
    const TABLE: &'static str = "collection";
    const COLUMNS: &'static [&'static str] = &[
        "t",
        "how_text",
        "processes",
        "chosen",
        "largest",
        "rest_bytes",
        "collected",
        "gone",
        "no_answer",
        "large",
        "stopped_text",
        "heap_before",
        "heap_after",
        "binary_before",
        "binary_after",
        "chance",
        "chance_heap_kib",
        "chance_heap_kib_squares",
        "chance_binary_kib",
        "chance_binary_kib_squares",
        "memory_processes_before",
        "memory_processes_after",
        "memory_binary_before",
        "memory_binary_after",
        "took",
        "longest",
        "late",
        "queue",
    ];

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(self.t)?;
        out.text(&self.how)?;
        out.put(self.processes)?;
        out.put(self.chosen)?;
        out.put(self.largest)?;
        out.put(self.rest_bytes)?;
        out.put(self.collected)?;
        out.put(self.gone)?;
        out.put(self.no_answer)?;
        out.put(self.large)?;
        out.text(&self.stopped)?;
        out.put(self.heap_before)?;
        out.put(self.heap_after)?;
        out.put(self.binary_before)?;
        out.put(self.binary_after)?;
        out.put(self.chance)?;
        out.put(self.chance_heap_kib)?;
        out.put(self.chance_heap_kib_squares)?;
        out.put(self.chance_binary_kib)?;
        out.put(self.chance_binary_kib_squares)?;
        out.put(self.memory_processes_before)?;
        out.put(self.memory_processes_after)?;
        out.put(self.memory_binary_before)?;
        out.put(self.memory_binary_after)?;
        out.put(self.took)?;
        out.put(self.longest)?;
        out.put(self.late)?;
        out.put(self.queue)
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        Ok(CollectionRow {
            t: from.get()?,
            how: from.text()?,
            processes: from.get()?,
            chosen: from.get()?,
            largest: from.get()?,
            rest_bytes: from.get()?,
            collected: from.get()?,
            gone: from.get()?,
            no_answer: from.get()?,
            large: from.get()?,
            stopped: from.text()?,
            heap_before: from.get()?,
            heap_after: from.get()?,
            binary_before: from.get()?,
            binary_after: from.get()?,
            chance: from.get()?,
            chance_heap_kib: from.get()?,
            chance_heap_kib_squares: from.get()?,
            chance_binary_kib: from.get()?,
            chance_binary_kib_squares: from.get()?,
            memory_processes_before: from.get()?,
            memory_processes_after: from.get()?,
            memory_binary_before: from.get()?,
            memory_binary_after: from.get()?,
            took: from.get()?,
            longest: from.get()?,
            late: from.get()?,
            queue: from.get()?,
        })
    }
}

impl Record for CollectRow {
    const TABLE: &'static str = "collected";
    const COLUMNS: &'static [&'static str] = &[
        "t",
        "pid",
        "name_text",
        "label_text",
        "initial_call_text",
        "heap_before",
        "heap_after",
        "binary_before",
        "binary_after",
        "took",
    ];

    fn write(&self, out: &mut Writer<'_, '_>) -> rusqlite::Result<()> {
        out.put(self.t)?;
        out.put(&self.pid)?;
        out.maybe_text(self.name.as_deref())?;
        out.maybe_text(self.label.as_deref())?;
        out.maybe_text(self.initial_call.as_deref())?;
        out.put(self.heap_before)?;
        out.put(self.heap_after)?;
        out.put(self.binary_before)?;
        out.put(self.binary_after)?;
        out.put(self.took)
    }

    fn read(from: &mut Reader<'_>) -> rusqlite::Result<Self> {
        Ok(CollectRow {
            t: from.get()?,
            pid: from.get()?,
            name: from.maybe_text()?,
            label: from.maybe_text()?,
            initial_call: from.maybe_text()?,
            heap_before: from.get()?,
            heap_after: from.get()?,
            binary_before: from.get()?,
            binary_after: from.get()?,
            took: from.get()?,
        })
    }
}
