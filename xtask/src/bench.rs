//! `cargo run --release -p xtask -- bench BINARY`: what beamtune costs and how fast it is, measured in one run.
//!
//! Writes docs/benchmarks.md, a section for each group of figures; with `--only` that one's section alone. What is compared is
//! measured in alternating windows of one run, in random order, and shown with its interval; what else used the machine
//! meanwhile is measured too, and stands on the page. A figure that cannot be measured says so and why.

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
use page::{About, Measured};

use crate::repository;

/// How it is called.
pub const USAGE: &str = "cargo run --release -p xtask -- bench BINARY [--only N|none] [--pairs N]";

/// Of the intervals.
const CONFIDENCE: f64 = 0.95;

/// A group of figures that are measured together.
struct Group {
    name: &'static str,
    measure: fn(&Bench) -> Result<Vec<Figure>>,
    /// How it is measured, for the page.
    method: fn() -> String,
    /// Folders with the code that is measured.
    code: &'static [&'static str],
}

/// In this order; they are numbered from 1.
const GROUPS: [Group; 14] = [
    Group {
        name: "list of nodes",
        measure: speed::nodes,
        method: String::new,
        code: &["crates/host/src", "crates/cli/src"],
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
        name: "load, truth",
        measure: load::truth::measure,
        method: load::truth::method,
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

/// What the measurements need.
pub struct Bench {
    /// The binary.
    beamtune: PathBuf,
    /// The root of the repository.
    repository: PathBuf,
    /// The Erlangs; the machine's own is the first.
    otps: Vec<Otp>,
    /// For recordings; removed at the end.
    folder: TempDir,
    /// From it the order of windows is drawn.
    seed: u64,
    /// How many blocks of windows, if not as many as the page wants.
    pairs: Option<usize>,
}

impl Bench {
    /// The machine's own Erlang.
    fn own_otp(&self) -> Result<&Otp> {
        self.otps.first().context("there is no Erlang")
    }

    /// Random numbers of one measurement.
    fn random(&self, number: u32) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed.wrapping_add(number.into()))
    }
}

/// What the user wants.
struct Wish {
    beamtune: PathBuf,
    /// Of `GROUPS`, from 1; 0: none, the page is marked only.
    only: Option<usize>,
    pairs: Option<usize>,
}

impl Wish {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Wish> {
        let mut wish = Wish { beamtune: arguments.next()?.into(), only: None, pairs: None };
        while let Some(option) = arguments.next() {
            let value = arguments.next()?;
            let number = value.parse().ok();
            match option.as_str() {
                "--only" if value == "none" => wish.only = Some(0),
                "--only" => wish.only = Some(number.filter(|number| (1..=GROUPS.len()).contains(number))?),
                "--pairs" => wish.pairs = Some(number.filter(|number| *number > 0)?),
                _ => return None,
            }
        }
        Some(wish)
    }
}

/// Runs the subcommand. Fails where a limit is missed, or where something could not be measured.
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let Some(wish) = Wish::parse(arguments) else {
        eprintln!("usage: {USAGE}");
        return ExitCode::from(2);
    };
    match measure(wish) {
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

fn measure(wish: Wish) -> Result<Vec<Figure>> {
    process::catch_interrupts()?;
    // VMs would start one each; those in chroots are to use the same.
    process::output(Command::new("epmd").arg("-daemon"))?;
    let bench = Bench {
        beamtune: std::fs::canonicalize(&wish.beamtune)
            .with_context(|| format!("no binary {}: run make build", wish.beamtune.display()))?,
        repository: repository::root()?.to_owned(),
        otps: node::installed()?,
        folder: tempfile::Builder::new().prefix("beamtune-bench-").tempdir()?,
        seed: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs(),
        pairs: wish.pairs,
    };
    let mut measured = Vec::new();
    for (index, group) in GROUPS.iter().enumerate() {
        if wish.only.is_some_and(|only| only != index + 1) {
            continue;
        }
        eprintln!("{} of {}: {} …", index + 1, GROUPS.len(), group.name);
        let (begin, meter) = (Instant::now(), Meter::begin()?);
        let figures = or_not_measured(group.name, (group.measure)(&bench))?;
        println!("{}", table(&figures));
        let minutes = begin.elapsed().as_secs_f64() / 60.0;
        measured.push(Measured { name: group.name, figures, interference: meter.end()?, minutes });
    }
    // Fewer pairs are for trying out.
    if wish.pairs.is_none() {
        let path = bench.repository.join("docs/benchmarks.md");
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        let page = page::written(&before, &measured, &About::of(&bench)?, |group| {
            last_change(&bench.repository, group)
        });
        std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(measured.into_iter().flat_map(|measured| measured.figures).collect())
}

/// The day of the last commit to the code that a group measures, as `2026-11-27`; none outside of a clone.
fn last_change(repository: &Path, group: &Group) -> Option<String> {
    let log = Command::new("git")
        .current_dir(repository)
        .args(["log", "-1", "--format=%cs", "--"])
        .args(group.code)
        .output()
        .ok()?;
    Some(String::from_utf8_lossy(&log.stdout).trim().to_owned()).filter(|day| !day.is_empty())
}

/// What could not be measured becomes a line of the table; but Ctrl-C ends everything.
fn or_not_measured(what: &str, found: Result<Vec<Figure>>) -> Result<Vec<Figure>> {
    match found {
        Err(error) if !process::is_interrupted() => {
            Ok(vec![Figure::not_measured(what, format!("{error:#}"))])
        }
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_understood_or_refused() {
        let check = |line: &str, expect: Option<(Option<usize>, Option<usize>)>| {
            let wish = Wish::parse(line.split_whitespace().map(str::to_owned));
            assert_eq!(wish.map(|wish| (wish.only, wish.pairs)), expect, "{line}");
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
    fn what_fails_is_told_in_the_table() {
        let found = or_not_measured("size", Err(anyhow::anyhow!("no such file"))).expect("not interrupted");
        assert_eq!(
            table(&found).lines().last(),
            Some("| size | not measured: no such file | – | not measured |")
        );
    }
}
