//! Resolves a scenario's targets and connects to each before the load starts, so that a wrong name causes one error instead of
//! thousands.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use crate::program::Plan;
use crate::scenario::{Scenario, Target};
use crate::{LoadError, limits, tls};

/// Timeout for each address of a target.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The address of each host and port.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Addresses(Vec<(String, u16, SocketAddr)>);

impl Addresses {
    /// Resolves each target of a scenario to the first address that accepts a connection.
    ///
    /// # Errors
    /// If a target cannot be resolved, or accepts no connections.
    pub fn find(scenario: &Scenario) -> Result<Self, LoadError> {
        let targets = scenario.targets().into_iter();
        let found =
            targets.map(|target| Ok((target.host.clone(), target.port, find(&target.host, target.port)?)));
        found.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the address of a target; 0.0.0.0:0 if it was not resolved.
    fn of(&self, target: &Target) -> SocketAddr {
        let found = self.0.iter().find(|(host, port, _)| *host == target.host && *port == target.port);
        found.map_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)), |(_, _, address)| *address)
    }

    /// Compiles a scenario for these addresses. Adds source addresses if one address has too few ports.
    ///
    /// # Errors
    /// Those of [`Scenario::compile`], and [`LoadError::Ports`].
    pub fn compile(&self, scenario: &Scenario, begin_ns: u64) -> Result<Plan, LoadError> {
        let mut plan = scenario.compile(begin_ns, &|target| self.of(target), &system_trust)?;
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
        let ports = limits::local_ports(&range);
        // Kinds with the same target address share its ports.
        for index in 0..plan.kinds.len() {
            let address = plan.kinds[index].endpoint.address;
            let devices = plan
                .kinds
                .iter()
                .filter(|kind| kind.endpoint.address == address)
                .map(|kind| kind.devices)
                .sum();
            let endpoint = &mut plan.kinds[index].endpoint;
            endpoint.sources = limits::sources(address, devices, &endpoint.sources, &ports)?.into();
        }
        Ok(plan)
    }
}

fn find(host: &str, port: u16) -> Result<SocketAddr, LoadError> {
    let unresolved = |why: String| LoadError::Unresolved { host: host.to_owned(), why };
    let addresses = (host, port).to_socket_addrs().map_err(|error| unresolved(error.to_string()))?;
    let mut last = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(_) => return Ok(address),
            Err(error) => last = Some((address, error)),
        }
    }
    Err(match last {
        None => unresolved("no address".to_owned()),
        Some((address, error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            LoadError::Refused { address }
        }
        Some((address, cause)) => LoadError::Unreachable { address, cause },
    })
}

/// Performs a TLS handshake with each target that uses TLS, so that an untrusted certificate is reported once instead of by each device.
///
/// # Errors
/// [`LoadError::Handshake`].
pub fn check_tls(plan: &Plan) -> Result<(), LoadError> {
    for kind in &plan.kinds {
        let address = kind.endpoint.address;
        if let Some(tls) = &kind.endpoint.tls {
            tls::check_handshake(address, tls, TIMEOUT)
                .map_err(|why| LoadError::Handshake { address, why })?;
        }
    }
    Ok(())
}

/// Returns the certificates that this system trusts.
fn system_trust() -> Vec<CertificateDer<'static>> {
    rustls_native_certs::load_native_certs().certs
}
