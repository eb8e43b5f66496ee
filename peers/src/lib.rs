//! Shared code of the peers: command line, limit of open files, and exit with the parent process.
//!
//! A client gets the address of its target and a number of connections. It opens all of them, then sends messages of
//! [`MESSAGE_BYTES`] on each, the next one after the echo of the previous one. It measures nothing: the server counts
//! its messages, and the benchmark reads its CPU time. It exits at the end of its standard input.

use std::future::Future;
use std::io::Read;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Payload size of each message.
pub const MESSAGE_BYTES: usize = 64;

/// The arguments of a client.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    /// The target.
    pub address: SocketAddr,
    /// The number of connections to open.
    pub connections: usize,
    /// MQTT's quality of service.
    pub qos: u8,
}

impl Task {
    /// Parses `ADDRESS CONNECTIONS [QOS]`.
    pub fn from_arguments() -> Result<Task> {
        let mut arguments = std::env::args().skip(1);
        let mut next = |what: &str| arguments.next().with_context(|| format!("missing argument: {what}"));
        let address = next("address of the target")?.parse().context("invalid address")?;
        let connections = next("number of connections")?.parse().context("invalid number of connections")?;
        let qos = next("QoS").map_or(Ok(0), |qos| qos.parse()).context("invalid QoS")?;
        Ok(Task { address, connections, qos })
    }
}

/// Runs a client in one thread, like the load generator that it is compared with.
pub fn run(client: impl Future<Output = Result<()>>) -> Result<()> {
    raise_descriptors();
    std::thread::spawn(exit_with_input);
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(client)
}

/// Raises the limit of open files to its maximum.
pub fn raise_descriptors() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // If this fails, opening the connections reports the missing descriptors.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Exits when the other end of the standard input is closed.
fn exit_with_input() {
    // Exits after an error as well.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0);
}
