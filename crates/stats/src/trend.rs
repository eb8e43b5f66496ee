//! Trends: whether a series grows (Mann-Kendall test), and how fast (Theil-Sen slope).
//!
//! Both are rank methods: one spike or one stall has little influence, and no noise distribution is assumed. The p value
//! is too small for autocorrelated points such as queue lengths, so callers also require a minimum growth.
//!
//! Sources: Mann, Econometrica 13 (1945) 245; Kendall, Rank Correlation Methods (1975), variance with ties; Sen, J. Am.
//! Stat. Assoc. 63 (1968) 1379, slope and its interval.

use crate::median::median_of_sorted;

/// The trend of a series of points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// Median of the slopes of all pairs of points, in units of y per unit of x.
    pub slope: f64,
    /// Lower end of the slope's 95 % confidence interval.
    pub low: f64,
    /// Upper end of the slope's 95 % confidence interval.
    pub high: f64,
    /// Two-sided p value of the hypothesis "no trend", by the normal approximation.
    pub p: f64,
}

/// Minimum number of points for the normal approximation (Kendall 1975).
pub const MIN_POINTS: usize = 8;

/// 97.5 % quantile of the normal distribution.
const Z_95: f64 = 1.959_963_985;

/// Computes the trend of points `(x, y)`. `None` if there are fewer than [`MIN_POINTS`] distinct x, or if a value is not
/// finite. Time and memory are quadratic in the number of points.
pub fn trend(points: &[(f64, f64)]) -> Option<Trend> {
    if points.iter().any(|(x, y)| !x.is_finite() || !y.is_finite()) {
        return None;
    }
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    sorted.dedup_by(|b, a| a.0 == b.0);
    let n = sorted.len();
    if n < MIN_POINTS {
        return None;
    }

    let mut slopes = Vec::with_capacity(n * (n - 1) / 2);
    let mut s = 0.0_f64;
    for (i, a) in sorted.iter().enumerate() {
        for b in &sorted[i + 1..] {
            let rise = b.1 - a.1;
            slopes.push(rise / (b.0 - a.0));
            if rise != 0.0 {
                s += rise.signum();
            }
        }
    }
    slopes.sort_by(f64::total_cmp);

    let deviation = variance_of_s(&sorted).sqrt();
    let p = if deviation > 0.0 {
        // The continuity correction moves S one step towards zero.
        let z = (s.abs() - 1.0).max(0.0) / deviation;
        2.0 * upper_tail(z)
    } else {
        1.0
    };
    // Sen's interval ends at the slopes whose ranks have this distance from the middle.
    let count = slopes.len() as f64;
    let reach = Z_95 * deviation;
    let rank = |r: f64| slopes[(r.max(0.0) as usize).min(slopes.len() - 1)];
    Some(Trend {
        slope: median_of_sorted(&slopes),
        low: rank(((count - reach) / 2.0).floor() - 1.0),
        high: rank(((count + reach) / 2.0).ceil()),
        p,
    })
}

/// Returns the variance of Kendall's S if there is no trend, with the correction for tied values.
fn variance_of_s(points: &[(f64, f64)]) -> f64 {
    let term = |n: f64| n * (n - 1.0) * (2.0 * n + 5.0);
    let mut values: Vec<f64> = points.iter().map(|p| p.1).collect();
    values.sort_by(f64::total_cmp);
    let ties: f64 = values.chunk_by(|a, b| a == b).map(|group| term(group.len() as f64)).sum();
    ((term(points.len() as f64) - ties) / 18.0).max(0.0)
}

/// Computes P(Z > z) for z ≥ 0 (Abramowitz and Stegun 26.2.17), with an absolute error below 7.5e-8.
fn upper_tail(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let poly = t
        * (0.319_381_530
            + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    poly * (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(n: usize, slope: f64) -> Vec<(f64, f64)> {
        (0..n).map(|i| (i as f64, 5.0 + slope * i as f64)).collect()
    }

    #[test]
    fn interval_of_a_straight_line_contains_only_its_slope() {
        let trend = trend(&line(20, 3.0)).expect("enough points");
        assert_eq!((trend.slope, trend.low, trend.high), (3.0, 3.0, 3.0));
        assert!(trend.p < 1e-6, "{}", trend.p);
    }

    #[test]
    fn single_spike_is_not_a_trend() {
        let mut points = line(20, 0.0);
        points[19].1 = 1e9;
        let trend = trend(&points).expect("enough points");
        assert_eq!(trend.slope, 0.0);
        assert!(trend.p > 0.05, "{}", trend.p);
    }

    #[test]
    fn too_few_points_or_nan_have_no_trend() {
        assert_eq!(trend(&line(7, 1.0)), None);
        assert_eq!(trend(&vec![(1.0, 2.0); 30]), None, "one instant only");
        let mut points = line(10, 1.0);
        points[3].1 = f64::NAN;
        assert_eq!(trend(&points), None);
    }

    #[test]
    fn constant_series_has_no_trend() {
        let trend = trend(&line(30, 0.0)).expect("enough points");
        assert_eq!((trend.slope, trend.p), (0.0, 1.0));
    }

    /// The expected values are from tables: P(Z > 1.96) = 0.0250, P(Z > 2.5758) = 0.0050.
    #[test]
    fn upper_tail_agrees_with_tables() {
        for (z, expect) in [(0.0, 0.5), (1.0, 0.158_655), (1.959_964, 0.025), (2.575_829, 0.005)] {
            assert!((upper_tail(z) - expect).abs() < 1e-5, "P(Z > {z}) = {}", upper_tail(z));
        }
    }

    /// Simulates error rate and coverage with 12 points, about as many as in a diagnosis of ten seconds.
    #[test]
    fn false_positive_rate_and_coverage_are_nominal() {
        // A linear congruential generator (Knuth's MMIX constants) makes the test repeatable.
        let mut state = 12_345_u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let (mut alarms, mut covered) = (0, 0);
        let runs = 2_000;
        for _ in 0..runs {
            let noise: Vec<_> = (0..12).map(|i| (f64::from(i), uniform())).collect();
            alarms += u32::from(trend(&noise).expect("enough points").p < 0.05);
            let slope: Vec<_> = (0..12).map(|i| (f64::from(i), 0.3 * f64::from(i) + uniform())).collect();
            let trend = trend(&slope).expect("enough points");
            covered += u32::from(trend.low <= 0.3 && 0.3 <= trend.high);
        }
        let (alarms, covered) = (f64::from(alarms) / f64::from(runs), f64::from(covered) / f64::from(runs));
        assert!(alarms < 0.065, "false positives in a share of {alarms} of the runs");
        assert!(covered > 0.93, "interval contains the slope in a share of {covered} of the runs");
    }

    proptest! {
        #[test]
        fn slope_is_within_its_interval(ys in prop::collection::vec(-1e6..1e6_f64, 8..60)) {
            let points: Vec<_> = ys.iter().enumerate().map(|(i, y)| (i as f64, *y)).collect();
            let trend = trend(&points).expect("enough points");
            prop_assert!(trend.low <= trend.slope && trend.slope <= trend.high, "{trend:?}");
            prop_assert!((0.0..=1.0).contains(&trend.p), "{trend:?}");
        }

        #[test]
        fn reversing_x_negates_the_slope(ys in prop::collection::vec(-1e3..1e3_f64, 8..40)) {
            let points: Vec<_> = ys.iter().enumerate().map(|(i, y)| (i as f64, *y)).collect();
            let mirrored: Vec<_> = points.iter().map(|(x, y)| (-x, *y)).collect();
            let (a, b) = (trend(&points).expect("points"), trend(&mirrored).expect("points"));
            prop_assert!((a.slope + b.slope).abs() < 1e-9);
            prop_assert!((a.p - b.p).abs() < 1e-12);
        }
    }
}
