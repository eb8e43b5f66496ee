//! What a walk through the carriers has found.

use std::collections::BTreeMap;

use beamtune_model::units::Nanos;
use beamtune_model::{BlockSum, CarrierRow, SampleBuilder, SizeCount};

use super::{amount, list, words};
use crate::etf::{Term, TermError};
use crate::explicit::SkippedCarriers;

/// Rows that the agent tells at most.
const MOST_ROWS: usize = 2_000;
/// Entries of a list within a row: the VM has ten allocators, and the agent asks for fewer sizes.
const MOST_ENTRIES: usize = 64;

pub(super) fn carriers(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    // An answer to the question what it would cost.
    if value.get("rows")?.is_none() {
        return Ok(());
    }
    let bounds: Vec<i64> =
        list(value, "free_bounds")?.take(MOST_ENTRIES).map(amount).collect::<Result<_, _>>()?;
    for row in list(value, "rows")?.take(MOST_ROWS) {
        let [allocator, in_pool, single, size_log2, used_tenths, carriers, bytes, unscanned, blocks, free] =
            row.tuple_of()?;
        out.sample.carriers.push(CarrierRow {
            t,
            allocator: words(allocator)?.unwrap_or_default(),
            skipped: None,
            in_pool: in_pool.as_bool()?,
            single: single.as_bool()?,
            size_log2: Some(amount(size_log2)?),
            used_tenths: Some(amount(used_tenths)?),
            carriers: amount(carriers)?,
            bytes: amount(bytes)?,
            unscanned_bytes: amount(unscanned)?,
            blocks: blocks.list()?.take(MOST_ENTRIES).map(block_sum).collect::<Result<_, _>>()?,
            free: sizes(&bounds, free)?,
        });
    }
    // By allocator and reason: {carriers, bytes}.
    let mut skipped: BTreeMap<(String, String), (i64, i64)> = BTreeMap::new();
    let mut skip = |allocator, why, carriers: i64, bytes: i64| {
        let (all_carriers, all_bytes) = skipped.entry((allocator, why)).or_default();
        *all_carriers = all_carriers.saturating_add(carriers);
        *all_bytes = all_bytes.saturating_add(bytes);
    };
    for row in list(value, "skipped")? {
        let row = SkippedCarriers::read(row)?;
        let most = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        skip(row.allocator, row.why, most(row.carriers), most(row.bytes));
    }
    let [carriers, bytes] = value.field("left_out")?.tuple_of()?;
    if amount(carriers)? > 0 {
        skip(String::new(), "rows".to_owned(), amount(carriers)?, amount(bytes)?);
    }
    for ((allocator, why), (carriers, bytes)) in skipped {
        let row = CarrierRow { t, allocator, skipped: Some(why), carriers, bytes, ..CarrierRow::default() };
        out.sample.carriers.push(row);
    }
    Ok(())
}

fn block_sum(term: Term<'_>) -> Result<BlockSum, TermError> {
    let [allocator, count, bytes] = term.tuple_of()?;
    let allocator = words(allocator)?.unwrap_or_default();
    Ok(BlockSum { allocator, count: amount(count)?, bytes: amount(bytes)? })
}

/// A histogram without its empty places. Places with the same bound, of which the VM uses one only, are one.
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
