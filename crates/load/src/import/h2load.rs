//! Reads the output of h2load, and the file of its --log-file, which has a line per request.

use beamtune_model::load::{LoadModel, LoadResult};

use super::convert::{self, ReportedTimes, add_errors, kind};
use super::lines::Lines;
use super::points::{self, Points, Request};
use super::{ImportError, Tool};
use crate::tally::ErrorKind;

const SERVICE: &str = "h2load measures service times, from sending to the end of the answer: while an answer is late, the connection sends no other request.";
const STATUSES: &str = "Times are those of all answers, including statuses of 400 and above.";
const NO_PERCENTILES: &str = "This h2load prints no percentiles: use --log-file=FILE, and import FILE.";
const FIRST_BYTE: &str =
    "The time to the first byte is omitted: h2load measures it once per connection, not per answer.";

/// Imports the output.
pub(super) fn read(lines: &mut Lines<'_>) -> Result<LoadResult, ImportError> {
    let mut result = convert::blank(Tool::H2load);
    let mut step = convert::step("request");
    let mut connect = convert::step("connect");
    let mut columns: Vec<String> = Vec::new();
    let (mut clients, mut threads) = (0_u64, 0_u32);
    let (mut finished, mut sums): (Option<(f64, f64)>, Option<Sums>) = (None, None);
    let (mut times, mut connects, mut is_over) = (None, None, false);
    while lines.advance()? {
        if lines.is_cut() {
            // A truncated time could have another unit: `3.76ms` becomes `3.76m`.
            result.remarks.push(lines.cut_remark());
            break;
        }
        let line = lines.text();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["spawning", "thread", _, count, "total", rest @ ..]
                if rest.first().is_some_and(|word| word.starts_with("client")) =>
            {
                let count = count.parse().ok().and_then(convert::count);
                clients += count.ok_or_else(|| lines.malformed("a count of clients"))?;
                threads += 1;
            }
            ["finished", "in", time, rate, "req/s,", ..] => {
                let both = convert::time(time.trim_end_matches(',')).zip(rate.parse().ok());
                finished = Some(both.ok_or_else(|| lines.malformed("finished in TIME, N req/s"))?);
            }
            ["requests:", rest @ ..] => {
                sums = Some(Sums::read(rest).ok_or_else(|| lines.malformed("requests: N total, …"))?);
            }
            ["traffic:", .., bytes, "data"] => {
                let bytes = bytes.trim_start_matches('(').trim_end_matches(')').parse();
                step.received_bytes = bytes.ok().and_then(convert::count);
            }
            ["min", "max", ..] => columns = words.iter().map(|word| (*word).to_owned()).collect(),
            _ => {
                let Some((label, row)) = line.split_once(':') else { continue };
                let row: Vec<&str> = row.split_whitespace().collect();
                match label.trim() {
                    "time for request" | "request" => times = Some(reported_times(&columns, &row)),
                    "time for connect" | "connect" => connects = Some(reported_times(&columns, &row)),
                    // This is the last line.
                    "req/s" => is_over = true,
                    _ => {}
                }
            }
        }
    }
    let sums = sums.ok_or_else(|| lines.ended("requests: N total, …"))?;
    let (elapsed_ns, rate) = finished.ok_or_else(|| lines.ended("finished in TIME, N req/s"))?;
    // The printed duration includes the warm-up; the rate does not.
    let by_rate_s = Some(sums.done as f64 / rate).filter(|seconds| seconds.is_finite() && sums.done > 0);
    result.length_s =
        by_rate_s.unwrap_or(elapsed_ns / convert::SECOND_NS).min(elapsed_ns / convert::SECOND_NS);
    step.done = sums.succeeded;
    add_errors(
        &mut step.errors,
        ErrorKind::Status.text(),
        sums.failed.saturating_sub(sums.errored),
        "h2load: failed",
    );
    add_errors(&mut step.errors, kind::OTHER, sums.errored.saturating_sub(sums.timeout), "h2load: errored");
    add_errors(&mut step.errors, ErrorKind::Timeout.text(), sums.timeout, "h2load: timeout");
    let has_percentiles = times.as_ref().is_some_and(|times| !times.percentiles.is_empty());
    if !is_over {
        result.remarks.push("Cut off before its last line: times may be missing.".to_owned());
    }
    if times.is_some() && !has_percentiles {
        result.remarks.push(NO_PERCENTILES.to_owned());
    }
    let mut latency = |times: Option<ReportedTimes>, count| {
        times
            .map(|times| ReportedTimes { count, ..times })
            .and_then(|times| times.latency(&mut result.remarks))
    };
    step.service = latency(times, sums.done);
    // After a warm-up h2load prints connect times of zero.
    connect.service = latency(connects.filter(|connects| connects.max_ns > Some(0)), clients);
    result.generator.processes = 1;
    result.generator.threads = threads;
    if clients > 0 {
        result.model = LoadModel::Closed { devices: clients };
    }
    result.remarks.extend([SERVICE, STATUSES, FIRST_BYTE].map(str::to_owned));
    if connect.service.is_some() {
        connect.is_connect = true;
        connect.done = clients;
        result.steps.push(connect);
    }
    result.steps.push(step);
    Ok(result)
}

/// The counts in the line `requests:`.
#[derive(Default)]
struct Sums {
    done: u64,
    succeeded: u64,
    /// All requests except those that succeeded.
    failed: u64,
    /// Failed requests without an answer.
    errored: u64,
    /// Errored requests that timed out.
    timeout: u64,
}

impl Sums {
    fn read(words: &[&str]) -> Option<Self> {
        let mut sums = Self::default();
        for pair in words.chunks_exact(2) {
            let count = pair[0].parse().ok().and_then(convert::count)?;
            match pair[1].trim_end_matches(',') {
                "done" => sums.done = count,
                "succeeded" => sums.succeeded = count,
                "failed" => sums.failed = count,
                "errored" => sums.errored = count,
                "timeout" => sums.timeout = count,
                _ => {}
            }
        }
        Some(sums)
    }
}

/// Reads the times of a row; newer releases have columns for percentiles.
fn reported_times(columns: &[String], row: &[&str]) -> ReportedTimes {
    let mut times = ReportedTimes::default();
    for (column, time) in columns.iter().zip(row) {
        match column.as_str() {
            "min" => times.min_ns = convert::time_ns(time),
            "max" => times.max_ns = convert::time_ns(time),
            "mean" => times.mean_ns = convert::time(time),
            "median" => times.percentile(50.0, convert::time_ns(time)),
            column => {
                if let Some(percent) = column.strip_prefix('p').and_then(|percent| percent.parse().ok()) {
                    times.percentile(percent, convert::time_ns(time));
                }
            }
        }
    }
    times
}

/// Whether this is a line of the log file: microseconds since 1970, status, microseconds.
pub(super) fn is_log(line: &str) -> bool {
    row(line).is_some_and(|(began_us, ..)| began_us > 1e14)
}

fn row(line: &str) -> Option<(f64, i64, f64)> {
    let mut cells = line.split('\t');
    let row = (cells.next()?.parse().ok()?, cells.next()?.parse().ok()?, cells.next()?.parse().ok()?);
    cells.next().is_none().then_some(row)
}

/// Imports the log file.
pub(super) fn log(lines: &mut Lines<'_>) -> Result<LoadResult, ImportError> {
    let mut result = convert::blank(Tool::H2load);
    let mut points = Points::default();
    while lines.advance()? {
        if lines.is_cut() {
            result.remarks.push(lines.cut_remark());
            break;
        }
        let request = row(lines.text()).and_then(|(began_us, status, took_us)| {
            let began_s = points::instant_s(began_us / 1e6)?;
            let took_ns = convert::nanoseconds(took_us, convert::MICROSECOND_NS)?;
            Some((began_s, status, took_ns))
        });
        let (began_s, status, took_ns) = request.ok_or_else(|| {
            lines.malformed("microseconds since 1970, status and microseconds, separated by tabs")
        })?;
        let text = format!("status {status}");
        let outcome = match status {
            100..400 => Ok(took_ns),
            400.. => Err((ErrorKind::Status.text(), text.as_str())),
            _ => Err((kind::OTHER, "h2load: no answer")),
        };
        let ended_s = began_s + took_ns as f64 / convert::SECOND_NS;
        points.add(lines, &Request { step: "request", began_s, ended_s, outcome })?;
    }
    points.finish(&mut result);
    result.remarks.extend([SERVICE, points::RIGHT_ANSWERS].map(str::to_owned));
    Ok(result)
}
