//! `beamtune show`: the tables that people know, from a recording.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use beamtune_report::show::{self, View};
use clap::ValueEnum;

use super::diagnose::{PartArgs, Read, read_part};
use crate::terminal;

/// Show what a recording holds.
#[derive(clap::Args)]
pub struct Args {
    /// The recording.
    file: PathBuf,
    #[command(flatten)]
    part: PartArgs,
    /// Which table.
    #[arg(long, value_enum, default_value_t = Name::Summary)]
    view: Name,
}

/// A view on the command line.
#[derive(Clone, Copy, ValueEnum)]
enum Name {
    /// The main rates, memory, and all facts.
    Summary,
    /// Microstate accounting, as msacc prints it.
    Msacc,
    /// Allocators: carriers, blocks and how well they are used.
    Alloc,
    /// Emulator flags in effect, and where each comes from.
    Flags,
    /// Processes by reductions.
    Processes,
    /// ETS tables by memory.
    Ets,
    /// Schedulers, by the VM and by the operating system.
    Schedulers,
    /// The operating system's view.
    Host,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let view = match args.view {
        Name::Summary => View::Summary,
        Name::Msacc => View::Msacc,
        Name::Alloc => View::Alloc,
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
