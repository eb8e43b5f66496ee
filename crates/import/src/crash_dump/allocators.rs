//! Allocators: carriers and blocks of each instance, and reserved address space.

use std::collections::BTreeMap;

use beamtune_model::{Metric, SampleBuilder, metrics};

use super::readings::Readings;
use super::section::{Section, name, number};

/// Metrics for number and size of blocks, and number and size of carriers.
type Set = [&'static Metric; 4];

const SETS: [(&str, Set); 3] = [
    (
        "mbcs ",
        [
            &metrics::MBCS_BLOCKS,
            &metrics::MBCS_BLOCKS_SIZE,
            &metrics::MBCS_CARRIERS,
            &metrics::MBCS_CARRIERS_SIZE,
        ],
    ),
    (
        "mbcs_pool ",
        [
            &metrics::POOL_BLOCKS,
            &metrics::POOL_BLOCKS_SIZE,
            &metrics::POOL_CARRIERS,
            &metrics::POOL_CARRIERS_SIZE,
        ],
    ),
    (
        "sbcs ",
        [
            &metrics::SBCS_BLOCKS,
            &metrics::SBCS_BLOCKS_SIZE,
            &metrics::SBCS_CARRIERS,
            &metrics::SBCS_CARRIERS_SIZE,
        ],
    ),
];

/// Maximum number of allocators; a VM has fifteen.
const MAX_ALLOCATORS: usize = 1_000;

#[derive(Default)]
pub(super) struct Allocators {
    readings: Readings,
    /// Size of foreign blocks in the carriers of each allocator, over all instances.
    foreign: BTreeMap<String, i64>,
}

impl Allocators {
    pub(super) fn add(&mut self, section: &Section) {
        if let Some(area) = section.id.strip_prefix("erts_mmap.") {
            let entity = area.strip_suffix("_mmap").unwrap_or(area);
            for (metric, key) in [
                (&metrics::MMAP_TOTAL, "supercarrier total size"),
                (&metrics::MMAP_USED, "supercarrier used size"),
                (&metrics::MMAP_OS_USED, "os mmap size used"),
            ] {
                self.readings.add(metric, entity, section.number(key));
            }
            return;
        }
        // The id is `eheap_alloc[3]`, or `literal_alloc` if there is only one instance.
        let (allocator, instance) = section.id.split_once('[').unwrap_or((&section.id, "0]"));
        let Some(instance) = instance.strip_suffix(']').and_then(|instance| number(instance.as_bytes()))
        else {
            return;
        };
        let mut sums: BTreeMap<&'static str, (&'static Metric, Option<i64>)> = BTreeMap::new();
        for (key, value) in section.fields() {
            let key = name(key);
            let Some((set, rest)) =
                SETS.iter().find_map(|(prefix, set)| Some((set, key.strip_prefix(prefix)?)))
            else {
                continue;
            };
            let Some((metric, of)) = metric_of(set, rest) else { continue };
            // The maximum since the last query and the maximum since the start follow the value. In the pool, there is only the value.
            let value = value.split(|byte| *byte == b' ').next().and_then(number);
            let (_, sum) = sums.entry(metric.name).or_insert((metric, Some(0)));
            *sum = sum.zip(value).and_then(|(sum, value)| sum.checked_add(value));
            if let (Some(of), Some(value)) = (of, value)
                && of != allocator
                && metric.name.ends_with("blocks_size")
                && (self.foreign.len() < MAX_ALLOCATORS || self.foreign.contains_key(allocator))
            {
                let foreign = self.foreign.entry(allocator.to_owned()).or_default();
                *foreign = foreign.saturating_add(value);
            }
        }
        let entity = format!("{allocator}/{instance}");
        for (metric, sum) in sums.into_values() {
            self.readings.add(metric, &entity, sum);
        }
    }

    pub(super) fn write(self, out: &mut SampleBuilder<'_>) {
        self.readings.write(out);
        for (allocator, bytes) in self.foreign {
            out.metric(&metrics::FOREIGN_BLOCKS_SIZE, &allocator, bytes);
        }
    }
}

/// Returns the metric of a line, and for blocks the allocator to which they belong.
fn metric_of<'a>(set: &Set, line: &'a str) -> Option<(&'static Metric, Option<&'a str>)> {
    let [blocks, blocks_size, carriers, carriers_size] = *set;
    match line {
        "carriers" => Some((carriers, None)),
        "carriers size" => Some((carriers_size, None)),
        _ => match line.strip_prefix("blocks[")?.split_once("] ")? {
            (of, "count") => Some((blocks, Some(of))),
            (of, "size") => Some((blocks_size, Some(of))),
            _ => None,
        },
    }
}
