//! Processes: the largest become rows, and all are counted by initial call.

use std::collections::{BTreeMap, HashMap, HashSet};

use beamtune_model::{ProcessRow, Rank, SampleBuilder, SpawnRow, metrics};

use super::section::{Section, name, unquoted};
use super::top::Top;

/// Maximum number of rows per rank.
const MAX_ROWS_PER_RANK: usize = 50;

/// Maximum number of processes whose initial call is kept for the tables and heaps that follow in the dump. They need some 40 MB.
const MAX_KNOWN: usize = 1 << 20;

/// Maximum number of distinct initial calls, and of registered names; a program has some hundreds.
const MAX_NAMES: usize = 20_000;

/// Maximum number of rows with counts by initial call.
const MAX_ORIGIN_ROWS: usize = 50;

/// The beginning of the initial call of every `proc_lib` process; the real initial call is in its dictionary.
const PROC_LIB: &str = "proc_lib:init_p/";

#[derive(Default)]
pub(super) struct Processes {
    rows: Ranked,
    /// Indexes in `origins`, by pid.
    known: HashMap<u64, u32>,
    /// Initial calls, and the number of processes for each.
    origins: Vec<(String, i64)>,
    origin_indexes: HashMap<String, u32>,
    names: HashMap<u64, String>,
    count: i64,
    /// Processes in garbage collection; at most two, since the process is significant only if it is the only one.
    pub(super) in_gc: Vec<String>,
    /// Processes that were running on a scheduler; they always become rows.
    pub(super) running: HashSet<String>,
    /// Rows of the processes in `running`.
    ran: Vec<ProcessRow>,
}

struct Ranked {
    memory: Top<ProcessRow>,
    queue: Top<ProcessRow>,
    reductions: Top<ProcessRow>,
    binary: Top<ProcessRow>,
}

impl Default for Ranked {
    fn default() -> Self {
        let top = || Top::new(MAX_ROWS_PER_RANK);
        Ranked { memory: top(), queue: top(), reductions: top(), binary: top() }
    }
}

impl Processes {
    /// Adds a process. If a number is missing, the process is counted but has no row.
    pub(super) fn add(&mut self, section: &Section, word_bytes: Option<i64>) {
        self.count = self.count.saturating_add(1);
        let pid = section.id.as_str();
        let origin = section.text("Spawned as");
        if let Some(key) = key(pid) {
            if let Some(name) = section.text("Name").filter(|_| self.names.len() < MAX_NAMES) {
                self.names.insert(key, unquoted(&name).to_owned());
            }
            if let Some(place) = origin.as_deref().and_then(|origin| self.origin(origin)) {
                self.count_origin(place, 1);
                if self.known.len() < MAX_KNOWN {
                    self.known.insert(key, place);
                }
            }
        }
        let state = section.bytes("State").unwrap_or_default();
        if state == b"Garbing" && self.in_gc.len() < 2 {
            self.in_gc.push(pid.to_owned());
        }
        let (Some(memory), Some(queue), Some(reductions)) =
            (section.number("Memory"), section.number("Message queue length"), section.number("Reductions"))
        else {
            return;
        };
        let binary = binary_bytes(section, word_bytes).filter(|_| state != b"Garbing");
        let row = || ProcessRow {
            pid: pid.to_owned(),
            name: section.text("Name").map(|name| unquoted(&name).to_owned()),
            initial_call: origin.clone(),
            current_function: current_function(section),
            parent: section.text("Spawned by").filter(|parent| parent.starts_with('<')),
            status: status(state),
            reductions,
            queue,
            memory_bytes: memory,
            total_heap_words: section
                .number("Stack+heap")
                .zip(section.number("OldHeap"))
                .map(|(young, old)| young.saturating_add(old)),
            binary_bytes: binary,
            ..ProcessRow::default()
        };
        self.rows.memory.offer(memory, row);
        self.rows.queue.offer(queue, row);
        self.rows.reductions.offer(reductions, row);
        self.rows.binary.offer(binary.unwrap_or(0), row);
        if self.ran.len() < self.running.len() && self.running.contains(pid) {
            self.ran.push(row());
        }
    }

    /// Whether it is a `proc_lib` process, so that its real initial call is in its dictionary.
    pub(super) fn needs_initial_call(&self, pid: &str) -> bool {
        let place = key(pid).and_then(|key| self.known.get(&key));
        let origin = place.and_then(|place| self.origins.get(*place as usize));
        origin.is_some_and(|(origin, _)| origin.starts_with(PROC_LIB))
    }

    /// Replaces the initial call of a process by the one in its dictionary.
    pub(super) fn set_initial_call(&mut self, pid: &str, call: &str) {
        let Some(key) = key(pid) else { return };
        let (Some(place), Some(&before)) = (self.origin(call), self.known.get(&key)) else { return };
        self.count_origin(before, -1);
        self.count_origin(place, 1);
        self.known.insert(key, place);
    }

    /// Returns the registered name or the initial call of a process. The initial call of a `proc_lib` process is not known yet, since it
    /// follows all tables and ports in the dump.
    pub(super) fn name_or_initial_call(&self, pid: &str) -> Option<String> {
        self.name(pid).or_else(|| self.initial_call_of(pid).filter(|call| !call.starts_with(PROC_LIB)))
    }

    /// Returns the registered name of a process.
    pub(super) fn name(&self, pid: &str) -> Option<String> {
        self.names.get(&key(pid)?).cloned()
    }

    fn initial_call_of(&self, pid: &str) -> Option<String> {
        let place = self.known.get(&key(pid)?)?;
        self.origins.get(*place as usize).map(|(origin, _)| origin.clone())
    }

    fn origin(&mut self, origin: &str) -> Option<u32> {
        if let Some(place) = self.origin_indexes.get(origin) {
            return Some(*place);
        }
        let place = u32::try_from(self.origins.len()).ok().filter(|_| self.origins.len() < MAX_NAMES)?;
        self.origins.push((origin.to_owned(), 0));
        self.origin_indexes.insert(origin.to_owned(), place);
        Some(place)
    }

    fn count_origin(&mut self, place: u32, more: i64) {
        if let Some((_, count)) = self.origins.get_mut(place as usize) {
            *count = count.saturating_add(more);
        }
    }

    /// Adds the rows; also adds the counts if the dump contains `all` processes.
    pub(super) fn write(self, all: bool, out: &mut SampleBuilder<'_>) {
        if all {
            out.metric(&metrics::PROCESS_COUNT, "", self.count);
            let mut origins: Vec<&(String, i64)> =
                self.origins.iter().filter(|(_, count)| *count > 0).collect();
            origins.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            out.sample.spawns.extend(origins.into_iter().take(MAX_ORIGIN_ROWS).map(|(kind, count)| {
                SpawnRow {
                    t: 0,
                    what: "process".to_owned(),
                    kind: kind.clone(),
                    creator: None,
                    count: *count,
                    sample_size: self.count,
                    bytes: None,
                }
            }));
        }
        let mut rows: BTreeMap<String, ProcessRow> = BTreeMap::new();
        let Processes { rows: ranked, known, origins, ran, .. } = self;
        let lists = [
            (Some(Rank::Memory), ranked.memory.into_items().collect()),
            (Some(Rank::Queue), ranked.queue.into_items().collect()),
            (Some(Rank::Reductions), ranked.reductions.into_items().collect()),
            (Some(Rank::Binary), ranked.binary.into_items().collect()),
            (None, ran),
        ];
        for (rank, list) in lists {
            let list: Vec<ProcessRow> = list;
            for row in list {
                rows.entry(row.pid.clone()).or_insert(row.clone()).ranks.extend(rank);
            }
        }
        for mut row in rows.into_values() {
            let place = key(&row.pid).and_then(|key| known.get(&key));
            if let Some((call, _)) = place.and_then(|place| origins.get(*place as usize)) {
                row.initial_call = Some(call.clone());
            }
            out.sample.processes.push(row);
        }
    }
}

/// Converts a local pid such as `<0.12.3>` to a number.
fn key(pid: &str) -> Option<u64> {
    let (number, serial) = pid.strip_prefix("<0.")?.strip_suffix('>')?.split_once('.')?;
    Some(number.parse::<u32>().map(u64::from).ok()? << 32 | serial.parse::<u32>().map(u64::from).ok()?)
}

/// Converts a state to the status as in `process_info(Pid, status)`.
fn status(state: &[u8]) -> Option<String> {
    let named = match state {
        b"" => return None,
        b"Scheduled" => "runnable",
        b"Garbing" => "garbage_collecting",
        other => return Some(name(other).to_lowercase()),
    };
    Some(named.to_owned())
}

/// Returns the size of binaries that the heap refers to, as counted by the garbage collector.
fn binary_bytes(section: &Section, word_bytes: Option<i64>) -> Option<i64> {
    let words = section.number("BinVHeap")?.checked_add(section.number("OldBinVHeap")?)?;
    words.checked_mul(word_bytes?)
}

fn current_function(section: &Section) -> Option<String> {
    let call = section.text("Current call").or_else(|| section.text("Last scheduled in for"));
    call.or_else(|| {
        // `0x00007f5a69b9a694 (timer:sleep/1 + 452)`
        let place = section.text("Program counter")?;
        let (_, function) = place.split_once(" (")?;
        let function = function.split_once(" + ").map_or(function.trim_end_matches(')'), |(name, _)| name);
        (function.contains(':') && function.contains('/')).then(|| function.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_pids_are_converted_to_numbers() {
        assert_eq!(key("<0.7.1>"), Some((7 << 32) | 1));
        for pid in ["", "<0.7>", "<1.7.0>", "<0.4294967296.0>", "<0.x.0>", "#Port<0.1>"] {
            assert_eq!(key(pid), None, "{pid}");
        }
    }

    #[test]
    fn the_address_of_the_current_function_is_removed() {
        let check = |line: &str, expect: Option<&str>| {
            let mut section = Section::default();
            section.begin(b"=proc:<0.1.0>");
            section.push(line.as_bytes());
            assert_eq!(current_function(&section).as_deref(), expect, "{line}");
        };
        check("Program counter: 0x00007f (timer:sleep/1 + 452)", Some("timer:sleep/1"));
        check("Program counter: 0x00007f (a:'-f/1-fun-0-'/2 + 8)", Some("a:'-f/1-fun-0-'/2"));
        check("Program counter: 0x00007f (<terminate process normally>)", None);
        check("Current call: erlang:hibernate/3", Some("erlang:hibernate/3"));
        check("State: Waiting", None);
    }
}
