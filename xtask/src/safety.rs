//! `cargo run -p xtask -- safety BINARY`: runs the safety tests with their full numbers of repetitions, and writes the tables of
//! docs/safety.md.
//!
//! The tests in `crates/cli/tests/safety` assert the same with fewer repetitions in `make test`. They append lines of the form `case TAB
//! what TAB release TAB value` to a file. Each case becomes a table with a column per release. The text around the tables is written by
//! hand.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::bench::{machine, process};
use crate::repository;

/// Command line of the subcommand.
pub const USAGE: &str = "cargo run -p xtask -- safety BINARY [TEST]";

/// Environment variable with the path of the file of figures. If it is set, the file is kept, so that tests that are run one by one write
/// to the same page.
const FIGURES: &str = "BEAMTUNE_SAFETY";

/// Markers around the generated part of the page.
const BEGIN: &str = "<!-- `make safety` writes from here ... -->\n";
const END: &str = "<!-- ... to here -->\n";

/// Runs the subcommand. If a test fails, the subcommand fails, and the page is not written.
pub fn run(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let (Some(binary), only, None) = (arguments.next(), arguments.next(), arguments.next()) else {
        eprintln!("usage: {USAGE}");
        return ExitCode::from(2);
    };
    match measure(binary.into(), only) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("safety: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure(binary: PathBuf, only: Option<String>) -> Result<()> {
    let binary = std::fs::canonicalize(&binary)
        .with_context(|| format!("no binary {}: run make build", binary.display()))?;
    process::output(Command::new("epmd").arg("-daemon"))?;
    let folder = tempfile::tempdir()?;
    let kept = std::env::var_os(FIGURES).map(PathBuf::from);
    let file = kept.clone().unwrap_or_else(|| folder.path().join("figures"));
    let meter = machine::Meter::begin()?;
    let status = Command::new(env!("CARGO"))
        .args(["test", "--quiet", "-p", "beamtune", "--test", "safety"])
        .args(&only)
        .args(["--", "--nocapture", "--test-threads=2"])
        .env("BEAMTUNE", &binary)
        .env(FIGURES, &file)
        .current_dir(repository::root()?)
        .status()
        .context("cannot start cargo")?;
    let interference = meter.end()?;
    let figures = std::fs::read_to_string(&file).unwrap_or_default();
    let tables = tables(&figures)?;
    ensure!(status.success(), "a test failed; docs/safety.md was not written");
    if only.is_some() && kept.is_none() {
        println!("{tables}");
    } else {
        let date = process::output(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]))?;
        let head = format!(
            "Measured by `make safety`, finished {}, on {}. Other processes used {:.2} cores during the measurement; more would lengthen all times.\n\n",
            date.trim(),
            machine::describe(),
            interference.others + interference.stolen
        );
        let path = repository::root()?.join("docs/safety.md");
        let page = std::fs::read_to_string(&path)?;
        std::fs::write(&path, replaced(&page, &format!("{head}{tables}"))?)?;
    }
    Ok(())
}

/// Replaces the text between the markers.
fn replaced(page: &str, text: &str) -> Result<String> {
    let (before, rest) =
        page.split_once(BEGIN).with_context(|| format!("docs/safety.md has no line {BEGIN:?}"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("docs/safety.md has no line {END:?}"))?;
    Ok(format!("{before}{BEGIN}\n{text}{END}{after}"))
}

/// Creates a table per case, with rows in the order of their first figures.
fn tables(figures: &str) -> Result<String> {
    let mut rows: Vec<[&str; 4]> = Vec::new();
    for line in figures.lines() {
        let row: Vec<_> = line.split('\t').collect();
        rows.push(row.try_into().map_err(|_| anyhow::anyhow!("expected four columns: {line}"))?);
    }
    let mut cases: Vec<&str> = Vec::new();
    for [case, ..] in &rows {
        if !cases.contains(case) {
            cases.push(case);
        }
    }
    // Tests run in parallel, so their order varies.
    cases.sort_unstable();
    let mut out = String::new();
    for case in cases {
        let of_case: Vec<_> = rows.iter().filter(|row| row[0] == case).collect();
        let releases: BTreeSet<&str> = of_case.iter().map(|row| row[2]).collect();
        let mut whats: Vec<&str> = Vec::new();
        for [_, what, ..] in &of_case {
            if !whats.contains(what) {
                whats.push(what);
            }
        }
        let mut letters = case.chars();
        let title: String = letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
        out.push_str(&format!("### {title}\n\n| |"));
        releases.iter().for_each(|release| out.push_str(&format!(" OTP {release} |")));
        out.push_str("\n|---|");
        releases.iter().for_each(|_| out.push_str("---|"));
        for what in whats {
            out.push_str(&format!("\n| {what} |"));
            for release in &releases {
                let found = of_case.iter().rfind(|row| row[1] == what && row[2] == *release);
                let value = found.map_or("–".to_owned(), |row| row[3].replace('|', "\\|"));
                out.push_str(&format!(" {value} |"));
            }
        }
        out.push_str("\n\n");
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_is_a_table_with_a_column_per_release() {
        let figures =
            "b case\ttime\t25\t1 s\na case\ttime\t25\t2 s\na case\tlog\t25\tx|y\na case\ttime\t29\t3 s\n";
        assert_eq!(
            tables(figures).expect("four columns"),
            "### A case\n\n| | OTP 25 | OTP 29 |\n|---|---|---|\n| time | 2 s | 3 s |\n| log | x\\|y | – |\n\n\
             ### B case\n\n| | OTP 25 |\n|---|---|\n| time | 1 s |\n\n"
        );
        assert!(tables("a\tb\tc\n").is_err());
    }

    #[test]
    fn only_the_text_between_the_markers_is_replaced() {
        let page = format!("before\n{BEGIN}old\n{END}after\n");
        assert_eq!(replaced(&page, "new\n").expect("marks"), format!("before\n{BEGIN}\nnew\n{END}after\n"));
        assert!(replaced("no marks", "new").is_err());
    }
}
