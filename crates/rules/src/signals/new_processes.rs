//! Kinds of new processes, by those that scans found alive.

use std::collections::BTreeMap;

use beamtune_model::{Period, SpawnRow, metrics};

use crate::view;

/// Fewer sampled processes do not represent the others (judgement).
const MIN_SAMPLED: i64 = 20;

/// If the sampled ones are a smaller share of all new processes, the others may be quite different (judgement): sampled ones live longer.
const MIN_SEEN_SHARE: f64 = 0.1;

/// Returns the sampled new processes, by kind and creator.
pub(crate) fn rows(period: &Period) -> impl Iterator<Item = &SpawnRow> {
    period.spawns.iter().filter(|row| row.what == "process")
}

/// Returns the initial calls of new processes with their share of the sample, most frequent first; empty if too few were sampled.
pub(crate) fn kinds(period: &Period) -> Vec<(&str, f64)> {
    let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
    for row in rows(period) {
        let count = counts.entry(&row.kind).or_default();
        *count = count.saturating_add(row.count);
    }
    let all = counts.values().fold(0_i64, |sum, count| sum.saturating_add(*count));
    if all < MIN_SAMPLED {
        return Vec::new();
    }
    // These run an unknown fun: they are part of the sample, but not a kind.
    counts.remove(view::ANY_FUN);
    let mut kinds: Vec<(&str, f64)> =
        counts.into_iter().map(|(kind, count)| (kind, count as f64 / all as f64)).collect();
    kinds.sort_by(|a, b| b.1.total_cmp(&a.1));
    kinds
}

/// Returns the kind of most new processes and their creator. `rate` is the number of processes spawned per second. `None` if the sample may
/// not represent the others.
pub(crate) fn most(period: &Period, rate: f64) -> Option<&SpawnRow> {
    let seen = period.rate(&metrics::SCAN_SPAWNED, "").ok()?;
    let most = rows(period).max_by_key(|row| row.count)?;
    (seen >= MIN_SEEN_SHARE * rate && most.sample_size >= MIN_SAMPLED && 2 * most.count >= most.sample_size)
        .then_some(most)
}
