//! `beamtune redact`: a copy of a recording that can be given away.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use beamtune_recording::{Reader, Redaction, redact};

use crate::terminal;

/// Copy a recording without what tells whose it is: names of nodes, hosts, processes and tables, arguments, paths.
#[derive(clap::Args)]
pub struct Args {
    /// The recording.
    file: PathBuf,
    /// The copy; must not exist yet.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Replace also modules, functions and applications that are not those of OTP or Elixir.
    #[arg(long)]
    modules: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let reader = Reader::open(&args.file)?;
    let count = redact(&reader, &args.output, Redaction { modules: args.modules })?;
    let modules = if args.modules { "" } else { ", modules and functions (--modules replaces yours)" };
    terminal::complain(&format!(
        "{count} different texts replaced in {}. What stays: all numbers (sizes, counts, times of the day, process ids), \
         versions, flags of the VM{modules}; look at it before you share it: beamtune show {}\n",
        args.output.display(),
        args.output.display()
    ));
    Ok(ExitCode::SUCCESS)
}
