//! Turns the result of another load generator into the answers of a window.

use std::collections::BTreeMap;

use beamtune_model::load::{LoadResult, LoadSecond};
use beamtune_model::study;
use beamtune_stats::median;

use crate::measure::Answers;

/// The part of a result that counts.
#[derive(Debug, PartialEq)]
pub enum Told<'r> {
    /// The whole run: the result has no seconds.
    Whole,
    /// The last seconds, without the one in which the run ended.
    Seconds(&'r [LoadSecond]),
    /// The result has only this number of seconds, fewer than the window.
    TooFew(usize),
}

/// The last `window_s` seconds of a result.
pub fn last_seconds(result: &LoadResult, window_s: u32) -> Told<'_> {
    // Seconds before 0 only open connections; seconds after the end only receive late answers.
    let is_within =
        |second: &LoadSecond| second.second >= 0 && (second.second + 1) as f64 <= result.length_s + 0.5;
    let begin = result.seconds.iter().position(is_within).unwrap_or(0);
    let end = result.seconds.iter().rposition(is_within).unwrap_or(0);
    match end.checked_sub(window_s as usize).filter(|first| *first >= begin) {
        _ if result.seconds.is_empty() => Told::Whole,
        Some(first) => result.seconds.get(first..end).map_or(Told::TooFew(0), Told::Seconds),
        None => Told::TooFew(end - begin),
    }
}

/// The answers of these seconds of a result.
pub fn of_seconds(seconds: &[LoadSecond]) -> Answers {
    // The percentiles of the whole run would include its warm-up.
    let mut percentiles_ns = BTreeMap::new();
    let mut set_median = |quantity: study::Quantity, value: fn(&LoadSecond) -> Option<u64>| {
        let values: Vec<f64> = seconds.iter().filter_map(value).map(|value| value as f64).collect();
        // Percentiles cannot be merged, so the median of the seconds is taken.
        if let Some(value) = median(&values) {
            percentiles_ns.insert(quantity.name.to_owned(), value as u64);
        }
    };
    set_median(study::P50, |second| second.p50_ns);
    set_median(study::P99, |second| second.p99_ns);
    let (first, last) =
        (seconds.first().map_or(0, |it| it.second), seconds.last().map_or(0, |it| it.second + 1));
    Answers {
        seconds: (last - first) as f64,
        done: seconds.iter().map(|second| second.done).sum(),
        errors: seconds.iter().map(|second| second.errors).sum(),
        percentiles_ns,
        run: None,
    }
}

/// The answers of a whole run of this duration.
pub fn of_run(result: &LoadResult, seconds: f64) -> Answers {
    let percentiles_ns = percentiles(result);
    Answers { seconds, done: result.done(), errors: result.errors(), percentiles_ns, run: None }
}

/// Percentiles of the whole run, from its most frequent step: percentiles of several steps cannot be merged.
fn percentiles(result: &LoadResult) -> BTreeMap<String, u64> {
    let times = result.steps.iter().filter(|step| step.counts()).filter_map(|step| {
        let times = step.response.as_ref().or(step.service.as_ref())?;
        Some((step.done, times))
    });
    times.max_by_key(|(done, _)| *done).map(|(_, times)| times.percentiles_ns.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten seconds with ten answers each, and a p99 that rises by a microsecond each second.
    fn result() -> LoadResult {
        let second = |second: i64| LoadSecond {
            p99_ns: Some(1_000 * second.unsigned_abs()),
            ..LoadSecond::counted(second, 10, 1)
        };
        LoadResult {
            length_s: 10.0,
            // Two seconds before the run and one after it.
            seconds: (-2..=10).map(second).collect(),
            ..LoadResult::blank("test")
        }
    }

    #[test]
    fn the_last_complete_seconds_count() {
        let window = |window_s| match last_seconds(&result(), window_s) {
            Told::Seconds(seconds) => (seconds[0].second, seconds.len()),
            other => panic!("{other:?}"),
        };
        assert_eq!(window(3), (6, 3), "the last second may be incomplete");
        assert_eq!(window(9), (0, 9));
        assert_eq!(last_seconds(&result(), 10), Told::TooFew(9));
        let without_seconds = LoadResult { seconds: Vec::new(), ..result() };
        assert_eq!(last_seconds(&without_seconds, 1), Told::Whole);
    }

    #[test]
    fn answers_of_seconds_are_summed_and_their_percentiles_are_medians() {
        let result = result();
        let answers = of_seconds(&result.seconds[8..11]);
        assert_eq!((answers.seconds, answers.done, answers.errors), (3.0, 30, 3));
        assert_eq!(answers.percentiles_ns["p99"], 7_000);
        assert_eq!(answers.percentiles_ns.get("p50"), None);
    }
}
