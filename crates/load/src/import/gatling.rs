//! Reads Gatling's report: js/stats.json and js/global_stats.json (until 3.9) or js/stats.js (since then). Also reads simulation.log of the
//! versions that wrote it as text.

use beamtune_model::load::LoadResult;
use serde_json::Value;

use super::convert::{self, MILLISECOND_NS, ReportedTimes, add_errors, kind};
use super::document::{Json, number};
use super::lines::Lines;
use super::points::{self, Points, Request};
use super::{ImportError, Tool};
use crate::tally::ErrorKind;

const SERVICE: &str = "Gatling measures service times, from sending to the end of the answer, in whole milliseconds. Users arrive on schedule, but each waits for an answer before its next request.";
const RIGHT: &str = "Times are those of correct answers only.";
const RANKS: &str = "The file does not name its percentiles: Gatling's defaults 50, 75, 95 and 99 are assumed, which gatling.conf can change.";
const KINDS: &str = "The report does not list errors by kind.";
const LENGTH: &str = "The length is the number of requests divided by their rounded mean rate.";
const ORDER: [f64; 4] = [50.0, 75.0, 95.0, 99.0];

/// Imports the statistics of a report.
pub(super) fn stats(json: &Json) -> Result<LoadResult, ImportError> {
    let mut result = convert::blank(Tool::Gatling);
    let all = json.value.get("stats").unwrap_or(&json.value);
    let requests = count(all, "numberOfRequests", "total");
    let rate = number(all, &["meanNumberOfRequestsPerSecond", "total"]);
    let length_s = requests.zip(rate).map(|(requests, rate)| requests as f64 / rate);
    let length_s = length_s.filter(|seconds| (0.0..=1e9).contains(seconds));
    result.length_s = length_s
        .ok_or_else(|| json.malformed("/meanNumberOfRequestsPerSecond", "requests and their rate"))?;
    match json.value.get("contents") {
        Some(contents) => add(json, contents, "", &mut result)?,
        None => add_step(json, all, "All Requests", &mut result)?,
    }
    result.remarks.extend([SERVICE, RIGHT, RANKS, KINDS, LENGTH].map(str::to_owned));
    Ok(result)
}

/// Adds the requests of a group and of its nested groups. The recursion is limited, because the JSON parser limits the depth.
fn add(json: &Json, contents: &Value, path: &str, result: &mut LoadResult) -> Result<(), ImportError> {
    for entry in contents.as_object().into_iter().flat_map(|contents| contents.values()) {
        let text = |key| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let name = if path.is_empty() {
            text("name").to_owned()
        } else {
            convert::shortened(&format!("{path} / {}", text("name")))
        };
        match (entry.get("contents"), entry.get("stats")) {
            // The statistics of a group are the sum of its requests.
            (Some(contents), _) => add(json, contents, &name, result)?,
            (None, Some(stats)) => add_step(json, stats, &name, result)?,
            (None, None) => return Err(json.malformed("/contents", "groups and requests")),
        }
    }
    Ok(())
}

fn add_step(json: &Json, stats: &Value, name: &str, result: &mut LoadResult) -> Result<(), ImportError> {
    if result.steps.len() >= convert::MAX_STEPS {
        return Err(json.too_large(&format!("{} requests", convert::MAX_STEPS)));
    }
    let mut step = convert::step(name);
    let counts = count(stats, "numberOfRequests", "ok").zip(count(stats, "numberOfRequests", "ko"));
    let (right, wrong) =
        counts.ok_or_else(|| json.malformed("/stats/numberOfRequests", "counts of requests, ok and ko"))?;
    step.done = right;
    add_errors(&mut step.errors, kind::OTHER, wrong, "counted as KO by Gatling");
    // Without correct answers, the times are zero or a dash.
    let time = |key: &str| number(stats, &[key, "ok"]);
    let nanoseconds = |key: &str| time(key).and_then(|time| convert::nanoseconds(time, MILLISECOND_NS));
    let mut times = ReportedTimes {
        count: right,
        min_ns: nanoseconds("minResponseTime"),
        mean_ns: time("meanResponseTime").map(|mean| mean * MILLISECOND_NS),
        max_ns: nanoseconds("maxResponseTime"),
        percentiles: Vec::new(),
    };
    for (index, percent) in ORDER.into_iter().enumerate() {
        times.percentile(percent, nanoseconds(&format!("percentiles{}", index + 1)));
    }
    step.service = times.latency(&mut result.remarks);
    result.steps.push(step);
    Ok(())
}

fn count(stats: &Value, key: &str, which: &str) -> Option<u64> {
    number(stats, &[key, which]).and_then(convert::count)
}

/// Imports a simulation.log in text form: `REQUEST`, groups, name, begin and end in milliseconds, `OK` or `KO`, message.
pub(super) fn log(lines: &mut Lines<'_>) -> Result<LoadResult, ImportError> {
    let mut result = convert::blank(Tool::Gatling);
    let mut points = Points::default();
    while lines.advance()? {
        if lines.is_cut() {
            result.remarks.push(lines.cut_remark());
            break;
        }
        let cells: Vec<&str> = lines.text().split('\t').collect();
        match cells.as_slice() {
            ["RUN", _, _, _, _, version, ..] if result.tool == Tool::Gatling.name() => {
                result.tool = convert::shortened(&format!("{} {version}", Tool::Gatling));
            }
            ["REQUEST", groups, name, began, ended, outcome @ ("OK" | "KO"), message @ ..] => {
                let instant =
                    |cell: &str| -> Option<f64> { points::instant_s(cell.parse::<f64>().ok()? / 1e3) };
                let both = instant(began).zip(instant(ended)).filter(|(began, ended)| began <= ended);
                let (began_s, ended_s) =
                    both.ok_or_else(|| lines.malformed("begin and end in milliseconds"))?;
                let groups = groups.replace(',', " / ");
                let step = if groups.is_empty() { (*name).to_owned() } else { format!("{groups} / {name}") };
                let message = message.first().map_or("KO", |message| message.trim());
                let outcome = if *outcome == "OK" {
                    // This is rounded to whole milliseconds, because a difference of seconds since 1970 is not exact.
                    let took_ms = ((ended_s - began_s) * 1e3).round();
                    let took_ns = convert::nanoseconds(took_ms, MILLISECOND_NS);
                    Ok(took_ns.ok_or_else(|| lines.malformed("begin and end in milliseconds"))?)
                } else {
                    Err((error_kind(message), message))
                };
                points.add(lines, &Request { step: &step, began_s, ended_s, outcome })?;
            }
            ["RUN" | "USER" | "GROUP" | "ASSERTION" | "ERROR", ..] => {}
            _ => return Err(lines.malformed("RUN, USER, GROUP or REQUEST and its values")),
        }
    }
    points.finish(&mut result);
    result.remarks.extend([SERVICE, points::RIGHT_ANSWERS].map(str::to_owned));
    Ok(result)
}

/// Returns the kind of an error, from Gatling's message.
fn error_kind(message: &str) -> &'static str {
    let kinds = [
        ("status.find", ErrorKind::Status),
        ("onnection refused", ErrorKind::Refused),
        ("equest timeout", ErrorKind::Timeout),
        ("onnection timed out", ErrorKind::ConnectTimeout),
        ("ConnectTimeoutException", ErrorKind::ConnectTimeout),
        ("onnection reset", ErrorKind::Reset),
        ("remotely closed", ErrorKind::Closed),
        ("SSL", ErrorKind::Tls),
        (".find", ErrorKind::Check),
    ];
    convert::match_kind(message, &kinds).unwrap_or(kind::OTHER)
}
