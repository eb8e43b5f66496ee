//! Daily patterns: detects series whose variance is largely explained by the hour of the day.
//!
//! This is a one-way analysis of variance over the 24 hours, after the linear trend is removed. The effect size is ε² (Kelley, PNAS 21
//! (1935) 554): the share of the variance that the hourly means explain, minus the share that 24 means would explain of pure noise.
//! Slow noise also has hourly means that differ, so the means of the first and the second half of the days must agree.

use crate::trend::trend;

const DAY_S: f64 = 86_400.0;
const HOURS: usize = 24;

/// Minimum length: a pattern can repeat only within two days or more.
const MIN_DAYS: f64 = 2.0;
/// Minimum share of the variance that the hours must explain (chosen by judgement).
const MIN_SHARE: f64 = 0.5;
/// Minimum correlation between the hourly means of the first and the second half of the days (chosen by judgement).
const MIN_AGREEMENT: f64 = 0.5;

/// A pattern that repeats each day.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Daily {
    /// Difference between the highest and the lowest hourly mean, in units of y.
    pub swing: f64,
    /// The hour with the highest mean, from 0 to 23, in the time zone of x.
    pub peak_hour: u32,
    /// The hour with the lowest mean, from 0 to 23, in the time zone of x.
    pub low_hour: u32,
    /// Share of the variance that the hours explain, from 0 to 1.
    pub share: f64,
}

/// Finds the daily pattern of points `(x, y)`, with x in seconds since a midnight. `None` if there is no pattern, if the points span
/// less than two days, or if an hour of the day has no points.
pub fn daily(points: &[(f64, f64)]) -> Option<Daily> {
    let (first, last) = (points.first()?.0, points.last()?.0);
    if last - first < MIN_DAYS * DAY_S || points.len() < 2 * HOURS {
        return None;
    }
    let slope = trend(points)?.slope;
    let flat: Vec<(f64, f64)> = points.iter().map(|(x, y)| (*x, y - slope * (x - first))).collect();
    let all = HourlySums::new(flat.iter().copied());
    let mean = flat.iter().map(|point| point.1).sum::<f64>() / flat.len() as f64;
    let variance: f64 = flat.iter().map(|point| (point.1 - mean).powi(2)).sum();
    let known: Vec<(usize, f64)> = all.means().collect();
    if variance <= 0.0 || known.len() < HOURS {
        return None;
    }
    let between: f64 =
        known.iter().map(|(hour, hour_mean)| all.counts[*hour] * (hour_mean - mean).powi(2)).sum();
    let within = (variance - between) / (flat.len() - HOURS) as f64;
    let share = ((between - (HOURS - 1) as f64 * within) / variance).clamp(0.0, 1.0);
    let middle = f64::midpoint(first, last);
    let agreement = correlation(
        &HourlySums::new(flat.iter().copied().filter(|point| point.0 < middle)),
        &HourlySums::new(flat.iter().copied().filter(|point| point.0 >= middle)),
    )?;
    let high = known.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let low = known.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    (share >= MIN_SHARE && agreement >= MIN_AGREEMENT).then_some(Daily {
        swing: high.1 - low.1,
        peak_hour: high.0 as u32,
        low_hour: low.0 as u32,
        share,
    })
}

#[derive(Default)]
struct HourlySums {
    sums: [f64; HOURS],
    counts: [f64; HOURS],
}

impl HourlySums {
    fn new(points: impl Iterator<Item = (f64, f64)>) -> HourlySums {
        let mut hours = HourlySums::default();
        for (x, y) in points {
            let hour = ((x.rem_euclid(DAY_S) / 3_600.0) as usize).min(HOURS - 1);
            hours.sums[hour] += y;
            hours.counts[hour] += 1.0;
        }
        hours
    }

    fn means(&self) -> impl Iterator<Item = (usize, f64)> {
        (0..HOURS)
            .filter(|hour| self.counts[*hour] > 0.0)
            .map(|hour| (hour, self.sums[hour] / self.counts[hour]))
    }
}

/// Returns Pearson's correlation of the hourly means, over the hours that both halves have.
fn correlation(a: &HourlySums, b: &HourlySums) -> Option<f64> {
    let pairs: Vec<(f64, f64)> = a
        .means()
        .filter(|(hour, _)| b.counts[*hour] > 0.0)
        .map(|(hour, mean)| (mean, b.sums[hour] / b.counts[hour]))
        .collect();
    let n = pairs.len() as f64;
    let (x, y) = pairs.iter().fold((0.0, 0.0), |(x, y), pair| (x + pair.0 / n, y + pair.1 / n));
    let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
    for pair in &pairs {
        xy += (pair.0 - x) * (pair.1 - y);
        xx += (pair.0 - x).powi(2);
        yy += (pair.1 - y).powi(2);
    }
    (xx > 0.0 && yy > 0.0).then(|| xy / (xx * yy).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::TAU;

    fn days(days: usize, value: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        (0..days * 96).map(|quarter| quarter as f64 * 900.0).map(|x| (x, value(x))).collect()
    }

    #[test]
    fn daily_pattern_is_found_despite_a_linear_trend() {
        let found = daily(&days(3, |x| 100.0 + x / 1_000.0 + 50.0 * ((x / DAY_S - 0.25) * TAU).sin()));
        let found = found.expect("a pattern");
        assert!(found.share > 0.9, "{found:?}");
        assert!((11..=12).contains(&found.peak_hour) && matches!(found.low_hour, 0 | 23), "{found:?}");
        assert!((90.0..110.0).contains(&found.swing), "{found:?}");
    }

    #[test]
    fn other_periods_lines_and_short_series_have_no_daily_pattern() {
        assert_eq!(daily(&days(4, |x| (x / 100_000.0 * TAU).sin())), None);
        assert_eq!(daily(&days(4, |x| x)), None);
        assert_eq!(daily(&days(4, |_| 7.0)), None);
        assert_eq!(daily(&days(1, |x| (x / DAY_S * TAU).sin())), None);
        assert_eq!(daily(&[]), None);
    }

    #[test]
    fn single_unusual_day_is_not_a_pattern() {
        assert_eq!(daily(&days(4, |x| if (100_000.0..120_000.0).contains(&x) { 1.0 } else { 0.0 })), None);
    }
}
