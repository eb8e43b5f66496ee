//! `beamtune record`: keeps the measurements.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use beamtune_recording::End;

use crate::access::AccessArgs;
use crate::subject::{Live, Subject};
use crate::take::{Wish, take};
use crate::terminal;

/// Record a node into a file, until Ctrl-C or for a time.
#[derive(clap::Args)]
pub struct Args {
    /// Node name (rabbit@web1, rabbit), process id, or HOST:PORT of a distribution port.
    target: String,
    /// The recording; must not exist yet.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// How long to record; until Ctrl-C if not given.
    #[arg(long = "for", value_name = "TIME", value_parser = terminal::parse_duration)]
    length: Option<Duration>,
    /// Time between two samples.
    #[arg(long, value_name = "TIME", value_parser = terminal::parse_duration, default_value = "1s")]
    every: Duration,
    /// Do not attach: look at the process from outside only.
    #[arg(long)]
    host_only: bool,
    #[command(flatten)]
    access: AccessArgs,
}

/// The node closes a connection on which it hears nothing for `net_ticktime`, a minute by default.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Below this the measurement would be a load of its own.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    if !(SHORTEST_PAUSE..=LONGEST_PAUSE).contains(&args.every) {
        bail!("--every takes a time from 100ms to 30s");
    }
    let live: Live = match Subject::find(Some(&args.target), &args.access)? {
        Subject::Recording(path) => {
            bail!("{} is a file, not a node; beamtune nodes lists those", path.display())
        }
        Subject::Live(live) => *live,
    };
    let label = live.label.clone();
    let wish =
        Wish { every: args.every, length: args.length, file: Some(&args.output), host_only: args.host_only };
    let (_, outcome) = take(live, &wish)?;
    let path = args.output.display();
    match outcome.end {
        End::SourcesGone => {
            terminal::complain(&format!("{label} has gone and did not come back\n"));
        }
        End::Elapsed | End::Stopped => {}
    }
    terminal::complain(&format!(
        "{} samples in {path}; look at them with: beamtune diagnose {path}\n",
        outcome.samples
    ));
    Ok(ExitCode::SUCCESS)
}
