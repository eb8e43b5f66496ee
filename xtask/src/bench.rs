//! `cargo run --release -p xtask -- bench BINARY`: what beamtune costs and how fast it is, measured in one run.
//!
//! Writes docs/benchmarks.md, the whole page. What is compared is measured in alternating windows of one run, in
//! random order, and shown with its interval; what else used the machine meanwhile is measured too, and
//! stands on the page. A figure that cannot be measured says so and why.

mod cost;
mod day;
mod figure;
mod huge;
mod load;
pub(crate) mod machine;
mod node;
mod paced;
pub(crate) mod process;
mod size;
mod speed;
mod throughput;
mod window;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Instant, SystemTime};

use anyhow::{Context, Result};
use tempfile::TempDir;

use figure::{Figure, Verdict, table};
use machine::{Interference, Meter};
use node::{Otp, PROCESSES, TABLES};
use window::{AFTER, BEFORE, WINDOW};

use crate::repository;

/// How it is called.
pub const USAGE: &str = "cargo run --release -p xtask -- bench BINARY [--only N] [--pairs N]";

/// Of the intervals.
const CONFIDENCE: f64 = 0.95;
/// More than this used by others, and the machine is not quiet: contention has been seen to turn an effect around.
const QUIET_CORES: f64 = 0.1;

/// A group of figures that are measured together.
struct Group {
    name: &'static str,
    measure: fn(&Bench) -> Result<Vec<Figure>>,
}

/// In this order; they are numbered from 1.
const GROUPS: [Group; 12] = [
    Group { name: "list of nodes", measure: speed::nodes },
    Group { name: "first sample", measure: speed::first_sample },
    Group { name: "size", measure: size::measure },
    Group { name: "cost on an idle node", measure: cost::measure },
    Group { name: "cost on a busy node", measure: throughput::measure },
    Group { name: "recording of a day", measure: day::measure },
    Group { name: "linting", measure: speed::lint },
    Group { name: "huge nodes", measure: huge::measure },
    Group { name: "load, HTTP", measure: load::http::measure },
    Group { name: "load, truth", measure: load::truth::measure },
    Group { name: "load, messages", measure: load::exchange::measure },
    Group { name: "load, scale", measure: load::scale::measure },
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
    only: Option<usize>,
    pairs: Option<usize>,
}

impl Wish {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Wish> {
        let mut wish = Wish { beamtune: arguments.next()?.into(), only: None, pairs: None };
        while let Some(option) = arguments.next() {
            let number = arguments.next()?.parse().ok();
            match option.as_str() {
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
    let begin = Instant::now();
    let mut figures = Vec::new();
    let mut interferences = Vec::new();
    for (index, group) in GROUPS.iter().enumerate() {
        if wish.only.is_some_and(|only| only != index + 1) {
            continue;
        }
        eprintln!("{} of {}: {} …", index + 1, GROUPS.len(), group.name);
        let meter = Meter::begin()?;
        let found = or_not_measured(group.name, (group.measure)(&bench))?;
        figures.extend(found);
        interferences.push((group.name, meter.end()?));
    }
    let minutes = begin.elapsed().as_secs_f64() / 60.0;
    if let Wish { only: None, pairs: None, .. } = wish {
        let path = bench.repository.join("docs/benchmarks.md");
        std::fs::write(&path, page(&bench, &figures, &interferences, minutes)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    } else {
        println!("{}\n{}", table(&figures), what_else_ran(&interferences));
    }
    Ok(figures)
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

fn page(
    bench: &Bench,
    figures: &[Figure],
    interferences: &[(&str, Interference)],
    minutes: f64,
) -> Result<String> {
    let date = process::output(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]))?;
    let version = process::output(Command::new(&bench.beamtune).arg("--version"))?;
    let releases: Vec<_> = bench.otps.iter().map(|otp| otp.release.to_string()).collect();
    Ok(format!(
        "# Benchmarks\n\n\
         <!-- `make bench` writes this page. -->\n\n\
         What beamtune costs the node that it watches, and how fast it is: measured in one run of `make bench` on \
         {date}, in {minutes:.0} minutes, seed {seed}.\n\n\
         - {version}\n\
         - OTP {releases}\n\
         - {machine}\n\n\
         {figures}\n\
         ## Method\n\n\
         **Cost on an idle node**: a node with {PROCESSES} processes that wait and {TABLES} ETS tables counts with \
         `scheduler_wall_time_all` how long all its schedulers, the dirty ones too, were active, in windows of {window} s \
         without anybody, with `beamtune record` at its usual one sample a second, and with etop. A window holds every \
         kind of sample, also the dearer ones that come each 10 s; it begins {before} s after the watcher was \
         started, and {after} s lie between the watcher's end and what follows. A block has one window of each kind, in \
         random order. The figure is the Hodges-Lehmann estimate of the differences within blocks, in brackets \
         the exact interval of Wilcoxon's signed-rank test at no less than {confidence} % (`crates/stats/src/paired.rs`). A limit \
         is kept if the whole interval is below it, missed if none of it is, else unproven. \
         `scheduler_wall_time` itself is on in all windows. The nodes of all releases are measured at \
         the same time, in windows of their own, which costs them precision rather than flatters them. The VM \
         counts a scheduler as active also while the operating system has taken its core away; the operating \
         system counts CPU alone, but of all threads, and their busy waiting. A recording in which samples are \
         missing is no measurement.\n\n\
         **Cost on a busy node**: besides the idle processes and tables, one worker per core does the same again and \
         again: it computes and makes garbage, reads an ETS table, and sends a message to another process \
         and waits for the answer. The node counts what is done. beamtune runs on the same cores. Compared are \
         the logarithms of the throughput with and without beamtune, in random pairs of windows as above.\n\n\
         **First sample**: the time from before the process `beamtune record` is started until the VM has been read \
         for the first time, as the recording says it: it holds the start of the program, finding the node and its cookie, \
         connecting and injecting the agent. The node had been attached to once before.\n\n\
         **Memory** is the kernel's `VmHWM`. **Recording of a day**: `crates/recording/examples/day.rs` writes it. \
         **Linting**: the files of `fixtures/args` that hold flags, each several times.\n\n\
         **Huge nodes**: a thousand times a second the node gets 64 bytes from outside and sends them back; the delay counts \
         from when a request was due. Compared are the p99 of windows of 10 s without anybody, with \
         `beamtune record`, of windows that begin with its attaching, and of windows in which it leaves and is unloaded, \
         in blocks as above. More than 100,000 processes: the agent's module stays loaded (agent/README.md).\n\n\
         {load}\n\n\
         ## What else ran\n\n\
         CPU that was used meanwhile by processes that are not part of the benchmark, and what a hypervisor has withheld, \
         in cores. With more than {QUIET_CORES} the machine was not quiet, and the figures are rough.\n\n\
         {others}",
        date = date.trim(),
        version = version.trim(),
        releases = releases.join(", "),
        machine = machine::describe(),
        seed = bench.seed,
        load = load::method(),
        others = what_else_ran(interferences),
        figures = table(figures),
        window = WINDOW.as_secs(),
        before = BEFORE.as_secs_f64(),
        after = AFTER.as_secs_f64(),
        confidence = CONFIDENCE * 100.0,
    ))
}

fn what_else_ran(interferences: &[(&str, Interference)]) -> String {
    let mut table = String::from("| while measuring | others | withheld | |\n|---|---|---|---|\n");
    for (name, Interference { others, stolen }) in interferences {
        let mark = if others + stolen > QUIET_CORES { "**not quiet**" } else { "" };
        table.push_str(&format!("| {name} | {others:.2} | {stolen:.2} | {mark} |\n"));
    }
    table
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
        check("beamtune --only 13", None);
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
