//! Interprets the output of `rabbitmq-diagnostics` and `rabbitmqctl`: `status`, `memory_breakdown` and alarms, as text or as JSON.
//!
//! Most kinds of memory are RabbitMQ's own sums over its processes and tables. Three come from the VM (`code`, `atom`, `binary`), and the
//! source of the total is printed. In text, sizes are rounded to four decimals, usually of a gigabyte. In JSON, they are exact, and the
//! status contains three totals: resident, allocated in carriers, and used by the VM (deps/rabbit/src/rabbit_vm.erl).

use std::collections::HashSet;

use beamtune_model::{facts, metrics};

use crate::answers::{amount, field};
use crate::part::{PartData, Tool, TotalKind, Value};
use crate::term::Term;
use crate::text::{find_within, match_words, skip_spaces, word};

pub const TOOL: Tool = "rabbitmq-diagnostics";

/// RabbitMQ's kinds of memory.
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
/// The kinds that `erlang:memory()` returns, too.
const VM_KINDS: [&str; 3] = ["atom", "binary", "code"];

/// Units of sizes. The printed unit depends on the release. The argument of `--unit` is printed as it was entered, possibly in upper case
/// (deps/rabbitmq_cli/lib/rabbitmq/cli/information_unit.ex).
const UNITS: [(&str, f64); 24] = [
    ("bytes", 1.0),
    ("kilobytes", 1e3),
    ("megabytes", 1e6),
    ("gigabytes", 1e9),
    ("terabytes", 1e12),
    ("petabytes", 1e15),
    ("kib", 1_024.0),
    ("mib", 1_048_576.0),
    ("tib", 1_099_511_627_776.0),
    ("pib", 1_125_899_906_842_624.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("gb", 1e9),
    ("tb", 1e12),
    ("pb", 1e15),
    // Since RabbitMQ 3.13, like all units with an `i`.
    ("ki", 1_024.0),
    ("mi", 1_048_576.0),
    ("ti", 1_099_511_627_776.0),
    ("pi", 1_125_899_906_842_624.0),
    ("k", 1e3),
    ("m", 1e6),
    ("g", 1e9),
    ("t", 1e12),
    ("p", 1e15),
];

/// Ambiguous units: RabbitMQ 3.13 to 4.3 print gigabytes (10^9 bytes) with these units, unlike with all other units with an `i`.
const AMBIGUOUS_UNITS: [&str; 2] = ["gib", "gi"];

/// Beginnings of lines about alarms (deps/rabbitmq_cli/lib/rabbitmq/cli/core/alarms.ex).
const ALARMS: [&str; 3] = [MEMORY_ALARM, "Free disk space", "File descriptor limit"];
const MEMORY_ALARM: &str = "Memory";

/// Maximum number of words before `computed to:`, as in `0.4 of available memory, computed to:`.
const MAX_SETTING_WORDS: usize = 8;

/// Maximum length of a version, in bytes.
const MAX_VERSION_BYTES: usize = 40;

/// The remark for rounded sizes.
pub const ROUNDED: &str = "RabbitMQ's sizes are rounded to four decimals";
const NO_SIZE: &str = "it is not a size with a unit";
const AMBIGUOUS_UNIT: &str = "the size of this unit depends on the RabbitMQ release (3.13 to 4.3 print gigabytes): print it with --unit bytes";
const NO_STRATEGY: &str = "the source of this total is unknown: copy the line \"Calculation strategy\" too";
const NO_WATERMARK: &str = "the computed watermark is missing: copy the whole line";
const NO_NODE: &str = "the node name may be incomplete: copy the next line too";
const MALFORMED_STATUS: &str = "it differs from the output of rabbitmq-diagnostics status --formatter json: a size or a number is missing";
const MALFORMED_BREAKDOWN: &str =
    "it differs from the output of rabbitmq-diagnostics memory_breakdown --formatter json: a size is missing";
const UNUSED_TOTAL: &str = "no rule uses this total: set vm_memory_calculation_strategy to rss";

/// Reads a line at `begin`, and returns its end and data; `None` if RabbitMQ does not print this line.
pub fn read(text: &str, begin: usize) -> Option<(Tool, usize, Result<PartData, &'static str>)> {
    let (end, data) = line(text, begin)?;
    Some((TOOL, end, data))
}

fn line(text: &str, begin: usize) -> Option<(usize, Result<PartData, &'static str>)> {
    let rest = &text[begin..];
    if let Some(after) = match_words(text, begin, &["Total", "memory", "used:"]) {
        return Some(total(text, after));
    }
    if let Some(after) = match_words(text, begin, &["Erlang", "processes:"]) {
        return processes(text, after);
    }
    if let Some(after) = match_words(text, begin, &["RabbitMQ", "version:"]) {
        let (version, end) = word_before(text, after, &["RabbitMQ release", "Node name:"]);
        // At the end of the text, the version may be incomplete.
        let is_whole = version.len() < MAX_VERSION_BYTES && end < text.len();
        let is_version = version.starts_with(|c: char| c.is_ascii_digit()) && is_whole;
        let data =
            PartData { facts: vec![(facts::PRODUCT, format!("RabbitMQ {version}"))], ..PartData::default() };
        return is_version.then_some((end, Ok(data)));
    }
    if let Some(after) = match_words(text, begin, &["Memory", "high", "watermark", "setting:"]) {
        return Some(watermark(text, after));
    }
    if let Some(data) = alarms(text, begin) {
        return Some(data);
    }
    let kind = kind(rest)?;
    // Other lines of `status` contain some of these words, too.
    let after = begin + kind.len() + 1;
    let Some((Size { bytes, remark }, end)) = size(text, after) else {
        return Some((share(text, ambiguous_unit(text, after)?)?, Err(AMBIGUOUS_UNIT)));
    };
    let end = share(text, end)?;
    let values = match VM_KINDS.contains(&kind) {
        true => vec![Value::named(&metrics::MEMORY, "", kind, bytes)],
        false => Vec::new(),
    };
    Some((end, Ok(PartData { values, remark, ..PartData::default() })))
}

/// Returns the kind of memory at the beginning of a line.
fn kind(rest: &str) -> Option<&'static str> {
    KINDS.iter().find(|kind| rest.strip_prefix(**kind).is_some_and(|rest| rest.starts_with(':'))).copied()
}

/// Reads the total: `0.1279 gb`, then `Calculation strategy: rss`.
fn total(text: &str, begin: usize) -> (usize, Result<PartData, &'static str>) {
    let Some((Size { bytes, remark }, end)) = size(text, begin) else { return no_size(text, begin) };
    let next = skip_spaces(text, end);
    let Some(after) = match_words(text, next, &["Calculation", "strategy:"]) else {
        return (end, Err(NO_STRATEGY));
    };
    let (strategy, end) = word_before(text, after, &["Memory high", "Memory alarm"]);
    let data = match strategy {
        "rss" => Ok(Value::of(&metrics::RSS, "", bytes)),
        "erlang" => Ok(Value::named(&metrics::MEMORY, "", "total", bytes)),
        _ => Err(UNUSED_TOTAL),
    };
    (end, data.map(|value| PartData { values: vec![value], remark, ..PartData::default() }))
}

/// Reads the watermark: `0.4 of available memory, computed to: 10.1106 gb`, possibly with a size before the comma.
fn watermark(text: &str, begin: usize) -> (usize, Result<PartData, &'static str>) {
    let mut at = begin;
    for _ in 0..MAX_SETTING_WORDS {
        at = skip_spaces(text, at);
        if let Some(after) = match_words(text, at, &["computed", "to:"]) {
            let Some((Size { bytes, remark }, end)) = size(text, after) else {
                return no_size(text, after);
            };
            let facts = vec![(facts::MEMORY_WATERMARK_BYTES, bytes.to_string())];
            return (end, Ok(PartData { facts, remark, ..PartData::default() }));
        }
        at = word(text, at).1;
    }
    (begin, Err(NO_WATERMARK))
}

/// Reads consecutive lines such as `Memory alarm on node rabbit@a`, one per alarm in the cluster. Only memory alarms become facts.
fn alarms(text: &str, begin: usize) -> Option<(usize, Result<PartData, &'static str>)> {
    let mut nodes: HashSet<&str> = HashSet::new();
    let mut end = None;
    let mut at = begin;
    while let Some((kind, after)) = alarm(text, at) {
        let (node, after) = word_before(text, after, &["Memory alarm", "Free disk space", "File descriptor"]);
        // At the end of the text, the name may be incomplete.
        if after >= text.len() {
            return Some((after, Err(NO_NODE)));
        }
        if kind == MEMORY_ALARM {
            // In JSON, a quotation mark follows directly.
            nodes.insert(node.split('"').next().unwrap_or(node));
        }
        end = Some(after);
        at = skip_spaces(text, after);
    }
    Some((end?, Ok(PartData { facts: alarm_fact(&nodes), ..PartData::default() })))
}

/// Returns the fact with the number of nodes that have a memory alarm, if there are any.
fn alarm_fact(nodes: &HashSet<&str>) -> Vec<(&'static str, String)> {
    match nodes.len() {
        0 => Vec::new(),
        count => vec![(facts::MEMORY_ALARMS, count.to_string())],
    }
}

/// Returns the kind of the alarm in a line, and the position of the node name.
fn alarm(text: &str, at: usize) -> Option<(&'static str, usize)> {
    ALARMS.into_iter().find_map(|kind| {
        let words: Vec<&str> = kind.split(' ').chain(["alarm", "on", "node"]).collect();
        Some((kind, match_words(text, at, &words)?))
    })
}

/// Returns the next word and its end. If a line break was lost, one of the labels in `next` touches the word, which then ends before it.
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

/// Reads the number of processes and their limit: `268 used, 1048576 limit`.
fn processes(text: &str, begin: usize) -> Option<(usize, Result<PartData, &'static str>)> {
    let (used, at) = word(text, begin);
    let (label, at) = word(text, at);
    let (limit, at) = word(text, at);
    let (last, end) = word_before(text, at, &["Scheduler run"]);
    let fits = label == "used," && last == "limit";
    let (used, limit): (i64, i64) = used.parse().ok().zip(limit.parse().ok()).filter(|_| fits)?;
    let data = PartData {
        facts: vec![(facts::PROCESS_LIMIT, limit.to_string())],
        values: vec![Value::of(&metrics::PROCESS_COUNT, "", used)],
        ..PartData::default()
    };
    (0 <= used && used <= limit).then_some((end, Ok(data)))
}

/// Returns end and reason for an invalid size.
fn no_size(text: &str, begin: usize) -> (usize, Result<PartData, &'static str>) {
    ambiguous_unit(text, begin).map_or((begin, Err(NO_SIZE)), |end| (end, Err(AMBIGUOUS_UNIT)))
}

/// Returns the end of a size with an ambiguous unit.
fn ambiguous_unit(text: &str, begin: usize) -> Option<usize> {
    let (number, at) = word(text, begin);
    let (unit, end) = word(text, at);
    let is_number = number.parse::<f64>().is_ok_and(f64::is_finite);
    (is_number && AMBIGUOUS_UNITS.iter().any(|other| unit.eq_ignore_ascii_case(other))).then_some(end)
}

/// A size with its unit.
struct Size {
    bytes: i64,
    /// The remark that the size is rounded, unless the unit is bytes.
    remark: Option<&'static str>,
}

/// Reads a size, and returns it with its end.
fn size(text: &str, begin: usize) -> Option<(Size, usize)> {
    let (number, at) = word(text, begin);
    let (unit, end) = word(text, at);
    let begin = end - unit.len();
    let (in_bytes, end) = UNITS.iter().find_map(|(name, in_bytes)| {
        let (unit, rest) = unit.split_at_checked(name.len())?;
        let ends = !rest.starts_with(|c: char| c.is_ascii_lowercase()) || kind(rest).is_some();
        (ends && unit.eq_ignore_ascii_case(name)).then_some((*in_bytes, begin + name.len()))
    })?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && number.len() < 18;
    let number: f64 = number.parse().ok().filter(|_| is_number)?;
    let bytes = (number * in_bytes).round();
    let remark = (in_bytes > 1.0).then_some(ROUNDED);
    (bytes < 1e15).then_some((Size { bytes: bytes as i64, remark }, end))
}

/// Returns the end of a percentage in brackets: `(63.33%)` or `(63.0 %)`.
fn share(text: &str, begin: usize) -> Option<usize> {
    let at = skip_spaces(text, begin);
    let inner = text[at..].strip_prefix('(')?;
    let close = find_within(inner, "%)", 8)?;
    let number = inner[..close].trim();
    number.parse::<f64>().ok().filter(|share| (0.0..=1_000.0).contains(share)).map(|_| at + 1 + close + 2)
}

/// Names that identify the status as JSON if they come first. The order depends on the VM, so these are all its names, except those that
/// other JSON documents use, too.
const STATUS_NAMES: [&str; 18] = [
    "active_plugins",
    "config_files",
    "crypto_lib_version",
    "data_directory",
    "disk_free",
    "disk_free_limit",
    "enabled_plugin_file",
    "erlang_version",
    "file_descriptors",
    "is_under_maintenance",
    "log_files",
    "net_ticktime",
    "rabbitmq_version",
    "raft_data_directory",
    "release_series_support_status",
    "vm_memory_calculation_strategy",
    "vm_memory_high_watermark_limit",
    "vm_memory_high_watermark_setting",
];

/// Whether a text without spaces begins like the JSON of the status or of the breakdown.
pub fn begins_as_json(compact: &str) -> bool {
    let name = compact.strip_prefix("{\"").and_then(|rest| rest.split_once('"'));
    name.is_some_and(|(name, after)| {
        STATUS_NAMES.contains(&name) && after.starts_with(':')
            || KINDS.contains(&name) && after.starts_with(":{")
    })
}

/// Interprets JSON; `None` if it is neither the status nor the memory breakdown.
pub fn json(term: &Term) -> Option<(Tool, Result<PartData, &'static str>)> {
    let parts = term.tuple()?;
    let is_status = ["rabbitmq_version", "erlang_version"].iter().all(|name| field(parts, name).is_some());
    let data = match field(parts, "memory").and_then(Term::tuple).filter(|_| is_status) {
        Some(memory) => status(parts, memory).ok_or(MALFORMED_STATUS),
        None => breakdown(parts)?,
    };
    Some((TOOL, data))
}

/// Interprets the status: `{"memory":{"code":31250000,…,"total":{"erlang":…,"rss":…,"allocated":…}},"processes":{"used":268,…},…}`.
fn status(parts: &[Term], memory: &[Term]) -> Option<PartData> {
    let totals = field(memory, "total")?.tuple()?;
    let [resident, used, allocated] = ["rss", "erlang", "allocated"].map(|name| amount(totals, name));
    let (resident, allocated) = resident.zip(allocated)?;
    let mut values = vec![Value::named(&metrics::MEMORY, "", "total", used?)];
    // If RabbitMQ cannot read the resident size, it prints the size of carriers instead.
    values.extend((resident != allocated).then(|| Value::of(&metrics::RSS, "", resident)));
    for kind in VM_KINDS {
        values.push(Value::named(&metrics::MEMORY, "", kind, amount(memory, kind)?));
    }
    let processes = field(parts, "processes")?.tuple()?;
    let (count, limit) = amount(processes, "used").zip(amount(processes, "limit"))?;
    if count > limit {
        return None;
    }
    values.push(Value::of(&metrics::PROCESS_COUNT, "", count));
    let version = field(parts, "rabbitmq_version")?.text()?;
    if !version.starts_with(|c: char| c.is_ascii_digit()) || version.len() >= MAX_VERSION_BYTES {
        return None;
    }
    let mut facts =
        vec![(facts::PRODUCT, format!("RabbitMQ {version}")), (facts::PROCESS_LIMIT, limit.to_string())];
    let watermark = amount(parts, "vm_memory_high_watermark_limit").filter(|bytes| *bytes > 0);
    facts.extend(watermark.map(|bytes| (facts::MEMORY_WATERMARK_BYTES, bytes.to_string())));
    let alarms = field(parts, "alarms").and_then(Term::list).unwrap_or_default();
    let of_memory = alarms
        .iter()
        .filter_map(Term::tuple)
        .filter(|alarm| field(alarm, "resource").and_then(Term::text) == Some("memory"));
    let nodes = of_memory.filter_map(|alarm| field(alarm, "node")?.text()).collect();
    facts.extend(alarm_fact(&nodes));
    Some(PartData {
        facts,
        values,
        total: Some((TotalKind::Allocated, allocated as f64)),
        ..PartData::default()
    })
}

/// Interprets the memory breakdown: `{"code":{"bytes":31250000,"percentage":24.27},…}`.
fn breakdown(parts: &[Term]) -> Option<Result<PartData, &'static str>> {
    let size = |part: &Term| match part.tuple()? {
        [Term::Atom(kind), Term::Tuple(size)] => {
            field(size, "percentage")?.number()?;
            Some((kind.clone(), amount(size, "bytes")?))
        }
        _ => None,
    };
    let is_vm_kind = |kind: &str| VM_KINDS.contains(&kind);
    if !parts.iter().filter_map(size).any(|(kind, _)| is_vm_kind(&kind)) {
        return None;
    }
    let Some(kinds) = parts.iter().map(size).collect::<Option<Vec<_>>>() else {
        return Some(Err(MALFORMED_BREAKDOWN));
    };
    let values = kinds.iter().filter(|(kind, _)| is_vm_kind(kind));
    let values = values.map(|(kind, bytes)| Value::named(&metrics::MEMORY, "", kind, *bytes)).collect();
    Some(Ok(PartData { values, ..PartData::default() }))
}
