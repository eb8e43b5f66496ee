//! A worker process, which runs a part of a load for the leading process: the one that the user started.

use std::io::{BufRead, ErrorKind, Read};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use beamtune_load::addresses::Addresses;
use beamtune_load::run::{Part, run_worker};
use beamtune_load::scenario::ScenarioText;
use beamtune_load::{LoadError, limits};
use serde::{Deserialize, Serialize};

/// The assignment of a worker: scenario, addresses and start time, which are the same for all workers, and its part of the load.
#[derive(Serialize, Deserialize)]
pub struct Order {
    pub name: String,
    pub text: String,
    pub folder: PathBuf,
    pub sources: Vec<IpAddr>,
    pub addresses: Addresses,
    pub begin_ns: u64,
    pub part: Part,
}

/// Reads the assignment from standard input, and runs it until it is done or standard input closes.
pub fn run() -> Result<ExitCode> {
    let mut order = String::new();
    std::io::stdin().lock().read_line(&mut order).context("cannot read the worker's order")?;
    let order: Order = serde_json::from_str(&order).context("cannot parse the worker's order")?;
    limits::raise_descriptors();
    let source = ScenarioText { name: order.name, text: order.text, folder: order.folder };
    let scenario = source.read(&order.sources)?;
    let plan = order.addresses.compile(&scenario, order.begin_ns)?;
    // Ctrl-C reaches the whole process group; the leading process decides when to stop.
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))
            .context("cannot catch Ctrl-C")?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let on_close = Arc::clone(&stop);
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        // Nothing follows the assignment. The end of the stream means: stop.
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        on_close.store(true, Ordering::Relaxed);
    })?;
    match run_worker(&plan, order.part, &stop, &mut std::io::stdout().lock()) {
        // The leading process was killed, so nobody reads an error.
        Err(LoadError::System { cause, .. }) if cause.kind() == ErrorKind::BrokenPipe => {
            Ok(ExitCode::FAILURE)
        }
        other => other.map(|()| ExitCode::SUCCESS).map_err(Into::into),
    }
}
