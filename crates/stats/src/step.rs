//! Change points: finds the time at which the level of a series changed, by Pettitt's test.
//!
//! This is a rank test: one spike has little influence, and no noise distribution is assumed. The test also finds a change point in
//! the middle of steady growth, so a step is reported only if two levels fit the points better than a line.
//!
//! Source: Pettitt, Applied Statistics 28 (1979) 126.

use crate::median::median;
use crate::trend::{self, trend};

/// A change from one level to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// The x of the first point after the change.
    pub at: f64,
    /// Median of the points before the change.
    pub before: f64,
    /// Median of the points after the change.
    pub after: f64,
    /// Two-sided p value of the hypothesis "no change", by Pettitt's approximation.
    pub p: f64,
}

/// Maximum residuals of the two levels, as a share of the residuals of a line (chosen by judgement).
const MAX_RESIDUAL_SHARE: f64 = 0.5;

/// Finds the step in points `(x, y)`, ordered by x. `None` if there are fewer than [`trend::MIN_POINTS`] points, if the change is not
/// significant at 1 %, if a line fits nearly as well, or if a value is not finite.
pub fn step(points: &[(f64, f64)]) -> Option<Step> {
    let n = points.len();
    if n < trend::MIN_POINTS || points.iter().any(|(x, y)| !x.is_finite() || !y.is_finite()) {
        return None;
    }
    // U(k) = 2 R(k) − k (n + 1), where R(k) is the sum of the first k ranks.
    let ranks = ranks(points);
    let (mut sum, mut best, mut at) = (0.0_f64, 0.0_f64, 0);
    for (index, rank) in ranks.iter().enumerate().take(n - 1) {
        sum += rank;
        let count = (index + 1) as f64;
        let u = (2.0 * sum - count * (n as f64 + 1.0)).abs();
        if u > best {
            (best, at) = (u, index + 1);
        }
    }
    let size = n as f64;
    let p = (2.0 * (-6.0 * best * best / (size.powi(3) + size.powi(2))).exp()).min(1.0);
    let (first, second) = points.split_at(at);
    let level = |part: &[(f64, f64)]| median(&part.iter().map(|point| point.1).collect::<Vec<f64>>());
    let (before, after) = (level(first)?, level(second)?);
    let residual =
        |part: &[(f64, f64)], level: f64| part.iter().map(|point| (point.1 - level).abs()).sum::<f64>();
    let of_step = residual(first, before) + residual(second, after);
    (p < 0.01 && of_step < MAX_RESIDUAL_SHARE * residual_of_line(points)?).then_some(Step {
        at: second.first()?.0,
        before,
        after,
        p,
    })
}

/// Returns the ranks of the values, from 1; tied values have the mean of their ranks.
fn ranks(points: &[(f64, f64)]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|a, b| points[*a].1.total_cmp(&points[*b].1));
    let mut ranks = vec![0.0; points.len()];
    let mut begin = 0;
    for group in order.chunk_by(|a, b| points[*a].1 == points[*b].1) {
        let rank = begin as f64 + (group.len() as f64 + 1.0) / 2.0;
        group.iter().for_each(|index| ranks[*index] = rank);
        begin += group.len();
    }
    ranks
}

/// Returns the sum of the absolute residuals of the Theil-Sen line.
fn residual_of_line(points: &[(f64, f64)]) -> Option<f64> {
    let slope = trend(points)?.slope;
    let offsets: Vec<f64> = points.iter().map(|(x, y)| y - slope * x).collect();
    let offset = median(&offsets)?;
    Some(offsets.iter().map(|value| (value - offset).abs()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn points(values: impl IntoIterator<Item = f64>) -> Vec<(f64, f64)> {
        values.into_iter().enumerate().map(|(x, y)| (x as f64, y)).collect()
    }

    /// Returns pseudo-random numbers from -0.5 to 0.5.
    fn noise(n: usize) -> impl Iterator<Item = f64> {
        (0..n).scan(7_u64, |state, _| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            Some((*state >> 40) as f64 / f64::from(1 << 24) - 0.5)
        })
    }

    #[test]
    fn step_is_found_at_its_position() {
        let found = step(&points(noise(60).enumerate().map(|(x, y)| y + if x < 25 { 10.0 } else { 20.0 })));
        let found = found.expect("a step");
        assert_eq!(found.at, 25.0);
        assert!((found.before - 10.0).abs() < 0.5 && (found.after - 20.0).abs() < 0.5, "{found:?}");
    }

    #[test]
    fn lines_noise_and_spikes_are_not_steps() {
        assert_eq!(step(&points((0..60).map(f64::from))), None);
        assert_eq!(step(&points(noise(60))), None);
        assert_eq!(step(&points((0..60).map(|x| if x == 30 { 1e9 } else { 5.0 }))), None);
        assert_eq!(step(&points([1.0, 9.0, 9.0])), None);
        assert_eq!(step(&points([f64::NAN; 20])), None);
    }

    proptest! {
        #[test]
        fn arbitrary_points_do_not_panic(values in proptest::collection::vec(-1e12..1e12_f64, 0..80)) {
            if let Some(step) = step(&points(values.clone())) {
                prop_assert!(step.at > 0.0 && step.at < values.len() as f64);
                prop_assert!((0.0..0.01).contains(&step.p));
            }
        }

        #[test]
        fn position_of_a_step_is_invariant_under_shift_and_scale(shift in -1e6..1e6_f64, scale in 0.01..100.0_f64) {
            let values = noise(40).enumerate().map(|(x, y)| y + if x < 10 { 0.0 } else { 8.0 });
            let found = step(&points(values.map(|y| y * scale + shift))).expect("a step");
            prop_assert_eq!(found.at, 10.0);
        }
    }
}
