//! Sockets of devices, and their errors.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::program::Endpoint;
use crate::tally::ErrorKind;

/// Maximum number of ports that are tried before the system chooses one.
const MAX_PORT_ATTEMPTS: u32 = 64;
/// Distance between the ports of consecutive connections of a device: the last port may still be in TIME_WAIT. Prime, so that all
/// ports are reached.
const PORT_STRIDE: u64 = 10_007;

/// Starts to connect; the socket becomes writable when connecting has succeeded or failed. `connection` is a different number for each
/// connection of the device.
pub fn connect(endpoint: &Endpoint, device: u64, connection: u32) -> Result<OwnedFd, Errno> {
    let sources = endpoint.sources.len() as u64;
    if sources == 0 {
        return connect_from(None, endpoint.address);
    }
    let source = &endpoint.sources[(device % sources) as usize];
    let connect = |port| connect_from(Some(SocketAddr::new(source.address, port)), endpoint.address);
    if let Some(ports) = &source.ports {
        for attempt in 0..MAX_PORT_ATTEMPTS {
            match connect(port(ports, device / sources, connection.wrapping_add(attempt))) {
                Err(Errno::ADDRINUSE | Errno::ADDRNOTAVAIL) => {}
                connected => return connected,
            }
        }
    }
    connect(0)
}

/// Returns a port that is different for each device of a source, as long as there are enough ports.
fn port(ports: &RangeInclusive<u16>, device: u64, connection: u32) -> u16 {
    let offset = (device + u64::from(connection) * PORT_STRIDE) % ports.len().max(1) as u64;
    ports.start() + offset as u16
}

fn connect_from(source: Option<SocketAddr>, target: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    if let Some(source) = source {
        // Connections to different targets can share a port; connect(2) fails if they cannot.
        sockopt::set_socket_reuseaddr(&fd, true)?;
        rustix::net::bind(&fd, &source)?;
    }
    match rustix::net::connect(&fd, &target) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(errno) => Err(errno),
    }
}

/// Returns the kind of an error.
pub fn error_kind(errno: Errno) -> ErrorKind {
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

/// Returns the text of an error.
pub fn describe(errno: Errno) -> String {
    match errno {
        Errno::ADDRNOTAVAIL | Errno::ADDRINUSE | Errno::AGAIN => {
            "no local port is left for this target".to_owned()
        }
        Errno::MFILE => "no file descriptor is left".to_owned(),
        _ => std::io::Error::from(errno).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::{IpAddr, TcpListener};
    use std::sync::Arc;

    use super::*;
    use crate::program::Source;

    #[test]
    fn devices_have_distinct_ports_on_each_connection() {
        let ports = 100..=999;
        for connection in [0, 1, 12_345, u32::MAX] {
            let taken: HashSet<_> = (0..900).map(|device| port(&ports, device, connection)).collect();
            assert_eq!(taken.len(), 900);
            assert!(taken.iter().all(|port| ports.contains(port)));
        }
        assert_ne!(port(&ports, 7, 0), port(&ports, 7, 1));
    }

    #[test]
    fn a_port_in_use_is_skipped() {
        let target = TcpListener::bind("127.0.0.1:0").unwrap();
        let source: IpAddr = "127.0.0.2".parse().unwrap();
        // A listening socket's port cannot be shared.
        let listener = TcpListener::bind((source, 0)).unwrap();
        let taken = listener.local_addr().unwrap().port();
        let ports = taken..=taken.saturating_add(1);
        let sources = Arc::new([Source { address: source, ports: Some(ports) }]);
        let endpoint = Endpoint { address: target.local_addr().unwrap(), sources, tls: None };
        let sockets: Vec<_> = (0..3).map(|device| connect(&endpoint, device, 0).unwrap()).collect();
        let ports =
            sockets.iter().map(|fd| SocketAddr::try_from(rustix::net::getsockname(fd).unwrap()).unwrap());
        let ports: HashSet<_> =
            ports.inspect(|from| assert_eq!(from.ip(), source)).map(|from| from.port()).collect();
        // One device has the other port of the range; the system has chosen ports for the rest.
        assert_eq!(ports.len(), 3);
        assert!(!ports.contains(&taken));
    }
}
