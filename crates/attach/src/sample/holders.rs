//! Decodes which processes refer to binaries, and the results of requested garbage collections.

use beamtune_model::units::Nanos;
use beamtune_model::{BinaryHolderRow, CollectedProcessRow, RequestedGcRow, SampleBuilder, metrics};

use super::{NS_PER_US, amount, function, number, rows, text};
use crate::etf::{Term, TermError};

const NS_PER_MS: i64 = 1_000_000;

/// Returns the amount under a mandatory key.
fn required_amount(map: Term<'_>, key: &'static str) -> Result<i64, TermError> {
    amount(map.field(key)?)
}

/// Returns the amount under an optional key, or 0.
fn optional_amount(map: Term<'_>, key: &str) -> Result<i64, TermError> {
    map.get(key)?.map_or(Ok(0), amount)
}

fn initial_call(row: Term<'_>) -> Result<Option<String>, TermError> {
    Ok(row.get("initial_call")?.map(function).transpose()?.flatten())
}

/// Adds processes that refer to binaries, and the total size of these binaries.
pub(super) fn holders(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    for row in rows(value, "rows")? {
        out.sample.holders.push(BinaryHolderRow {
            t,
            pid: text(row, "pid")?.unwrap_or_default(),
            name: text(row, "name")?,
            label: text(row, "label")?,
            initial_call: initial_call(row)?,
            skipped: text(row, "told")?.filter(|outcome| outcome != "ok"),
            heap_bytes: required_amount(row, "heap_bytes")?,
            binary_vheap_bytes: required_amount(row, "binary_vheap_bytes")?,
            references: optional_amount(row, "references")?,
            binaries: optional_amount(row, "binaries")?,
            bytes: optional_amount(row, "bytes")?,
            exclusive: optional_amount(row, "alone")?,
            alone_bytes: optional_amount(row, "alone_bytes")?,
        });
    }
    // Sums are incomplete, and thus too small, if a process could not be read or if there were too many binaries.
    if value.field("complete")?.as_bool()? {
        out.metric(&metrics::HELD_BINARIES, "", required_amount(value, "binaries")?);
        out.metric(&metrics::HELD_BINARIES_SIZE, "", required_amount(value, "bytes")?);
    }
    Ok(())
}

/// Adds the result of requested garbage collections, and the processes that freed the most memory.
pub(super) fn collection(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    let (before, after) = (value.field("memory_before")?, value.field("memory_after")?);
    let chance = value.field("by_chance")?;
    out.sample.collections.push(RequestedGcRow {
        t,
        selection: text(value, "how")?.unwrap_or_default(),
        processes: required_amount(value, "processes")?,
        chosen: required_amount(value, "chosen")?,
        largest: required_amount(value, "largest")?,
        rest_bytes: required_amount(value, "rest_bytes")?,
        collected: required_amount(value, "collected")?,
        gone: required_amount(value, "gone")?,
        no_answer: required_amount(value, "no_answer")?,
        large: required_amount(value, "large")?,
        stopped: text(value, "stopped")?.unwrap_or_default(),
        heap_before: required_amount(value, "heap_before")?,
        heap_after: required_amount(value, "heap_after")?,
        binary_before: required_amount(value, "binary_before")?,
        binary_after: required_amount(value, "binary_after")?,
        random: required_amount(chance, "collected")?,
        chance_heap_kib: required_amount(chance, "heap_kib")?,
        chance_heap_kib_squares: required_amount(chance, "heap_kib_squares")?,
        chance_binary_kib: required_amount(chance, "binary_kib")?,
        chance_binary_kib_squares: required_amount(chance, "binary_kib_squares")?,
        memory_processes_before: number(before, "processes")?,
        memory_processes_after: number(after, "processes")?,
        memory_binary_before: number(before, "binary")?,
        memory_binary_after: number(after, "binary")?,
        took: required_amount(value, "us")?.saturating_mul(NS_PER_US),
        longest: required_amount(value, "longest_us")?.saturating_mul(NS_PER_US),
        late: required_amount(value, "late_ms")?.saturating_mul(NS_PER_MS),
        queue: required_amount(value, "queue")?,
    });
    for row in rows(value, "rows")? {
        out.sample.collected.push(CollectedProcessRow {
            t,
            pid: text(row, "pid")?.unwrap_or_default(),
            name: text(row, "name")?,
            label: text(row, "label")?,
            initial_call: initial_call(row)?,
            heap_before: required_amount(row, "heap_before")?,
            heap_after: required_amount(row, "heap_after")?,
            binary_before: required_amount(row, "binary_before")?,
            binary_after: required_amount(row, "binary_after")?,
            took: required_amount(row, "us")?.saturating_mul(NS_PER_US),
        });
    }
    Ok(())
}
