//! Reads Locust's CSV (NAME_stats.csv, NAME_stats_history.csv) and its JSON.
//!
//! Locust rounds response times to milliseconds, and to two digits from 100 ms on (`_log_response_time` in its stats.py). They include
//! failed requests. The JSON contains all rounded times, from which histograms are built.

use std::collections::BTreeMap;

use beamtune_model::load::{LoadModel, LoadResult, LoadSecond, LoadStep};
use serde_json::Value;

use super::convert::{self, MILLISECOND_NS, ReportedTimes, add_errors, kind};
use super::document::{Json, number};
use super::lines::{Columns, Lines, cells};
use super::points::instant_s;
use super::{ImportError, Tool};
use crate::collect;
use crate::times::Times;

const SERVICE: &str = "Locust measures service times, from sending to the end of the answer: a user that waits for an answer sends nothing else.";
const ROUNDED: &str = "Locust rounds percentiles, to 1 ms below 100 ms and to two digits above: 0 is less than half a millisecond.";
const FAILED: &str = "Times are those of all requests, including failed ones.";
const KINDS: &str = "Only NAME_failures.csv lists failures by kind, and it is not supported.";
const HISTORY: &str = "Percentiles of the history are those of sliding windows of ten seconds or more, so only the total median is imported.";
const FAILURE: &str = "counted as a failure by Locust";
/// Maximum length of a run in seconds: more than two days.
const MAX_LENGTH_S: f64 = 200_000.0;

/// Imports NAME_stats.csv.
pub(super) fn stats(lines: &mut Lines<'_>) -> Result<LoadResult, ImportError> {
    let mut result = convert::blank(Tool::Locust);
    lines.advance()?;
    let columns = Columns::new(lines.text());
    let mut length_s: Option<f64> = None;
    let mut has_all = false;
    while lines.advance()? {
        let row = row(lines, &columns)?;
        let requests = counted(lines, &columns, &row, "Request Count")?;
        let failures = counted(lines, &columns, &row, "Failure Count")?.min(requests);
        let rate = columns.number(&row, "Requests/s").filter(|rate| *rate > 0.0);
        let seconds = rate.map(|rate| requests as f64 / rate).filter(|seconds| *seconds <= 1e9);
        if columns.cell(&row, "Name") == Some("Aggregated") {
            has_all = true;
            length_s = seconds;
            continue;
        }
        let mut step = step(&columns, &row, requests, failures);
        let mut times = ReportedTimes {
            count: requests,
            min_ns: nanoseconds(&columns, &row, "Min Response Time"),
            mean_ns: columns.number(&row, "Average Response Time").map(|mean| mean * MILLISECOND_NS),
            max_ns: nanoseconds(&columns, &row, "Max Response Time"),
            percentiles: Vec::new(),
        };
        for name in columns.names() {
            if let Some(percent) = name.strip_suffix('%').and_then(|percent| percent.parse().ok()) {
                times.percentile(percent, nanoseconds(&columns, &row, name));
            }
        }
        step.service = times.latency(&mut result.remarks);
        bounded(lines, result.steps.len())?;
        result.steps.push(step);
    }
    if !has_all {
        return Err(lines.ended("a row \"Aggregated\""));
    }
    result.length_s = length_s.ok_or_else(|| lines.ended("a rate of requests in the row \"Aggregated\""))?;
    result.remarks.extend([SERVICE, ROUNDED, FAILED, KINDS].map(str::to_owned));
    Ok(result)
}

/// Imports NAME_stats_history.csv.
pub(super) fn history(lines: &mut Lines<'_>) -> Result<LoadResult, ImportError> {
    let mut result = convert::blank(Tool::Locust);
    lines.advance()?;
    let columns = Columns::new(lines.text());
    // Rows contain running totals, so the last row of a name contains its sum.
    let mut last: BTreeMap<(String, String), LoadStep> = BTreeMap::new();
    let mut all = None;
    let (mut first_s, mut before, mut users) = (None, None, 0);
    let mut has_gaps = false;
    while lines.advance()? {
        if lines.is_cut() {
            result.remarks.push(lines.cut_remark());
            break;
        }
        let row = row(lines, &columns)?;
        let at_s = columns.number(&row, "Timestamp").and_then(instant_s);
        let at_s = at_s.ok_or_else(|| lines.malformed("a time stamp"))?.floor();
        let begin_s = *first_s.get_or_insert(at_s);
        if !(0.0..=MAX_LENGTH_S).contains(&(at_s - begin_s)) {
            return Err(lines.malformed("a time stamp within two days of the first"));
        }
        result.length_s = at_s - begin_s;
        let requests = counted(lines, &columns, &row, "Total Request Count")?;
        let failures = counted(lines, &columns, &row, "Total Failure Count")?.min(requests);
        let mut step = step(&columns, &row, requests, failures);
        let mut times = ReportedTimes {
            count: requests,
            min_ns: nanoseconds(&columns, &row, "Total Min Response Time"),
            mean_ns: columns.number(&row, "Total Average Response Time").map(|mean| mean * MILLISECOND_NS),
            max_ns: nanoseconds(&columns, &row, "Total Max Response Time"),
            percentiles: Vec::new(),
        };
        times.percentile(50.0, nanoseconds(&columns, &row, "Total Median Response Time"));
        step.service = times.latency(&mut result.remarks);
        if columns.cell(&row, "Name") != Some("Aggregated") {
            let cell = |name| columns.cell(&row, name).unwrap_or_default().to_owned();
            bounded(lines, last.len())?;
            last.insert((cell("Type"), cell("Name")), step);
            continue;
        }
        all = Some(step);
        users = users.max(counted(lines, &columns, &row, "User Count")?);
        if let Some((before_s, requests_before, failures_before)) = before.replace((at_s, requests, failures))
        {
            if at_s - before_s == 1.0 {
                let failed = failures.saturating_sub(failures_before);
                let done = requests.saturating_sub(requests_before).saturating_sub(failed);
                result.seconds.push(LoadSecond::counted((before_s - begin_s) as i64, done, failed));
            } else {
                has_gaps = true;
            }
        }
    }
    result.began_unix_s = first_s;
    if users > 0 {
        result.model = LoadModel::Closed { devices: users };
    }
    if last.is_empty() {
        result.steps.extend(all);
        result.remarks.push("Without --csv-full-history all requests are one step.".to_owned());
    } else {
        result.steps.extend(last.into_values());
    }
    if has_gaps {
        result.remarks.push("Seconds are missing where rows are not one second apart.".to_owned());
    }
    result.remarks.extend([SERVICE, ROUNDED, FAILED, KINDS, HISTORY].map(str::to_owned));
    Ok(result)
}

/// Imports the JSON of --json or --json-file.
pub(super) fn json(json: &Json) -> Result<LoadResult, ImportError> {
    let mut result = convert::blank(Tool::Locust);
    let entries = json.value.as_array().ok_or_else(|| json.malformed("", "an array of requests"))?;
    if entries.len() > convert::MAX_STEPS {
        return Err(json.too_large(&format!("{} kinds of requests", convert::MAX_STEPS)));
    }
    let mut seconds: BTreeMap<i64, (u64, u64)> = BTreeMap::new();
    let (mut first_s, mut last_s) = (f64::INFINITY, 0.0_f64);
    for (index, entry) in entries.iter().enumerate() {
        let malformed = |key: &str, expected| json.malformed(&format!("/{index}/{key}"), expected);
        let text = |key| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let counted =
            |key| number(entry, &[key]).and_then(convert::count).ok_or_else(|| malformed(key, "a count"));
        let requests = counted("num_requests")?;
        let failures = counted("num_failures")?.min(requests);
        let mut step = named(text("method"), text("name"), requests, failures);
        let mut times = Times::default();
        let rounded = entry.get("response_times").and_then(Value::as_object);
        for (milliseconds, count) in
            rounded.ok_or_else(|| malformed("response_times", "times and their counts"))?
        {
            let nanoseconds =
                milliseconds.parse().ok().and_then(|time| convert::nanoseconds(time, MILLISECOND_NS));
            let both = nanoseconds.zip(count.as_f64().and_then(convert::count));
            let (nanoseconds, count) =
                both.ok_or_else(|| malformed("response_times", "times and their counts"))?;
            times.record_many(nanoseconds, count);
        }
        step.service = collect::latency(&times).map(|mut latency| {
            // The extremes and the sum are not rounded.
            let time = |key| number(entry, &[key]);
            let exact = |key| time(key).and_then(|time| convert::nanoseconds(time, MILLISECOND_NS));
            latency.min_ns = exact("min_response_time");
            latency.max_ns = exact("max_response_time");
            let mean = time("total_response_time").map(|sum| sum * MILLISECOND_NS / latency.count as f64);
            latency.mean_ns = mean;
            // The lowest value of the histogram is not 0. Here 0 means less than half a millisecond, as in Locust's other files.
            let zeros = latency.percentiles_ns.values_mut().filter(|nanoseconds| **nanoseconds < 1_000);
            zeros.for_each(|nanoseconds| *nanoseconds = 0);
            latency
        });
        result.steps.push(step);
        let began = number(entry, &["start_time"]).and_then(instant_s);
        let ended = number(entry, &["last_request_timestamp"]).and_then(instant_s);
        if let Some((began, ended)) = began.zip(ended) {
            (first_s, last_s) = (first_s.min(began), last_s.max(ended));
        }
        for (key, is_failure) in [("num_reqs_per_sec", false), ("num_fail_per_sec", true)] {
            for (at, count) in entry.get(key).and_then(Value::as_object).into_iter().flatten() {
                let at = at.parse().ok().and_then(instant_s).map(|at| at.floor() as i64);
                let both = at.zip(count.as_f64().and_then(convert::count));
                let (at, count) = both.ok_or_else(|| malformed(key, "seconds and their counts"))?;
                let (requests, failures) = seconds.entry(at).or_default();
                *(if is_failure { failures } else { requests }) += count;
            }
        }
    }
    if entries.is_empty() {
        return Ok(result);
    }
    if !(0.0..=MAX_LENGTH_S).contains(&(last_s - first_s)) {
        return Err(json.malformed("/0/start_time", "begin and end within two days"));
    }
    (result.began_unix_s, result.length_s) = (Some(first_s), last_s - first_s);
    let begin = first_s.floor() as i64;
    let within = begin..=last_s.floor() as i64;
    if seconds.keys().any(|at| !within.contains(at)) {
        return Err(json.malformed("/0/num_reqs_per_sec", "seconds between begin and end"));
    }
    result.seconds = within
        .map(|at| {
            let (requests, failures) = seconds.get(&at).copied().unwrap_or_default();
            LoadSecond::counted(at - begin, requests.saturating_sub(failures), failures)
        })
        .collect();
    result.remarks.extend([SERVICE, ROUNDED, FAILED, KINDS].map(str::to_owned));
    Ok(result)
}

fn row(lines: &Lines<'_>, columns: &Columns) -> Result<Vec<String>, ImportError> {
    let row = cells(lines.text());
    if row.len() == columns.len() { Ok(row) } else { Err(lines.malformed("as many cells as the header")) }
}

fn counted(lines: &Lines<'_>, columns: &Columns, row: &[String], name: &str) -> Result<u64, ImportError> {
    let count = columns.number(row, name).and_then(convert::count);
    count.ok_or_else(|| lines.malformed(format!("a number in column \"{name}\"")))
}

fn nanoseconds(columns: &Columns, row: &[String], name: &str) -> Option<u64> {
    columns.number(row, name).and_then(|milliseconds| convert::nanoseconds(milliseconds, MILLISECOND_NS))
}

fn bounded(lines: &Lines<'_>, steps: usize) -> Result<(), ImportError> {
    if steps < convert::MAX_STEPS {
        return Ok(());
    }
    Err(lines.too_large(format!("{} kinds of requests", convert::MAX_STEPS)))
}

fn step(columns: &Columns, row: &[String], requests: u64, failures: u64) -> LoadStep {
    let cell = |name| columns.cell(row, name).unwrap_or_default();
    named(cell("Type"), cell("Name"), requests, failures)
}

fn named(method: &str, name: &str, requests: u64, failures: u64) -> LoadStep {
    let mut step = convert::step(format!("{method} {name}").trim());
    step.done = requests.saturating_sub(failures);
    add_errors(&mut step.errors, kind::OTHER, failures, FAILURE);
    step
}
