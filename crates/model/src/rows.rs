//! Rows: data of single processes, tables and ports. Thousands of these appear and disappear, so only the most important ones are
//! recorded.

use serde::{Deserialize, Serialize};

use crate::finding::Subject;
use crate::units::{Nanos, text_names};

/// Reason why a row was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rank {
    /// It is among the processes with the most reductions since the last scan.
    Reductions,
    /// It is among the processes with the most memory.
    Memory,
    /// It is among the processes with the longest message queues.
    Queue,
    /// It is among the processes that refer to the most bytes in binaries.
    Binary,
    /// It is a blocking process, according to a sample of waiting processes.
    WaitedFor,
    /// It received one of the largest messages observed.
    Message,
    /// It is a tracer.
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

/// One process in the scan of one second; the processes with the most reductions and the longest queues are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessTick {
    /// `<0.123.0>`, as printed on the node itself.
    pub pid: Box<str>,
    /// Reductions since the last scan.
    pub reductions: i64,
    /// Message queue length.
    pub queue: i64,
    /// True if it was running, runnable or in garbage collection; `None` if its status was not read.
    pub runnable: Option<bool>,
}

/// A detailed reading of one process, every ten seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessRow {
    /// Time since the start of the recording.
    pub t: Nanos,
    /// `<0.123.0>`, as printed on the node itself.
    pub pid: String,
    /// Reasons why it was recorded.
    pub ranks: Vec<Rank>,
    /// Registered name.
    pub name: Option<String>,
    /// Label set by `proc_lib:set_label/1`, formatted and truncated by the node.
    pub label: Option<String>,
    /// Initial call, `module:function/arity`; for processes started by `proc_lib`, the initial call that `proc_lib` stores. Before OTP 26.2
    /// it is not read if the heap is large; then it is `child of PARENT` if the parent is known.
    pub initial_call: Option<String>,
    /// Current function, `module:function/arity`.
    pub current_function: Option<String>,
    /// Application, determined from the group leader.
    pub application: Option<String>,
    /// Pid of its parent.
    pub parent: Option<String>,
    /// `running`, `runnable`, `waiting`, `garbage_collecting` …
    pub status: Option<String>,
    /// Reductions since the process started.
    pub reductions: i64,
    /// Message queue length.
    pub queue: i64,
    /// `on_heap` or `off_heap`.
    pub message_queue_data: Option<String>,
    /// On a running node: size of its heap, with old heap, stack and fragments. In a crash dump: all its memory.
    pub memory_bytes: i64,
    /// Heap and old heap, in words.
    pub total_heap_words: Option<i64>,
    /// Reference-counted binaries that its heap refers to.
    pub binary_bytes: Option<i64>,
    /// Minor collections since the last fullsweep.
    pub minor_gcs: Option<i64>,
    /// Number of minor collections after which a fullsweep is forced.
    pub fullsweep_after: Option<i64>,
    /// Its `min_heap_size`, in words.
    pub min_heap_words: Option<i64>,
    /// All its memory, `process_info(P, memory)`: heap, links, monitors, messages.
    pub total_bytes: Option<i64>,
    /// Heap fragments: messages that no garbage collection has moved into the heap yet. With `on_heap`, these include queued messages.
    pub fragment_bytes: Option<i64>,
    /// Call stack, `module:function/arity`, innermost first, at most nine; empty if it was not read.
    pub stack: Vec<String>,
    /// `max`, `high`, `normal`, `low`.
    pub priority: Option<String>,
}

/// Prefix of [`ProcessRow::initial_call`] if the initial call is unknown; the parent of the process follows.
pub const CHILD_OF: &str = "child of ";

impl ProcessRow {
    /// Name of the process for output: registered name, else label, else initial call.
    pub fn title(&self) -> Option<&str> {
        title([&self.name, &self.label, &self.initial_call])
    }
}

/// Number of stack frames that the VM returns by default (`backtrace_depth` of `erlang:system_flag/2`). If a stack is deeper, its outer
/// functions are unknown.
pub const STACK_DEPTH: usize = 8;

/// A call stack of a process that was sampled in the last ten seconds. The process is one of the busiest, which are sampled every second,
/// or a randomly sampled process that was at work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSampleRow {
    /// Time of the report, since the start of the recording.
    pub t: Nanos,
    /// `<0.123.0>`, as printed on the node itself; empty for random samples.
    pub pid: String,
    /// `module:function/arity`, innermost first, at most nine.
    pub stack: Vec<String>,
    /// Number of samples.
    #[serde(rename = "looks")]
    pub samples: i64,
    /// Busiest processes: it waited within a call (if false, it was running or runnable). Random samples: it was runnable, but not running.
    #[serde(rename = "waits")]
    pub is_waiting: bool,
    /// Random samples: registered name, else initial call.
    pub kind: Option<String>,
    /// Random samples: it was in garbage collection.
    #[serde(rename = "collects")]
    pub is_collecting: bool,
}

/// Exits of monitored processes since the last report, with the same parent, identity and reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRow {
    /// Time of the report, since the start of the recording.
    pub t: Nanos,
    /// Pid of the parent; of the last parent if several had the same name and call. `None` if unknown.
    pub parent: Option<String>,
    /// Registered name of the parent.
    pub parent_name: Option<String>,
    /// Initial call of the parent, with the callback module of a supervisor: `supervisor:shop_sup/1`.
    pub parent_call: Option<String>,
    /// Registered name of the exited processes; for normal exits only if the reason was `shutdown`, with which a supervisor terminates
    /// its children.
    pub name: Option<String>,
    /// Initial call of the exited processes; `None` for normal exits, and for processes that exited before it was read.
    pub call: Option<String>,
    /// First atom of the reason; `None` for normal exits (`normal`, `shutdown`, `{shutdown, _}`).
    pub reason: Option<String>,
    /// Location of the exception or of the failed call: `module:function/arity` and line (0: unknown), innermost first, at most three.
    pub stack: Vec<(String, i64)>,
    /// For a failed call: registered name of the called process.
    pub callee: Option<String>,
    /// Number of exits.
    pub count: i64,
    /// Heap size at which the VM kills these processes (`max_heap_size`), in words; 0 if unlimited.
    pub heap_limit_words: i64,
}

/// An ETS table, every ten seconds; the tables with the most memory are recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRow {
    /// Time since the start of the recording.
    pub t: Nanos,
    /// Name of a named table, `#Ref<…>` of an unnamed one.
    pub id: String,
    /// Name passed to `ets:new/2`.
    pub name: String,
    /// Pid of the owner.
    pub owner: String,
    /// Registered name of the owner.
    pub owner_name: Option<String>,
    /// Number of objects.
    pub objects: i64,
    /// Memory, in bytes.
    pub memory_bytes: i64,
    /// `set`, `ordered_set`, `bag`, `duplicate_bag`.
    pub kind: String,
    /// `public`, `protected`, `private`.
    pub protection: String,
    /// Other options that differ from the default: `read_concurrency`, `write_concurrency=auto`, `compressed` …
    pub options: Vec<String>,
}

impl TableRow {
    /// The owner's registered name, else its pid.
    pub fn owner_title(&self) -> &str {
        self.owner_name.as_deref().unwrap_or(&self.owner)
    }

    /// The table as subject of a finding.
    pub fn subject(&self) -> Subject {
        Subject::Table { name: self.name.clone(), owner: Some(self.owner_title().to_owned()) }
    }
}

/// A port, every ten seconds; the ports with the most traffic and the longest queues are recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRow {
    /// Time since the start of the recording.
    pub t: Nanos,
    /// `#Port<0.5>`.
    pub id: String,
    /// Driver or command: `tcp_inet`, `/usr/bin/inotifywait …`.
    pub name: String,
    /// Pid of the connected process.
    pub connected: Option<String>,
    /// Bytes read from the port since it was opened.
    pub input_bytes: i64,
    /// Bytes written to the port since it was opened.
    pub output_bytes: i64,
    /// Bytes in its driver queue.
    pub queue_bytes: i64,
    /// Operating-system pid of the external program.
    pub os_pid: Option<i64>,
}

/// Blocks of one allocator within some carriers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockSum {
    /// Allocator that the blocks belong to: `eheap_alloc`.
    pub allocator: String,
    /// Number of blocks.
    pub count: i64,
    /// Size of these blocks with headers, in bytes.
    pub bytes: i64,
}

/// Blocks of one size class, which reaches up to the next class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeCount {
    /// Minimum size, in bytes.
    pub from: i64,
    /// Number of blocks.
    pub count: i64,
}

/// Carriers with equal properties, from a scan of all carriers, which is made only on request. All rows of a scan have the same time;
/// together they cover all carriers that the VM counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarrierRow {
    /// Time of the scan, since the start of the recording.
    pub t: Nanos,
    /// Allocator that the carriers belong to: `eheap_alloc`.
    pub allocator: String,
    /// Why the carriers were not scanned; `None` if they were. `limit`: out of time. `pool`: a scan would corrupt the VM's own
    /// counts (ERTS before 15.1). `many`: too many carriers. `no_answer`: the thread that owns them did not answer in time. `refused`:
    /// the VM refused the scan. `rows`: scanned, but merged into one row because there were too many different rows.
    pub skipped: Option<String>,
    /// Whether the carriers are abandoned to the carrier pool.
    pub in_pool: bool,
    /// Whether the carriers are singleblock carriers.
    pub single: bool,
    /// Binary logarithm of the size of each carrier in bytes, rounded down; `None` if not scanned.
    pub size_log2: Option<i64>,
    /// Utilization of each carrier in tenths, rounded down, 0 to 10; `None` if not scanned.
    pub used_tenths: Option<i64>,
    /// Number of carriers.
    pub carriers: i64,
    /// Total size of the carriers, in bytes.
    pub bytes: i64,
    /// Part of this size that was not scanned, because a carrier had too many blocks. Included in `blocks`, but not in `free`.
    pub unscanned_bytes: i64,
    /// Blocks in the carriers, by owning allocator. Empty if not scanned.
    pub blocks: Vec<BlockSum>,
    /// Free blocks in the carriers, by size; sizes without blocks are omitted.
    pub free: Vec<SizeCount>,
}

/// Blocks with the same origin and type, from a scan of all tagged blocks, which is made only on request. Blocks are tagged if the option
/// `atags` of their allocator is on; by default it is on for binaries and drivers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationRow {
    /// Time of the scan, since the start of the recording; the same in all rows of a scan.
    pub t: Nanos,
    /// Origin: a driver, the library of a NIF, or `system`. In rows with `skipped`: the allocator, or empty.
    pub origin: String,
    /// Type of the blocks as named by the VM: `binary`, `heap`, `nif_internal` …
    pub kind: String,
    /// Why blocks were not scanned, as in [`CarrierRow::skipped`], or `unscanned` for blocks after the first 16,000 of a carrier. In such
    /// rows `bytes` are bytes of carriers. `rows`: the sum of further origins.
    pub skipped: Option<String>,
    /// Number of blocks.
    pub blocks: i64,
    /// Estimated bytes: each block is assumed to have the middle size of its class in `sizes`.
    pub bytes: i64,
    /// Blocks by size; sizes without blocks are omitted.
    pub sizes: Vec<SizeCount>,
}

/// Code of one application, read only on request. Sums over all applications are in [`crate::Group::Code`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeRow {
    /// Time since the start of the recording; the same in all rows of a reading.
    pub t: Nanos,
    /// The application; `erts` for preloaded modules, `None` for modules outside all loaded applications.
    pub application: Option<String>,
    /// Number of its loaded modules.
    pub modules: i64,
    /// Size of the code of these modules with literals, in bytes.
    pub bytes: i64,
    /// Size of their old code that has not been purged yet, in bytes.
    pub old_bytes: i64,
}

/// A process that refers to many binaries, read only on request. The total size of the binaries of all such processes, each counted once,
/// is [`crate::metrics::HELD_BINARIES_SIZE`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BinaryHolderRow {
    /// Time since the start of the recording; the same in all rows of a reading.
    pub t: Nanos,
    /// `<0.123.0>`, as printed on the node itself.
    pub pid: String,
    /// Registered name.
    pub name: Option<String>,
    /// Label.
    pub label: Option<String>,
    /// Initial call, `module:function/arity`.
    pub initial_call: Option<String>,
    /// Why its binaries could not be read: `gone`, `no_answer` (it hangs), `many` (it refers to millions), `limit` (out of time),
    /// `refused`. `None` if they were read. If they were not, only the heap sizes are known.
    pub skipped: Option<String>,
    /// Heap size in bytes. A small heap is collected rarely, so its references may keep binaries alive for a long time.
    pub heap_bytes: i64,
    /// Virtual binary heap in bytes, which counts references rather than binaries.
    pub binary_vheap_bytes: i64,
    /// Number of references to reference-counted binaries.
    pub references: i64,
    /// Number of different binaries that it refers to.
    pub binaries: i64,
    /// Total size of these binaries, in bytes.
    pub bytes: i64,
    /// Number of binaries that only this process refers to.
    #[serde(rename = "alone")]
    pub exclusive: i64,
    /// Total size of the binaries that only this process refers to, in bytes.
    pub alone_bytes: i64,
}

/// Garbage collections of processes, made on request. All sizes are in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedGcRow {
    /// Time since the start of the recording.
    pub t: Nanos,
    /// Which processes: `named` by the user, or a random `sample`.
    #[serde(rename = "how")]
    pub selection: String,
    /// Number of processes of the node without those of beamtune, or number of named processes.
    pub processes: i64,
    /// Number of processes chosen: the largest ones first, then a random sample in random order.
    pub chosen: i64,
    /// Number of chosen processes that were chosen for their size, or named.
    pub largest: i64,
    /// Size of the largest process that was not chosen, heap and binaries; 0 if all were chosen.
    pub rest_bytes: i64,
    /// Number of processes collected.
    pub collected: i64,
    /// Number of processes that had exited before their collection.
    pub gone: i64,
    /// Number of processes that did not answer in time.
    pub no_answer: i64,
    /// Number of processes skipped because of the size of their heap.
    pub large: i64,
    /// Why it ended: `done`, `limit` (out of time), `latency` (a process had waited too long for a scheduler), `queue` (the run queues
    /// were too long).
    pub stopped: String,
    /// Heap size of the collected processes, before.
    pub heap_before: i64,
    /// Heap size of the collected processes, after.
    pub heap_after: i64,
    /// Virtual binary heap of the collected processes, before.
    pub binary_before: i64,
    /// Virtual binary heap of the collected processes, after.
    pub binary_after: i64,
    /// Number of processes collected from the random sample.
    pub random: i64,
    /// Random sample: sum of the heap freed per process, each rounded down to whole KiB.
    pub chance_heap_kib: i64,
    /// Random sample: sum of the squares of the heap freed per process in KiB, for a confidence interval of the total over all processes.
    pub chance_heap_kib_squares: i64,
    /// Random sample: sum of the virtual binary heap freed per process, each rounded down to whole KiB.
    pub chance_binary_kib: i64,
    /// Random sample: sum of the squares of the virtual binary heap freed per process in KiB.
    pub chance_binary_kib_squares: i64,
    /// `erlang:memory(processes)` before; this and the next three are `None` if an allocator is disabled.
    pub memory_processes_before: Option<i64>,
    /// `erlang:memory(processes)` after.
    pub memory_processes_after: Option<i64>,
    /// `erlang:memory(binary)` before.
    pub memory_binary_before: Option<i64>,
    /// `erlang:memory(binary)` after.
    pub memory_binary_after: Option<i64>,
    /// Total duration of the collections, which are made one at a time.
    pub took: Nanos,
    /// Duration of the longest batch; other processes run between batches.
    pub longest: Nanos,
    /// Maximum time for which a process waited for a scheduler between batches.
    pub late: Nanos,
    /// Maximum total length of the run queues during the collections.
    pub queue: i64,
}

/// A process that shrank in a requested garbage collection; the processes that freed the most are recorded. All sizes are in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectedProcessRow {
    /// Time of its [`CollectionRow`].
    pub t: Nanos,
    /// `<0.123.0>`, as printed on the node itself.
    pub pid: String,
    /// Registered name.
    pub name: Option<String>,
    /// Label.
    pub label: Option<String>,
    /// Initial call, `module:function/arity`.
    pub initial_call: Option<String>,
    /// Heap size before.
    pub heap_before: i64,
    /// Heap size after.
    pub heap_after: i64,
    /// Virtual binary heap before.
    pub binary_before: i64,
    /// Virtual binary heap after.
    pub binary_after: i64,
    /// Duration of the collection, including the wait for a scheduler.
    pub took: Nanos,
}

impl BinaryHolderRow {
    /// Name of the process for output, see [`ProcessRow::title`].
    pub fn title(&self) -> Option<&str> {
        title([&self.name, &self.label, &self.initial_call])
    }
}

impl CollectedProcessRow {
    /// Name of the process for output, see [`ProcessRow::title`].
    pub fn title(&self) -> Option<&str> {
        title([&self.name, &self.label, &self.initial_call])
    }

    /// Bytes freed.
    pub fn freed(&self) -> i64 {
        let before = self.heap_before.saturating_add(self.binary_before);
        before.saturating_sub(self.heap_after).saturating_sub(self.binary_after)
    }
}

fn title(names: [&Option<String>; 3]) -> Option<&str> {
    names.into_iter().find_map(Option::as_deref)
}

/// Origin of new items in a bounded sample of the newest ones: parents of processes, owners of tables and ports, prefixes of atoms.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnRow {
    /// Time since the start of the recording.
    pub t: Nanos,
    /// Kind of items: `process`, `ets`, `port` or `atom`. `given`: processes started with large arguments. `timer`: timers of a crash
    /// dump, with the receiver as `kind`. For other nodes: [`SpawnRow::ATTEMPT`], [`SpawnRow::ATTEMPT_STEP`] or
    /// [`SpawnRow::UNCONNECTED`]. For growing tables: [`SpawnRow::TABLE_MODULE`] or [`SpawnRow::TABLE_APPLICATION`].
    pub what: String,
    /// Initial call, table name, port name, common prefix of several atoms, name of the other node, or table id.
    pub kind: String,
    /// Registered name or initial call of the parent or owner. For connection attempts: their step. For a table: module or application.
    #[serde(rename = "maker")]
    pub creator: Option<String>,
    /// Number of occurrences in the sample.
    pub count: i64,
    /// Size of the sample.
    #[serde(rename = "of")]
    pub sample_size: i64,
    /// `given`: total size of the arguments in bytes.
    pub bytes: Option<i64>,
}

impl SpawnRow {
    /// Attempts to connect to a node, by caller.
    pub const ATTEMPT: &'static str = "attempt";
    /// Attempts to connect to a node, by progress: `resolve`, `epmd`, `connect`, `tls` or `handshake`.
    pub const ATTEMPT_STEP: &'static str = "attempt_step";
    /// A known node that is not connected.
    pub const UNCONNECTED: &'static str = "unconnected";

    /// Module that created a growing table, derived from the table's name or owner; `maker` is `None` if unknown.
    pub const TABLE_MODULE: &'static str = "table_module";
    /// Loaded application of this module.
    pub const TABLE_APPLICATION: &'static str = "table_application";

    /// Whether `kind` is a table.
    pub fn is_of_table(&self) -> bool {
        [Self::TABLE_MODULE, Self::TABLE_APPLICATION].contains(&&*self.what)
    }

    /// Whether `kind` is a node.
    pub fn is_of_node(&self) -> bool {
        [Self::ATTEMPT, Self::ATTEMPT_STEP, Self::UNCONNECTED].contains(&&*self.what)
    }
}
