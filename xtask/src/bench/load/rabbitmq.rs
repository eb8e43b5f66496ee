//! Starts a private RabbitMQ with MQTT (scripts/rabbitmq/session.sh).

use std::fs;
use std::net::{SocketAddr, TcpListener};

use anyhow::{Context, Result};

use super::placement::descriptors;
use super::process_tree::ProcessTree;
use crate::bench::Bench;
use crate::bench::process::command;

/// A broker that is killed when dropped. If this program is killed, the broker ends because its standard input closes.
pub struct RabbitMq {
    _session: ProcessTree,
    /// Address of the MQTT listener.
    pub address: SocketAddr,
    /// Name and version: `RabbitMQ 3.10.8`.
    pub version: String,
}

impl RabbitMq {
    /// Starts the broker and waits until it is ready.
    pub fn start(bench: &Bench) -> Result<RabbitMq> {
        let folder = bench.folder.path().join("rabbitmq");
        fs::create_dir_all(&folder)?;
        let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr())?;
        fs::write(folder.join("plugins"), "[rabbitmq_mqtt].\n")?;
        fs::write(folder.join("rabbitmq.conf"), configuration(address))?;
        let mut start = command("prlimit");
        // setpriv, which `placement` uses, is not used here: the session must stop the broker instead of being killed.
        start
            .arg(format!("--nofile={}", descriptors()?))
            .arg(bench.repository.join("scripts/rabbitmq/session.sh"));
        let name = format!("beamtune_bench_{}", std::process::id());
        start.arg(&folder).arg(name).arg(free_port()?.to_string());
        let mut session = ProcessTree::start(&mut start)?;
        if let Err(error) = session.first.expect_line("ready ") {
            return Err(match session.first.exit_status()? {
                Some(_) => session.first.failure(),
                None => error,
            });
        }
        Ok(RabbitMq { _session: session, address, version: version()? })
    }
}

/// Connections are not logged, because that would be most of the work. The backlog is for 15,000 connections, which arrive faster than the
/// broker accepts them.
fn configuration(address: SocketAddr) -> String {
    format!(
        "mqtt.listeners.tcp.1 = {address}\nmqtt.tcp_listen_options.backlog = 4096\nlog.connection.level = error\n"
    )
}

/// Returns a free port for AMQP. RabbitMQ's distribution uses the port number that is 20,000 higher.
fn free_port() -> Result<u16> {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    // Both ports are below the range of ephemeral ports.
    let found = (8_000..12_000).find(|port| is_free(*port) && is_free(*port + 20_000));
    found.context("no port is free for RabbitMQ")
}

/// Returns the version, from the name of the installation folder.
fn version() -> Result<String> {
    let folders = fs::read_dir("/usr/lib/rabbitmq/lib").context("RabbitMQ is not installed")?;
    let names = folders.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut versions = names.filter_map(|name| name.strip_prefix("rabbitmq_server-").map(str::to_owned));
    Ok(format!("RabbitMQ {}", versions.next().context("RabbitMQ is not installed")?))
}
