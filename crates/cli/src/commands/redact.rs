//! `beamtune redact`: writes a copy of a recording that can be shared.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use beamtune_recording::{Reader, Redaction, redact};

use crate::terminal;

/// Copy a recording without names, arguments and paths
///
/// Replaces the names of nodes, hosts, processes and tables, all arguments and all paths.
#[derive(clap::Args)]
pub struct Args {
    /// Recording to copy
    file: PathBuf,
    /// File for the copy; must not exist
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Also replace modules and functions, except those of OTP and Elixir
    #[arg(long)]
    modules: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let reader = Reader::open(&args.file)?;
    let count = redact(&reader, &args.output, Redaction { modules: args.modules })?;
    let modules = if args.modules { "" } else { ", modules and functions (--modules replaces them)" };
    terminal::complain(&format!(
        "replaced {count} strings in {}. Kept: all numbers (sizes, counts, times of day, process ids), versions, VM flags{modules}. \
         Check it before you share it: beamtune show {}\n",
        args.output.display(),
        args.output.display()
    ));
    Ok(ExitCode::SUCCESS)
}
