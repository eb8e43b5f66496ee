//! Reads the output of RabbitMQ's PerfTest: a line per second, and at the end the rates and times of the whole run.
//!
//! The format is from the package `com.rabbitmq.perf.metrics` of <https://github.com/rabbitmq/rabbitmq-perf-test> (2.19 and later write
//! `time 1.000 s`, earlier versions `time: 1.000s`).

use beamtune_model::load::{LoadResult, LoadSecond, LoadStep};

use super::convert::{self, MICROSECOND_NS, MILLISECOND_NS, ReportedTimes, add_errors, kind};
use super::lines::Lines;
use super::{ImportError, Tool};

const DELAY: &str = "The response time of \"receive\" is the consumer latency, from publishing to consuming; if publisher and consumer run on two hosts, it is the difference of two clocks. The percentiles of the whole run are from a sample of 1,028 messages that favours the last minutes, those of a second from a sample of that second.";
const CONFIRMS: &str =
    "The response time of \"publish\" is the confirm latency, from publishing to the broker's confirm.";
const RATES: &str = "Counts are calculated from rates, which are printed in whole messages per second.";
/// Maximum length of a run: two days.
const MAX_SECONDS: f64 = 200_000.0;
/// The printed times.
const TIMES: &str = "min/median/75th/95th/99th";
/// The percentiles among the printed times; they follow the minimum.
const PERCENTS: [f64; 4] = [50.0, 75.0, 95.0, 99.0];

/// A line that is printed during the run.
#[derive(Default)]
struct Line {
    at_s: f64,
    sent: Option<f64>,
    received: Option<f64>,
    returned: f64,
    nacked: f64,
    /// Consumer latencies or, without them, confirm latencies.
    times_ns: Option<[u64; 5]>,
    /// Whether the line has consumer latencies and confirm latencies.
    has: [bool; 2],
}

/// Whether this is a line that is printed during the run.
pub(super) fn is_line(line: &str) -> bool {
    parse(line).is_some()
}

fn parse(line: &str) -> Option<Line> {
    let mut parts = line.split(", ");
    parts.next()?.strip_prefix("id: ")?;
    let time = parts.next()?;
    let time = time.strip_prefix("time")?.trim_start_matches(':').trim();
    let mut found = Line { at_s: number(time.strip_suffix('s')?.trim())?, ..Line::default() };
    for part in parts {
        let (name, value) = part.rsplit_once(": ")?;
        let rate = || number(value.strip_suffix("msg/s")?.trim());
        match name {
            "sent" => found.sent = Some(rate()?),
            "received" => found.received = Some(rate()?),
            "returned" => found.returned = rate()?,
            "nacked" => found.nacked = rate()?,
            "confirmed" => {}
            _ if name.ends_with("latency") => {
                found.has[usize::from(name.ends_with("confirm latency"))] = true;
                found.times_ns = found.times_ns.or(times(value));
            }
            _ => return None,
        }
    }
    (found.sent.is_some() || found.received.is_some()).then_some(found)
}

/// Parses a number with a decimal point or decimal comma, which depends on PerfTest's locale.
fn number(text: &str) -> Option<f64> {
    text.replace(',', ".").parse().ok().filter(|number: &f64| (0.0..convert::MAX_COUNT).contains(number))
}

/// Parses `1109/2913/4100/6200/9830 µs`. Returns nanoseconds.
fn times(text: &str) -> Option<[u64; 5]> {
    let (values, unit) = text.trim().split_once(' ')?;
    let unit_ns = match unit {
        "µs" => MICROSECOND_NS,
        "ms" => MILLISECOND_NS,
        _ => return None,
    };
    let values: Vec<u64> = values
        .split('/')
        .map(|value| convert::nanoseconds(value.parse().ok()?, unit_ns))
        .collect::<Option<_>>()?;
    values.try_into().ok()
}

/// Parses a line of the summary: its name and value.
fn summary(line: &str) -> Option<(&str, &str)> {
    let rest = line.strip_prefix("id: ")?.split_once(", ")?.1;
    let value_of = |name| rest.strip_prefix(name).map(|value| (name, value.trim()));
    value_of("sending rate avg:").or_else(|| value_of("receiving rate avg:")).or_else(|| {
        let (name, value) = rest.split_once(TIMES)?;
        matches!(name.trim(), "consumer latency" | "confirm latency").then(|| (name.trim(), value.trim()))
    })
}

/// Imports the output.
pub(super) fn read(lines: &mut Lines<'_>) -> Result<LoadResult, ImportError> {
    let mut result = convert::blank(Tool::PerfTest);
    let (mut sent, mut received, mut errors) = (0.0, 0.0, 0.0);
    let (mut consumer_ns, mut confirm_ns) = (None, None);
    let (mut is_over, mut has) = (false, [false; 2]);
    let mut before_s = 0.0;
    // With consumers, a message is counted once, when it is received.
    let mut is_consumed = false;
    while lines.advance()? {
        if let Some((name, value)) = summary(lines.text()) {
            match name {
                "consumer latency" => consumer_ns = times(value),
                "confirm latency" => confirm_ns = times(value),
                _ => is_over = name.starts_with("receiving"),
            }
            continue;
        }
        let Some(line) = parse(lines.text()) else { continue };
        if line.at_s > MAX_SECONDS {
            return Err(lines.too_large(format!("{MAX_SECONDS} s")));
        }
        // If the time goes backwards, the output contains another run.
        if line.at_s <= before_s {
            return Err(lines.malformed("a later time: use one file per run"));
        }
        has = [has[0] | line.has[0], has[1] | line.has[1]];
        let elapsed_s = line.at_s - before_s;
        before_s = line.at_s;
        let count = |rate: Option<f64>| rate.unwrap_or(0.0) * elapsed_s;
        sent += count(line.sent);
        received += count(line.received);
        let wrong = (line.returned + line.nacked) * elapsed_s;
        errors += wrong;
        is_consumed |= line.received.is_some();
        let done = count(if is_consumed { line.received } else { line.sent });
        result.seconds.push(LoadSecond {
            p50_ns: line.times_ns.map(|[_, median, ..]| median),
            p99_ns: line.times_ns.map(|[.., p99]| p99),
            // A line belongs to the second before it, even if lines are printed at longer intervals.
            ..LoadSecond::counted(
                (line.at_s.round() as i64 - 1).max(0),
                convert::count(done).unwrap_or(0),
                convert::count(wrong).unwrap_or(0),
            )
        });
    }
    result.length_s = before_s;
    result.generator.processes = 1;
    // The summary ends with the latencies that the lines contained.
    let is_complete = |has: bool, times_ns: Option<[u64; 5]>| !has || times_ns.is_some();
    if !is_over || !is_complete(has[0], consumer_ns) || !is_complete(has[1], confirm_ns) {
        result.remarks.push("Cut off before the end of its summary.".to_owned());
    }
    for (name, count, times_ns) in [("publish", sent, confirm_ns), ("receive", received, consumer_ns)] {
        let count = convert::count(count).unwrap_or(0);
        let is_send = is_consumed && name == "publish";
        let mut step = LoadStep { done: count, is_send, ..convert::step(name) };
        if name == "publish" {
            let wrong = convert::count(errors).unwrap_or(0);
            add_errors(&mut step.errors, kind::OTHER, wrong, "PerfTest: returned or nacked");
        }
        if let Some([min, percentiles @ ..]) = times_ns {
            let mut times = ReportedTimes { count, min_ns: Some(min), ..ReportedTimes::default() };
            for (percent, value) in PERCENTS.into_iter().zip(percentiles) {
                times.percentile(percent, Some(value));
            }
            step.response = times.latency(&mut result.remarks);
            let remark = if name == "publish" { CONFIRMS } else { DELAY };
            result.remarks.push(remark.to_owned());
        }
        if step.done > 0 || !step.errors.is_empty() {
            result.steps.push(step);
        }
    }
    result.remarks.push(RATES.to_owned());
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_old_and_new_versions_are_parsed() {
        let new = parse("id: test-1, time 2.001 s, sent: 55341 msg/s, returned: 0 msg/s, confirmed: 5 msg/s, nacked: 1.5 msg/s, received: 128229 msg/s, min/median/75th/95th/99th consumer latency: 9494/125465/248148/357311/400685 µs, confirm latency: 1/2/3/4/5 µs").unwrap();
        assert_eq!((new.at_s, new.sent, new.received), (2.001, Some(55_341.0), Some(128_229.0)));
        assert_eq!((new.returned, new.nacked), (0.0, 1.5));
        assert_eq!(new.times_ns.unwrap()[4], 400_685_000);
        let old = parse("id: test-1, time: 1.223s, sent: 0,82 msg/s").unwrap();
        assert_eq!((old.at_s, old.sent, old.received, old.times_ns), (1.223, Some(0.82), None, None));
        for other in [
            "id: test-1, starting consumer #0",
            "id: test-1, sending rate avg: 5 msg/s",
            "id: test-1, time 1.0 s",
            "",
        ] {
            assert!(parse(other).is_none(), "{other}");
        }
    }

    #[test]
    fn the_summary_is_distinguished_from_the_lines() {
        let line =
            "id: test-1, consumer latency min/median/75th/95th/99th 133000/150000/170000/180000/190000 µs";
        assert_eq!(summary(line), Some(("consumer latency", "133000/150000/170000/180000/190000 µs")));
        assert_eq!(summary("id: test-1, sending rate avg: 5 msg/s"), Some(("sending rate avg:", "5 msg/s")));
        assert_eq!(summary("id: test-1, starting consumer #0"), None);
    }
}
