//! What can go wrong when the operating system is asked. All of it is expected: processes end between
//! two reads, files belong to other users, kernels differ.

use std::io;

use beamtune_model::TroubleKind;

use crate::text::Garble;

/// Why something of the operating system could not be read.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// There is no such file: the process has ended, or the kernel does not have it.
    #[error("there is no {path}")]
    Missing {
        /// The file or folder.
        path: String,
    },
    /// The file belongs to another user.
    #[error("not allowed to read {path}: run beamtune as {}", whom(owner.as_deref()))]
    Denied {
        /// The file or folder.
        path: String,
        /// The name of the process's user, where it is known.
        owner: Option<String>,
    },
    /// A process is in a control group, but where its files are cannot be seen from here.
    #[error(
        "the files of control group {path} cannot be seen from here: run beamtune where /sys/fs/cgroup is mounted"
    )]
    UnseenGroup {
        /// The group.
        path: String,
    },
    /// The kernel has the file, but not what would stand in it.
    #[error("this kernel does not provide {path}")]
    Unsupported {
        /// The file or folder.
        path: String,
    },
    /// More than is ever expected there; reading all of it could cost too much.
    #[error("{path} is larger than expected: more than {max}")]
    TooLarge {
        /// The file or folder.
        path: String,
        /// The bound: bytes of a file, entries of a folder.
        max: usize,
    },
    /// The content is not what it should be.
    #[error("{path} makes no sense: expected {expected}, found {actual:?}")]
    Garbled {
        /// The file.
        path: String,
        /// What should have been there.
        expected: &'static str,
        /// The beginning of what was.
        actual: String,
    },
    /// There is a process of that number, but it is no Erlang VM.
    #[error("process {pid} is no Erlang VM, it runs {runs:?}: `beamtune nodes` lists those that are")]
    NotAVm {
        /// The process.
        pid: u32,
        /// Its short name.
        runs: String,
    },
    /// There is no process of that number, or it is just ending.
    #[error("process {pid} has ended")]
    Ended {
        /// The process.
        pid: u32,
    },
    /// The process of that number is not the one that was looked at before.
    #[error("process {pid} has ended; its number was given to another process")]
    Replaced {
        /// The process.
        pid: u32,
    },
    /// The VM's own user may not read it on another host.
    #[error("the node may not read {path} on its host")]
    DeniedThere {
        /// The file or folder.
        path: String,
    },
    /// Reading it takes so long that nobody waits for it.
    #[error("reading {path} hangs on the node's host")]
    Hangs {
        /// The file or folder.
        path: String,
    },
    /// The agent's time was over.
    #[error("there was no time left to read {path} on the node's host")]
    Late {
        /// The file or folder.
        path: String,
    },
    /// Not read this time.
    #[error("it was not the turn of {path} this time: reading all each time would cost the node too much")]
    LeftOut {
        /// The file or folder.
        path: String,
    },
    /// It costs more time than it may.
    #[error("reading {path} was given up after {after_ms} ms: it would have taken longer than it may")]
    TooDear {
        /// The file or folder.
        path: String,
        /// How long it had taken, in milliseconds.
        after_ms: i64,
    },
    /// A process whose memory holds nothing that looks like allocators of a VM.
    #[error(
        "no allocators were found in the memory of process {pid}: this build of the VM is not known to beamtune"
    )]
    NoAllocators {
        /// The process.
        pid: u32,
    },
    /// Another host's pages are as large as the VM's memory there says, which is told in pages and in bytes.
    #[error(
        "how large the pages of the node's host are cannot be told: /proc/self/stat and /proc/self/status do not agree on its memory"
    )]
    UnknownPageSize,
    /// The process has ended, and more than one could have taken its place.
    #[error(
        "process {pid} has ended, and which of {} goes on in its place cannot be told: name it by its process id",
        pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
    )]
    SeveralSuccessors {
        /// The process.
        pid: u32,
        /// Those that could be meant.
        pids: Vec<u32>,
    },
    /// Anything else.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file or folder.
        path: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// As whom beamtune may read the files of a process.
fn whom(owner: Option<&str>) -> String {
    match owner {
        Some("root") => "root".to_owned(),
        Some(user) => format!("root or as user {user}"),
        None => "root or as the process's user".to_owned(),
    }
}

impl HostError {
    /// Tells the expected errors of the kernel from the others.
    pub(crate) fn from_io(path: &str, source: io::Error) -> Self {
        let path = path.to_owned();
        // ESRCH: /proc/PID was opened, but the process has ended since.
        const ESRCH: i32 = rustix::io::Errno::SRCH.raw_os_error();
        // Pressure files exist, but cannot be read, where the kernel was started with psi=0.
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

    /// Content that makes no sense.
    pub(crate) fn garbled(path: &str, garble: Garble) -> Self {
        HostError::Garbled { path: path.to_owned(), expected: garble.expected, actual: garble.actual }
    }

    /// Names the user as whom it could be read.
    pub(crate) fn with_owner(self, owner: Option<&str>) -> Self {
        match self {
            HostError::Denied { path, .. } => HostError::Denied { path, owner: owner.map(str::to_owned) },
            other => other,
        }
    }

    /// What it means for a recording.
    pub fn kind(&self) -> TroubleKind {
        match self {
            HostError::Ended { .. } | HostError::Replaced { .. } | HostError::SeveralSuccessors { .. } => {
                TroubleKind::Gone
            }
            HostError::Denied { .. } | HostError::DeniedThere { .. } => TroubleKind::Denied,
            HostError::Hangs { .. }
            | HostError::Late { .. }
            | HostError::LeftOut { .. }
            | HostError::TooDear { .. } => TroubleKind::TimedOut,
            HostError::Missing { .. }
            | HostError::Unsupported { .. }
            | HostError::UnseenGroup { .. }
            | HostError::NotAVm { .. }
            | HostError::NoAllocators { .. } => TroubleKind::Unsupported,
            HostError::TooLarge { .. }
            | HostError::Garbled { .. }
            | HostError::UnknownPageSize
            | HostError::Io { .. } => TroubleKind::Garbled,
        }
    }
}
