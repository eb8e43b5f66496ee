//! Decodes the results of carrier walks.

use std::collections::BTreeMap;

use beamtune_model::units::Nanos;
use beamtune_model::{AllocationRow, BlockSum, CarrierRow, SampleBuilder, SizeCount};

use super::{amount, bounded_text, list};
use crate::etf::{Term, TermError};
use crate::explicit::SkippedCarriers;

/// Maximum number of rows that the agent sends.
const MAX_ROWS: usize = 2_000;
/// Maximum length of a list within a row. The VM has ten allocators, and the agent requests fewer than 64 size classes.
const MAX_ENTRIES: usize = 64;

/// Adds groups of carriers with the same properties, and the carriers that were skipped.
pub(super) fn carriers(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    // An estimate has no rows.
    if value.get("rows")?.is_none() {
        return Ok(());
    }
    let bounds: Vec<i64> =
        list(value, "free_bounds")?.take(MAX_ENTRIES).map(amount).collect::<Result<_, _>>()?;
    for row in list(value, "rows")?.take(MAX_ROWS) {
        let [allocator, in_pool, single, size_log2, used_tenths, carriers, bytes, unscanned, blocks, free] =
            row.tuple_of()?;
        out.sample.carriers.push(CarrierRow {
            t,
            allocator: bounded_text(allocator)?.unwrap_or_default(),
            skipped: None,
            in_pool: in_pool.as_bool()?,
            single: single.as_bool()?,
            size_log2: Some(amount(size_log2)?),
            used_tenths: Some(amount(used_tenths)?),
            carriers: amount(carriers)?,
            bytes: amount(bytes)?,
            unscanned_bytes: amount(unscanned)?,
            blocks: blocks.list()?.take(MAX_ENTRIES).map(block_sum).collect::<Result<_, _>>()?,
            free: sizes(&bounds, free)?,
        });
    }
    let mut skipped = skipped(value)?;
    let [carriers, bytes] = value.field("left_out")?.tuple_of()?;
    if amount(carriers)? > 0 {
        skipped.insert((String::new(), "rows".to_owned()), (amount(carriers)?, amount(bytes)?));
    }
    for ((allocator, why), (carriers, bytes)) in skipped {
        let row = CarrierRow { t, allocator, skipped: Some(why), carriers, bytes, ..CarrierRow::default() };
        out.sample.carriers.push(row);
    }
    Ok(())
}

/// Carriers and bytes that were not walked, by allocator and reason.
type Skipped = BTreeMap<(String, String), (i64, i64)>;

/// Sums up the skipped carriers of all instances of an allocator.
fn skipped(value: Term<'_>) -> Result<Skipped, TermError> {
    let mut skipped = Skipped::new();
    for row in list(value, "skipped")? {
        let row = SkippedCarriers::read(row)?;
        let saturated = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let (carriers, bytes) = skipped.entry((row.allocator, row.why)).or_default();
        *carriers = carriers.saturating_add(saturated(row.carriers));
        *bytes = bytes.saturating_add(saturated(row.bytes));
    }
    Ok(skipped)
}

/// Adds blocks by allocating function and type, and the blocks that were skipped.
pub(super) fn allocations(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    let bounds: Vec<i64> = list(value, "bounds")?.take(MAX_ENTRIES).map(amount).collect::<Result<_, _>>()?;
    for row in list(value, "rows")?.take(MAX_ROWS) {
        let [origin, kind, blocks, bytes, counts] = row.tuple_of()?;
        out.sample.allocations.push(AllocationRow {
            t,
            origin: bounded_text(origin)?.unwrap_or_default(),
            kind: bounded_text(kind)?.unwrap_or_default(),
            skipped: None,
            blocks: amount(blocks)?,
            bytes: amount(bytes)?,
            sizes: sizes(&bounds, counts)?,
        });
    }
    let mut skip = |origin, why: &str, blocks, bytes| {
        let skipped = Some(why.to_owned());
        out.sample.allocations.push(AllocationRow {
            t,
            origin,
            skipped,
            blocks,
            bytes,
            ..AllocationRow::default()
        });
    };
    for ((allocator, why), (_carriers, bytes)) in skipped(value)? {
        skip(allocator, &why, 0, bytes);
    }
    let unscanned = amount(value.field("unscanned_bytes")?)?;
    if unscanned > 0 {
        skip(String::new(), "unscanned", 0, unscanned);
    }
    let [rows, blocks, bytes] = value.field("left_out")?.tuple_of()?;
    if amount(rows)? > 0 {
        skip(String::new(), "rows", amount(blocks)?, amount(bytes)?);
    }
    Ok(())
}

fn block_sum(term: Term<'_>) -> Result<BlockSum, TermError> {
    let [allocator, count, bytes] = term.tuple_of()?;
    let allocator = bounded_text(allocator)?.unwrap_or_default();
    Ok(BlockSum { allocator, count: amount(count)?, bytes: amount(bytes)? })
}

/// Returns a histogram without its empty bins. Bins with the same lower bound, of which the VM uses only one, are merged.
fn sizes(bounds: &[i64], counts: Term<'_>) -> Result<Vec<SizeCount>, TermError> {
    let mut sizes: Vec<SizeCount> = Vec::new();
    for (&from, count) in bounds.iter().zip(counts.list()?) {
        let count = amount(count)?;
        match sizes.last_mut() {
            _ if count == 0 => {}
            Some(last) if last.from == from => last.count = last.count.saturating_add(count),
            _ => sizes.push(SizeCount { from, count }),
        }
    }
    Ok(sizes)
}
