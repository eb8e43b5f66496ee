//! `beamtune profile diff`: what uses more or less CPU time than before.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use beamtune_report::profile::{self, Comparison, MAX_BYTES, SavedProfile};

use crate::terminal;

/// Show which functions use more or less CPU time than before
///
/// Compares shares of the sampled CPU time, so profiles may differ in length and rate. A change is called more or less if its 95 % interval
/// excludes 0. The interval covers the randomness of sampling, not a load that differs.
#[derive(clap::Args)]
pub struct Args {
    /// Profile before, from beamtune profile --format json -o BEFORE
    before: PathBuf,
    /// Profile after
    after: PathBuf,
    /// Output format
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    format: Format,
    /// Write to this file instead of the terminal
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Functions and call tree
    Text,
    /// Flame graph, red for more and blue for less: one page that works offline
    Html,
    /// One line for each stack with both counts, as of difffolded.pl
    Collapsed,
    /// All changes with their intervals
    Json,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    let comparison = Comparison::new(before.page(), after.page());
    let content = match args.format {
        Format::Text => {
            let page = profile::render_diff(&comparison, terminal::style());
            return super::write_page(&page, args.output.as_deref());
        }
        Format::Html => profile::html_diff(&comparison),
        Format::Collapsed => profile::collapsed_diff(&comparison),
        Format::Json => profile::json_diff(&comparison),
    };
    super::write(content.as_bytes(), args.output.as_deref())
}

fn read(path: &Path) -> Result<SavedProfile> {
    let cannot_read = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(cannot_read)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).with_context(cannot_read)?;
    if bytes.len() > MAX_BYTES {
        bail!("{}: larger than {} MiB", cannot_read(), MAX_BYTES >> 20);
    }
    profile::read(&bytes).with_context(cannot_read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_files_are_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("p.json");
        let reason = |path: &Path| format!("{:#}", read(path).unwrap_err());
        assert!(reason(&file).starts_with(&format!("cannot read {}: No such file", file.display())));
        assert!(reason(folder.path()).contains("directory"));
        std::fs::write(&file, "scheduler;a:b/1 30\n").unwrap();
        assert!(reason(&file).contains("not a file of beamtune profile --format json"), "{}", reason(&file));
    }
}
