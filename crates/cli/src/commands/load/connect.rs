//! Resolves a scenario's targets and connects to each before the load starts, so that a wrong name causes one error instead of
//! thousands.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Result, bail};
use beamtune_load::program::Plan;
use beamtune_load::scenario::{Scenario, Target};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

/// Timeout for each address of a target.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The address of each host and port.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Addresses(Vec<(String, u16, SocketAddr)>);

impl Addresses {
    /// Resolves each target of a scenario to the first address that accepts a connection.
    pub fn find(scenario: &Scenario) -> Result<Self> {
        let targets = scenario.targets().into_iter();
        let found =
            targets.map(|target| Ok((target.host.clone(), target.port, find(&target.host, target.port)?)));
        found.collect::<Result<_>>().map(Self)
    }

    /// Returns the address of a target; 0.0.0.0:0 if it was not resolved.
    pub fn of(&self, target: &Target) -> SocketAddr {
        let found = self.0.iter().find(|(host, port, _)| *host == target.host && *port == target.port);
        found.map_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)), |(_, _, address)| *address)
    }
}

fn find(host: &str, port: u16) -> Result<SocketAddr> {
    let addresses: Vec<SocketAddr> = match (host, port).to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(error) => bail!("cannot resolve {host}: {error}"),
    };
    let mut last = None;
    for address in &addresses {
        match TcpStream::connect_timeout(address, TIMEOUT) {
            Ok(_) => return Ok(*address),
            Err(error) => last = Some((address, error)),
        }
    }
    match last {
        None => bail!("cannot resolve {host}: no address"),
        Some((address, error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            bail!("connection refused by {address}: start the target, or correct the port")
        }
        Some((address, error)) => bail!("cannot connect to {address}: {error}"),
    }
}

/// Performs a TLS handshake with each target that uses TLS, so that an untrusted certificate is reported once instead of by each device.
pub fn check_tls(plan: &Plan) -> Result<()> {
    for kind in &plan.kinds {
        let endpoint = &kind.endpoint;
        if let Some(Err(why)) = endpoint
            .tls
            .as_ref()
            .map(|tls| beamtune_load::tls::check_handshake(endpoint.address, tls, TIMEOUT))
        {
            bail!("TLS handshake with {} failed: {why}", endpoint.address);
        }
    }
    Ok(())
}

/// Returns the certificates that this system trusts.
pub fn system_trust() -> Vec<CertificateDer<'static>> {
    rustls_native_certs::load_native_certs().certs
}
