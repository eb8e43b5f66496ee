//! `cargo run --release -p beamtune-trial --example search`: measures the quality of the search for settings on synthetic surfaces.
//!
//! This program knows the gain of the best setting of each surface, but the search does not.

#![allow(clippy::print_stdout, reason = "a tool for the terminal")]

mod surface;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use beamtune_trial::search::{self, Outcome, Problem};
use beamtune_trial::space::Point;

use self::surface::Surface;

const USAGE: &str =
    "usage: cargo run --release -p beamtune-trial --example search -- [--surfaces N] [--python PYTHON]";

/// Seed of the first surface; surface n has seed `SEED + n`.
const SEED: u64 = 20_261_121;
const SURFACES: u64 = 40;
/// Noise of a trial: standard deviations of the logarithm of the objective.
const NOISE: [f64; 2] = [0.03, 0.08];
/// The numbers of trials after which the best setting is evaluated.
const TRIALS: [usize; 2] = [20, 40];
/// Number of finalists that are evaluated.
const FINALISTS: usize = 1;

/// Maximum number of parts that `tune` backs out.
const PARTS: usize = 4;

/// A search method; its `Debug` name is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Ours,
    /// The search of beamtune, for settings of at most [`PARTS`] parts, as in `tune`.
    OursOfFour,
    /// All advice from the rules, without a trial.
    Rules,
    Random,
    /// Optuna's TPE sampler, with the same advice tried first.
    Optuna,
}

fn main() -> Result<()> {
    let (mut surfaces, mut python) = (SURFACES, None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} without a value\n{USAGE}"));
        match arg.as_str() {
            "--surfaces" => surfaces = value()?.parse().context("--surfaces takes a number")?,
            "--python" => python = Some(value()?),
            _ => bail!("unknown argument {arg}\n{USAGE}"),
        }
    }
    let mut methods = vec![Method::Ours, Method::OursOfFour, Method::Rules, Method::Random];
    methods.extend(python.is_some().then_some(Method::Optuna));
    println!(
        "| noise | method | trials | share of the best gain within limits | worse than the default | breaks a limit |"
    );
    println!("|---|---|---|---|---|---|");
    for noise_sd in NOISE {
        for method in &methods {
            let mut found: [Vec<JudgedSetting>; TRIALS.len()] = Default::default();
            for seed in SEED..SEED + surfaces {
                let surface = Surface::draw(seed, noise_sd);
                for (at, judged) in judge(*method, &surface, seed, python.as_deref())?.into_iter().enumerate()
                {
                    found[at].push(judged);
                }
            }
            for (trials, found) in TRIALS.iter().zip(&found) {
                let share = |has: fn(&JudgedSetting) -> bool| {
                    100.0 * found.iter().filter(|judged| has(judged)).count() as f64 / found.len() as f64
                };
                let gain: f64 = found.iter().map(|judged| judged.gain).sum::<f64>() / found.len() as f64;
                println!(
                    "| {:.0} % | {method:?} | {trials} | {gain:.2} | {:.0} % | {:.0} % |",
                    noise_sd * 100.0,
                    share(|judged| judged.is_worse),
                    share(|judged| judged.breaks)
                );
            }
        }
    }
    Ok(())
}

/// The quality of a chosen setting.
struct JudgedSetting {
    /// Share of the gain of the best safe setting; 0 if it breaks a limit.
    gain: f64,
    is_worse: bool,
    breaks: bool,
}

impl JudgedSetting {
    fn new(surface: &Surface, point: &[usize]) -> JudgedSetting {
        let breaks = !surface.is_safe(point);
        let gain = if breaks { 0.0 } else { surface.truth(point)[0] / surface.best_safe() };
        // A loss of less than 0.5 % is not measurable in practice.
        JudgedSetting { gain: gain.max(0.0), is_worse: surface.truth(point)[0] > 0.005, breaks }
    }
}

fn judge(method: Method, surface: &Surface, seed: u64, python: Option<&str>) -> Result<Vec<JudgedSetting>> {
    let max_set = if method == Method::OursOfFour { PARTS } else { usize::MAX };
    let problem = Problem { max_set, ..surface.problem() };
    if method == Method::Rules {
        let all = surface.all_rules();
        return Ok(TRIALS.iter().map(|_| JudgedSetting::new(surface, &all)).collect());
    }
    let mut noise = surface.noise(seed);
    let mut optuna = match (method, python) {
        (Method::Optuna, Some(python)) => Some(Optuna::start(python, surface, seed)?),
        _ => None,
    };
    let mut random = fastrand::Rng::with_seed(seed);
    let mut outcomes: Vec<Outcome> = Vec::new();
    let mut judged = Vec::new();
    for trial in 1..=TRIALS[TRIALS.len() - 1] {
        let point = match (method, &mut optuna) {
            (Method::Ours | Method::OursOfFour, _) => search::next(&problem, &outcomes, seed),
            (_, Some(optuna)) => Some(optuna.ask()?),
            _ if trial == 1 => Some(problem.space.default_point()),
            _ => Some(
                problem.space.parameters.iter().map(|parameter| random.usize(..parameter.levels)).collect(),
            ),
        };
        let Some(point) = point else { break };
        let values = noise.measure(surface, &point);
        if let Some(optuna) = &mut optuna {
            optuna.tell(&values)?;
        }
        outcomes.push(Outcome { point, values: Some(values) });
        if TRIALS.contains(&trial) {
            judged.push(JudgedSetting::new(surface, &chosen(method, &problem, &outcomes)));
        }
    }
    ensure!(judged.len() == TRIALS.len(), "the search ended early");
    Ok(judged)
}

/// Returns the setting that a user would choose: the best finalist of the model, or for other methods the best trial within the limits.
fn chosen(method: Method, problem: &Problem, outcomes: &[Outcome]) -> Point {
    let default = problem.space.default_point();
    if matches!(method, Method::Ours | Method::OursOfFour) {
        let best = search::finalists(problem, outcomes, FINALISTS).into_iter().next();
        return best.map_or(default, |belief| belief.point);
    }
    let kept = outcomes.iter().filter_map(|outcome| {
        let values = outcome.values.as_ref()?;
        let safe = values[1..].iter().zip(&problem.limits).all(|(value, limit)| *value <= limit.max);
        safe.then_some((values[0], &outcome.point))
    });
    let best = kept.min_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(value, _)| *value < 0.0).map_or(default, |(_, point)| point.clone())
}

/// Optuna in a separate process: `peers/optuna_search.py`.
struct Optuna {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Optuna {
    fn start(python: &str, surface: &Surface, seed: u64) -> Result<Optuna> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../peers/optuna_search.py");
        let mut child = Command::new(python)
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {python}"))?;
        let (input, output) =
            (child.stdin.take().context("its input")?, child.stdout.take().context("its output")?);
        let mut optuna = Optuna { child, input, output: BufReader::new(output) };
        let problem = surface.problem();
        let parameters: Vec<(usize, bool)> =
            problem.space.parameters.iter().map(|parameter| (parameter.levels, parameter.ordered)).collect();
        let limits: Vec<f64> = problem.limits.iter().map(|limit| limit.max).collect();
        let first: Vec<Point> = surface.first_points();
        let request =
            serde_json::json!({ "seed": seed, "parameters": parameters, "limits": limits, "first": first });
        writeln!(optuna.input, "{request}")?;
        Ok(optuna)
    }

    fn ask(&mut self) -> Result<Point> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("Optuna sent {line:?}, which is not a point"))
    }

    fn tell(&mut self, values: &[f64]) -> Result<()> {
        writeln!(self.input, "{}", serde_json::json!(values))?;
        Ok(())
    }
}

impl Drop for Optuna {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
