//! Who holds binaries, and what collections that somebody has asked for gave back.

use beamtune_model::units::Nanos;
use beamtune_model::{CollectRow, CollectionRow, HolderRow, SampleBuilder, metrics};

use super::{NS_PER_US, amount, function, number, rows, text};
use crate::etf::{Term, TermError};

const NS_PER_MS: i64 = 1_000_000;

/// The amount under a key that must be there.
fn of(map: Term<'_>, key: &'static str) -> Result<i64, TermError> {
    amount(map.field(key)?)
}

/// The same of one that may be missing.
fn maybe(map: Term<'_>, key: &str) -> Result<i64, TermError> {
    map.get(key)?.map_or(Ok(0), amount)
}

fn initial_call(row: Term<'_>) -> Result<Option<String>, TermError> {
    Ok(row.get("initial_call")?.map(function).transpose()?.flatten())
}

pub(super) fn holders(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    for row in rows(value, "rows")? {
        out.sample.holders.push(HolderRow {
            t,
            pid: text(row, "pid")?.unwrap_or_default(),
            name: text(row, "name")?,
            label: text(row, "label")?,
            initial_call: initial_call(row)?,
            skipped: text(row, "told")?.filter(|told| told != "ok"),
            heap_bytes: of(row, "heap_bytes")?,
            binary_vheap_bytes: of(row, "binary_vheap_bytes")?,
            references: maybe(row, "references")?,
            binaries: maybe(row, "binaries")?,
            bytes: maybe(row, "bytes")?,
            alone: maybe(row, "alone")?,
            alone_bytes: maybe(row, "alone_bytes")?,
        });
    }
    // Of some that could not be asked, or with too many to tell them apart, it would be less than there is.
    if value.field("complete")?.as_bool()? {
        out.metric(&metrics::HELD_BINARIES, "", of(value, "binaries")?);
        out.metric(&metrics::HELD_BINARIES_SIZE, "", of(value, "bytes")?);
    }
    Ok(())
}

pub(super) fn collection(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    let (before, after) = (value.field("memory_before")?, value.field("memory_after")?);
    let chance = value.field("by_chance")?;
    out.sample.collections.push(CollectionRow {
        t,
        how: text(value, "how")?.unwrap_or_default(),
        processes: of(value, "processes")?,
        chosen: of(value, "chosen")?,
        largest: of(value, "largest")?,
        rest_bytes: of(value, "rest_bytes")?,
        collected: of(value, "collected")?,
        gone: of(value, "gone")?,
        no_answer: of(value, "no_answer")?,
        large: of(value, "large")?,
        stopped: text(value, "stopped")?.unwrap_or_default(),
        heap_before: of(value, "heap_before")?,
        heap_after: of(value, "heap_after")?,
        binary_before: of(value, "binary_before")?,
        binary_after: of(value, "binary_after")?,
        chance: of(chance, "collected")?,
        chance_heap_kib: of(chance, "heap_kib")?,
        chance_heap_kib_squares: of(chance, "heap_kib_squares")?,
        chance_binary_kib: of(chance, "binary_kib")?,
        chance_binary_kib_squares: of(chance, "binary_kib_squares")?,
        memory_processes_before: number(before, "processes")?,
        memory_processes_after: number(after, "processes")?,
        memory_binary_before: number(before, "binary")?,
        memory_binary_after: number(after, "binary")?,
        took: of(value, "us")?.saturating_mul(NS_PER_US),
        longest: of(value, "longest_us")?.saturating_mul(NS_PER_US),
        late: of(value, "late_ms")?.saturating_mul(NS_PER_MS),
        queue: of(value, "queue")?,
    });
    for row in rows(value, "rows")? {
        out.sample.collected.push(CollectRow {
            t,
            pid: text(row, "pid")?.unwrap_or_default(),
            name: text(row, "name")?,
            label: text(row, "label")?,
            initial_call: initial_call(row)?,
            heap_before: of(row, "heap_before")?,
            heap_after: of(row, "heap_after")?,
            binary_before: of(row, "binary_before")?,
            binary_after: of(row, "binary_after")?,
            took: of(row, "us")?.saturating_mul(NS_PER_US),
        });
    }
    Ok(())
}
