//! What `rabbitmq-diagnostics` and `rabbitmqctl` print of a node: `status`, `memory_breakdown` and the alarms, in lines or as JSON.
//!
//! Most kinds of memory there are RabbitMQ's own sums over its processes and tables; three are the VM's (`code`, `atom`, `binary`), and of
//! the total it is told what it is of. In lines, sizes are rounded to four digits behind the point, mostly of a gigabyte; as JSON they are
//! exact, and the status tells three totals: what is resident, what the VM has in carriers, and what it uses
//! (deps/rabbit/src/rabbit_vm.erl).

use std::collections::HashSet;

use beamtune_model::{facts, metrics};

use crate::part::{Told, Tool, Value, Whole};
use crate::term::Term;
use crate::terms::{amount, field};
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
    // Since RabbitMQ 3.13, as all that have an `i`.
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

/// Units whose size is not sure: from 3.13 to 4.3 RabbitMQ divides by 10^9 for them, unlike for all others with an `i`.
const UNSURE_UNITS: [&str; 2] = ["gib", "gi"];

/// What alarms are of, as their lines begin (deps/rabbitmq_cli/lib/rabbitmq/cli/core/alarms.ex).
const ALARMS: [&str; 3] = [OF_MEMORY, "Free disk space", "File descriptor limit"];
const OF_MEMORY: &str = "Memory";

/// `0.4 of available memory, computed to:` has so many words before the last two.
const MOST_SETTING_WORDS: usize = 8;

/// Letters of a version of RabbitMQ.
const LONGEST_VERSION: usize = 40;

/// The remark of all that is rounded.
pub const ROUNDED: &str = "sizes that RabbitMQ told are rounded to four digits";
const ODD: &str = "it is no size with a unit";
const UNSURE_UNIT: &str = "RabbitMQ 3.13 to 4.3 print gigabytes under this name, which another release may not do: print it with --unit bytes";
const STRATEGY: &str = "of what this is the total is not known: copy the line \"Calculation strategy\" too";
const NO_WATERMARK: &str = "the watermark that it was computed to is missing: copy the whole line";
const NO_NODE: &str = "whether the node's name ends here is not known: copy the line behind it too";
const ODD_STATUS: &str =
    "it is not what rabbitmq-diagnostics status --formatter json gives: a size or a number is missing";
const ODD_BREAKDOWN: &str =
    "it is not what rabbitmq-diagnostics memory_breakdown --formatter json gives: a size is missing";
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
        let is_whole = version.len() < LONGEST_VERSION && end < text.len();
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
    let Some((Size { bytes, remark }, end)) = size(text, behind) else {
        return Some((share(text, unsure_unit(text, behind)?)?, Err(UNSURE_UNIT)));
    };
    let end = share(text, end)?;
    let values = match OF_THE_VM.contains(&kind) {
        true => vec![Value::named(&metrics::MEMORY, "", kind, bytes)],
        false => Vec::new(),
    };
    Some((end, Ok(Told { values, remark, ..Told::default() })))
}

/// The kind of memory that a line begins with.
fn kind(rest: &str) -> Option<&'static str> {
    KINDS.iter().find(|kind| rest.strip_prefix(**kind).is_some_and(|rest| rest.starts_with(':'))).copied()
}

/// `0.1279 gb`, then `Calculation strategy: rss`.
fn total(text: &str, begin: usize) -> (usize, Result<Told, &'static str>) {
    let Some((Size { bytes, remark }, end)) = size(text, begin) else { return no_size(text, begin) };
    let next = skip_spaces(text, end);
    let Some(behind) = follow(text, next, &["Calculation", "strategy:"]) else { return (end, Err(STRATEGY)) };
    let (strategy, end) = word_before(text, behind, &["Memory high", "Memory alarm"]);
    let told = match strategy {
        "rss" => Ok(Value::of(&metrics::RSS, "", bytes)),
        "erlang" => Ok(Value::named(&metrics::MEMORY, "", "total", bytes)),
        _ => Err(OTHER_TOTAL),
    };
    (end, told.map(|value| Told { values: vec![value], remark, ..Told::default() }))
}

/// `0.4 of available memory, computed to: 10.1106 gb`, or a size in front of the comma.
fn watermark(text: &str, begin: usize) -> (usize, Result<Told, &'static str>) {
    let mut at = begin;
    for _ in 0..MOST_SETTING_WORDS {
        at = skip_spaces(text, at);
        if let Some(behind) = follow(text, at, &["computed", "to:"]) {
            let Some((Size { bytes, remark }, end)) = size(text, behind) else {
                return no_size(text, behind);
            };
            let facts = vec![(facts::MEMORY_WATERMARK_BYTES, bytes.to_string())];
            return (end, Ok(Told { facts, remark, ..Told::default() }));
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
            // As JSON, what follows touches it.
            nodes.insert(node.split('"').next().unwrap_or(node));
        }
        end = Some(behind);
        at = skip_spaces(text, behind);
    }
    Some((end?, Ok(Told { facts: alarmed(&nodes), ..Told::default() })))
}

/// The fact of nodes whose memory alarm is in effect, if there are any.
fn alarmed(nodes: &HashSet<&str>) -> Vec<(&'static str, String)> {
    match nodes.len() {
        0 => Vec::new(),
        count => vec![(facts::MEMORY_ALARMS, count.to_string())],
    }
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
    unsure_unit(text, begin).map_or((begin, Err(ODD)), |end| (end, Err(UNSURE_UNIT)))
}

/// Where a number ends that one of the units stands behind whose size is not sure.
fn unsure_unit(text: &str, begin: usize) -> Option<usize> {
    let (number, at) = word(text, begin);
    let (unit, end) = word(text, at);
    let is_number = number.parse::<f64>().is_ok_and(f64::is_finite);
    (is_number && UNSURE_UNITS.iter().any(|other| unit.eq_ignore_ascii_case(other))).then_some(end)
}

/// A size that was told with its unit.
struct Size {
    bytes: i64,
    /// That it is rounded, in any unit but bytes.
    remark: Option<&'static str>,
}

/// A size, and where it ends.
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

/// `(63.33%)` or `(63.0 %)`: where it ends.
fn share(text: &str, begin: usize) -> Option<usize> {
    let at = skip_spaces(text, begin);
    let inner = text[at..].strip_prefix('(')?;
    let close = find_within(inner, "%)", 8)?;
    let number = inner[..close].trim();
    number.parse::<f64>().ok().filter(|share| (0.0..=1_000.0).contains(share)).map(|_| at + 1 + close + 2)
}

/// Names that the status begins with as JSON: any of its names, since their order depends on the VM; but for those that others use too.
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

/// Whether a text without spaces begins as the JSON of the status or of the breakdown does.
pub fn begins_as_json(compact: &str) -> bool {
    let name = compact.strip_prefix("{\"").and_then(|rest| rest.split_once('"'));
    name.is_some_and(|(name, behind)| {
        STATUS_NAMES.contains(&name) && behind.starts_with(':')
            || KINDS.contains(&name) && behind.starts_with(":{")
    })
}

/// What JSON tells, if it is the status or the breakdown of memory.
pub fn json(term: &Term) -> Option<(Tool, Result<Told, &'static str>)> {
    let parts = term.tuple()?;
    let is_status = ["rabbitmq_version", "erlang_version"].iter().all(|name| field(parts, name).is_some());
    let told = match field(parts, "memory").and_then(Term::tuple).filter(|_| is_status) {
        Some(memory) => status(parts, memory).ok_or(ODD_STATUS),
        None => breakdown(parts)?,
    };
    Some((TOOL, told))
}

/// `{"memory":{"code":31250000,…,"total":{"erlang":…,"rss":…,"allocated":…}},"processes":{"used":268,"limit":1048576},…}`.
fn status(parts: &[Term], memory: &[Term]) -> Option<Told> {
    let totals = field(memory, "total")?.tuple()?;
    let [resident, used, allocated] = ["rss", "erlang", "allocated"].map(|name| amount(totals, name));
    let (resident, allocated) = resident.zip(allocated)?;
    let mut values = vec![Value::named(&metrics::MEMORY, "", "total", used?)];
    // Where there is no kernel to ask, RabbitMQ gives the carriers in place of what is resident.
    values.extend((resident != allocated).then(|| Value::of(&metrics::RSS, "", resident)));
    for kind in OF_THE_VM {
        values.push(Value::named(&metrics::MEMORY, "", kind, amount(memory, kind)?));
    }
    let processes = field(parts, "processes")?.tuple()?;
    let (count, limit) = amount(processes, "used").zip(amount(processes, "limit"))?;
    if count > limit {
        return None;
    }
    values.push(Value::of(&metrics::PROCESS_COUNT, "", count));
    let version = field(parts, "rabbitmq_version")?.text()?;
    if !version.starts_with(|c: char| c.is_ascii_digit()) || version.len() >= LONGEST_VERSION {
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
    facts.extend(alarmed(&nodes));
    Some(Told { facts, values, whole: Some((Whole::Allocated, allocated as f64)), ..Told::default() })
}

/// `{"code":{"bytes":31250000,"percentage":24.27},…}`.
fn breakdown(parts: &[Term]) -> Option<Result<Told, &'static str>> {
    let size = |part: &Term| match part.tuple()? {
        [Term::Atom(kind), Term::Tuple(size)] => {
            field(size, "percentage")?.number()?;
            Some((kind.clone(), amount(size, "bytes")?))
        }
        _ => None,
    };
    let is_of_the_vm = |kind: &str| OF_THE_VM.contains(&kind);
    if !parts.iter().filter_map(size).any(|(kind, _)| is_of_the_vm(&kind)) {
        return None;
    }
    let Some(kinds) = parts.iter().map(size).collect::<Option<Vec<_>>>() else {
        return Some(Err(ODD_BREAKDOWN));
    };
    let values = kinds.iter().filter(|(kind, _)| is_of_the_vm(kind));
    let values = values.map(|(kind, bytes)| Value::named(&metrics::MEMORY, "", kind, *bytes)).collect();
    Some(Ok(Told { values, ..Told::default() }))
}
