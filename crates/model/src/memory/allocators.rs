//! What the VM's allocators have by their own account, instances added up.

use std::collections::BTreeMap;

use crate::metrics;
use crate::period::Period;
use crate::series::{Group, Metric};

/// Carriers of one set, and the blocks in them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Carriers {
    /// Carriers.
    pub count: i64,
    /// Their size, in bytes.
    pub size: i64,
    /// Blocks in them, of any allocator.
    pub blocks: i64,
    /// Their size, in bytes.
    pub blocks_size: i64,
}

impl Carriers {
    /// Share of the carriers that blocks take, 0 to 1; `None` without carriers.
    pub fn used(self) -> Option<f64> {
        (self.size > 0).then(|| self.blocks_size as f64 / self.size as f64)
    }

    /// Bytes of the carriers that no block takes.
    pub fn free(self) -> i64 {
        self.size.saturating_sub(self.blocks_size).max(0)
    }

    /// Both together.
    pub fn plus(self, other: Carriers) -> Carriers {
        Carriers {
            count: self.count.saturating_add(other.count),
            size: self.size.saturating_add(other.size),
            blocks: self.blocks.saturating_add(other.blocks),
            blocks_size: self.blocks_size.saturating_add(other.blocks_size),
        }
    }

    /// Mean size of a block, in bytes; `None` without blocks.
    pub fn mean_block(self) -> Option<f64> {
        (self.blocks > 0).then(|| self.blocks_size as f64 / self.blocks as f64)
    }
}

/// One allocator, all of its instances.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Allocator {
    /// As the VM names it: `eheap_alloc`.
    pub name: String,
    /// Instances.
    pub instances: usize,
    /// Multiblock carriers in use.
    pub mbcs: Carriers,
    /// Multiblock carriers that were abandoned to the pool. Tools that leave these out call a fragmented node full.
    pub pool: Carriers,
    /// Single-block carriers.
    pub sbcs: Carriers,
    /// Of the blocks, those of other allocators, in bytes.
    pub foreign: i64,
    /// The largest size that its carriers have had since the VM was started, in bytes: of each instance, added up, so
    /// at most this much at once.
    pub largest: i64,
    /// Of the multiblock carriers in use: the largest size that they have had, and the largest that the blocks in them have had, in
    /// bytes. Of each instance, added up.
    pub mbcs_largest: (i64, i64),
    /// Of all carriers, those that are mapped segments, in bytes; the others are from malloc. `None` where that was not told.
    pub segments: Option<i64>,
    /// Segments asked for per second; `None` before there were two readings.
    pub segments_asked_per_s: Option<f64>,
    /// Blocks allocated per second; `None` before there were two readings.
    pub allocations_per_s: Option<f64>,
}

impl Allocator {
    /// Multiblock carriers, whether in use or in the pool.
    pub fn multiblock(&self) -> Carriers {
        self.mbcs.plus(self.pool)
    }

    /// All carriers.
    pub fn all(&self) -> Carriers {
        self.multiblock().plus(self.sbcs)
    }
}

/// The allocators as last read, the largest first; empty if they were not.
pub fn allocators(period: &Period) -> Vec<Allocator> {
    let mut found: BTreeMap<&str, Allocator> = BTreeMap::new();
    for entity in period.entities(Group::Allocator) {
        // Sums over all instances stand beside them, under the bare name; of imported text also carriers that are told so.
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
        allocator.largest = allocator.largest.saturating_add(last(&metrics::CARRIERS_SIZE_MAX));
        let (carriers, blocks) = &mut allocator.mbcs_largest;
        *carriers = carriers.saturating_add(last(&metrics::MBCS_CARRIERS_SIZE_MAX));
        *blocks = blocks.saturating_add(last(&metrics::MBCS_BLOCKS_SIZE_MAX));
        if let Ok(mapped) = period.stat(&metrics::MSEG_CARRIERS_SIZE, entity) {
            let sum = allocator.segments.get_or_insert(0);
            *sum = sum.saturating_add(mapped.last.value.max(0));
        }
        for (metric, sum) in [
            (&metrics::ALLOCATIONS, &mut allocator.allocations_per_s),
            (&metrics::SEGMENTS_ASKED, &mut allocator.segments_asked_per_s),
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

/// Carriers of all allocators and the blocks in them, in bytes, where imported text tells such sums; most texts tell the allocators one by one.
pub fn all_together(period: &Period) -> Option<(i64, Option<i64>)> {
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
