//! Memory of a process outside its heap: its own structure, its half of links and monitors, headers of messages, and off-heap messages.
//! `process_info(P, memory)` reports only the sum.

use beamtune_model::{
    Group, Missing, Period, ProcessActivity, ProcessRow, Remedy, metrics,
    units::{Nanos, SECOND_NS},
};

use crate::remedy;

/// Size of the header of a queued message, in bytes (measured, OTP 23 to 29).
pub const HEAD_BYTES: f64 = 88.0;

/// Size of the structure of a process without links and messages, in bytes: 736 to 776 (measured, OTP 23 to 29).
const STRUCTURE_BYTES: f64 = 776.0;

/// Returns the memory that each side of a monitor is charged with, in bytes: half of the monitor, as long as both processes exist. For a
/// link, it is 40 to 48 bytes (measured on OTP 23, 25, 27 and 29).
pub fn side_bytes(period: &Period) -> f64 {
    match period.facts.otp_release() {
        Some(..=24) => 60.0,
        Some(25..=26) => 64.0,
        _ => 72.0,
    }
}

/// Returns the memory outside heap and structure, in bytes; `None` if not recorded.
pub fn bytes(row: &ProcessRow) -> Option<f64> {
    let beside = row.total_bytes?.saturating_sub(row.memory_bytes) as f64;
    Some((beside - STRUCTURE_BYTES).max(0.0))
}

/// Returns the memory of the links and monitors of a process, in bytes. `None` if not recorded, or if off-heap messages cannot be separated
/// from it.
pub fn links_bytes(row: &ProcessRow) -> Option<f64> {
    let is_told = row.queue == 0 || is_on_heap(row);
    let heads = HEAD_BYTES * row.queue as f64;
    bytes(row).filter(|_| is_told).map(|bytes| (bytes - heads).max(0.0))
}

/// True if queued messages are part of the heap.
pub fn is_on_heap(row: &ProcessRow) -> bool {
    row.message_queue_data.as_deref() == Some("on_heap")
}

/// At or above this number, queued messages should be kept off the heap (judgement): each fullsweep copies them.
const MANY_MESSAGES: i64 = 1_000;

/// True if GCs copy many messages, because the queue is part of the heap.
pub fn has_long_queue_on_heap(process: &ProcessActivity) -> bool {
    process.queue_max > MANY_MESSAGES && process.row.as_ref().is_some_and(is_on_heap)
}

/// Returns the remedy for many messages in a heap.
pub fn off_heap(period: &Period, why: &str, prove: &str) -> Option<Remedy> {
    remedy::of(
        period,
        "process.message_queue_data",
        "process_flag(message_queue_data, off_heap) in the process named",
        why,
        prove,
    )
}

/// Number of blocks in all instances of `fix_alloc`. They are the links, monitors and timers of all processes, one block for each process,
/// one for each on-heap message, and hardly anything else.
pub struct Blocks {
    pub first: f64,
    pub last: f64,
    /// Times of the first and the last reading.
    pub first_at: Nanos,
    pub last_at: Nanos,
}

impl Blocks {
    /// Returns the time between the first and the last reading.
    pub fn seconds(&self) -> f64 {
        self.last_at.saturating_sub(self.first_at) as f64 / SECOND_NS as f64
    }

    pub fn of(period: &Period) -> Result<Blocks, Missing> {
        let mut blocks = Blocks { first: 0.0, last: 0.0, first_at: 0, last_at: 0 };
        let mut instances = 0;
        for entity in period.entities(Group::Allocator) {
            if entity.split_once('/').is_none_or(|(allocator, _)| allocator != "fix_alloc") {
                continue;
            }
            let Ok(own) = period.stat(&metrics::MBCS_BLOCKS, entity) else { continue };
            instances += 1;
            (blocks.first_at, blocks.last_at) = (own.first.t, own.last.t);
            let others = [&metrics::POOL_BLOCKS, &metrics::SBCS_BLOCKS];
            let others = others.into_iter().filter_map(|metric| period.stat(metric, entity).ok());
            for stat in others.chain([own]) {
                blocks.first += stat.first.value as f64;
                blocks.last += stat.last.value as f64;
            }
        }
        if instances > 0 {
            Ok(blocks)
        } else {
            Err(period.missing_group(Group::Allocator, "blocks of fix_alloc"))
        }
    }
}
