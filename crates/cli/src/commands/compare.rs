//! `beamtune compare`: does one setting differ from another, and by how much.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use beamtune_host::cpus;
use beamtune_load::scenario::Quick;
use beamtune_model::study::{Arm, Margin, QUANTITIES, Quantity, Question};
use beamtune_trial::compare::{self, LEAST_SAME_PAIRS};

use super::load::Written;
use super::study::{self, Asked, Kept};
use crate::access::AccessArgs;
use crate::terminal;
use crate::trial::{Pins, Ready, Setup};

/// Compare two settings of a target under load: emulator flags, or environment variables that its program reads.
///
/// Each trial starts the target anew. First A is compared with itself, which shows what this machine can tell; then A and B follow in
/// random order until a planned look decides, after 8, 12, 18 or 30 pairs.
#[derive(clap::Args)]
pub struct Args {
    /// Emulator flags of A, beside those that the target has; '' for the target as it is.
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true, default_value = "")]
    a: String,
    /// Emulator flags of B: '+sbwt none +sbwtdcpu none'.
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true, default_value = "")]
    b: String,
    /// An environment variable of A.
    #[arg(long, value_name = "NAME=VALUE")]
    a_env: Vec<String>,
    /// An environment variable of B.
    #[arg(long, value_name = "NAME=VALUE")]
    b_env: Vec<String>,
    #[command(flatten)]
    target: TargetArgs,
    /// What decides: cpu-per-request, throughput, p50, p90, p99, rss, rss-peak …
    #[arg(long, value_name = "QUANTITY", default_value = "cpu-per-request", value_parser = quantity)]
    objective: String,
    /// What B must not make worse, and by how much it may: p99:+5%, rss:+10%, throughput:-2%, errors:+0.1%.
    #[arg(long, value_name = "QUANTITY:MARGIN", value_parser = margin, default_values = ["p99:+10%", "errors:+0.1%"])]
    guard: Vec<Margin>,
    /// Pairs of A and B, at most: 8, 12, 18 or 30 of them are looked at.
    #[arg(long, value_name = "N", default_value_t = 30)]
    pairs: usize,
    /// Pairs of A with itself.
    #[arg(long, value_name = "N", default_value_t = LEAST_SAME_PAIRS as u64, value_parser = clap::value_parser!(u64).range(LEAST_SAME_PAIRS as u64..=100))]
    same_pairs: u64,
    /// The seed of every order.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The study's file; without it, one with the time in its name, here.
    #[arg(long, value_name = "FILE")]
    study: Option<PathBuf>,
    /// Say what would be done and how long it takes, and do nothing.
    #[arg(long)]
    plan: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: AccessArgs,
}

/// What is started and driven.
#[derive(clap::Args)]
pub struct TargetArgs {
    /// The command line that starts the target, on which its VM's flags reach it by ERL_ZFLAGS.
    #[arg(long, value_name = "COMMAND")]
    start: String,
    /// What shows that it is ready: http://HOST:PORT/PATH, tcp:PORT, tcp:HOST:PORT or node.
    #[arg(long, value_name = "WHAT", value_parser = Ready::parse)]
    ready: Ready,
    /// How long that may take.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = terminal::parse_duration)]
    ready_within: Duration,
    /// The command line that stops it; without one its VM is asked to end.
    #[arg(long, value_name = "COMMAND")]
    stop: Option<String>,
    /// Which node, where the target has several VMs.
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// The load: a URL (http, ws, mqtt, tcp …) or a file with a scenario, as of beamtune load.
    #[arg(long, value_name = "URL|FILE")]
    load: String,
    /// Of a URL: requests a second.
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Of a URL: connections.
    #[arg(long, value_name = "N")]
    connections: Option<u64>,
    /// How much of each trial counts.
    #[arg(long = "for", value_name = "TIME", default_value = "20s", value_parser = terminal::parse_duration)]
    window: Duration,
    /// How long it is waited at most until the target is steady.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = terminal::parse_duration)]
    warm_up: Duration,
    /// Let target and generator share all CPUs; without it each has its own.
    #[arg(long)]
    no_pins: bool,
}

/// The shortest window: of fewer seconds no half says anything.
const LEAST_WINDOW_S: u64 = 4;
/// The shortest warm-up.
const LEAST_WARM_UP_S: u64 = 2;
/// Beside window and warm-up a trial takes some seconds to start and to stop.
const START_AND_STOP_S: f64 = 3.0;

pub fn run(args: &Args) -> Result<ExitCode> {
    let (question, setup) = (question(args)?, args.target.setup()?);
    let Some(plan) = plan(&question, &setup) else {
        bail!("--pairs {} is too few to conclude anything: 8 are the least", args.pairs);
    };
    if args.plan {
        terminal::print(&plan);
        return Ok(ExitCode::SUCCESS);
    }
    let file = args.study.clone().unwrap_or_else(|| study::usual_file("compare"));
    study::begin(&file, &Kept { asked: Asked::Compare(question), setup }, &plan, &args.access, args.json)
}

/// What will be done, for people; `None` where nothing can be concluded.
fn plan(question: &Question, setup: &Setup) -> Option<String> {
    let (least, most) = compare::trials(question)?;
    let (quick, slow) = trial_s(setup);
    Some(format!(
        "A: {}\nB: {}\ndecides: {}; must not become worse: {}\n\
         trials: {least} to {most} of {} s (with warm-up and start {quick:.0} to {slow:.0} s each), so {} to {} in all\n{}\n",
        question.a.describe(),
        question.b.describe(),
        question.objective,
        guards(&question.guards),
        setup.window_s,
        minutes(least as f64 * quick),
        minutes(most as f64 * slow),
        pins(setup),
    ))
}

/// What must not become worse, for people.
pub fn guards(margins: &[Margin]) -> String {
    let told =
        margins.iter().map(|margin| format!("{} by more than {}", margin.quantity, share(margin.most)));
    let told: Vec<String> = told.collect();
    if told.is_empty() { "nothing".to_owned() } else { told.join(", ") }
}

/// Who runs where. A VM that may run on one CPU has one scheduler.
pub fn pins(setup: &Setup) -> String {
    let Some(pins) = &setup.pins else { return "target and load share all CPUs".to_owned() };
    let one = match pins.target.len() {
        1 => ", where a VM has one scheduler (+S 1) unless it is told otherwise; --no-pins lets it have all",
        _ => "",
    };
    format!("the target on CPU {}, the load on CPU {}{one}", list(&pins.target), list(&pins.generator))
}

/// How long a trial takes, in seconds: one that is steady at once, and one that is not before the end of its warm-up.
pub fn trial_s(setup: &Setup) -> (f64, f64) {
    let with = |warm_up_s: f64| f64::from(setup.window_s) + warm_up_s + START_AND_STOP_S;
    let most = f64::from(setup.warm_up_s);
    (with(most.min(beamtune_trial::steady::STEADY_SECONDS as f64)), with(most))
}

pub fn minutes(seconds: f64) -> String {
    format!("{:.0} min", (seconds / 60.0).ceil())
}

fn list(cpus: &[usize]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn share(most: f64) -> String {
    format!("{} %", (most * 1e4).round() / 1e2)
}

fn question(args: &Args) -> Result<Question> {
    let arm = |name: &str, flags: &str, environment: &[String]| {
        let pairs = environment.iter().map(|pair| {
            let split = pair.split_once('=').filter(|(name, _)| !name.is_empty());
            let (name, value) = split.with_context(|| format!("{pair:?} is no NAME=VALUE"))?;
            Ok((name.to_owned(), value.to_owned()))
        });
        Ok::<_, anyhow::Error>(Arm {
            name: name.to_owned(),
            flags: flags.split_whitespace().map(str::to_owned).collect(),
            environment: pairs.collect::<Result<_>>()?,
        })
    };
    let (a, b) = (arm("A", &args.a, &args.a_env)?, arm("B", &args.b, &args.b_env)?);
    if (&a.flags, &a.environment) == (&b.flags, &b.environment) {
        bail!("A and B are the same: say what B is with --b or --b-env");
    }
    let same_pairs = usize::try_from(args.same_pairs).unwrap_or(LEAST_SAME_PAIRS);
    Ok(Question {
        seed: args.seed,
        a,
        b,
        objective: args.objective.clone(),
        guards: args.guard.clone(),
        same_pairs,
        most_pairs: args.pairs,
    })
}

impl TargetArgs {
    pub fn setup(&self) -> Result<Setup> {
        let seconds = |what: &str, length: Duration, least: u64| match length.as_secs() {
            seconds if seconds >= least => Ok(u32::try_from(seconds).unwrap_or(u32::MAX)),
            _ => bail!("{what} is too short: {least}s is the least"),
        };
        let window_s = seconds("--for", self.window, LEAST_WINDOW_S)?;
        let warm_up_s = seconds("--warm-up", self.warm_up, LEAST_WARM_UP_S)?;
        let allowed = cpus::allowed().context("cannot read which CPUs may be used")?;
        Ok(Setup {
            start: self.start.clone(),
            folder: std::env::current_dir().context("cannot read the working folder")?,
            ready: self.ready.clone(),
            ready_within_s: self.ready_within.as_secs_f64(),
            stop: self.stop.clone(),
            node: self.node.clone(),
            load: self.load()?,
            window_s,
            warm_up_s,
            pins: if self.no_pins { None } else { Pins::apart(&allowed) },
        })
    }

    fn load(&self) -> Result<Written> {
        let load = if self.load.contains("://") {
            let quick = Quick {
                per_second: self.rate,
                devices: self.connections.unwrap_or(Quick::default().devices),
                ..Quick::default()
            };
            Written::of_url(&self.load, &quick)?
        } else if self.rate.is_some() || self.connections.is_some() {
            bail!("--rate and --connections go with a URL; a scenario says it itself");
        } else {
            let mut load = Written::of_file(&self.load)?;
            // A study can be gone on with from any folder.
            load.folder = std::path::absolute(&load.folder).context("cannot read the working folder")?;
            load
        };
        // What is wrong with it is said now, and not after the target has been started.
        load.read(&[])?;
        Ok(load)
    }
}

pub fn quantity(text: &str) -> Result<String, String> {
    match Quantity::find(text) {
        Some(_) => Ok(text.to_owned()),
        None => {
            let names: Vec<&str> = QUANTITIES.iter().map(|quantity| quantity.name).collect();
            Err(format!("{text:?} is not measured; what is: {}", names.join(", ")))
        }
    }
}

/// `p99:+5%`.
pub fn margin(text: &str) -> Result<Margin, String> {
    let (name, by) = text.split_once(':').ok_or_else(|| format!("{text:?} has no margin; write p99:+5%"))?;
    let name = quantity(name)?;
    let more_is_better = Quantity::find(&name).is_some_and(|quantity| quantity.more_is_better);
    let number = by.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    let number = number.ok_or_else(|| format!("{by:?} is no margin; write +5%"))? / 100.0;
    let most = if more_is_better { -number } else { number };
    if most > 0.0 && most < 1.0 {
        Ok(Margin { quantity: name, most })
    } else {
        let example = if more_is_better { "throughput:-2%" } else { "p99:+5%" };
        Err(format!("{by:?} is no margin by which {name} may become worse; write it as {example}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_are_read_with_their_margins() {
        let check = |text: &str, expect: Option<(&str, f64)>| {
            let read = margin(text).ok();
            let read = read.as_ref().map(|margin| (margin.quantity.as_str(), margin.most));
            assert_eq!(read, expect, "{text}");
        };
        check("p99:+5%", Some(("p99", 0.05)));
        check("p99:5%", Some(("p99", 0.05)));
        check("throughput:-2%", Some(("throughput", 0.02)));
        check("errors:+0.1%", Some(("errors", 0.001)));
        check("throughput:+2%", None);
        check("p99:-5%", None);
        check("p99:+500%", None);
        check("speed:+5%", None);
        check("p99", None);
    }
}
