//! `beamtune show`: shows the contents of a recording as tables.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use beamtune_model::units::{Nanos, SECOND_NS};
use beamtune_recording::Selection;
use beamtune_report::overlay::{self, Row};
use beamtune_report::show::{self, View};
use clap::ValueEnum;

use super::diagnose::{PartArgs, Read, open, read_part, stamp};
use super::load::import;
use crate::terminal;

/// Maximum distance between a second of the load and the samples shown with it: some recordings have only one sample every 10 s.
const REACH: Nanos = 10 * SECOND_NS;

/// Show the contents of a recording as tables
#[derive(clap::Args)]
pub struct Args {
    /// Recording to show
    file: PathBuf,
    #[command(flatten)]
    part: PartArgs,
    /// Table to show
    #[arg(long, value_enum, default_value_t = Name::Summary)]
    view: Name,
    /// Show the result of a load next to the samples, second by second
    ///
    /// RESULT is a file written by beamtune load --output, or by another load generator (docs/load-import.md).
    #[arg(long, value_name = "RESULT", conflicts_with = "view")]
    load: Option<PathBuf>,
}

/// A table.
#[derive(Clone, Copy, ValueEnum)]
enum Name {
    /// Main rates, memory, and all facts
    Summary,
    /// Microstate accounting, as printed by msacc
    Msacc,
    /// Allocators: carriers and their utilization
    Alloc,
    /// Allocators, by instance
    Instances,
    /// Emulator flags in effect, and where they are set
    Flags,
    /// Processes by reductions
    Processes,
    /// ETS tables by memory
    Ets,
    /// Schedulers, as seen by the VM and by the operating system
    Schedulers,
    /// The operating system's counters
    Host,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(result) = &args.load {
        return show_with_load(&args.file, &args.part, result);
    }
    let view = match args.view {
        Name::Summary => View::Summary,
        Name::Msacc => View::Msacc,
        Name::Alloc => View::Alloc,
        Name::Instances => View::Instances,
        Name::Flags => View::Flags,
        Name::Processes => View::Processes,
        Name::Ets => View::Ets,
        Name::Schedulers => View::Schedulers,
        Name::Host => View::Host,
    };
    let Read { period, part, .. } = read_part(&args.file, &args.part)?;
    if let Some(part) = part {
        terminal::print(&format!("{part}\n"));
    }
    terminal::print(&show::render(&period, view, terminal::style()));
    Ok(ExitCode::SUCCESS)
}

/// Shows each second of a load with the samples of the same wall-clock time, since the load may come from another host.
fn show_with_load(file: &Path, part: &PartArgs, result: &Path) -> Result<ExitCode> {
    let reader = open(file)?;
    let name = result.display();
    let result = import::read(result, None)?;
    let Some(began) = result.began_unix_s else {
        bail!("{name} does not contain the time at which the load began");
    };
    let began = (began * SECOND_NS as f64) as i64;
    let (Selection { from, to, .. }, covered) = part.select(&reader)?;
    let mut rows = Vec::new();
    for second in &result.seconds {
        let wall = began.saturating_add(second.second.saturating_mul(SECOND_NS));
        let Some(at) = reader.instant_of(wall) else { continue };
        if from.is_some_and(|from| at < from) || to.is_some_and(|to| at > to) {
            continue;
        }
        let around = reader.selection_around(at, at.saturating_add(SECOND_NS), REACH)?;
        let period = around.map(|selection| reader.period(&selection)).transpose()?;
        rows.push(Row { at: on_clock(wall, "%H:%M:%S")?, second, period });
    }
    if rows.iter().all(|row| row.period.is_none()) {
        let ended = began.saturating_add((result.length_s * SECOND_NS as f64) as i64);
        let format = "%Y-%m-%d %H:%M:%S";
        let ran = (on_clock(began, format)?, on_clock(ended, format)?);
        bail!(
            "nothing was recorded during the load of {name}, from {} to {}: the recording has samples {covered}",
            ran.0,
            ran.1
        );
    }
    let date = on_clock(began, "%Y-%m-%d (%:z)")?;
    terminal::print(&format!("{name} over {}, {date}\n\n", file.display()));
    terminal::print(&overlay::render(&rows, terminal::style()));
    Ok(ExitCode::SUCCESS)
}

/// Formats a time in the local time zone.
fn on_clock(wall: i64, format: &str) -> Result<String> {
    Ok(stamp(wall)?.to_zoned(jiff::tz::TimeZone::system()).strftime(format).to_string())
}
