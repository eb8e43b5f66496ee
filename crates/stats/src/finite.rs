//! Estimates the total of a finite population from a random sample without replacement.
//!
//! No distribution is assumed, because sizes of memory have long tails, for which a normal interval is too narrow. Only an upper bound
//! of the single values must be known.
//!
//! Source: Bardenet and Maillard, Bernoulli 21 (2015) 1361, the empirical Bernstein-Serfling inequality (theorem 4.3), applied to each
//! side of the interval at 2.5 %.

/// Error probability on each side of the interval.
const DELTA: f64 = 0.025;

/// The estimated total of a population, with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TotalEstimate {
    /// Sample mean times the size of the population.
    pub estimate: f64,
    /// Lower end; at least the sum of the sample.
    pub low: f64,
    /// Upper end; at most the total that would result if every value outside the sample were the maximum.
    pub high: f64,
}

/// Estimates the total of a population from a sample. The population has `population` values between 0 and `max`; the sample has
/// `drawn` values with the sum `sum` and the sum of squares `squares`. `None` if the sample of a non-empty population is empty, or if
/// an argument is negative or not finite.
pub fn estimate_total(
    population: f64,
    drawn: f64,
    sum: f64,
    squares: f64,
    max: f64,
) -> Option<TotalEstimate> {
    let numbers = [population, drawn, sum, squares, max];
    if numbers.iter().any(|number| !number.is_finite() || *number < 0.0) {
        return None;
    }
    if drawn >= population {
        return Some(TotalEstimate { estimate: sum, low: sum, high: sum });
    }
    if drawn < 1.0 {
        return None;
    }
    let mean = sum / drawn;
    let deviation = (squares / drawn - mean * mean).max(0.0).sqrt();
    // This factor shrinks towards 0 as the sample approaches the whole population.
    let unknown = if drawn <= population / 2.0 {
        1.0 - (drawn - 1.0) / population
    } else {
        (1.0 - drawn / population) * (1.0 + 1.0 / drawn)
    };
    let log_term = (5.0 / DELTA).ln();
    let kappa = 7.0 / 3.0 + 3.0 / 2.0_f64.sqrt();
    let error = deviation * (2.0 * unknown * log_term / drawn).sqrt() + kappa * max * log_term / drawn;
    let highest = sum + (population - drawn) * max;
    let estimate = (mean * population).min(highest.max(sum));
    Some(TotalEstimate {
        estimate,
        low: ((mean - error) * population).max(sum).min(estimate),
        high: ((mean + error) * population).min(highest).max(estimate),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A generator of uniform numbers in [0, 1), by xorshift.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> f64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    /// Estimates the total of `amounts` from a random sample of `drawn` amounts.
    fn draw(amounts: &[f64], drawn: usize, random: &mut Random) -> TotalEstimate {
        let mut order = amounts.to_vec();
        for place in 0..drawn {
            let other = place + (random.next() * (order.len() - place) as f64) as usize;
            order.swap(place, other);
        }
        let sample = &order[..drawn];
        let (sum, squares) = (sample.iter().sum(), sample.iter().map(|amount| amount * amount).sum());
        let max = amounts.iter().copied().fold(0.0, f64::max);
        estimate_total(amounts.len() as f64, drawn as f64, sum, squares, max).unwrap()
    }

    #[test]
    fn interval_has_its_nominal_coverage_even_with_long_tails() {
        let mut random = Random(88_172_645_463_325_252);
        let populations: [Box<dyn Fn(f64) -> f64>; 4] = [
            // Nearly equal values; 1 % large values; a long tail; half of the values are zero.
            Box::new(|x| 600_000.0 + 1_000.0 * x),
            Box::new(|x| if x < 0.01 { 1e6 } else { 0.0 }),
            Box::new(|x| 1_000.0 / (x + 1e-3)),
            Box::new(|x| if x < 0.5 { 0.0 } else { 40_000.0 }),
        ];
        for (which, amount) in populations.iter().enumerate() {
            let amounts: Vec<f64> = (0..5_000).map(|_| amount(random.next())).collect();
            let truth: f64 = amounts.iter().sum();
            let mut missed = 0;
            for _ in 0..300 {
                let total = draw(&amounts, 750, &mut random);
                if truth < total.low || truth > total.high {
                    missed += 1;
                }
            }
            assert!(missed <= 15, "{which}: {missed} of 300 missed");
        }
    }

    #[test]
    fn similar_values_are_estimated_closely_and_a_full_sample_exactly() {
        let mut random = Random(88_172_645_463_325_252);
        let alike: Vec<f64> = (0..10_000).map(|_| 500_000.0 + 10_000.0 * random.next()).collect();
        let truth: f64 = alike.iter().sum();
        let found = draw(&alike, 750, &mut random);
        assert!((found.estimate - truth).abs() < truth / 500.0, "{found:?} of {truth}");
        assert!(found.low > 0.9 * truth && found.high < 1.1 * truth, "{found:?} of {truth}");
        let all = draw(&alike, alike.len(), &mut random);
        assert_eq!((all.low, all.high), (all.estimate, all.estimate));
        assert!((all.estimate - truth).abs() < 1.0);
    }

    #[test]
    fn interval_of_an_all_zero_sample_has_a_positive_upper_end() {
        let none = estimate_total(100_000.0, 750.0, 0.0, 0.0, 20_000.0).unwrap();
        assert_eq!((none.estimate, none.low), (0.0, 0.0));
        assert!(none.high > 10e6 && none.high < 100e6, "{none:?}");
    }

    #[test]
    fn invalid_arguments_give_no_estimate() {
        for (population, drawn, sum) in
            [(10.0, 0.0, 0.0), (f64::NAN, 1.0, 1.0), (10.0, -1.0, 1.0), (10.0, 2.0, -1.0)]
        {
            assert_eq!(estimate_total(population, drawn, sum, 1.0, 1.0), None);
        }
        assert_eq!(
            estimate_total(0.0, 0.0, 0.0, 0.0, 0.0),
            Some(TotalEstimate { estimate: 0.0, low: 0.0, high: 0.0 })
        );
    }

    proptest! {
        #[test]
        fn any_numbers_give_an_interval_around_the_estimate(numbers in any::<[u32; 5]>()) {
            let [population, drawn, sum, squares, max] = numbers.map(f64::from);
            if let Some(found) = estimate_total(population, drawn, sum, squares, max) {
                prop_assert!(found.low <= found.estimate && found.estimate <= found.high, "{found:?}");
                prop_assert!(found.low >= 0.0 && found.high.is_finite());
            }
        }
    }
}
