//! Where a scenario's targets are, and whether anybody is there: asked before the start, so that a wrong name is not a load of
//! errors.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Result, bail};
use beamtune_load::program::Plan;
use beamtune_load::scenario::{Scenario, Target};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

/// How long each address of a target may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// The address of each host and port.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Addresses(Vec<(String, u16, SocketAddr)>);

impl Addresses {
    /// Resolves the targets of a scenario, and takes of each the first address that accepts a connection.
    pub fn find(scenario: &Scenario) -> Result<Self> {
        let targets = scenario.targets().into_iter();
        let found =
            targets.map(|target| Ok((target.host.clone(), target.port, find(&target.host, target.port)?)));
        found.collect::<Result<_>>().map(Self)
    }

    /// The address of a target; that of nobody for one that was not asked for.
    pub fn of(&self, target: &Target) -> SocketAddr {
        let found = self.0.iter().find(|(host, port, _)| *host == target.host && *port == target.port);
        found.map_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)), |(_, _, address)| *address)
    }
}

fn find(host: &str, port: u16) -> Result<SocketAddr> {
    let addresses: Vec<SocketAddr> = match (host, port).to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(error) => bail!("the name {host} cannot be resolved: {error}"),
    };
    let mut last = None;
    for address in &addresses {
        match TcpStream::connect_timeout(address, PATIENCE) {
            Ok(_) => return Ok(*address),
            Err(error) => last = Some((address, error)),
        }
    }
    match last {
        None => bail!("the name {host} has no address"),
        Some((address, error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            bail!("nothing listens at {address} (connection refused): start the target, or name its port")
        }
        Some((address, error)) => bail!("{address} does not answer: {error}"),
    }
}

/// Agrees upon TLS once with each target that is to speak it: a certificate that is not trusted is said here, and not once for
/// each device.
pub fn greet(plan: &Plan) -> Result<()> {
    for kind in &plan.kinds {
        let endpoint = &kind.endpoint;
        if let Some(Err(why)) =
            endpoint.tls.as_ref().map(|tls| beamtune_load::tls::greet(endpoint.address, tls, PATIENCE))
        {
            bail!("no TLS with {}: {why}", endpoint.address);
        }
    }
    Ok(())
}

/// The certificates that this system trusts, where its distribution keeps them.
pub fn system_trust() -> Vec<CertificateDer<'static>> {
    rustls_native_certs::load_native_certs().certs
}
