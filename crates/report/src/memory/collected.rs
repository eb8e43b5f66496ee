//! Data requested by options: processes that refer to binaries, and memory freed by garbage collections.

use beamtune_model::memory::{Estimate, Reclaimable};
use beamtune_model::{Period, RequestedGcRow, metrics};

use crate::table::{Align::*, Table};
use crate::text::{self, Style};

/// If a garbage collection frees a smaller share of the memory, almost none of it was garbage.
const LITTLE: f64 = 0.05;

pub fn render(period: &Period, returns: Option<Reclaimable>, max_rows: usize, style: Style) -> String {
    let sections = [
        holders(period, max_rows, style),
        estimate(period, returns, style),
        collections(period, max_rows, style),
        unanswered(period, style),
    ];
    sections.iter().filter(|section| !section.is_empty()).map(String::as_str).collect::<Vec<_>>().join("\n")
}

fn holders(period: &Period, max_rows: usize, style: Style) -> String {
    let mut table = Table::new(&[
        ("refers to binaries", Left),
        ("references", Right),
        ("binaries", Right),
        ("size", Right),
        ("exclusive", Right),
        ("heap", Right),
    ]);
    for row in &period.holders {
        let told = |cell: String| if row.skipped.is_some() { String::new() } else { cell };
        let size = match row.skipped.as_deref() {
            None => text::bytes(row.bytes as f64),
            Some("gone") => "exited".to_owned(),
            Some("no_answer") => "no answer".to_owned(),
            Some("many") => "too many".to_owned(),
            Some("limit") => "out of time".to_owned(),
            Some("refused") => "refused".to_owned(),
            Some(other) => text::sentence(other),
        };
        table.row([
            super::who(row.title().unwrap_or(&row.pid), &row.pid),
            told(text::decimal(row.references as f64)),
            told(text::decimal(row.binaries as f64)),
            size,
            told(text::bytes(row.alone_bytes as f64)),
            text::bytes(row.heap_bytes as f64),
        ]);
    }
    let mut out = table.first(max_rows, style);
    let last = |metric| period.stat(metric, "").ok().map(|stat| stat.last.value as f64);
    if let Some((count, bytes)) = last(&metrics::HELD_BINARIES).zip(last(&metrics::HELD_BINARIES_SIZE)) {
        out.push_str(&format!(
            "{} binaries, {} in total; each is counted once\n",
            text::decimal(count),
            text::bytes(bytes)
        ));
    }
    out
}

fn estimate(period: &Period, returns: Option<Reclaimable>, style: Style) -> String {
    let Some(row) = period.last_sampled_collection() else { return String::new() };
    let Some(returns) = returns else {
        let said = format!(
            "Cannot estimate what a GC of all {} processes would free: too few were collected.\n",
            text::decimal(row.processes as f64)
        );
        return text::wrap(&said, style.width, "");
    };
    let mut table = Table::new(&[
        ("a GC of all processes would free", Left),
        ("estimate", Right),
        ("at least", Right),
        ("at most", Right),
    ]);
    for (what, Estimate { bytes, low, high }) in [("heaps", returns.heaps), ("binaries", returns.binaries)] {
        table.row([what.to_owned(), text::bytes(bytes), text::bytes(low), text::bytes(high)]);
    }
    let mut out = table.render(style);
    let said = "The memory is returned to the VM's allocators, which return only empty carriers to the operating system.\n";
    out.push_str(&text::wrap(said, style.width, ""));
    out
}

fn collections(period: &Period, max_rows: usize, style: Style) -> String {
    let mut out = String::new();
    for row in &period.collections {
        out.push_str(&text::wrap(&format!("{}\n", sentences(row).join(" ")), style.width, ""));
    }
    let mut table = Table::new(&[
        ("collected", Left),
        ("freed", Right),
        ("heap before", Right),
        ("after", Right),
        ("binaries before", Right),
        ("after", Right),
    ]);
    for row in &period.collected {
        table.row([
            super::who(row.title().unwrap_or(&row.pid), &row.pid),
            text::bytes(row.freed() as f64),
            text::bytes(row.heap_before as f64),
            text::bytes(row.heap_after as f64),
            text::bytes(row.binary_before as f64),
            text::bytes(row.binary_after as f64),
        ]);
    }
    out.push_str(&table.first(max_rows, style));
    out
}

/// Items that are read only if requested by an option: source name in gaps, and name for output.
const ASKED: [(&str, &str); 5] = [
    ("vm.carriers", "Carriers"),
    ("vm.allocations", "Tagged blocks"),
    ("vm.code_memory", "Code by application"),
    ("vm.holders", "References to binaries"),
    ("vm.collect", "What a GC frees"),
];

/// Reports which requested items were not read, and why.
fn unanswered(period: &Period, style: Style) -> String {
    let mut out = String::new();
    for (source, what) in ASKED {
        if let Some(gap) = period.gaps.iter().find(|gap| gap.source == source) {
            let said = format!("{what}: unknown, because {}.\n", text::sentence(&gap.reason));
            out.push_str(&text::wrap(&said, style.width, ""));
        }
    }
    out
}

fn sentences(row: &RequestedGcRow) -> Vec<String> {
    let number = |count: i64| text::decimal(count as f64);
    let size = |bytes: i64| text::bytes(bytes as f64);
    if row.selection == "named" && row.chosen == 0 {
        return vec!["No GC: the node has no such process.".to_owned()];
    }
    let whose = match row.selection.as_str() {
        "named" => {
            format!("{} of {} named processes", number(row.collected), number(row.processes))
        }
        _ => format!(
            "{} of {} processes, the largest and a random sample",
            number(row.collected),
            number(row.processes)
        ),
    };
    let mut said = vec![format!(
        "GC of {whose}: heaps from {} to {}, binaries that they refer to from {} to {}.",
        size(row.heap_before),
        size(row.heap_after),
        size(row.binary_before),
        size(row.binary_after)
    )];
    let before = row.heap_before.saturating_add(row.binary_before) as f64;
    let after = row.heap_after.saturating_add(row.binary_after) as f64;
    if row.selection == "named" && row.collected > 0 && before - after < LITTLE * before {
        said.push("Almost none of it was garbage.".to_owned());
    }
    if let (Some(processes), Some(processes_after), Some(binary), Some(binary_after)) = (
        row.memory_processes_before,
        row.memory_processes_after,
        row.memory_binary_before,
        row.memory_binary_after,
    ) {
        said.push(format!(
            "In the same time, the memory of all processes went from {} to {}, that of all binaries from {} to {}.",
            size(processes),
            size(processes_after),
            size(binary),
            size(binary_after)
        ));
    }
    said.push(format!(
        "It took {}, the longest batch {}; other processes waited for a scheduler for up to {}.",
        time(row.took),
        time(row.longest),
        time(row.late)
    ));
    for (count, why) in [
        (row.large, "skipped: heap too large"),
        (row.no_answer, "did not answer in time"),
        (row.gone, "had exited"),
    ] {
        if count > 0 {
            said.push(format!("{} {why}.", number(count)));
        }
    }
    match row.stopped.as_str() {
        "done" => {}
        "limit" => said.push("Stopped: out of time.".to_owned()),
        "latency" => said.push("Stopped: other processes waited too long.".to_owned()),
        "queue" => {
            said.push(format!("Stopped: {} processes were in the run queues.", number(row.queue)));
        }
        other => said.push(format!("Stopped: {}.", text::sentence(other))),
    }
    said
}

fn time(ns: i64) -> String {
    text::seconds(ns as f64 / 1e9)
}
