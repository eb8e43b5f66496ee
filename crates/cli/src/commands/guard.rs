//! `beamtune guard`, which only beamtune starts ([`beamtune_runner::guard`]).

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use beamtune_runner::guard::{self, GuardOptions};

/// Run a command, and end all of its processes when standard input closes
#[derive(clap::Args)]
pub struct Args {
    /// File for the command's standard error
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
    /// File for the command's standard output [default: that of --log]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Limit of open files of the command
    #[arg(long, value_name = "N")]
    descriptors: Option<u64>,
    /// Folder to remove if beamtune was killed
    #[arg(long, value_name = "FOLDER")]
    remove: Vec<PathBuf>,
    /// The command
    #[arg(trailing_var_arg = true, required = true)]
    command: Vec<String>,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let options = GuardOptions {
        log: args.log.clone(),
        out: args.out.clone(),
        descriptors: args.descriptors,
        remove: args.remove.clone(),
        command: args.command.clone(),
    };
    match guard::run(&options, &mut std::io::stdout())? {}
}
