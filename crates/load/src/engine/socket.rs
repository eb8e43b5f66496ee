//! Sockets of devices, and what their errors mean.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::program::Endpoint;
use crate::tally::ErrorKind;

/// Ports that are tried before the system is asked for one.
const TRIES: u32 = 64;
/// From a device's port to that of its next connection: the last one may not be free yet (TIME_WAIT). A prime number, so that
/// it comes round to all of them.
const STRIDE: u64 = 10_007;

/// Begins to connect; the socket becomes writable when that has succeeded or failed. `connection` differs for each of a
/// device's.
pub fn connect(endpoint: &Endpoint, device: u64, connection: u32) -> Result<OwnedFd, Errno> {
    let sources = endpoint.sources.len() as u64;
    if sources == 0 {
        return connect_from(None, endpoint.address);
    }
    let source = &endpoint.sources[(device % sources) as usize];
    let connect = |port| connect_from(Some(SocketAddr::new(source.address, port)), endpoint.address);
    if let Some(ports) = &source.ports {
        for attempt in 0..TRIES {
            match connect(port(ports, device / sources, connection.wrapping_add(attempt))) {
                Err(Errno::ADDRINUSE | Errno::ADDRNOTAVAIL) => {}
                connected => return connected,
            }
        }
    }
    connect(0)
}

/// Devices of one source have different ones, as long as there are no more of them than ports.
fn port(ports: &RangeInclusive<u16>, device: u64, connection: u32) -> u16 {
    let place = (device + u64::from(connection) * STRIDE) % ports.len().max(1) as u64;
    ports.start() + place as u16
}

fn connect_from(source: Option<SocketAddr>, target: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    if let Some(source) = source {
        // A port may serve connections to different targets; whether it can is told by connecting.
        sockopt::set_socket_reuseaddr(&fd, true)?;
        rustix::net::bind(&fd, &source)?;
    }
    match rustix::net::connect(&fd, &target) {
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::{IpAddr, TcpListener};
    use std::sync::Arc;

    use super::*;
    use crate::program::Source;

    #[test]
    fn devices_have_ports_of_their_own_on_each_of_their_connections() {
        let ports = 100..=999;
        for connection in [0, 1, 12_345, u32::MAX] {
            let taken: HashSet<_> = (0..900).map(|device| port(&ports, device, connection)).collect();
            assert_eq!(taken.len(), 900);
            assert!(taken.iter().all(|port| ports.contains(port)));
        }
        assert_ne!(port(&ports, 7, 0), port(&ports, 7, 1));
    }

    #[test]
    fn a_port_that_is_taken_is_passed_over() {
        let target = TcpListener::bind("127.0.0.1:0").unwrap();
        let source: IpAddr = "127.0.0.2".parse().unwrap();
        // Nobody may share the port of one that listens.
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
        // One has the other port, and for the others the system has found one.
        assert_eq!(ports.len(), 3);
        assert!(!ports.contains(&taken));
    }
}
