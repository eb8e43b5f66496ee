//! Errors of watching a VM's threads from outside. Most are about rights, the kernel, or how the VM was built; each message says what to do
//! instead.

use std::io;

use beamtune_host::HostError;

/// How to get more ring buffers.
pub(crate) const ROOM_ADVICE: &str = "run beamtune as root, give it CAP_IPC_LOCK, or raise kernel.perf_event_mlock_kb and the limit of open files";

/// Why threads cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// A file of the process or of the kernel could not be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A mapped file is not a supported ELF file.
    #[error("cannot read the program or library {path}: expected a 64-bit ELF file, {why}")]
    NotElf {
        /// The file, as the process has it mapped.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The program is not among the process's mapped files.
    #[error("the program of process {pid} is not among its mapped files")]
    NoProgram {
        /// The process.
        pid: u32,
    },
    /// The VM's file has no symbols of the functions to watch.
    #[error(
        "{path} is a stripped or static VM without the symbols {}, which distributions omit since OTP 29: install its debug symbols \
         (Debian: erlang-base-dbgsym), or run a VM that was built from source and not stripped",
        missing.join(", ")
    )]
    NoSymbols {
        /// The VM's file.
        path: String,
        /// The missing functions.
        missing: Vec<String>,
    },
    /// The kernel was built without uprobes, or does not show them.
    #[error(
        "this kernel has no uprobes (no {path}): they need CONFIG_UPROBE_EVENTS, Linux 4.17 or later, and /sys"
    )]
    NoUprobes {
        /// The file that gives the type of uprobe events.
        path: String,
    },
    /// The kernel does not permit an event.
    #[error(
        "not allowed to watch threads by {what} (kernel.perf_event_paranoid is {}): run beamtune as root, or give it CAP_PERFMON and \
         CAP_SYS_PTRACE",
        paranoid.map_or_else(|| "unknown".to_owned(), |level| level.to_string())
    )]
    Denied {
        /// What was refused: `uprobes`, `the CPU's clock` …
        what: &'static str,
        /// `kernel.perf_event_paranoid`; `None` if it cannot be read.
        paranoid: Option<i64>,
    },
    /// A file of the process may not be read, since the process belongs to another user.
    #[error("not allowed to read {path}: run beamtune as root, or give it CAP_SYS_PTRACE and CAP_PERFMON")]
    Closed {
        /// The file.
        path: String,
    },
    /// Out of locked memory or open files.
    #[error("no memory or files left to watch threads by {what} ({source}): {ROOM_ADVICE}")]
    NoRoom {
        /// The event that was opened.
        what: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
    /// None of the threads exists any more.
    #[error("process {pid} has ended, or none of its threads could be watched")]
    NoThreads {
        /// The process.
        pid: u32,
    },
    /// Any other error of opening an event.
    #[error("cannot watch threads by {what}: {source}")]
    Open {
        /// The event that was opened.
        what: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
}

impl ProfileError {
    /// Whether more rights would help.
    pub fn is_denied(&self) -> bool {
        matches!(
            self,
            ProfileError::Denied { .. }
                | ProfileError::Closed { .. }
                | ProfileError::NoRoom { .. }
                | ProfileError::Host(HostError::Denied { .. } | HostError::DeniedRemotely { .. })
        )
    }
}
