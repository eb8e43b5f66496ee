//! The VM's allocators as `erlang:system_info({allocator, _})` reports them, summed over instances.

use std::collections::BTreeMap;

use crate::metrics;
use crate::period::Period;
use crate::series::{Group, Metric};

/// A set of carriers, and the blocks in them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Carriers {
    /// Number of carriers.
    pub count: i64,
    /// Total size of the carriers, in bytes.
    pub size: i64,
    /// Number of blocks, of any allocator.
    pub blocks: i64,
    /// Total size of these blocks, in bytes.
    pub blocks_size: i64,
}

impl Carriers {
    /// Utilization of the carriers, 0 to 1; `None` if absent.
    pub fn used(self) -> Option<f64> {
        (self.size > 0).then(|| self.blocks_size as f64 / self.size as f64)
    }

    /// Bytes in carriers that are not in blocks.
    pub fn free(self) -> i64 {
        self.size.saturating_sub(self.blocks_size).max(0)
    }

    /// Adds two sets.
    pub fn plus(self, other: Carriers) -> Carriers {
        Carriers {
            count: self.count.saturating_add(other.count),
            size: self.size.saturating_add(other.size),
            blocks: self.blocks.saturating_add(other.blocks),
            blocks_size: self.blocks_size.saturating_add(other.blocks_size),
        }
    }

    /// Mean block size in bytes; `None` if there are no blocks.
    pub fn mean_block(self) -> Option<f64> {
        (self.blocks > 0).then(|| self.blocks_size as f64 / self.blocks as f64)
    }
}

/// One allocator, summed over its instances.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Allocator {
    /// Name: `eheap_alloc`.
    pub name: String,
    /// Number of instances.
    pub instances: usize,
    /// Multiblock carriers in use.
    pub mbcs: Carriers,
    /// Multiblock carriers abandoned to the pool. Tools that omit them overestimate the utilization on a fragmented node.
    pub pool: Carriers,
    /// Singleblock carriers.
    pub sbcs: Carriers,
    /// Bytes in blocks of other allocators.
    pub foreign: i64,
    /// Maximum size of its carriers since the start of the VM, in bytes. The sum of the maxima of all instances, which need not
    /// coincide, so it is an upper bound.
    pub max_size: i64,
    /// Multiblock carriers in use: maximum size of the carriers, and of the blocks in them, in bytes. Also sums of maxima.
    pub mbcs_largest: (i64, i64),
    /// Size of the carriers that are in mseg segments, in bytes; the other carriers come from malloc. `None` if unknown.
    pub segments: Option<i64>,
    /// Requests for segments per second; `None` without two readings.
    pub segment_requests_per_s: Option<f64>,
    /// Allocations of blocks per second; `None` without two readings.
    pub allocations_per_s: Option<f64>,
}

impl Allocator {
    /// All multiblock carriers, in use or in the pool.
    pub fn multiblock(&self) -> Carriers {
        self.mbcs.plus(self.pool)
    }

    /// All carriers.
    pub fn all(&self) -> Carriers {
        self.multiblock().plus(self.sbcs)
    }
}

/// Returns the last reading of all allocators, the largest first; empty if they were not read.
pub fn allocators(period: &Period) -> Vec<Allocator> {
    let mut found: BTreeMap<&str, Allocator> = BTreeMap::new();
    for entity in period.entities(Group::Allocator) {
        // Sums over all instances are entities without an instance number; in imported text they may have carriers, too.
        let name = entity.split_once('/').map_or(entity, |(name, _)| name);
        let last = |metric: &Metric| {
            period.find(metric.group, entity, metric.name).map_or(0, |stat| stat.last.value.max(0))
        };
        let set = |[count, size, blocks, blocks_size]: [&Metric; 4]| Carriers {
            count: last(count),
            size: last(size),
            blocks: last(blocks),
            blocks_size: last(blocks_size),
        };
        let allocator = found.entry(name).or_default();
        allocator.instances += usize::from(entity != name);
        allocator.mbcs = allocator.mbcs.plus(set(MBCS));
        allocator.pool = allocator.pool.plus(set(POOL));
        allocator.sbcs = allocator.sbcs.plus(set(SBCS));
        allocator.foreign = allocator.foreign.saturating_add(last(&metrics::FOREIGN_BLOCKS_SIZE));
        allocator.max_size = allocator.max_size.saturating_add(last(&metrics::CARRIERS_SIZE_MAX));
        let (carriers, blocks) = &mut allocator.mbcs_largest;
        *carriers = carriers.saturating_add(last(&metrics::MBCS_CARRIERS_SIZE_MAX));
        *blocks = blocks.saturating_add(last(&metrics::MBCS_BLOCKS_SIZE_MAX));
        if let Ok(mapped) = period.stat(&metrics::MSEG_CARRIERS_SIZE, entity) {
            let sum = allocator.segments.get_or_insert(0);
            *sum = sum.saturating_add(mapped.last.value.max(0));
        }
        for (metric, sum) in [
            (&metrics::ALLOCATIONS, &mut allocator.allocations_per_s),
            (&metrics::SEGMENTS_REQUESTED, &mut allocator.segment_requests_per_s),
        ] {
            if let Ok(rate) = period.rate(metric, entity) {
                *sum.get_or_insert(0.0) += rate;
            }
        }
    }
    let mut found: Vec<Allocator> = found
        .into_iter()
        .map(|(name, allocator)| Allocator { name: name.to_owned(), ..allocator })
        .filter(|allocator| allocator.instances > 0 || allocator.all().size > 0)
        .collect();
    found.sort_by_key(|allocator| std::cmp::Reverse(allocator.all().size));
    found
}

/// Returns the size of all carriers and of the blocks in them, in bytes, if an imported text contains these sums. Most texts have values
/// per allocator.
pub fn allocator_totals(period: &Period) -> Option<(i64, Option<i64>)> {
    let last = |metric| period.stat(metric, "").ok().map(|stat| stat.last.value.max(0));
    Some((last(&metrics::CARRIERS_SIZE)?, last(&metrics::BLOCKS_SIZE)))
}

const MBCS: [&Metric; 4] = [
    &metrics::MBCS_CARRIERS,
    &metrics::MBCS_CARRIERS_SIZE,
    &metrics::MBCS_BLOCKS,
    &metrics::MBCS_BLOCKS_SIZE,
];
const POOL: [&Metric; 4] = [
    &metrics::POOL_CARRIERS,
    &metrics::POOL_CARRIERS_SIZE,
    &metrics::POOL_BLOCKS,
    &metrics::POOL_BLOCKS_SIZE,
];
const SBCS: [&Metric; 4] = [
    &metrics::SBCS_CARRIERS,
    &metrics::SBCS_CARRIERS_SIZE,
    &metrics::SBCS_BLOCKS,
    &metrics::SBCS_BLOCKS_SIZE,
];
