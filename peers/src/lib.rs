//! What the peers share: their command line, how many connections they may have, and that they end with who started them.
//!
//! A client is called with the address of its target and a number of connections. It makes all of them, then sends
//! messages of [`MESSAGE_BYTES`] on each, the next one when the one before has come back, and measures nothing: what it
//! does, and its CPU, are counted by others. It ends with its standard input.

use std::future::Future;
use std::io::Read;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Of each message.
pub const MESSAGE_BYTES: usize = 64;

/// What a client is to do.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    /// Its target.
    pub address: SocketAddr,
    /// How many it makes.
    pub connections: usize,
    /// MQTT's quality of service.
    pub qos: u8,
}

impl Task {
    /// From `ADDRESS CONNECTIONS [QOS]`.
    pub fn of_arguments() -> Result<Task> {
        let mut arguments = std::env::args().skip(1);
        let mut next = |what: &str| arguments.next().with_context(|| format!("name {what}"));
        let address = next("the target's address")?.parse().context("the address is none")?;
        let connections = next("the number of connections")?.parse().context("the number is none")?;
        let qos = next("the QoS").map_or(Ok(0), |qos| qos.parse()).context("the QoS is none")?;
        Ok(Task { address, connections, qos })
    }
}

/// Runs a client in one thread: as the load generator does that it is compared with.
pub fn run(client: impl Future<Output = Result<()>>) -> Result<()> {
    raise_descriptors();
    std::thread::spawn(end_with_input);
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(client)
}

/// Takes as many descriptors as there may be.
pub fn raise_descriptors() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // If it is refused, too few are there, and that is said when they are missing.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Ends the process when nobody holds the other end of its standard input.
fn end_with_input() {
    // An error ends it as well.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0);
}
