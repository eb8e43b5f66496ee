//! The typed parts of a finding: what it is about, what it claims of the node, how sure it is, and what else other rules need to know of it.
//!
//! Findings are related by these, never by their text.

use serde::Serialize;

use crate::account::Use;
use crate::units::text_names;

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Subject {
    /// One process.
    Process {
        /// `<0.99.0>`.
        pid: String,
        /// Registered name, label or initial call; `None` where only the pid is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// Processes of one kind.
    ProcessKind {
        /// What they were started with, or what several that wait are called.
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
        /// Its name; empty where it is any table.
        name: String,
        /// Owner or creator.
        #[serde(skip_serializing_if = "Option::is_none")]
        owner: Option<String>,
    },
    /// Ports or descriptors of a kind.
    Port {
        /// The driver, or what the descriptors are: `tcp_inet`, `sockets`.
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
        /// The table, process or allocator that it guards, or its class.
        name: String,
    },
    /// A flag or setting.
    Flag {
        /// As it is written: `+S`.
        name: String,
    },
    /// A limit of the VM, the host or a product.
    Limit {
        /// Which.
        name: Limit,
    },
    /// A function.
    Function {
        /// `module:function/arity`; of all functions of a module its name.
        name: String,
    },
    /// Another node.
    Node {
        /// Its name.
        name: String,
    },
    /// Threads of the VM.
    Threads {
        /// Which: `dirty CPU schedulers`.
        name: String,
    },
    /// The VM itself: its build, or its version.
    Emulator {
        /// Which build or version.
        name: String,
    },
    /// The host below the VM.
    Host {
        /// What of it.
        part: HostPart,
    },
    /// A queue of a message broker.
    Queue {
        /// Its name, with its virtual host unless that is `/`.
        name: String,
    },
    /// A client of a message broker.
    Client {
        /// What it calls itself, or its address.
        name: String,
        /// The user that it has logged in as.
        #[serde(skip_serializing_if = "Option::is_none")]
        user: Option<String>,
    },
    /// A process of the operating system.
    OsProcess {
        /// Its program.
        name: String,
        /// Its id, where it is one.
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
    /// Its clock.
    Clock,
    /// Its type, as of a cloud's instance.
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
    /// A process by its title, as `ProcessUse::title` writes it: `name (<0.99.0>)`, or the pid alone.
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

    /// Whether both are the same thing. A process is known by its pid, whatever it is called.
    pub fn is_same(&self, other: &Subject) -> bool {
        match (self.pid(), other.pid()) {
            (Some(one), Some(other)) => one == other,
            _ => self == other,
        }
    }

    /// All names by which somebody may know it: name, pid, owner.
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

/// As a person calls it.
impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Subject::Process { pid, name: Some(name) } | Subject::Supervisor { pid, name } => {
                write!(f, "{name} ({pid})")
            }
            Subject::Process { pid, name: None } => f.write_str(pid),
            Subject::ProcessKind { name, starter: Some(maker) }
            | Subject::Port { name, opener: Some(maker) } => {
                write!(f, "{name} made by {maker}")
            }
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
    /// It follows from the numbers if something usual holds.
    Inferred,
    /// The numbers have another explanation that is as likely.
    Guess,
}

text_names!(Confidence { Measured => "measured", Inferred => "inferred", Guess => "guess" });

/// One thing of a node that can be used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Account {
    /// CPU that the node used.
    CpuUsed,
    /// CPU that it could have used and did not.
    CpuUnused,
    /// Resident memory.
    Memory,
    /// What callers wait for.
    Delay,
    /// Room until a limit.
    HeadRoom,
}

text_names!(Account {
    CpuUsed => "cpu_used",
    CpuUnused => "cpu_unused",
    Memory => "memory",
    Delay => "delay",
    HeadRoom => "head_room",
});

/// What a finding costs, estimated from the recording: at most what fixing it would gain.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
pub enum Cost {
    /// CPU time that goes into it, or that it keeps from others, in cores.
    CpuCores(f64),
    /// Memory that it holds, in bytes.
    MemoryBytes(f64),
    /// How long a caller is delayed each time, in seconds: the longest that was seen, or the mean where only that is known.
    DelaySeconds(f64),
    /// How many processes, messages, jobs or clients wait for it at a time, on average.
    Waiting(f64),
    /// Time until there is no more of something, in seconds; 0 where nothing is left.
    EndSeconds(f64),
}

impl Cost {
    /// As a number of its own unit.
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

/// What a finding claims of an account.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Claim {
    /// Which account.
    pub account: Account,
    /// Which part of the CPU's account, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<Use>,
    /// How much, in its unit.
    #[serde(flatten)]
    pub cost: Cost,
    /// The same as a share of the account, 0–1: of the CPU and the memory that the node may use, of what waits, of a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// What other findings explain of it, in its unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explained: Option<f64>,
}

/// A fact of a finding that other rules use.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "signal", content = "of", rename_all = "snake_case")]
pub enum Signal {
    /// Most of the CPU that is not used is so for this reason.
    Unused(Use),
    /// Processes may go on one at a time because of this.
    TurnsFor(Subject),
    /// It waits for this itself.
    WaitsFor(Subject),
    /// These crash because of it.
    Crashes(Subject),
    /// It keeps this process busy.
    Drives(Subject),
    /// It is part of what this process does, or its answers.
    WorkOf(Subject),
    /// Most of what the node does is because of it.
    DrivesMost,
    /// This is what grows.
    Grows(MemoryKind),
    /// Callers have given up and left their requests behind.
    GaveUp,
    /// What is logged is that processes end.
    LogsEnds,
    /// Binaries that stay, however often they are collected.
    BinariesStay,
    /// It is the size of a heap, which does not depend on the host.
    HeapSize,
    /// It may be the host's doing.
    MayBeHost,
    /// Most of it is garbage collection.
    Collects,
    /// Most of the memory that is collected, or mapped, is allocated there.
    Allocates,
    /// These run it.
    RunBy(Subject),
    /// One of several processes of a kind that it is about, or a table that the process uses for it.
    Member(Subject),
    /// Where its process waits, or each of them, and of what kind that is.
    StandsAt {
        /// What it was started with, or what names of such processes have in common.
        kind: String,
        /// The function in which it waits, with the program's own function that has called it.
        place: String,
    },
    /// Those that run it never wait.
    NeverWaits,
    /// It says where CPU time goes, and not that this is too much: it may be the node's own work.
    WhereOnly,
    /// The VM's own threads have the CPU.
    OwnThreads,
    /// It goes through all that it has for each message.
    ScansOwnState,
    /// The VM lacks CPU for it.
    ShortOfCpu,
    /// It has priority low, and waits for its turn.
    LowPriority,
    /// More comes than ends.
    Backlog,
    /// The CPU credits of the instance are spent.
    CreditsSpent,
    /// The limit is reached: nothing more of it can be opened or started.
    Exhausted,
    /// The quota suffices for what is used on average.
    QuotaSuffices,
    /// The newest mostly begin like this.
    NamedLike(String),
}

impl Signal {
    /// Names that it gives: of a subject, or how something begins.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Signal::NamedLike(begin) => vec![begin],
            other => other.subject().map(Subject::names).unwrap_or_default(),
        }
    }

    /// The subject that it names, if it names one.
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
    /// Beyond what the VM counts.
    Outside,
}

text_names!(MemoryKind {
    Processes => "processes",
    Binary => "binary",
    Ets => "ets",
    Code => "code",
    Outside => "outside",
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_pid_whatever_it_is_called() {
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
