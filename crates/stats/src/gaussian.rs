//! Regression by a Gaussian process: what values at points near each other say of a point that was not measured, and how
//! surely.
//!
//! Rasmussen and Williams, Gaussian Processes for Machine Learning (MIT Press 2006), algorithm 2.1. Which points are near each
//! other is the caller's business, who gives covariances.

/// What is known after some measurements.
#[derive(Debug, Clone)]
pub struct Posterior {
    /// Lower triangle, by rows: the Cholesky factor of the covariances of the measurements.
    factor: Vec<Vec<f64>>,
    /// The covariances' inverse, times the measurements.
    weights: Vec<f64>,
    log_likelihood: f64,
}

/// Where a value lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guess {
    /// Its mean.
    pub mean: f64,
    /// Its standard deviation, without the noise of a measurement.
    pub sd: f64,
}

impl Guess {
    /// Probability that the value is below this.
    pub fn below(&self, limit: f64) -> f64 {
        match self.sd > 0.0 {
            true => normal_cdf((limit - self.mean) / self.sd),
            false => f64::from(u8::from(self.mean < limit)),
        }
    }

    /// By how much the value is below this on average, where what is above counts as nothing: expected improvement
    /// (Močkus 1975; Jones, Schonlau and Welch, J. Global Optim. 13 (1998) 455).
    pub fn expected_below(&self, limit: f64) -> f64 {
        let gain = limit - self.mean;
        if self.sd <= 0.0 {
            return gain.max(0.0);
        }
        let z = gain / self.sd;
        let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
        (gain * normal_cdf(z) + self.sd * density).max(0.0)
    }
}

/// The share of a standard normal distribution below z.
pub fn normal_cdf(z: f64) -> f64 {
    libm::erfc(-z / std::f64::consts::SQRT_2) / 2.0
}

impl Posterior {
    /// From values (less what was expected of them beforehand) with their covariances, to whose diagonal the variance of the
    /// noise of each has been added. Only the lower triangle is read. `None` where the covariances are none: not positive definite, of
    /// another size, or not finite.
    pub fn new(mut covariances: Vec<Vec<f64>>, values: &[f64]) -> Option<Posterior> {
        let n = values.len();
        if covariances.len() != n || covariances.iter().enumerate().any(|(row, entries)| entries.len() <= row)
        {
            return None;
        }
        for row in 0..n {
            for column in 0..=row {
                let dot: f64 = (0..column).map(|k| covariances[row][k] * covariances[column][k]).sum();
                let rest = covariances[row][column] - dot;
                covariances[row][column] = match row == column {
                    true if rest > 0.0 && rest.is_finite() => rest.sqrt(),
                    true => return None,
                    false => rest / covariances[column][column],
                };
            }
            covariances[row].truncate(row + 1);
        }
        let factor = covariances;
        let half = forward(&factor, values);
        let weights = backward(&factor, &half);
        let fit: f64 = half.iter().map(|value| value * value).sum();
        let size: f64 = factor.iter().enumerate().map(|(row, entries)| entries[row].ln()).sum();
        let log_likelihood = -fit / 2.0 - size - n as f64 / 2.0 * (2.0 * std::f64::consts::PI).ln();
        log_likelihood.is_finite().then_some(Posterior { factor, weights, log_likelihood })
    }

    /// How likely the measurements are with these covariances: natural logarithm of their density.
    pub fn log_likelihood(&self) -> f64 {
        self.log_likelihood
    }

    /// The value at a point, less what was expected of it beforehand: from its covariances with the measurements and its own
    /// variance.
    pub fn guess(&self, with_measured: &[f64], own: f64) -> Guess {
        let mean = with_measured.iter().zip(&self.weights).map(|(a, b)| a * b).sum();
        let known: f64 = forward(&self.factor, with_measured).iter().map(|value| value * value).sum();
        Guess { mean, sd: (own - known).max(0.0).sqrt() }
    }
}

/// Solves L x = values.
fn forward(factor: &[Vec<f64>], values: &[f64]) -> Vec<f64> {
    let mut solved: Vec<f64> = Vec::with_capacity(factor.len());
    for (row, value) in factor.iter().zip(values) {
        let dot: f64 = row.iter().zip(&solved).map(|(a, b)| a * b).sum();
        solved.push((value - dot) / row[solved.len()]);
    }
    solved
}

/// Solves Lᵀ x = values.
fn backward(factor: &[Vec<f64>], values: &[f64]) -> Vec<f64> {
    let mut solved = values.to_vec();
    for row in (0..factor.len()).rev() {
        let dot: f64 = (row + 1..factor.len()).map(|below| factor[below][row] * solved[below]).sum();
        solved[row] = (solved[row] - dot) / factor[row][row];
    }
    solved
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(a: f64, b: f64) -> f64 {
        (-(a - b).powi(2) / 2.0).exp()
    }

    fn fit(points: &[f64], values: &[f64], noise: f64) -> Posterior {
        let row = |i: usize| {
            (0..=i).map(|j| near(points[i], points[j]) + if i == j { noise } else { 0.0 }).collect()
        };
        Posterior::new((0..points.len()).map(row).collect(), values).expect("covariances")
    }

    fn guess(posterior: &Posterior, points: &[f64], at: f64) -> Guess {
        posterior.guess(&points.iter().map(|point| near(*point, at)).collect::<Vec<_>>(), 1.0)
    }

    /// By hand: one measurement of 2 with noise 1 at a point of variance 1 moves it half of the way.
    #[test]
    fn one_measurement_by_hand() {
        let posterior = fit(&[0.0], &[2.0], 1.0);
        let found = guess(&posterior, &[0.0], 0.0);
        assert!((found.mean - 1.0).abs() < 1e-12 && (found.sd - 0.5_f64.sqrt()).abs() < 1e-12, "{found:?}");
        let expected = -1.0 - 0.5 * 2.0_f64.ln() - 0.5 * (2.0 * std::f64::consts::PI).ln();
        assert!((posterior.log_likelihood() - expected).abs() < 1e-12);
    }

    #[test]
    fn far_away_nothing_is_known_and_at_a_measurement_all() {
        let points = [0.0, 1.0, 2.5];
        let posterior = fit(&points, &[1.0, -1.0, 0.5], 1e-9);
        for (point, value) in points.iter().zip([1.0, -1.0, 0.5]) {
            let found = guess(&posterior, &points, *point);
            assert!((found.mean - value).abs() < 1e-3 && found.sd < 1e-3, "{found:?}");
        }
        let far = guess(&posterior, &points, 50.0);
        assert!(far.mean.abs() < 1e-9 && (far.sd - 1.0).abs() < 1e-9, "{far:?}");
    }

    #[test]
    fn what_is_no_covariance_is_refused() {
        assert!(Posterior::new(vec![vec![1.0], vec![2.0, 1.0]], &[0.0, 0.0]).is_none());
        assert!(Posterior::new(vec![vec![f64::NAN]], &[0.0]).is_none());
        assert!(Posterior::new(vec![vec![1.0]], &[0.0, 1.0]).is_none());
        assert!(Posterior::new(vec![vec![1.0], vec![0.0]], &[0.0, 1.0]).is_none());
    }

    /// Values of the standard normal distribution in every table.
    #[test]
    fn probabilities_are_those_of_tables() {
        for (z, share) in [(0.0, 0.5), (1.0, 0.841_344_746), (1.959_963_985, 0.975), (-3.0, 0.001_349_898)] {
            assert!((normal_cdf(z) - share).abs() < 1e-8, "{z}");
        }
        let sure = Guess { mean: 1.0, sd: 0.0 };
        assert_eq!((sure.below(2.0), sure.below(0.5), sure.expected_below(3.0)), (1.0, 0.0, 2.0));
        let even = Guess { mean: 0.0, sd: 1.0 };
        assert!((even.expected_below(0.0) - 0.398_942_280).abs() < 1e-8);
    }

    proptest! {
        /// More is known with each measurement, and nothing is known worse.
        #[test]
        fn a_measurement_never_makes_less_known(points in prop::collection::vec(-3.0..3.0_f64, 2..12), at in -3.0..3.0_f64) {
            let values: Vec<f64> = points.iter().map(|point| point.sin()).collect();
            let all = fit(&points, &values, 0.1);
            let (fewer, rest) = (&points[1..], &values[1..]);
            let some = fit(fewer, rest, 0.1);
            prop_assert!(guess(&all, &points, at).sd <= guess(&some, fewer, at).sd + 1e-9);
        }

        #[test]
        fn the_factor_solves_what_it_was_made_of(points in prop::collection::vec(-3.0..3.0_f64, 1..12)) {
            let values: Vec<f64> = points.iter().map(|point| point.cos()).collect();
            let posterior = fit(&points, &values, 0.1);
            for (i, point) in points.iter().enumerate() {
                let back: f64 = points.iter().zip(&posterior.weights).map(|(other, weight)| near(*point, *other) * weight).sum();
                prop_assert!((back + 0.1 * posterior.weights[i] - values[i]).abs() < 1e-6);
            }
        }
    }
}
