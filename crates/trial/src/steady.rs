//! When a target has warmed up: nothing that is measured changes its level any more.
//!
//! Virtual machines do not always become steady, and what they do before they are says little of what they do later (Barrett et al.,
//! Virtual Machine Warmup Blows Hot and Cold, OOPSLA 2017). So warm-up has no fixed length: it ends when the two halves of the last
//! seconds have the same level. A window whose halves differ after all does not count. Levels are medians, and differ where that
//! matters and is more than the noise of seconds explains; tests by ranks (Pettitt's, Mann and Kendall's) find nothing in ten seconds,
//! however far their halves are apart.

use beamtune_stats::{SD_OF_MAD, median};

/// So many seconds without any change end the warm-up.
pub const STEADY_SECONDS: usize = 10;
/// A change of CPU time per answer within the seconds that are looked at matters from this share on (judgement: a third of the
/// smallest effect that people ask for is 3 %, and seconds are ten times as noisy as windows).
const CPU_CHANGE: f64 = 0.10;
/// The same of resident memory, which is less noisy, and in many targets grows for as long as they run.
const MEMORY_CHANGE: f64 = 0.05;
/// Halves differ by more than noise if it is by so many standard errors: one steady window in 370 is taken for another.
const STANDARD_ERRORS: f64 = 3.0;
/// The standard error of a median of n values, in standard deviations over √n.
const ERROR_OF_MEDIAN: f64 = 1.2533;

/// One second of a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Second {
    /// CPU time of the VM in it.
    pub cpu_ns: f64,
    /// Right answers in it.
    pub done: u64,
    /// Resident memory of the VM at its end.
    pub rss_bytes: f64,
}

/// Whether the last [`STEADY_SECONDS`] are steady; `false` while there are fewer.
pub fn is_steady(seconds: &[Second]) -> bool {
    let Some(begin) = seconds.len().checked_sub(STEADY_SECONDS) else { return false };
    change(&seconds[begin..]).is_none()
}

/// What changed within these seconds, for people; `None` where nothing did.
pub fn change(seconds: &[Second]) -> Option<String> {
    let answered = seconds.iter().filter(|second| second.done > 0).count();
    if answered * 2 < seconds.len() {
        return Some(format!("{} of {} seconds had no answer", seconds.len() - answered, seconds.len()));
    }
    // Halves of fewer are nothing but noise.
    if seconds.len() < STEADY_SECONDS {
        return None;
    }
    let values = |value: fn(&Second) -> Option<f64>| seconds.iter().filter_map(value).collect::<Vec<f64>>();
    let per_answer = values(|second| (second.done > 0).then(|| second.cpu_ns / second.done as f64));
    let memory = values(|second| Some(second.rss_bytes));
    let told =
        |what: &str, by: f64| format!("{what} changed by {:+.0} % within {} s", by * 100.0, seconds.len());
    if let Some(by) = changed(&per_answer, CPU_CHANGE) {
        return Some(told("CPU time per answer", by));
    }
    changed(&memory, MEMORY_CHANGE).map(|by| told("resident memory", by))
}

/// By which share the level of the second half differs from that of the first, if by more than `least` and by more than noise.
fn changed(values: &[f64], least: f64) -> Option<f64> {
    let (first, second) = values.split_at(values.len() / 2);
    let (before, after) = (median(first)?, median(second)?);
    let variance = |half: &[f64], level: f64| {
        let distances: Vec<f64> = half.iter().map(|value| (value - level).abs()).collect();
        let sd = SD_OF_MAD * ERROR_OF_MEDIAN * median(&distances)?;
        Some(sd * sd / half.len() as f64)
    };
    let error = (variance(first, before)? + variance(second, after)?).sqrt();
    let by = after - before;
    (by.abs() > (least * before).max(STANDARD_ERRORS * error)).then(|| by / before)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(cpu: impl Fn(usize) -> f64, rss: impl Fn(usize) -> f64, count: usize) -> Vec<Second> {
        (0..count).map(|at| Second { cpu_ns: 1e5 * cpu(at), done: 1_000, rss_bytes: 1e8 * rss(at) }).collect()
    }

    /// Noise of 5 %, the same in each run.
    fn noise(at: usize) -> f64 {
        [0.98, 1.03, 0.95, 1.01, 1.05, 0.97, 1.0, 1.02, 0.96, 1.04, 0.99][at % 11]
    }

    #[test]
    fn noise_is_steady_and_what_changes_is_not() {
        assert!(is_steady(&seconds(noise, |_| 1.0, 12)));
        assert!(!is_steady(&seconds(noise, |_| 1.0, STEADY_SECONDS - 1)), "too few seconds to tell");
        let check = |seconds: &[Second], expect: &str| {
            let told = change(seconds).unwrap_or_default();
            assert!(told.contains(expect), "{told:?}, not {expect:?}");
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
    fn fewer_seconds_do_not_tell() {
        let rising = seconds(|at| 1.0 + 0.5 * at as f64, |_| 1.0, STEADY_SECONDS);
        assert!(change(&rising).is_some());
        assert_eq!(change(&rising[1..]), None);
    }

    #[test]
    fn small_changes_do_not_matter() {
        assert_eq!(
            change(&seconds(|at| noise(at) * (1.0 + 0.004 * at as f64), |at| 1.0 + 0.002 * at as f64, 12)),
            None
        );
    }

    #[test]
    fn a_target_that_does_not_answer_is_not_steady() {
        let mut silent = seconds(noise, |_| 1.0, 12);
        silent.iter_mut().take(7).for_each(|second| second.done = 0);
        assert_eq!(change(&silent).as_deref(), Some("7 of 12 seconds had no answer"));
    }
}
