//! k6's summaries (--summary-export, and what handleSummary is given) and its points (--out json, --out csv).
//!
//! Of its metrics http_req_duration is the service time: sending, waiting and receiving, without connecting. A request without
//! an answer has one of zero, so where a summary has failed requests only the submetric of expected responses is taken.

use std::borrow::Cow;

use beamtune_model::load::LoadResult;
use serde::Deserialize;
use serde_json::Value;

use super::document::{Json, number};
use super::lines::{Columns, Lines, cells};
use super::points::{self, Points, Request};
use super::told::{self, MILLISECOND_NS, SECOND_NS, Told, add_errors, kind};
use super::{ImportError, Tool};
use crate::tally::ErrorKind;

const SERVICE: &str = "k6 measures service times, from the sending to the answer's end: a user (VU) that waits for an answer sends nothing meanwhile, and how late an iteration of an arrival-rate executor began is not told.";
const FAILED: &str =
    "What k6 counts as failed is not told by kind in a summary: --out json or --out csv tells.";
const WITH_FAILED: &str =
    "Times are of all requests, and those without an answer count as zero: times are too short by them.";
const NO_FIRST_BYTE: &str =
    "The time to the first byte is left out: failed requests count as zero in http_req_waiting.";
const DROPPED: &str = "dropped_iterations: no user (VU) was free";
const STEP: &str = "http_req";
const EXPECTED: &str = "http_req_duration{expected_response:true}";

/// Reads a summary of either kind.
pub(super) fn summary(json: &Json) -> Result<LoadResult, ImportError> {
    let mut result = told::blank(Tool::K6);
    let mut step = told::step(STEP);
    let metrics = json.value.get("metrics").ok_or_else(|| json.malformed("/metrics", "metrics"))?;
    let requests = value(metrics, "http_reqs", "count").and_then(told::count);
    let requests = requests.ok_or_else(|| {
        json.malformed("/metrics/http_reqs", "a count of HTTP requests (other protocols are not read)")
    })?;
    // The rate of requests that are true of it: those that failed.
    let failed = match value(metrics, "http_req_failed", "passes") {
        Some(failed) => told::count(failed)
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
    let dropped = value(metrics, "dropped_iterations", "count").and_then(told::count).unwrap_or_default();
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
        duration.map(|metric| trend(metric, count)).and_then(|told| told.latency(&mut result.remarks));
    result.remarks.push(SERVICE.to_owned());
    if failed > 0 {
        result.remarks.extend([FAILED, NO_FIRST_BYTE].map(str::to_owned));
        if expected.is_none() {
            result.remarks.push(WITH_FAILED.to_owned());
        }
    } else {
        let waiting = metrics.get("http_req_waiting").map(|metric| trend(metric, requests));
        step.first_byte = waiting.and_then(|told| told.latency(&mut result.remarks));
    }
    if let Some(fails) = value(metrics, "checks", "fails").and_then(told::count).filter(|fails| *fails > 0) {
        result.remarks.push(checks(fails));
    }
    result.steps.push(step);
    Ok(result)
}

fn checks(fails: u64) -> String {
    format!("{fails} checks of the script failed; which answers they were of is not told.")
}

/// A value of a metric: --summary-export has it in the metric itself, handleSummary below `values`.
fn value(metrics: &Value, metric: &str, key: &str) -> Option<f64> {
    let metric = metrics.get(metric)?;
    number(metric, &["values", key]).or_else(|| number(metric, &[key]))
}

/// A metric of times, in milliseconds.
fn trend(metric: &Value, count: u64) -> Told {
    let values = metric.get("values").unwrap_or(metric);
    let mut told = Told { count, ..Told::default() };
    for (name, value) in values.as_object().into_iter().flatten() {
        let Some(milliseconds) = value.as_f64() else { continue };
        let nanoseconds = told::nanoseconds(milliseconds, MILLISECOND_NS);
        match name.as_str() {
            "avg" => told.mean_ns = Some(milliseconds * MILLISECOND_NS),
            "min" => told.min_ns = nanoseconds,
            "max" => told.max_ns = nanoseconds,
            "med" => told.percentile(50.0, nanoseconds),
            name => {
                let percent = name.strip_prefix("p(").and_then(|name| name.strip_suffix(')')?.parse().ok());
                if let Some(percent) = percent {
                    told.percentile(percent, nanoseconds);
                }
            }
        }
    }
    told
}

/// Whether it is a line of --out json.
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

/// Of a point; of a metric's definition nothing is read.
#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow)]
    time: Option<Cow<'a, str>>,
    value: Option<f64>,
    #[serde(borrow)]
    tags: Option<Tags<'a>>,
}

/// The tags that say what a request was and how it ended.
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

/// Reads the points of --out json.
pub(super) fn points_json(lines: &mut Lines<'_>) -> Result<LoadResult, ImportError> {
    let mut counted = Counted::default();
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
        counted.add(lines, &line.metric, at_s, value, &line.data.tags.unwrap_or_default())?;
    }
    Ok(counted.finish(cut))
}

/// Reads the points of --out csv.
pub(super) fn points_csv(lines: &mut Lines<'_>) -> Result<LoadResult, ImportError> {
    lines.advance()?;
    let columns = Columns::new(lines.text());
    let mut counted = Counted { has_whole_seconds: true, ..Counted::default() };
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
        counted.add(lines, metric, at_s, value, &tags)?;
    }
    let mut result = counted.finish(cut);
    // The last second counts as a whole one.
    result.length_s += 1.0;
    result.remarks.push("--out csv has whole seconds, so the length is known to a second.".to_owned());
    Ok(result)
}

/// What was counted of points.
#[derive(Default)]
struct Counted {
    points: Points,
    failed_checks: u64,
    /// Of a point's time only the second is known.
    has_whole_seconds: bool,
}

impl Counted {
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
                let took = told::nanoseconds(value, MILLISECOND_NS);
                let took_ns = took.ok_or_else(|| lines.malformed("a time in milliseconds"))?;
                // The time of a point is that of the answer's end.
                let before_s = if self.has_whole_seconds { 0.0 } else { took_ns as f64 / SECOND_NS };
                let began_s = (at_s - before_s).max(0.0);
                let words = tags.words();
                let outcome =
                    if tags.is_right() { Ok(took_ns) } else { Err((tags.error_kind(), words.as_str())) };
                self.points.add(lines, &Request { step: &step(), began_s, ended_s: at_s, outcome })?;
            }
            "http_req_waiting" if tags.is_right() => {
                if let Some(nanoseconds) = told::nanoseconds(value, MILLISECOND_NS) {
                    self.points.first_byte(&step(), nanoseconds);
                }
            }
            // A counter: of as many as came at once.
            "dropped_iterations" => {
                let count = told::count(value).ok_or_else(|| lines.malformed("a count of iterations"))?;
                self.points.errors(STEP, ErrorKind::Dropped.text(), count, DROPPED);
            }
            "checks" if value == 0.0 => self.failed_checks += 1,
            _ => {}
        }
        Ok(())
    }

    fn finish(self, cut: Option<String>) -> LoadResult {
        let mut result = told::blank(Tool::K6);
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
    /// Whether the answer is one that was expected; without that tag, by its status.
    fn is_right(&self) -> bool {
        match self.expected_response.as_deref() {
            Some(expected) => expected == "true",
            None => self.error_code.is_none() && self.status.as_deref() != Some("0"),
        }
    }

    /// By k6's codes of errors (<https://grafana.com/docs/k6/latest/javascript-api/error-codes/>).
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

    fn words(&self) -> String {
        match (&self.error, &self.status) {
            (Some(error), _) => error.to_string(),
            (None, Some(status)) => format!("status {status}"),
            (None, None) => "no answer".to_owned(),
        }
    }
}
