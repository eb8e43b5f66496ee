//! `beamtune diff`: shows the differences between two recordings.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use beamtune_report::diff;

use super::diagnose::read;
use crate::terminal;

/// Show the differences between two recordings, with rates per unit of work
#[derive(clap::Args)]
pub struct Args {
    /// The recording before
    a: PathBuf,
    /// The recording after
    b: PathBuf,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    terminal::print(&diff::render(&read(&args.a)?, &read(&args.b)?, terminal::style()));
    Ok(ExitCode::SUCCESS)
}
