//! Gaussian process regression: predicts the value at one point from measurements at nearby points.
//!
//! Source: Rasmussen and Williams, Gaussian Processes for Machine Learning (MIT Press 2006), algorithm 2.1. The caller supplies the
//! covariances, which define how near points are.

/// The posterior distribution after some measurements.
#[derive(Debug, Clone)]
pub struct Posterior {
    /// Cholesky factor of the covariance matrix of the measurements: lower triangle, by rows.
    factor: Vec<Vec<f64>>,
    /// The inverse covariance matrix multiplied by the measurements.
    weights: Vec<f64>,
    log_likelihood: f64,
}

/// The predicted distribution of a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Mean.
    pub mean: f64,
    /// Standard deviation, without measurement noise.
    pub sd: f64,
}

impl Prediction {
    /// Returns the probability that the value is below a limit.
    pub fn probability_below(&self, limit: f64) -> f64 {
        match self.sd > 0.0 {
            true => normal_cdf((limit - self.mean) / self.sd),
            false => f64::from(u8::from(self.mean < limit)),
        }
    }

    /// Returns the expected improvement over a limit: the mean amount by which the value is below the limit, where values above the
    /// limit count as 0 (Močkus 1975; Jones, Schonlau and Welch, J. Global Optim. 13 (1998) 455).
    pub fn expected_improvement(&self, limit: f64) -> f64 {
        let gain = limit - self.mean;
        if self.sd <= 0.0 {
            return gain.max(0.0);
        }
        let z = gain / self.sd;
        let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
        (gain * normal_cdf(z) + self.sd * density).max(0.0)
    }
}

/// The cumulative distribution function of the standard normal distribution.
pub fn normal_cdf(z: f64) -> f64 {
    libm::erfc(-z / std::f64::consts::SQRT_2) / 2.0
}

impl Posterior {
    /// Computes the posterior from measurements. `values` are the measurements minus their prior means. `covariances` is their covariance
    /// matrix with the noise variance added to the diagonal; only the lower triangle is read. `None` if the matrix is not positive
    /// definite, not finite, or does not have the size of `values`.
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

    /// Returns the natural logarithm of the density of the measurements under these covariances.
    pub fn log_likelihood(&self) -> f64 {
        self.log_likelihood
    }

    /// Predicts the value at a point, minus its prior mean. `with_measured` contains the covariances with the measurements; `variance`
    /// is the prior variance at the point.
    pub fn predict(&self, with_measured: &[f64], variance: f64) -> Prediction {
        let mean = with_measured.iter().zip(&self.weights).map(|(a, b)| a * b).sum();
        let known: f64 = forward(&self.factor, with_measured).iter().map(|value| value * value).sum();
        Prediction { mean, sd: (variance - known).max(0.0).sqrt() }
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

    fn predict(posterior: &Posterior, points: &[f64], at: f64) -> Prediction {
        posterior.predict(&points.iter().map(|point| near(*point, at)).collect::<Vec<_>>(), 1.0)
    }

    /// A measurement of 2 with noise variance 1, at a point with prior variance 1, moves the mean halfway from 0 to 2.
    #[test]
    fn posterior_of_one_measurement_agrees_with_a_manual_calculation() {
        let posterior = fit(&[0.0], &[2.0], 1.0);
        let found = predict(&posterior, &[0.0], 0.0);
        assert!((found.mean - 1.0).abs() < 1e-12 && (found.sd - 0.5_f64.sqrt()).abs() < 1e-12, "{found:?}");
        let expected = -1.0 - 0.5 * 2.0_f64.ln() - 0.5 * (2.0 * std::f64::consts::PI).ln();
        assert!((posterior.log_likelihood() - expected).abs() < 1e-12);
    }

    #[test]
    fn prediction_is_the_value_at_a_measurement_and_the_prior_far_away() {
        let points = [0.0, 1.0, 2.5];
        let posterior = fit(&points, &[1.0, -1.0, 0.5], 1e-9);
        for (point, value) in points.iter().zip([1.0, -1.0, 0.5]) {
            let found = predict(&posterior, &points, *point);
            assert!((found.mean - value).abs() < 1e-3 && found.sd < 1e-3, "{found:?}");
        }
        let far = predict(&posterior, &points, 50.0);
        assert!(far.mean.abs() < 1e-9 && (far.sd - 1.0).abs() < 1e-9, "{far:?}");
    }

    #[test]
    fn invalid_covariances_are_rejected() {
        assert!(Posterior::new(vec![vec![1.0], vec![2.0, 1.0]], &[0.0, 0.0]).is_none());
        assert!(Posterior::new(vec![vec![f64::NAN]], &[0.0]).is_none());
        assert!(Posterior::new(vec![vec![1.0]], &[0.0, 1.0]).is_none());
        assert!(Posterior::new(vec![vec![1.0], vec![0.0]], &[0.0, 1.0]).is_none());
    }

    /// The expected values are from tables of the standard normal distribution.
    #[test]
    fn probabilities_agree_with_tables() {
        for (z, share) in [(0.0, 0.5), (1.0, 0.841_344_746), (1.959_963_985, 0.975), (-3.0, 0.001_349_898)] {
            assert!((normal_cdf(z) - share).abs() < 1e-8, "{z}");
        }
        let sure = Prediction { mean: 1.0, sd: 0.0 };
        assert_eq!(
            (sure.probability_below(2.0), sure.probability_below(0.5), sure.expected_improvement(3.0)),
            (1.0, 0.0, 2.0)
        );
        let even = Prediction { mean: 0.0, sd: 1.0 };
        assert!((even.expected_improvement(0.0) - 0.398_942_280).abs() < 1e-8);
    }

    proptest! {
        #[test]
        fn more_measurements_never_increase_the_deviation(points in prop::collection::vec(-3.0..3.0_f64, 2..12), at in -3.0..3.0_f64) {
            let values: Vec<f64> = points.iter().map(|point| point.sin()).collect();
            let all = fit(&points, &values, 0.1);
            let (fewer, rest) = (&points[1..], &values[1..]);
            let some = fit(fewer, rest, 0.1);
            prop_assert!(predict(&all, &points, at).sd <= predict(&some, fewer, at).sd + 1e-9);
        }

        #[test]
        fn weights_solve_the_covariance_system(points in prop::collection::vec(-3.0..3.0_f64, 1..12)) {
            let values: Vec<f64> = points.iter().map(|point| point.cos()).collect();
            let posterior = fit(&points, &values, 0.1);
            for (i, point) in points.iter().enumerate() {
                let back: f64 = points.iter().zip(&posterior.weights).map(|(other, weight)| near(*point, *other) * weight).sum();
                prop_assert!((back + 0.1 * posterior.weights[i] - values[i]).abs() < 1e-6);
            }
        }
    }
}
