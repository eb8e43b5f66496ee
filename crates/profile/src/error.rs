//! Errors that occur when a VM's threads are watched from outside. Most concern permissions, the kernel, or how the VM was built; each
//! message says what to do instead.

use std::io;

use beamtune_host::HostError;

/// Advice for users who have no memory or files left for ring buffers.
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
        /// Why it is not supported.
        why: String,
    },
    /// The program is not among the process's mapped files.
    #[error("the program of process {pid} is not among its mapped files")]
    NoProgram {
        /// Process id.
        pid: u32,
    },
    /// The VM's file lacks the symbols of the functions to watch.
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
    /// The kernel does not permit a perf event.
    #[error(
        "not allowed to watch threads with {what} (kernel.perf_event_paranoid is {}): run beamtune as root, or give it CAP_PERFMON and \
         CAP_SYS_PTRACE",
        paranoid.map_or_else(|| "unknown".to_owned(), |level| level.to_string())
    )]
    Denied {
        /// What was refused: `uprobes`, `the CPU clock` …
        what: &'static str,
        /// `kernel.perf_event_paranoid`; `None` if it cannot be read.
        paranoid: Option<i64>,
    },
    /// The process belongs to another user, and beamtune may not read a file of it.
    #[error("not allowed to read {path}: run beamtune as root, or give it CAP_SYS_PTRACE and CAP_PERFMON")]
    Closed {
        /// The file.
        path: String,
    },
    /// The limit on locked memory or open files is reached.
    #[error("cannot watch threads with {what}: out of locked memory or open files ({source}); {ROOM_ADVICE}")]
    NoRoom {
        /// The event that was opened.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// All threads have ended, or none of them could be watched.
    #[error("process {pid} has ended, or none of its threads could be watched")]
    NoThreads {
        /// Process id.
        pid: u32,
    },
    /// An event could not be opened for any other reason.
    #[error("cannot watch threads with {what}: {source}")]
    Open {
        /// The event that was opened.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

impl ProfileError {
    /// Whether more privileges would help.
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
