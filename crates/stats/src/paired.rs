//! How much two settings differ, from pairs of measurements: the Hodges-Lehmann estimate with the exact
//! interval of Wilcoxon's signed-rank test.
//!
//! Pairs of neighbouring measurements in random order take out what drifts; ranks take out what spikes. The
//! interval is the set of all shifts that the test does not reject. Its level is counted, not approximated, for
//! any number of pairs, and holds where the differences lie symmetrically around the effect. That they do
//! when both measurements of a pair bear the same noise, however skewed that noise itself is.
//!
//! Values that are equal and differences that are zero need nothing special: with closed ends the interval
//! covers at least as often as it promises (Noether 1967).
//!
//! Hodges and Lehmann, Ann. Math. Stat. 34 (1963) 598, the estimate; Wilcoxon, Biometrics Bull. 1 (1945) 80, the
//! test; Tukey's form of the interval in Lehmann, Ann. Math. Stat. 34 (1963) 1507; Noether, J. Am. Stat. Assoc. 62
//! (1967) 184, ties.

/// A difference and how well it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    /// Median of the means of all pairs of differences, in their unit.
    pub estimate: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The interval's exact level: the least that ranks allow above the one that was asked for, from 0 to 1.
    pub confidence: f64,
}

impl Effect {
    /// Half of the interval's width.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// The effect that differences (one per pair) show, with an interval of at least this confidence (0.95 for 95 %).
///
/// `None` where so few pairs allow no such interval (at 95 %: fewer than 6), or for a value that is not finite. Takes time
/// in the cube of the number of pairs, of which a study has some dozens.
pub fn effect(differences: &[f64], confidence: f64) -> Option<Effect> {
    Interval::new(differences.len(), confidence)?.of(differences)
}

/// Where the estimate of another, independent set of so many pairs (`again`) should lie, if `found` is from `pairs` of them: with the
/// probability that `found` covers the truth with.
///
/// Both estimates err, each by some σ/√n, so each side of the interval grows by √(1 + pairs/again) (Hahn and Meeker, Statistical
/// Intervals, 1991, on the mean of a future sample).
pub fn again(found: Effect, pairs: usize, again: usize) -> Effect {
    let growth = (1.0 + pairs as f64 / again.max(1) as f64).sqrt();
    let side = |end: f64| found.estimate + (end - found.estimate) * growth;
    Effect { low: side(found.low), high: side(found.high), ..found }
}

/// Where an interval of a number of pairs ends: the same for all of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interval {
    /// The ends are so many steps from the outermost averages.
    steps: usize,
    /// Probability beyond each end.
    tail: f64,
}

impl Interval {
    pub(crate) fn new(pairs: usize, confidence: f64) -> Option<Self> {
        let (steps, tail) = cut(&rank_sums(pairs), (1.0 - confidence) / 2.0)?;
        Some(Interval { steps, tail })
    }

    pub(crate) fn of(self, differences: &[f64]) -> Option<Effect> {
        if differences.iter().any(|difference| !difference.is_finite()) {
            return None;
        }
        let averages = walsh_averages(differences);
        let middle = averages.len() / 2;
        Some(Effect {
            estimate: averages
                .get((averages.len() - 1).checked_sub(middle)?)?
                .midpoint(*averages.get(middle)?),
            low: *averages.get(self.steps - 1)?,
            high: *averages.get(averages.len().checked_sub(self.steps)?)?,
            confidence: 1.0 - 2.0 * self.tail,
        })
    }
}

/// Probability that ranks alone give differences at least as far on one side of zero as these, either side: the exact
/// two-sided test of Wilcoxon. What is zero counts for the side that has less, so ties never make it smaller.
///
/// `None` for no difference at all, or for a value that is not finite.
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

/// Means of all pairs of values, each with itself too, in order.
fn walsh_averages(values: &[f64]) -> Vec<f64> {
    let pairs = values.iter().enumerate().flat_map(|(i, a)| values[i..].iter().map(|b| a.midpoint(*b)));
    let mut averages: Vec<f64> = pairs.collect();
    averages.sort_by(f64::total_cmp);
    averages
}

/// Probability of each sum of signed ranks from 0 to n(n+1)/2, if each rank counts or not with equal chance.
fn rank_sums(n: usize) -> Vec<f64> {
    let mut chances = vec![0.0; n * (n + 1) / 2 + 1];
    chances[0] = 1.0;
    for rank in 1..=n {
        for sum in (0..chances.len()).rev() {
            let with = if sum >= rank { chances[sum - rank] } else { 0.0 };
            chances[sum] = (chances[sum] + with) / 2.0;
        }
    }
    chances
}

/// How many sums from 0 on have together at most this probability, and which.
fn cut(chances: &[f64], most: f64) -> Option<(usize, f64)> {
    let (mut steps, mut tail) = (0, 0.0);
    for chance in &chances[..chances.len() / 2] {
        if tail + chance > most {
            break;
        }
        (steps, tail) = (steps + 1, tail + chance);
    }
    (steps > 0).then_some((steps, tail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Critical values of the two-sided test at 5 %: the largest sum of ranks that is significant (Wilcoxon 1945;
    /// in every collection of tables).
    #[test]
    fn the_cut_agrees_with_published_tables() {
        let check = |n: usize, critical: usize| {
            let (steps, tail) = cut(&rank_sums(n), 0.025).expect("enough pairs");
            assert_eq!(steps - 1, critical, "n = {n}");
            assert!(tail <= 0.025, "n = {n}: {tail}");
        };
        for (n, critical) in
            [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (11, 10), (12, 13), (15, 25), (20, 52), (25, 89)]
        {
            check(n, critical);
        }
    }

    /// Of 2,000 runs that are held against another one, as many lie within as is promised, give or take three standard errors.
    #[test]
    fn another_set_of_pairs_lies_where_it_was_said_to() {
        let mut random = fastrand::Rng::with_seed(20_261_122);
        for (first, second) in [(8, 8), (16, 8), (12, 30)] {
            let mut inside = 0;
            let mut set = |pairs: usize| {
                let noise = |random: &mut fastrand::Rng| (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
                let values: Vec<f64> = (0..pairs).map(|_| 0.03 * noise(&mut random)).collect();
                effect(&values, 0.95).expect("enough pairs")
            };
            for _ in 0..2_000 {
                let expected = again(set(first), first, second);
                let found = set(second).estimate;
                inside += usize::from((expected.low..=expected.high).contains(&found));
            }
            assert!((1_871..=1_970).contains(&inside), "{first} pairs, then {second}: {inside} of 2000");
        }
    }

    #[test]
    fn too_few_pairs_or_no_numbers_give_no_interval() {
        assert_eq!(effect(&[], 0.95), None);
        assert_eq!(effect(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.95), None);
        assert!(effect(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.90).is_some());
        assert_eq!(effect(&[1.0, 2.0, 3.0, 4.0, 5.0, f64::NAN], 0.95), None);
    }

    /// By hand: with six pairs the interval at 95 % reaches from the least difference to the largest.
    #[test]
    fn six_pairs_by_hand() {
        let found = effect(&[3.0, 1.0, 2.0, 9.0, 4.0, 5.0], 0.95).expect("enough pairs");
        assert_eq!((found.low, found.high), (1.0, 9.0));
        assert_eq!(found.confidence, 1.0 - 2.0 / 64.0);
        // The 21 averages in order: 1 1.5 2 2 2.5 2.5 3 3 3 3.5 [3.5] 4 4 4.5 5 5 5.5 6 6.5 7 9.
        assert_eq!(found.estimate, 3.5);
    }

    #[test]
    fn pairs_without_any_difference_have_none() {
        let found = effect(&[0.0; 12], 0.95).expect("enough pairs");
        assert_eq!((found.estimate, found.low, found.high), (0.0, 0.0, 0.0));
    }

    /// Random numbers that are the same in every run: a linear congruential generator (Knuth's MMIX constants).
    struct Noise(u64);

    impl Noise {
        fn even(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 11) as f64 / (1_u64 << 53) as f64
        }

        /// As measurements are: hard below, a long tail above, and now and then something else ran.
        fn skewed(&mut self) -> f64 {
            let spike = if self.even() < 0.05 { 10.0 } else { 0.0 };
            spike - (1.0 - self.even()).ln()
        }
    }

    /// How often the interval of 12 pairs covers the truth, and how often it covers what is wrong by `off`.
    fn coverage(off: f64) -> (f64, f64) {
        let (truth, runs) = (0.7, 4_000);
        let (mut noise, mut right, mut wrong) = (Noise(2_026), 0, 0);
        for _ in 0..runs {
            let mut drift = 0.0;
            let differences: Vec<f64> = (0..12)
                .map(|_| {
                    drift += noise.even() - 0.5;
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
    fn the_interval_of_twelve_skewed_pairs_covers_as_often_as_promised_and_no_wider() {
        let (right, wrong) = coverage(3.0);
        // Exact: 95.75 %.
        assert!((0.945..0.97).contains(&right), "covers the truth in {right} of the runs");
        assert!(wrong < 0.15, "covers what is wrong in {wrong} of the runs");
    }

    fn differences() -> impl Strategy<Value = Vec<f64>> {
        // Whole numbers, so that ties and zeros are common and sums are exact.
        prop::collection::vec((-40_i32..40).prop_map(f64::from), 6..40)
    }

    /// Sums of the ranks of positive and of negative values, for values without ties and zeros.
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
        fn the_estimate_lies_within_the_interval(values in differences()) {
            let found = effect(&values, 0.95).expect("enough pairs");
            prop_assert!(found.low <= found.estimate && found.estimate <= found.high, "{found:?}");
            prop_assert!((0.95..1.0).contains(&found.confidence), "{found:?}");
        }

        #[test]
        fn a_shift_moves_all_and_a_sign_mirrors_all(values in differences(), shift in -100..100_i32) {
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
        fn more_confidence_makes_no_interval_narrower(values in differences()) {
            let (wide, narrow) = (effect(&values, 0.95), effect(&values, 0.8));
            let (wide, narrow) = (wide.expect("enough pairs"), narrow.expect("enough pairs"));
            prop_assert!(wide.low <= narrow.low && narrow.high <= wide.high);
        }

        /// The test and the interval are the same thing.
        #[test]
        fn the_test_rejects_what_the_interval_leaves_out(values in differences(), level in 0.001..0.3_f64) {
            let p = p_value(&values).expect("differences");
            if let Some(found) = effect(&values, 1.0 - level) {
                let leaves_out = found.low > 0.0 || found.high < 0.0;
                prop_assert_eq!(p <= level, leaves_out, "{} {} {:?}", p, level, found);
            } else {
                prop_assert!(p > level, "{} {}", p, level);
            }
        }

        /// What the interval is by definition: the shifts that the test does not reject.
        #[test]
        fn the_interval_holds_what_the_test_does_not_reject(values in prop::collection::vec(-1e3..1e3_f64, 6..25), shift in -1e3..1e3_f64) {
            let found = effect(&values, 0.95).expect("enough pairs");
            let (steps, _) = cut(&rank_sums(values.len()), 0.025).expect("enough pairs");
            let shifted: Vec<f64> = values.iter().map(|value| value - shift).collect();
            let (positive, negative) = signed_ranks(&shifted);
            let rejected = positive.min(negative) < steps;
            prop_assert_eq!(rejected, shift < found.low || shift > found.high);
        }
    }
}
