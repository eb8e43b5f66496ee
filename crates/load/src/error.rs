use std::io;

use thiserror::Error;

/// Why a load cannot be put on.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A call of the system that ought to succeed did not.
    #[error("{what}: {source}")]
    System {
        /// The call.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// A part of the load could not go on.
    #[error("{words}")]
    Part {
        /// What it said.
        words: String,
    },
    /// There are not enough descriptors for so many devices.
    #[error(
        "{devices} connections need {needed} descriptors, and the limit is {limit}: raise it (`ulimit -n {needed}`, LimitNOFILE= of a unit) or ask for fewer"
    )]
    Descriptors {
        /// Connections of one process.
        devices: u64,
        /// What it needs.
        needed: u64,
        /// What it may have.
        limit: u64,
    },
    /// There are not enough local ports for so many connections to one address.
    #[error(
        "{devices} connections from one address to one address need as many local ports, and there are {ports} (net.ipv4.ip_local_port_range): give {sources} addresses of this host with --source, or ask for fewer"
    )]
    Ports {
        /// Connections.
        devices: u64,
        /// Local ports of one address.
        ports: u64,
        /// Addresses that would do.
        sources: u64,
    },
}
