//! What Ctrl-C and `kill` do.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use beamtune_recording::Stop;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::terminal;

/// Returns a flag that is set when one of these signals arrives. The signals, such as Ctrl-C, no longer end the program.
///
/// # Errors
/// If a signal cannot be caught.
pub fn stop_flag(signals: &[i32]) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in signals {
        signal_hook::flag::register(*signal, Arc::clone(&stop)).context("cannot catch Ctrl-C")?;
    }
    Ok(stop)
}

/// Makes the first Ctrl-C or `kill` finish the recording properly; a second one ends the program at once.
pub fn stop_on_signals(stop: &Stop) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot catch Ctrl-C")?;
    let request = stop.clone();
    let listen = move || {
        for signal in signals.forever() {
            if request.is_requested() {
                // The agent removes itself when the connection closes.
                std::process::exit(128 + signal);
            }
            request.request();
        }
    };
    std::thread::Builder::new().spawn(listen).context("cannot catch Ctrl-C: no thread can be started")?;
    Ok(())
}

/// Makes Ctrl-C and `kill` print `message` and end the program at once. Use it for work that has no partial result and that the
/// agent undoes when the connection closes.
pub fn exit_on_signals(message: String) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot catch Ctrl-C")?;
    let listen = move || {
        if let Some(signal) = signals.forever().next() {
            terminal::complain(&message);
            std::process::exit(128 + signal);
        }
    };
    std::thread::Builder::new().spawn(listen).context("cannot catch Ctrl-C: no thread can be started")?;
    Ok(())
}
