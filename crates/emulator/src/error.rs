//! Errors of this crate. Each message names the next step.

use std::io;
use std::path::{Path, PathBuf};

/// Why an emulator cannot be built, found, run or installed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No `erl` was found, and no installation was named.
    #[error("no erl is on the PATH: specify the folder of the installation with --installation")]
    NoErl,
    /// The `erl` on the PATH does not print the folder of its installation.
    #[error(
        "cannot read the installation's folder from {} ({how}): {output}; fix that erl, or specify the folder with --installation or --for",
        .erl.display()
    )]
    ErlFailed {
        /// The program.
        erl: PathBuf,
        /// Its exit status.
        how: String,
        /// The last line of its stderr.
        output: String,
    },
    /// A folder contains no emulator.
    #[error("{} is not an Erlang installation or a release with its own ERTS: {why}", .path.display())]
    NoInstallation {
        /// The folder.
        path: PathBuf,
        /// What was expected there.
        why: String,
    },
    /// A file is not an ELF file.
    #[error("{} is not a Linux executable: specify the folder of an Erlang installation, or of a release with its own ERTS", .path.display())]
    NotAProgram {
        /// The file.
        path: PathBuf,
    },
    /// An ELF file is not an emulator.
    #[error("{} is not an Erlang emulator: specify the folder of an Erlang installation, or of a release with its own ERTS", .path.display())]
    NotAnEmulator {
        /// The file.
        path: PathBuf,
    },
    /// A source, an installation or a release has a version other than the one that is needed.
    #[error("{what} is {found}, but exactly {wanted} is needed: {next}")]
    WrongVersion {
        /// The source, installation or release.
        what: String,
        /// Its version.
        found: String,
        /// The version that is needed.
        wanted: String,
        /// What to do.
        next: String,
    },
    /// An emulator is for another architecture or C library.
    #[error("{what} is for {found}, this host is {host}: {next}")]
    OtherMachine {
        /// The emulator or its installation.
        what: String,
        /// Architecture and C library that it is for.
        found: String,
        /// Architecture and C library of this host.
        host: String,
        /// What to do.
        next: &'static str,
    },
    /// A file or folder is not an OTP source that can be built.
    #[error("{} is not an OTP source: {why}", .path.display())]
    NotASource {
        /// The file or folder.
        path: PathBuf,
        /// What is missing.
        why: &'static str,
    },
    /// Programs or headers that a build needs are not installed.
    #[error("{0}")]
    Missing(String),
    /// Too little disk space to start a build.
    #[error(
        "a build needs about {needed_mb} MB, {} has {free_mb} MB free: free some space, or set XDG_CACHE_HOME to a folder with enough",
        .folder.display()
    )]
    NoRoom {
        /// The folder of the build.
        folder: PathBuf,
        /// Space needed, in megabytes.
        needed_mb: u64,
        /// Space available, in megabytes.
        free_mb: u64,
    },
    /// The disk became full during a build.
    #[error(
        "the disk of {} is full; the unfinished build was removed. A build needs about {needed_mb} MB: free some space, or set \
         XDG_CACHE_HOME to a folder with enough",
        .folder.display()
    )]
    DiskFull {
        /// The folder of the build.
        folder: PathBuf,
        /// Space needed, in megabytes.
        needed_mb: u64,
    },
    /// A command of the build failed.
    #[error("{what} failed ({how}): {last}{}", .log.as_ref().map(|log| format!("\nfull output: {}", log.display())).unwrap_or_default())]
    Step {
        /// What the command does.
        what: String,
        /// Its exit status.
        how: String,
        /// The last lines of its output.
        last: String,
        /// The file with all of the output, if it could be kept.
        log: Option<PathBuf>,
    },
    /// The user cancelled the build.
    #[error("cancelled; the unfinished build was removed")]
    Cancelled,
    /// The new emulator does not work.
    #[error(
        "the emulator was built, but {why}; it was discarded: build it from exactly the installation's source, on a system like the target's"
    )]
    Unusable {
        /// What is wrong: a predicate whose subject is the emulator, or a complete clause.
        why: String,
    },
    /// Debian's archives have no matching source.
    #[error("{0}")]
    Debian(String),
    /// No matching emulator is in the cache.
    #[error("no {wanted} has been built: run beamtune emulator build {arguments}")]
    NotBuilt {
        /// The emulator that is needed.
        wanted: String,
        /// Arguments of `beamtune emulator build`.
        arguments: String,
    },
    /// Another user may have written a file of the cache.
    #[error("refusing to run {}: another user may have written it; remove it and build again", .path.display())]
    Untrusted {
        /// The file.
        path: PathBuf,
    },
    /// The kernel refused to mount an emulator over the installation's own.
    #[error("cannot mount {} over {}: {why}; run this as root, or try --overlay", .emulator.display(), .over.display())]
    Mount {
        /// The emulator to run.
        emulator: PathBuf,
        /// The installation's own emulator.
        over: PathBuf,
        /// The operating system's error. It is not named `source`, since the message contains it.
        why: io::Error,
    },
    /// A command would bypass the emulator of an overlay folder.
    #[error(
        "{} calls {erl} by its absolute path, so only a mount can give it another emulator: run this without --overlay, as root or where \
         user namespaces are allowed",
        .script.display()
    )]
    FixedErl {
        /// The script.
        script: PathBuf,
        /// The path in it.
        erl: String,
    },
    /// Another file already has the name.
    #[error("{} already exists and differs: remove it first", .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Invalid arguments.
    #[error("{0}")]
    Usage(String),
    /// The cache folder cannot be used.
    #[error("cannot keep emulators in {}: {why}; set XDG_CACHE_HOME to a writable folder", .folder.display())]
    NoCache {
        /// The folder.
        folder: PathBuf,
        /// The operating system's error. It is not named `source`, since the message contains it.
        why: io::Error,
    },
    /// A program could not be started.
    #[error("cannot start {program}: {why}")]
    Start {
        /// The program.
        program: String,
        /// The operating system's error. It is not named `source`, since the message contains it.
        why: io::Error,
    },
    /// A file operation failed.
    #[error("{}: {why}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error. It is not named `source`, since the message contains it.
        why: io::Error,
    },
}

/// Maximum disk space of a build, in megabytes: the unpacked source and the build's output.
pub const BUILD_MB: u64 = 700;

impl Error {
    /// Creates the error for a failed operation on a file or folder.
    pub(crate) fn io(path: &Path, why: io::Error) -> Error {
        match why.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Error::DiskFull { folder: path.to_owned(), needed_mb: BUILD_MB }
            }
            _ => Error::Io { path: path.to_owned(), why },
        }
    }
}
