//! The file tree that everything is read from: this host's, a made-up one in tests, later another
//! host's through the agent.
//!
//! Every read is bounded, because a process can make its command line, its number of files and the
//! content of its own root as large as it likes, and a container can hold a FIFO or a link where a
//! file should be.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::error::HostError;
use crate::netlink;
use crate::sockets::{Closed, Connection, ConnectionId, Socket};

/// An open file that is read piece by piece: what it is of stays the same, also when its path becomes another's.
pub trait ReadAt: Debug {
    /// Reads what stands at an offset, as much as there is at once; 0 at the end.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
}

impl ReadAt for File {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        FileExt::read_at(self, into, offset)
    }
}

/// A tree of files; paths are absolute: `/proc/stat`.
pub trait FileTree {
    /// Replaces `into` by the first `max_bytes` of a file, or all of it if there is less.
    /// Meant for files that the kernel makes, and for those of the host's administrator.
    fn read_start(&self, path: &str, max_bytes: usize, into: &mut Vec<u8>) -> Result<(), HostError>;

    /// As [`FileTree::read_start`], for a file below `dir` (`/`, or `/proc/PID/root`) whose owner is not
    /// trusted: links are followed as if `dir` were the root, and what is no plain file is not read.
    fn read_start_below(
        &self,
        dir: &str,
        path: &str,
        max_bytes: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), HostError>;

    /// The names in a folder, in the kernel's order, at most `max` of them.
    fn list(&self, path: &str, max: usize) -> Result<Vec<String>, HostError>;

    /// How many names are in a folder; more than `max` is an error, unless the kernel tells at no cost.
    fn count(&self, path: &str, max: usize) -> Result<u64, HostError>;

    /// The same, where the kernel tells it at no cost.
    fn cheap_count(&self, _path: &str) -> Option<u64> {
        None
    }

    /// Where a link points to.
    fn read_link(&self, path: &str) -> Result<String, HostError>;

    /// Opens a file of the kernel's, to be read piece by piece. Trees whose files are on another host have no such.
    fn open(&self, path: &str) -> Result<Box<dyn ReadAt>, HostError> {
        Err(HostError::Unsupported { path: path.to_owned() })
    }

    /// The listening TCP sockets of a process's network namespace, as the kernel tells them without its files: at less cost,
    /// and with their limits. `None` where there is no kernel that could be asked.
    fn listening(&self, _pid: u32) -> Option<Result<Vec<Socket>, HostError>> {
        None
    }

    /// TCP connections of a process's network namespace, at most `max`; with `since` each with when data came last. `None` where there is no
    /// kernel that could be asked.
    fn connections(
        &self,
        _pid: u32,
        _max: usize,
        _since: bool,
    ) -> Option<Result<Vec<Connection>, HostError>> {
        None
    }

    /// Connections of a process's network namespace that its side closed first in the last minute, at most `max` of each address family.
    /// `None` where there is no kernel that could be asked.
    fn closed(&self, _pid: u32, _max: usize) -> Option<Result<Vec<Closed>, HostError>> {
        None
    }

    /// Bytes that these have received, each with the address of its own end.
    fn bytes_received(
        &self,
        _pid: u32,
        ids: &[(IpAddr, ConnectionId)],
    ) -> Result<Vec<Option<i64>>, HostError> {
        Ok(vec![None; ids.len()])
    }

    /// A whole file; one with more than `max_bytes` is an error.
    fn read(&self, path: &str, max_bytes: usize) -> Result<Vec<u8>, HostError> {
        let mut content = Vec::new();
        self.read_start(path, max_bytes.saturating_add(1), &mut content)?;
        if content.len() > max_bytes {
            return Err(HostError::TooLarge { path: path.to_owned(), max: max_bytes });
        }
        Ok(content)
    }
}

/// The files of this host, or those below some other folder that looks like a host's root.
#[derive(Debug, Clone)]
pub struct LocalTree {
    root: PathBuf,
}

impl Default for LocalTree {
    fn default() -> Self {
        LocalTree::at("/")
    }
}

impl LocalTree {
    /// The tree below a folder.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        LocalTree { root: root.into() }
    }

    fn real(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Opens as a process whose root is `dir` would.
    fn open_below(&self, dir: &str, path: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let root = rustix::fs::open(
            self.real(dir),
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let file: OwnedFd = match rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve) {
            // Before Linux 5.6, or kept away by a container's filter: below our own root there is
            // nothing that links could escape from; below another's, what is not read is missing.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) if dir == "/" => {
                rustix::fs::open(self.real(path), flags, Mode::empty())?
            }
            opened => opened?,
        };
        Ok(File::from(file))
    }
}

/// Reads until the end or until `max_bytes` are there.
fn read_bounded(mut file: File, max_bytes: usize, into: &mut Vec<u8>) -> io::Result<()> {
    // Most files of /proc are a few hundred bytes; a page holds them, and is asked for at once.
    const STEP: usize = 4096;
    into.clear();
    while into.len() < max_bytes {
        let filled = into.len();
        // A large file is read in growing steps, so that a small bound costs no large buffer.
        into.resize((filled + STEP.max(filled)).min(max_bytes), 0);
        match file.read(&mut into[filled..]) {
            Ok(0) => {
                into.truncate(filled);
                return Ok(());
            }
            Ok(more) => into.truncate(filled + more),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => into.truncate(filled),
            Err(error) => {
                into.clear();
                return Err(error);
            }
        }
    }
    Ok(())
}

impl FileTree for LocalTree {
    fn read_start(&self, path: &str, max_bytes: usize, into: &mut Vec<u8>) -> Result<(), HostError> {
        File::open(self.real(path))
            .and_then(|file| read_bounded(file, max_bytes, into))
            .map_err(|error| HostError::from_io(path, error))
    }

    fn read_start_below(
        &self,
        dir: &str,
        path: &str,
        max_bytes: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), HostError> {
        let checked = |file: File| match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file")),
        };
        self.open_below(dir, path)
            .and_then(checked)
            .and_then(|file| read_bounded(file, max_bytes, into))
            .map_err(|error| HostError::from_io(&format!("{}{path}", dir.trim_end_matches('/')), error))
    }

    fn list(&self, path: &str, max: usize) -> Result<Vec<String>, HostError> {
        let read = || -> io::Result<Vec<String>> {
            let names = fs::read_dir(self.real(path))?.take(max);
            names.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
        };
        read().map_err(|error| HostError::from_io(path, error))
    }

    fn count(&self, path: &str, max: usize) -> Result<u64, HostError> {
        if let Some(count) = self.cheap_count(path) {
            return Ok(count);
        }
        let count = fs::read_dir(self.real(path))
            .map_err(|error| HostError::from_io(path, error))?
            .take(max + 1)
            .count();
        if count > max {
            return Err(HostError::TooLarge { path: path.to_owned(), max });
        }
        Ok(count as u64)
    }

    fn cheap_count(&self, path: &str) -> Option<u64> {
        let real = self.real(path);
        // Since Linux 6.2 the size of /proc/PID/fd is the number of open files (fs/proc/fd.c).
        // That it is proc's (PROC_SUPER_MAGIC) is checked, because elsewhere the size of a folder is something else.
        let is_proc = rustix::fs::statfs(&real).is_ok_and(|fs| fs.f_type == 0x9fa0);
        let size = is_proc.then(|| fs::metadata(&real).map_or(0, |metadata| metadata.len()));
        size.filter(|size| *size > 0)
    }

    fn open(&self, path: &str) -> Result<Box<dyn ReadAt>, HostError> {
        match File::open(self.real(path)) {
            Ok(file) => Ok(Box::new(file)),
            Err(error) => Err(HostError::from_io(path, error)),
        }
    }

    fn listening(&self, pid: u32) -> Option<Result<Vec<Socket>, HostError>> {
        (self.root == Path::new("/")).then(|| netlink::listening(pid))
    }

    fn connections(&self, pid: u32, max: usize, since: bool) -> Option<Result<Vec<Connection>, HostError>> {
        (self.root == Path::new("/")).then(|| netlink::connections(pid, max, since))
    }

    fn closed(&self, pid: u32, max: usize) -> Option<Result<Vec<Closed>, HostError>> {
        (self.root == Path::new("/")).then(|| netlink::closed(pid, max))
    }

    fn bytes_received(
        &self,
        pid: u32,
        ids: &[(IpAddr, ConnectionId)],
    ) -> Result<Vec<Option<i64>>, HostError> {
        netlink::bytes_received(pid, ids)
    }

    fn read_link(&self, path: &str) -> Result<String, HostError> {
        fs::read_link(self.real(path))
            .map(|target| target.to_string_lossy().into_owned())
            .map_err(|error| HostError::from_io(path, error))
    }
}
