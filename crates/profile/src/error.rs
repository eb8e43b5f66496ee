//! What can go wrong when threads of a VM are watched from outside. Most of it is a matter of rights, of the kernel, or of how the
//! VM was built, and each has something that can be done instead.

use std::io;

use beamtune_host::HostError;

/// What makes room for more rings.
pub(crate) const ROOM: &str = "run beamtune as root, give it CAP_IPC_LOCK, or raise kernel.perf_event_mlock_kb and the limit of open files";

/// Why something could not be watched.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// A file of the process or of the kernel could not be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A mapped file is not of the kind that is read.
    #[error("{path} is no program or library that beamtune can read: expected a 64-bit ELF file, {why}")]
    NotElf {
        /// The file, as the process has it mapped.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The process has no program mapped that could be read.
    #[error("the program of process {pid} is not among what it has mapped")]
    NoProgram {
        /// The process.
        pid: u32,
    },
    /// The VM does not tell where its functions are.
    #[error(
        "{path} is a stripped or static VM without the symbols {}, as those of distributions are since OTP 29: install its debug symbols \
         (Debian: erlang-base-dbgsym), or run one that was built from source and not stripped",
        missing.join(", ")
    )]
    NoSymbols {
        /// The VM's file.
        path: String,
        /// The functions that are not in it.
        missing: Vec<String>,
    },
    /// The kernel was built without uprobes, or hides them.
    #[error(
        "this kernel has no uprobes (there is no {path}): it needs CONFIG_UPROBE_EVENTS, Linux 4.17 or later, and /sys"
    )]
    NoUprobes {
        /// The file that would say how to have them.
        path: String,
    },
    /// The kernel does not let us.
    #[error(
        "not allowed to watch threads by {what} (kernel.perf_event_paranoid is {}): run beamtune as root, or give it CAP_PERFMON and \
         CAP_SYS_PTRACE",
        paranoid.map_or_else(|| "unknown".to_owned(), |level| level.to_string())
    )]
    Denied {
        /// What was refused: `uprobes`, `the CPU's clock` …
        what: &'static str,
        /// The kernel's setting; `None` where it cannot be read.
        paranoid: Option<i64>,
    },
    /// What the process has mapped belongs to another user.
    #[error("not allowed to read {path}: run beamtune as root, or give it CAP_SYS_PTRACE and CAP_PERFMON")]
    Closed {
        /// The file.
        path: String,
    },
    /// There is too little memory or there are too few files for us.
    #[error("there is no room to watch threads by {what} ({source}): {ROOM}")]
    NoRoom {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// There is none of the threads any more.
    #[error("process {pid} has ended, or none of its threads could be watched")]
    NoThreads {
        /// The process.
        pid: u32,
    },
    /// Anything else that the kernel said to the opening of an event.
    #[error("cannot watch threads by {what}: {source}")]
    Open {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl ProfileError {
    /// True where other rights would help.
    pub fn is_denied(&self) -> bool {
        matches!(
            self,
            ProfileError::Denied { .. }
                | ProfileError::Closed { .. }
                | ProfileError::NoRoom { .. }
                | ProfileError::Host(HostError::Denied { .. } | HostError::DeniedThere { .. })
        )
    }
}
