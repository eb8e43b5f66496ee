//! What `rabbitmq-diagnostics` and `rabbitmqctl` print of a node: `status`, `memory_breakdown` and the alarms.
//!
//! Most kinds of memory there are RabbitMQ's own sums over its processes and tables; three are the VM's (`code`, `atom`, `binary`), and of
//! the total it is told what it is of. Sizes are rounded to four digits behind the point, mostly of a gigabyte.

use std::collections::HashSet;

use beamtune_model::{facts, metrics};

use crate::part::{Told, Tool, Value};
use crate::text::{find_within, follow, skip_spaces, word};

pub const TOOL: Tool = "rabbitmq-diagnostics";

/// Its kinds of memory.
const KINDS: [&str; 30] = [
    "allocated_unused",
    "atom",
    "binary",
    "code",
    "connection_channels",
    "connection_other",
    "connection_readers",
    "connection_writers",
    "metadata_store",
    "metadata_store_ets",
    "metrics",
    "mgmt_db",
    "mnesia",
    "msg_index",
    "other_ets",
    "other_proc",
    "other_system",
    "plugins",
    "queue_procs",
    "queue_slave_procs",
    "quorum_ets",
    "quorum_queue_dlx_procs",
    "quorum_queue_procs",
    "reserved_unallocated",
    "stream_queue_coordinator_procs",
    "stream_queue_procs",
    "stream_queue_replica_reader_procs",
    "connection_ets",
    "stream_sac",
    "other",
];
/// Of these, those that `erlang:memory()` tells too.
const OF_THE_VM: [&str; 3] = ["atom", "binary", "code"];

/// Units of sizes. Which of them are printed depends on the release; what was asked for with `--unit` is printed as it was typed, in large
/// letters too (deps/rabbitmq_cli/lib/rabbitmq/cli/information_unit.ex).
const UNITS: [(&str, f64); 13] = [
    ("bytes", 1.0),
    ("kilobytes", 1e3),
    ("megabytes", 1e6),
    ("gigabytes", 1e9),
    ("terabytes", 1e12),
    ("kib", 1_024.0),
    ("mib", 1_048_576.0),
    ("gib", 1_073_741_824.0),
    ("tib", 1_099_511_627_776.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("gb", 1e9),
    ("tb", 1e12),
];

/// Units of one or two letters, which are printed as they were asked for too.
const OTHER_UNITS: [&str; 10] = ["k", "ki", "m", "mi", "g", "gi", "t", "ti", "p", "pi"];

/// What alarms are of, as their lines begin (deps/rabbitmq_cli/lib/rabbitmq/cli/core/alarms.ex).
const ALARMS: [&str; 3] = [OF_MEMORY, "Free disk space", "File descriptor limit"];
const OF_MEMORY: &str = "Memory";

/// `0.4 of available memory, computed to:` has so many words before the last two.
const MOST_SETTING_WORDS: usize = 8;

/// The remark of all that is rounded.
pub const ROUNDED: &str = "sizes that RabbitMQ told are rounded to four digits";
const ODD: &str = "it is no size with a unit";
const OTHER_UNIT: &str = "its unit is not known here: print it with --unit bytes";
const STRATEGY: &str = "of what this is the total is not known: copy the line \"Calculation strategy\" too";
const NO_WATERMARK: &str = "the watermark that it was computed to is missing: copy the whole line";
const NO_NODE: &str = "whether the node's name ends here is not known: copy the line behind it too";
const OTHER_TOTAL: &str = "nothing is judged by this total: set vm_memory_calculation_strategy to rss";

/// Reads a line that begins here: where it ends, and what it tells; `None` if it is none of RabbitMQ's.
pub fn read(text: &str, begin: usize) -> Option<(Tool, usize, Result<Told, &'static str>)> {
    let (end, told) = line(text, begin)?;
    Some((TOOL, end, told))
}

fn line(text: &str, begin: usize) -> Option<(usize, Result<Told, &'static str>)> {
    let rest = &text[begin..];
    if let Some(behind) = follow(text, begin, &["Total", "memory", "used:"]) {
        return Some(total(text, behind));
    }
    if let Some(behind) = follow(text, begin, &["Erlang", "processes:"]) {
        return processes(text, behind);
    }
    if let Some(behind) = follow(text, begin, &["RabbitMQ", "version:"]) {
        let (version, end) = word_before(text, behind, &["RabbitMQ release", "Node name:"]);
        // Where the text ends, the version may go on.
        let is_whole = version.len() < 40 && end < text.len();
        let is_version = version.starts_with(|c: char| c.is_ascii_digit()) && is_whole;
        let told = Told { facts: vec![(facts::PRODUCT, format!("RabbitMQ {version}"))], ..Told::default() };
        return is_version.then_some((end, Ok(told)));
    }
    if let Some(behind) = follow(text, begin, &["Memory", "high", "watermark", "setting:"]) {
        return Some(watermark(text, behind));
    }
    if let Some(told) = alarms(text, begin) {
        return Some(told);
    }
    let kind = kind(rest)?;
    // Other lines of `status` have some of these words too.
    let behind = begin + kind.len() + 1;
    let Some((bytes, end)) = size(text, behind) else {
        return Some((share(text, other_unit(text, behind)?)?, Err(OTHER_UNIT)));
    };
    let end = share(text, end)?;
    let values = match OF_THE_VM.contains(&kind) {
        true => vec![Value::named(&metrics::MEMORY, "", kind, bytes)],
        false => Vec::new(),
    };
    Some((end, Ok(Told { values, remark: Some(ROUNDED), ..Told::default() })))
}

/// The kind of memory that a line begins with.
fn kind(rest: &str) -> Option<&'static str> {
    KINDS.iter().find(|kind| rest.strip_prefix(**kind).is_some_and(|rest| rest.starts_with(':'))).copied()
}

/// `0.1279 gb`, then `Calculation strategy: rss`.
fn total(text: &str, begin: usize) -> (usize, Result<Told, &'static str>) {
    let Some((bytes, end)) = size(text, begin) else { return no_size(text, begin) };
    let next = skip_spaces(text, end);
    let Some(behind) = follow(text, next, &["Calculation", "strategy:"]) else { return (end, Err(STRATEGY)) };
    let (strategy, end) = word_before(text, behind, &["Memory high", "Memory alarm"]);
    let told = match strategy {
        "rss" => Ok(Value::of(&metrics::RSS, "", bytes)),
        "erlang" => Ok(Value::named(&metrics::MEMORY, "", "total", bytes)),
        _ => Err(OTHER_TOTAL),
    };
    (end, told.map(|value| Told { values: vec![value], remark: Some(ROUNDED), ..Told::default() }))
}

/// `0.4 of available memory, computed to: 10.1106 gb`, or a size in front of the comma.
fn watermark(text: &str, begin: usize) -> (usize, Result<Told, &'static str>) {
    let mut at = begin;
    for _ in 0..MOST_SETTING_WORDS {
        at = skip_spaces(text, at);
        if let Some(behind) = follow(text, at, &["computed", "to:"]) {
            let Some((bytes, end)) = size(text, behind) else { return no_size(text, behind) };
            let facts = vec![(facts::MEMORY_WATERMARK_BYTES, bytes.to_string())];
            return (end, Ok(Told { facts, remark: Some(ROUNDED), ..Told::default() }));
        }
        at = word(text, at).1;
    }
    (begin, Err(NO_WATERMARK))
}

/// `Memory alarm on node rabbit@a`, a line for each alarm of the cluster. Only of those of memory something follows here.
fn alarms(text: &str, begin: usize) -> Option<(usize, Result<Told, &'static str>)> {
    let mut nodes: HashSet<&str> = HashSet::new();
    let mut end = None;
    let mut at = begin;
    while let Some((kind, behind)) = alarm(text, at) {
        let (node, behind) =
            word_before(text, behind, &["Memory alarm", "Free disk space", "File descriptor"]);
        // Where the text ends, there may be more of it.
        if behind >= text.len() {
            return Some((behind, Err(NO_NODE)));
        }
        if kind == OF_MEMORY {
            nodes.insert(node);
        }
        end = Some(behind);
        at = skip_spaces(text, behind);
    }
    let facts = match nodes.len() {
        0 => Vec::new(),
        count => vec![(facts::MEMORY_ALARMS, count.to_string())],
    };
    Some((end?, Ok(Told { facts, ..Told::default() })))
}

/// Of what an alarm is whose line begins here, and where the node's name follows.
fn alarm(text: &str, at: usize) -> Option<(&'static str, usize)> {
    ALARMS.into_iter().find_map(|kind| {
        let words: Vec<&str> = kind.split(' ').chain(["alarm", "on", "node"]).collect();
        Some((kind, follow(text, at, &words)?))
    })
}

/// The next word, and where it ends: before the first of these, too, which touch it where a line break was lost.
fn word_before<'a>(text: &'a str, from: usize, next: &[&str]) -> (&'a str, usize) {
    let (word, end) = word(text, from);
    let begin = end - word.len();
    let touches = next.iter().filter_map(|label| {
        let first = label.split(' ').next()?;
        let at = word.find(first).filter(|at| *at > 0)?;
        text[begin + at..].starts_with(label).then_some(at)
    });
    touches.min().map_or((word, end), |at| (&word[..at], begin + at))
}

/// `268 used, 1048576 limit`.
fn processes(text: &str, begin: usize) -> Option<(usize, Result<Told, &'static str>)> {
    let (used, at) = word(text, begin);
    let (label, at) = word(text, at);
    let (limit, at) = word(text, at);
    let (last, end) = word_before(text, at, &["Scheduler run"]);
    let fits = label == "used," && last == "limit";
    let (used, limit): (i64, i64) = used.parse().ok().zip(limit.parse().ok()).filter(|_| fits)?;
    let told = Told {
        facts: vec![(facts::PROCESS_LIMIT, limit.to_string())],
        values: vec![Value::of(&metrics::PROCESS_COUNT, "", used)],
        ..Told::default()
    };
    (0 <= used && used <= limit).then_some((end, Ok(told)))
}

/// Where there is no size: how far it was one, and why that is none.
fn no_size(text: &str, begin: usize) -> (usize, Result<Told, &'static str>) {
    other_unit(text, begin).map_or((begin, Err(ODD)), |end| (end, Err(OTHER_UNIT)))
}

/// Where a number ends that one of the units stands behind which are not known here.
fn other_unit(text: &str, begin: usize) -> Option<usize> {
    let (number, at) = word(text, begin);
    let (unit, end) = word(text, at);
    let is_number = number.parse::<f64>().is_ok_and(f64::is_finite);
    (is_number && OTHER_UNITS.iter().any(|other| unit.eq_ignore_ascii_case(other))).then_some(end)
}

/// A size in bytes, and where it ends.
fn size(text: &str, begin: usize) -> Option<(i64, usize)> {
    let (number, at) = word(text, begin);
    let (unit, end) = word(text, at);
    let begin = end - unit.len();
    let (bytes, end) = UNITS.iter().find_map(|(name, bytes)| {
        let (unit, rest) = unit.split_at_checked(name.len())?;
        let ends = !rest.starts_with(|c: char| c.is_ascii_lowercase()) || kind(rest).is_some();
        (ends && unit.eq_ignore_ascii_case(name)).then_some((*bytes, begin + name.len()))
    })?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && number.len() < 18;
    let number: f64 = number.parse().ok().filter(|_| is_number)?;
    let size = (number * bytes).round();
    (size < 1e15).then_some((size as i64, end))
}

/// `(63.33%)` or `(63.0 %)`: where it ends.
fn share(text: &str, begin: usize) -> Option<usize> {
    let at = skip_spaces(text, begin);
    let inner = text[at..].strip_prefix('(')?;
    let close = find_within(inner, "%)", 8)?;
    let number = inner[..close].trim();
    number.parse::<f64>().ok().filter(|share| (0.0..=1_000.0).contains(share)).map(|_| at + 1 + close + 2)
}
