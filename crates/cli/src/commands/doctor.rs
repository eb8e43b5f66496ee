//! `beamtune doctor`: records a node and reports what is wrong.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use beamtune_model::Period;
use beamtune_node::profiling::ProfileWhen;
use beamtune_node::record::RecordOptions;
use beamtune_node::target::ResolvedTarget;
use beamtune_recording::{EndReason, Selection};
use beamtune_report::diagnosis::{Invocation, View};

use super::diagnose::{PartArgs, Read, judge, read_part};
use crate::access::AccessArgs;
use crate::recorder::record_node;
use crate::terminal::{self, VerbosityArgs};
use crate::thresholds::ThresholdArgs;

/// Record a node and report what is wrong with it, worst first
///
/// Takes at most twice as long as --for, or 20 s. If a node on this host does not answer within half of that time, the diagnosis uses
/// operating system data only.
///
/// Exit status: 0 = nothing above "notice", 1 = findings, 2 = failed. Known OTP bugs that the recording shows no sign of do not affect
/// the exit status.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    recorded: RecordedArgs,
    /// Print JSON (docs/schema/diagnosis.schema.json)
    #[arg(long)]
    json: bool,
    /// Keep the recording in this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    verbosity: VerbosityArgs,
}

/// The target, and how it is recorded.
#[derive(clap::Args)]
pub struct RecordedArgs {
    /// Node name, process id, HOST:PORT, or recording [default: the only VM]
    ///
    /// HOST:PORT is a distribution port; a node name may omit the host (rabbit).
    target: Option<String>,
    /// Time to record
    #[arg(long = "for", value_name = "TIME", value_parser = terminal::parse_duration, default_value = "10s")]
    length: Duration,
    /// Do not attach; use operating system data only
    #[arg(long)]
    host_only: bool,
    /// Do not take a CPU profile
    ///
    /// A profile is taken from outside, if the VM runs on this host, uses 0.1 cores or more, and the kernel permits it.
    #[arg(long)]
    no_profile: bool,
    #[command(flatten)]
    thresholds: ThresholdArgs,
    #[command(flatten)]
    access: AccessArgs,
}

/// A recorded period, and the target's name for further commands.
pub struct Recorded {
    pub period: Arc<Period>,
    pub target: String,
    /// Creation time of the recording; `None` if the node was recorded just now.
    pub recorded_at: Option<String>,
}

/// Minimum time limit for attaching and recording together. Half of it is for attaching: a node under heavy lock contention took that
/// long (measured; see connection.rs).
const MIN_WITHIN: Duration = Duration::from_secs(20);

impl RecordedArgs {
    /// True if a target was given. Commands that do not need a target may omit it.
    pub fn has_target(&self) -> bool {
        self.target.is_some()
    }

    /// Records the target, into a file if one is given. If the target is a recording, reads it.
    ///
    /// # Errors
    /// If there is no such target, it cannot be attached to, or the file cannot be read or written.
    pub fn record(&self, output: Option<&Path>) -> Result<Recorded> {
        let live = match ResolvedTarget::find(self.target.as_deref(), &self.access.options())? {
            ResolvedTarget::Recording(path) if output.is_some() => {
                bail!("{} is a recording: omit -o", path.display())
            }
            ResolvedTarget::Recording(path) => {
                let Read { period, recorded_at, .. } = read_part(&path, &PartArgs::default())?;
                let period = self.thresholds.apply(period);
                return Ok(Recorded { period, target: path.display().to_string(), recorded_at });
            }
            ResolvedTarget::Live(live) => live,
        };
        let label = live.label.clone();
        let options = RecordOptions {
            file: output,
            host_only: self.host_only,
            within: Some((2 * self.length).max(MIN_WITHIN)),
            profile: (!self.no_profile).then_some(ProfileWhen::Once(self.length)),
            ..RecordOptions::of(Duration::from_secs(1), Some(self.length))
        };
        let (reader, outcome) = record_node(&live, &options)?;
        if outcome.end == EndReason::SourcesGone {
            terminal::complain(&format!("{label} ended; the diagnosis covers the time until then\n"));
        }
        let period = self.thresholds.apply(reader.period(&Selection::default())?);
        Ok(Recorded { period, target: self.target.clone().unwrap_or(label), recorded_at: None })
    }
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let Recorded { period, target, recorded_at } = args.recorded.record(args.output.as_deref())?;
    // If the recording is kept, it contains everything, so the next command can read the file.
    let file = args.output.as_ref().map(|file| file.display().to_string());
    let invocation = match &file {
        Some(file) => Invocation { command: "diagnose", target: file },
        None => Invocation { command: "doctor", target: &target },
    };
    let view = View { recorded_at: recorded_at.as_deref(), ..args.verbosity.view(Some(invocation)) };
    Ok(judge(&period, &view, args.json))
}
