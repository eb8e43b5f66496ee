//! A part of a load, run for the process that the user started.

use std::io::{BufRead, ErrorKind, Read};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use beamtune_load::run::{Part, serve};
use beamtune_load::{LoadError, limits};
use serde::{Deserialize, Serialize};

use super::reach::Addresses;
use super::{Written, compile};

/// What a process is to do: the same scenario with the same addresses at the same instant, and which part of it.
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

/// Reads the order from standard input and runs it, until that ends.
pub fn run() -> Result<ExitCode> {
    let mut order = String::new();
    std::io::stdin().lock().read_line(&mut order).context("no order came")?;
    let order: Order = serde_json::from_str(&order).context("the order is not understood")?;
    limits::raise_descriptors();
    let source = Written { name: order.name, text: order.text, folder: order.folder };
    let scenario = source.read(&order.sources)?;
    let plan = compile(&scenario, &order.addresses, order.begin_ns)?;
    // Ctrl-C reaches the whole group of processes: the one that leads says when to stop.
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))
            .context("cannot catch Ctrl-C")?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let leash = Arc::clone(&stop);
    std::thread::Builder::new().name("leash".to_owned()).spawn(move || {
        // Nothing more is said to us; the end is what is waited for.
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        leash.store(true, Ordering::Relaxed);
    })?;
    match serve(&plan, order.part, &stop, &mut std::io::stdout().lock()) {
        // Who was to be told has been killed: there is nobody to complain to.
        Err(LoadError::System { cause, .. }) if cause.kind() == ErrorKind::BrokenPipe => {
            Ok(ExitCode::FAILURE)
        }
        other => other.map(|()| ExitCode::SUCCESS).map_err(Into::into),
    }
}
