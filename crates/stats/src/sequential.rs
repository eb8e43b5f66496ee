//! When a comparison may stop: a few looks, planned beforehand, each at a level of its own.
//!
//! Who looks after each pair and stops as soon as the difference is significant finds one in 17 % of the cases in which there
//! is none. With few looks at levels that together are hardly more than what is allowed, it stays at that (Pocock, Biometrika 64
//! (1977) 191; O'Brien and Fleming, Biometrics 35 (1979) 549). Here the differences are tested by ranks, so a level is
//! chosen among those that the number of pairs allows. The interval of each look is the repeated confidence interval:
//! all of them together cover as often as the last one promises (Jennison and Turnbull, J. R. Stat. Soc. B 51 (1989) 305).
//!
//! Guards are one-sided: not that something did not change is shown, but that it did not become worse by more than a stated
//! margin (non-inferiority; Piaggio et al., JAMA 308 (2012) 2594). Several finalists are judged together by Holm's
//! procedure (Scand. J. Stat. 6 (1979) 65).

use crate::median::median;
use crate::paired::{Effect, Interval, effect};

/// A moment at which it is decided whether to go on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    /// After so many pairs.
    pub pairs: usize,
    /// A difference is one if the two-sided test has a smaller p than this.
    pub level: f64,
}

/// When is looked at the pairs, and what is told then.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// In order of their pairs.
    looks: Vec<Look>,
    /// Differences up to this, either way, are none for practice; natural logarithm of a ratio where the values are logarithms.
    same_within: f64,
}

/// What the pairs say so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Decision {
    /// So many pairs are needed in all before the next look.
    More(usize),
    /// There is a difference.
    Differs(Effect),
    /// There is one, smaller than what such pairs can tell.
    TooSmall(Effect),
    /// If there is one, it is too small to matter.
    Same(Effect),
    /// All pairs are there, and it cannot be told.
    Undecided(Effect),
}

impl Decision {
    /// What the pairs have told, unless more of them are needed.
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

/// What one look decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Differs,
    Same,
}

/// How many draws [`Plan::detectable`] makes for each size of an effect.
const DRAWS: usize = 400;

impl Plan {
    /// Looks after 8, 12, 18 and 30 pairs. The levels are for decisions that leave out what is smaller than the pairs can tell
    /// ([`Plan::detectable`]): that takes half of the alarms, so they are half as high again as without it. Simulated on the noise of
    /// real trials, a difference is found in 3 to 4 % of the cases without any, and in more than 90 % of those with one of 5 %
    /// (docs/evaluation.md).
    pub fn new() -> Self {
        let looks = [(8, 0.008), (12, 0.014), (18, 0.022), (30, 0.038)];
        let looks = looks.into_iter().map(|(pairs, level)| Look { pairs, level }).collect();
        Plan { looks, same_within: 0.01 }
    }

    /// The looks for which there is time. `None` if it is too little for the first one.
    pub fn within(mut self, pairs: usize) -> Option<Self> {
        self.looks.retain(|look| look.pairs <= pairs);
        (!self.looks.is_empty()).then_some(self)
    }

    /// The levels divided by the number of questions that are asked at a time (Bonferroni): where the answer to each counts by
    /// itself. Looks at which ranks allow no such level move to the number of pairs that does.
    pub fn for_questions(mut self, questions: usize) -> Self {
        for look in &mut self.looks {
            look.level /= questions.max(1) as f64;
            look.pairs = look.pairs.max(least_pairs(look.level));
        }
        self.looks.dedup_by(|later, earlier| {
            // The later look has the higher level.
            let same = later.pairs <= earlier.pairs;
            if same {
                earlier.level = later.level;
            }
            same
        });
        self
    }

    /// The looks, in their order.
    pub fn looks(&self) -> &[Look] {
        &self.looks
    }

    /// Pairs after which it ends, whatever they say.
    pub fn most_pairs(&self) -> usize {
        self.looks.last().map_or(0, |look| look.pairs)
    }

    /// What the differences (one per pair, in the order in which they were measured) say. Only looks that were planned are made,
    /// each at the pairs that were there then: so a study that goes on after its end, or is read again, says the same.
    /// `least` gives the smallest difference that such pairs can tell, by those that are there: a smaller one is none before all
    /// pairs are, since more of them tell more. Differences that are not finite make it undecided, without an estimate: `None`.
    pub fn decide(&self, differences: &[f64], least: impl Fn(&[f64]) -> f64) -> Option<Decision> {
        let mut last = None;
        for look in &self.looks {
            let Some(seen) = differences.get(..look.pairs) else { return Some(Decision::More(look.pairs)) };
            let found = effect(seen, 1.0 - look.level)?;
            last = Some(match self.verdict(found.low, found.high) {
                Some(Verdict::Differs) if found.estimate.abs() >= least(seen) => {
                    return Some(Decision::Differs(found));
                }
                Some(Verdict::Differs) => Decision::TooSmall(found),
                Some(Verdict::Same) => return Some(Decision::Same(found)),
                None => Decision::Undecided(found),
            });
        }
        last
    }

    /// What an interval decides, if it does.
    fn verdict(&self, low: f64, high: f64) -> Option<Verdict> {
        if low > 0.0 || high < 0.0 {
            return Some(Verdict::Differs);
        }
        (low > -self.same_within && high < self.same_within).then_some(Verdict::Same)
    }

    /// The smallest difference that this plan finds with the given probability, where pairs vary as these do; the
    /// same for the same seed. It is found by drawing from them, with their middle taken out and with signs at random: so it is
    /// as rough as they are few. `None` for fewer than two, or where even ten times their spread would not be found.
    pub fn detectable(&self, differences: &[f64], power: f64, seed: u64) -> Option<f64> {
        if differences.len() < 2 || differences.iter().any(|difference| !difference.is_finite()) {
            return None;
        }
        let middle = median(differences)?;
        let noise: Vec<f64> = differences.iter().map(|difference| difference - middle).collect();
        let spread = noise.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        // An effect moves all differences, and so each interval, by the same: what is drawn once does for all sizes. So more of
        // it is never found less often, either.
        let intervals: Option<Vec<Interval>> =
            self.looks.iter().map(|look| Interval::new(look.pairs, 1.0 - look.level)).collect();
        let intervals = intervals?;
        let mut random = fastrand::Rng::with_seed(seed);
        let draw = |_: usize| {
            let mut value = || {
                let value = noise[random.usize(..noise.len())];
                if random.bool() { value } else { -value }
            };
            let pairs: Vec<f64> = (0..self.most_pairs()).map(|_| value()).collect();
            let seen = self.looks.iter().zip(&intervals);
            seen.map(|(look, interval)| interval.of(pairs.get(..look.pairs)?))
                .collect::<Option<Vec<Effect>>>()
        };
        let draws: Vec<Vec<Effect>> = (0..DRAWS).map(draw).collect::<Option<_>>()?;
        let found = |size: f64| {
            let is_found = |looks: &&Vec<Effect>| {
                let decided = looks.iter().find_map(|seen| {
                    self.verdict(seen.low + size, seen.high + size)
                        .map(|verdict| (verdict, seen.low + size > 0.0))
                });
                decided == Some((Verdict::Differs, true))
            };
            draws.iter().filter(is_found).count() as f64 >= power * DRAWS as f64
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

/// Fewest pairs whose ranks allow this two-sided level: all of one sign has the probability 2 / 2^n.
fn least_pairs(level: f64) -> usize {
    (1..64).find(|pairs| 0.5_f64.powi(*pairs - 1) <= level).map_or(64, |pairs| pairs as usize)
}

/// Whether something has stayed within a margin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// It has, as far as can be told at this level.
    Kept,
    /// It has not.
    Broken,
    /// The pairs do not say.
    Unknown,
}

/// Whether the differences show that what is above zero stays below the margin, one-sided, at this level (0.05 for 5 %).
pub fn guard(differences: &[f64], margin: f64, level: f64) -> Guard {
    match effect(differences, 1.0 - 2.0 * level) {
        Some(found) if found.high < margin => Guard::Kept,
        Some(found) if found.low > margin => Guard::Broken,
        _ => Guard::Unknown,
    }
}

/// Which of these p values are significant together at this level.
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

    /// Every difference can be told.
    fn any(_: &[f64]) -> f64 {
        0.0
    }

    #[test]
    fn a_plan_looks_only_when_it_was_planned() {
        let plan = Plan::new();
        let rising: Vec<f64> = (1..=30).map(f64::from).collect();
        assert_eq!(plan.decide(&rising[..7], any), Some(Decision::More(8)));
        let Some(Decision::Differs(first)) = plan.decide(&rising[..8], any) else {
            panic!("eight of one sign")
        };
        // One that is smaller than what can be told is none before all pairs are there.
        let more = |_: &[f64]| 100.0;
        assert_eq!(plan.decide(&rising[..8], more), Some(Decision::More(12)));
        assert!(matches!(plan.decide(&rising, more), Some(Decision::TooSmall(_))));
        // What comes after it has stopped changes nothing.
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
    fn a_plan_has_the_looks_for_which_there_is_time() {
        assert_eq!(Plan::new().within(7), None);
        assert_eq!(Plan::new().within(20).map(|plan| plan.most_pairs()), Some(18));
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

    /// Noise as it was seen between pairs of runs: 4 % of drift is in both, 2 % in each, and 5 % of the runs have a spike.
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
        let least = |seen: &[f64]| plan.detectable(seen, 0.8, 1).unwrap_or(0.0);
        let decided = |_: &usize| {
            let pairs: Vec<f64> = (0..plan.most_pairs()).map(|_| pair(&mut random, effect)).collect();
            plan.decide(&pairs, least).is_some_and(found)
        };
        (0..runs).filter(decided).count() as f64 / runs as f64
    }

    #[test]
    fn nothing_is_found_where_nothing_is_and_what_is_there_is_found() {
        let differs = |decision| matches!(decision, Decision::Differs(_));
        let alarms = share(0.0, 3_000, differs);
        assert!(alarms < 0.06, "{alarms}");
        let power = share(0.05, 1_000, differs);
        assert!(power > 0.9, "{power}");
    }

    #[test]
    fn the_smallest_difference_that_would_be_found_grows_with_the_noise() {
        let plan = Plan::new();
        let mut random = fastrand::Rng::with_seed(7);
        let noise: Vec<f64> = (0..20).map(|_| pair(&mut random, 0.0)).collect();
        let small = plan.detectable(&noise, 0.9, 1).expect("noise");
        assert!((0.01..0.06).contains(&small), "{small}");
        let twice: Vec<f64> = noise.iter().map(|value| 2.0 * value + 0.3).collect();
        let large = plan.detectable(&twice, 0.9, 1).expect("noise");
        assert!((large / small - 2.0).abs() < 0.1, "{small} {large}");
        assert_eq!(plan.detectable(&noise[..1], 0.9, 1), None);
        assert_eq!(
            plan.detectable(&[0.0; 8], 0.9, 1),
            None,
            "without any noise there is nothing to draw from"
        );
    }

    #[test]
    fn guards_are_kept_broken_or_unknown() {
        let around =
            |middle: f64| (0..10).map(move |n| middle + 0.01 * (f64::from(n) - 4.5)).collect::<Vec<_>>();
        assert_eq!(guard(&around(0.0), 0.05, 0.05), Guard::Kept);
        assert_eq!(guard(&around(0.2), 0.05, 0.05), Guard::Broken);
        assert_eq!(guard(&around(0.05), 0.05, 0.05), Guard::Unknown);
        assert_eq!(guard(&[0.0; 3], 0.05, 0.05), Guard::Unknown);
    }

    /// The example of four hypotheses in textbooks: 0.01, 0.04, 0.03, 0.005 at 5 %.
    #[test]
    fn finalists_are_judged_together() {
        assert_eq!(holm(&[0.01, 0.04, 0.03, 0.005], 0.05), [true, false, false, true]);
        assert_eq!(holm(&[], 0.05), Vec::<bool>::new());
    }

    proptest! {
        /// Never more than one by one, never less than Bonferroni.
        #[test]
        fn holm_lies_between_bonferroni_and_none(p_values in prop::collection::vec(0.0..0.2_f64, 1..8)) {
            let found = holm(&p_values, 0.05);
            for (p, significant) in p_values.iter().zip(found) {
                prop_assert!(!significant || *p <= 0.05);
                prop_assert!(significant || *p > 0.05 / p_values.len() as f64);
            }
        }
    }
}
