//! Converts the result of another load generator to the answers of a window.

use std::collections::BTreeMap;

use beamtune_model::load::{LoadResult, LoadSecond};
use beamtune_model::study;
use beamtune_stats::median;

use crate::measure::Answers;

/// The part of a result that is evaluated.
#[derive(Debug, PartialEq)]
pub enum CountedPart<'r> {
    /// The whole run, because the result has no values per second.
    Whole,
    /// The last seconds, without the second in which the run ended.
    Seconds(&'r [LoadSecond]),
    /// The result has only this number of complete seconds, which is less than the window.
    TooFew(usize),
}

/// Returns the last `window_s` complete seconds of a result.
pub fn last_seconds(result: &LoadResult, window_s: u32) -> CountedPart<'_> {
    // Before second 0, connections are only opened; after the end, only late answers are received.
    let is_within =
        |second: &LoadSecond| second.second >= 0 && (second.second + 1) as f64 <= result.length_s + 0.5;
    let begin = result.seconds.iter().position(is_within).unwrap_or(0);
    let end = result.seconds.iter().rposition(is_within).unwrap_or(0);
    match end.checked_sub(window_s as usize).filter(|first| *first >= begin) {
        _ if result.seconds.is_empty() => CountedPart::Whole,
        Some(first) => result.seconds.get(first..end).map_or(CountedPart::TooFew(0), CountedPart::Seconds),
        None => CountedPart::TooFew(end - begin),
    }
}

/// Returns the answers of these seconds of a result.
pub fn answers_of_seconds(seconds: &[LoadSecond]) -> Answers {
    // The percentiles of the whole run are not used, because they include its warm-up.
    let mut percentiles_ns = BTreeMap::new();
    let mut set_median = |quantity: study::Quantity, value: fn(&LoadSecond) -> Option<u64>| {
        let values: Vec<f64> = seconds.iter().filter_map(value).map(|value| value as f64).collect();
        // Percentiles cannot be merged, so the median over the seconds is used.
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

/// Returns the answers of a whole run of this duration.
pub fn answers_of_run(result: &LoadResult, seconds: f64) -> Answers {
    let percentiles_ns = percentiles(result);
    Answers { seconds, done: result.done(), errors: result.errors(), percentiles_ns, run: None }
}

/// Returns the percentiles of the step with the most answers, because percentiles of several steps cannot be merged.
fn percentiles(result: &LoadResult) -> BTreeMap<String, u64> {
    let times = result.steps.iter().filter(|step| step.is_counted()).filter_map(|step| {
        let times = step.response.as_ref().or(step.service.as_ref())?;
        Some((step.done, times))
    });
    times.max_by_key(|(done, _)| *done).map(|(_, times)| times.percentiles_ns.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A result of ten seconds with ten answers each, and a p99 that rises by a microsecond per second.
    fn result() -> LoadResult {
        let second = |second: i64| LoadSecond {
            p99_ns: Some(1_000 * second.unsigned_abs()),
            ..LoadSecond::counted(second, 10, 1)
        };
        LoadResult {
            length_s: 10.0,
            // There are two more seconds before the run and one after it.
            seconds: (-2..=10).map(second).collect(),
            ..LoadResult::blank("test")
        }
    }

    #[test]
    fn last_complete_seconds_are_evaluated() {
        let window = |window_s| match last_seconds(&result(), window_s) {
            CountedPart::Seconds(seconds) => (seconds[0].second, seconds.len()),
            other => panic!("{other:?}"),
        };
        assert_eq!(window(3), (6, 3), "the last second may be incomplete");
        assert_eq!(window(9), (0, 9));
        assert_eq!(last_seconds(&result(), 10), CountedPart::TooFew(9));
        let without_seconds = LoadResult { seconds: Vec::new(), ..result() };
        assert_eq!(last_seconds(&without_seconds, 1), CountedPart::Whole);
    }

    #[test]
    fn answers_are_summed_and_percentiles_are_medians_over_the_seconds() {
        let result = result();
        let answers = answers_of_seconds(&result.seconds[8..11]);
        assert_eq!((answers.seconds, answers.done, answers.errors), (3.0, 30, 3));
        assert_eq!(answers.percentiles_ns["p99"], 7_000);
        assert_eq!(answers.percentiles_ns.get("p50"), None);
    }
}
