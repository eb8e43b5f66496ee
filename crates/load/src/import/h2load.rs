//! What h2load prints, and the file of its --log-file, which has a line for each request.

use beamtune_model::load::{Asked, LoadResult};

use super::lines::Lines;
use super::points::{self, Points, Request};
use super::told::{self, Told, add_errors, kind};
use super::{ImportError, Tool};
use crate::tally::ErrorKind;

const SERVICE: &str = "h2load measures service times, from the sending to the answer's end: while an answer is late, the connection sends nothing that would wait.";
const STATUSES: &str = "Times are of all answers, those with a status of 400 and more too.";
const NO_PERCENTILES: &str =
    "This h2load printed no percentiles: --log-file=FILE writes each time, and FILE can be read.";
const FIRST_BYTE: &str = "The time to the first byte is left out: h2load measures it once for a connection, from its beginning, and not for each answer.";

/// Reads what it prints.
pub(super) fn read(lines: &mut Lines<'_>) -> Result<LoadResult, ImportError> {
    let mut result = told::blank(Tool::H2load);
    let mut step = told::step("request");
    let mut connect = told::step("connect");
    let mut columns: Vec<String> = Vec::new();
    let (mut clients, mut threads) = (0_u64, 0_u32);
    let (mut finished, mut sums): (Option<(f64, f64)>, Option<Sums>) = (None, None);
    let (mut times, mut connects, mut is_over) = (None, None, false);
    while lines.advance()? {
        if lines.is_cut() {
            // Half a time has another unit: 3.76ms cut off is 3.76m.
            result.remarks.push(lines.cut_remark());
            break;
        }
        let line = lines.text();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["spawning", "thread", _, count, "total", rest @ ..]
                if rest.first().is_some_and(|word| word.starts_with("client")) =>
            {
                let count = count.parse().ok().and_then(told::count);
                clients += count.ok_or_else(|| lines.malformed("a count of clients"))?;
                threads += 1;
            }
            ["finished", "in", time, rate, "req/s,", ..] => {
                let both = told::time(time.trim_end_matches(',')).zip(rate.parse().ok());
                finished = Some(both.ok_or_else(|| lines.malformed("finished in TIME, N req/s"))?);
            }
            ["requests:", rest @ ..] => {
                sums = Some(Sums::read(rest).ok_or_else(|| lines.malformed("requests: N total, …"))?);
            }
            ["traffic:", .., bytes, "data"] => {
                let bytes = bytes.trim_start_matches('(').trim_end_matches(')').parse();
                step.received_bytes = bytes.ok().and_then(told::count);
            }
            ["min", "max", ..] => columns = words.iter().map(|word| (*word).to_owned()).collect(),
            _ => {
                let Some((label, row)) = line.split_once(':') else { continue };
                let row: Vec<&str> = row.split_whitespace().collect();
                match label.trim() {
                    "time for request" | "request" => times = Some(told_of(&columns, &row)),
                    "time for connect" | "connect" => connects = Some(told_of(&columns, &row)),
                    // The last line.
                    "req/s" => is_over = true,
                    _ => {}
                }
            }
        }
    }
    let sums = sums.ok_or_else(|| lines.ended("requests: N total, …"))?;
    let (elapsed_ns, rate) = finished.ok_or_else(|| lines.ended("finished in TIME, N req/s"))?;
    // What it finished in has the warm-up in it; the rate has not.
    let by_rate_s = Some(sums.done as f64 / rate).filter(|seconds| seconds.is_finite() && sums.done > 0);
    result.length_s = by_rate_s.unwrap_or(elapsed_ns / told::SECOND_NS).min(elapsed_ns / told::SECOND_NS);
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
    let mut latency = |times: Option<Told>, count| {
        times.map(|times| Told { count, ..times }).and_then(|times| times.latency(&mut result.remarks))
    };
    step.service = latency(times, sums.done);
    // Connections made in a warm-up are told as none of zero length.
    connect.service = latency(connects.filter(|connects| connects.max_ns > Some(0)), clients);
    result.generator.processes = 1;
    result.generator.threads = threads;
    if clients > 0 {
        result.asked = Asked::Closed { devices: clients };
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

/// The counts of the line `requests:`.
#[derive(Default)]
struct Sums {
    done: u64,
    succeeded: u64,
    /// All but those that succeeded.
    failed: u64,
    /// Of those that failed, the ones without an answer.
    errored: u64,
    /// Of those without an answer.
    timeout: u64,
}

impl Sums {
    fn read(words: &[&str]) -> Option<Self> {
        let mut sums = Self::default();
        for pair in words.chunks_exact(2) {
            let count = pair[0].parse().ok().and_then(told::count)?;
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

/// A row of times below their columns; newer releases have percentiles among them.
fn told_of(columns: &[String], row: &[&str]) -> Told {
    let mut told = Told::default();
    for (column, time) in columns.iter().zip(row) {
        match column.as_str() {
            "min" => told.min_ns = told::time_ns(time),
            "max" => told.max_ns = told::time_ns(time),
            "mean" => told.mean_ns = told::time(time),
            "median" => told.percentile(50.0, told::time_ns(time)),
            column => {
                if let Some(percent) = column.strip_prefix('p').and_then(|percent| percent.parse().ok()) {
                    told.percentile(percent, told::time_ns(time));
                }
            }
        }
    }
    told
}

/// Whether it is a line of its log file: microseconds since 1970, status, microseconds.
pub(super) fn is_log(line: &str) -> bool {
    row(line).is_some_and(|(began_us, ..)| began_us > 1e14)
}

fn row(line: &str) -> Option<(f64, i64, f64)> {
    let mut cells = line.split('\t');
    let row = (cells.next()?.parse().ok()?, cells.next()?.parse().ok()?, cells.next()?.parse().ok()?);
    cells.next().is_none().then_some(row)
}

/// Reads its log file.
pub(super) fn log(lines: &mut Lines<'_>) -> Result<LoadResult, ImportError> {
    let mut result = told::blank(Tool::H2load);
    let mut points = Points::default();
    while lines.advance()? {
        if lines.is_cut() {
            result.remarks.push(lines.cut_remark());
            break;
        }
        let request = row(lines.text()).and_then(|(began_us, status, took_us)| {
            let began_s = points::instant_s(began_us / 1e6)?;
            let took_ns = told::nanoseconds(took_us, told::MICROSECOND_NS)?;
            Some((began_s, status, took_ns))
        });
        let (began_s, status, took_ns) = request.ok_or_else(|| {
            lines.malformed("microseconds since 1970, status and microseconds, by tabulators")
        })?;
        let words = format!("status {status}");
        let outcome = match status {
            100..400 => Ok(took_ns),
            400.. => Err((ErrorKind::Status.text(), words.as_str())),
            _ => Err((kind::OTHER, "h2load: no answer")),
        };
        let ended_s = began_s + took_ns as f64 / told::SECOND_NS;
        points.add(lines, &Request { step: "request", began_s, ended_s, outcome })?;
    }
    points.finish(&mut result);
    result.remarks.extend([SERVICE, points::RIGHT_ANSWERS].map(str::to_owned));
    Ok(result)
}
