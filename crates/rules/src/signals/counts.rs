//! Counts by key.

use std::collections::HashMap;
use std::hash::Hash;

/// Sums by key, largest first; equal ones in the order of their keys.
pub(crate) fn largest_first<K: Hash + Ord>(counts: impl IntoIterator<Item = (K, i64)>) -> Vec<(K, i64)> {
    let mut sums: HashMap<K, i64> = HashMap::new();
    for (key, count) in counts {
        let sum = sums.entry(key).or_default();
        *sum = sum.saturating_add(count);
    }
    let mut sums: Vec<(K, i64)> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    sums
}
