//! What another generator told of its load, as the answers of a window.

use std::collections::BTreeMap;

use beamtune_model::load::{LoadResult, LoadSecond};
use beamtune_model::study;
use beamtune_stats::median;

use crate::measure::Answers;

/// Which seconds of a result count.
#[derive(Debug, PartialEq)]
pub enum Told<'r> {
    /// It tells no seconds: the whole run counts.
    Whole,
    /// The last ones, without that in which it ended.
    Seconds(&'r [LoadSecond]),
    /// It tells so many, which are not enough.
    TooFew(usize),
}

/// The last seconds of a result.
pub fn last_seconds(result: &LoadResult, window_s: u32) -> Told<'_> {
    // Connections are made before it begins, and what stands behind its end was still under way.
    let is_within =
        |second: &LoadSecond| second.second >= 0 && (second.second + 1) as f64 <= result.length_s + 0.5;
    let places = |found: Option<usize>| found.unwrap_or(0);
    let begin = places(result.seconds.iter().position(is_within));
    let end = places(result.seconds.iter().rposition(is_within));
    match end.checked_sub(window_s as usize).filter(|first| *first >= begin) {
        _ if result.seconds.is_empty() => Told::Whole,
        Some(first) => result.seconds.get(first..end).map_or(Told::TooFew(0), Told::Seconds),
        None => Told::TooFew(end - begin),
    }
}

/// The answers of these seconds of a result.
pub fn of_seconds(seconds: &[LoadSecond]) -> Answers {
    // Those of the whole run are of its warm-up too.
    let mut percentiles_ns = BTreeMap::new();
    let mut set_middle = |quantity: study::Quantity, value: fn(&LoadSecond) -> Option<u64>| {
        let values: Vec<f64> = seconds.iter().filter_map(value).map(|value| value as f64).collect();
        // Percentiles of seconds have no sum: the middle one stands for them.
        if let Some(value) = median(&values) {
            percentiles_ns.insert(quantity.name.to_owned(), value as u64);
        }
    };
    set_middle(study::P50, |second| second.p50_ns);
    set_middle(study::P99, |second| second.p99_ns);
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

/// The answers of a whole run that took so many seconds.
pub fn of_run(result: &LoadResult, seconds: f64) -> Answers {
    let percentiles_ns = percentiles(result);
    Answers { seconds, done: result.done(), errors: result.errors(), percentiles_ns, run: None }
}

/// Percentiles of the whole run, of the step that was done most often: those of several have no sum.
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

    /// Ten seconds with ten answers each, whose p99 rises by a microsecond each second.
    fn result() -> LoadResult {
        let second = |second: i64| LoadSecond {
            p99_ns: Some(1_000 * second.unsigned_abs()),
            ..LoadSecond::counted(second, 10, 1)
        };
        LoadResult {
            length_s: 10.0,
            // Connections are made before, and answers come after.
            seconds: (-2..=10).map(second).collect(),
            ..LoadResult::blank("test")
        }
    }

    #[test]
    fn the_last_whole_seconds_count() {
        let told = |window_s| match last_seconds(&result(), window_s) {
            Told::Seconds(seconds) => (seconds[0].second, seconds.len()),
            other => panic!("{other:?}"),
        };
        assert_eq!(told(3), (6, 3), "the last one may be no whole second");
        assert_eq!(told(9), (0, 9));
        assert_eq!(last_seconds(&result(), 10), Told::TooFew(9));
        let silent = LoadResult { seconds: Vec::new(), ..result() };
        assert_eq!(last_seconds(&silent, 1), Told::Whole);
    }

    #[test]
    fn answers_of_seconds_are_added_up_and_their_times_are_the_middle_ones() {
        let result = result();
        let answers = of_seconds(&result.seconds[8..11]);
        assert_eq!((answers.seconds, answers.done, answers.errors), (3.0, 30, 3));
        assert_eq!(answers.percentiles_ns["p99"], 7_000);
        assert_eq!(answers.percentiles_ns.get("p50"), None);
    }
}
