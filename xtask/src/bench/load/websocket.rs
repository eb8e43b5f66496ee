//! CPU time per echoed WebSocket message: ours compared with clients on fastwebsockets and tokio-tungstenite.

use std::net::SocketAddr;

use anyhow::Result;

use super::echo::Echo;
use super::exchange::{Contender, MESSAGE_BYTES, command_on, compare};
use super::peers::Peers;
use super::placement::Cores;
use crate::bench::figure::Figure;
use crate::bench::{Bench, or_not_measured};

/// Numbers of connections that are measured.
const SIZES: [usize; 2] = [100, 1_000];
/// Minimum ratio of our messages per CPU second to those of each peer.
const MIN_RATIO: f64 = 0.9;
/// Programs, and the crates that they use.
const PEERS: [(&str, &str); 2] =
    [("ws_fastwebsockets", "fastwebsockets"), ("ws_tungstenite", "tokio-tungstenite")];

/// Measures with all numbers of connections.
pub fn measure(bench: &Bench, peers: &Peers, cores: Cores) -> Result<Vec<Figure>> {
    let mut echo = Echo::start(peers, cores.server, 1)?;
    let mut figures = Vec::new();
    for connections in SIZES {
        let mut contenders = vec![Contender::ours(bench, cores, &scenario(echo.address, connections))?];
        for (program, package) in PEERS {
            let arguments = vec![echo.address.to_string(), connections.to_string()];
            contenders.push(Contender {
                name: peers.named(package)?,
                command: command_on(cores, peers.program(program), arguments),
                limit: MIN_RATIO,
            });
        }
        let what = format!("WebSocket messages echoed on {connections} connections");
        let mut random = bench.random(connections as u32);
        let compared = compare(bench, &mut echo, &contenders, connections, &what, &mut random);
        figures.extend(or_not_measured(&what, compared)?);
    }
    Ok(figures)
}

fn scenario(echo: SocketAddr, connections: usize) -> String {
    let message = "x".repeat(MESSAGE_BYTES);
    format!(
        "[load]\nfor = \"1h\"\n\n[devices.echo]\ncount = {connections}\ntarget = \"ws://{echo}/\"\n\
         steps = [{{ send = \"{message}\", as = \"binary\" }}, {{ expect = \"{message}\" }}]\n"
    )
}
