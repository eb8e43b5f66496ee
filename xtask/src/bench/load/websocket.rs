//! What an echoed message of WebSocket costs: ours beside clients on fastwebsockets and on tokio-tungstenite.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::echo::Echo;
use super::exchange::{Contender, MESSAGE_BYTES, compare};
use super::peers::Peers;
use super::place::{Cores, on_core};
use super::tool::Tool;
use crate::bench::figure::Figure;
use crate::bench::{Bench, or_not_measured};

/// Connections.
const SIZES: [usize; 2] = [100, 1_000];
/// Of what each of them does.
const LEAST_RATIO: f64 = 0.9;
/// Programs, and the crates that they are made of.
const PEERS: [(&str, &str); 2] =
    [("ws_fastwebsockets", "fastwebsockets"), ("ws_tungstenite", "tokio-tungstenite")];

/// All sizes, one after the other.
pub fn measure(bench: &Bench, peers: &Peers, cores: Cores) -> Result<Vec<Figure>> {
    let mut echo = Echo::start(peers, cores.server, 1)?;
    let mut figures = Vec::new();
    for connections in SIZES {
        let mut contenders = vec![ours(bench, &echo, cores, connections)?];
        for (program, package) in PEERS {
            let (program, address) = (peers.program(program), echo.address);
            let command = move || {
                let mut command = on_core(cores.generator, &program)?;
                command.args([address.to_string(), connections.to_string()]);
                Ok(command)
            };
            contenders.push(Contender {
                name: peers.named(package)?,
                command: Box::new(command),
                limit: LEAST_RATIO,
            });
        }
        let what = format!("messages of WebSocket echoed on {connections} connections");
        let mut random = bench.random(connections as u32);
        let compared = compare(bench, &mut echo, &contenders, connections, &what, &mut random);
        figures.extend(or_not_measured(&what, compared)?);
    }
    Ok(figures)
}

fn ours<'a>(bench: &'a Bench, echo: &Echo, cores: Cores, connections: usize) -> Result<Contender<'a>> {
    let file = bench.folder.path().join("echo.toml");
    let message = "x".repeat(MESSAGE_BYTES);
    let text = format!(
        "[load]\nfor = \"1h\"\n\n[devices.echo]\ncount = {connections}\ntarget = \"ws://{}/\"\n\
         steps = [{{ send = \"{message}\", as = \"binary\" }}, {{ expect = \"{message}\" }}]\n",
        echo.address
    );
    fs::write(&file, text)?;
    Ok(Contender {
        name: Tool::ours(&bench.beamtune)?.to_string(),
        command: Box::new(move || load(&bench.beamtune, cores, &file)),
        limit: 1.0,
    })
}

/// `beamtune load` of a scenario, in one thread.
pub fn load(beamtune: &Path, cores: Cores, scenario: &Path) -> Result<Command> {
    let mut command = on_core(cores.generator, beamtune)?;
    command.args(["load", "--threads", "1"]).arg(scenario);
    Ok(command)
}
