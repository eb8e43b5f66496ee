//! Reads the output of emqtt-bench: once a second, `1m5s pub total=6500 rate=100.00/sec` for each counter that changed.
//!
//! The format is from src/emqtt_bench.erl of <https://github.com/emqx/emqtt-bench>.

use std::collections::BTreeMap;

use beamtune_model::load::{LoadResult, LoadSecond, LoadStep};

use super::convert::{self, MILLISECOND_NS, ReportedTimes, add_errors, kind};
use super::lines::Lines;
use super::{ImportError, Tool};

const COUNTS: &str = "emqtt-bench measures no times, only counts, and the mean delay of messages that contain their sending time (--payload-hdrs ts).";
const DELAY: &str = "The service time of \"receive\" is that delay, from publishing to receiving, in whole milliseconds rounded down. If publisher and receiver ran on two hosts, it is the difference of two clocks.";
const NO_ANSWER: &str = "\"publish\" is the number of messages that were passed to the connection (QoS 0) or acknowledged (QoS 1 and 2), whether or not they had a subscriber.";
/// Maximum length of a run: two days.
const MAX_SECONDS: u64 = 200_000;

/// A step with its counters: those of successes, and those of errors with their kinds.
type Counters = (&'static str, &'static [&'static str], &'static [(&'static str, &'static str)]);

const STEPS: [Counters; 4] = [
    (
        "connect",
        &["connect_succ"],
        &[
            ("connect_fail", kind::CONNECT),
            ("connection_refused", REFUSED),
            ("connection_timeout", CONNECT_TIMEOUT),
            ("unreachable", UNREACHABLE),
            ("connection_idle", kind::CONNECTION),
        ],
    ),
    ("subscribe", &["sub"], &[("sub_fail", kind::OTHER)]),
    ("publish", &["pub", "pub_succ", "pub_nosub"], &[("pub_fail", kind::OTHER)]),
    ("receive", &["recv"], &[]),
];
/// Names of [`crate::tally::ErrorKind`]; a test compares them.
const REFUSED: &str = "refused";
const CONNECT_TIMEOUT: &str = "connect_timeout";
const UNREACHABLE: &str = "unreachable";

/// A line with a counter.
struct Line<'a> {
    at_s: u64,
    counter: &'a str,
    value: Value,
}

enum Value {
    Total(u64),
    MeanMs(u64),
}

/// Whether this is a line with a counter.
pub(super) fn is_line(line: &str) -> bool {
    parse(line).is_some()
}

fn parse(line: &str) -> Option<Line<'_>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    // Lines of the first second have no time.
    let (at_s, rest) = match words.as_slice() {
        [at, rest @ ..] if rest.len() >= 2 && uptime_s(at).is_some() => (uptime_s(at)?, rest),
        rest => (0, rest),
    };
    let value = match rest {
        [_, total, rate] if rate.starts_with("rate=") && rate.ends_with("/sec") => {
            Value::Total(total.strip_prefix("total=")?.parse().ok().and_then(convert::count)?)
        }
        ["publish_latency", mean] => Value::MeanMs(
            mean.strip_prefix("avg=")?.strip_suffix("ms")?.parse().ok().and_then(convert::count)?,
        ),
        _ => return None,
    };
    Some(Line { at_s, counter: rest[0], value })
}

/// Parses `1d2h3m4s` into seconds.
fn uptime_s(text: &str) -> Option<u64> {
    let mut seconds = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let at = rest.find(|char: char| !char.is_ascii_digit()).filter(|at| (1..8).contains(at))?;
        let number: u64 = rest[..at].parse().ok()?;
        let unit = match rest.as_bytes()[at] {
            b's' => 1,
            b'm' => 60,
            b'h' => 3600,
            b'd' => 86_400,
            _ => return None,
        };
        seconds = seconds.checked_add(number.checked_mul(unit)?)?;
        rest = &rest[at + 1..];
    }
    (!text.is_empty()).then_some(seconds)
}

/// Imports the output.
pub(super) fn read(lines: &mut Lines<'_>) -> Result<LoadResult, ImportError> {
    let mut result = convert::blank(Tool::EmqttBench);
    let mut totals: BTreeMap<String, u64> = BTreeMap::new();
    let mut seconds: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let mut messages: BTreeMap<&str, String> = BTreeMap::new();
    let (mut last_s, mut mean_ms, mut delays, mut delay_sum_ms) = (0, None, 0_u64, 0.0);
    while lines.advance()? {
        let text = lines.text().trim_start_matches('\r');
        let Some(line) = parse(text) else {
            if lines.is_cut() && text.contains("total=") {
                result.remarks.push(lines.cut_remark());
            }
            for (word, counter) in [("connect error", "connect_fail"), ("publish error", "pub_fail")] {
                if text.contains(word) {
                    messages.entry(counter).or_insert_with(|| convert::shortened(text));
                }
            }
            continue;
        };
        if line.at_s > MAX_SECONDS {
            return Err(lines.too_large(format!("{MAX_SECONDS} s")));
        }
        last_s = line.at_s.max(last_s);
        let total = match line.value {
            Value::MeanMs(mean) => {
                mean_ms = Some((line.at_s, mean));
                continue;
            }
            Value::Total(total) => total,
        };
        if !totals.contains_key(line.counter) && totals.len() >= convert::MAX_STEPS {
            return Err(lines.too_large(format!("{} counters", convert::MAX_STEPS)));
        }
        let before = totals.insert(line.counter.to_owned(), total).unwrap_or_default();
        let more = total.saturating_sub(before);
        // The mean delay of the messages since the last line is printed before their number.
        if line.counter == "recv"
            && let Some((_, mean)) = mean_ms.take().filter(|(at_s, _)| *at_s == line.at_s)
        {
            delays += more;
            delay_sum_ms += mean as f64 * more as f64;
        }
        let (done, errors) = seconds.entry(line.at_s.saturating_sub(1)).or_default();
        for (name, right, wrong) in STEPS {
            if name != "connect" && right.contains(&line.counter) {
                *done += more;
            }
            if wrong.iter().any(|(counter, _)| *counter == line.counter) {
                *errors += more;
            }
        }
    }
    for (name, right, wrong) in STEPS {
        let mut step = LoadStep { is_connect: name == "connect", ..convert::step(name) };
        step.done = right.iter().filter_map(|counter| totals.get(*counter)).sum();
        for (counter, kind) in wrong {
            let count = totals.get(*counter).copied().unwrap_or_default();
            add_errors(&mut step.errors, kind, count, messages.get(counter).map_or(*counter, String::as_str));
        }
        if name == "publish" {
            let count = totals.get("pub_overrun").copied().unwrap_or_default();
            if count > 0 {
                result.remarks.push(format!(
                    "pub_overrun={count}: number of times that a publisher missed its interval (-I), because it or the broker was too slow."
                ));
            }
        }
        if name == "receive" && delays > 0 {
            let mean_ns = Some(delay_sum_ms / delays as f64 * MILLISECOND_NS);
            step.service = ReportedTimes { count: delays, mean_ns, ..ReportedTimes::default() }
                .latency(&mut result.remarks);
            result.remarks.push(DELAY.to_owned());
        }
        if step.done > 0 || !step.errors.is_empty() {
            result.steps.push(step);
        }
    }
    // A total belongs to the end of its second, so a run that only has lines of the first second has a length of 1 s.
    result.length_s = last_s.max(1) as f64;
    result.seconds = (0..last_s.max(1))
        .map(|second| {
            let (done, errors) = seconds.get(&second).copied().unwrap_or_default();
            LoadSecond::counted(second as i64, done, errors)
        })
        .collect();
    result.remarks.extend([COUNTS, NO_ANSWER].map(str::to_owned));
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::ErrorKind;

    #[test]
    fn uptimes_are_parsed_and_missing_in_the_first_second() {
        assert_eq!(uptime_s("1d2h3m4s"), Some(93_784));
        assert_eq!(
            (uptime_s("recv"), uptime_s(""), uptime_s("5"), uptime_s("99999999s")),
            (None, None, None, None)
        );
        let line = parse(" pub total=10 rate=9.98/sec").unwrap();
        assert_eq!((line.at_s, line.counter), (0, "pub"));
        assert!(!is_line("client(3): connect error - econnrefused"));
    }

    #[test]
    fn error_kinds_have_our_names() {
        assert_eq!(
            [REFUSED, CONNECT_TIMEOUT, UNREACHABLE],
            [ErrorKind::Refused, ErrorKind::ConnectTimeout, ErrorKind::Unreachable].map(ErrorKind::text)
        );
    }
}
