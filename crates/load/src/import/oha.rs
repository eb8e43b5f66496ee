//! oha's JSON.

use beamtune_model::load::{LoadResult, LoadStep};
use serde_json::Value;

use super::document::{Json, number};
use super::told::{self, SECOND_NS, Told, add_errors, kind};
use super::{ImportError, Tool};
use crate::tally::ErrorKind;

const SERVICE: &str = "Taken as service times, from the sending to the answer's end. With --latency-correction they are response times from when a request was due: the file does not tell which.";
const STATUSES: &str = "Times are of all answers, those with a status of 400 and more too.";
const HISTOGRAM: &str = "oha's histogram has eleven equal steps, which is too coarse to be merged or to make other percentiles of.";

/// Reads it.
pub(super) fn read(json: &Json) -> Result<LoadResult, ImportError> {
    let mut result = told::blank(Tool::Oha);
    let mut step = told::step("request");
    let length_s = number(&json.value, &["summary", "total"]).filter(|seconds| (0.0..=1e9).contains(seconds));
    result.length_s = length_s.ok_or_else(|| json.malformed("/summary/total", "a number of seconds"))?;
    let mut all = 0;
    for (status, count) in counts(json, "statusCodeDistribution")? {
        all += count;
        match status.parse::<u16>() {
            Ok(status) if status < 400 => step.done += count,
            _ => {
                add_errors(&mut step.errors, ErrorKind::Status.text(), count, &format!("status {status}"));
            }
        }
    }
    for (words, count) in counts(json, "errorDistribution")? {
        match error_kind(words) {
            Some(kind) => add_errors(&mut step.errors, kind, count, words),
            None => result.unfinished += count,
        }
    }
    let received = number(&json.value, &["summary", "totalData"]);
    step.received_bytes = received.and_then(told::count);
    times(&json.value, all, &mut step, &mut result);
    result.steps.push(step);
    result.remarks.extend([SERVICE, HISTOGRAM].map(str::to_owned));
    Ok(result)
}

fn times(value: &Value, all: u64, step: &mut LoadStep, result: &mut LoadResult) {
    let nanoseconds =
        |path: &[&str]| number(value, path).and_then(|seconds| told::nanoseconds(seconds, SECOND_NS));
    let mean = |path: &[&str]| number(value, path).map(|seconds| seconds * SECOND_NS);
    // With --stats-success-breakdown those of right answers stand apart, but their mean and extremes do not.
    let right = step.done != all && value.get("latencyPercentilesSuccessful").is_some();
    let mut service = if right {
        Told { count: step.done, ..Told::default() }
    } else {
        Told {
            count: all,
            min_ns: nanoseconds(&["summary", "fastest"]),
            mean_ns: mean(&["summary", "average"]),
            max_ns: nanoseconds(&["summary", "slowest"]),
            percentiles: Vec::new(),
        }
    };
    let key = if right { "latencyPercentilesSuccessful" } else { "latencyPercentiles" };
    percentiles(value, key, &mut service);
    step.service = service.latency(&mut result.remarks);
    if !right {
        result.remarks.push(STATUSES.to_owned());
    }
    let mut first_byte = Told {
        count: all,
        min_ns: nanoseconds(&["details", "firstByte", "fastest"]),
        mean_ns: mean(&["details", "firstByte", "average"]),
        max_ns: nanoseconds(&["details", "firstByte", "slowest"]),
        percentiles: Vec::new(),
    };
    percentiles(value, "firstBytePercentiles", &mut first_byte);
    step.first_byte = first_byte.latency(&mut result.remarks);
}

fn percentiles(value: &Value, key: &str, told: &mut Told) {
    for (name, seconds) in value.get(key).and_then(Value::as_object).into_iter().flatten() {
        let percent = name.strip_prefix('p').and_then(|percent| percent.parse().ok());
        let nanoseconds = seconds.as_f64().and_then(|seconds| told::nanoseconds(seconds, SECOND_NS));
        if let Some(percent) = percent {
            told.percentile(percent, nanoseconds);
        }
    }
}

/// What oha counted by a word; nothing may be missing, or it would be no error then.
fn counts<'a>(json: &'a Json, key: &str) -> Result<Vec<(&'a str, u64)>, ImportError> {
    let path = format!("/{key}");
    let found = json.value.get(key).and_then(Value::as_object);
    let found = found.ok_or_else(|| json.malformed(&path, "counts"))?;
    if found.len() > told::MOST_STEPS {
        return Err(json.too_large(&format!("{} kinds", told::MOST_STEPS)));
    }
    let counts = found.iter().map(|(words, count)| {
        let count = count.as_f64().and_then(told::count);
        Ok((words.as_str(), count.ok_or_else(|| json.malformed(&path, "counts"))?))
    });
    counts.collect()
}

/// By oha's words; `None`: what was under way at the end.
fn error_kind(words: &str) -> Option<&'static str> {
    let words = words.to_ascii_lowercase();
    if words.contains("deadline") {
        return None;
    }
    let kinds = [
        ("refused", ErrorKind::Refused),
        ("timeout", ErrorKind::Timeout),
        ("timed out", ErrorKind::Timeout),
        ("reset", ErrorKind::Reset),
        ("closed", ErrorKind::Closed),
        ("unreachable", ErrorKind::Unreachable),
        ("tls", ErrorKind::Tls),
        ("certificate", ErrorKind::Tls),
    ];
    Some(told::kind_in(&words, &kinds).unwrap_or(kind::OTHER))
}
