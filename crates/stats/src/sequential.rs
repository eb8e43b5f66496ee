//! Group-sequential testing: decides when a comparison may stop. A few interim analyses ("looks") are planned, each with a level of
//! its own.
//!
//! Testing after each pair and stopping at the first significant difference gives 17 % false positives. A few looks, whose levels add
//! up to little more than the total level, keep the total level (Pocock, Biometrika 64 (1977) 191; O'Brien and Fleming, Biometrics 35
//! (1979) 549). The tests are rank tests, so only levels that the number of pairs allows are possible. The intervals of all looks are
//! repeated confidence intervals: together they have the coverage of the last one (Jennison and Turnbull, J. R. Stat. Soc. B 51 (1989)
//! 305).
//!
//! Constraints are checked by one-sided tests of non-inferiority. Such a test shows that a value did not become worse by more than a
//! margin, not that it did not change (Piaggio et al., JAMA 308 (2012) 2594). Several finalists are tested together by Holm's procedure
//! (Scand. J. Stat. 6 (1979) 65).

use crate::median::median;
use crate::paired::{Effect, RankInterval, effect};

/// A planned interim analysis, at which the comparison may stop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    /// Number of pairs after which the analysis takes place.
    pub pairs: usize,
    /// Level of the two-sided test.
    pub level: f64,
}

/// The plan of a comparison: its looks, and the size below which a difference is negligible.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The looks, ordered by number of pairs.
    looks: Vec<Look>,
    /// Differences whose absolute value is below this size are negligible. In the unit of the differences: for logarithms of ratios, a
    /// logarithm.
    same_within: f64,
}

/// The result of a comparison so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Decision {
    /// The next look needs this number of pairs in total.
    More(usize),
    /// There is a significant difference.
    Differs(Effect),
    /// The difference is significant, but below the smallest detectable difference.
    TooSmall(Effect),
    /// The difference, if any, is negligible.
    Same(Effect),
    /// The last look was inconclusive.
    Undecided(Effect),
}

impl Decision {
    /// Returns the estimated effect; `None` if more pairs are needed.
    pub fn effect(self) -> Option<Effect> {
        match self {
            Decision::More(_) => None,
            Decision::Differs(found)
            | Decision::TooSmall(found)
            | Decision::Same(found)
            | Decision::Undecided(found) => Some(found),
        }
    }
}

/// The conclusive result of one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Differs,
    Same,
}

/// Number of comparisons that [`Plan::detectable`] simulates.
const SIMULATIONS: usize = 400;

impl Plan {
    /// Creates the default plan, with looks after 8, 12, 18 and 30 pairs. [`Plan::decide`] ignores differences below the smallest
    /// detectable one ([`Plan::detectable`]), which removes half of the false positives. The levels are therefore 1.5 times as high
    /// as otherwise. In simulations with the noise of real trials, 3 to 4 % of the comparisons of equal settings report a
    /// difference, and more than 90 % of the comparisons with a difference of 5 % (docs/evaluation.md).
    pub fn new() -> Self {
        let looks = [(8, 0.008), (12, 0.014), (18, 0.022), (30, 0.038)];
        let looks = looks.into_iter().map(|(pairs, level)| Look { pairs, level }).collect();
        Plan { looks, same_within: 0.01 }
    }

    /// Keeps only the looks with at most this number of pairs. `None` if no look is left.
    pub fn within(mut self, pairs: usize) -> Option<Self> {
        self.looks.retain(|look| look.pairs <= pairs);
        (!self.looks.is_empty()).then_some(self)
    }

    /// Divides the levels by the number of simultaneous questions (Bonferroni). A look with too few pairs for its new level is moved
    /// to the smallest sufficient number of pairs.
    pub fn for_questions(mut self, questions: usize) -> Self {
        for look in &mut self.looks {
            look.level /= questions.max(1) as f64;
            look.pairs = look.pairs.max(min_pairs(look.level));
        }
        self.looks.dedup_by(|later, earlier| {
            // The later look has the higher level, which is kept.
            let same = later.pairs <= earlier.pairs;
            if same {
                earlier.level = later.level;
            }
            same
        });
        self
    }

    /// Returns the looks, ordered by number of pairs.
    pub fn looks(&self) -> &[Look] {
        &self.looks
    }

    /// Returns the number of pairs at the last look.
    pub fn max_pairs(&self) -> usize {
        self.looks.last().map_or(0, |look| look.pairs)
    }

    /// Decides from the differences, one per pair, in the order of measurement. Each look uses only the first pairs up to its planned
    /// number, so further pairs do not change a decision.
    ///
    /// `min_detectable` returns the smallest difference that is detectable with the given pairs. A smaller difference does not stop
    /// the comparison, because it may become detectable with more pairs. `None` if a difference is not finite.
    pub fn decide(&self, differences: &[f64], min_detectable: impl Fn(&[f64]) -> f64) -> Option<Decision> {
        let mut last = None;
        for look in &self.looks {
            let Some(seen) = differences.get(..look.pairs) else { return Some(Decision::More(look.pairs)) };
            let found = effect(seen, 1.0 - look.level)?;
            last = Some(match self.verdict(found.low, found.high) {
                Some(Verdict::Differs) if found.estimate.abs() >= min_detectable(seen) => {
                    return Some(Decision::Differs(found));
                }
                Some(Verdict::Differs) => Decision::TooSmall(found),
                Some(Verdict::Same) => return Some(Decision::Same(found)),
                None => Decision::Undecided(found),
            });
        }
        last
    }

    /// Returns the verdict of a confidence interval; `None` if the interval is inconclusive.
    fn verdict(&self, low: f64, high: f64) -> Option<Verdict> {
        if low > 0.0 || high < 0.0 {
            return Some(Verdict::Differs);
        }
        (low > -self.same_within && high < self.same_within).then_some(Verdict::Same)
    }

    /// Computes the smallest difference that this plan finds with probability `power`, if the noise is that of `differences`. This is
    /// a bootstrap: it resamples the differences, centred at their median and with random signs, so the result is rough for few
    /// differences. Deterministic for a given seed. `None` for fewer than two differences, or if even ten times their spread would
    /// not be found.
    pub fn detectable(&self, differences: &[f64], power: f64, seed: u64) -> Option<f64> {
        if differences.len() < 2 || differences.iter().any(|difference| !difference.is_finite()) {
            return None;
        }
        let middle = median(differences)?;
        let noise: Vec<f64> = differences.iter().map(|difference| difference - middle).collect();
        let spread = noise.iter().fold(0.0_f64, |max, value| max.max(value.abs()));
        // An effect shifts each interval by its size, so the same draws can be used for all sizes, and the power grows with the size.
        // The bisection below is therefore valid.
        let intervals: Option<Vec<RankInterval>> =
            self.looks.iter().map(|look| RankInterval::new(look.pairs, 1.0 - look.level)).collect();
        let intervals = intervals?;
        let mut random = fastrand::Rng::with_seed(seed);
        let draw = |_: usize| {
            let mut value = || {
                let value = noise[random.usize(..noise.len())];
                if random.bool() { value } else { -value }
            };
            let pairs: Vec<f64> = (0..self.max_pairs()).map(|_| value()).collect();
            let seen = self.looks.iter().zip(&intervals);
            seen.map(|(look, interval)| interval.estimate(pairs.get(..look.pairs)?))
                .collect::<Option<Vec<Effect>>>()
        };
        let draws: Vec<Vec<Effect>> = (0..SIMULATIONS).map(draw).collect::<Option<_>>()?;
        let found = |size: f64| {
            let is_found = |looks: &&Vec<Effect>| {
                let decided = looks.iter().find_map(|seen| {
                    self.verdict(seen.low + size, seen.high + size)
                        .map(|verdict| (verdict, seen.low + size > 0.0))
                });
                decided == Some((Verdict::Differs, true))
            };
            draws.iter().filter(is_found).count() as f64 >= power * SIMULATIONS as f64
        };
        let (mut low, mut high) = (0.0, 10.0 * spread);
        if !found(high) {
            return None;
        }
        while high - low > 0.01 * high {
            let middle = low.midpoint(high);
            if found(middle) { high = middle } else { low = middle }
        }
        Some(high)
    }
}

impl Default for Plan {
    fn default() -> Self {
        Plan::new()
    }
}

/// Returns the smallest number of pairs for a two-sided level. The probability that all n differences have the same sign is 2 / 2^n.
fn min_pairs(level: f64) -> usize {
    (1..64).find(|pairs| 0.5_f64.powi(*pairs - 1) <= level).map_or(64, |pairs| pairs as usize)
}

/// The result of checking a constraint, that is, whether a value is within its margin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// The value is significantly within the margin.
    Kept,
    /// The value significantly exceeds the margin.
    Broken,
    /// The test is inconclusive.
    Unknown,
}

/// Tests whether the differences are below the margin: one-sided, at this level (0.05 for 5 %).
pub fn guard(differences: &[f64], margin: f64, level: f64) -> Guard {
    match effect(differences, 1.0 - 2.0 * level) {
        Some(found) if found.high < margin => Guard::Kept,
        Some(found) if found.low > margin => Guard::Broken,
        _ => Guard::Unknown,
    }
}

/// Returns for each p value whether it is significant at this family-wise level, by Holm's procedure.
pub fn holm(p_values: &[f64], level: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut significant = vec![false; p_values.len()];
    for (rank, index) in order.into_iter().enumerate() {
        if p_values[index] > level / (p_values.len() - rank) as f64 {
            break;
        }
        significant[index] = true;
    }
    significant
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The smallest detectable difference if every difference is detectable.
    fn any(_: &[f64]) -> f64 {
        0.0
    }

    #[test]
    fn decisions_are_made_only_at_planned_looks() {
        let plan = Plan::new();
        let rising: Vec<f64> = (1..=30).map(f64::from).collect();
        assert_eq!(plan.decide(&rising[..7], any), Some(Decision::More(8)));
        let Some(Decision::Differs(first)) = plan.decide(&rising[..8], any) else {
            panic!("eight of one sign")
        };
        // A difference below the smallest detectable one does not stop the comparison before the last look.
        let high = |_: &[f64]| 100.0;
        assert_eq!(plan.decide(&rising[..8], high), Some(Decision::More(12)));
        assert!(matches!(plan.decide(&rising, high), Some(Decision::TooSmall(_))));
        // Pairs after the decision change nothing.
        assert_eq!(plan.decide(&rising, any), Some(Decision::Differs(first)));
        let mixed: Vec<f64> = (1..=30).map(|n| f64::from(n * 7 % 11 - 5) / 10.0).collect();
        assert_eq!(plan.decide(&mixed[..8], any), Some(Decision::More(12)));
        assert_eq!(plan.decide(&mixed[..29], any), Some(Decision::More(30)));
        assert!(matches!(plan.decide(&mixed, any), Some(Decision::Undecided(_))));
        let tiny: Vec<f64> = mixed.iter().map(|value| value / 100.0).collect();
        assert!(matches!(plan.decide(&tiny, any), Some(Decision::Same(_))));
        assert_eq!(plan.decide(&[f64::NAN; 8], any), None);
    }

    #[test]
    fn plan_keeps_the_looks_within_the_number_of_pairs() {
        assert_eq!(Plan::new().within(7), None);
        assert_eq!(Plan::new().within(20).map(|plan| plan.max_pairs()), Some(18));
        let three = Plan::new().for_questions(3);
        let pairs: Vec<usize> = three.looks().iter().map(|look| look.pairs).collect();
        assert_eq!(pairs, [10, 12, 18, 30]);
        let many = Plan::new().for_questions(1_000);
        assert!(many.looks().is_sorted_by(|a, b| a.pairs < b.pairs), "{many:?}");
        assert!(
            many.looks().iter().all(|look| 0.5_f64.powi(look.pairs as i32 - 1) <= look.level),
            "{many:?}"
        );
    }

    /// Draws a difference with noise as observed in pairs of runs: 2 % in each run, and a spike in 5 % of the runs. Drift, which both
    /// runs of a pair share, cancels.
    fn pair(random: &mut fastrand::Rng, effect: f64) -> f64 {
        let normal = |random: &mut fastrand::Rng| (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let one = |random: &mut fastrand::Rng| {
            let spike = if random.f64() < 0.05 { random.f64() * 0.3 } else { 0.0 };
            0.02 * normal(random) + spike
        };
        effect + one(random) - one(random)
    }

    fn share(effect: f64, runs: usize, found: fn(Decision) -> bool) -> f64 {
        let (plan, mut random) = (Plan::new(), fastrand::Rng::with_seed(20_261_121));
        let min_detectable = |seen: &[f64]| plan.detectable(seen, 0.8, 1).unwrap_or(0.0);
        let decided = |_: &usize| {
            let pairs: Vec<f64> = (0..plan.max_pairs()).map(|_| pair(&mut random, effect)).collect();
            plan.decide(&pairs, min_detectable).is_some_and(found)
        };
        (0..runs).filter(decided).count() as f64 / runs as f64
    }

    #[test]
    fn false_positives_are_rare_and_true_differences_are_found() {
        let differs = |decision| matches!(decision, Decision::Differs(_));
        let alarms = share(0.0, 3_000, differs);
        assert!(alarms < 0.06, "{alarms}");
        let power = share(0.05, 1_000, differs);
        assert!(power > 0.9, "{power}");
    }

    #[test]
    fn smallest_detectable_difference_grows_with_the_noise() {
        let plan = Plan::new();
        let mut random = fastrand::Rng::with_seed(7);
        let noise: Vec<f64> = (0..20).map(|_| pair(&mut random, 0.0)).collect();
        let small = plan.detectable(&noise, 0.9, 1).expect("noise");
        assert!((0.01..0.06).contains(&small), "{small}");
        let twice: Vec<f64> = noise.iter().map(|value| 2.0 * value + 0.3).collect();
        let large = plan.detectable(&twice, 0.9, 1).expect("noise");
        assert!((large / small - 2.0).abs() < 0.1, "{small} {large}");
        assert_eq!(plan.detectable(&noise[..1], 0.9, 1), None);
        assert_eq!(plan.detectable(&[0.0; 8], 0.9, 1), None, "without noise, no difference can be simulated");
    }

    #[test]
    fn constraints_are_kept_broken_or_unknown() {
        let around =
            |middle: f64| (0..10).map(move |n| middle + 0.01 * (f64::from(n) - 4.5)).collect::<Vec<_>>();
        assert_eq!(guard(&around(0.0), 0.05, 0.05), Guard::Kept);
        assert_eq!(guard(&around(0.2), 0.05, 0.05), Guard::Broken);
        assert_eq!(guard(&around(0.05), 0.05, 0.05), Guard::Unknown);
        assert_eq!(guard(&[0.0; 3], 0.05, 0.05), Guard::Unknown);
    }

    /// The textbook example with four hypotheses at 5 %.
    #[test]
    fn holm_agrees_with_the_textbook_example() {
        assert_eq!(holm(&[0.01, 0.04, 0.03, 0.005], 0.05), [true, false, false, true]);
        assert_eq!(holm(&[], 0.05), Vec::<bool>::new());
    }

    proptest! {
        #[test]
        fn holm_is_between_bonferroni_and_no_correction(p_values in prop::collection::vec(0.0..0.2_f64, 1..8)) {
            let found = holm(&p_values, 0.05);
            for (p, significant) in p_values.iter().zip(found) {
                prop_assert!(!significant || *p <= 0.05);
                prop_assert!(significant || *p > 0.05 / p_values.len() as f64);
            }
        }
    }
}
