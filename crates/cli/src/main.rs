//! The binary `beamtune`: wires the parts together, one file per subcommand.

mod access;
mod commands;
mod files;
mod inputs;
mod lab;
mod node_args;
mod releases;
mod subject;
mod surroundings;
mod take;
mod terminal;
mod thresholds;
mod trial;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Finds out why an Erlang VM is busy, slow or large, and what to change.
#[derive(Parser)]
#[command(version, disable_help_subcommand = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Nodes(commands::nodes::Args),
    Doctor(commands::doctor::Args),
    Record(commands::record::Args),
    Memory(commands::memory::Args),
    Locks(commands::locks::Args),
    Diagnose(commands::diagnose::Args),
    Explain(commands::explain::Args),
    Show(commands::show::Args),
    Redact(commands::redact::Args),
    Import(commands::import::Args),
    Diff(commands::diff::Args),
    Flags(commands::flags::Args),
    Lint(commands::lint::Args),
    Thresholds(commands::thresholds::Args),
    Args(commands::args::Args),
    Load(commands::load::Args),
    Compare(Box<commands::compare::Args>),
    Tune(Box<commands::tune::Args>),
    #[command(subcommand)]
    Study(commands::study::Args),
    #[command(subcommand)]
    Emulator(commands::emulator::Args),
    #[command(hide = true)]
    Guard(commands::guard::Args),
    #[command(subcommand)]
    Lab(commands::lab::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Nodes(args) => commands::nodes::run(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Record(args) => commands::record::run(&args),
        Command::Locks(args) => commands::locks::run(&args),
        Command::Memory(args) => commands::memory::run(&args),
        Command::Diagnose(args) => commands::diagnose::run(&args),
        Command::Explain(args) => commands::explain::run(&args),
        Command::Show(args) => commands::show::run(&args),
        Command::Redact(args) => commands::redact::run(&args),
        Command::Import(args) => commands::import::run(&args),
        Command::Diff(args) => commands::diff::run(&args),
        Command::Flags(args) => commands::flags::run(&args),
        Command::Lint(args) => commands::lint::run(&args),
        Command::Thresholds(args) => commands::thresholds::run(&args),
        Command::Args(args) => commands::args::run(&args),
        Command::Load(args) => commands::load::run(&args),
        Command::Compare(args) => commands::compare::run(&args),
        Command::Tune(args) => commands::tune::run(&args),
        Command::Study(args) => commands::study::run(&args),
        Command::Emulator(args) => commands::emulator::run(&args),
        Command::Guard(args) => commands::guard::run(&args),
        Command::Lab(args) => commands::lab::run(&args),
    };
    match outcome {
        Ok(status) => status,
        Err(error) => {
            terminal::complain(&format!("beamtune: {error:#}\n"));
            ExitCode::from(terminal::CANNOT)
        }
    }
}
