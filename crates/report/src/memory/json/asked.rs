//! Data requested by options as JSON: holders of binaries, and garbage collections.

use beamtune_model::memory::{Estimate, Reclaimable};
use beamtune_model::{BinaryHolderRow, CollectedProcessRow, RequestedGcRow};
use serde::Serialize;

#[derive(Serialize)]
pub struct HolderDocument<'a> {
    pid: &'a str,
    name: Option<&'a str>,
    label: Option<&'a str>,
    initial_call: Option<&'a str>,
    skipped: Option<&'a str>,
    heap_bytes: i64,
    references: i64,
    binaries: i64,
    binaries_bytes: i64,
    alone: i64,
    alone_bytes: i64,
}

impl<'a> From<&'a BinaryHolderRow> for HolderDocument<'a> {
    fn from(row: &'a BinaryHolderRow) -> Self {
        HolderDocument {
            pid: &row.pid,
            name: row.name.as_deref(),
            label: row.label.as_deref(),
            initial_call: row.initial_call.as_deref(),
            skipped: row.skipped.as_deref(),
            heap_bytes: row.heap_bytes,
            references: row.references,
            binaries: row.binaries,
            binaries_bytes: row.bytes,
            alone: row.exclusive,
            alone_bytes: row.alone_bytes,
        }
    }
}

#[derive(Serialize)]
pub struct CollectionDocument<'a> {
    how: &'a str,
    processes: i64,
    collected: i64,
    gone: i64,
    no_answer: i64,
    large: i64,
    stopped: &'a str,
    heaps_before_bytes: i64,
    heaps_after_bytes: i64,
    binaries_before_bytes: i64,
    binaries_after_bytes: i64,
    node_processes_before_bytes: Option<i64>,
    node_processes_after_bytes: Option<i64>,
    node_binary_before_bytes: Option<i64>,
    node_binary_after_bytes: Option<i64>,
    seconds: f64,
    longest_batch_seconds: f64,
    late_seconds: f64,
    longest_run_queues: i64,
}

impl<'a> From<&'a RequestedGcRow> for CollectionDocument<'a> {
    fn from(row: &'a RequestedGcRow) -> Self {
        CollectionDocument {
            how: &row.selection,
            processes: row.processes,
            collected: row.collected,
            gone: row.gone,
            no_answer: row.no_answer,
            large: row.large,
            stopped: &row.stopped,
            heaps_before_bytes: row.heap_before,
            heaps_after_bytes: row.heap_after,
            binaries_before_bytes: row.binary_before,
            binaries_after_bytes: row.binary_after,
            node_processes_before_bytes: row.memory_processes_before,
            node_processes_after_bytes: row.memory_processes_after,
            node_binary_before_bytes: row.memory_binary_before,
            node_binary_after_bytes: row.memory_binary_after,
            seconds: row.took as f64 / 1e9,
            longest_batch_seconds: row.longest as f64 / 1e9,
            late_seconds: row.late as f64 / 1e9,
            longest_run_queues: row.queue,
        }
    }
}

#[derive(Serialize)]
pub struct CollectedDocument<'a> {
    pid: &'a str,
    name: Option<&'a str>,
    label: Option<&'a str>,
    initial_call: Option<&'a str>,
    heap_before_bytes: i64,
    heap_after_bytes: i64,
    binaries_before_bytes: i64,
    binaries_after_bytes: i64,
}

impl<'a> From<&'a CollectedProcessRow> for CollectedDocument<'a> {
    fn from(row: &'a CollectedProcessRow) -> Self {
        CollectedDocument {
            pid: &row.pid,
            name: row.name.as_deref(),
            label: row.label.as_deref(),
            initial_call: row.initial_call.as_deref(),
            heap_before_bytes: row.heap_before,
            heap_after_bytes: row.heap_after,
            binaries_before_bytes: row.binary_before,
            binaries_after_bytes: row.binary_after,
        }
    }
}

#[derive(Serialize)]
pub struct ReturnsDocument {
    heaps: EstimateDocument,
    binaries: EstimateDocument,
}

#[derive(Serialize)]
struct EstimateDocument {
    bytes: f64,
    low_bytes: f64,
    high_bytes: f64,
}

impl From<Reclaimable> for ReturnsDocument {
    fn from(returns: Reclaimable) -> Self {
        ReturnsDocument { heaps: returns.heaps.into(), binaries: returns.binaries.into() }
    }
}

impl From<Estimate> for EstimateDocument {
    fn from(Estimate { bytes, low, high }: Estimate) -> Self {
        EstimateDocument { bytes, low_bytes: low, high_bytes: high }
    }
}
