//! `beamtune diagnose`: judges a recording.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use beamtune_model::Period;
use beamtune_recording::{Reader, Selection};
use beamtune_report::{diagnosis, json};

use crate::terminal;

/// Say what is wrong by a recording.
#[derive(clap::Args)]
pub struct Args {
    /// The recording.
    file: PathBuf,
    /// Print JSON (docs/schema/diagnosis.schema.json).
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    Ok(judge(&read(&args.file)?, args.json))
}

/// The period of a recording: that of the VM's life with the most samples. What is odd about the file is said.
pub fn read(path: &Path) -> Result<Period> {
    let reader = Reader::open(path)?;
    if let Some(bytes) = reader.missing_bytes() {
        terminal::complain(&format!(
            "{} is cut off: {bytes} bytes are missing; what is left was read\n",
            path.display()
        ));
    }
    Ok(reader.period(&Selection::default())?)
}

/// Judges a period, prints the answer, and gives the exit status.
pub fn judge(period: &Period, as_json: bool) -> ExitCode {
    let verdict = beamtune_rules::diagnose(period);
    let text = match as_json {
        true => json::render(period, &verdict),
        false => diagnosis::render(period, &verdict, terminal::style()),
    };
    terminal::print(&text);
    terminal::status(&verdict)
}
