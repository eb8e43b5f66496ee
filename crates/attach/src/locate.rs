//! Finds the address of a target: resolves host names and queries EPMD, within a deadline.
//!
//! A host usually has IPv4 and IPv6 addresses, and the node may be reachable at only some of them. If packets to one address are
//! dropped, there must be time left to try the others.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::deadline::{Deadline, Timed, is_timeout};
use crate::epmd::{self, PortAnswer, Registered};
use crate::error::{AttachError, Step, printable};
use crate::handshake::Expected;
use crate::network::Network;
use crate::target::Target;

/// File with this host's name on Linux.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// Addresses of a node on this host. A node that listens on all addresses may do so in only one address family.
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Everything that is needed to find a node's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The node.
    pub target: Target,
    /// EPMD's port.
    pub epmd_port: u16,
    /// The network namespace in which EPMD and the node listen.
    pub network: Network,
}

/// The addresses of a node, and its expected name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The network namespace of the addresses.
    pub network: Network,
    /// The addresses to try, in order; never empty.
    pub addresses: Vec<SocketAddr>,
    /// The name that the node must have.
    pub expected: Expected,
    /// The host part of our node name.
    pub host: String,
    /// The node's name in error messages.
    pub label: String,
}

/// Finds the address of a target in our own network namespace. Queries EPMD at `epmd_port`, unless the target is an address.
pub fn locate(target: &Target, epmd_port: u16, timeout: Duration) -> Result<Located, AttachError> {
    Route { target: target.clone(), epmd_port, network: Network::Own }.locate(timeout)
}

impl Route {
    /// Finds the node's address.
    pub fn locate(&self, timeout: Duration) -> Result<Located, AttachError> {
        let deadline = Deadline::after(timeout);
        let network = &self.network;
        let label = match network {
            Network::Own => self.target.to_string(),
            Network::Other(namespace) => {
                format!("{} in the network of process {}", self.target, namespace.pid)
            }
        };
        match &self.target {
            Target::Address { host, port } => Ok(Located {
                network: network.clone(),
                addresses: resolve(network, host, *port, deadline)?,
                expected: Expected::Any,
                host: host.clone(),
                label,
            }),
            Target::Node { name, host } => self.ask_epmd(name, host.as_deref(), label, deadline),
        }
    }

    fn ask_epmd(
        &self,
        name: &str,
        host: Option<&str>,
        label: String,
        deadline: Deadline,
    ) -> Result<Located, AttachError> {
        let network = &self.network;
        let (expected, host) = match host {
            Some(host) => (Expected::FullName(self.target.to_string()), host.to_owned()),
            None => (Expected::Name(name.to_owned()), own_host()),
        };
        let asked = match expected {
            // A target without a host part is on this host, regardless of what this host's name resolves to.
            Expected::Name(_) => LOOPBACK.map(|address| SocketAddr::new(address, self.epmd_port)).to_vec(),
            _ => resolve(network, &host, self.epmd_port, deadline)?,
        };
        let ask = |address, deadline| ask_for_port(network, address, name, deadline);
        let (epmd, answer) = first_answer(&asked, deadline, ask)?;
        match answer {
            PortAnswer::Port { highest_version, .. } if highest_version < 6 => {
                Err(AttachError::TooOld { peer: label, missing: "no distribution handshake version 6" })
            }
            PortAnswer::Port { port, .. } => Ok(Located {
                network: network.clone(),
                // The node may listen at an address other than that of the EPMD that answered.
                addresses: [epmd]
                    .iter()
                    .chain(asked.iter().filter(|other| **other != epmd))
                    .map(|address| SocketAddr::new(address.ip(), port))
                    .collect(),
                label: format!("{label} (at {})", SocketAddr::new(epmd.ip(), port)),
                expected,
                host,
            }),
            PortAnswer::Unknown => {
                let known = ask_for_names(network, epmd, deadline).unwrap_or_default();
                Err(AttachError::NoSuchNode {
                    name: name.to_owned(),
                    address: epmd.to_string(),
                    known: known.into_iter().map(|node| node.name).collect(),
                })
            }
        }
    }
}

/// Returns all nodes registered with a host's EPMD.
pub fn registered(host: &str, epmd_port: u16, timeout: Duration) -> Result<Vec<Registered>, AttachError> {
    registered_in(&Network::Own, host, epmd_port, timeout)
}

/// As [`registered`], in the given network namespace.
pub fn registered_in(
    network: &Network,
    host: &str,
    epmd_port: u16,
    timeout: Duration,
) -> Result<Vec<Registered>, AttachError> {
    let deadline = Deadline::after(timeout);
    let addresses = resolve(network, host, epmd_port, deadline)?;
    let ask = |address, deadline| ask_for_names(network, address, deadline);
    Ok(first_answer(&addresses, deadline, ask)?.1)
}

/// Returns the first answer from any of the addresses. If all fail, returns the last error; if no EPMD listens at any of them,
/// returns an error that lists all addresses.
fn first_answer<T>(
    addresses: &[SocketAddr],
    deadline: Deadline,
    mut ask: impl FnMut(SocketAddr, Deadline) -> Result<T, AttachError>,
) -> Result<(SocketAddr, T), AttachError> {
    let mut last = AttachError::UnknownHost { host: String::new(), reason: "no address".to_owned() };
    let (mut down, mut reasons) = (Vec::new(), Vec::new());
    for (index, &address) in addresses.iter().enumerate() {
        match ask(address, deadline.before_others(addresses.len() - index - 1)) {
            Ok(answer) => return Ok((address, answer)),
            Err(AttachError::EpmdDown { address, reason }) => {
                down.push(address);
                if !reasons.contains(&reason) {
                    reasons.push(reason);
                }
            }
            Err(error) => last = error,
        }
    }
    if !down.is_empty() && down.len() == addresses.len() {
        last = AttachError::EpmdDown { address: down.join(" or "), reason: reasons.join("; ") };
    }
    Err(last)
}

fn ask_for_port(
    network: &Network,
    address: SocketAddr,
    name: &str,
    deadline: Deadline,
) -> Result<PortAnswer, AttachError> {
    let request = epmd::port_request(name);
    ask(network, address, &request, deadline, |answer, complete| match epmd::parse_port(answer)? {
        None if complete => Err("the answer is truncated"),
        answer => Ok(answer),
    })
}

fn ask_for_names(
    network: &Network,
    address: SocketAddr,
    deadline: Deadline,
) -> Result<Vec<Registered>, AttachError> {
    ask(network, address, &epmd::names_request(), deadline, |answer, complete| {
        if complete { epmd::parse_names(answer).map(Some) } else { Ok(None) }
    })
}

/// Sends a request to EPMD and reads until `parse` returns a value. The second argument of `parse` is true once the answer is
/// complete.
fn ask<T>(
    network: &Network,
    address: SocketAddr,
    request: &[u8],
    deadline: Deadline,
    parse: impl Fn(&[u8], bool) -> Result<Option<T>, &'static str>,
) -> Result<T, AttachError> {
    let peer = || format!("EPMD at {address}");
    let failed = |step| {
        move |error: std::io::Error| {
            if is_timeout(&error) {
                AttachError::TimedOut { step, peer: peer(), after: deadline.given }
            } else {
                AttachError::EpmdDown { address: address.to_string(), reason: error.to_string() }
            }
        }
    };
    let down = failed(Step::Epmd);
    let garbled = |what| AttachError::NotEpmd { address: address.to_string(), what };
    let socket = &network.connect(&address, deadline.left())?.map_err(failed(Step::Connect))?;
    let mut stream = Timed { socket, deadline };
    stream.write_all(request).map_err(down)?;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let length = stream.read(&mut piece).map_err(down)?;
        answer.extend_from_slice(piece.get(..length).unwrap_or_default());
        if answer.len() > epmd::MAX_ANSWER_BYTES {
            return Err(garbled("the answer does not end"));
        }
        if let Some(parsed) = parse(&answer, length == 0).map_err(garbled)? {
            return Ok(parsed);
        }
        if deadline.passed() {
            return Err(down(std::io::ErrorKind::TimedOut.into()));
        }
    }
}

/// Returns the addresses of a host in the network namespace.
fn resolve(
    network: &Network,
    host: &str,
    port: u16,
    deadline: Deadline,
) -> Result<Vec<SocketAddr>, AttachError> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    if *network != Network::Own {
        // Only the namespace's own resolver knows its host names. But a node in another namespace is expected to listen on its
        // loopback interface.
        return Ok(LOOPBACK.map(|address| SocketAddr::new(address, port)).to_vec());
    }
    // The resolver has no timeout, so it runs on a thread that may be abandoned.
    let (sender, receiver) = mpsc::channel();
    let asked = host.to_owned();
    let unknown = |reason| AttachError::UnknownHost { host: printable(host), reason };
    let resolver = thread::Builder::new().spawn(move || {
        let found = (asked.as_str(), port).to_socket_addrs();
        // The receiver is gone if the deadline has passed.
        let _ = sender.send(found.map(Vec::from_iter));
    });
    resolver.map_err(|error| unknown(error.to_string()))?;
    let mut addresses = Vec::new();
    let reason = match receiver.recv_timeout(deadline.left()) {
        Ok(Ok(found)) => {
            addresses = found;
            "no address".to_owned()
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => {
            return Err(AttachError::TimedOut {
                step: Step::Resolve,
                peer: host.to_owned(),
                after: deadline.given,
            });
        }
    };
    // A host that cannot resolve its own name (a container, an offline laptop) may still run nodes. On a host that can, EPMD may
    // listen only on the loopback interface, and only in one address family.
    if host == "localhost" || host == own_host() {
        for loopback in LOOPBACK.map(|address| SocketAddr::new(address, port)) {
            if !addresses.contains(&loopback) {
                addresses.push(loopback);
            }
        }
    }
    if addresses.is_empty() {
        return Err(unknown(reason));
    }
    Ok(addresses)
}

/// Returns this host's name up to the first dot, as in short node names.
fn own_host() -> String {
    let name = std::fs::read_to_string(HOST_NAME).unwrap_or_default();
    match name.trim().split('.').next() {
        Some(short) if !short.is_empty() => short.to_owned(),
        _ => "localhost".to_owned(),
    }
}
