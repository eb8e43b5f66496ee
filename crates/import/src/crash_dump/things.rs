//! Tables, ports and timers: the largest become rows, of all it is counted what they are and whose.

use std::collections::HashMap;

use beamtune_model::{PortRow, SampleBuilder, SpawnRow, TableRow, metrics};

use super::processes::Processes;
use super::section::{Section, name, unquoted};
use super::top::Top;

/// Rows of the largest.
const MOST_ROWS: usize = 100;

/// Different origins of which it is counted how many there are.
const MOST_ORIGINS: usize = 5_000;

/// Origins that are told.
const TOLD: usize = 50;

/// By kind and maker.
#[derive(Default)]
struct Origins(HashMap<(String, Option<String>), i64>, i64);

impl Origins {
    fn count(&mut self, kind: &str, maker: Option<String>) {
        self.1 = self.1.saturating_add(1);
        let key = (kind.to_owned(), maker);
        if let Some(count) = self.0.get_mut(&key) {
            *count = count.saturating_add(1);
        } else if self.0.len() < MOST_ORIGINS {
            self.0.insert(key, 1);
        }
    }

    fn tell(self, what: &str, out: &mut SampleBuilder<'_>) {
        let mut rows: Vec<_> = self.0.into_iter().collect();
        rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        out.sample.spawns.extend(rows.into_iter().take(TOLD).map(|((kind, maker), count)| SpawnRow {
            t: 0,
            what: what.to_owned(),
            kind,
            maker,
            count,
            of: self.1,
            bytes: None,
        }));
    }
}

pub(super) struct Things {
    tables: Top<TableRow>,
    by_table: Origins,
    ports: Top<PortRow>,
    by_port: Origins,
    by_timer: Origins,
}

impl Default for Things {
    fn default() -> Self {
        Things {
            tables: Top::new(MOST_ROWS),
            by_table: Origins::default(),
            ports: Top::new(MOST_ROWS),
            by_port: Origins::default(),
            by_timer: Origins::default(),
        }
    }
}

impl Things {
    pub(super) fn table(&mut self, section: &Section, processes: &Processes, word_bytes: Option<i64>) {
        let owner = section.id.as_str();
        let name = section.text("Name").map(|name| unquoted(&name).to_owned()).unwrap_or_default();
        self.by_table.count(&name, processes.maker(owner));
        let bytes =
            section.number("Words").zip(word_bytes).and_then(|(words, bytes)| words.checked_mul(bytes));
        let (Some(objects), Some(bytes)) = (section.number("Objects"), bytes) else { return };
        self.tables.offer(bytes, || TableRow {
            t: 0,
            id: section.text("Table").map(|id| unquoted(&id).to_owned()).unwrap_or_else(|| name.clone()),
            name: name.clone(),
            owner: owner.to_owned(),
            owner_name: processes.name(owner),
            objects,
            memory_bytes: bytes,
            kind: section.text("Type").unwrap_or_default(),
            protection: section.text("Protection").unwrap_or_default(),
            options: options(section),
        });
    }

    pub(super) fn port(&mut self, section: &Section, processes: &Processes) {
        let connected = section.text("Connected");
        let name = port_name(section).unwrap_or_default();
        self.by_port.count(&name, connected.as_deref().and_then(|pid| processes.maker(pid)));
        let (Some(input), Some(output)) = (section.number("Input"), section.number("Output")) else { return };
        let queue = section.number("Queue").unwrap_or(0);
        // One that was never used is none of the largest, but it is one.
        self.ports.offer(input.saturating_add(output).saturating_add(queue).saturating_add(1), || PortRow {
            t: 0,
            id: section.id.clone(),
            name: name.clone(),
            connected: connected.clone(),
            input_bytes: input,
            output_bytes: output,
            queue_bytes: queue,
            os_pid: None,
        });
    }

    pub(super) fn timer(&mut self, section: &Section, processes: &Processes) {
        // Its receiver: a pid, or a registered name.
        let receiver = section.id.as_str();
        self.by_timer
            .count(&processes.maker(receiver).unwrap_or_else(|| unquoted(receiver).to_owned()), None);
    }

    /// Adds what was found; counts only of what was `all` there: ports, tables, timers.
    pub(super) fn tell(self, all: [bool; 3], out: &mut SampleBuilder<'_>) {
        let [ports, tables, timers] = all;
        if ports {
            out.metric(&metrics::PORT_COUNT, "", self.by_port.1);
            self.by_port.tell("port", out);
        }
        if tables {
            out.metric(&metrics::ETS_COUNT, "", self.by_table.1);
            self.by_table.tell("ets", out);
        }
        if timers {
            self.by_timer.tell("timer", out);
        }
        out.sample.tables.extend(self.tables.into_items());
        out.sample.ports.extend(self.ports.into_items());
    }
}

/// Options that are not at their default, as `ets:new/2` takes them.
fn options(section: &Section) -> Vec<String> {
    let named = [
        ("Compressed", "compressed"),
        ("Read Concurrency", "read_concurrency"),
        ("Write Concurrency", "write_concurrency"),
    ];
    let option = |(key, option): (&str, &str)| match section.bytes(key)? {
        b"true" => Some(option.to_owned()),
        b"false" => None,
        other => Some(format!("{option}={}", name(other))),
    };
    named.into_iter().filter_map(option).collect()
}

/// `Port is a linked-in driver: tcp_inet`, `Port controls external process: cat`, …
fn port_name(section: &Section) -> Option<String> {
    section.fields().find(|(key, _)| key.starts_with(b"Port ")).map(|(_, command)| name(command))
}
