//! Opens sockets in a network namespace: our own, or that of another process on this host, such as one in a container.
//!
//! A thread can enter another network namespace, and a socket stays in the namespace in which it was created (setns(2),
//! network_namespaces(7)). So each such socket is opened by a temporary thread that enters the namespace, connects and ends. All
//! other threads stay in our namespace. The namespace's file is open only for that time. A file that is open for a whole
//! recording would keep the interfaces of a removed container alive.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::AttachError;

/// The network namespace in which sockets are opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Network {
    /// The namespace of beamtune itself.
    #[default]
    Own,
    /// The namespace of another process.
    Other(Namespace),
}

/// The network namespace of a process on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// Process id on this host.
    pub pid: u32,
    /// Inode of the namespace, as in `net:[4026532281]`. It is compared before entering, since the process id may have been
    /// reused.
    pub inode: u64,
    /// Whether the process is also in a user namespace other than ours. Used in error messages.
    pub has_user_namespace: bool,
}

impl Network {
    /// Checks that the namespace can be entered.
    pub fn check(&self) -> Result<(), AttachError> {
        self.within(|| ())
    }

    /// Connects a socket in the namespace.
    pub(crate) fn connect(
        &self,
        address: &SocketAddr,
        timeout: Duration,
    ) -> Result<io::Result<TcpStream>, AttachError> {
        self.within(|| TcpStream::connect_timeout(address, timeout))
    }

    /// Runs `action` in the namespace, on a temporary thread.
    fn within<T: Send>(&self, action: impl FnOnce() -> T + Send) -> Result<T, AttachError> {
        let Network::Other(namespace) = self else { return Ok(action()) };
        let closed = |error: &io::Error| namespace.closed(error);
        let file = namespace.open()?;
        thread::scope(|scope| {
            let enter_and_act = || {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok(action())
            };
            let thread = thread::Builder::new().spawn_scoped(scope, enter_and_act);
            let joined = thread.map_err(|error| closed(&error))?.join();
            joined
                .unwrap_or_else(|_| Err(io::Error::other("the thread that entered it panicked")))
                .map_err(|error| closed(&error))
        })
    }
}

impl Namespace {
    fn open(&self) -> Result<File, AttachError> {
        let gone = || AttachError::NetworkGone { pid: self.pid };
        let file = File::open(format!("/proc/{}/ns/net", self.pid)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => gone(),
            _ => self.closed(&error),
        })?;
        let number = file.metadata().map_err(|error| self.closed(&error))?.ino();
        if number == self.inode { Ok(file) } else { Err(gone()) }
    }

    fn closed(&self, error: &io::Error) -> AttachError {
        AttachError::NetworkClosed {
            pid: self.pid,
            reason: error.to_string(),
            // The owner of a user namespace needs no privileges if nsenter enters that user namespace first.
            nsenter: if self.has_user_namespace { "-U --preserve-credentials -n" } else { "-n" },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_of_an_ended_process_is_gone() {
        // Process ids stay below 2^22.
        let network = Network::Other(Namespace { pid: u32::MAX, inode: 1, has_user_namespace: false });
        let error = network.check().unwrap_err();
        assert!(matches!(error, AttachError::NetworkGone { pid: u32::MAX }), "{error}");
    }

    #[test]
    fn process_with_a_reused_pid_is_not_entered() {
        let other =
            Network::Other(Namespace { pid: std::process::id(), inode: 1, has_user_namespace: false });
        assert!(matches!(other.check().unwrap_err(), AttachError::NetworkGone { .. }));
    }
}
