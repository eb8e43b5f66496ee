//! The typed parts of a finding: its subject, its claim, its confidence, and signals for other rules.
//!
//! Rules relate findings by these parts, never by their text.

use serde::{Deserialize, Serialize};

use crate::account::CpuUse;
use crate::units::text_names;

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Subject {
    /// One process.
    Process {
        /// `<0.99.0>`.
        pid: String,
        /// Registered name, label or initial call; `None` if only the pid is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// Processes of one kind.
    ProcessKind {
        /// Initial call, or the common name of several waiting processes.
        name: String,
        /// What starts them.
        #[serde(skip_serializing_if = "Option::is_none")]
        starter: Option<String>,
    },
    /// A supervisor.
    Supervisor {
        /// `<0.99.0>`.
        pid: String,
        /// Its name.
        name: String,
    },
    /// One ETS table, or several of one name; `persistent_term` for persistent terms.
    Table {
        /// Its name; empty if no particular table is meant.
        name: String,
        /// Owner or creator.
        #[serde(skip_serializing_if = "Option::is_none")]
        owner: Option<String>,
    },
    /// Ports or descriptors of a kind.
    Port {
        /// The driver, or the kind of descriptor: `tcp_inet`, `sockets`.
        name: String,
        /// What opens them.
        #[serde(skip_serializing_if = "Option::is_none")]
        opener: Option<String>,
    },
    /// A listening socket.
    Socket {
        /// `0.0.0.0:8080`.
        address: String,
    },
    /// An allocator, by the VM's name: `binary_alloc`, `mseg_alloc`, `erts_mmap`; `malloc` for memory outside.
    Allocator {
        /// Its name.
        name: String,
    },
    /// A lock or an operation that takes one.
    Lock {
        /// The table, process or allocator that the lock protects, or the lock class.
        name: String,
    },
    /// A flag or setting.
    Flag {
        /// The flag as it is spelled: `+S`.
        name: String,
    },
    /// A limit of the VM, the host or a product.
    Limit {
        /// The limit.
        name: Limit,
    },
    /// A function.
    Function {
        /// `module:function/arity`; only the module if all its functions are meant.
        name: String,
    },
    /// Another node.
    Node {
        /// Its name.
        name: String,
    },
    /// Threads of the VM.
    Threads {
        /// Kind of threads: `dirty CPU schedulers`.
        name: String,
    },
    /// The VM itself: its build, or its version.
    Emulator {
        /// The build or the version.
        name: String,
    },
    /// The host below the VM.
    Host {
        /// Part of the host.
        part: HostPart,
    },
    /// A queue of a message broker.
    Queue {
        /// Its name, with its virtual host unless that is `/`.
        name: String,
    },
    /// A client of a message broker.
    Client {
        /// The name that the client reports, or its address.
        name: String,
        /// The user name of its login.
        #[serde(skip_serializing_if = "Option::is_none")]
        user: Option<String>,
    },
    /// A process of the operating system.
    OsProcess {
        /// Name of its program.
        name: String,
        /// Process id; `None` for several processes.
        #[serde(skip_serializing_if = "Option::is_none")]
        pid: Option<u32>,
    },
}

/// Limits that findings are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// `+P`.
    Processes,
    /// `+Q`.
    Ports,
    /// `+t`.
    Atoms,
    /// The table of ETS tables.
    EtsTables,
    /// The CPU quota of the control group.
    CpuQuota,
    /// The memory limit of the control group.
    ControlGroupMemory,
    /// A product's own memory limit.
    MemoryWatermark,
}

text_names!(Limit {
    Processes => "processes",
    Ports => "ports",
    Atoms => "atoms",
    EtsTables => "ets tables",
    CpuQuota => "quota",
    ControlGroupMemory => "control group",
    MemoryWatermark => "memory watermark",
});

/// Parts of a host that findings are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HostPart {
    /// Other processes that use the CPUs.
    Neighbours,
    /// Programs that the VM has started.
    Programs,
    /// CPU time that the hypervisor gives to other guests.
    Steal,
    /// Memory of the whole host.
    Memory,
    /// The clock of the host.
    Clock,
    /// The type of the machine, such as a cloud instance type.
    Type,
}

text_names!(HostPart {
    Neighbours => "neighbours",
    Programs => "programs",
    Steal => "steal",
    Memory => "host",
    Clock => "clock",
    Type => "instance type",
});

impl Subject {
    /// Parses the title of a process as written by `ProcessUse::title`: `name (<0.99.0>)`, or only the pid.
    pub fn process(title: &str) -> Subject {
        let named = title.strip_suffix(')').and_then(|title| title.rsplit_once(" ("));
        match named.filter(|(_, pid)| pid.starts_with('<') && pid.ends_with('>')) {
            Some((name, pid)) => Subject::Process { pid: pid.to_owned(), name: Some(name.to_owned()) },
            None => Subject::Process { pid: title.to_owned(), name: None },
        }
    }

    /// Processes of one kind.
    pub fn kind(started_with: impl Into<String>) -> Subject {
        Subject::ProcessKind { name: started_with.into(), starter: None }
    }

    /// A table.
    pub fn table(name: impl Into<String>) -> Subject {
        Subject::Table { name: name.into(), owner: None }
    }

    /// An allocator.
    pub fn allocator(name: impl Into<String>) -> Subject {
        Subject::Allocator { name: name.into() }
    }

    /// A limit.
    pub fn limit(name: Limit) -> Subject {
        Subject::Limit { name }
    }

    /// Part of the host.
    pub fn host(part: HostPart) -> Subject {
        Subject::Host { part }
    }

    /// The name of its kind, as in JSON.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Subject::Process { .. } => "process",
            Subject::ProcessKind { .. } => "process_kind",
            Subject::Supervisor { .. } => "supervisor",
            Subject::Table { .. } => "table",
            Subject::Port { .. } => "port",
            Subject::Socket { .. } => "socket",
            Subject::Allocator { .. } => "allocator",
            Subject::Lock { .. } => "lock",
            Subject::Flag { .. } => "flag",
            Subject::Limit { .. } => "limit",
            Subject::Function { .. } => "function",
            Subject::Node { .. } => "node",
            Subject::Threads { .. } => "threads",
            Subject::Emulator { .. } => "emulator",
            Subject::Host { .. } => "host",
            Subject::Queue { .. } => "queue",
            Subject::Client { .. } => "client",
            Subject::OsProcess { .. } => "os_process",
        }
    }

    /// The pid, if it is one process.
    pub fn pid(&self) -> Option<&str> {
        match self {
            Subject::Process { pid, .. } | Subject::Supervisor { pid, .. } => Some(pid),
            _ => None,
        }
    }

    /// Whether both subjects are the same thing. Processes are compared by pid, whatever their names.
    pub fn is_same(&self, other: &Subject) -> bool {
        match (self.pid(), other.pid()) {
            (Some(one), Some(other)) => one == other,
            _ => self == other,
        }
    }

    /// All names that may identify the subject: name, pid, owner.
    pub fn names(&self) -> Vec<&str> {
        let (first, second): (&str, Option<&str>) = match self {
            Subject::Process { pid, name } => (pid, name.as_deref()),
            Subject::Supervisor { pid, name } => (pid, Some(name)),
            Subject::ProcessKind { name, starter } => (name, starter.as_deref()),
            Subject::Table { name, owner } => (name, owner.as_deref()),
            Subject::Port { name, opener } => (name, opener.as_deref()),
            Subject::Client { name, user } => (name, user.as_deref()),
            Subject::Socket { address } => (address, None),
            Subject::Allocator { name }
            | Subject::Lock { name }
            | Subject::Flag { name }
            | Subject::Function { name }
            | Subject::Node { name }
            | Subject::Threads { name }
            | Subject::Emulator { name }
            | Subject::Queue { name }
            | Subject::OsProcess { name, .. } => (name, None),
            Subject::Limit { name } => (name.text(), None),
            Subject::Host { part } => (part.text(), None),
        };
        std::iter::once(first).chain(second).collect()
    }
}

/// Writes the subject for people: `name (pid)`, `table of owner`.
impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Subject::Process { pid, name: Some(name) } | Subject::Supervisor { pid, name } => {
                write!(f, "{name} ({pid})")
            }
            Subject::Process { pid, name: None } => f.write_str(pid),
            Subject::ProcessKind { name, starter: Some(starter) } => write!(f, "{name} started by {starter}"),
            Subject::Port { name, opener: Some(opener) } => write!(f, "{name} opened by {opener}"),
            Subject::Client { name, user: Some(user) } => write!(f, "{name} (user {user})"),
            Subject::Table { name, owner: Some(owner) } => write!(f, "{name} of {owner}"),
            other => f.write_str(other.names().first().copied().unwrap_or_default()),
        }
    }
}

/// The confidence of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// The numbers show it.
    Measured,
    /// It follows from the numbers under an assumption that is usually true.
    Inferred,
    /// Another explanation of the numbers is equally likely.
    Guess,
}

text_names!(Confidence { Measured => "measured", Inferred => "inferred", Guess => "guess" });

/// A resource of the node; findings claim parts of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Account {
    /// CPU that the node used.
    CpuUsed,
    /// CPU that the node could have used, but did not.
    CpuUnused,
    /// Resident memory.
    Memory,
    /// Time that callers spend waiting.
    Delay,
    /// Room up to a limit.
    HeadRoom,
}

text_names!(Account {
    CpuUsed => "cpu_used",
    CpuUnused => "cpu_unused",
    Memory => "memory",
    Delay => "delay",
    HeadRoom => "head_room",
});

/// The cost of a finding, estimated from the recording: an upper bound of what a fix would gain.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
pub enum Cost {
    /// CPU time that the problem uses or takes away from others, in cores.
    CpuCores(f64),
    /// Memory that the problem occupies, in bytes.
    MemoryBytes(f64),
    /// Delay of a caller per call, in seconds: the longest delay observed, or the mean if only the mean is known.
    DelaySeconds(f64),
    /// Mean number of processes, messages, jobs or clients that wait.
    Waiting(f64),
    /// Time until a resource is exhausted, in seconds; 0 if it is exhausted now.
    EndSeconds(f64),
}

impl Cost {
    /// The number, in the unit of its variant.
    pub fn value(self) -> f64 {
        match self {
            Cost::CpuCores(value)
            | Cost::MemoryBytes(value)
            | Cost::DelaySeconds(value)
            | Cost::Waiting(value)
            | Cost::EndSeconds(value) => value,
        }
    }
}

/// The part of an account that a finding claims.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Claim {
    /// The account.
    pub account: Account,
    /// The share of the CPU account, if the claim concerns a single one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<CpuUse>,
    /// Size of the claim, with its unit.
    #[serde(flatten)]
    pub cost: Cost,
    /// Size as a share of the account, 0–1. The whole is the CPU or memory that the node may use, everything that waits, or a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Part of the size that other findings explain, in the same unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explained: Option<f64>,
}

/// A fact about a finding that other rules use. "It" is what the finding reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "signal", content = "of", rename_all = "snake_case")]
pub enum Signal {
    /// Most of the unused CPU is unused for this reason.
    Unused(CpuUse),
    /// Processes may take turns because of this subject.
    TurnsFor(Subject),
    /// The finding's subject itself waits for this one.
    WaitsFor(Subject),
    /// These processes crash because of it.
    Crashes(Subject),
    /// It keeps this process busy.
    Drives(Subject),
    /// It is part of the work of this process, or consists of its replies.
    WorkOf(Subject),
    /// It causes most of the work of the node.
    DrivesMost,
    /// The kind of memory that grows.
    Grows(MemoryKind),
    /// Callers have timed out, and their requests are still queued.
    GaveUp,
    /// The log messages report process exits.
    LogsEnds,
    /// The cause is the size of a heap, which does not depend on the host.
    HeapSize,
    /// The host may be the cause.
    MayBeHost,
    /// Most of it is garbage collection.
    Collects,
    /// It allocates most of the memory that the VM garbage-collects or maps.
    Allocates,
    /// Processes of this kind execute it.
    RunBy(Subject),
    /// One of several processes that the finding is about, or a table that the process uses for it.
    Member(Subject),
    /// The kind of the finding's processes, and the function in which each of them waits.
    #[serde(rename = "stands_at")]
    WaitsIn {
        /// Initial call, or the common part of the processes' names.
        kind: String,
        /// The function in which they wait, with the function of the application that called it.
        place: String,
    },
    /// The processes that execute it never wait.
    NeverWaits,
    /// The finding only attributes CPU time to code. This need not be a problem: it may be the node's normal work.
    WhereOnly,
    /// The VM's own threads use the CPU.
    OwnThreads,
    /// The process scans all its state for each message.
    ScansOwnState,
    /// The cause is a lack of CPU.
    ShortOfCpu,
    /// The process has priority `low` and waits for a scheduler.
    LowPriority,
    /// More requests arrive than are completed.
    Backlog,
    /// The CPU credits of the instance are spent.
    CreditsSpent,
    /// The limit is reached: nothing more can be opened or started.
    Exhausted,
    /// The quota is sufficient for the mean CPU use.
    QuotaSuffices,
    /// Most of the newest names begin with this text.
    NamedLike(String),
    /// Most CPU time in the kernel is for this.
    Kernel(KernelWork),
}

impl Signal {
    /// The names that the signal contains: those of a subject, or a prefix.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Signal::NamedLike(begin) => vec![begin],
            other => other.subject().map(Subject::names).unwrap_or_default(),
        }
    }

    /// The subject that the signal contains, if any.
    pub fn subject(&self) -> Option<&Subject> {
        match self {
            Signal::TurnsFor(subject)
            | Signal::WaitsFor(subject)
            | Signal::Crashes(subject)
            | Signal::Drives(subject)
            | Signal::WorkOf(subject)
            | Signal::RunBy(subject)
            | Signal::Member(subject) => Some(subject),
            _ => None,
        }
    }
}

/// Kinds of memory that grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// Heaps, stacks and queues of processes.
    Processes,
    /// Binaries.
    Binary,
    /// ETS tables.
    Ets,
    /// Loaded code.
    Code,
    /// Memory that the VM does not count.
    Outside,
}

text_names!(MemoryKind {
    Processes => "processes",
    Binary => "binary",
    Ets => "ets",
    Code => "code",
    Outside => "outside",
});

/// What the kernel does for a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelWork {
    /// Waits for sockets and files to be ready.
    Polling,
    /// Sends data to sockets and pipes.
    Output,
    /// Receives data from sockets and pipes.
    Input,
    /// Opens, reads, writes and lists files.
    Files,
    /// Opens and closes connections.
    Connections,
    /// Puts threads to sleep and wakes them up.
    ThreadWaits,
    /// Maps, clears and returns memory.
    Memory,
    /// Reads the clock.
    Clock,
    /// Starts programs.
    Programs,
}

text_names!(KernelWork {
    Polling => "polling",
    Output => "output",
    Input => "input",
    Files => "files",
    Connections => "connections",
    ThreadWaits => "thread_waits",
    Memory => "memory",
    Clock => "clock",
    Programs => "programs",
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_compared_by_pid() {
        let check = |title: &str, pid: &str, name: Option<&str>| {
            let expect = Subject::Process { pid: pid.to_owned(), name: name.map(str::to_owned) };
            assert_eq!(Subject::process(title), expect);
            assert_eq!(expect.to_string(), title);
        };
        check("router (<0.99.0>)", "<0.99.0>", Some("router"));
        check("child of sup:init/1 (<0.9.0>)", "<0.9.0>", Some("child of sup:init/1"));
        check("<0.99.0>", "<0.99.0>", None);
        check("odd (name)", "odd (name)", None);
        assert!(Subject::process("a (<0.9.0>)").is_same(&Subject::process("<0.9.0>")));
        assert!(!Subject::process("a (<0.9.0>)").is_same(&Subject::process("a (<0.8.0>)")));
        assert!(!Subject::table("a").is_same(&Subject::allocator("a")));
    }
}
