//! `beamtune doctor`: records a node and says what is wrong.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use beamtune_recording::{End, Selection};

use super::diagnose::{judge, read};
use crate::access::AccessArgs;
use crate::subject::Subject;
use crate::take::{Wish, take};
use crate::terminal;
use crate::thresholds::ThresholdArgs;

/// Record a node and say what is wrong with it, worst first.
///
/// Takes at most twice as long as --for, or 20 s: a node of this host that lets nobody in for half of that is judged from outside.
///
/// Exit status: 0 = nothing above "notice", 1 = findings, 2 = could not do the work. Known defects that nothing shows at work are no
/// findings.
#[derive(clap::Args)]
pub struct Args {
    /// Node name (rabbit@web1, rabbit), process id, HOST:PORT of a distribution port, or a recording. Without it: the only VM on this host.
    target: Option<String>,
    /// How long to record.
    #[arg(long = "for", value_name = "TIME", value_parser = terminal::parse_duration, default_value = "10s")]
    length: Duration,
    /// Print JSON (docs/schema/diagnosis.schema.json).
    #[arg(long)]
    json: bool,
    /// Keep the recording.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Do not attach: look at the process from outside only.
    #[arg(long)]
    host_only: bool,
    #[command(flatten)]
    thresholds: ThresholdArgs,
    #[command(flatten)]
    access: AccessArgs,
}

/// What all of it may take at least, on a node that answers slowly: half of it, for attaching, is what a node under heavy lock contention
/// has taken (connection.rs).
const MIN_WITHIN: Duration = Duration::from_secs(20);

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let live = match Subject::find(args.target.as_deref(), &args.access)? {
        Subject::Recording(path) if args.output.is_some() => {
            bail!("{} is a recording already: leave out -o", path.display())
        }
        Subject::Recording(path) => return Ok(judge(&args.thresholds.apply(read(&path)?), args.json)),
        Subject::Live(live) => live,
    };
    let label = live.label.clone();
    let wish = Wish {
        file: args.output.as_deref(),
        host_only: args.host_only,
        within: Some((2 * args.length).max(MIN_WITHIN)),
        ..Wish::of(Duration::from_secs(1), Some(args.length))
    };
    let (reader, outcome) = take(*live, &wish)?;
    if outcome.end == End::SourcesGone {
        terminal::complain(&format!("{label} has gone; what was recorded until then is judged\n"));
    }
    Ok(judge(&args.thresholds.apply(reader.period(&Selection::default())?), args.json))
}
