//! Sockets of devices, and what their errors mean.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::program::Endpoint;
use crate::tally::ErrorKind;

/// Begins to connect; the socket becomes writable when that has succeeded or failed.
pub fn connect(endpoint: &Endpoint, device: u64) -> Result<OwnedFd, Errno> {
    let family = if endpoint.address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    if !endpoint.sources.is_empty() {
        let source = endpoint.sources[(device % endpoint.sources.len() as u64) as usize];
        rustix::net::bind(&fd, &SocketAddr::new(source, 0))?;
    }
    match rustix::net::connect(&fd, &endpoint.address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(errno) => Err(errno),
    }
}

/// The kind of error that the system's number stands for.
pub fn kind_of(errno: Errno) -> ErrorKind {
    match errno {
        Errno::CONNREFUSED => ErrorKind::Refused,
        Errno::TIMEDOUT => ErrorKind::ConnectTimeout,
        Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED => ErrorKind::Reset,
        Errno::ADDRINUSE
        | Errno::ADDRNOTAVAIL
        | Errno::MFILE
        | Errno::NFILE
        | Errno::NOBUFS
        | Errno::NOMEM
        | Errno::AGAIN => ErrorKind::Exhausted,
        _ => ErrorKind::Unreachable,
    }
}

/// What it says.
pub fn words_of(errno: Errno) -> String {
    match errno {
        Errno::ADDRNOTAVAIL | Errno::ADDRINUSE | Errno::AGAIN => {
            "no local port is left for this target".to_owned()
        }
        Errno::MFILE => "no descriptor is left".to_owned(),
        _ => std::io::Error::from(errno).to_string(),
    }
}
