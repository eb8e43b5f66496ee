//! A WebSocket echo server (peers/src/bin/ws_echo.rs) in one or more processes.

use std::net::SocketAddr;

use anyhow::{Context, Result};

use super::exchange::{Counts, Target};
use super::peers::Peers;
use super::placement::on_core;
use crate::bench::process::Running;

/// Server processes that share a port; they are killed when dropped.
pub struct Echo {
    processes: Vec<Running>,
    /// Address of the listener.
    pub address: SocketAddr,
}

impl Echo {
    /// Starts the server on a core.
    pub fn start(peers: &Peers, core: usize, processes: usize) -> Result<Echo> {
        let mut port = 0;
        let mut started = Vec::new();
        for _ in 0..processes.max(1) {
            let mut command = on_core(core, peers.program("ws_echo"))?;
            let mut process = Running::start(command.arg(port.to_string()))?;
            port = process.expect_line("port ")?.parse().context("the echo server printed no port")?;
            started.push(process);
        }
        Ok(Echo { processes: started, address: SocketAddr::from(([127, 0, 0, 1], port)) })
    }
}

impl Target for Echo {
    fn counts(&mut self) -> Result<Counts> {
        let mut all = Counts::default();
        for process in &mut self.processes {
            process.write_line("")?;
            let (messages, connections) =
                parse(&process.expect_line("seen ")?).context("the echo server printed no counters")?;
            all.received += messages;
            // The server echoes a message before it counts it.
            all.sent += messages;
            all.connections += connections;
        }
        Ok(all)
    }
}

fn parse(line: &str) -> Option<(u64, usize)> {
    let (messages, connections) = line.split_once(' ')?;
    Some((messages.parse().ok()?, connections.parse().ok()?))
}
