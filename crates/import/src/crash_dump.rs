//! Reads a crash dump (`erl_crash.dump`) as one sample of a recording.
//!
//! A dump is as large as the memory of the VM, up to several gigabytes, so it is read as a stream. Only the largest processes, tables and
//! ports, counts, and the initial calls of up to a million processes are kept in memory. Heaps, stacks, binaries and literals are skipped,
//! except for the term in a heap that contains the real initial call of a `proc_lib` process.
//!
//! In a truncated dump, an incomplete section is ignored, and counts are recorded only for complete parts. The format is that of OTP 23 to
//! 29 (erts/emulator/beam/break.c and erl_process_dump.c).

mod allocators;
mod head;
mod lines;
mod processes;
mod readings;
mod resources;
mod section;
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
use resources::Resources;
use section::{Section, name, text, unquoted};

/// The bytes at the beginning of every dump.
pub const SIGNATURE: &[u8] = b"=erl_crash_dump:";

/// The byte order mark, which some editors insert at the beginning of a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The bytes at the beginning of a gzip file.
pub const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];

/// Size of a slot of the process and port tables on a 64-bit VM: one and a half pointers (erl_ptab.c). Measured on OTP 25, 27 and 29 with
/// `+P 50000 +Q 3000`, which result in 65,536 and 4,096 slots.
const SLOT_BYTES: i64 = 12;

/// The parts of a dump in their order, with the tags of their first sections. When a part begins, all parts before it are complete.
const PARTS: [(&[&str], &str); 9] = [
    (&["memory"], "memory by kind"),
    (&["hash_table", "index_table", "allocated_areas"], "sizes and limits of internal tables"),
    (&["allocator"], "allocators"),
    (&["proc"], "processes"),
    (&["port"], "ports"),
    (&["ets"], "ETS tables"),
    (&["timer"], "timers"),
    (&["loaded_modules", "mod"], "modules"),
    (&["fun"], "process heaps"),
];
const PROCESSES: usize = 3;
const PORTS: usize = 4;
const TABLES: usize = 5;
const TIMERS: usize = 6;
const MODULES: usize = 7;

/// The result of reading a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpSummary {
    /// Number of bytes read.
    pub bytes: u64,
    /// Description of what is missing and why, for the user; `None` if the dump is complete.
    pub missing: Option<String>,
}

/// Number of bytes that identify a dump.
pub const SIGNATURE_BYTES: usize = BYTE_ORDER_MARK.len() + SIGNATURE.len();

/// Whether a file that begins with these bytes is a dump.
pub fn is_crash_dump(bytes: &[u8]) -> bool {
    bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes).starts_with(SIGNATURE)
}

/// Finds a dump within other text, and returns the byte range of its first line.
pub(crate) fn find_in_text(text: &str) -> Option<(usize, usize)> {
    // If the mark occurs in prose, no format version follows.
    let is_head = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    let mark = "=erl_crash_dump:";
    let (begin, _) = text.match_indices(mark).find(|(begin, _)| is_head(&text[begin + mark.len()..]))?;
    Some((begin, text[begin..].find('\n').map_or(text.len(), |end| begin + end)))
}

/// Reads a dump, and adds its data to a sample.
///
/// # Errors
/// If the input is not a dump, is compressed, or cannot be read. A truncated dump is not an error.
pub fn read(input: impl Read, out: &mut SampleBuilder<'_>) -> Result<DumpSummary, ImportError> {
    let mut lines = Lines::new(input);
    let first = lines.next().map_err(failed)?.unwrap_or_default();
    if first.starts_with(GZIP_MAGIC) {
        return Err(ImportError::Compressed);
    }
    if !is_crash_dump(first) {
        return Err(ImportError::NotACrashDump);
    }
    let first = first.strip_prefix(BYTE_ORDER_MARK).unwrap_or(first);
    let mut section = Section::default();
    section.begin(first);
    let mut dump = Dump::default();
    let mut abort_reason = None;
    let mut is_whole = false;
    while let Some(line) = lines.next().map_err(failed)? {
        if line.first() != Some(&b'=') {
            section.push(line);
            continue;
        }
        if let Some(why) = line.strip_prefix(b"=abort:") {
            abort_reason = Some(name(why));
            break;
        }
        dump.add(&section);
        section.begin(line);
        is_whole = section.tag == "end";
        if is_whole {
            break;
        }
        dump.reach(&section.tag);
        dump.skip_unneeded(&section, &mut lines).map_err(failed)?;
    }
    if section.tag == "erl_crash_dump" {
        // Of the first section, every complete line is valid.
        dump.add(&section);
    }
    let missing = (!is_whole).then(|| dump.missing(abort_reason));
    dump.write(missing.as_deref(), out);
    Ok(DumpSummary { bytes: lines.bytes(), missing })
}

fn failed(error: std::io::Error) -> ImportError {
    ImportError::Unreadable(error.to_string())
}

/// A process that was running on a scheduler.
struct Running {
    /// The thread, such as `scheduler:2`. The head of the dump uses the same form for the thread that terminated the VM.
    thread: String,
    pid: String,
    is_in_gc: bool,
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
    resources: Resources,
    modules: i64,
    /// The last part that has begun, as an index in [`PARTS`].
    reached: Option<usize>,
}

/// Maximum number of schedulers with a process, and of kinds of memory. A dump with more is invalid.
const MAX_SCHEDULERS: usize = 4_096;
const MAX_KINDS: usize = 64;

impl Dump {
    /// Notes which parts are complete when a section with this tag begins.
    fn reach(&mut self, tag: &str) {
        let part = PARTS.iter().position(|(tags, _)| tags.contains(&tag));
        // Some sections do not begin a part, but show that the parts before them are complete.
        let part = part.or_else(|| match tag {
            "node" | "visible_node" | "hidden_node" | "not_connected" | "no_distribution" => Some(MODULES),
            tag if tag.starts_with("proc_") => Some(PARTS.len() - 1),
            "persistent_terms" | "literals" | "binary" | "atoms" => Some(PARTS.len() - 1),
            _ => None,
        });
        self.reached = self.reached.max(part);
    }

    /// Whether a part is complete.
    fn has(&self, part: usize) -> bool {
        self.reached.is_some_and(|reached| reached > part)
    }

    fn missing(&self, abort_reason: Option<String>) -> String {
        let why = match abort_reason {
            Some(why) => format!("the VM stopped writing it ({why})"),
            None => "it is truncated".to_owned(),
        };
        let from = self.reached.unwrap_or(0);
        let parts: Vec<&str> = PARTS.iter().skip(from).map(|(_, name)| *name).collect();
        format!("{why}; missing or incomplete: {}", parts.join(", "))
    }

    /// Skips a section whose content is not needed. If it is the heap of a `proc_lib` process, reads the initial call first.
    fn skip_unneeded(&mut self, section: &Section, lines: &mut Lines<impl Read>) -> std::io::Result<()> {
        match section.tag.as_str() {
            "proc_heap" if self.processes.needs_initial_call(&section.id) => {
                if let Some(call) = initial_call(lines)? {
                    self.processes.set_initial_call(&section.id, &call);
                }
                lines.skip_section()
            }
            "proc_heap" | "proc_stack" | "proc_dictionary" | "proc_messages" | "binary" | "literals"
            | "atoms" | "fun" | "persistent_terms" => lines.skip_section(),
            _ => Ok(()),
        }
    }

    /// Adds a complete section.
    fn add(&mut self, section: &Section) {
        match section.tag.as_str() {
            "erl_crash_dump" => self.head = head::Head::of(section),
            "scheduler" | "dirty_cpu_scheduler" | "dirty_io_scheduler" => self.scheduler(section),
            "dirty_cpu_run_queue" => self.run_queue(section, "dirty_cpu"),
            "dirty_io_run_queue" => self.run_queue(section, "dirty_io"),
            "memory" => {
                let kinds =
                    section.fields().filter_map(|(kind, bytes)| Some((name(kind), section::number(bytes)?)));
                self.memory = kinds.take(MAX_KINDS).collect();
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
            "port" => self.resources.port(section, &self.processes),
            "ets" => self.resources.table(section, &self.processes, self.head.word_bytes),
            "timer" => self.resources.timer(section, &self.processes),
            "node" => {
                self.node = Some(unquoted(&section.id).to_owned()).filter(|node| node != "nonode@nohost");
            }
            "mod" => self.modules = self.modules.saturating_add(1),
            _ => {}
        }
    }

    fn scheduler(&mut self, section: &Section) {
        if self.running.len() >= MAX_SCHEDULERS {
            return;
        }
        if section.tag == "scheduler" {
            self.run_queue(section, &format!("scheduler/{}", section.id));
        }
        if let Some(pid) = section.text("Current Process") {
            self.processes.running.insert(pid.clone());
            let is_in_gc = section.bytes("Current Process State") == Some(b"Garbing");
            self.running.push(Running { thread: format!("{}:{}", section.tag, section.id), pid, is_in_gc });
        }
    }

    fn run_queue(&mut self, section: &Section, entity: &str) {
        let lengths = ["Max", "High", "Normal", "Low", "Port"]
            .map(|priority| section.number(&format!("Run Queue {priority} Length")));
        let length = lengths.into_iter().try_fold(0_i64, |sum, length| sum.checked_add(length?));
        self.readings.add(&metrics::RUN_QUEUE, entity, length);
    }

    /// Returns the process that ran on the thread that terminated the VM. The head names that thread only if it is a normal scheduler.
    /// Any other thread is usually a dirty scheduler with a garbage collection of a large heap, which identifies it if there is only one.
    fn crash_process(&self) -> Option<&str> {
        let thread = self.head.thread.as_deref()?;
        if let Some(running) = self.running.iter().find(|running| running.thread == thread) {
            return Some(&running.pid);
        }
        let number = thread.strip_prefix("scheduler:");
        if number.is_some_and(|number| number != "0") {
            return None;
        }
        let dirty = || self.running.iter().filter(|running| running.thread.starts_with("dirty_"));
        let one = |needs_gc: bool| {
            let mut found = dirty().filter(|running| running.is_in_gc || !needs_gc);
            found.next().filter(|_| found.next().is_none())
        };
        one(true).or_else(|| one(false)).map(|running| running.pid.as_str())
    }

    /// Returns the only process in garbage collection, if the thread that terminated the VM is unknown. If the head contains a normal
    /// scheduler, that scheduler had no process.
    fn only_process_in_gc(&self) -> Option<&str> {
        let is_known = self.head.thread.as_deref().is_some_and(|thread| thread != "scheduler:0");
        match self.processes.in_gc.as_slice() {
            [one] if !is_known && self.has(PROCESSES) => Some(one),
            _ => None,
        }
    }

    fn write(self, missing: Option<&str>, out: &mut SampleBuilder<'_>) {
        let crash_process = self.crash_process().or_else(|| self.only_process_in_gc()).map(str::to_owned);
        let has = |part| self.has(part);
        let all = [has(PORTS), has(TABLES), has(TIMERS)];
        let all_processes = has(PROCESSES);
        if has(MODULES) {
            out.metric(&metrics::CODE_MODULES, "", self.modules);
        }
        self.head.write(out);
        let optional = [
            (facts::NODE_NAME, self.node),
            (facts::CRASH_PROCESS, crash_process),
            (facts::CRASH_DUMP_MISSING, missing.map(str::to_owned)),
        ];
        for (key, value) in optional {
            if let Some(value) = value {
                out.fact(key, value);
            }
        }
        for (key, limit) in self.limits {
            out.fact(key, limit.to_string());
        }
        self.readings.write(out);
        for (kind, bytes) in self.memory {
            out.family(&metrics::MEMORY, "", &kind, bytes);
        }
        self.allocators.write(out);
        self.processes.write(all_processes, out);
        self.resources.write(all, out);
        let gap = |source: &str, reason: String| Gap {
            begin: 0,
            end: 0,
            source: source.to_owned(),
            kind: TroubleKind::Unsupported,
            reason,
        };
        let reason = match missing {
            Some(missing) => format!("the crash dump is incomplete: {missing}"),
            None => "a crash dump does not contain it".to_owned(),
        };
        out.sample.gaps.push(gap("vm", reason));
        out.sample.gaps.push(gap("host", "a crash dump contains no data of the host".to_owned()));
    }
}

/// Reads the initial call in the dictionary of a `proc_lib` process. This is a pair of `$initial_call` and an address, followed by the
/// three terms at that address. In the dump, the dictionary precedes the stack and follows the messages.
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

/// Converts the three terms of an initial call, such as `AB:file_server,A4:init,I1`, to `file_server:init/1`.
fn call(terms: &[u8]) -> Option<String> {
    let (module, rest) = atom(terms)?;
    let (function, rest) = atom(rest.strip_prefix(b",")?)?;
    let arity = section::number(rest.strip_prefix(b",I")?)?;
    Some(format!("{}:{}/{arity}", text(module), text(function)))
}

/// Parses an atom, which is preceded by its length. Returns it with the bytes after it.
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
    fn an_initial_call_is_read_from_its_three_terms() {
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
