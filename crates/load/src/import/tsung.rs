//! Reads Tsung's tsung.log, which has an entry every ten seconds, and its tsung.dump (`dumptraffic="protocol"`), which has a line per
//! request.
//!
//! A line of tsung.log is `stats: NAME COUNT MEAN STDDEV MAX MIN MEAN_BEFORE COUNT_BEFORE` for times (milliseconds) and `stats: NAME MORE
//! TOTAL` for counts; maximum and minimum cover the whole run. The exact mean of the whole run is calculated from the means and counts of
//! its parts.

use std::collections::BTreeMap;

use beamtune_model::load::{Latency, LoadResult};

use super::convert::{self, MILLISECOND_NS, ReportedTimes, SECOND_NS, add_errors, kind};
use super::lines::Lines;
use super::points::{self, Points, Request};
use super::{ImportError, Tool};
use crate::tally::ErrorKind;

const SERVICE: &str = "Tsung measures service times, from sending to the end of the answer: a user that waits for an answer sends nothing else. With an arrival rate, only each user's first request is on schedule.";
const STATUSES: &str = "Times are those of all answers, including statuses of 400 and above.";
const NO_PERCENTILES: &str = "tsung.log has no percentiles and no values per second. To get them, set dumptraffic=\"protocol\" and import tsung.dump, which contains each request.";
const BEGIN: &str = "The run is assumed to start ten seconds before the first entry (Tsung's default interval between entries).";
const OVERLAP: &str = "Transactions, pages and sessions are omitted: they consist of the same requests.";
/// Tsung's default interval between entries, in seconds (dumpstats_interval).
const INTERVAL_S: f64 = 10.0;

/// Imports tsung.log.
pub(super) fn log(lines: &mut Lines<'_>) -> Result<LoadResult, ImportError> {
    let mut result = convert::blank(Tool::Tsung);
    let (mut first_s, mut last_s) = (None, 0.0);
    let mut times: BTreeMap<&str, ReportedTimes> = BTreeMap::new();
    let mut totals: BTreeMap<String, u64> = BTreeMap::new();
    let mut is_over = false;
    while lines.advance()? {
        let line = lines.text();
        if let Some(at) = line.strip_prefix("# stats: dump at ") {
            let at_s = at.trim().parse().ok().and_then(points::instant_s);
            last_s = at_s.ok_or_else(|| lines.malformed("a time stamp"))?;
            first_s.get_or_insert(last_s);
        } else if let Some(rest) = line.strip_prefix("stats: ") {
            let words: Vec<&str> = rest.split_whitespace().collect();
            let numbers: Option<Vec<f64>> = words
                .iter()
                .skip(1)
                .map(|word| word.parse().ok().filter(|number: &f64| number.is_finite()))
                .collect();
            let Some(name) = words.first().filter(|_| first_s.is_some()) else {
                return Err(lines.malformed("stats: NAME and numbers, after the time of the entry"));
            };
            if name.starts_with('{') || !is_wanted(name) {
                continue;
            }
            match numbers.as_deref() {
                Some([count, mean, _, max, min, mean_before, count_before]) => {
                    let reported = reported_times(*count, *mean, *max, *min, *mean_before, *count_before);
                    let reported = reported.ok_or_else(|| lines.malformed("counts and times"))?;
                    times.insert(if *name == "connect" { "connect" } else { "request" }, reported);
                }
                Some([_, total]) => {
                    if !totals.contains_key(*name) && totals.len() >= convert::MAX_STEPS {
                        return Err(lines.too_large(format!("{} counters", convert::MAX_STEPS)));
                    }
                    let total = convert::count(*total).ok_or_else(|| lines.malformed("a total"))?;
                    totals.insert((*name).to_owned(), total);
                }
                _ if lines.is_cut() => result.remarks.push(lines.cut_remark()),
                _ => return Err(lines.malformed("two or seven numbers")),
            }
        } else if line.starts_with("EndMonitor:") {
            is_over = true;
        }
    }
    let first_s = first_s.ok_or_else(|| lines.ended("# stats: dump at TIME"))?;
    if !is_over {
        result.remarks.push(
            "The end of the log (EndMonitor) is missing: Tsung was still running, or the file is cut off."
                .to_owned(),
        );
    }
    result.began_unix_s = Some((first_s - INTERVAL_S).max(0.0));
    result.length_s = (last_s - first_s).max(0.0) + INTERVAL_S;
    let mut connect = convert::step("connect");
    connect.is_connect = true;
    let mut request = convert::step("request");
    let mut wrong = 0;
    for (name, total) in totals {
        match name.parse::<u16>() {
            Ok(status) if status >= 400 => {
                wrong += total;
                let text = format!("status {status}");
                add_errors(&mut request.errors, ErrorKind::Status.text(), total, &text);
            }
            Ok(_) => {}
            Err(_) if name.starts_with("error_connect") => {
                add_errors(&mut connect.errors, error_kind(&name), total, &name);
            }
            Err(_) if name.starts_with("error") => {
                add_errors(&mut request.errors, error_kind(&name), total, &name);
            }
            // Other counts (users, bytes, matches) are not errors.
            Err(_) => {}
        }
    }
    let mut latency = |name| -> Option<Latency> {
        times.remove(name).and_then(|reported| reported.latency(&mut result.remarks))
    };
    connect.service = latency("connect");
    connect.done = connect.service.as_ref().map_or(0, |latency| latency.count);
    request.service = latency("request");
    let answers = request.service.as_ref().map_or(0, |latency| latency.count);
    request.done = answers.saturating_sub(wrong);
    if connect.done > 0 || !connect.errors.is_empty() {
        result.steps.push(connect);
    }
    result.steps.push(request);
    result.remarks.extend([SERVICE, STATUSES, NO_PERCENTILES, BEGIN, OVERLAP].map(str::to_owned));
    Ok(result)
}

/// Whether a counter counts requests, connections, statuses or errors.
fn is_wanted(name: &str) -> bool {
    matches!(name, "request" | "response_time" | "connect")
        || name.starts_with("error")
        || name.parse::<u16>().is_ok()
}

fn reported_times(
    count: f64,
    mean: f64,
    max: f64,
    min: f64,
    mean_before: f64,
    count_before: f64,
) -> Option<ReportedTimes> {
    let all = convert::count(count + count_before)?;
    let mean_ms = (mean * count + mean_before * count_before) / (count + count_before);
    Some(ReportedTimes {
        count: all,
        min_ns: convert::nanoseconds(min, MILLISECOND_NS),
        mean_ns: Some(mean_ms * MILLISECOND_NS).filter(|mean| mean.is_finite()),
        max_ns: convert::nanoseconds(max, MILLISECOND_NS),
        percentiles: Vec::new(),
    })
}

fn error_kind(name: &str) -> &'static str {
    let kinds = [
        ("econnrefused", ErrorKind::Refused),
        ("connect_etimedout", ErrorKind::ConnectTimeout),
        ("connect_timeout", ErrorKind::ConnectTimeout),
        ("timeout", ErrorKind::Timeout),
        ("econnreset", ErrorKind::Reset),
        ("closed", ErrorKind::Closed),
        ("ehostunreach", ErrorKind::Unreachable),
        ("enetunreach", ErrorKind::Unreachable),
        ("eaddrinuse", ErrorKind::Exhausted),
        ("emfile", ErrorKind::Exhausted),
    ];
    let unknown = if name.starts_with("error_connect") { kind::CONNECT } else { kind::OTHER };
    convert::match_kind(name, &kinds).unwrap_or(unknown)
}

/// A line of tsung.dump. A URL may contain the separator, so the values after the URL are counted from the end.
struct Row<'a> {
    at_s: f64,
    method: &'a str,
    url: &'a str,
    status: u16,
    took_ns: u64,
    error: &'a str,
    tag: &'a str,
}

fn row(line: &str) -> Option<Row<'_>> {
    let mut front = line.splitn(6, ';');
    let at_s = front.next()?.parse().ok().and_then(points::instant_s)?;
    let (_pid, _id, method, _host) = (front.next()?, front.next()?, front.next()?, front.next()?);
    let mut back = front.next()?.rsplitn(8, ';');
    let (tag, error, _match, _transaction) = (back.next()?, back.next()?, back.next()?, back.next()?);
    let took_ms = back.next()?.parse().ok()?;
    let (_size, status) = (back.next()?, back.next()?);
    // Without an answer there is no status.
    let status = if status.is_empty() { 0 } else { status.parse().ok()? };
    let took_ns = convert::nanoseconds(took_ms, MILLISECOND_NS)?;
    Some(Row { at_s, method, url: back.next()?, status, took_ns, error, tag })
}

/// Imports tsung.dump.
pub(super) fn dump(lines: &mut Lines<'_>) -> Result<LoadResult, ImportError> {
    let mut result = convert::blank(Tool::Tsung);
    let mut points = Points::default();
    while lines.advance()? {
        if lines.text().starts_with('#') {
            continue;
        }
        if lines.is_cut() {
            result.remarks.push(lines.cut_remark());
            break;
        }
        let row = row(lines.text())
            .ok_or_else(|| lines.malformed("the thirteen values of the header, separated by semicolons"))?;
        // The query is dropped, because it may differ in each request. A tag is the user's name for the request.
        let path = row.url.split('?').next().unwrap_or_default();
        let named = format!("{} {path}", row.method);
        let step = if row.tag.is_empty() { named.as_str() } else { row.tag };
        let text = format!("status {}", row.status);
        let outcome = match row.status {
            _ if !row.error.is_empty() => Err((error_kind(row.error), row.error)),
            400.. => Err((ErrorKind::Status.text(), text.as_str())),
            _ => Ok(row.took_ns),
        };
        let began_s = (row.at_s - row.took_ns as f64 / SECOND_NS).max(0.0);
        points.add(lines, &Request { step, began_s, ended_s: row.at_s, outcome })?;
    }
    points.finish(&mut result);
    result.remarks.extend([SERVICE, points::RIGHT_ANSWERS].map(str::to_owned));
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semicolon_in_a_url_does_not_shift_the_values() {
        let row = row("1795236498.5;<0.1.0>;1;get;host;/a;b?c;d;200;160;17.462;tr;;;the tag").unwrap();
        assert_eq!((row.url, row.status, row.took_ns, row.tag), ("/a;b?c;d", 200, 17_462_000, "the tag"));
    }

    #[test]
    fn the_mean_of_the_whole_run_is_calculated_from_the_means_of_its_parts() {
        let times = reported_times(16.0, 2.0, 28.0, 0.5, 5.0, 48.0).unwrap();
        assert_eq!((times.count, times.mean_ns), (64, Some(4_250_000.0)));
    }
}
