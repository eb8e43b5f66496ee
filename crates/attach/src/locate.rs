//! From a target to an address: names are resolved and EPMD is asked, each within a deadline.
//!
//! A host has addresses of both families as a rule, and not all of them lead to the node: an address that drops packets
//! must not keep the others from being tried.

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

/// Where the name of this host stands on Linux.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// Where a node of this host is reached. One that listens on all addresses may leave out a family.
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Where a node is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Which node.
    pub target: Target,
    /// EPMD's port.
    pub epmd_port: u16,
    /// Where EPMD and the node listen.
    pub network: Network,
}

/// Where a node is, and which one must be found there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// Where the addresses are.
    pub network: Network,
    /// The addresses to try, in order; never empty.
    pub addresses: Vec<SocketAddr>,
    /// What the node must call itself.
    pub expected: Expected,
    /// What our own name has behind the `@`.
    pub host: String,
    /// The node as error messages call it.
    pub label: String,
}

/// Finds out where a target in our own network is. EPMD is asked at `epmd_port`, unless the target is an address.
pub fn locate(target: &Target, epmd_port: u16, timeout: Duration) -> Result<Located, AttachError> {
    Route { target: target.clone(), epmd_port, network: Network::Ours }.locate(timeout)
}

impl Route {
    /// Finds out where it leads to.
    pub fn locate(&self, timeout: Duration) -> Result<Located, AttachError> {
        let deadline = Deadline::after(timeout);
        let network = &self.network;
        let label = match network {
            Network::Ours => self.target.to_string(),
            Network::Of(namespace) => format!("{} in the network of process {}", self.target, namespace.pid),
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
            // A node without a host in its name is meant to be here, whatever this host's name resolves
            // to.
            Expected::Name(_) => LOOPBACK.map(|address| SocketAddr::new(address, self.epmd_port)).to_vec(),
            _ => resolve(network, &host, self.epmd_port, deadline)?,
        };
        let ask = |address, deadline| ask_for_port(network, address, name, deadline);
        let (epmd, answer) = first(&asked, deadline, ask)?;
        match answer {
            PortAnswer::Port { highest_version, .. } if highest_version < 6 => {
                Err(AttachError::TooOld { peer: label, missing: "its handshake is older than version 6" })
            }
            PortAnswer::Port { port, .. } => Ok(Located {
                network: network.clone(),
                // The node may listen at another of the host's addresses than the EPMD that has answered.
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

/// All nodes that the EPMD of a host knows.
pub fn registered(host: &str, epmd_port: u16, timeout: Duration) -> Result<Vec<Registered>, AttachError> {
    registered_in(&Network::Ours, host, epmd_port, timeout)
}

/// The same in some network.
pub fn registered_in(
    network: &Network,
    host: &str,
    epmd_port: u16,
    timeout: Duration,
) -> Result<Vec<Registered>, AttachError> {
    let deadline = Deadline::after(timeout);
    let addresses = resolve(network, host, epmd_port, deadline)?;
    let ask = |address, deadline| ask_for_names(network, address, deadline);
    Ok(first(&addresses, deadline, ask)?.1)
}

/// What the first address says that says anything. Otherwise the last one's error; if there is no EPMD at any of them,
/// that with all of them.
fn first<T>(
    addresses: &[SocketAddr],
    deadline: Deadline,
    mut ask: impl FnMut(SocketAddr, Deadline) -> Result<T, AttachError>,
) -> Result<(SocketAddr, T), AttachError> {
    let mut last = AttachError::UnknownHost { host: String::new(), reason: "it has no address".to_owned() };
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
        None if complete => Err("the answer breaks off"),
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

/// Puts a question to EPMD, and reads until `parse` has what it needs; it is told when no more will come.
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
    let garbled = |what| AttachError::EpmdGarbled { address: address.to_string(), what };
    let socket = &network.connect(&address, deadline.left())?.map_err(failed(Step::Connect))?;
    let mut stream = Timed { socket, deadline };
    stream.write_all(request).map_err(down)?;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let length = stream.read(&mut piece).map_err(down)?;
        answer.extend_from_slice(piece.get(..length).unwrap_or_default());
        if answer.len() > epmd::MOST_BYTES {
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

/// The addresses of a host, as they are called in that network.
fn resolve(
    network: &Network,
    host: &str,
    port: u16,
    deadline: Deadline,
) -> Result<Vec<SocketAddr>, AttachError> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    if *network != Network::Ours {
        // What a name means there only its own resolver knows, but a node that is looked for in a network is meant to
        // be where that begins.
        return Ok(LOOPBACK.map(|address| SocketAddr::new(address, port)).to_vec());
    }
    // The resolver knows no deadline, so it works in a thread that may be left behind.
    let (sender, receiver) = mpsc::channel();
    let asked = host.to_owned();
    let unknown = |reason| AttachError::UnknownHost { host: printable(host), reason };
    let resolver = thread::Builder::new().spawn(move || {
        let found = (asked.as_str(), port).to_socket_addrs();
        // Nobody listens any more if the deadline has passed.
        let _ = sender.send(found.map(Vec::from_iter));
    });
    resolver.map_err(|error| unknown(error.to_string()))?;
    let mut addresses = Vec::new();
    let reason = match receiver.recv_timeout(deadline.left()) {
        Ok(Ok(found)) => {
            addresses = found;
            "it has no address".to_owned()
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
    // A host that cannot resolve its own name (a container, a laptop off the net) still has its nodes on it,
    // and one that can may have an EPMD that listens on the loopback interface only, and of one family only.
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

/// This host's name up to the first dot, as short node names have it.
fn own_host() -> String {
    let name = std::fs::read_to_string(HOST_NAME).unwrap_or_default();
    match name.trim().split('.').next() {
        Some(short) if !short.is_empty() => short.to_owned(),
        _ => "localhost".to_owned(),
    }
}
