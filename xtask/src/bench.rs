//! `cargo run --release -p xtask -- bench BINARY`: measures beamtune's overhead and speed.
//!
//! Writes docs/benchmarks.md, one section per group of figures; `--only` writes one section. Comparisons alternate between the variants in
//! windows of random order, and report an interval. The page also reports the CPU time that other processes used. If a figure cannot be
//! measured, the page says why.

mod cost;
mod day;
mod dump;
mod figure;
mod huge;
mod load;
pub(crate) mod machine;
mod memory;
mod node;
mod paced;
mod page;
pub(crate) mod process;
mod size;
mod speed;
mod throughput;
mod window;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Instant, SystemTime};

use anyhow::{Context, Result};
use tempfile::TempDir;

use figure::{Figure, Verdict, table};
use machine::Meter;
use node::Otp;
use page::{Measured, Setup};

use crate::repository;

/// Command line of the subcommand.
pub const USAGE: &str = "cargo run --release -p xtask -- bench BINARY [--only N|none] [--pairs N]";

/// Confidence level of all intervals.
const CONFIDENCE: f64 = 0.95;

/// A group of figures that are measured together.
struct Group {
    name: &'static str,
    measure: fn(&Bench) -> Result<Vec<Figure>>,
    /// Returns the description of the method for the page.
    method: fn() -> String,
    /// Folders of the measured code.
    code: &'static [&'static str],
}

/// The groups, in the order of the page; `--only` counts from 1.
const GROUPS: [Group; 14] = [
    Group {
        name: "list of nodes",
        measure: speed::nodes,
        method: String::new,
        code: &["crates/host/src", "crates/node/src", "crates/cli/src"],
    },
    Group {
        name: "first sample",
        measure: speed::first_sample,
        method: speed::first_sample_method,
        code: &["agent/src", "crates/attach/src"],
    },
    Group {
        name: "size",
        measure: size::measure,
        method: size::method,
        code: &["crates/attach/src", "crates/recording/src"],
    },
    Group {
        name: "cost on an idle node",
        measure: cost::measure,
        method: cost::method,
        code: &["agent/src"],
    },
    Group {
        name: "cost on a busy node",
        measure: throughput::measure,
        method: throughput::method,
        code: &["agent/src", "crates/attach/src"],
    },
    Group {
        name: "recording of a day",
        measure: day::measure,
        method: day::method,
        code: &["crates/recording/src", "crates/model/src", "crates/rules/src"],
    },
    Group {
        name: "linting",
        measure: speed::lint,
        method: speed::lint_method,
        code: &["crates/flags/src", "crates/flags/data"],
    },
    Group { name: "huge nodes", measure: huge::measure, method: huge::method, code: &["agent/src"] },
    Group {
        name: "load, HTTP",
        measure: load::http::measure,
        method: load::http::method,
        code: &["crates/load/src"],
    },
    Group {
        name: "load, accuracy",
        measure: load::accuracy::measure,
        method: load::accuracy::method,
        code: &["crates/load/src"],
    },
    Group {
        name: "load, messages",
        measure: load::exchange::measure,
        method: load::exchange::method,
        code: &["crates/load/src"],
    },
    Group {
        name: "load, scale",
        measure: load::scale::measure,
        method: load::scale::method,
        code: &["crates/load/src"],
    },
    Group {
        name: "memory",
        measure: memory::measure,
        method: memory::method,
        code: &["agent/src", "crates/host/src"],
    },
    Group { name: "crash dump", measure: dump::measure, method: dump::method, code: &["crates/import/src"] },
];

/// The data that all measurements share.
pub struct Bench {
    /// The beamtune binary.
    beamtune: PathBuf,
    /// Root of the repository.
    repository: PathBuf,
    /// OTP installations; the first one belongs to the host.
    otps: Vec<Otp>,
    /// Folder for recordings; removed at the end.
    folder: TempDir,
    /// Seed of the order of windows.
    seed: u64,
    /// Number of blocks of windows, instead of each group's default.
    pairs: Option<usize>,
}

impl Bench {
    /// Returns the host's OTP.
    fn own_otp(&self) -> Result<&Otp> {
        self.otps.first().context("Erlang is not installed")
    }

    /// Returns the random number generator of a measurement.
    fn random(&self, number: u32) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed.wrapping_add(number.into()))
    }
}

/// Options of the subcommand.
struct Options {
    beamtune: PathBuf,
    /// Number of a group in `GROUPS`, from 1; 0: no group, only outdated sections are marked.
    only: Option<usize>,
    pairs: Option<usize>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Options> {
        let mut options = Options { beamtune: arguments.next()?.into(), only: None, pairs: None };
        while let Some(option) = arguments.next() {
            let value = arguments.next()?;
            let number = value.parse().ok();
            match option.as_str() {
                "--only" if value == "none" => options.only = Some(0),
                "--only" => options.only = Some(number.filter(|number| (1..=GROUPS.len()).contains(number))?),
                "--pairs" => options.pairs = Some(number.filter(|number| *number > 0)?),
                _ => return None,
            }
        }
        Some(options)
    }
}

/// Runs the subcommand. It fails if a figure misses its limit or could not be measured.
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let Some(options) = Options::parse(arguments) else {
        eprintln!("usage: {USAGE}");
        return ExitCode::from(2);
    };
    match measure(options) {
        Ok(figures) => {
            let bad = |figure: &&Figure| matches!(figure.verdict, Verdict::Missed | Verdict::NotMeasured);
            if figures.iter().any(|figure| bad(&figure)) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(error) => {
            eprintln!("bench could not run: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn measure(options: Options) -> Result<Vec<Figure>> {
    process::catch_interrupts()?;
    // The VMs in chroots share the host's EPMD.
    process::output(Command::new("epmd").arg("-daemon"))?;
    let bench = Bench {
        beamtune: std::fs::canonicalize(&options.beamtune)
            .with_context(|| format!("no binary {}: run make build", options.beamtune.display()))?,
        repository: repository::root()?.to_owned(),
        otps: node::installed()?,
        folder: tempfile::Builder::new().prefix("beamtune-bench-").tempdir()?,
        seed: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs(),
        pairs: options.pairs,
    };
    let mut measured = Vec::new();
    for (index, group) in GROUPS.iter().enumerate() {
        if options.only.is_some_and(|only| only != index + 1) {
            continue;
        }
        eprintln!("{} of {}: {} …", index + 1, GROUPS.len(), group.name);
        let (begin, meter) = (Instant::now(), Meter::begin()?);
        let figures = or_not_measured(group.name, (group.measure)(&bench))?;
        println!("{}", table(&figures));
        let minutes = begin.elapsed().as_secs_f64() / 60.0;
        measured.push(Measured { name: group.name, figures, interference: meter.end()?, minutes });
    }
    // A run with a different number of pairs is only a test.
    if options.pairs.is_none() {
        let path = bench.repository.join("docs/benchmarks.md");
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        let page = page::render(&before, &measured, &Setup::of(&bench)?, |group| {
            last_change(&bench.repository, group)
        });
        std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(measured.into_iter().flat_map(|measured| measured.figures).collect())
}

/// Returns the date of the last commit to the code that a group measures, such as `2026-11-27`; `None` outside a git clone.
fn last_change(repository: &Path, group: &Group) -> Option<String> {
    let log = Command::new("git")
        .current_dir(repository)
        .args(["log", "-1", "--format=%cs", "--"])
        .args(group.code)
        .output()
        .ok()?;
    Some(String::from_utf8_lossy(&log.stdout).trim().to_owned()).filter(|day| !day.is_empty())
}

/// Converts an error to a row of the table, except after Ctrl-C.
fn or_not_measured(what: &str, figures: Result<Vec<Figure>>) -> Result<Vec<Figure>> {
    match figures {
        Err(error) if !process::is_interrupted() => {
            Ok(vec![Figure::not_measured(what, format!("{error:#}"))])
        }
        figures => figures,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed_or_rejected() {
        let check = |line: &str, expect: Option<(Option<usize>, Option<usize>)>| {
            let options = Options::parse(line.split_whitespace().map(str::to_owned));
            assert_eq!(options.map(|options| (options.only, options.pairs)), expect, "{line}");
        };
        check("beamtune", Some((None, None)));
        check("beamtune --only 6 --pairs 8", Some((Some(6), Some(8))));
        check("", None);
        check(&format!("beamtune --only {}", GROUPS.len()), Some((Some(GROUPS.len()), None)));
        check(&format!("beamtune --only {}", GROUPS.len() + 1), None);
        check("beamtune --only none", Some((Some(0), None)));
        check("beamtune --only 0", None);
        check("beamtune --only", None);
        check("beamtune --pairs 0", None);
        check("beamtune --fast 1", None);
    }

    #[test]
    fn a_failed_measurement_is_a_row_of_the_table() {
        let found = or_not_measured("size", Err(anyhow::anyhow!("no such file"))).expect("not interrupted");
        assert_eq!(
            table(&found).lines().last(),
            Some("| size | not measured: no such file | – | not measured |")
        );
    }
}
