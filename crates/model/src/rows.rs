//! Rows: what is known of single processes, tables and ports. Unlike series they come and go by the
//! thousand, so only those that stand out are recorded.

use serde::{Deserialize, Serialize};

use crate::finding::Subject;
use crate::units::{Nanos, text_names};

/// Why a row was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rank {
    /// Among the largest by reductions since the scan before.
    Reductions,
    /// Among the largest by memory.
    Memory,
    /// Among the longest message queues.
    Queue,
    /// Among the largest by referenced binaries.
    Binary,
    /// Others wait for it, as a sample of all processes tells.
    WaitedFor,
    /// It got one of the heaviest messages that were seen to come.
    Message,
    /// Traces are sent to it.
    Tracer,
}

text_names!(Rank {
    Reductions => "reductions",
    Memory => "memory",
    Queue => "queue",
    Binary => "binary",
    WaitedFor => "waited_for",
    Message => "message",
    Tracer => "tracer",
});

/// One process in one second's scan; those with the most reductions and the longest queues are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessTick {
    /// `<0.123.0>`, as the node itself writes it.
    pub pid: Box<str>,
    /// Reductions since the scan before.
    pub reductions: i64,
    /// Messages in its queue.
    pub queue: i64,
    /// True if it was running, runnable or collecting when it was looked at; `None` if that was not read.
    pub runnable: Option<bool>,
}

/// A closer look at one process, every ten seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessRow {
    /// When, from the recording's start.
    pub t: Nanos,
    /// `<0.123.0>`, as the node itself writes it.
    pub pid: String,
    /// What it is among the first in.
    pub ranks: Vec<Rank>,
    /// Registered name.
    pub name: Option<String>,
    /// Label set by `proc_lib:set_label/1`, formatted and bounded by the node.
    pub label: Option<String>,
    /// `module:function/arity` it was started with (through proc_lib where it was). Before OTP 26.2 that is not read of large heaps:
    /// there it is `child of` who made it, if that is known.
    pub initial_call: Option<String>,
    /// `module:function/arity` at the time of the look.
    pub current_function: Option<String>,
    /// Application it belongs to, by its group leader.
    pub application: Option<String>,
    /// Pid of the process that started it.
    pub parent: Option<String>,
    /// `running`, `runnable`, `waiting`, `garbage_collecting` …
    pub status: Option<String>,
    /// Reductions since it was started.
    pub reductions: i64,
    /// Messages in its queue.
    pub queue: i64,
    /// `on_heap` or `off_heap`.
    pub message_queue_data: Option<String>,
    /// Of a live node its heap: young and old, with its stack and fragments. Of a crash dump all that it has.
    pub memory_bytes: i64,
    /// Heap with its old generation, in words.
    pub total_heap_words: Option<i64>,
    /// Off-heap binaries that its heap refers to.
    pub binary_bytes: Option<i64>,
    /// Minor collections since the last full one.
    pub minor_gcs: Option<i64>,
    /// Minor collections after which a full one is forced.
    pub fullsweep_after: Option<i64>,
    /// Its `min_heap_size`, in words.
    pub min_heap_words: Option<i64>,
    /// All that it has, as `process_info(P, memory)` says: heap, links, monitors, messages.
    pub total_bytes: Option<i64>,
    /// Of its heap, fragments: messages that no collection has moved into it yet. With `on_heap`, those in its queue are among them.
    pub fragment_bytes: Option<i64>,
    /// Where it stood, `module:function/arity`, the innermost first, nine at most; empty where that was not told.
    pub stack: Vec<String>,
    /// `max`, `high`, `normal`, `low`.
    pub priority: Option<String>,
}

/// What an initial call begins with that is not known, in front of who made the process.
pub const CHILD_OF: &str = "child of ";

impl ProcessRow {
    /// What a person calls the process: registered name, else label, else what it was started with.
    pub fn title(&self) -> Option<&str> {
        title([&self.name, &self.label, &self.initial_call])
    }
}

/// A stack with which a process was seen at work in the ten seconds before: one of the busiest, which are looked at in each, or any that ran
/// when it was looked at by chance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RanRow {
    /// When it was told, from the recording's start.
    pub t: Nanos,
    /// `<0.123.0>`, as the node itself writes it; empty of any process, looked at by chance.
    pub pid: String,
    /// `module:function/arity`, the innermost first, nine at most.
    pub stack: Vec<String>,
    /// How often.
    pub looks: i64,
    /// It waited there, in the midst of something; else it ran or was runnable. Of any process: it was runnable, and waited for a scheduler.
    pub waits: bool,
    /// Of any process: its registered name, else what it was started with.
    pub kind: Option<String>,
    /// Of any process: its garbage was being collected.
    pub collects: bool,
}

/// Processes of one parent that ended since this was told last, of those that were monitored: alike in what they were and why they ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRow {
    /// When it was told, from the recording's start.
    pub t: Nanos,
    /// Pid of the parent, the last one where several had the same name and call; `None` if it is not known.
    pub parent: Option<String>,
    /// Registered name of the parent.
    pub parent_name: Option<String>,
    /// What the parent runs: `supervisor:shop_sup/1`.
    pub parent_call: Option<String>,
    /// Registered name of those that ended; of those that ended in order only where the reason was `shutdown`, by which a supervisor ends
    /// its children.
    pub name: Option<String>,
    /// What they ran; `None` where they had ended before they could be asked, and of those that ended in order.
    pub call: Option<String>,
    /// The first atom of the reason; `None` of those that ended in order (`normal`, `shutdown`, `{shutdown, _}`).
    pub reason: Option<String>,
    /// Where an exception was raised, or which call was given up: `module:function/arity` and the line (0: not known), the innermost first,
    /// three at most.
    pub stack: Vec<(String, i64)>,
    /// Registered name of the process that was called.
    pub callee: Option<String>,
    /// How many.
    pub count: i64,
    /// The heap at which the VM kills them, in words; 0 if there is none.
    pub heap_limit_words: i64,
}

/// An ETS table, every ten seconds; those with the most memory are recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRow {
    /// When, from the recording's start.
    pub t: Nanos,
    /// `#Ref<…>` of an unnamed table, or the name of a named one.
    pub id: String,
    /// Name given to `ets:new/2`.
    pub name: String,
    /// Pid of the owner.
    pub owner: String,
    /// Registered name of the owner.
    pub owner_name: Option<String>,
    /// Objects in it.
    pub objects: i64,
    /// Memory, in bytes.
    pub memory_bytes: i64,
    /// `set`, `ordered_set`, `bag`, `duplicate_bag`.
    pub kind: String,
    /// `public`, `protected`, `private`.
    pub protection: String,
    /// Other options that are not at their default: `read_concurrency`, `write_concurrency=auto`, `compressed` …
    pub options: Vec<String>,
}

impl TableRow {
    /// The owner's registered name, else its pid.
    pub fn owner_title(&self) -> &str {
        self.owner_name.as_deref().unwrap_or(&self.owner)
    }

    /// As what a finding is about.
    pub fn subject(&self) -> Subject {
        Subject::Table { name: self.name.clone(), owner: Some(self.owner_title().to_owned()) }
    }
}

/// A port, every ten seconds; those with the most traffic or the longest queues are recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRow {
    /// When, from the recording's start.
    pub t: Nanos,
    /// `#Port<0.5>`.
    pub id: String,
    /// Driver or command: `tcp_inet`, `/usr/bin/inotifywait …`.
    pub name: String,
    /// Pid of the process that it is connected to.
    pub connected: Option<String>,
    /// Bytes read from it since it was opened.
    pub input_bytes: i64,
    /// Bytes written to it since it was opened.
    pub output_bytes: i64,
    /// Bytes waiting in its driver queue.
    pub queue_bytes: i64,
    /// Operating-system process behind it.
    pub os_pid: Option<i64>,
}

/// Blocks of one allocator in some carriers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockSum {
    /// Whose blocks they are: `eheap_alloc`.
    pub allocator: String,
    /// Blocks.
    pub count: i64,
    /// Their size with their heads, in bytes.
    pub bytes: i64,
}

/// Blocks by their size: the smallest size that is counted here, in bytes, and how many there are from there up to the next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeCount {
    /// The smallest size, in bytes.
    pub from: i64,
    /// How many.
    pub count: i64,
}

/// Carriers that are alike, from a walk through all carriers, which is made only when somebody asks for it. All rows of a walk
/// have the same instant; together they are all carriers that the VM counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarrierRow {
    /// When the walk was, from the recording's start.
    pub t: Nanos,
    /// Whose carriers they are: `eheap_alloc`.
    pub allocator: String,
    /// Why these were not walked; `None` of those that were. `limit`: the time did not suffice. `pool`: walking them would have
    /// left the VM's own counts wrong (ERTS before 15.1). `many`: too many carriers. `no_answer`: their thread did not answer in time.
    /// `refused`: the VM did not do it. `rows`: walked, but too unlike the others to be told one by one.
    pub skipped: Option<String>,
    /// Abandoned to the pool of carriers.
    pub in_pool: bool,
    /// Single-block carriers.
    pub single: bool,
    /// Of each, the size is at least two to this power, and less than to the next, in bytes; `None` of those not walked.
    pub size_log2: Option<i64>,
    /// How many whole tenths of each are taken by blocks, 0 to 10; `None` of those not walked.
    pub used_tenths: Option<i64>,
    /// How many.
    pub carriers: i64,
    /// Their size, in bytes.
    pub bytes: i64,
    /// Of that, what was not looked at, because a carrier had too many blocks. `blocks` holds these all the same, `free` does not.
    pub unscanned_bytes: i64,
    /// The blocks in them, by the allocator that they belong to. Empty of those not walked.
    pub blocks: Vec<BlockSum>,
    /// The free blocks between them by size; sizes without any are left out.
    pub free: Vec<SizeCount>,
}

/// Blocks that were allocated by the same and for the same, from a walk through all tagged blocks, which is made only when somebody
/// asks for it. Blocks bear tags where the option `atags` of their allocator is on: by default those of binaries and drivers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationRow {
    /// When the walk was, from the recording's start; the same in all rows of a walk.
    pub t: Nanos,
    /// By whom: a driver, a NIF's library, or `system`. Of a row with `skipped`: the allocator, or nothing.
    pub origin: String,
    /// For what: `binary`, `heap`, `nif_internal` …: the VM's own types.
    pub kind: String,
    /// Of what was not looked at: why, as in [`CarrierRow::skipped`], and `unscanned` for what lay behind the first 16,000 blocks of a
    /// carrier; there, `bytes` are of carriers. `rows`: of what was allocated by further ones.
    pub skipped: Option<String>,
    /// How many.
    pub blocks: i64,
    /// About how many bytes: as if all were as large as the middle of their place in `sizes`.
    pub bytes: i64,
    /// By size; sizes without any are left out.
    pub sizes: Vec<SizeCount>,
}

/// The code of one application, read only when somebody asks for it. Sums over all are in [`crate::Group::Code`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeRow {
    /// When, from the recording's start; the same in all rows of a look.
    pub t: Nanos,
    /// The application; `erts` for what the VM itself brings, `None` for modules of none that is loaded.
    pub application: Option<String>,
    /// Its modules that are loaded.
    pub modules: i64,
    /// Their code with its literals, in bytes.
    pub bytes: i64,
    /// Old code of them that is still there, in bytes.
    pub old_bytes: i64,
}

/// A process that refers to many binaries, asked for which, when somebody asked for that. What all of these processes hold together,
/// each binary counted once, is [`crate::metrics::HELD_BINARIES_SIZE`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderRow {
    /// When, from the recording's start; the same in all rows of a look.
    pub t: Nanos,
    /// `<0.123.0>`, as the node itself writes it.
    pub pid: String,
    /// Registered name.
    pub name: Option<String>,
    /// Its label.
    pub label: Option<String>,
    /// `module:function/arity` it was started with.
    pub initial_call: Option<String>,
    /// Why it could not be asked: `gone`, `no_answer` (it hangs), `many` (it refers to millions), `limit` (no time was left),
    /// `refused`. `None` if it was; else there are sizes of heaps only.
    pub skipped: Option<String>,
    /// Its heap, in bytes. A small one is collected rarely, and so what it refers to may stay for long.
    pub heap_bytes: i64,
    /// Binaries that it refers to by its garbage collector's count, which counts references, in bytes.
    pub binary_vheap_bytes: i64,
    /// References to binaries outside of its heap.
    pub references: i64,
    /// Binaries that they lead to.
    pub binaries: i64,
    /// Their size, in bytes.
    pub bytes: i64,
    /// Of these, binaries that nobody but this process refers to.
    pub alone: i64,
    /// Their size, in bytes.
    pub alone_bytes: i64,
}

/// Collections of the garbage of processes that somebody has asked for. All sizes are in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectionRow {
    /// When, from the recording's start.
    pub t: Nanos,
    /// `named`: of those that were named; `sample`: of some that were chosen by chance.
    pub how: String,
    /// Processes that the node had but for those of beamtune; of named ones, how many were named.
    pub processes: i64,
    /// Those that were chosen: first the largest ones, then some by chance, which have their turn in an order of chance.
    pub chosen: i64,
    /// How many of these were chosen because they are the largest, or were named.
    pub largest: i64,
    /// No other process was larger than this, heap and binaries together; 0 if there is no other.
    pub rest_bytes: i64,
    /// Those that were collected.
    pub collected: i64,
    /// Those that had ended before.
    pub gone: i64,
    /// Those that did not answer in time.
    pub no_answer: i64,
    /// Those left out because their heap was too large.
    pub large: i64,
    /// Why it ended: `done`, `limit` (its time was over), `latency` (a process had to wait too long for a scheduler), `queue` (too
    /// many stood in the run queues).
    pub stopped: String,
    /// Heaps of those collected, before.
    pub heap_before: i64,
    /// The same after.
    pub heap_after: i64,
    /// Binaries that they referred to by their garbage collector's count, before.
    pub binary_before: i64,
    /// The same after.
    pub binary_after: i64,
    /// Those collected of the ones that were chosen by chance.
    pub chance: i64,
    /// What each of them gave back of its heap, in whole KiB, added up.
    pub chance_heap_kib: i64,
    /// The squares of that, added up: from both follows how sure what all processes would give back is.
    pub chance_heap_kib_squares: i64,
    /// What each of them gave back of binaries, by its garbage collector's count, in whole KiB, added up.
    pub chance_binary_kib: i64,
    /// The squares of that, added up.
    pub chance_binary_kib_squares: i64,
    /// `erlang:memory(processes)` before; `None` where an allocator is disabled, as in the next three.
    pub memory_processes_before: Option<i64>,
    /// The same after.
    pub memory_processes_after: Option<i64>,
    /// `erlang:memory(binary)` before.
    pub memory_binary_before: Option<i64>,
    /// The same after.
    pub memory_binary_after: Option<i64>,
    /// How long the collections took, one after the other.
    pub took: Nanos,
    /// How long the longest batch of them took, after which others had their turn.
    pub longest: Nanos,
    /// The longest that a process had to wait for a scheduler between them.
    pub late: Nanos,
    /// The longest run queues, added up.
    pub queue: i64,
}

/// A process that a collection made smaller; those that gave back the most are recorded. All sizes are in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectRow {
    /// That of its [`CollectionRow`].
    pub t: Nanos,
    /// `<0.123.0>`, as the node itself writes it.
    pub pid: String,
    /// Registered name.
    pub name: Option<String>,
    /// Its label.
    pub label: Option<String>,
    /// `module:function/arity` it was started with.
    pub initial_call: Option<String>,
    /// Its heap before.
    pub heap_before: i64,
    /// The same after.
    pub heap_after: i64,
    /// Binaries that it referred to by its garbage collector's count, before.
    pub binary_before: i64,
    /// The same after.
    pub binary_after: i64,
    /// How long it took until the collection was done, waiting for its turn included.
    pub took: Nanos,
}

impl HolderRow {
    /// As of a [`ProcessRow`].
    pub fn title(&self) -> Option<&str> {
        title([&self.name, &self.label, &self.initial_call])
    }
}

impl CollectRow {
    /// As of a [`ProcessRow`].
    pub fn title(&self) -> Option<&str> {
        title([&self.name, &self.label, &self.initial_call])
    }

    /// What it gave back, in bytes.
    pub fn freed(&self) -> i64 {
        let before = self.heap_before.saturating_add(self.binary_before);
        before.saturating_sub(self.heap_after).saturating_sub(self.binary_after)
    }
}

fn title(names: [&Option<String>; 3]) -> Option<&str> {
    names.into_iter().find_map(Option::as_deref)
}

/// Who starts processes, or owns tables or ports, or what atoms are made of: a count by origin, from a bounded sample of the newest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnRow {
    /// When, from the recording's start.
    pub t: Nanos,
    /// `process`, `ets`, `port` or `atom`; `given` of processes that were started with large arguments; of a crash dump `timer`, too,
    /// whose kind is the receiver; of other nodes [`SpawnRow::ATTEMPT`], [`SpawnRow::ATTEMPT_STEP`] or [`SpawnRow::UNCONNECTED`]; of a table that
    /// grows [`SpawnRow::TABLE_MODULE`] or [`SpawnRow::TABLE_APPLICATION`].
    pub what: String,
    /// What they are: initial call, table name, or port name; of atoms how several of them begin; the other node; the table's id.
    pub kind: String,
    /// Who made them: registered name or initial call of the parent or owner; of a step of attempts which; the module or
    /// application of a table.
    pub maker: Option<String>,
    /// How many of the sample.
    pub count: i64,
    /// The size of the sample.
    pub of: i64,
    /// Of `given`, the bytes of arguments of all of them together.
    pub bytes: Option<i64>,
}

impl SpawnRow {
    /// Attempts to connect to a node, by who asked for them.
    pub const ATTEMPT: &'static str = "attempt";
    /// Attempts to connect to a node, by how far they were: `resolve`, `epmd`, `connect`, `tls` or `handshake`.
    pub const ATTEMPT_STEP: &'static str = "attempt_step";
    /// A node that is known and not connected.
    pub const UNCONNECTED: &'static str = "unconnected";

    /// The module that a table that grows was made by, as its name or its owner tells; without a maker where neither does.
    pub const TABLE_MODULE: &'static str = "table_module";
    /// The loaded application that this module is of.
    pub const TABLE_APPLICATION: &'static str = "table_application";

    /// Whether its kind is a table.
    pub fn is_of_table(&self) -> bool {
        [Self::TABLE_MODULE, Self::TABLE_APPLICATION].contains(&&*self.what)
    }

    /// Whether its kind is a node.
    pub fn is_of_node(&self) -> bool {
        [Self::ATTEMPT, Self::ATTEMPT_STEP, Self::UNCONNECTED].contains(&&*self.what)
    }
}
