//! Estimates the difference between two settings from pairs of measurements, by the Hodges-Lehmann estimate with the
//! exact interval of Wilcoxon's signed-rank test.
//!
//! Measuring in pairs and in random order cancels drift; ranks limit the influence of spikes. The interval is the
//! set of all shifts that the test does not reject. Its level is exact for any number of pairs if the distribution of
//! the differences is symmetric around the effect. This is the case if both measurements of a pair have the same
//! noise, even if that noise is skewed.
//!
//! Ties and zero differences need no special treatment: the coverage of an interval with closed ends is at least the
//! nominal one (Noether 1967).
//!
//! Sources: Hodges and Lehmann, Ann. Math. Stat. 34 (1963) 598, the estimate; Wilcoxon, Biometrics Bull. 1 (1945) 80,
//! the test; Lehmann, Ann. Math. Stat. 34 (1963) 1507, Tukey's form of the interval; Noether, J. Am. Stat. Assoc. 62
//! (1967) 184, ties.

/// An estimated difference with its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    /// Hodges-Lehmann estimate: median of the Walsh averages, in the unit of the differences.
    pub estimate: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The exact level of the interval, from 0 to 1: the smallest possible level that is not below the requested one.
    pub confidence: f64,
}

impl Effect {
    /// Returns half the width of the interval.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// Estimates the effect from differences, one per pair, with an interval of at least this confidence (0.95 for 95 %).
///
/// `None` if there are too few pairs for such an interval (fewer than 6 for 95 %), or if a value is not finite. Time is cubic in the
/// number of pairs; a study has a few dozen pairs.
pub fn effect(differences: &[f64], confidence: f64) -> Option<Effect> {
    RankInterval::new(differences.len(), confidence)?.estimate(differences)
}

/// Computes the prediction interval for the estimate of an independent repetition with `new_pairs` pairs. `found` is the estimate from
/// `pairs` pairs. The interval has the level of `found`.
///
/// The error of both estimates is about σ/√n, so each side of the interval grows by a factor of √(1 + pairs/new_pairs) (Hahn and
/// Meeker, Statistical Intervals, 1991, on the mean of a future sample).
pub fn predict_repetition(found: Effect, pairs: usize, new_pairs: usize) -> Effect {
    let growth = (1.0 + pairs as f64 / new_pairs.max(1) as f64).sqrt();
    let side = |end: f64| found.estimate + (end - found.estimate) * growth;
    Effect { low: side(found.low), high: side(found.high), ..found }
}

/// The ranks at which the interval for a number of pairs ends. They do not depend on the differences.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RankInterval {
    /// Position of each end among the sorted Walsh averages, counted from the outermost average, which has position 1.
    rank: usize,
    /// Error probability beyond each end.
    tail: f64,
}

impl RankInterval {
    pub(crate) fn new(pairs: usize, confidence: f64) -> Option<Self> {
        let (rank, tail) = critical_rank(&rank_sums(pairs), (1.0 - confidence) / 2.0)?;
        Some(RankInterval { rank, tail })
    }

    pub(crate) fn estimate(self, differences: &[f64]) -> Option<Effect> {
        if differences.iter().any(|difference| !difference.is_finite()) {
            return None;
        }
        let averages = walsh_averages(differences);
        let middle = averages.len() / 2;
        Some(Effect {
            estimate: averages
                .get((averages.len() - 1).checked_sub(middle)?)?
                .midpoint(*averages.get(middle)?),
            low: *averages.get(self.rank - 1)?,
            high: *averages.get(averages.len().checked_sub(self.rank)?)?,
            confidence: 1.0 - 2.0 * self.tail,
        })
    }
}

/// Computes the p value of Wilcoxon's exact two-sided signed-rank test. Zeros count for the smaller side, so that ties never reduce p.
///
/// `None` if there are no differences, or if a value is not finite.
pub fn p_value(differences: &[f64]) -> Option<f64> {
    if differences.is_empty() || differences.iter().any(|difference| !difference.is_finite()) {
        return None;
    }
    let averages = walsh_averages(differences);
    let zero_or =
        |side: fn(&&f64) -> bool| averages.iter().filter(|average| **average == 0.0 || side(average)).count();
    let less = zero_or(|average| **average > 0.0).min(zero_or(|average| **average < 0.0));
    let tail: f64 = rank_sums(differences.len()).iter().take(less + 1).sum();
    Some((2.0 * tail).min(1.0))
}

/// Returns the means of all pairs of values, including pairs of a value with itself, sorted.
fn walsh_averages(values: &[f64]) -> Vec<f64> {
    let pairs = values.iter().enumerate().flat_map(|(i, a)| values[i..].iter().map(|b| a.midpoint(*b)));
    let mut averages: Vec<f64> = pairs.collect();
    averages.sort_by(f64::total_cmp);
    averages
}

/// Computes the null distribution of Wilcoxon's statistic: the probability of each sum of ranks from 0 to n(n+1)/2.
fn rank_sums(n: usize) -> Vec<f64> {
    let mut probabilities = vec![0.0; n * (n + 1) / 2 + 1];
    probabilities[0] = 1.0;
    for rank in 1..=n {
        for sum in (0..probabilities.len()).rev() {
            let with = if sum >= rank { probabilities[sum - rank] } else { 0.0 };
            probabilities[sum] = (probabilities[sum] + with) / 2.0;
        }
    }
    probabilities
}

/// Returns the number of sums, from 0 on, whose total probability is at most `max_tail`, and that probability. `None` if even the
/// probability of the sum 0 is larger.
fn critical_rank(probabilities: &[f64], max_tail: f64) -> Option<(usize, f64)> {
    let (mut rank, mut tail) = (0, 0.0);
    for probability in &probabilities[..probabilities.len() / 2] {
        if tail + probability > max_tail {
            break;
        }
        (rank, tail) = (rank + 1, tail + probability);
    }
    (rank > 0).then_some((rank, tail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Critical values of the two-sided test at 5 %: the largest significant sum of ranks (Wilcoxon 1945, and statistical
    /// tables).
    #[test]
    fn critical_values_agree_with_published_tables() {
        let check = |n: usize, critical: usize| {
            let (rank, tail) = critical_rank(&rank_sums(n), 0.025).expect("enough pairs");
            assert_eq!(rank - 1, critical, "n = {n}");
            assert!(tail <= 0.025, "n = {n}: {tail}");
        };
        for (n, critical) in
            [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (11, 10), (12, 13), (15, 25), (20, 52), (25, 89)]
        {
            check(n, critical);
        }
    }

    /// In 2,000 simulated repetitions, the share within the prediction interval is within three standard errors of the level.
    #[test]
    fn prediction_interval_has_its_nominal_coverage() {
        let mut random = fastrand::Rng::with_seed(20_261_122);
        for (first, second) in [(8, 8), (16, 8), (12, 30)] {
            let mut inside = 0;
            let mut set = |pairs: usize| {
                let noise = |random: &mut fastrand::Rng| (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
                let values: Vec<f64> = (0..pairs).map(|_| 0.03 * noise(&mut random)).collect();
                effect(&values, 0.95).expect("enough pairs")
            };
            for _ in 0..2_000 {
                let expected = predict_repetition(set(first), first, second);
                let found = set(second).estimate;
                inside += usize::from((expected.low..=expected.high).contains(&found));
            }
            assert!((1_871..=1_970).contains(&inside), "{first} pairs, then {second}: {inside} of 2000");
        }
    }

    #[test]
    fn too_few_pairs_or_nan_give_no_interval() {
        assert_eq!(effect(&[], 0.95), None);
        assert_eq!(effect(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.95), None);
        assert!(effect(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.90).is_some());
        assert_eq!(effect(&[1.0, 2.0, 3.0, 4.0, 5.0, f64::NAN], 0.95), None);
    }

    /// The 95 % interval of six pairs is from the smallest to the largest difference.
    #[test]
    fn interval_of_six_pairs_agrees_with_a_manual_calculation() {
        let found = effect(&[3.0, 1.0, 2.0, 9.0, 4.0, 5.0], 0.95).expect("enough pairs");
        assert_eq!((found.low, found.high), (1.0, 9.0));
        assert_eq!(found.confidence, 1.0 - 2.0 / 64.0);
        // The 21 averages in order: 1 1.5 2 2 2.5 2.5 3 3 3 3.5 [3.5] 4 4 4.5 5 5 5.5 6 6.5 7 9.
        assert_eq!(found.estimate, 3.5);
    }

    #[test]
    fn equal_pairs_have_an_effect_of_zero() {
        let found = effect(&[0.0; 12], 0.95).expect("enough pairs");
        assert_eq!((found.estimate, found.low, found.high), (0.0, 0.0, 0.0));
    }

    /// A repeatable linear congruential generator (Knuth's MMIX constants).
    struct Noise(u64);

    impl Noise {
        fn uniform(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 11) as f64 / (1_u64 << 53) as f64
        }

        /// Draws noise like that of measurements, with a lower bound, a long tail, and a spike in 5 % of the cases.
        fn skewed(&mut self) -> f64 {
            let spike = if self.uniform() < 0.05 { 10.0 } else { 0.0 };
            spike - (1.0 - self.uniform()).ln()
        }
    }

    /// Returns how often the interval of 12 pairs covers the true effect, and how often a value that differs from it by `off`.
    fn coverage(off: f64) -> (f64, f64) {
        let (truth, runs) = (0.7, 4_000);
        let (mut noise, mut right, mut wrong) = (Noise(2_026), 0, 0);
        for _ in 0..runs {
            let mut drift = 0.0;
            let differences: Vec<f64> = (0..12)
                .map(|_| {
                    drift += noise.uniform() - 0.5;
                    let a = 100.0 + drift + truth + noise.skewed();
                    let b = 100.0 + drift + noise.skewed();
                    a - b
                })
                .collect();
            let found = effect(&differences, 0.95).expect("enough pairs");
            let covers = |value: f64| u32::from(found.low <= value && value <= found.high);
            right += covers(truth);
            wrong += covers(truth + off);
        }
        (f64::from(right) / f64::from(runs), f64::from(wrong) / f64::from(runs))
    }

    #[test]
    fn interval_of_twelve_skewed_pairs_has_its_nominal_coverage() {
        let (right, wrong) = coverage(3.0);
        // The exact level is 95.75 %.
        assert!((0.945..0.97).contains(&right), "covers the true effect in a share of {right} of the runs");
        assert!(wrong < 0.15, "covers a wrong effect in a share of {wrong} of the runs");
    }

    fn differences() -> impl Strategy<Value = Vec<f64>> {
        // Whole numbers, so that ties and zeros are common and sums are exact.
        prop::collection::vec((-40_i32..40).prop_map(f64::from), 6..40)
    }

    /// Returns the sums of the ranks of positive and of negative values, for values without ties and zeros.
    fn signed_ranks(values: &[f64]) -> (usize, usize) {
        let mut sorted = values.to_vec();
        sorted.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
        let sum = |positive: bool| {
            let ranks = sorted.iter().enumerate().filter(|(_, value)| (**value > 0.0) == positive);
            ranks.map(|(index, _)| index + 1).sum()
        };
        (sum(true), sum(false))
    }

    proptest! {
        #[test]
        fn estimate_is_within_the_interval(values in differences()) {
            let found = effect(&values, 0.95).expect("enough pairs");
            prop_assert!(found.low <= found.estimate && found.estimate <= found.high, "{found:?}");
            prop_assert!((0.95..1.0).contains(&found.confidence), "{found:?}");
        }

        #[test]
        fn interval_follows_a_shift_and_a_change_of_sign(values in differences(), shift in -100..100_i32) {
            let shift = f64::from(shift);
            let found = effect(&values, 0.95).expect("enough pairs");
            let moved: Vec<f64> = values.iter().rev().map(|value| value + shift).collect();
            let moved = effect(&moved, 0.95).expect("enough pairs");
            prop_assert_eq!((moved.low, moved.estimate, moved.high), (found.low + shift, found.estimate + shift, found.high + shift));
            let mirrored: Vec<f64> = values.iter().map(|value| -value).collect();
            let mirrored = effect(&mirrored, 0.95).expect("enough pairs");
            prop_assert_eq!((mirrored.low, mirrored.estimate, mirrored.high), (-found.high, -found.estimate, -found.low));
        }

        #[test]
        fn higher_confidence_never_gives_a_narrower_interval(values in differences()) {
            let (wide, narrow) = (effect(&values, 0.95), effect(&values, 0.8));
            let (wide, narrow) = (wide.expect("enough pairs"), narrow.expect("enough pairs"));
            prop_assert!(wide.low <= narrow.low && narrow.high <= wide.high);
        }

        #[test]
        fn test_rejects_zero_exactly_if_the_interval_excludes_it(values in differences(), level in 0.001..0.3_f64) {
            let p = p_value(&values).expect("differences");
            if let Some(found) = effect(&values, 1.0 - level) {
                let leaves_out = found.low > 0.0 || found.high < 0.0;
                prop_assert_eq!(p <= level, leaves_out, "{} {} {:?}", p, level, found);
            } else {
                prop_assert!(p > level, "{} {}", p, level);
            }
        }

        /// This is the definition of the interval.
        #[test]
        fn interval_contains_shifts_that_are_not_rejected(values in prop::collection::vec(-1e3..1e3_f64, 6..25), shift in -1e3..1e3_f64) {
            let found = effect(&values, 0.95).expect("enough pairs");
            let (rank, _) = critical_rank(&rank_sums(values.len()), 0.025).expect("enough pairs");
            let shifted: Vec<f64> = values.iter().map(|value| value - shift).collect();
            let (positive, negative) = signed_ranks(&shifted);
            let rejected = positive.min(negative) < rank;
            prop_assert_eq!(rejected, shift < found.low || shift > found.high);
        }
    }
}
