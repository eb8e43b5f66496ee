//! `beamtune record`: keeps the measurements, of a time, or of the last hours for as long as it runs.

mod ring;
mod systemd;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use beamtune_recording::{End, Ring};

use crate::access::AccessArgs;
use crate::subject::{Live, Subject};
use crate::take::{Wish, nanos, take};
use crate::terminal;

/// Record a node into a file, until Ctrl-C or for a time; or hold the last hours of nodes with --keep.
#[derive(clap::Args)]
pub struct Args {
    /// Node name (rabbit@web1, rabbit), process id, or HOST:PORT of a distribution port; several with --keep.
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<String>,
    /// The recording, which must not exist yet; with --keep it may, and may be a folder: a file for each node in it.
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["keep", "systemd"])]
    output: Option<PathBuf>,
    /// Hold the last so-and-so long only, for ever: through restarts of the node, and of this.
    #[arg(long, value_name = "TIME", value_parser = terminal::parse_duration)]
    keep: Option<Duration>,
    /// With --keep: the size that no file (with its log) outgrows; what does not fit goes earlier.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "500MB", requires = "keep")]
    max_size: u64,
    /// Print a systemd unit that runs just this, and do nothing else.
    #[arg(long, requires = "keep")]
    systemd: bool,
    /// How long to record; until Ctrl-C if not given.
    #[arg(long = "for", value_name = "TIME", value_parser = terminal::parse_duration, conflicts_with = "systemd")]
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
    if args.systemd {
        terminal::print(&systemd::unit(args)?);
        return Ok(ExitCode::SUCCESS);
    }
    match (args.keep, args.targets.as_slice(), &args.output) {
        (Some(keep), _, _) => ring::run(args, Ring { keep: nanos(keep), max_bytes: args.max_size }),
        (None, [target], Some(output)) => once(args, target, output),
        (None, _, _) => bail!("several targets at once are recorded with --keep"),
    }
}

/// A recording with an end.
fn once(args: &Args, target: &str, output: &Path) -> Result<ExitCode> {
    let live: Live = match Subject::find(Some(target), &args.access)? {
        Subject::Recording(path) => {
            bail!("{} is a file, not a node; beamtune nodes lists those", path.display())
        }
        Subject::Live(live) => *live,
    };
    let label = live.label.clone();
    let (_, outcome) = take(live, &args.wish(Some(output)))?;
    let path = output.display();
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

impl Args {
    fn wish<'a>(&self, file: Option<&'a Path>) -> Wish<'a> {
        Wish { file, host_only: self.host_only, ..Wish::of(self.every, self.length) }
    }
}

/// A size on the command line: `500MB`, `2GB`, `512MiB`; a bare number is bytes.
fn parse_size(text: &str) -> Result<u64, String> {
    let parse = || -> Result<u64> {
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let number: f64 = number.parse().context("no number")?;
        let bytes = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "k" | "kb" => 1e3,
            "m" | "mb" => 1e6,
            "g" | "gb" => 1e9,
            "t" | "tb" => 1e12,
            "kib" => 1024.0,
            "mib" => 1024.0 * 1024.0,
            "gib" => 1024.0 * 1024.0 * 1024.0,
            _ => bail!("no unit"),
        };
        Ok((number * bytes) as u64)
    };
    let bytes = parse().map_err(|_| format!("{text:?} is no size; write 500MB, 2GB or 512MiB"))?;
    match bytes {
        Ring::SMALLEST_BYTES.. => Ok(bytes),
        _ => Err(format!("{text:?} is too little: 10MB are the least that five minutes of a node need")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        let check = |text: &str, bytes: Option<u64>| assert_eq!(parse_size(text).ok(), bytes, "{text}");
        check("500MB", Some(500_000_000));
        check("2gb", Some(2_000_000_000));
        check("1.5G", Some(1_500_000_000));
        check("512MiB", Some(536_870_912));
        check("20000000", Some(20_000_000));
        check("9MB", None);
        check("500 MB", None);
        check("-500MB", None);
        check("much", None);
        check("", None);
    }
}
