//! Steady state: whether the target has warmed up.
//!
//! Virtual machines do not always reach a steady state, and their behaviour during the warm-up does not predict their steady state
//! (Barrett et al., Virtual Machine Warmup Blows Hot and Cold, OOPSLA 2017). The warm-up therefore has no fixed length: it ends when both
//! halves of the last seconds have the same level. A window whose halves differ is invalid. A level is a median; two levels differ if
//! the difference is relevant and exceeds the noise. Rank tests (Pettitt, Mann-Kendall) cannot find a change in ten points, even if the
//! halves are far apart.

use beamtune_stats::{SD_OF_MAD, median};

/// The warm-up ends after this number of seconds without a change.
pub const STEADY_SECONDS: usize = 10;
/// Maximum relative change of CPU time per answer between the halves (chosen by judgement: a third of the smallest effect of interest is
/// 3 %, and single seconds are ten times as noisy as windows).
const MAX_CPU_CHANGE: f64 = 0.10;
/// Maximum relative change of resident memory, which is less noisy and, in many targets, never stops growing.
const MAX_MEMORY_CHANGE: f64 = 0.05;
/// Minimum number of standard errors of a difference that exceeds the noise: one steady window in 370 is rejected.
const MIN_STANDARD_ERRORS: f64 = 3.0;
/// Standard error of the median of n values, in units of the standard deviation divided by √n.
const ERROR_OF_MEDIAN: f64 = 1.2533;

/// One second of a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Second {
    /// CPU time of the VM in this second.
    pub cpu_ns: f64,
    /// Correct answers in this second.
    pub done: u64,
    /// Resident memory of the VM at the end of this second.
    pub rss_bytes: f64,
}

/// Whether the last [`STEADY_SECONDS`] are steady; `false` if there are fewer seconds.
pub fn is_steady(seconds: &[Second]) -> bool {
    let Some(begin) = seconds.len().checked_sub(STEADY_SECONDS) else { return false };
    change(&seconds[begin..]).is_none()
}

/// Describes what changed within these seconds; `None` if nothing changed.
pub fn change(seconds: &[Second]) -> Option<String> {
    let answered = seconds.iter().filter(|second| second.done > 0).count();
    if answered * 2 < seconds.len() {
        return Some(format!("{} of {} seconds had no answer", seconds.len() - answered, seconds.len()));
    }
    // With fewer seconds, the medians of the halves are too noisy.
    if seconds.len() < STEADY_SECONDS {
        return None;
    }
    let values = |value: fn(&Second) -> Option<f64>| seconds.iter().filter_map(value).collect::<Vec<f64>>();
    let per_answer = values(|second| (second.done > 0).then(|| second.cpu_ns / second.done as f64));
    let memory = values(|second| Some(second.rss_bytes));
    let describe =
        |what: &str, by: f64| format!("{what} changed by {:+.0} % within {} s", by * 100.0, seconds.len());
    if let Some(by) = relative_change(&per_answer, MAX_CPU_CHANGE) {
        return Some(describe("CPU time per answer", by));
    }
    relative_change(&memory, MAX_MEMORY_CHANGE).map(|by| describe("resident memory", by))
}

/// Returns the relative change from the first to the second half, if it exceeds both `max_change` and the noise.
fn relative_change(values: &[f64], max_change: f64) -> Option<f64> {
    let (first, second) = values.split_at(values.len() / 2);
    let (before, after) = (median(first)?, median(second)?);
    let variance = |half: &[f64], level: f64| {
        let distances: Vec<f64> = half.iter().map(|value| (value - level).abs()).collect();
        let sd = SD_OF_MAD * ERROR_OF_MEDIAN * median(&distances)?;
        Some(sd * sd / half.len() as f64)
    };
    let error = (variance(first, before)? + variance(second, after)?).sqrt();
    let by = after - before;
    (by.abs() > (max_change * before).max(MIN_STANDARD_ERRORS * error)).then(|| by / before)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(cpu: impl Fn(usize) -> f64, rss: impl Fn(usize) -> f64, count: usize) -> Vec<Second> {
        (0..count).map(|at| Second { cpu_ns: 1e5 * cpu(at), done: 1_000, rss_bytes: 1e8 * rss(at) }).collect()
    }

    /// Noise of up to 5 %.
    fn noise(at: usize) -> f64 {
        [0.98, 1.03, 0.95, 1.01, 1.05, 0.97, 1.0, 1.02, 0.96, 1.04, 0.99][at % 11]
    }

    #[test]
    fn noise_is_steady_but_a_change_is_not() {
        assert!(is_steady(&seconds(noise, |_| 1.0, 12)));
        assert!(!is_steady(&seconds(noise, |_| 1.0, STEADY_SECONDS - 1)), "too few seconds");
        let check = |seconds: &[Second], expect: &str| {
            let found = change(seconds).unwrap_or_default();
            assert!(found.contains(expect), "{found:?}, not {expect:?}");
        };
        check(
            &seconds(|at| noise(at) * if at < 6 { 1.5 } else { 1.0 }, |_| 1.0, 12),
            "CPU time per answer changed by -3",
        );
        check(
            &seconds(|at| noise(at) * (1.0 + 0.05 * at as f64), |_| 1.0, 12),
            "CPU time per answer changed by +",
        );
        check(
            &seconds(noise, |at| 1.0 + 0.02 * at as f64, 12),
            "resident memory changed by +11 % within 12 s",
        );
    }

    #[test]
    fn too_few_seconds_show_no_change() {
        let rising = seconds(|at| 1.0 + 0.5 * at as f64, |_| 1.0, STEADY_SECONDS);
        assert!(change(&rising).is_some());
        assert_eq!(change(&rising[1..]), None);
    }

    #[test]
    fn small_changes_are_ignored() {
        assert_eq!(
            change(&seconds(|at| noise(at) * (1.0 + 0.004 * at as f64), |at| 1.0 + 0.002 * at as f64, 12)),
            None
        );
    }

    #[test]
    fn target_without_answers_is_not_steady() {
        let mut silent = seconds(noise, |_| 1.0, 12);
        silent.iter_mut().take(7).for_each(|second| second.done = 0);
        assert_eq!(change(&silent).as_deref(), Some("7 of 12 seconds had no answer"));
    }
}
