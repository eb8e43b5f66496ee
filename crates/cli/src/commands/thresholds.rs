//! `beamtune thresholds`: the thresholds of the rules, as a file that can be edited.

use std::process::ExitCode;

use anyhow::Result;
use beamtune_model::Thresholds;

use crate::{terminal, thresholds};

/// Print the thresholds of all rules as TOML, with unit and source, ready to edit for --thresholds FILE.
///
/// beamtune thresholds > my.toml; delete what you keep; beamtune doctor TARGET --thresholds my.toml (docs/thresholds.md).
#[derive(clap::Args)]
pub struct Args {
    /// Check this file, and print the thresholds with its changes.
    #[arg(value_name = "FILE", value_parser = thresholds::read)]
    file: Option<Thresholds>,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    terminal::print(&beamtune_rules::thresholds::listing(&args.file.clone().unwrap_or_default()));
    Ok(ExitCode::SUCCESS)
}
