//! Reads k6's summaries (--summary-export, and the argument of handleSummary) and its points (--out json, --out csv).
//!
//! The metric http_req_duration is the service time: sending, waiting and receiving, without connecting. It is 0 for a request without an
//! answer. So if a summary has failed requests, only the submetric of expected responses is used.

use std::borrow::Cow;

use beamtune_model::load::LoadResult;
use serde::Deserialize;
use serde_json::Value;

use super::convert::{self, MILLISECOND_NS, ReportedTimes, SECOND_NS, add_errors, kind};
use super::document::{Json, number};
use super::lines::{Columns, Lines, cells};
use super::points::{self, Points, Request};
use super::{ImportError, Tool};
use crate::tally::ErrorKind;

const SERVICE: &str = "k6 measures service times, from sending to the end of the answer: a user (VU) that waits for an answer sends nothing else, and k6 does not report how late iterations of arrival-rate executors began.";
const FAILED: &str =
    "A summary does not list failed requests by kind: import the file of --out json or --out csv.";
const WITH_FAILED: &str =
    "Times include all requests, and requests without an answer have a time of 0: the times are too short.";
const NO_FIRST_BYTE: &str =
    "The time to the first byte is omitted: failed requests count as 0 in http_req_waiting.";
const DROPPED: &str = "dropped_iterations: no user (VU) was free";
const STEP: &str = "http_req";
const EXPECTED: &str = "http_req_duration{expected_response:true}";

/// Imports a summary of either kind.
pub(super) fn summary(json: &Json) -> Result<LoadResult, ImportError> {
    let mut result = convert::blank(Tool::K6);
    let mut step = convert::step(STEP);
    let metrics = json.value.get("metrics").ok_or_else(|| json.malformed("/metrics", "metrics"))?;
    let requests = value(metrics, "http_reqs", "count").and_then(convert::count);
    let requests = requests.ok_or_else(|| {
        json.malformed("/metrics/http_reqs", "a count of HTTP requests (other protocols are not supported)")
    })?;
    // This is a rate metric whose "passes" are the failed requests.
    let failed = match value(metrics, "http_req_failed", "passes") {
        Some(failed) => convert::count(failed)
            .filter(|failed| *failed <= requests)
            .ok_or_else(|| json.malformed("/metrics/http_req_failed", "a count below that of requests"))?,
        None => 0,
    };
    step.done = requests - failed;
    add_errors(
        &mut step.errors,
        kind::OTHER,
        failed,
        "http_req_failed: no answer, or one with a status of 400 and more",
    );
    let dropped = value(metrics, "dropped_iterations", "count").and_then(convert::count).unwrap_or_default();
    add_errors(&mut step.errors, ErrorKind::Dropped.text(), dropped, DROPPED);
    let exact_s = number(&json.value, &["state", "testRunDurationMs"]).map(|milliseconds| milliseconds / 1e3);
    let by_rate_s = value(metrics, "http_reqs", "rate").map(|rate| requests as f64 / rate);
    let length_s = exact_s.or(by_rate_s).filter(|seconds| (0.0..=1e9).contains(seconds));
    result.length_s =
        length_s.ok_or_else(|| json.malformed("/metrics/http_reqs", "a rate of HTTP requests"))?;

    let expected = metrics.get(EXPECTED).filter(|_| failed > 0);
    let (duration, count) = match expected {
        Some(metric) => (Some(metric), step.done),
        None => (metrics.get("http_req_duration"), requests),
    };
    step.service =
        duration.map(|metric| trend(metric, count)).and_then(|times| times.latency(&mut result.remarks));
    result.remarks.push(SERVICE.to_owned());
    if failed > 0 {
        result.remarks.extend([FAILED, NO_FIRST_BYTE].map(str::to_owned));
        if expected.is_none() {
            result.remarks.push(WITH_FAILED.to_owned());
        }
    } else {
        let waiting = metrics.get("http_req_waiting").map(|metric| trend(metric, requests));
        step.first_byte = waiting.and_then(|times| times.latency(&mut result.remarks));
    }
    if let Some(fails) = value(metrics, "checks", "fails").and_then(convert::count).filter(|fails| *fails > 0)
    {
        result.remarks.push(checks(fails));
    }
    result.steps.push(step);
    Ok(result)
}

fn checks(fails: u64) -> String {
    format!("{fails} checks of the script failed; k6 does not report for which answers.")
}

/// Returns a value of a metric, which is in the metric itself (--summary-export) or in its `values` (handleSummary).
fn value(metrics: &Value, metric: &str, key: &str) -> Option<f64> {
    let metric = metrics.get(metric)?;
    number(metric, &["values", key]).or_else(|| number(metric, &[key]))
}

/// Converts a metric whose values are times in milliseconds.
fn trend(metric: &Value, count: u64) -> ReportedTimes {
    let values = metric.get("values").unwrap_or(metric);
    let mut times = ReportedTimes { count, ..ReportedTimes::default() };
    for (name, value) in values.as_object().into_iter().flatten() {
        let Some(milliseconds) = value.as_f64() else { continue };
        let nanoseconds = convert::nanoseconds(milliseconds, MILLISECOND_NS);
        match name.as_str() {
            "avg" => times.mean_ns = Some(milliseconds * MILLISECOND_NS),
            "min" => times.min_ns = nanoseconds,
            "max" => times.max_ns = nanoseconds,
            "med" => times.percentile(50.0, nanoseconds),
            name => {
                let percent = name.strip_prefix("p(").and_then(|name| name.strip_suffix(')')?.parse().ok());
                if let Some(percent) = percent {
                    times.percentile(percent, nanoseconds);
                }
            }
        }
    }
    times
}

/// Whether this is a line of --out json.
pub(super) fn is_point(line: &str) -> bool {
    serde_json::from_str::<Line<'_>>(line).is_ok_and(|line| matches!(&*line.kind, "Metric" | "Point"))
}

/// A line of --out json.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    metric: Cow<'a, str>,
    data: Data<'a>,
}

/// The data of a point. The data of a metric definition are ignored.
#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow)]
    time: Option<Cow<'a, str>>,
    value: Option<f64>,
    #[serde(borrow)]
    tags: Option<Tags<'a>>,
}

/// The tags that describe a request and its outcome.
#[derive(Deserialize, Default)]
struct Tags<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    status: Option<Cow<'a, str>>,
    #[serde(borrow)]
    error: Option<Cow<'a, str>>,
    #[serde(borrow)]
    error_code: Option<Cow<'a, str>>,
    #[serde(borrow)]
    expected_response: Option<Cow<'a, str>>,
}

/// Imports the points of --out json.
pub(super) fn points_json(lines: &mut Lines<'_>) -> Result<LoadResult, ImportError> {
    let mut counts = PointCounts::default();
    let mut cut = None;
    while lines.advance()? {
        let line = match serde_json::from_str::<Line<'_>>(lines.text()) {
            Ok(line) => line,
            Err(_) if lines.is_cut() => {
                cut = Some(lines.cut_remark());
                break;
            }
            Err(_) => return Err(lines.malformed("a point of --out json")),
        };
        if line.kind != "Point" {
            continue;
        }
        let at = line.data.time.as_deref().and_then(|time| time.parse::<jiff::Timestamp>().ok());
        let at_s = at.and_then(|at| points::instant_s(at.as_nanosecond() as f64 / 1e9));
        let both = at_s.zip(line.data.value);
        let (at_s, value) = both.ok_or_else(|| lines.malformed("a point with its time and value"))?;
        counts.add(lines, &line.metric, at_s, value, &line.data.tags.unwrap_or_default())?;
    }
    Ok(counts.finish(cut))
}

/// Imports the points of --out csv.
pub(super) fn points_csv(lines: &mut Lines<'_>) -> Result<LoadResult, ImportError> {
    lines.advance()?;
    let columns = Columns::new(lines.text());
    let mut counts = PointCounts { has_whole_seconds: true, ..PointCounts::default() };
    let mut cut = None;
    while lines.advance()? {
        if lines.is_cut() {
            cut = Some(lines.cut_remark());
            break;
        }
        let row = cells(lines.text());
        let at_s = columns.number(&row, "timestamp").and_then(points::instant_s);
        let both = at_s.zip(columns.number(&row, "metric_value"));
        let (at_s, value) = both
            .filter(|_| row.len() == columns.len())
            .ok_or_else(|| lines.malformed("a point with as many cells as the header"))?;
        let cell = |name| columns.cell(&row, name).filter(|cell| !cell.is_empty()).map(Cow::Borrowed);
        let tags = Tags {
            name: cell("name"),
            method: cell("method"),
            status: cell("status"),
            error: cell("error"),
            error_code: cell("error_code"),
            expected_response: cell("expected_response"),
        };
        let metric = columns.cell(&row, "metric_name").unwrap_or_default();
        counts.add(lines, metric, at_s, value, &tags)?;
    }
    let mut result = counts.finish(cut);
    // The last second is counted as a complete one.
    result.length_s += 1.0;
    result.remarks.push("--out csv only has whole seconds, so the duration is exact to a second.".to_owned());
    Ok(result)
}

/// The counts of all points.
#[derive(Default)]
struct PointCounts {
    points: Points,
    failed_checks: u64,
    /// Whether the times of points are whole seconds.
    has_whole_seconds: bool,
}

impl PointCounts {
    fn add(
        &mut self,
        lines: &Lines<'_>,
        metric: &str,
        at_s: f64,
        value: f64,
        tags: &Tags<'_>,
    ) -> Result<(), ImportError> {
        let step = || {
            let name = tags.name.as_deref().unwrap_or(STEP);
            tags.method.as_deref().map_or(name.to_owned(), |method| format!("{method} {name}"))
        };
        match metric {
            "http_req_duration" => {
                let took = convert::nanoseconds(value, MILLISECOND_NS);
                let took_ns = took.ok_or_else(|| lines.malformed("a time in milliseconds"))?;
                // The time of a point is the time at which the answer ended.
                let before_s = if self.has_whole_seconds { 0.0 } else { took_ns as f64 / SECOND_NS };
                let began_s = (at_s - before_s).max(0.0);
                let text = tags.error_text();
                let outcome =
                    if tags.is_right() { Ok(took_ns) } else { Err((tags.error_kind(), text.as_str())) };
                self.points.add(lines, &Request { step: &step(), began_s, ended_s: at_s, outcome })?;
            }
            "http_req_waiting" if tags.is_right() => {
                if let Some(nanoseconds) = convert::nanoseconds(value, MILLISECOND_NS) {
                    self.points.first_byte(&step(), nanoseconds);
                }
            }
            // This is a counter that may be incremented by more than one.
            "dropped_iterations" => {
                let count = convert::count(value).ok_or_else(|| lines.malformed("a count of iterations"))?;
                self.points.errors(STEP, ErrorKind::Dropped.text(), count, DROPPED);
            }
            "checks" if value == 0.0 => self.failed_checks += 1,
            _ => {}
        }
        Ok(())
    }

    fn finish(self, cut: Option<String>) -> LoadResult {
        let mut result = convert::blank(Tool::K6);
        self.points.finish(&mut result);
        result.remarks.extend([SERVICE, points::RIGHT_ANSWERS].map(str::to_owned));
        if self.failed_checks > 0 {
            result.remarks.push(checks(self.failed_checks));
        }
        result.remarks.extend(cut);
        result
    }
}

impl Tags<'_> {
    /// Whether the answer was expected; without that tag, whether there was an answer.
    fn is_right(&self) -> bool {
        match self.expected_response.as_deref() {
            Some(expected) => expected == "true",
            None => self.error_code.is_none() && self.status.as_deref() != Some("0"),
        }
    }

    /// Returns the kind of the error, from k6's error codes (<https://grafana.com/docs/k6/latest/javascript-api/error-codes/>).
    fn error_kind(&self) -> &'static str {
        match self.error_code.as_deref().and_then(|code| code.parse::<u32>().ok()) {
            Some(1050) => ErrorKind::Timeout.text(),
            Some(1211) => ErrorKind::ConnectTimeout.text(),
            Some(1212) => ErrorKind::Refused.text(),
            Some(1220) => ErrorKind::Reset.text(),
            Some(1100..1200 | 1210 | 1213) => kind::CONNECT,
            Some(1200..1300) => kind::CONNECTION,
            Some(1300..1400) => ErrorKind::Tls.text(),
            Some(1400..1600) => ErrorKind::Status.text(),
            Some(1600..1700) => ErrorKind::Protocol.text(),
            _ if self.status.as_deref().is_some_and(|status| status != "0") => ErrorKind::Status.text(),
            _ => kind::OTHER,
        }
    }

    fn error_text(&self) -> String {
        match (&self.error, &self.status) {
            (Some(error), _) => error.to_string(),
            (None, Some(status)) => format!("status {status}"),
            (None, None) => "no answer".to_owned(),
        }
    }
}
