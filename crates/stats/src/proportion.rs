//! The difference between two proportions of independent samples, with its confidence interval.
//!
//! The usual normal interval is too narrow for small counts, and has the length 0 if no sample or every sample has the property. This one
//! is near its nominal level even then.
//!
//! Sources: Newcombe, Stat. Med. 17 (1998) 873, method 10, the difference; Wilson, J. Am. Stat. Assoc. 22 (1927) 209, the intervals of
//! both proportions; Bonferroni's inequality, intervals that hold together; McCullagh and Nelder, Generalized Linear Models (1989), 4.5,
//! samples that are not independent.

use crate::gaussian::normal_cdf;

/// A part of some samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Proportion {
    /// Number of samples with the property.
    pub part: f64,
    /// Number of all samples.
    pub whole: f64,
}

/// The difference between two proportions, with its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// The second proportion minus the first one, from -1 to 1.
    pub estimate: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Difference {
    /// Whether the interval excludes 0.
    pub fn is_significant(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// Estimates how much the second proportion is larger than the first one. `z` is the critical value of the interval, as from
/// [`critical_value`]. `None` if there are no samples, or if a part is negative or larger than its whole.
pub fn difference(before: Proportion, after: Proportion, z: f64) -> Option<Difference> {
    let (p, q) = (before.share()?, after.share()?);
    let ((p_low, p_high), (q_low, q_high)) = (before.wilson(p, z), after.wilson(q, z));
    let estimate = q - p;
    Some(Difference {
        estimate,
        low: (estimate - (q - q_low).hypot(p_high - p)).max(-1.0),
        high: (estimate + (q_high - q).hypot(p - p_low)).min(1.0),
    })
}

impl Proportion {
    fn share(self) -> Option<f64> {
        let is_valid = self.whole > 0.0 && self.whole.is_finite() && (0.0..=self.whole).contains(&self.part);
        is_valid.then(|| self.part / self.whole)
    }

    /// Both ends of Wilson's score interval around a share.
    fn wilson(self, share: f64, z: f64) -> (f64, f64) {
        let weight = z * z / self.whole;
        let middle = share + weight / 2.0;
        let half = (share * (1.0 - share) * weight + weight * weight / 4.0).sqrt();
        // Rounding must not move an end beyond the share.
        (((middle - half) / (1.0 + weight)).min(share), ((middle + half) / (1.0 + weight)).max(share))
    }
}

/// Returns the critical value of the standard normal distribution for two-sided intervals. With this probability (0.95 for 95 %), all of
/// the intervals contain the true value.
pub fn critical_value(confidence: f64, intervals: usize) -> f64 {
    /// Beyond this value, the distribution has less probability than a double can represent.
    const MAX_Z: f64 = 38.0;
    let tail = (1.0 - confidence) / intervals.max(1) as f64 / 2.0;
    let (mut low, mut high) = (0.0, MAX_Z);
    // Each step halves the range: 60 steps use up the precision of a double.
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if normal_cdf(-middle) > tail {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// How much more proportions vary between groups of samples than if all samples were independent: Pearson's statistic divided by its
/// degrees of freedom.
#[derive(Debug, Clone, Copy, Default)]
pub struct Dispersion {
    statistic: f64,
    degrees: f64,
}

impl Dispersion {
    /// Adds a property, as its proportion in each of the groups.
    pub fn add(&mut self, groups: &[Proportion]) {
        let (part, whole) =
            groups.iter().fold((0.0, 0.0), |(part, whole), group| (part + group.part, whole + group.whole));
        let share = part / whole;
        let variance = share * (1.0 - share);
        // Without a sample, or if none or all have the property, the groups cannot vary.
        if variance > 0.0 {
            let groups = groups.iter().filter(|group| group.whole > 0.0);
            let deviation =
                |group: &Proportion| (group.part - share * group.whole).powi(2) / (variance * group.whole);
            self.statistic += groups.clone().map(deviation).sum::<f64>();
            self.degrees += groups.count() as f64 - 1.0;
        }
    }

    /// Returns the factor by which the variance is larger; at least 1. This many samples are worth one independent sample.
    pub fn factor(&self) -> f64 {
        (self.statistic / self.degrees.max(1.0)).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(part: f64, whole: f64) -> Proportion {
        Proportion { part, whole }
    }

    #[test]
    fn critical_values_agree_with_tables() {
        for (intervals, expected) in [(1, 1.959_964), (10, 2.807_034), (100, 3.480_756)] {
            let z = critical_value(0.95, intervals);
            assert!((z - expected).abs() < 1e-5, "{intervals}: {z}");
        }
        assert!((critical_value(0.9, 1) - 1.644_854).abs() < 1e-5);
    }

    /// Newcombe (1998), table II, method 10, examples a, b, e, f and g.
    #[test]
    fn intervals_agree_with_the_source() {
        let z = critical_value(0.95, 1);
        for (after, before, low, high) in [
            (of(56.0, 70.0), of(48.0, 80.0), 0.0524, 0.3339),
            (of(9.0, 10.0), of(3.0, 10.0), 0.1705, 0.8090),
            (of(0.0, 10.0), of(0.0, 20.0), -0.1611, 0.2775),
            (of(0.0, 10.0), of(0.0, 10.0), -0.2775, 0.2775),
            (of(10.0, 10.0), of(0.0, 20.0), 0.6791, 1.0),
        ] {
            let found = difference(before, after, z).unwrap();
            assert!((found.low - low).abs() < 1e-4 && (found.high - high).abs() < 1e-4, "{found:?}");
        }
    }

    #[test]
    fn interval_has_its_nominal_coverage() {
        let mut random = fastrand::Rng::with_seed(7);
        let z = critical_value(0.95, 1);
        for (before, after, whole) in [(0.01, 0.01, 500), (0.1, 0.2, 100), (0.5, 0.5, 50), (0.9, 0.95, 300)] {
            let mut draw = |share: f64| {
                let part = (0..whole).filter(|_| random.f64() < share).count();
                of(part as f64, f64::from(whole))
            };
            let missed = (0..2_000).filter(|_| {
                let found = difference(draw(before), draw(after), z).unwrap();
                !(found.low..=found.high).contains(&(after - before))
            });
            let missed = missed.count();
            assert!(missed <= 130, "{before}, {after}: {missed} of 2,000 missed");
        }
    }

    /// Two profiles of the same program with 50 functions of equal cost.
    #[test]
    fn equal_shares_rarely_differ_in_any_of_many_comparisons() {
        const FUNCTIONS: usize = 50;
        const SAMPLES: usize = 1_000;
        let mut random = fastrand::Rng::with_seed(11);
        let z = critical_value(0.95, FUNCTIONS);
        let mut profile = || {
            let mut counts = [0_u32; FUNCTIONS];
            (0..SAMPLES).for_each(|_| counts[random.usize(..FUNCTIONS)] += 1);
            counts.map(|count| of(f64::from(count), SAMPLES as f64))
        };
        let has_difference = |_: &usize| {
            let (before, after) = (profile(), profile());
            let mut pairs = before.iter().zip(&after);
            pairs.any(|(before, after)| difference(*before, *after, z).unwrap().is_significant())
        };
        let wrong = (0..300).filter(has_difference).count();
        assert!(wrong <= 20, "{wrong} of 300 pairs");
    }

    /// Ten seconds with 100 samples each, of 20 functions, in runs of equal samples.
    #[test]
    fn samples_in_runs_have_the_dispersion_of_the_length_of_the_runs() {
        let mut random = fastrand::Rng::with_seed(5);
        for (run, low, high) in [(1, 1.0, 1.25), (4, 3.2, 4.8)] {
            let mut second = || {
                let mut counts = [0_u32; 20];
                (0..100 / run).for_each(|_| counts[random.usize(..20)] += run);
                counts
            };
            let seconds: Vec<[u32; 20]> = (0..10).map(|_| second()).collect();
            let mut dispersion = Dispersion::default();
            for function in 0..20 {
                let group = |counts: &[u32; 20]| of(f64::from(counts[function]), 100.0);
                dispersion.add(&seconds.iter().map(group).collect::<Vec<_>>());
            }
            assert!((low..=high).contains(&dispersion.factor()), "{run}: {}", dispersion.factor());
        }
        assert_eq!(Dispersion::default().factor(), 1.0);
    }

    #[test]
    fn one_group_or_a_property_of_none_or_all_has_no_dispersion() {
        let mut dispersion = Dispersion::default();
        for groups in
            [&[of(3.0, 10.0)][..], &[of(0.0, 5.0), of(0.0, 7.0)], &[of(5.0, 5.0), of(7.0, 7.0)], &[]]
        {
            dispersion.add(groups);
            assert_eq!(dispersion.factor(), 1.0);
        }
    }

    #[test]
    fn impossible_counts_give_no_difference() {
        let one = of(1.0, 2.0);
        for invalid in [of(0.0, 0.0), of(-1.0, 2.0), of(3.0, 2.0), of(f64::NAN, 2.0), of(1.0, f64::INFINITY)]
        {
            assert_eq!((difference(invalid, one, 2.0), difference(one, invalid, 2.0)), (None, None));
        }
    }

    proptest! {
        #[test]
        fn exchanged_proportions_mirror_the_interval(counts in any::<[u16; 4]>(), intervals in 1_usize..1_000) {
            let [a, b, c, d] = counts.map(f64::from);
            let (before, after) = (of(a, a + b + 1.0), of(c, c + d + 1.0));
            let z = critical_value(0.95, intervals);
            let (found, mirrored) = (difference(before, after, z).unwrap(), difference(after, before, z).unwrap());
            prop_assert_eq!((found.estimate, found.low, found.high), (-mirrored.estimate, -mirrored.high, -mirrored.low));
            prop_assert!(-1.0 <= found.low && found.low <= found.estimate);
            prop_assert!(found.estimate <= found.high && found.high <= 1.0);
            prop_assert!(!difference(before, before, z).unwrap().is_significant());
        }
    }
}
