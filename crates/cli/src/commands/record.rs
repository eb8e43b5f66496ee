//! `beamtune record`: records nodes into files, for a given time, or permanently with a limited length.

mod ring;
mod systemd;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use beamtune_model::units::nanos;
use beamtune_node::profiling::{CpuLimit, ProfileWhen};
use beamtune_node::record::RecordOptions;
use beamtune_node::target::{LiveTarget, ResolvedTarget};
use beamtune_recording::{EndReason, Ring};

use crate::access::AccessArgs;
use crate::recorder::record_node;
use crate::terminal;

/// Record a node into a file
///
/// The recording ends after --for, or with Ctrl-C. With --keep, it runs permanently and keeps only the last few hours of one or more
/// nodes, across restarts of the nodes and of beamtune.
#[derive(clap::Args)]
pub struct Args {
    /// Node name, process id, or HOST:PORT; several with --keep
    ///
    /// A node name is short (rabbit) or full (rabbit@web1); HOST:PORT is its distribution port.
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<String>,
    /// Recording to create; with --keep, a file to continue, or a folder
    ///
    /// A folder gets one file per node, NODE.btr.
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["keep", "systemd"])]
    output: Option<PathBuf>,
    /// Keep only the last TIME, permanently
    #[arg(long, value_name = "TIME", value_parser = terminal::parse_duration)]
    keep: Option<Duration>,
    /// With --keep: maximum size of each file, including its log
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "500MB", requires = "keep")]
    max_size: u64,
    /// Also take a CPU profile of up to 10 s
    #[arg(long, requires = "length", conflicts_with = "keep")]
    profile: bool,
    /// With --keep: take a CPU profile of 10 s when this condition holds
    ///
    /// 'cpu > 90 %' (of the CPUs that the VM may run on) or, in cores, 'cpu > 1.5', for three seconds. At most one profile in ten minutes.
    #[arg(long, value_name = "CONDITION", requires = "keep")]
    profile_when: Option<CpuLimit>,
    /// Print a systemd unit with these options, and exit
    #[arg(long, requires = "keep")]
    systemd: bool,
    /// Time to record [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = terminal::parse_duration, conflicts_with = "systemd")]
    length: Option<Duration>,
    /// Time between two samples
    #[arg(long, value_name = "TIME", value_parser = terminal::parse_duration, default_value = "1s")]
    every: Duration,
    /// Do not attach; read only /proc
    #[arg(long)]
    host_only: bool,
    #[command(flatten)]
    access: AccessArgs,
}

/// Maximum interval: a node closes a connection that is silent for `net_ticktime`, 60 s by default.
const MAX_INTERVAL: Duration = Duration::from_secs(30);
/// Minimum interval: more samples would be a noticeable load.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    if !(MIN_INTERVAL..=MAX_INTERVAL).contains(&args.every) {
        bail!("--every must be from 100ms to 30s");
    }
    if args.systemd {
        terminal::print(&systemd::unit(args)?);
        return Ok(ExitCode::SUCCESS);
    }
    match (args.keep, args.targets.as_slice(), &args.output) {
        (Some(keep), _, _) => ring::run(args, Ring { keep: nanos(keep), max_bytes: args.max_size }),
        (None, [target], Some(output)) => once(args, target, output),
        (None, _, _) => bail!("recording several targets requires --keep"),
    }
}

/// Records one node, for a limited time or until Ctrl-C.
fn once(args: &Args, target: &str, output: &Path) -> Result<ExitCode> {
    let live: LiveTarget = match ResolvedTarget::find(Some(target), &args.access.options())? {
        ResolvedTarget::Recording(path) => {
            bail!("{} is a file, not a node; list nodes with: beamtune nodes", path.display())
        }
        ResolvedTarget::Live(live) => *live,
    };
    let label = &live.label;
    let (_, outcome) = record_node(&live, &args.record_options(Some(output)))?;
    let path = output.display();
    match outcome.end {
        EndReason::SourcesGone => {
            terminal::complain(&format!("{label} ended and did not return\n"));
        }
        EndReason::Elapsed | EndReason::Stopped => {}
    }
    terminal::complain(&format!(
        "{} samples in {path}; diagnose them with: beamtune diagnose {path}\n",
        outcome.samples
    ));
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn record_options<'a>(&self, file: Option<&'a Path>) -> RecordOptions<'a> {
        let once = self.length.filter(|_| self.profile).map(ProfileWhen::Once);
        let profile = once.or(self.profile_when.map(ProfileWhen::Above));
        RecordOptions {
            file,
            host_only: self.host_only,
            profile,
            ..RecordOptions::of(self.every, self.length)
        }
    }
}

/// Parses a size: `500MB`, `2GB`, `512MiB`; a number without a unit is in bytes.
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
    let bytes = parse().map_err(|_| format!("{text:?} is not a size; write 500MB, 2GB or 512MiB"))?;
    match bytes {
        Ring::MIN_BYTES.. => Ok(bytes),
        _ => Err(format!("{text:?} is too small: the minimum is 10MB, for about five minutes of a node")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_with_their_units() {
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
