//! Reads the output of wrk and wrk2.
//!
//! wrk 4 corrects its latency: for each answer slower than twice the mean interval between the requests of a connection, it adds the
//! requests that would have been due in that time (`stats_correct` in its stats.c). So its percentiles are estimates of the response time;
//! only the maximum and the number of requests are measured. wrk2 measures from the time at which a request was due according to the rate.
//! With --u_latency it also prints the times from sending.

use beamtune_model::load::{LoadModel, LoadResult};

use super::convert::{self, MILLISECOND_NS, ReportedTimes, add_errors, kind};
use super::lines::Lines;
use super::{ImportError, Tool};
use crate::tally::ErrorKind;

const WRK: &str = "wrk estimates response times: it adds answers that would have been due while a connection waited, at the mean request interval of the connection. Only the maximum is measured.";
const WRK2: &str = "wrk2 measures response times from the time at which a request is due at the requested rate, which it does not print. In runs of more than ten seconds, it discards the times of the first ten.";
const UNCORRECTED: &str = "Service times are wrk2's uncorrected latency.";
const CLOSED: &str = "For a result of wrk2, use --tool wrk2: without --latency its output is the same as wrk's, but its times are measured, not estimated.";
const STATUSES: &str =
    "Times are those of all answers, including statuses of 400 and above. Body bytes are not reported.";

/// The kind of times in the current lines.
#[derive(Clone, Copy, PartialEq)]
enum Section {
    Response,
    Uncorrected,
}

/// Imports the output.
pub(super) fn read(lines: &mut Lines<'_>, is_wrk2: bool) -> Result<LoadResult, ImportError> {
    let mut result = convert::blank(Tool::Wrk);
    let mut step = convert::step("request");
    let (mut response, mut uncorrected) = (ReportedTimes::default(), ReportedTimes::default());
    let mut section = Section::Response;
    let mut is_wrk2 = is_wrk2;
    let (mut connections, mut requests, mut timeouts, mut is_over) = (None, None, 0, false);
    while lines.advance()? {
        let words: Vec<&str> = lines.text().split_whitespace().collect();
        match words.as_slice() {
            ["Running", _, "test", "@", target] => result.targets = vec![convert::shortened(target)],
            [threads, "threads", "and", devices, "connections"] => {
                result.generator.processes = 1;
                result.generator.threads = number(threads).ok_or_else(|| lines.malformed("threads"))? as u32;
                connections = Some(number(devices).ok_or_else(|| lines.malformed("connections"))?);
            }
            ["Latency", "Distribution", rest @ ..] => {
                is_wrk2 |= !rest.is_empty();
                let is_uncorrected = rest.contains(&"Uncorrected");
                section = if is_uncorrected { Section::Uncorrected } else { Section::Response };
            }
            ["Latency", mean, _, max, _] => {
                // This is `-nan` if nothing was measured.
                response.mean_ns = convert::time(mean).filter(|_| response.mean_ns.is_none());
                response.max_ns = convert::time_ns(max);
            }
            [percent, time] if percent.ends_with('%') => {
                let percent = percent.trim_end_matches('%').parse();
                let percent: f64 = percent.map_err(|_| lines.malformed("a percentile and its time"))?;
                let time =
                    convert::time_ns(time).ok_or_else(|| lines.malformed("a percentile and its time"))?;
                let times = if section == Section::Response { &mut response } else { &mut uncorrected };
                if percent >= 100.0 {
                    times.max_ns = Some(time);
                } else {
                    times.percentile(percent, Some(time));
                }
            }
            ["#[Mean", "=", mean, ..] if section == Section::Uncorrected => {
                let mean = mean.trim_end_matches(',').parse::<f64>();
                uncorrected.mean_ns =
                    mean.ok().filter(|mean| mean.is_finite()).map(|mean| mean * MILLISECOND_NS);
            }
            ["#[Max", "=", _, "Total", "count", "=", count] => {
                let count = number(count.trim_end_matches(']'));
                let count = count.ok_or_else(|| lines.malformed("a total count"))?;
                let times = if section == Section::Response { &mut response } else { &mut uncorrected };
                times.count = count;
            }
            [count, "requests", "in", time, _, "read"] => {
                let length_ns = convert::time(time.trim_end_matches(','));
                let both = number(count).zip(length_ns);
                let (count, length_ns) = both.ok_or_else(|| lines.malformed("N requests in TIME"))?;
                requests = Some(count);
                result.length_s = length_ns / convert::SECOND_NS;
            }
            ["Socket", "errors:", "connect", connect, "read", read, "write", write, "timeout", timeout] => {
                let number = |word: &str| {
                    number(word.trim_end_matches(',')).ok_or_else(|| lines.malformed("counts of errors"))
                };
                add_errors(&mut step.errors, kind::CONNECT, number(connect)?, "wrk: connect");
                add_errors(&mut step.errors, kind::CONNECTION, number(read)?, "wrk: read");
                add_errors(&mut step.errors, kind::CONNECTION, number(write)?, "wrk: write");
                timeouts = number(timeout)?;
                let first = "wrk: an answer took longer than --timeout";
                add_errors(&mut step.errors, ErrorKind::Timeout.text(), timeouts, first);
            }
            ["Non-2xx", "or", "3xx", "responses:", count] => {
                let count = number(count).ok_or_else(|| lines.malformed("a count of responses"))?;
                let first = "wrk: a status of 400 or above";
                add_errors(&mut step.errors, ErrorKind::Status.text(), count, first);
                step.done = count;
            }
            ["Transfer/sec:", _] => is_over = true,
            _ => {}
        }
    }
    let requests = requests.ok_or_else(|| lines.ended("N requests in TIME"))?;
    if !is_over {
        result.remarks.push("Cut off before its last line: errors may be missing.".to_owned());
    }
    // Up to here, `done` was the number of wrong answers. In wrk a timeout is also an answer; in wrk2 it is the number of times that a
    // connection was found waiting.
    let wrong = step.done.saturating_add(if is_wrk2 { 0 } else { timeouts });
    step.done = requests.saturating_sub(wrong);
    if response.count == 0 {
        response.count = requests;
    }
    step.response = response.latency(&mut result.remarks);
    step.service = uncorrected.latency(&mut result.remarks);
    if is_wrk2 {
        result.tool = Tool::Wrk2.name().to_owned();
        result.remarks.push(WRK2.to_owned());
        if step.service.is_some() {
            result.remarks.push(UNCORRECTED.to_owned());
        }
    } else {
        result.model = connections.map_or(LoadModel::Unknown, |devices| LoadModel::Closed { devices });
        result.remarks.push(WRK.to_owned());
        result.remarks.push(CLOSED.to_owned());
    }
    result.remarks.push(STATUSES.to_owned());
    result.steps.push(step);
    Ok(result)
}

fn number(word: &str) -> Option<u64> {
    word.parse().ok().and_then(convert::count)
}
