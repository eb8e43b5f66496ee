//! The binary `beamtune`: wires the crates together, one file per subcommand.

mod access;
mod commands;
mod files;
mod flag_files;
mod node_args;
mod recorder;
mod releases;
mod signals;
mod terminal;
mod thresholds;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Printed for `beamtune` without arguments: the commands that most people need.
const SHORT_HELP: &str = "\
beamtune finds out why an Erlang VM is slow, busy or large

  beamtune nodes                 List the Erlang VMs on this host
  beamtune doctor NODE           Record a node for 10 s and report what is wrong
  beamtune record NODE -o FILE   Record a node for later, until Ctrl-C

NODE is a node name (rabbit@web1) or a process id.
All commands: beamtune --help
Options of a command: beamtune COMMAND --help
";

/// Find out why an Erlang VM is slow, busy or large, and what to change
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
    Profile(commands::profile::Args),
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
    #[command(hide = true)]
    Man(commands::man::Args),
    #[command(subcommand)]
    Lab(commands::lab::Args),
}

fn main() -> ExitCode {
    if std::env::args_os().len() <= 1 {
        terminal::complain(SHORT_HELP);
        return ExitCode::from(terminal::CANNOT);
    }
    let outcome = match Cli::parse().command {
        Command::Nodes(args) => commands::nodes::run(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Record(args) => commands::record::run(&args),
        Command::Locks(args) => commands::locks::run(&args),
        Command::Profile(args) => commands::profile::run(&args),
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
        Command::Man(args) => commands::man::run(&args, &Cli::command()),
        Command::Lab(args) => commands::lab::run(&args),
    };
    match outcome {
        Ok(status) => status,
        Err(error) => {
            terminal::complain(&format!("beamtune: {}\n", describe(&error)));
            ExitCode::from(terminal::CANNOT)
        }
    }
}

/// Formats an error with its causes. Skips a cause whose text the message already contains.
fn describe(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    /// Maximum width of a short help text, in columns.
    const MAX_HELP_COLUMNS: usize = 72;

    #[test]
    fn commands_of_the_short_help_are_accepted() {
        let examples = SHORT_HELP.lines().filter_map(|line| line.strip_prefix("  beamtune "));
        let mut names = Vec::new();
        for example in examples {
            let words = example.split("   ").next().unwrap_or_default().split(' ');
            let parsed = Cli::try_parse_from(["beamtune"].into_iter().chain(words.clone()));
            assert!(parsed.is_ok(), "{example}");
            names.extend(words.take(1));
        }
        assert_eq!(names, ["nodes", "doctor", "record"]);
        assert!(SHORT_HELP.lines().all(|line| line.len() <= 80));
    }

    #[test]
    fn short_help_texts_fit_on_one_line() {
        let mut commands = vec![Cli::command()];
        while let Some(command) = commands.pop() {
            let name = command.get_name().to_owned();
            let helps = command.get_arguments().map(|arg| (arg.get_id().to_string(), arg.get_help()));
            for (what, help) in helps.chain([("about".to_owned(), command.get_about())]) {
                let help = help.map(ToString::to_string).unwrap_or_default();
                assert!(help.chars().count() <= MAX_HELP_COLUMNS, "{name}, {what}: {help}");
            }
            commands.extend(command.get_subcommands().cloned());
        }
    }

    #[test]
    fn a_cause_is_printed_once() {
        let cause = || anyhow!("connection refused");
        assert_eq!(describe(&cause().context("cannot attach")), "cannot attach: connection refused");
        assert_eq!(
            describe(&cause().context("cannot attach: connection refused; start epmd")),
            "cannot attach: connection refused; start epmd"
        );
    }
}
