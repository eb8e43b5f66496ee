//! `beamtune compare`: measures whether two settings differ, and by how much.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use beamtune_model::study::{Arm, Question};
use beamtune_runner::Setup;
use beamtune_trial::compare::{self, MIN_SAME_PAIRS};

use super::study::{self, StudyDescription, StudyQuestion};
use super::study_args::{StudyArgs, TargetArgs, guards, minutes, pins, trial_s};
use crate::terminal;

/// Compare two settings of a target under load
///
/// A setting is a list of emulator flags, or of environment variables that the target's program reads. Each trial restarts the target.
/// First, A is compared with itself, to find the smallest difference that is detectable on this host. Then A and B are run in pairs, in
/// random order. After 8, 12, 18 and 30 pairs, the results are analysed; the comparison ends when they are conclusive.
#[derive(clap::Args)]
pub struct Args {
    /// Emulator flags of A, in addition to the target's own
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true, default_value = "")]
    a: String,
    /// Emulator flags of B: '+sbwt none +sbwtdcpu none'
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true, default_value = "")]
    b: String,
    /// Environment variable of A
    #[arg(long, value_name = "NAME=VALUE")]
    a_env: Vec<String>,
    /// Environment variable of B
    #[arg(long, value_name = "NAME=VALUE")]
    b_env: Vec<String>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    study: StudyArgs,
    /// Maximum number of pairs of A and B: 8, 12, 18 or 30
    #[arg(long, value_name = "N", default_value_t = 30)]
    pairs: usize,
    /// Number of pairs of A against itself
    #[arg(long, value_name = "N", default_value_t = MIN_SAME_PAIRS as u64, value_parser = clap::value_parser!(u64).range(MIN_SAME_PAIRS as u64..=100))]
    same_pairs: u64,
}

/// Default constraints.
const GUARDS: [&str; 2] = ["p99:+10%", "errors:+0.1%"];

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let setup = args.target.setup()?;
    let question = question(args, &setup)?;
    let Some(plan) = plan(&question, &setup) else {
        bail!("--pairs {} is too few for any conclusion: the minimum is 8", args.pairs);
    };
    if args.study.plan {
        terminal::print(&plan);
        return Ok(ExitCode::SUCCESS);
    }
    let file = args.study.study.clone().unwrap_or_else(|| study::default_file("compare"));
    let study = StudyDescription { asked: StudyQuestion::Compare(question), setup };
    study::begin(&file, &study, &plan, &args.study.access, args.study.result)
}

/// Describes the plan for the user; `None` if the maximum number of pairs is too small for any conclusion.
fn plan(question: &Question, setup: &Setup) -> Option<String> {
    let (min, max) = compare::trials(question)?;
    let length = match trial_s(setup) {
        Some((quick, slow)) => format!(
            " of {} s (with warm-up and start {quick:.0} to {slow:.0} s each): {} to {} in total",
            setup.window_s,
            minutes(min as f64 * quick),
            minutes(max as f64 * slow),
        ),
        None => ", each as long as its command".to_owned(),
    };
    Some(format!(
        "A: {}\nB: {}\nobjective: {}; must not get worse: {}\ntrials: {min} to {max}{length}\n{}\n",
        question.a.describe(),
        question.b.describe(),
        question.objective,
        guards(&question.guards),
        pins(setup),
    ))
}

fn question(args: &Args, setup: &Setup) -> Result<Question> {
    let arm = |name: &str, flags: &str, environment: &[String]| {
        let pairs = environment.iter().map(|pair| {
            let split = pair.split_once('=').filter(|(name, _)| !name.is_empty());
            let (name, value) = split.with_context(|| format!("{pair:?} is not NAME=VALUE"))?;
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
        bail!("A and B are the same: set B with --b or --b-env");
    }
    let same_pairs = usize::try_from(args.same_pairs).unwrap_or(MIN_SAME_PAIRS);
    Ok(Question {
        seed: args.study.seed,
        a,
        b,
        objective: args.study.objective(setup),
        guards: args.study.guards(setup, &GUARDS)?,
        same_pairs,
        max_pairs: args.pairs,
    })
}
