//! `beamtune thresholds`: prints the rules' thresholds as a file to edit.

use std::process::ExitCode;

use anyhow::Result;
use beamtune_model::Thresholds;

use crate::{terminal, thresholds};

/// Print the rules' thresholds as TOML, ready to edit
///
/// Each threshold is printed with its unit and source. To change some, save the output to a file, keep only their lines, and pass the
/// file with --thresholds FILE (docs/thresholds.md).
#[derive(clap::Args)]
pub struct Args {
    /// File to check; its values replace the defaults in the output
    #[arg(value_name = "FILE", value_parser = thresholds::read)]
    file: Option<Thresholds>,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    terminal::print(&beamtune_rules::thresholds::listing(&args.file.clone().unwrap_or_default()));
    Ok(ExitCode::SUCCESS)
}
