//! Estimates what a GC of all processes would free, from a sample of them.

use beamtune_model::memory::{Estimate, Reclaimable};
use beamtune_model::{Period, RequestedGcRow};

/// Minimum size of the random sample. A smaller sample does not represent the other processes.
const MIN_RANDOM: i64 = 20;

/// If fewer bytes of binaries are dropped, the freed bytes do not show how binaries are shared.
const WORTH_BYTES: f64 = 65_536.0;

const KIB: f64 = 1024.0;

/// Estimates what a GC of all processes would free, from the period's last sample; `None` without a sample, or if it is too small.
pub fn returns(period: &Period) -> Option<Reclaimable> {
    period.last_sampled_collection().and_then(of)
}

/// Extends a sample to all processes. All of the largest processes are in it, and represent only themselves; a random sample represents the
/// others.
fn of(row: &RequestedGcRow) -> Option<Reclaimable> {
    let rest = row.processes.saturating_sub(row.largest).max(0);
    if row.random < MIN_RANDOM.min(rest) || (rest == 0 && row.stopped != "done") {
        return None;
    }
    let all = |before: i64, after: i64, kib: i64, squares: i64| {
        let largest = (before.saturating_sub(after) as f64 - kib as f64 * KIB).max(0.0);
        let others = beamtune_stats::estimate_total(
            rest as f64,
            row.random as f64,
            kib as f64 * KIB,
            squares as f64 * KIB * KIB,
            row.rest_bytes as f64,
        )?;
        Some(Estimate {
            bytes: largest + others.estimate,
            low: largest + others.low,
            high: largest + others.high,
        })
    };
    let heaps = all(row.heap_before, row.heap_after, row.chance_heap_kib, row.chance_heap_kib_squares)?;
    let counted =
        all(row.binary_before, row.binary_after, row.chance_binary_kib, row.chance_binary_kib_squares)?;
    Some(Reclaimable { heaps, binaries: binaries(row, counted) })
}

/// Estimates the bytes of binaries. A GC counts references; only the VM as a whole knows what binaries really take. If other processes also
/// refer to some of the dropped binaries, less is freed than dropped. Those processes may drop them as well, so the upper end of the
/// interval is not reduced.
fn binaries(row: &RequestedGcRow, counted: Estimate) -> Estimate {
    let Some((before, after)) = row.memory_binary_before.zip(row.memory_binary_after) else { return counted };
    let let_go = row.binary_before.saturating_sub(row.binary_after) as f64;
    let freed = before.saturating_sub(after) as f64;
    let share = if let_go > WORTH_BYTES { (freed / let_go).clamp(0.0, 1.0) } else { 1.0 };
    let most = before as f64;
    Estimate {
        bytes: (counted.bytes * share).min(most),
        low: (counted.low * share).min(most),
        high: counted.high.min(most),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GC of 1,000 out of 5,000 processes: each freed 100 KiB of heap and 10 KiB of binaries; the 250 largest freed 1 MiB of heap each.
    fn row() -> RequestedGcRow {
        RequestedGcRow {
            selection: "sample".to_owned(),
            stopped: "done".to_owned(),
            processes: 5_000,
            chosen: 1_000,
            largest: 250,
            rest_bytes: 120 << 10,
            collected: 1_000,
            heap_before: (250 << 20) + ((750 * 105) << 10),
            heap_after: (750 * 5) << 10,
            binary_before: (1_000 * 10) << 10,
            binary_after: 0,
            random: 750,
            chance_heap_kib: 750 * 100,
            chance_heap_kib_squares: 750 * 100 * 100,
            chance_binary_kib: 750 * 10,
            chance_binary_kib_squares: 750 * 10 * 10,
            memory_binary_before: Some(200 << 20),
            memory_binary_after: Some((200 << 20) - ((1_000 * 10) << 10)),
            ..RequestedGcRow::default()
        }
    }

    fn near(estimate: f64, expect: f64) -> bool {
        (estimate - expect).abs() <= 1.0
    }

    #[test]
    fn the_largest_processes_represent_themselves_and_the_random_sample_the_rest() {
        let Reclaimable { heaps, binaries } = of(&row()).unwrap();
        let expect = 250.0 * 1_048_576.0 + 4_750.0 * 102_400.0;
        assert!(near(heaps.bytes, expect), "{heaps:?}");
        assert!(heaps.low > 0.95 * expect && heaps.high < 1.05 * expect, "{heaps:?}");
        assert!(near(binaries.bytes, 5_000.0 * 10_240.0), "{binaries:?}");
    }

    #[test]
    fn binaries_that_other_processes_share_widen_the_interval() {
        // A tenth of what was dropped was freed.
        let shared = RequestedGcRow { memory_binary_after: Some((200 << 20) - (1_000 << 10)), ..row() };
        let (alone, shared) = (of(&row()).unwrap().binaries, of(&shared).unwrap().binaries);
        assert!(near(shared.bytes, alone.bytes / 10.0) && near(shared.low, alone.low / 10.0), "{shared:?}");
        assert_eq!(shared.high, alone.high);
        // The estimate does not exceed the existing binaries.
        let few =
            RequestedGcRow { memory_binary_before: Some(1 << 20), memory_binary_after: Some(0), ..row() };
        let estimate = of(&few).unwrap().binaries;
        assert_eq!((estimate.high, estimate.bytes <= estimate.high), (1_048_576.0, true));
        // Other processes have allocated meanwhile.
        let grown = RequestedGcRow { memory_binary_after: Some(900 << 20), ..row() };
        let estimate = of(&grown).unwrap().binaries;
        assert!(estimate.bytes == 0.0 && estimate.low == 0.0 && estimate.high > 0.0, "{estimate:?}");
        let unknown = RequestedGcRow { memory_binary_after: None, ..row() };
        assert_eq!(of(&unknown).unwrap().binaries, alone);
    }

    #[test]
    fn a_small_sample_gives_no_estimate_and_a_complete_one_is_exact() {
        assert_eq!(of(&RequestedGcRow { random: 19, ..row() }), None);
        assert_eq!(of(&RequestedGcRow { random: 0, stopped: "latency".to_owned(), ..row() }), None);
        let everyone = RequestedGcRow { processes: 1_000, rest_bytes: 120 << 10, ..row() };
        let Reclaimable { heaps, .. } = of(&everyone).unwrap();
        assert_eq!((heaps.low, heaps.high), (heaps.bytes, heaps.bytes));
        let one = RequestedGcRow {
            processes: 1,
            largest: 1,
            random: 0,
            heap_before: 9,
            heap_after: 4,
            ..RequestedGcRow::default()
        };
        assert_eq!(of(&one), None);
        let heaps = of(&RequestedGcRow { stopped: "done".to_owned(), ..one }).unwrap().heaps;
        assert_eq!(heaps, Estimate { bytes: 5.0, low: 5.0, high: 5.0 });
    }

    #[test]
    fn only_the_last_random_sample_is_used() {
        let mut period = Period::default();
        assert_eq!(returns(&period), None);
        let named = RequestedGcRow { selection: "named".to_owned(), ..row() };
        let before = RequestedGcRow { heap_before: 1 << 40, ..row() };
        period.collections = vec![before, row(), named.clone()];
        assert_eq!((returns(&period), of(&row()).is_some()), (of(&row()), true));
        period.collections = vec![named];
        assert_eq!(returns(&period), None);
    }

    #[test]
    fn extreme_numbers_do_not_overflow() {
        let largest = RequestedGcRow {
            processes: i64::MAX,
            largest: i64::MIN,
            random: i64::MAX,
            rest_bytes: i64::MAX,
            heap_before: i64::MAX,
            heap_after: i64::MIN,
            chance_heap_kib: i64::MAX,
            chance_heap_kib_squares: i64::MAX,
            memory_binary_before: Some(i64::MIN),
            memory_binary_after: Some(i64::MAX),
            ..row()
        };
        let estimate = of(&largest);
        assert!(
            estimate.is_none_or(|estimate| estimate.heaps.low.is_finite() && estimate.heaps.high.is_finite()),
            "{estimate:?}"
        );
    }
}
