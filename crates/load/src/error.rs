use std::io;

use thiserror::Error;

use crate::scenario::Faults;

/// Why a load cannot be put on.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A call of the system that ought to succeed did not.
    #[error("{what}: {cause}")]
    System {
        /// The call.
        what: &'static str,
        /// What it said. It is told in our words, so it is not told again as a source.
        cause: io::Error,
    },
    /// A part of the load could not go on.
    #[error("{words}")]
    Part {
        /// What it said.
        words: String,
    },
    /// There are not enough descriptors for so many devices.
    #[error(
        "{devices} connections need processes of {needed} descriptors, and the limit is {limit}: raise it (`ulimit -n {needed}`, LimitNOFILE= of a unit) or ask for fewer"
    )]
    Descriptors {
        /// Connections of all processes.
        devices: u64,
        /// What each process needs at least.
        needed: u64,
        /// What it may have.
        limit: u64,
    },
    /// The system may not have so many files open.
    #[error(
        "{devices} connections are as many open files, and of {most} that this system may have {open} are open: raise that (`sysctl fs.file-max={needed}`) or ask for fewer"
    )]
    OpenFiles {
        /// Connections of all processes.
        devices: u64,
        /// Files that are open.
        open: u64,
        /// The most there can be.
        most: u64,
        /// What would do.
        needed: u64,
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
    /// A scenario is not right.
    #[error("{0}")]
    Scenario(#[from] Faults),
    /// What the quick form was given is not right.
    #[error("{what} {given}: {why}")]
    Quick {
        /// Which of it: `target`, `rate`, ….
        what: &'static str,
        /// What was given.
        given: String,
        /// What about it is wrong, and what would be right.
        why: String,
    },
    /// A device has to connect from an address that cannot reach the target's.
    #[error(
        "devices.{kind}: {source_ip} cannot connect to {address}; give sources of the target's IP version"
    )]
    SourceFamily {
        /// The kind of devices.
        kind: String,
        /// From where.
        source_ip: std::net::IpAddr,
        /// To where.
        address: std::net::SocketAddr,
    },
    /// What a step or a protocol's option says cannot be done.
    #[error("devices.{kind}: {what}: {why}")]
    Unfit {
        /// The kind of devices.
        kind: String,
        /// The step's name, or the option.
        what: String,
        /// A sentence's end that says why.
        why: String,
    },
}
