//! Errors from reading operating system data. All of them are expected: processes end between two reads, files belong to other
//! users, kernels differ.

use std::io;

use beamtune_model::TroubleKind;

use crate::text::Garble;

/// Why something could not be read from the operating system.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The file does not exist: the process has ended, or the kernel lacks the feature.
    #[error("{path} does not exist")]
    Missing {
        /// The file or folder.
        path: String,
    },
    /// The file belongs to another user.
    #[error("not allowed to read {path}: run beamtune as {}", readers(owner.as_deref()))]
    Denied {
        /// The file or folder.
        path: String,
        /// The name of the process's user, if known.
        owner: Option<String>,
    },
    /// A process is in a control group whose files are not visible.
    #[error(
        "the files of control group {path} are not visible from here: run beamtune where /sys/fs/cgroup is mounted"
    )]
    HiddenGroup {
        /// The group.
        path: String,
    },
    /// The file exists, but the kernel does not provide its content.
    #[error("this kernel does not provide {path}")]
    Unsupported {
        /// The file or folder.
        path: String,
    },
    /// There is more content than expected; reading all of it could be too expensive.
    #[error("{path} is larger than expected: more than {max}")]
    TooLarge {
        /// The file or folder.
        path: String,
        /// The limit: bytes of a file, entries of a folder.
        max: usize,
    },
    /// The content cannot be parsed.
    #[error("cannot parse {path}: expected {expected}, found {actual:?}")]
    Garbled {
        /// The file.
        path: String,
        /// What was expected.
        expected: &'static str,
        /// The beginning of the content.
        actual: String,
    },
    /// The process is not an Erlang VM.
    #[error("process {pid} ({runs:?}) is not an Erlang VM: list the VMs with `beamtune nodes`")]
    NotAVm {
        /// The process.
        pid: u32,
        /// Its short name.
        runs: String,
    },
    /// The process does not exist any more, or is ending.
    #[error("process {pid} has ended")]
    Ended {
        /// The process.
        pid: u32,
    },
    /// The process id now belongs to a different process.
    #[error("process {pid} has ended; its id was given to another process")]
    Replaced {
        /// The process.
        pid: u32,
    },
    /// On another host: the VM's user is not allowed to read the file.
    #[error("the node is not allowed to read {path} on its host")]
    DeniedRemotely {
        /// The file or folder.
        path: String,
    },
    /// On another host: the read does not return.
    #[error("reading {path} hangs on the node's host")]
    Hangs {
        /// The file or folder.
        path: String,
    },
    /// On another host: the agent's time limit was reached.
    #[error("no time left to read {path} on the node's host")]
    Late {
        /// The file or folder.
        path: String,
    },
    /// The file was not read for this sample.
    #[error(
        "{path} was not read for this sample: reading all files every time would be too expensive for the node"
    )]
    Skipped {
        /// The file or folder.
        path: String,
    },
    /// Reading the file takes longer than allowed.
    #[error("reading {path} was stopped after {after_ms} ms: it takes longer than allowed")]
    OverBudget {
        /// The file or folder.
        path: String,
        /// Time after which reading was stopped, in milliseconds.
        after_ms: i64,
    },
    /// The memory of a process contains no recognizable allocators of a VM.
    #[error(
        "no allocators found in the memory of process {pid}: beamtune does not know this build of the VM"
    )]
    NoAllocators {
        /// The process.
        pid: u32,
    },
    /// The page size of another host cannot be calculated from the VM's memory in pages and in bytes.
    #[error(
        "cannot determine the page size of the node's host: /proc/self/stat and /proc/self/status disagree on its memory"
    )]
    UnknownPageSize,
    /// The process has ended, and several processes may be its successor.
    #[error(
        "process {pid} has ended, and any of {} may be its successor: name one by its process id",
        pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
    )]
    SeveralSuccessors {
        /// The process.
        pid: u32,
        /// The candidates.
        pids: Vec<u32>,
    },
    /// Any other error.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file or folder.
        path: String,
        /// The error of the kernel.
        source: io::Error,
    },
}

/// Returns the users that may read the files of a process.
fn readers(owner: Option<&str>) -> String {
    match owner {
        Some("root") => "root".to_owned(),
        Some(user) => format!("root or as user {user}"),
        None => "root or as the process's user".to_owned(),
    }
}

impl HostError {
    /// Converts an I/O error; errors that the kernel is expected to return have their own variants.
    pub(crate) fn from_io(path: &str, source: io::Error) -> Self {
        let path = path.to_owned();
        // ESRCH: /proc/PID was opened, but the process has ended since then.
        const ESRCH: i32 = rustix::io::Errno::SRCH.raw_os_error();
        // Pressure files exist, but cannot be read, if the kernel was started with psi=0.
        const EOPNOTSUPP: i32 = rustix::io::Errno::OPNOTSUPP.raw_os_error();
        match (source.kind(), source.raw_os_error()) {
            (io::ErrorKind::NotFound | io::ErrorKind::NotADirectory, _) | (_, Some(ESRCH)) => {
                HostError::Missing { path }
            }
            (io::ErrorKind::PermissionDenied, _) => HostError::Denied { path, owner: None },
            (io::ErrorKind::Unsupported, _) | (_, Some(EOPNOTSUPP)) => HostError::Unsupported { path },
            _ => HostError::Io { path, source },
        }
    }

    /// Creates the error for content that cannot be parsed.
    pub(crate) fn garbled(path: &str, garble: Garble) -> Self {
        HostError::Garbled { path: path.to_owned(), expected: garble.expected, actual: garble.actual }
    }

    /// Adds the user that may read the file.
    pub(crate) fn with_owner(self, owner: Option<&str>) -> Self {
        match self {
            HostError::Denied { path, .. } => HostError::Denied { path, owner: owner.map(str::to_owned) },
            other => other,
        }
    }

    /// Returns the kind under which a recording stores this error.
    pub fn kind(&self) -> TroubleKind {
        match self {
            HostError::Ended { .. } | HostError::Replaced { .. } | HostError::SeveralSuccessors { .. } => {
                TroubleKind::Gone
            }
            HostError::Denied { .. } | HostError::DeniedRemotely { .. } => TroubleKind::Denied,
            HostError::Hangs { .. }
            | HostError::Late { .. }
            | HostError::Skipped { .. }
            | HostError::OverBudget { .. } => TroubleKind::TimedOut,
            HostError::Missing { .. }
            | HostError::Unsupported { .. }
            | HostError::HiddenGroup { .. }
            | HostError::NotAVm { .. }
            | HostError::NoAllocators { .. } => TroubleKind::Unsupported,
            HostError::TooLarge { .. }
            | HostError::Garbled { .. }
            | HostError::UnknownPageSize
            | HostError::Io { .. } => TroubleKind::Garbled,
        }
    }
}
