//! `beamtune man`: writes manual pages and shell completions from the definitions of the help texts.
//!
//! It is a hidden command instead of a development task: only the binary contains these definitions, and packages can be made from the
//! binary alone. It adds 0.3 MB to the binary of 25 MB.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use jiff::Timestamp;

/// Write manual pages and shell completions
#[derive(clap::Args)]
pub struct Args {
    /// Output folder; gets the subfolders man and completions
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Runs the subcommand. `all` contains all commands.
pub fn run(args: &Args, all: &Command) -> Result<ExitCode> {
    let root = visible(all);
    let folder = |name: &str| {
        let folder = args.folder.join(name);
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok::<_, anyhow::Error>(folder)
    };
    let (man, completions) = (folder("man")?, folder("completions")?);
    for command in commands(&root) {
        write(&man.join(format!("{}.1", page_name(command))), &page(command)?)?;
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut visible(all), "beamtune", &completions)
            .with_context(|| format!("cannot write completions to {}", completions.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Removes hidden commands, since clap_complete would also write those.
fn visible(all: &Command) -> Command {
    let mut root = Command::new("beamtune")
        .version(env!("CARGO_PKG_VERSION"))
        .about(all.get_about().cloned().unwrap_or_default())
        .disable_help_subcommand(true)
        .subcommand_required(true)
        .subcommands(all.get_subcommands().filter(|command| !command.is_hide_set()).cloned());
    root.build();
    root
}

/// Returns a command and all its subcommands, in the order of the help texts.
fn commands(command: &Command) -> Vec<&Command> {
    let mut found = vec![command];
    command.get_subcommands().for_each(|below| found.extend(commands(below)));
    found
}

/// Returns, for example, `beamtune-study-show` for `beamtune study show`.
fn page_name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

/// Renders the manual page of a command.
fn page(command: &Command) -> io::Result<Vec<u8>> {
    // The default synopsis of clap_mangen would list every option, up to forty.
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().to_owned();
    let man = Man::new(command.clone().override_usage(usage))
        .date(date())
        .source(concat!("beamtune ", env!("CARGO_PKG_VERSION")))
        .manual("beamtune");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut roff = Roff::default();
    exit_status(&mut roff, command);
    if page_name(command) == "beamtune" {
        roff.control("SH", ["ENVIRONMENT"]);
        for (name, effect) in ENVIRONMENT {
            roff.control("TP", []);
            roff.text([bold(*name)]);
            roff.text([roman(plain(effect))]);
        }
    } else {
        roff.control("SH", ["SEE ALSO"]);
        roff.text([bold("beamtune"), roman("(1)")]);
    }
    roff.to_writer(&mut page)?;
    Ok(page)
}

/// Returns the date of the build: SOURCE_DATE_EPOCH (reproducible-builds.org), or today.
fn date() -> String {
    let seconds = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse().ok());
    let named = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
    named.unwrap_or_else(Timestamp::now).strftime("%Y-%m-%d").to_string()
}

fn exit_status(roff: &mut Roff, command: &Command) {
    // A group of commands, such as `study`, has no exit status.
    if command.is_subcommand_required_set() {
        return;
    }
    let name = command.get_bin_name().and_then(|name| name.strip_prefix("beamtune ")).unwrap_or_default();
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in ["0", "1", "2"].iter().zip(status_of(name).meanings) {
        if !meaning.is_empty() {
            roff.control("TP", []);
            roff.text([bold(*code)]);
            roff.text([roman(meaning)]);
        }
    }
}

/// The meanings of the exit status of some commands.
struct Status {
    /// The commands, without `beamtune`; empty: all others.
    commands: &'static [&'static str],
    /// Meanings of 0, 1 and 2; empty if the command never returns this status.
    meanings: [&'static str; 3],
}

/// Returns the row of a command; the last row is for all others.
fn status_of(name: &str) -> &'static Status {
    let row = STATUS.iter().find(|row| row.commands.is_empty() || row.commands.contains(&name));
    row.unwrap_or(&STATUS[STATUS.len() - 1])
}

/// Meanings of the exit status, also for docs/reference.
const STATUS: &[Status] = &[
    Status {
        commands: &["doctor", "diagnose", "memory", "locks", "import"],
        meanings: ["no finding above notice", "findings above notice", "failed"],
    },
    Status {
        commands: &["lint"],
        meanings: [
            "no finding above note",
            "findings above note",
            "a file could not be read; others are still reported",
        ],
    },
    Status {
        commands: &["load"],
        meanings: [
            "all answers correct, no generator-bound second",
            "errors, or generator-bound seconds",
            "no result, or a file could not be written",
        ],
    },
    Status {
        commands: &["load import"],
        meanings: ["the load had no errors", "the load had errors", "a file could not be read"],
    },
    Status {
        commands: &["compare"],
        meanings: [
            "B is better, or any difference is below 1 %",
            "any other verdict, or none",
            "failed, or stopped",
        ],
    },
    Status { commands: &["tune"], meanings: ["a setting was found", "none was found", "failed, or stopped"] },
    Status {
        commands: &["study show", "study resume"],
        meanings: ["as for compare or tune", "as for compare or tune", "failed, or stopped"],
    },
    Status {
        commands: &["lab evaluate", "lab judge"],
        meanings: ["all runs right", "a run was wrong", "failed"],
    },
    Status {
        commands: &["emulator run"],
        meanings: ["that of the command", "that of the command", "that of the command"],
    },
    Status { commands: &[], meanings: ["done", "", "failed"] },
];

/// Environment variables and their effect, also for docs/reference.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("BEAMTUNE_COOKIE", "the node's cookie, if there is no `--cookie-file`"),
    ("ERL_EPMD_PORT", "the port of EPMD, if not 4369"),
    ("XDG_CACHE_HOME", "cache folder for built emulators, instead of `~/.cache`"),
    ("NO_COLOR", "no colours, as with `TERM=dumb`"),
    ("LC_ALL", "`C` or `POSIX`: print ASCII only; if unset: LC_CTYPE or LANG"),
    ("BEAMTUNE_FOLDER", "set by `compare` and `tune` for the target's commands: an empty folder"),
    ("BEAMTUNE_PORT", "set by `compare` and `tune` for the target's commands: the chosen port"),
];

/// Removes the backquotes of Markdown.
fn plain(text: &str) -> String {
    text.replace('`', "")
}

#[cfg(test)]
mod tests;
