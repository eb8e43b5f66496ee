//! The network that sockets are opened in: ours, or that of a process of this host in another network namespace, as a
//! container has it.
//!
//! A thread can enter another network namespace, and a socket stays in the one that it was made in (setns(2),
//! network_namespaces(7)). So each socket there is opened by a thread of its own, which enters, connects and ends; no
//! other thread of ours is ever elsewhere. The namespace itself is held open for no longer than that: held for
//! the length of a recording it would keep a container's interfaces alive that has long been removed.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::AttachError;

/// Where sockets are opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Network {
    /// In the network that we are in.
    #[default]
    Ours,
    /// In that of a process in another network namespace.
    Of(Namespace),
}

/// The network namespace of a process of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// The process, by its number here.
    pub pid: u32,
    /// The namespace's own number, as in `net:[4026532281]`: the process's may have been given to another since.
    pub number: u64,
    /// Whether the process is in a user namespace of its own, too; for messages.
    pub own_users: bool,
}

impl Network {
    /// Whether its sockets could be opened.
    pub fn check(&self) -> Result<(), AttachError> {
        self.within(|| ())
    }

    /// Opens a socket there.
    pub(crate) fn connect(
        &self,
        address: &SocketAddr,
        timeout: Duration,
    ) -> Result<io::Result<TcpStream>, AttachError> {
        self.within(|| TcpStream::connect_timeout(address, timeout))
    }

    /// Does something there.
    fn within<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T, AttachError> {
        let Network::Of(namespace) = self else { return Ok(act()) };
        let closed = |error: &io::Error| namespace.closed(error);
        let door = namespace.open()?;
        thread::scope(|scope| {
            let enter_and_act = || {
                move_into_link_name_space(door.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok(act())
            };
            let visitor = thread::Builder::new().spawn_scoped(scope, enter_and_act);
            let joined = visitor.map_err(|error| closed(&error))?.join();
            joined
                .unwrap_or_else(|_| Err(io::Error::other("the thread that entered it has failed")))
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
        if number == self.number { Ok(file) } else { Err(gone()) }
    }

    fn closed(&self, error: &io::Error) -> AttachError {
        AttachError::NetworkClosed {
            pid: self.pid,
            reason: error.to_string(),
            // Of the owner of a user namespace nsenter asks no more rights than to enter that first.
            nsenter: if self.own_users { "-U --preserve-credentials -n" } else { "-n" },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_has_no_network() {
        // Numbers of processes end below 2^22.
        let nobody = Network::Of(Namespace { pid: u32::MAX, number: 1, own_users: false });
        let error = nobody.check().unwrap_err();
        assert!(matches!(error, AttachError::NetworkGone { pid: u32::MAX }), "{error}");
    }

    #[test]
    fn another_process_with_the_same_number_is_not_taken_for_the_one_that_was_meant() {
        let other = Network::Of(Namespace { pid: std::process::id(), number: 1, own_users: false });
        assert!(matches!(other.check().unwrap_err(), AttachError::NetworkGone { .. }));
    }
}
