//! `erl_crash.dump`: what a VM has written of itself when it ended, as one sample of a recording.
//!
//! A dump is as large as what the VM held, some gigabytes at worst, so it is read as it streams by: what is held of it are the largest
//! processes, tables and ports, counts, and for a million processes what they were started as. Heaps, stacks, binaries and literals
//! are passed over, but for the one term in a heap that says what a process of proc_lib really is.
//!
//! Where a dump ends too early, a section that it cuts through is not believed, and nothing is counted of which not all was there.
//! The form is that of OTP 23 to 29 (erts/emulator/beam/break.c and erl_process_dump.c).

mod allocators;
mod head;
mod lines;
mod processes;
mod readings;
mod section;
mod things;
mod top;

use std::collections::BTreeMap;
use std::io::Read;

use beamtune_model::{Gap, SampleBuilder, TroubleKind, facts, metrics};
use memchr::memmem;

use crate::ImportError;
use allocators::Allocators;
use lines::Lines;
use processes::Processes;
use readings::Readings;
use section::{Section, name, text, unquoted};
use things::Things;

/// How every dump begins.
pub const BEGINNING: &[u8] = b"=erl_crash_dump:";

/// What editors put before a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How a file of gzip begins.
pub const GZIP: &[u8] = &[0x1f, 0x8b];

/// Slots of the tables of processes and ports, each a pointer and half of one, on a 64-bit VM (erl_ptab.c; measured on OTP 25, 27 and 29
/// with `+P 50000 +Q 3000`, which are 65,536 and 4,096 slots).
const SLOT_BYTES: i64 = 12;

/// What a dump tells one after the other, with the first section of each. What comes when it is cut off is all behind there.
const PARTS: [(&[&str], &str); 9] = [
    (&["memory"], "memory by kind"),
    (&["hash_table", "index_table", "allocated_areas"], "sizes and limits of the VM's own tables"),
    (&["allocator"], "allocators"),
    (&["proc"], "processes"),
    (&["port"], "ports"),
    (&["ets"], "ETS tables"),
    (&["timer"], "timers"),
    (&["loaded_modules", "mod"], "modules"),
    (&["fun"], "what processes held"),
];
const PROCESSES: usize = 3;
const PORTS: usize = 4;
const TABLES: usize = 5;
const TIMERS: usize = 6;
const MODULES: usize = 7;

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Size of what was read, in bytes.
    pub bytes: u64,
    /// What is missing of it and why, for a person; `None` of a whole dump.
    pub missing: Option<String>,
}

/// Bytes by which it is known whether a file is a dump.
pub const BEGINNING_BYTES: usize = BYTE_ORDER_MARK.len() + BEGINNING.len();

/// Whether a file that begins so is a dump.
pub fn begins(bytes: &[u8]) -> bool {
    bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes).starts_with(BEGINNING)
}

/// Where the first line of a dump begins and ends within other text.
pub(crate) fn within(text: &str) -> Option<(usize, usize)> {
    // Who only names that line does not write the version of its form behind it.
    let is_head = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    let mark = "=erl_crash_dump:";
    let (begin, _) = text.match_indices(mark).find(|(begin, _)| is_head(&text[begin + mark.len()..]))?;
    Some((begin, text[begin..].find('\n').map_or(text.len(), |end| begin + end)))
}

/// Reads a dump, and adds what it tells to a sample.
///
/// # Errors
/// If it is none, is compressed, or cannot be read. One that is cut off is no error.
pub fn read(input: impl Read, out: &mut SampleBuilder<'_>) -> Result<Told, ImportError> {
    let mut lines = Lines::new(input);
    let first = lines.next().map_err(failed)?.unwrap_or_default();
    if first.starts_with(GZIP) {
        return Err(ImportError::Compressed);
    }
    if !begins(first) {
        return Err(ImportError::NoDump);
    }
    let first = first.strip_prefix(BYTE_ORDER_MARK).unwrap_or(first);
    let mut section = Section::default();
    section.begin(first);
    let mut dump = Dump::default();
    let mut aborted = None;
    let mut is_whole = false;
    while let Some(line) = lines.next().map_err(failed)? {
        if line.first() != Some(&b'=') {
            section.push(line);
            continue;
        }
        if let Some(why) = line.strip_prefix(b"=abort:") {
            aborted = Some(name(why));
            break;
        }
        dump.add(&section);
        section.begin(line);
        is_whole = section.tag == "end";
        if is_whole {
            break;
        }
        dump.reach(&section.tag);
        dump.pass(&section, &mut lines).map_err(failed)?;
    }
    if section.tag == "erl_crash_dump" {
        // Each of its lines stands for itself.
        dump.add(&section);
    }
    let missing = (!is_whole).then(|| dump.missing(aborted));
    dump.tell(missing.as_deref(), out);
    Ok(Told { bytes: lines.bytes(), missing })
}

fn failed(error: std::io::Error) -> ImportError {
    ImportError::Unreadable(error.to_string())
}

/// A process on a scheduler.
struct Running {
    /// `scheduler:2`, as the head names the thread that ended the VM.
    thread: String,
    pid: String,
    is_collected: bool,
}

#[derive(Default)]
struct Dump {
    head: head::Head,
    running: Vec<Running>,
    readings: Readings,
    memory: BTreeMap<String, i64>,
    limits: BTreeMap<&'static str, i64>,
    node: Option<String>,
    allocators: Allocators,
    processes: Processes,
    things: Things,
    modules: i64,
    /// The part that was reached last.
    reached: Option<usize>,
}

/// More of them are made up.
const MOST_SCHEDULERS: usize = 4_096;
const MOST_KINDS: usize = 64;

impl Dump {
    fn reach(&mut self, tag: &str) {
        let part = PARTS.iter().position(|(tags, _)| tags.contains(&tag));
        // What has no part of its own and comes late says that the parts before it are there.
        let part = part.or_else(|| match tag {
            "node" | "visible_node" | "hidden_node" | "not_connected" | "no_distribution" => Some(MODULES),
            tag if tag.starts_with("proc_") => Some(PARTS.len() - 1),
            "persistent_terms" | "literals" | "binary" | "atoms" => Some(PARTS.len() - 1),
            _ => None,
        });
        self.reached = self.reached.max(part);
    }

    /// Whether all of a part was there.
    fn has(&self, part: usize) -> bool {
        self.reached.is_some_and(|reached| reached > part)
    }

    fn missing(&self, aborted: Option<String>) -> String {
        let why = match aborted {
            Some(why) => format!("the VM has ended it early ({why})"),
            None => "it ends in the middle".to_owned(),
        };
        let from = self.reached.unwrap_or(0);
        let parts: Vec<&str> = PARTS.iter().skip(from).map(|(_, name)| *name).collect();
        format!("{why}; not or not all there: {}", parts.join(", "))
    }

    /// Takes what of a section that has just begun need not be held, if there is any.
    fn pass(&mut self, section: &Section, lines: &mut Lines<impl Read>) -> std::io::Result<()> {
        match section.tag.as_str() {
            "proc_heap" if self.processes.wants_dictionary(&section.id) => {
                if let Some(call) = initial_call(lines)? {
                    self.processes.started_with(&section.id, &call);
                }
                lines.skip_section()
            }
            "proc_heap" | "proc_stack" | "proc_dictionary" | "proc_messages" | "binary" | "literals"
            | "atoms" | "fun" | "persistent_terms" => lines.skip_section(),
            _ => Ok(()),
        }
    }

    /// A section that was read to its end.
    fn add(&mut self, section: &Section) {
        match section.tag.as_str() {
            "erl_crash_dump" => self.head = head::Head::of(section),
            "scheduler" | "dirty_cpu_scheduler" | "dirty_io_scheduler" => self.scheduler(section),
            "dirty_cpu_run_queue" => self.run_queue(section, "dirty_cpu"),
            "dirty_io_run_queue" => self.run_queue(section, "dirty_io"),
            "memory" => {
                let kinds =
                    section.fields().filter_map(|(kind, bytes)| Some((name(kind), section::number(bytes)?)));
                self.memory = kinds.take(MOST_KINDS).collect();
            }
            "index_table" if section.id == "atom_tab" => {
                self.limits.extend(section.number("limit").map(|limit| (facts::ATOM_LIMIT, limit)));
                self.readings.add(&metrics::ATOM_COUNT, "", section.number("entries"));
            }
            "allocated_areas" if self.head.word_bytes == Some(8) => {
                for (key, fact) in
                    [("process_table", facts::PROCESS_LIMIT), ("port_table", facts::PORT_LIMIT)]
                {
                    let slots = section.number(key).filter(|bytes| bytes % SLOT_BYTES == 0);
                    self.limits.extend(slots.map(|bytes| (fact, bytes / SLOT_BYTES)));
                }
            }
            "allocator" => self.allocators.add(section),
            "proc" => self.processes.add(section, self.head.word_bytes),
            "port" => self.things.port(section, &self.processes),
            "ets" => self.things.table(section, &self.processes, self.head.word_bytes),
            "timer" => self.things.timer(section, &self.processes),
            "node" => {
                self.node = Some(unquoted(&section.id).to_owned()).filter(|node| node != "nonode@nohost");
            }
            "mod" => self.modules = self.modules.saturating_add(1),
            _ => {}
        }
    }

    fn scheduler(&mut self, section: &Section) {
        if self.running.len() >= MOST_SCHEDULERS {
            return;
        }
        if section.tag == "scheduler" {
            self.run_queue(section, &format!("scheduler/{}", section.id));
        }
        if let Some(pid) = section.text("Current Process") {
            self.processes.running.insert(pid.clone());
            let is_collected = section.bytes("Current Process State") == Some(b"Garbing");
            self.running.push(Running {
                thread: format!("{}:{}", section.tag, section.id),
                pid,
                is_collected,
            });
        }
    }

    fn run_queue(&mut self, section: &Section, entity: &str) {
        let lengths = ["Max", "High", "Normal", "Low", "Port"]
            .map(|priority| section.number(&format!("Run Queue {priority} Length")));
        let length = lengths.into_iter().try_fold(0_i64, |sum, length| sum.checked_add(length?));
        self.readings.add(&metrics::RUN_QUEUE, entity, length);
    }

    /// The process that the thread was at that has ended the VM. Only normal schedulers are named there: another thread is a dirty one
    /// that collects a large heap, mostly, and then it is known if there is only one.
    fn process(&self) -> Option<&str> {
        let thread = self.head.thread.as_deref()?;
        if let Some(running) = self.running.iter().find(|running| running.thread == thread) {
            return Some(&running.pid);
        }
        let number = thread.strip_prefix("scheduler:");
        if number.is_some_and(|number| number != "0") {
            return None;
        }
        let dirty = || self.running.iter().filter(|running| running.thread.starts_with("dirty_"));
        let one = |collected: bool| {
            let mut found = dirty().filter(|running| running.is_collected || !collected);
            found.next().filter(|_| found.next().is_none())
        };
        one(true).or_else(|| one(false)).map(|running| running.pid.as_str())
    }

    /// The only process that was collected, where none is known by its thread: a normal scheduler that the head names had no process.
    fn collected(&self) -> Option<&str> {
        let is_known = self.head.thread.as_deref().is_some_and(|thread| thread != "scheduler:0");
        match self.processes.collected.as_slice() {
            [one] if !is_known && self.has(PROCESSES) => Some(one),
            _ => None,
        }
    }

    fn tell(self, missing: Option<&str>, out: &mut SampleBuilder<'_>) {
        let process = self.process().or_else(|| self.collected()).map(str::to_owned);
        let has = |part| self.has(part);
        let all = [has(PORTS), has(TABLES), has(TIMERS)];
        let all_processes = has(PROCESSES);
        if has(MODULES) {
            out.metric(&metrics::CODE_MODULES, "", self.modules);
        }
        self.head.tell(out);
        let told = [
            (facts::NODE_NAME, self.node),
            (facts::CRASH_PROCESS, process),
            (facts::CRASH_DUMP_MISSING, missing.map(str::to_owned)),
        ];
        for (key, value) in told {
            if let Some(value) = value {
                out.fact(key, value);
            }
        }
        for (key, limit) in self.limits {
            out.fact(key, limit.to_string());
        }
        self.readings.tell(out);
        for (kind, bytes) in self.memory {
            out.family(&metrics::MEMORY, "", &kind, bytes);
        }
        self.allocators.tell(out);
        self.processes.tell(all_processes, out);
        self.things.tell(all, out);
        let gap = |source: &str, reason: String| Gap {
            begin: 0,
            end: 0,
            source: source.to_owned(),
            kind: TroubleKind::Unsupported,
            reason,
        };
        let reason = match missing {
            Some(missing) => format!("the dump is not whole: {missing}"),
            None => "a crash dump does not tell it".to_owned(),
        };
        out.sample.gaps.push(gap("vm", reason));
        out.sample.gaps.push(gap("host", "a crash dump tells nothing of the host".to_owned()));
    }
}

/// What a process of proc_lib says in its dictionary that it was started with: a pair of `$initial_call` and a place, and the three terms
/// at that place behind it. The dictionary is dumped before the stack, but after the messages.
fn initial_call(lines: &mut Lines<impl Read>) -> std::io::Result<Option<String>> {
    let mark = memmem::Finder::new(b":t2:AD:$initial_call,H");
    while let Some(line) = lines.next_of_section()? {
        let Some(at) = mark.find(line) else { continue };
        let place = line.get(at + mark.needle().len()..).unwrap_or_default().to_vec();
        let Some(line) = lines.next_of_section()? else { return Ok(None) };
        let terms = line.strip_prefix(place.as_slice()).and_then(|rest| rest.strip_prefix(b":t3:"));
        return Ok(terms.and_then(call));
    }
    Ok(None)
}

/// `AB:file_server,A4:init,I1` as `file_server:init/1`.
fn call(terms: &[u8]) -> Option<String> {
    let (module, rest) = atom(terms)?;
    let (function, rest) = atom(rest.strip_prefix(b",")?)?;
    let arity = section::number(rest.strip_prefix(b",I")?)?;
    Some(format!("{}:{}/{arity}", text(module), text(function)))
}

/// An atom with its length in front, and what follows it.
fn atom(terms: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = terms.strip_prefix(b"A")?;
    let (length, rest) = rest.split_at_checked(memchr::memchr(b':', rest)?)?;
    let length = usize::from_str_radix(std::str::from_utf8(length).ok()?, 16).ok()?;
    rest.get(1..)?.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_read_from_its_three_terms() {
        let check = |terms: &str, expect: Option<&str>| {
            assert_eq!(call(terms.as_bytes()).as_deref(), expect, "{terms}");
        };
        check("AB:file_server,A4:init,I1", Some("file_server:init/1"));
        check("A3:a,b,A1:c,I0", Some("a,b:c/0"));
        check("AFFFFFFFFFFFFFFFF:a,A1:b,I0", None);
        check("A4:init,I1", None);
        check("", None);
    }
}
