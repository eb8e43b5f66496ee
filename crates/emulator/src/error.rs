//! What can go wrong; each message names the next step.

use std::io;
use std::path::{Path, PathBuf};

/// Why an emulator cannot be built, found, run or installed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no `erl`, and nothing else tells which installation is meant.
    #[error(
        "no erl is on the PATH, so which Erlang the command uses is not known: name its folder with --installation"
    )]
    NoErl,
    /// The `erl` of the PATH does not say where its installation is.
    #[error(
        "{} does not tell its installation ({how}): {told}; make that it starts, or name the folder with --installation or --for",
        .erl.display()
    )]
    SilentErl {
        /// The program.
        erl: PathBuf,
        /// How it ended.
        how: String,
        /// Its last line.
        told: String,
    },
    /// A folder holds no emulator.
    #[error("{} is no installation of Erlang and no release with its own ERTS: {why}", .path.display())]
    NoInstallation {
        /// The folder.
        path: PathBuf,
        /// What was expected there.
        why: String,
    },
    /// A file is no ELF file.
    #[error("{} is no program of Linux: name the folder of an installation of Erlang, or of a release with its own ERTS", .path.display())]
    NotAProgram {
        /// The file.
        path: PathBuf,
    },
    /// A program is no emulator.
    #[error("{} is no emulator of Erlang: name the folder of an installation of Erlang, or of a release with its own ERTS", .path.display())]
    NotAnEmulator {
        /// The file.
        path: PathBuf,
    },
    /// A source, an installation or a release is of another version than what was asked for.
    #[error("{what} is {found}, but what is wanted is {wanted}: only the very same version fits; {next}")]
    WrongVersion {
        /// What was looked at.
        what: String,
        /// The version that it has.
        found: String,
        /// The one that was expected.
        wanted: String,
        /// What to do.
        next: String,
    },
    /// An emulator is for another machine, or another C library.
    #[error("{what} is for {found}, this host is {host}: {next}")]
    OtherMachine {
        /// What was looked at.
        what: String,
        /// Architecture and C library that it is for.
        found: String,
        /// Those of this host.
        host: String,
        /// What to do.
        next: &'static str,
    },
    /// A file or folder holds no source of OTP that can be built.
    #[error("{} is no source of OTP: {why}", .path.display())]
    NotASource {
        /// The file or folder.
        path: PathBuf,
        /// What is missing.
        why: &'static str,
    },
    /// What a build needs is not installed.
    #[error("{0}")]
    Missing(String),
    /// There is too little room to begin.
    #[error(
        "a build needs some {needed_mb} MB, {} has {free_mb} MB free: make room, or let XDG_CACHE_HOME name a folder that has it",
        .folder.display()
    )]
    NoRoom {
        /// Where it would be built.
        folder: PathBuf,
        /// What it takes, in megabytes.
        needed_mb: u64,
        /// What there is, in megabytes.
        free_mb: u64,
    },
    /// The disk became full meanwhile.
    #[error(
        "the disk of {} is full; what was built so far is removed. A build needs some {needed_mb} MB: make room, or let XDG_CACHE_HOME \
         name a folder that has it",
        .folder.display()
    )]
    DiskFull {
        /// Where it was built.
        folder: PathBuf,
        /// What it takes, in megabytes.
        needed_mb: u64,
    },
    /// A command of the build failed.
    #[error("{what} failed ({how}): {last}{}", .log.as_ref().map(|log| format!("\nall that it said stands in {}", log.display())).unwrap_or_default())]
    Step {
        /// What was done.
        what: String,
        /// How it ended.
        how: String,
        /// The last lines that it said.
        last: String,
        /// Where all of them stand, if they could be kept.
        log: Option<PathBuf>,
    },
    /// The user has ended it.
    #[error("ended before it was done; what was built so far is removed")]
    Cancelled,
    /// What was built does not work.
    #[error(
        "the emulator was built, but {why}; it is not kept: build it from the very source of the installation, on a system like the target's"
    )]
    Unfit {
        /// What is wrong with it.
        why: String,
    },
    /// Debian has no source for it.
    #[error("{0}")]
    Debian(String),
    /// No emulator that fits has been built.
    #[error("there is no {wanted} yet: build it with beamtune emulator build {arguments}")]
    NotBuilt {
        /// What is needed.
        wanted: String,
        /// How to build it.
        arguments: String,
    },
    /// Something in the cache may have been put there by somebody else.
    #[error("{} may have been written by another user, and is not run: remove it and build it anew", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The kernel lets us put nothing over the installation's emulator.
    #[error("{} cannot be put over {}: {why}; run this as root, or try --overlay", .emulator.display(), .over.display())]
    Mount {
        /// What is put.
        emulator: PathBuf,
        /// The installation's own one.
        over: PathBuf,
        /// What the kernel said; it stands in the message already.
        why: io::Error,
    },
    /// A command would not come to the emulator in an overlay folder.
    #[error(
        "{} calls {erl} by its whole path, so only a mount can give it another emulator: run this as root, or where user namespaces are \
         allowed, without --overlay",
        .script.display()
    )]
    FixedErl {
        /// The script.
        script: PathBuf,
        /// The path in it.
        erl: String,
    },
    /// There is something in the way.
    #[error("{} is there already, and is another one: remove it first", .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// What was asked for makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The folder of the emulators cannot be used.
    #[error("emulators cannot be kept in {}: {why}; let XDG_CACHE_HOME name a folder that you may write", .folder.display())]
    NoCache {
        /// The folder.
        folder: PathBuf,
        /// What the system said; it stands in the message already.
        why: io::Error,
    },
    /// A program could not be started.
    #[error("cannot start {program}: {why}")]
    Start {
        /// The program.
        program: String,
        /// What the system said; it stands in the message already.
        why: io::Error,
    },
    /// The operating system refuses.
    #[error("{}: {why}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said; it stands in the message already.
        why: io::Error,
    },
}

/// What a build takes at most, in megabytes: an unpacked source, and what comes of it.
pub const BUILD_MB: u64 = 700;

impl Error {
    /// Trouble with a file or folder.
    pub(crate) fn io(path: &Path, why: io::Error) -> Error {
        match why.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Error::DiskFull { folder: path.to_owned(), needed_mb: BUILD_MB }
            }
            _ => Error::Io { path: path.to_owned(), why },
        }
    }
}
