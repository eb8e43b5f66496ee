//! `beamtune diagnose`: diagnoses a recording, or a part of it.

mod part;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use beamtune_model::Period;
use beamtune_recording::{Reader, Selection};
use beamtune_report::diagnosis::{self, Invocation, View};
use beamtune_report::json;
pub use part::{PartArgs, recorded_at, stamp};

use crate::terminal::{self, VerbosityArgs};
use crate::thresholds::ThresholdArgs;

/// Diagnose a recording, or a part of it
#[derive(clap::Args)]
pub struct Args {
    /// Recording to diagnose
    file: PathBuf,
    #[command(flatten)]
    part: PartArgs,
    #[command(flatten)]
    thresholds: ThresholdArgs,
    #[command(flatten)]
    verbosity: VerbosityArgs,
    /// Print JSON (docs/schema/diagnosis.schema.json)
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let Read { period, part, triggers, recorded_at } = read_part(&args.file, &args.part)?;
    if !args.json {
        part.iter().chain(&triggers).for_each(|line| terminal::print(&format!("{line}\n")));
    }
    let target = args.file.display().to_string();
    let view = args.verbosity.view(Some(Invocation { command: "diagnose", target: &target }));
    let view = View { recorded_at: recorded_at.as_deref(), ..view };
    Ok(judge(&args.thresholds.apply(period), &view, args.json))
}

/// The contents of a recording, or of a part of it.
pub struct Read {
    pub period: Period,
    /// Description of the part, with its wall-clock times; `None` for the whole recording.
    pub part: Option<String>,
    /// The recorder's triggers: when something began, and what.
    pub triggers: Vec<String>,
    /// Wall-clock time of the recording; `None` for a part, whose description contains it.
    pub recorded_at: Option<String>,
}

/// Reads the period of a recording: the incarnation of the VM with the most samples. Warns if the file is truncated.
pub fn read(path: &Path) -> Result<Period> {
    Ok(read_part(path, &PartArgs::default())?.period)
}

/// Opens a recording. Warns if the file is truncated.
pub fn open(path: &Path) -> Result<Reader> {
    let reader = Reader::open(path)?;
    if let Some(bytes) = reader.missing_bytes() {
        terminal::complain(&format!(
            "{} is truncated: {bytes} bytes are missing; the rest was read\n",
            path.display()
        ));
    }
    Ok(reader)
}

/// Reads a part of a recording. Warns if the file is truncated.
pub fn read_part(path: &Path, part: &PartArgs) -> Result<Read> {
    let reader = open(path)?;
    let (selection, part) = match part.is_all() {
        true => (Selection::default(), None),
        false => part.select(&reader).map(|(selection, said)| (selection, Some(said)))?,
    };
    let period = reader.period(&selection)?;
    let triggers = part::triggers(&reader, &period);
    let recorded_at = recorded_at(&reader, &period).filter(|_| part.is_none());
    Ok(Read { period, part, triggers, recorded_at })
}

/// Diagnoses a period, prints the diagnosis, and returns the exit status.
pub fn judge(period: &Arc<Period>, view: &View<'_>, as_json: bool) -> ExitCode {
    let verdict = beamtune_rules::diagnose(period);
    let text = match as_json {
        true => json::render(period, &verdict),
        false => diagnosis::render(period, &verdict, view),
    };
    terminal::print(&text);
    terminal::status(&verdict)
}
