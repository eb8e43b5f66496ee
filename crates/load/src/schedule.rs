//! The arrival schedule: fixed by a seed before the run begins, and independent of the target.

use rand_core::Rng;
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::clock::SECOND_NS;

/// The distribution of the time between arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spacing {
    /// A Poisson process: independent arrivals, as from many users.
    #[default]
    Poisson,
    /// Equal intervals.
    Fixed,
}

/// The rate over time: a linear ramp from zero, then constant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Profile {
    /// Arrivals per second after the ramp.
    pub per_second: f64,
    /// Duration of the ramp.
    pub ramp_ns: u64,
    /// Duration of the constant rate.
    pub sustain_ns: u64,
}

impl Profile {
    /// Returns the time after the start by which this many arrivals are expected.
    fn instant_ns(&self, arrivals: f64) -> f64 {
        let ramp_s = self.ramp_ns as f64 / SECOND_NS as f64;
        let in_ramp = self.per_second * ramp_s / 2.0;
        let seconds = if arrivals < in_ramp {
            (2.0 * arrivals * ramp_s / self.per_second).sqrt()
        } else {
            ramp_s / 2.0 + arrivals / self.per_second
        };
        seconds * SECOND_NS as f64
    }
}

/// The arrivals that one thread serves: every n-th arrival of the run. Each thread generates all arrivals, so the schedule does not depend
/// on the number of threads.
#[derive(Debug, Clone)]
pub struct Schedule {
    profile: Profile,
    spacing: Spacing,
    random: Xoshiro256PlusPlus,
    /// Expected number of arrivals up to the latest one. On this scale arrivals have rate 1.
    expected: f64,
    number: u64,
    share: u64,
    shares: u64,
}

/// An arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Number in the run, from 0.
    pub number: u64,
    /// When it is due, in nanoseconds after the start of the run.
    pub due_ns: u64,
}

impl Schedule {
    /// Generates the arrivals whose number modulo `shares` is `share`.
    pub fn new(profile: Profile, spacing: Spacing, seed: u64, share: u64, shares: u64) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        // With equal intervals the first arrival comes half an interval after the start, so that the total matches the rate.
        let expected = if spacing == Spacing::Fixed { -0.5 } else { 0.0 };
        Self { profile, spacing, random, expected, number: 0, share, shares: shares.max(1) }
    }
}

impl Iterator for Schedule {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        loop {
            self.expected += match self.spacing {
                Spacing::Fixed => 1.0,
                Spacing::Poisson => exponential(&mut self.random),
            };
            let number = self.number;
            let due_ns = self.profile.instant_ns(self.expected);
            if due_ns >= (self.profile.ramp_ns + self.profile.sustain_ns) as f64 {
                return None;
            }
            self.number += 1;
            if number % self.shares == self.share {
                return Some(Arrival { number, due_ns: due_ns as u64 });
            }
        }
    }
}

/// Draws a random number from the exponential distribution with mean 1.
pub fn exponential(random: &mut impl Rng) -> f64 {
    -(1.0 - unit(random)).ln()
}

/// Draws a random number from [0, 1), with 53 bits.
pub fn unit(random: &mut impl Rng) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVEL: Profile = Profile { per_second: 1000.0, ramp_ns: 0, sustain_ns: 20 * SECOND_NS };

    fn all(profile: Profile, spacing: Spacing, seed: u64) -> Vec<Arrival> {
        Schedule::new(profile, spacing, seed, 0, 1).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_schedule_for_any_number_of_threads() {
        let whole = all(LEVEL, Spacing::Poisson, 7);
        for shares in [2, 3, 16] {
            let mut parts: Vec<Arrival> = (0..shares)
                .flat_map(|share| Schedule::new(LEVEL, Spacing::Poisson, 7, share, shares))
                .collect();
            parts.sort_by_key(|arrival| arrival.number);
            assert_eq!(parts, whole);
        }
        assert_ne!(all(LEVEL, Spacing::Poisson, 8), whole);
    }

    #[test]
    fn fixed_arrivals_have_equal_intervals() {
        let arrivals = all(LEVEL, Spacing::Fixed, 1);
        assert_eq!(arrivals.len(), 20_000);
        assert!(arrivals.windows(2).all(|pair| (pair[1].due_ns - pair[0].due_ns).abs_diff(1_000_000) <= 1));
    }

    /// Counts of a Poisson process in equal intervals have a variance equal to their mean: (n - 1) times the ratio of the two has a
    /// chi-squared distribution with n - 1 degrees of freedom (the dispersion test, Cox & Lewis 1966).
    #[test]
    fn poisson_arrivals_pass_the_dispersion_test_and_fixed_ones_do_not() {
        let passes = |spacing, seed| {
            let mut counts = vec![0.0_f64; 2000];
            for arrival in all(LEVEL, spacing, seed) {
                counts[(arrival.due_ns / 10_000_000) as usize] += 1.0;
            }
            let n = counts.len() as f64;
            let mean = counts.iter().sum::<f64>() / n;
            let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / (n - 1.0);
            let statistic = (n - 1.0) * variance / mean;
            // Two-sided at 1 %: chi-squared with 1999 degrees of freedom is nearly normal.
            (statistic - (n - 1.0)).abs() < 2.576 * (2.0 * (n - 1.0)).sqrt()
        };
        // One of 100 seeds is expected to fail; more than 5 failures have a probability below 0.001.
        let failed = (0..100).filter(|seed| !passes(Spacing::Poisson, *seed)).count();
        assert!(failed <= 5, "{failed} of 100");
        assert!(!passes(Spacing::Fixed, 0));
    }

    #[test]
    fn a_ramp_has_half_the_arrivals_of_a_constant_rate() {
        let profile = Profile { per_second: 1000.0, ramp_ns: 10 * SECOND_NS, sustain_ns: 10 * SECOND_NS };
        let arrivals = all(profile, Spacing::Fixed, 1);
        let before =
            |seconds: u64| arrivals.iter().filter(|arrival| arrival.due_ns < seconds * SECOND_NS).count();
        assert!(before(5).abs_diff(1250) <= 1, "{}", before(5));
        assert!(before(10).abs_diff(5000) <= 1, "{}", before(10));
        assert!(before(20).abs_diff(15_000) <= 1, "{}", before(20));
    }
}
