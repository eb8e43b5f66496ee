//! The bridge from resident memory to what the VM uses it for.
//!
//! Each part was measured by itself: pages are counted where something was recognised, and what was not is told as
//! such. Nothing that is called explained is a remainder.

use super::{content, mapping};
use crate::metrics;
use crate::period::Period;
use crate::series::Metric;
use crate::units::{Nanos, SECOND_NS};

/// A page of the kernel's, in bytes.
pub const PAGE_BYTES: f64 = 4096.0;

/// What may have come or gone while the pages were last looked at, in bytes, whichever is more: the page faults of that time, and what is resident
/// no more; of older recordings, which tell neither, the faults by their mean. 0 where the pages were not looked at.
pub fn moved_while_looking(period: &Period) -> f64 {
    if let Ok(faults) = period.stat(&metrics::CONTENT_FAULTS, "") {
        let came = faults.last.value as f64 * PAGE_BYTES;
        let gone = period.stat(&metrics::CONTENT_GONE, "").map_or(0, |stat| stat.last.value) as f64;
        return came.max(gone).max(0.0);
    }
    let took_ns = period.stat(&metrics::CONTENT_COST, "").map_or(0, |stat| stat.last.value);
    let faults_per_s = period.rate(&metrics::MINOR_FAULTS, "").unwrap_or(0.0);
    faults_per_s * PAGE_BYTES * took_ns as f64 / SECOND_NS as f64
}

/// A kind of mappings, as the kernel counts them. All sizes are in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mapping {
    /// One of [`mapping::ALL`].
    pub kind: String,
    /// Mappings.
    pub count: i64,
    /// Address space.
    pub size: i64,
    /// Resident.
    pub resident: i64,
    /// Resident, shared pages divided among those who share them.
    pub pss: i64,
    /// Swapped out.
    pub swap: i64,
    /// Given back by the VM, and not yet taken by the kernel; part of what is resident.
    pub lazy_free: i64,
    /// In transparent huge pages; part of what is resident.
    pub huge_pages: i64,
}

/// What something was recognised to be. All sizes are in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// The entity, see [`content`].
    pub entity: String,
    /// How many there are.
    pub count: i64,
    /// Address space.
    pub size: i64,
    /// Resident, counted page by page.
    pub resident: i64,
    /// Swapped out.
    pub swapped: i64,
    /// Of malloc: chunks that are handed out; `None` where that is not known.
    pub in_use: Option<i64>,
}

/// What is resident, and what it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bridge {
    /// Resident memory in bytes: of all mappings, added up; where these could not be read, what the kernel counts for the
    /// process.
    pub resident: Option<i64>,
    /// The same by kinds of mappings, the largest first.
    pub mappings: Vec<Mapping>,
    /// What was recognised in it, the largest first, without what was not.
    pub parts: Vec<Part>,
    /// What could not be told; `None` if nobody looked.
    pub unknown: Option<Part>,
}

impl Bridge {
    /// As last read in a period. Where the pages were not looked at in the end, but earlier, nobody has looked.
    pub fn of(period: &Period) -> Bridge {
        let last = |metric: &Metric, entity: &str| {
            period.find(metric.group, entity, metric.name).map(|stat| stat.last.value.max(0))
        };
        let mut mappings = Vec::new();
        let (kinds, mapped_at) = seen_last(period, &metrics::MAPPING_RESIDENT);
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
        let (entities, looked_at) = seen_last(period, &metrics::CONTENT_RESIDENT);
        // What stood there earlier does not add up to what is mapped now.
        for entity in entities.into_iter().filter(|_| looked_at == mapped_at) {
            let value = |metric| last(metric, entity).unwrap_or(0);
            parts.push(Part {
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
        Bridge { resident, mappings, parts, unknown }
    }

    /// Bytes of resident memory of which it is known what they are; `None` if nobody looked.
    pub fn explained(&self) -> Option<i64> {
        (!self.parts.is_empty()).then(|| sum(&self.parts))
    }

    /// Resident memory that was not explained, in bytes. Both ways of counting see a process that goes on: what it has taken
    /// or given back between the two stands here as well.
    pub fn unexplained(&self) -> Option<i64> {
        Some(self.resident?.saturating_sub(self.explained()?))
    }

    /// The parts of a kind: all carriers, all of malloc.
    pub fn parts_of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Part> {
        self.parts.iter().filter(move |part| {
            part.entity.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// Resident bytes of the parts of a kind.
    pub fn resident_of(&self, kind: &str) -> i64 {
        self.parts_of(kind).fold(0, |sum, part| sum.saturating_add(part.resident))
    }

    /// One number of all mappings, in bytes.
    pub fn total(&self, of: impl Fn(&Mapping) -> i64) -> i64 {
        self.mappings.iter().fold(0, |sum, mapping| sum.saturating_add(of(mapping)))
    }

    /// The mappings of a kind.
    pub fn mapping(&self, kind: &str) -> Option<&Mapping> {
        debug_assert!(mapping::ALL.contains(&kind), "{kind} is no kind of mapping");
        self.mappings.iter().find(|mapping| mapping.kind == kind)
    }
}

/// The entities that the last look has seen, for others are gone; and when that was.
fn seen_last<'p>(period: &'p Period, metric: &Metric) -> (Vec<&'p str>, Option<Nanos>) {
    let mut entities = period.entities(metric.group);
    let at = |entity: &str| period.find(metric.group, entity, metric.name).map(|stat| stat.last.t);
    let last = entities.iter().filter_map(|entity| at(entity)).max();
    entities.retain(|entity| last.is_some() && at(entity) == last);
    (entities, last)
}

fn sum(parts: &[Part]) -> i64 {
    parts.iter().fold(0, |sum, part| sum.saturating_add(part.resident))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::Point;
    use crate::{Facts, PeriodBuilder, Series};

    #[test]
    fn what_moved_meanwhile_is_what_came_or_went_then_and_the_mean_only_where_that_was_not_told() {
        let moved = |readings: &[(&Metric, &[(Nanos, i64)])]| {
            let mut builder = PeriodBuilder::new(None, Facts::default(), 1);
            for &(metric, values) in readings {
                let series = Series::of(metric, "");
                builder.column(&series, values.iter().map(|&(t, value)| Point { t, incarnation: 0, value }));
            }
            moved_while_looking(&builder.finish())
        };
        let second = SECOND_NS;
        // A thousand a second, and a tenth of a second.
        let mean = [
            (&metrics::MINOR_FAULTS, &[(0, 0), (second, 1_000), (2 * second, 2_000)][..]),
            (&metrics::CONTENT_COST, &[(second, second / 10)][..]),
        ];
        assert_eq!(moved(&mean), 100.0 * PAGE_BYTES);
        // All at once, while the pages were looked at.
        let told = (&metrics::CONTENT_FAULTS, &[(second, 900)][..]);
        assert_eq!(moved(&[mean[0], mean[1], told]), 900.0 * PAGE_BYTES);
        // A heap that is unmapped faults nowhere.
        let gone = (&metrics::CONTENT_GONE, &[(second, 200 << 20)][..]);
        assert_eq!(moved(&[mean[0], mean[1], told, gone]), f64::from(200 << 20));
        assert_eq!(moved(&[]), 0.0);
    }
}
