//! Decodes the state of allocators: blocks and carriers of each instance, the mseg segment cache, and reserved address space.

use std::collections::BTreeMap;

use beamtune_model::{Metric, SampleBuilder, metrics};

use super::{bounded_text, list, number, text};
use crate::etf::{Term, TermError};

const MBCS: [&Metric; 4] = [
    &metrics::MBCS_BLOCKS,
    &metrics::MBCS_BLOCKS_SIZE,
    &metrics::MBCS_CARRIERS,
    &metrics::MBCS_CARRIERS_SIZE,
];
const POOL: [&Metric; 4] = [
    &metrics::POOL_BLOCKS,
    &metrics::POOL_BLOCKS_SIZE,
    &metrics::POOL_CARRIERS,
    &metrics::POOL_CARRIERS_SIZE,
];
const SBCS: [&Metric; 4] = [
    &metrics::SBCS_BLOCKS,
    &metrics::SBCS_BLOCKS_SIZE,
    &metrics::SBCS_CARRIERS,
    &metrics::SBCS_CARRIERS_SIZE,
];

/// Adds counters of allocator instances, the segment cache and reserved address space.
pub(super) fn allocators(value: Term<'_>, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    for instance in list(value, "instances")? {
        let [allocator, number, mbcs, pool, sbcs, calls] = instance.tuple_of()?;
        let entity = format!("{}/{}", bounded_text(allocator)?.unwrap_or_default(), number.as_i64()?);
        let (mut largest, mut mapped) = (0i64, 0i64);
        for (set, of_set) in [(mbcs, MBCS), (pool, POOL), (sbcs, SBCS)] {
            // {Blocks, BlockBytes, Carriers, CarrierBytes, BlockBytesMax, CarriersMax, CarrierBytesMax, MsegCarriers, MsegBytes}
            let numbers: Vec<i64> = set.tuple()?.map(Term::as_i64).collect::<Result<_, _>>()?;
            // Before ERTS 15.1, a carrier walk leaves the VM's count of pooled carriers wrong, possibly negative.
            for (metric, &value) in of_set.iter().zip(&numbers).filter(|(_, value)| **value >= 0) {
                out.metric(metric, &entity, value);
            }
            let at = |index: usize| numbers.get(index).copied().unwrap_or(0);
            largest = largest.saturating_add(at(6));
            mapped = mapped.saturating_add(at(8));
            if of_set == MBCS {
                out.metric(&metrics::MBCS_BLOCKS_SIZE_MAX, &entity, at(4));
                out.metric(&metrics::MBCS_CARRIERS_SIZE_MAX, &entity, at(6));
            }
        }
        out.metric(&metrics::CARRIERS_SIZE_MAX, &entity, largest);
        out.metric(&metrics::MSEG_CARRIERS_SIZE, &entity, mapped);
        // {Alloc, Free, Realloc, MsegAlloc, MsegDealloc, MsegRealloc, SysAlloc, SysFree, SysRealloc}
        let calls: Vec<i64> = calls.tuple()?.map(Term::as_i64).collect::<Result<_, _>>()?;
        let counted = [&metrics::ALLOCATIONS, &metrics::FREES, &metrics::REALLOCATIONS];
        for (metric, &calls) in counted.iter().zip(&calls) {
            out.metric(metric, &entity, calls);
        }
        if let [_, _, _, mseg_allocs, _, mseg_reallocs, ..] = calls[..] {
            out.metric(&metrics::SEGMENTS_REQUESTED, &entity, mseg_allocs.saturating_add(mseg_reallocs));
        }
    }
    let mut foreign = BTreeMap::new();
    for blocks in list(value, "foreign")? {
        let [within, _, bytes] = blocks.tuple_of()?;
        let sum: &mut i64 = foreign.entry(bounded_text(within)?.unwrap_or_default()).or_default();
        *sum = sum.saturating_add(bytes.as_i64()?);
    }
    for (allocator, bytes) in foreign {
        // Sum over the allocator's instances.
        out.metric(&metrics::FOREIGN_BLOCKS_SIZE, &allocator, bytes);
    }
    for kind in list(value, "fixed")? {
        let [kind, bytes] = kind.tuple_of()?;
        out.metric(&metrics::FIXED_SIZE, &bounded_text(kind)?.unwrap_or_default(), bytes.as_i64()?);
    }
    for row in list(value, "mseg")? {
        let [instance, cached, hits, _, _, bytes, _, allocations, _, _, creates, destroys] =
            row.tuple_of()?;
        let entity = instance.as_i64()?.to_string();
        for (metric, value) in [
            (&metrics::MSEG_CACHED, cached),
            (&metrics::MSEG_CACHE_HITS, hits),
            (&metrics::MSEG_SEGMENTS_SIZE, bytes),
            (&metrics::MSEG_ALLOCATIONS, allocations),
            (&metrics::MSEG_CREATES, creates),
            (&metrics::MSEG_DESTROYS, destroys),
        ] {
            out.metric(metric, &entity, value.as_i64()?);
        }
    }
    for area in list(value, "mmap")? {
        // The VM's names are default_mmap and literal_mmap, with or without the suffix.
        let kind = text(area, "kind")?.unwrap_or_default();
        let entity = kind.strip_suffix("_mmap").unwrap_or(&kind);
        for (metric, key) in [
            (&metrics::MMAP_TOTAL, "total_bytes"),
            (&metrics::MMAP_USED, "used_bytes"),
            (&metrics::MMAP_OS_USED, "os_bytes"),
        ] {
            if let Some(bytes) = number(area, key)? {
                out.metric(metric, entity, bytes);
            }
        }
    }
    Ok(())
}
