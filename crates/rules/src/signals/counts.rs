//! Sums of counts by key, and shares of counts.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;

/// Sums the counts of each key. The largest sums come first, and equal sums in the order of their keys.
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

/// Formats the first `max` counts: `scan (12), index (3)`.
pub(crate) fn listed<K: Display>(counts: &[(K, i64)], max: usize) -> String {
    let named: Vec<String> =
        counts.iter().take(max).map(|(name, count)| format!("{name} ({count})")).collect();
    named.join(", ")
}

/// Returns the 95 % interval of a share that is estimated from samples (Wilson, J. Am. Stat. Assoc. 22 (1927) 209).
pub(crate) fn share_interval(within: i64, all: i64) -> (f64, f64) {
    if all <= 0 {
        return (0.0, 1.0);
    }
    const Z: f64 = 1.96;
    let n = all as f64;
    let share = (within as f64 / n).clamp(0.0, 1.0);
    let middle = (share + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z / (1.0 + Z * Z / n) * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    ((middle - half).max(0.0), (middle + half).min(1.0))
}
