//! `beamtune diagnose`: judges a recording, or a part of it.

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

/// Say what is wrong in a recording
#[derive(clap::Args)]
pub struct Args {
    /// The recording.
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

/// What was read of a recording.
pub struct Read {
    pub period: Period,
    /// What the part is called, its times on the wall clock; `None` for all of it.
    pub part: Option<String>,
    /// When the recorder has seen something begin, and what.
    pub triggers: Vec<String>,
    /// When it was recorded, on the wall clock; `None` for a part, which says so itself.
    pub recorded_at: Option<String>,
}

/// The period of a recording: that of the VM's life with the most samples. What is odd about the file is said.
pub fn read(path: &Path) -> Result<Period> {
    Ok(read_part(path, &PartArgs::default())?.period)
}

/// Opens a recording; what is odd about the file is said.
pub fn open(path: &Path) -> Result<Reader> {
    let reader = Reader::open(path)?;
    if let Some(bytes) = reader.missing_bytes() {
        terminal::complain(&format!(
            "{} is cut off: {bytes} bytes are missing; what is left was read\n",
            path.display()
        ));
    }
    Ok(reader)
}

/// The same for a part of a recording.
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

/// Judges a period, prints the answer, and gives the exit status.
pub fn judge(period: &Arc<Period>, view: &View<'_>, as_json: bool) -> ExitCode {
    let verdict = beamtune_rules::diagnose(period);
    let text = match as_json {
        true => json::render(period, &verdict),
        false => diagnosis::render(period, &verdict, view),
    };
    terminal::print(&text);
    terminal::status(&verdict)
}
