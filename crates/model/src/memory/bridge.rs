//! Breakdown of resident memory by use.
//!
//! Each part is measured independently by counting pages of recognised content; the rest is reported as unknown. An explained part
//! is never calculated as a remainder.

use super::{content, mapping};
use crate::metrics;
use crate::period::Period;
use crate::series::Metric;
use crate::units::{Nanos, SECOND_NS};

/// Size of a kernel page, in bytes.
pub const PAGE_BYTES: f64 = 4096.0;

/// Returns an upper bound in bytes for memory that was mapped or unmapped during the last scan of pages. This is the larger one of the page
/// faults in this time and the resident memory that disappeared. Older recordings contain neither, so the mean rate of page faults is
/// used. 0 without a scan.
pub fn moved_during_scan(period: &Period) -> f64 {
    if let Ok(faults) = period.stat(&metrics::CONTENT_FAULTS, "") {
        let came = faults.last.value as f64 * PAGE_BYTES;
        let gone = period.stat(&metrics::CONTENT_GONE, "").map_or(0, |stat| stat.last.value) as f64;
        return came.max(gone).max(0.0);
    }
    let took_ns = period.stat(&metrics::CONTENT_COST, "").map_or(0, |stat| stat.last.value);
    let faults_per_s = period.rate(&metrics::MINOR_FAULTS, "").unwrap_or(0.0);
    faults_per_s * PAGE_BYTES * took_ns as f64 / SECOND_NS as f64
}

/// Mappings of one kind, as counted by the kernel. All sizes are in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mapping {
    /// One of [`mapping::ALL`].
    pub kind: String,
    /// Number of mappings.
    pub count: i64,
    /// Address space.
    pub size: i64,
    /// Resident memory.
    pub resident: i64,
    /// Proportional set size: resident memory, with shared pages divided by the number of processes that share them.
    pub pss: i64,
    /// Memory that is swapped out.
    pub swap: i64,
    /// Freed by the VM with `MADV_FREE`, but not yet reclaimed by the kernel; included in `resident`.
    pub lazy_free: i64,
    /// Memory in transparent huge pages; included in `resident`.
    pub huge_pages: i64,
}

/// Recognised content. All sizes are in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContentPart {
    /// Entity, see [`content`].
    pub entity: String,
    /// Number of carriers, segments, stacks or chunks.
    pub count: i64,
    /// Address space.
    pub size: i64,
    /// Resident memory, counted page by page.
    pub resident: i64,
    /// Memory that is swapped out.
    pub swapped: i64,
    /// malloc: size of the chunks in use; `None` if unknown.
    pub in_use: Option<i64>,
}

/// Resident memory and its breakdown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryBreakdown {
    /// Resident memory in bytes: sum over all mappings, or the kernel's total for the process if the mappings could not be read.
    pub resident: Option<i64>,
    /// Breakdown by kind of mapping, the largest first.
    pub mappings: Vec<Mapping>,
    /// Breakdown by recognised content, the largest first.
    pub parts: Vec<ContentPart>,
    /// Unrecognised content; `None` if the pages were not scanned.
    pub unknown: Option<ContentPart>,
}

impl MemoryBreakdown {
    /// Returns the last reading of a period. Ignores a scan of pages that is older than the last reading of mappings.
    pub fn of(period: &Period) -> MemoryBreakdown {
        let last = |metric: &Metric, entity: &str| {
            period.find(metric.group, entity, metric.name).map(|stat| stat.last.value.max(0))
        };
        let mut mappings = Vec::new();
        let (kinds, mapped_at) = last_reading(period, &metrics::MAPPING_RESIDENT);
        for kind in kinds {
            let value = |metric| last(metric, kind).unwrap_or(0);
            mappings.push(Mapping {
                kind: kind.to_owned(),
                count: value(&metrics::MAPPING_COUNT),
                size: value(&metrics::MAPPING_SIZE),
                resident: value(&metrics::MAPPING_RESIDENT),
                pss: value(&metrics::MAPPING_PSS),
                swap: value(&metrics::MAPPING_SWAP),
                lazy_free: value(&metrics::MAPPING_LAZY_FREE),
                huge_pages: value(&metrics::MAPPING_HUGE),
            });
        }
        mappings.sort_by_key(|mapping| std::cmp::Reverse(mapping.resident));
        let mut parts = Vec::new();
        let (entities, scanned_at) = last_reading(period, &metrics::CONTENT_RESIDENT);
        // An older scan does not match the current mappings.
        for entity in entities.into_iter().filter(|_| scanned_at == mapped_at) {
            let value = |metric| last(metric, entity).unwrap_or(0);
            parts.push(ContentPart {
                entity: entity.to_owned(),
                count: value(&metrics::CONTENT_COUNT),
                size: value(&metrics::CONTENT_SIZE),
                resident: value(&metrics::CONTENT_RESIDENT),
                swapped: value(&metrics::CONTENT_SWAPPED),
                in_use: last(&metrics::CONTENT_IN_USE, entity),
            });
        }
        parts.sort_by_key(|part| std::cmp::Reverse(part.resident));
        let unknown = parts.iter().position(|part| part.entity == content::UNKNOWN);
        let unknown = unknown.map(|place| parts.remove(place));
        let resident = match mappings.is_empty() {
            true => last(&metrics::RSS, ""),
            false => Some(mappings.iter().fold(0, |sum: i64, mapping| sum.saturating_add(mapping.resident))),
        };
        MemoryBreakdown { resident, mappings, parts, unknown }
    }

    /// Bytes of resident memory whose content was recognised; `None` if the pages were not scanned.
    pub fn explained(&self) -> Option<i64> {
        (!self.parts.is_empty()).then(|| sum(&self.parts))
    }

    /// Bytes of resident memory without a recognised content. Mappings are counted before pages while the process runs, so memory
    /// that is allocated or freed in between is included.
    pub fn unexplained(&self) -> Option<i64> {
        Some(self.resident?.saturating_sub(self.explained()?))
    }

    /// Parts of a kind, such as all carriers, or all memory of malloc.
    pub fn parts_of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a ContentPart> {
        self.parts.iter().filter(move |part| {
            part.entity.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// Resident bytes of all parts of a kind.
    pub fn resident_of(&self, kind: &str) -> i64 {
        self.parts_of(kind).fold(0, |sum, part| sum.saturating_add(part.resident))
    }

    /// Sum of a value over all mappings, in bytes.
    pub fn total(&self, of: impl Fn(&Mapping) -> i64) -> i64 {
        self.mappings.iter().fold(0, |sum, mapping| sum.saturating_add(of(mapping)))
    }

    /// The mappings of a kind, if there are any.
    pub fn mapping(&self, kind: &str) -> Option<&Mapping> {
        debug_assert!(mapping::ALL.contains(&kind), "{kind} is no kind of mapping");
        self.mappings.iter().find(|mapping| mapping.kind == kind)
    }
}

/// Returns the entities of the last reading, and its time. Entities that have only older readings have disappeared.
fn last_reading<'p>(period: &'p Period, metric: &Metric) -> (Vec<&'p str>, Option<Nanos>) {
    let mut entities = period.entities(metric.group);
    let at = |entity: &str| period.find(metric.group, entity, metric.name).map(|stat| stat.last.t);
    let last = entities.iter().filter_map(|entity| at(entity)).max();
    entities.retain(|entity| last.is_some() && at(entity) == last);
    (entities, last)
}

fn sum(parts: &[ContentPart]) -> i64 {
    parts.iter().fold(0, |sum, part| sum.saturating_add(part.resident))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::Point;
    use crate::{Facts, PeriodBuilder, Series};

    #[test]
    fn memory_moved_during_the_scan_is_measured_or_else_estimated_from_the_mean() {
        let moved = |readings: &[(&Metric, &[(Nanos, i64)])]| {
            let mut builder = PeriodBuilder::new(None, Facts::default(), 1);
            for &(metric, values) in readings {
                let series = Series::of(metric, "");
                builder.column(&series, values.iter().map(|&(t, value)| Point { t, incarnation: 0, value }));
            }
            moved_during_scan(&builder.finish())
        };
        let second = SECOND_NS;
        // A thousand faults per second, a tenth of a second.
        let mean = [
            (&metrics::MINOR_FAULTS, &[(0, 0), (second, 1_000), (2 * second, 2_000)][..]),
            (&metrics::CONTENT_COST, &[(second, second / 10)][..]),
        ];
        assert_eq!(moved(&mean), 100.0 * PAGE_BYTES);
        // All faults occur while the pages are scanned.
        let faults = (&metrics::CONTENT_FAULTS, &[(second, 900)][..]);
        assert_eq!(moved(&[mean[0], mean[1], faults]), 900.0 * PAGE_BYTES);
        // An unmapped heap causes no faults.
        let gone = (&metrics::CONTENT_GONE, &[(second, 200 << 20)][..]);
        assert_eq!(moved(&[mean[0], mean[1], faults, gone]), f64::from(200 << 20));
        assert_eq!(moved(&[]), 0.0);
    }
}
