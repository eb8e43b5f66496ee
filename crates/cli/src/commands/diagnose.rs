//! `beamtune diagnose`: judges a recording, or a part of it.

mod part;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use beamtune_model::Period;
use beamtune_recording::{Reader, Selection};
use beamtune_report::{diagnosis, json};
pub use part::PartArgs;

use crate::terminal;

/// Say what is wrong by a recording.
#[derive(clap::Args)]
pub struct Args {
    /// The recording.
    file: PathBuf,
    #[command(flatten)]
    part: PartArgs,
    /// Print JSON (docs/schema/diagnosis.schema.json).
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (period, part) = read_part(&args.file, &args.part)?;
    if let (Some(part), false) = (part, args.json) {
        terminal::print(&format!("{part}\n"));
    }
    Ok(judge(&period, args.json))
}

/// The period of a recording: that of the VM's life with the most samples. What is odd about the file is said.
pub fn read(path: &Path) -> Result<Period> {
    Ok(read_part(path, &PartArgs::default())?.0)
}

/// The period of a part of a recording, and, unless it is all of it, what the part is called: its times on the wall clock.
pub fn read_part(path: &Path, part: &PartArgs) -> Result<(Period, Option<String>)> {
    let reader = Reader::open(path)?;
    if let Some(bytes) = reader.missing_bytes() {
        terminal::complain(&format!(
            "{} is cut off: {bytes} bytes are missing; what is left was read\n",
            path.display()
        ));
    }
    if part.is_all() {
        return Ok((reader.period(&Selection::default())?, None));
    }
    let (selection, said) = part.select(&reader)?;
    let period = reader.period(&selection)?;
    Ok((period, Some(said)))
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
