//! ETS tables, ports and timers: the largest become rows, and all are counted by kind and owner.

use std::collections::HashMap;

use beamtune_model::{PortRow, SampleBuilder, SpawnRow, TableRow, metrics};

use super::processes::Processes;
use super::section::{Section, name, unquoted};
use super::top::Top;

/// Maximum number of rows.
const MAX_ROWS: usize = 100;

/// Maximum number of distinct pairs of kind and owner that are counted.
const MAX_ORIGINS: usize = 5_000;

/// Maximum number of rows with such counts.
const MAX_ORIGIN_ROWS: usize = 50;

/// Counts by kind and owner, and their sum.
#[derive(Default)]
struct Origins(HashMap<(String, Option<String>), i64>, i64);

impl Origins {
    fn count(&mut self, kind: &str, maker: Option<String>) {
        self.1 = self.1.saturating_add(1);
        let key = (kind.to_owned(), maker);
        if let Some(count) = self.0.get_mut(&key) {
            *count = count.saturating_add(1);
        } else if self.0.len() < MAX_ORIGINS {
            self.0.insert(key, 1);
        }
    }

    fn write(self, what: &str, out: &mut SampleBuilder<'_>) {
        let mut rows: Vec<_> = self.0.into_iter().collect();
        rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        out.sample.spawns.extend(rows.into_iter().take(MAX_ORIGIN_ROWS).map(|((kind, maker), count)| {
            SpawnRow {
                t: 0,
                what: what.to_owned(),
                kind,
                creator: maker,
                count,
                sample_size: self.1,
                bytes: None,
            }
        }));
    }
}

pub(super) struct Resources {
    tables: Top<TableRow>,
    by_table: Origins,
    ports: Top<PortRow>,
    by_port: Origins,
    by_timer: Origins,
}

impl Default for Resources {
    fn default() -> Self {
        Resources {
            tables: Top::new(MAX_ROWS),
            by_table: Origins::default(),
            ports: Top::new(MAX_ROWS),
            by_port: Origins::default(),
            by_timer: Origins::default(),
        }
    }
}

impl Resources {
    pub(super) fn table(&mut self, section: &Section, processes: &Processes, word_bytes: Option<i64>) {
        let owner = section.id.as_str();
        let name = section.text("Name").map(|name| unquoted(&name).to_owned()).unwrap_or_default();
        self.by_table.count(&name, processes.name_or_initial_call(owner));
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
        self.by_port.count(&name, connected.as_deref().and_then(|pid| processes.name_or_initial_call(pid)));
        let (Some(input), Some(output)) = (section.number("Input"), section.number("Output")) else { return };
        let queue = section.number("Queue").unwrap_or(0);
        // A port without traffic has the size one, so that it becomes a row if there are not too many.
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
        // The receiver is a pid or a registered name.
        let receiver = section.id.as_str();
        self.by_timer.count(
            &processes.name_or_initial_call(receiver).unwrap_or_else(|| unquoted(receiver).to_owned()),
            None,
        );
    }

    /// Adds the rows and counts. `all` shows which lists are complete (ports, tables, timers); only these are counted.
    pub(super) fn write(self, all: [bool; 3], out: &mut SampleBuilder<'_>) {
        let [ports, tables, timers] = all;
        if ports {
            out.metric(&metrics::PORT_COUNT, "", self.by_port.1);
            self.by_port.write("port", out);
        }
        if tables {
            out.metric(&metrics::ETS_COUNT, "", self.by_table.1);
            self.by_table.write("ets", out);
        }
        if timers {
            self.by_timer.write("timer", out);
        }
        out.sample.tables.extend(self.tables.into_items());
        out.sample.ports.extend(self.ports.into_items());
    }
}

/// Returns the options of a table that differ from the defaults of `ets:new/2`.
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

/// Returns the name of a port, from a line such as `Port is a linked-in driver: tcp_inet` or `Port controls external process: cat`.
fn port_name(section: &Section) -> Option<String> {
    section.fields().find(|(key, _)| key.starts_with(b"Port ")).map(|(_, command)| name(command))
}
