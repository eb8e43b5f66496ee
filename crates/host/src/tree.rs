//! The file tree from which all data are read: that of this host, a fake one in tests, or another host's through the agent.
//!
//! Every read is bounded, because a process can make its command line, its number of files and the content of its root arbitrarily large. A
//! container can contain a FIFO or a link instead of a file.

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
use crate::sockets::{ClosedConnection, Connection, ConnectionId, Socket};

/// An open file that is read in pieces. It remains the same file even if its path is reused for another file.
pub trait ReadAt: Debug {
    /// Reads the bytes available at an offset, and returns their number: 0 at the end of the file.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
}

impl ReadAt for File {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        FileExt::read_at(self, into, offset)
    }
}

/// A tree of files. Paths are absolute, such as `/proc/stat`.
pub trait FileTree {
    /// Reads the first `max_bytes` of a file, or all of it if it is shorter, and replaces the content of `into` by them.
    /// Only for files of the kernel and of the host's administrator.
    fn read_start(&self, path: &str, max_bytes: usize, into: &mut Vec<u8>) -> Result<(), HostError>;

    /// Like [`FileTree::read_start`], for a file below `dir` (`/`, or `/proc/PID/root`) whose owner is untrusted. Links are followed as if
    /// `dir` were the root, and anything except a regular file is refused.
    fn read_start_below(
        &self,
        dir: &str,
        path: &str,
        max_bytes: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), HostError>;

    /// Returns at most `max` names in a folder, in the kernel's order.
    fn list(&self, path: &str, max: usize) -> Result<Vec<String>, HostError>;

    /// Returns the number of names in a folder. Fails for more than `max`, unless the kernel provides the number at no cost.
    fn count(&self, path: &str, max: usize) -> Result<u64, HostError>;

    /// Returns the number of names in a folder, if the kernel provides it at no cost.
    fn cheap_count(&self, _path: &str) -> Option<u64> {
        None
    }

    /// Returns the target of a symbolic link.
    fn read_link(&self, path: &str) -> Result<String, HostError>;

    /// Opens a kernel file that is to be read in pieces. Unsupported for files on another host.
    fn open(&self, path: &str) -> Result<Box<dyn ReadAt>, HostError> {
        Err(HostError::Unsupported { path: path.to_owned() })
    }

    /// Lists the listening TCP sockets of a process's network namespace through netlink, which is cheaper than reading files, and
    /// provides queue limits. `None` if the tree is not that of this host.
    fn listening(&self, _pid: u32) -> Option<Result<Vec<Socket>, HostError>> {
        None
    }

    /// Lists at most `max` TCP connections of a process's network namespace. `since` adds the time since data were last received.
    /// `None` if the tree is not that of this host.
    fn connections(
        &self,
        _pid: u32,
        _max: usize,
        _since: bool,
    ) -> Option<Result<Vec<Connection>, HostError>> {
        None
    }

    /// Lists connections of a process's network namespace that were closed within the last minute, first by the local side: at most `max`
    /// per address family. `None` if the tree is not that of this host.
    fn closed_connections(&self, _pid: u32, _max: usize) -> Option<Result<Vec<ClosedConnection>, HostError>> {
        None
    }

    /// Returns the number of bytes that each of these connections has received. A connection is given as its local address and its id.
    fn bytes_received(
        &self,
        _pid: u32,
        ids: &[(IpAddr, ConnectionId)],
    ) -> Result<Vec<Option<i64>>, HostError> {
        Ok(vec![None; ids.len()])
    }

    /// Reads a whole file. Fails if it has more than `max_bytes`.
    fn read(&self, path: &str, max_bytes: usize) -> Result<Vec<u8>, HostError> {
        let mut content = Vec::new();
        self.read_start(path, max_bytes.saturating_add(1), &mut content)?;
        if content.len() > max_bytes {
            return Err(HostError::TooLarge { path: path.to_owned(), max: max_bytes });
        }
        Ok(content)
    }
}

/// The files of this host, or of a folder with the layout of a host's root.
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
    /// Creates the tree below a folder.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        LocalTree { root: root.into() }
    }

    fn real(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Opens a file like a process whose root is `dir`.
    fn open_below(&self, dir: &str, path: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let root = rustix::fs::open(
            self.real(dir),
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let file: OwnedFd = match rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve) {
            // Before Linux 5.6, or blocked by a container's seccomp filter. Below our own root, links cannot escape; below another
            // root, the file is treated as missing.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) if dir == "/" => {
                rustix::fs::open(self.real(path), flags, Mode::empty())?
            }
            opened => opened?,
        };
        Ok(File::from(file))
    }
}

/// Reads until the end or until `max_bytes`.
fn read_bounded(mut file: File, max_bytes: usize, into: &mut Vec<u8>) -> io::Result<()> {
    // Most files in /proc have a few hundred bytes, so one page is usually enough.
    const STEP: usize = 4096;
    into.clear();
    let mut filled = 0;
    let read = loop {
        if filled == max_bytes {
            break Ok(());
        }
        // A full buffer doubles, so that a small file needs no large one. The kernel fills a page at a time.
        if filled == into.len() {
            into.resize((filled + STEP.max(filled)).min(max_bytes), 0);
        }
        match file.read(&mut into[filled..]) {
            Ok(0) => break Ok(()),
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                filled = 0;
                break Err(error);
            }
        }
    };
    into.truncate(filled);
    read
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
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
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
        // Since Linux 6.2, the size of /proc/PID/fd is the number of open files (fs/proc/fd.c).
        // The size of other folders has another meaning, so the file system must be proc (PROC_SUPER_MAGIC).
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

    fn closed_connections(&self, pid: u32, max: usize) -> Option<Result<Vec<ClosedConnection>, HostError>> {
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
