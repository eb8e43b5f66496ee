//! Reads oha's JSON.

use beamtune_model::load::{LoadResult, LoadStep};
use serde_json::Value;

use super::convert::{self, ReportedTimes, SECOND_NS, add_errors, kind};
use super::document::{Json, number};
use super::{ImportError, Tool};
use crate::tally::ErrorKind;

const SERVICE: &str = "Times are assumed to be service times, from sending to the end of the answer. With --latency-correction they are response times, from the due time of a request; the file does not say which.";
const STATUSES: &str = "Times are those of all answers, including statuses of 400 and above.";
const HISTOGRAM: &str =
    "oha's histogram has eleven buckets of equal width, too few for merging or for other percentiles.";

/// Imports a result.
pub(super) fn read(json: &Json) -> Result<LoadResult, ImportError> {
    let mut result = convert::blank(Tool::Oha);
    let mut step = convert::step("request");
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
    for (message, count) in counts(json, "errorDistribution")? {
        match error_kind(message) {
            Some(kind) => add_errors(&mut step.errors, kind, count, message),
            None => result.unfinished += count,
        }
    }
    let received = number(&json.value, &["summary", "totalData"]);
    step.received_bytes = received.and_then(convert::count);
    times(&json.value, all, &mut step, &mut result);
    result.steps.push(step);
    result.remarks.extend([SERVICE, HISTOGRAM].map(str::to_owned));
    Ok(result)
}

fn times(value: &Value, all: u64, step: &mut LoadStep, result: &mut LoadResult) {
    let nanoseconds =
        |path: &[&str]| number(value, path).and_then(|seconds| convert::nanoseconds(seconds, SECOND_NS));
    let mean = |path: &[&str]| number(value, path).map(|seconds| seconds * SECOND_NS);
    // With --stats-success-breakdown there are percentiles of correct answers, but not their mean and extremes.
    let right = step.done != all && value.get("latencyPercentilesSuccessful").is_some();
    let mut service = if right {
        ReportedTimes { count: step.done, ..ReportedTimes::default() }
    } else {
        ReportedTimes {
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
    let mut first_byte = ReportedTimes {
        count: all,
        min_ns: nanoseconds(&["details", "firstByte", "fastest"]),
        mean_ns: mean(&["details", "firstByte", "average"]),
        max_ns: nanoseconds(&["details", "firstByte", "slowest"]),
        percentiles: Vec::new(),
    };
    percentiles(value, "firstBytePercentiles", &mut first_byte);
    step.first_byte = first_byte.latency(&mut result.remarks);
}

fn percentiles(value: &Value, key: &str, times: &mut ReportedTimes) {
    for (name, seconds) in value.get(key).and_then(Value::as_object).into_iter().flatten() {
        let percent = name.strip_prefix('p').and_then(|percent| percent.parse().ok());
        let nanoseconds = seconds.as_f64().and_then(|seconds| convert::nanoseconds(seconds, SECOND_NS));
        if let Some(percent) = percent {
            times.percentile(percent, nanoseconds);
        }
    }
}

/// Returns the counts of a distribution. It must exist: if it were missing, errors would go unnoticed.
fn counts<'a>(json: &'a Json, key: &str) -> Result<Vec<(&'a str, u64)>, ImportError> {
    let path = format!("/{key}");
    let found = json.value.get(key).and_then(Value::as_object);
    let found = found.ok_or_else(|| json.malformed(&path, "counts"))?;
    if found.len() > convert::MAX_STEPS {
        return Err(json.too_large(&format!("{} kinds", convert::MAX_STEPS)));
    }
    let counts = found.iter().map(|(text, count)| {
        let count = count.as_f64().and_then(convert::count);
        Ok((text.as_str(), count.ok_or_else(|| json.malformed(&path, "counts"))?))
    });
    counts.collect()
}

/// Returns the kind of an error, from oha's message; `None` for requests that were pending at the end.
fn error_kind(message: &str) -> Option<&'static str> {
    let message = message.to_ascii_lowercase();
    if message.contains("deadline") {
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
    Some(convert::match_kind(&message, &kinds).unwrap_or(kind::OTHER))
}
