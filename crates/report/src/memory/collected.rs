//! Who holds binaries, and what collections of garbage have given back: what was asked for by name.

use beamtune_model::memory::{Estimate, Returns};
use beamtune_model::{CollectionRow, Period, metrics};

use crate::table::{Align::*, Table};
use crate::text::{self, Style};

/// Lines of each table.
const MOST: usize = 20;

/// Of processes that gave back much, since those are mostly alike.
const MOST_COLLECTED: usize = 10;

/// Less than this of what a process refers to is next to nothing.
const LITTLE: f64 = 0.05;

pub fn render(period: &Period, returns: Option<Returns>, style: Style) -> String {
    let sections = [
        holders(period, style),
        estimate(period, returns, style),
        collections(period, style),
        unanswered(period, style),
    ];
    sections.iter().filter(|section| !section.is_empty()).map(String::as_str).collect::<Vec<_>>().join("\n")
}

fn holders(period: &Period, style: Style) -> String {
    let mut table = Table::new(&[
        ("who holds binaries", Left),
        ("references", Right),
        ("binaries", Right),
        ("size", Right),
        ("held by nobody else", Right),
        ("its heap", Right),
    ]);
    for row in period.holders.iter().take(MOST) {
        let told = |cell: String| if row.skipped.is_some() { String::new() } else { cell };
        let size = match row.skipped.as_deref() {
            None => text::bytes(row.bytes as f64),
            Some("gone") => "it has ended".to_owned(),
            Some("no_answer") => "it does not answer".to_owned(),
            Some("many") => "too many to list".to_owned(),
            Some("limit") => "no time was left".to_owned(),
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
    let mut out = table.render(style);
    let last = |metric| period.stat(metric, "").ok().map(|stat| stat.last.value as f64);
    if let Some((count, bytes)) = last(&metrics::HELD_BINARIES).zip(last(&metrics::HELD_BINARIES_SIZE)) {
        out.push_str(&format!(
            "together {} binaries of {}, each counted once\n",
            text::decimal(count),
            text::bytes(bytes)
        ));
    }
    out
}

fn estimate(period: &Period, returns: Option<Returns>, style: Style) -> String {
    let Some(row) = period.sampled() else { return String::new() };
    let Some(returns) = returns else {
        let said = format!(
            "What a collection of all {} processes would return cannot be estimated: too few have been collected.\n",
            text::decimal(row.processes as f64)
        );
        return text::wrap(&said, style.width, "");
    };
    let mut table = Table::new(&[
        ("a collection of all would return, estimated", Left),
        ("about", Right),
        ("at least", Right),
        ("at most", Right),
    ]);
    for (what, Estimate { bytes, low, high }) in [("heaps", returns.heaps), ("binaries", returns.binaries)] {
        table.row([what.to_owned(), text::bytes(bytes), text::bytes(low), text::bytes(high)]);
    }
    let mut out = table.render(style);
    let said =
        "It goes back to the VM's allocators, and to the operating system as far as carriers become empty.\n";
    out.push_str(&text::wrap(said, style.width, ""));
    out
}

fn collections(period: &Period, style: Style) -> String {
    let mut out = String::new();
    for row in period.collections.iter().take(MOST) {
        out.push_str(&text::wrap(&format!("{}\n", sentences(row).join(" ")), style.width, ""));
    }
    let mut table = Table::new(&[
        ("collected", Left),
        ("gave back", Right),
        ("heap before", Right),
        ("after", Right),
        ("binaries before", Right),
        ("after", Right),
    ]);
    for row in period.collected.iter().take(MOST_COLLECTED) {
        table.row([
            super::who(row.title().unwrap_or(&row.pid), &row.pid),
            text::bytes(row.freed() as f64),
            text::bytes(row.heap_before as f64),
            text::bytes(row.heap_after as f64),
            text::bytes(row.binary_before as f64),
            text::bytes(row.binary_after as f64),
        ]);
    }
    out.push_str(&table.render(style));
    out
}

/// What was asked for by name, as sources of gaps name it.
const ASKED: [(&str, &str); 5] = [
    ("vm.carriers", "Carriers"),
    ("vm.allocations", "Tagged blocks"),
    ("vm.code_memory", "Code by application"),
    ("vm.holders", "Holders of binaries"),
    ("vm.collect", "What a collection gives back"),
];

/// Nobody asks for these but by name, so no answer is worth a line.
fn unanswered(period: &Period, style: Style) -> String {
    let mut out = String::new();
    for (source, what) in ASKED {
        if let Some(gap) = period.gaps.iter().find(|gap| gap.source == source) {
            let said = format!("{what}: not known, because {}.\n", text::sentence(&gap.reason));
            out.push_str(&text::wrap(&said, style.width, ""));
        }
    }
    out
}

fn sentences(row: &CollectionRow) -> Vec<String> {
    let number = |count: i64| text::decimal(count as f64);
    let size = |bytes: i64| text::bytes(bytes as f64);
    if row.how == "named" && row.chosen == 0 {
        return vec!["Nothing was collected: the node has no such process.".to_owned()];
    }
    let whose = match row.how.as_str() {
        "named" => {
            format!("{} of {} processes that were named", number(row.collected), number(row.processes))
        }
        _ => format!(
            "{} of {} processes, the largest and some chosen by chance",
            number(row.collected),
            number(row.processes)
        ),
    };
    let mut said = vec![format!(
        "Collected were {whose}: their heaps went from {} to {}, and the binaries that they refer to from {} to {}.",
        size(row.heap_before),
        size(row.heap_after),
        size(row.binary_before),
        size(row.binary_after)
    )];
    let before = row.heap_before.saturating_add(row.binary_before) as f64;
    let after = row.heap_after.saturating_add(row.binary_after) as f64;
    if row.how == "named" && row.collected > 0 && before - after < LITTLE * before {
        said.push("So next to nothing of that was garbage.".to_owned());
    }
    if let (Some(processes), Some(processes_after), Some(binary), Some(binary_after)) = (
        row.memory_processes_before,
        row.memory_processes_after,
        row.memory_binary_before,
        row.memory_binary_after,
    ) {
        said.push(format!(
            "Meanwhile the memory of all processes went from {} to {}, that of all binaries from {} to {}.",
            size(processes),
            size(processes_after),
            size(binary),
            size(binary_after)
        ));
    }
    said.push(format!(
        "That took {}, the longest batch {}; others had to wait for a scheduler for at most {}.",
        time(row.took),
        time(row.longest),
        time(row.late)
    ));
    for (count, why) in [
        (row.large, "were left out, because their heaps are too large to be collected beside others"),
        (row.no_answer, "did not answer in time"),
        (row.gone, "had ended"),
    ] {
        if count > 0 {
            said.push(format!("{} {why}.", number(count)));
        }
    }
    match row.stopped.as_str() {
        "done" => {}
        "limit" => said.push("It was stopped: its time was over.".to_owned()),
        "latency" => said.push("It was stopped, because others had to wait too long.".to_owned()),
        "queue" => {
            said.push(format!(
                "It was stopped, because {} processes stood in the run queues.",
                number(row.queue)
            ));
        }
        other => said.push(format!("It was stopped: {}.", text::sentence(other))),
    }
    said
}

fn time(ns: i64) -> String {
    text::seconds(ns as f64 / 1e9)
}
