//! A RabbitMQ of its own that speaks MQTT (scripts/rabbitmq/session.sh).

use std::fs;
use std::net::{SocketAddr, TcpListener};

use anyhow::{Context, Result};

use super::family::Family;
use super::place::descriptors;
use crate::bench::Bench;
use crate::bench::process::command;

/// It is ended, by its process ids, when this goes out of scope; should this program be killed, it ends with its standard input.
pub struct RabbitMq {
    _session: Family,
    /// Where it speaks MQTT.
    pub address: SocketAddr,
    /// `RabbitMQ 3.10.8`.
    pub version: String,
}

impl RabbitMq {
    /// Starts it, and waits until it serves.
    pub fn start(bench: &Bench) -> Result<RabbitMq> {
        let folder = bench.folder.path().join("rabbitmq");
        fs::create_dir_all(&folder)?;
        let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr())?;
        fs::write(folder.join("plugins"), "[rabbitmq_mqtt].\n")?;
        fs::write(folder.join("rabbitmq.conf"), configuration(address))?;
        let mut start = command("prlimit");
        // Not as `place` does: it is to end in order with its standard input, rather than be killed.
        start
            .arg(format!("--nofile={}", descriptors()?))
            .arg(bench.repository.join("scripts/rabbitmq/session.sh"));
        let name = format!("beamtune_bench_{}", std::process::id());
        start.arg(&folder).arg(name).arg(free_port()?.to_string());
        let mut session = Family::start(&mut start)?;
        if let Err(error) = session.first.expect_line("ready ") {
            return Err(match session.first.ended()? {
                Some(_) => session.first.failure(),
                None => error,
            });
        }
        Ok(RabbitMq { _session: session, address, version: version()? })
    }
}

/// A line in the log for each connection would be most of its work. 15,000 connections come sooner than it takes them up.
fn configuration(address: SocketAddr) -> String {
    format!(
        "mqtt.listeners.tcp.1 = {address}\nmqtt.tcp_listen_options.backlog = 4096\nlog.connection.level = error\n"
    )
}

/// A port for AMQP; RabbitMQ takes the one 20,000 above it for its distribution.
fn free_port() -> Result<u16> {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    // Below those that the system gives to connections, both of them.
    let found = (8_000..12_000).find(|port| is_free(*port) && is_free(*port + 20_000));
    found.context("no port is free for RabbitMQ")
}

/// The folder that it is installed in names it.
fn version() -> Result<String> {
    let folders = fs::read_dir("/usr/lib/rabbitmq/lib").context("RabbitMQ is not installed")?;
    let names = folders.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut versions = names.filter_map(|name| name.strip_prefix("rabbitmq_server-").map(str::to_owned));
    Ok(format!("RabbitMQ {}", versions.next().context("RabbitMQ is not installed")?))
}
