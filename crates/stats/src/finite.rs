//! What all of a finite population add up to, from some of them that were drawn by chance, none twice.
//!
//! No distribution is assumed: amounts of memory have long tails, for which an interval by the normal distribution is too narrow.
//! All that must be known is the most that one of them can have.
//!
//! Bardenet and Maillard, Bernoulli 21 (2015) 1361: the empirical Bernstein-Serfling inequality (theorem 4.3), taken once for each
//! side, at 2.5 %.

/// Chance that a side of the interval is wrong.
const DELTA: f64 = 0.025;

/// A sum over a population, and the ends of its interval at 95 % confidence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Total {
    /// The mean of those drawn, times all.
    pub estimate: f64,
    /// Lower end; no less than what those drawn have.
    pub low: f64,
    /// Upper end; no more than if each of the others had the most.
    pub high: f64,
}

/// Of `population` things, of which each has from 0 to `most`, `drawn` were drawn; `sum` is what these have, and `squares` the sum of
/// the squares of that. `None` if none was drawn of some, or a number is none or negative.
pub fn total(population: f64, drawn: f64, sum: f64, squares: f64, most: f64) -> Option<Total> {
    let numbers = [population, drawn, sum, squares, most];
    if numbers.iter().any(|number| !number.is_finite() || *number < 0.0) {
        return None;
    }
    if drawn >= population {
        return Some(Total { estimate: sum, low: sum, high: sum });
    }
    if drawn < 1.0 {
        return None;
    }
    let mean = sum / drawn;
    let deviation = (squares / drawn - mean * mean).max(0.0).sqrt();
    // Who has drawn nearly all knows nearly all.
    let unknown = if drawn <= population / 2.0 {
        1.0 - (drawn - 1.0) / population
    } else {
        (1.0 - drawn / population) * (1.0 + 1.0 / drawn)
    };
    let odds = (5.0 / DELTA).ln();
    let kappa = 7.0 / 3.0 + 3.0 / 2.0_f64.sqrt();
    let error = deviation * (2.0 * unknown * odds / drawn).sqrt() + kappa * most * odds / drawn;
    let highest = sum + (population - drawn) * most;
    let estimate = (mean * population).min(highest.max(sum));
    Some(Total {
        estimate,
        low: ((mean - error) * population).max(sum).min(estimate),
        high: ((mean + error) * population).min(highest).max(estimate),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A generator of numbers from 0 to below 1 that needs no crate (xorshift).
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> f64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    /// `drawn` of `amounts`, none twice.
    fn draw(amounts: &[f64], drawn: usize, random: &mut Random) -> Total {
        let mut order = amounts.to_vec();
        for place in 0..drawn {
            let other = place + (random.next() * (order.len() - place) as f64) as usize;
            order.swap(place, other);
        }
        let some = &order[..drawn];
        let (sum, squares) = (some.iter().sum(), some.iter().map(|amount| amount * amount).sum());
        let most = amounts.iter().copied().fold(0.0, f64::max);
        total(amounts.len() as f64, drawn as f64, sum, squares, most).unwrap()
    }

    #[test]
    fn the_interval_holds_what_there_is_as_often_as_it_says_also_with_long_tails() {
        let mut random = Random(88_172_645_463_325_252);
        let populations: [Box<dyn Fn(f64) -> f64>; 4] = [
            // All the same but for a little; one in a hundred has much; a long tail; a half has none.
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
    fn what_is_alike_is_told_well_and_all_is_told_exactly() {
        let mut random = Random(88_172_645_463_325_252);
        let alike: Vec<f64> = (0..10_000).map(|_| 500_000.0 + 10_000.0 * random.next()).collect();
        let truth: f64 = alike.iter().sum();
        let told = draw(&alike, 750, &mut random);
        assert!((told.estimate - truth).abs() < truth / 500.0, "{told:?} of {truth}");
        assert!(told.low > 0.9 * truth && told.high < 1.1 * truth, "{told:?} of {truth}");
        let all = draw(&alike, alike.len(), &mut random);
        assert_eq!((all.low, all.high), (all.estimate, all.estimate));
        assert!((all.estimate - truth).abs() < 1.0);
    }

    #[test]
    fn where_nothing_was_found_there_may_be_some_that_were_not_drawn() {
        let none = total(100_000.0, 750.0, 0.0, 0.0, 20_000.0).unwrap();
        assert_eq!((none.estimate, none.low), (0.0, 0.0));
        assert!(none.high > 10e6 && none.high < 100e6, "{none:?}");
    }

    #[test]
    fn nothing_is_told_of_nothing() {
        for (population, drawn, sum) in
            [(10.0, 0.0, 0.0), (f64::NAN, 1.0, 1.0), (10.0, -1.0, 1.0), (10.0, 2.0, -1.0)]
        {
            assert_eq!(total(population, drawn, sum, 1.0, 1.0), None);
        }
        assert_eq!(total(0.0, 0.0, 0.0, 0.0, 0.0), Some(Total { estimate: 0.0, low: 0.0, high: 0.0 }));
    }

    proptest! {
        #[test]
        fn any_numbers_give_an_interval_around_the_estimate(numbers in any::<[u32; 5]>()) {
            let [population, drawn, sum, squares, most] = numbers.map(f64::from);
            if let Some(told) = total(population, drawn, sum, squares, most) {
                prop_assert!(told.low <= told.estimate && told.estimate <= told.high, "{told:?}");
                prop_assert!(told.low >= 0.0 && told.high.is_finite());
            }
        }
    }
}
