use std::io;
use std::net::{IpAddr, SocketAddr};

use thiserror::Error;

use crate::scenario::Faults;

/// Why a load test cannot run.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A system call failed.
    #[error("{what}: {cause}")]
    System {
        /// The system call, or what could not be done.
        what: &'static str,
        /// The reason. Not named `source`, because the message includes it.
        cause: io::Error,
    },
    /// A thread or process of the load generator failed.
    #[error("{words}")]
    Part {
        /// Error message of the thread or process.
        words: String,
    },
    /// Too few file descriptors for the devices.
    #[error(
        "{devices} connections need {needed} file descriptors per process, and the limit is {limit}: raise it (`ulimit -n {needed}`, or LimitNOFILE= in a systemd unit), or use fewer"
    )]
    Descriptors {
        /// Connections of all processes.
        devices: u64,
        /// Descriptors that each process needs.
        needed: u64,
        /// Limit on descriptors per process.
        limit: u64,
    },
    /// The system-wide limit on open files is too low.
    #[error(
        "{devices} connections are {devices} open files, and {open} of {max} files are already open on this system: raise the limit (`sysctl fs.file-max={needed}`), or use fewer"
    )]
    OpenFiles {
        /// Connections of all processes.
        devices: u64,
        /// Files that are open.
        open: u64,
        /// System-wide limit.
        max: u64,
        /// A limit that would suffice.
        needed: u64,
    },
    /// Too few local ports for the connections to one address.
    #[error(
        "{devices} connections need as many local ports, but only {ports} are available (net.ipv4.ip_local_port_range): give {sources} addresses of this host with --source, or use fewer connections"
    )]
    Ports {
        /// Connections.
        devices: u64,
        /// Local ports of the available addresses.
        ports: u64,
        /// Number of addresses that would suffice.
        sources: u64,
    },
    /// The file of the scenario cannot be read.
    #[error(
        "cannot read the scenario {file}; if it is a URL, write it with its scheme: http://127.0.0.1:8080/: {cause}"
    )]
    ScenarioFile {
        /// The file, as the user wrote it.
        file: String,
        /// The reason.
        cause: io::Error,
    },
    /// The host name of a target cannot be resolved.
    #[error("cannot resolve {host}: {why}")]
    Unresolved {
        /// The host name.
        host: String,
        /// The reason.
        why: String,
    },
    /// Nothing listens on a target's port.
    #[error("connection refused by {address}: start the target, or correct the port")]
    Refused {
        /// The target's address.
        address: SocketAddr,
    },
    /// A target accepts no connection.
    #[error("cannot connect to {address}: {cause}")]
    Unreachable {
        /// The target's address.
        address: SocketAddr,
        /// The reason.
        cause: io::Error,
    },
    /// The TLS handshake with a target failed.
    #[error("TLS handshake with {address} failed: {why}")]
    Handshake {
        /// The target's address.
        address: SocketAddr,
        /// The reason, and what to do.
        why: String,
    },
    /// The scenario is invalid.
    #[error("{0}")]
    Scenario(#[from] Faults),
    /// An argument of a load without a scenario is wrong.
    #[error("{what} {given}: {why}")]
    Quick {
        /// The argument: `target`, `rate`, ….
        what: &'static str,
        /// The given value.
        given: String,
        /// What is wrong with it, and what would be correct.
        why: String,
    },
    /// A source address and the target have different IP versions.
    #[error(
        "devices.{kind}: {source_ip} cannot connect to {address}; give sources of the target's IP version"
    )]
    SourceFamily {
        /// Name of the group of devices.
        kind: String,
        /// The source address.
        source_ip: IpAddr,
        /// The target's address.
        address: SocketAddr,
    },
    /// A step or a protocol option is not possible here.
    #[error("devices.{kind}: {what}: {why}")]
    Unfit {
        /// Name of the group of devices.
        kind: String,
        /// The step's name, or the option.
        what: String,
        /// The reason, which completes the message.
        why: String,
    },
}
