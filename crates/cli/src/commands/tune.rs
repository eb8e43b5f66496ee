//! `beamtune tune`: which emulator flags are best for a target under a load, each with its proof.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use beamtune_flags::args::{Input, Wish, change};
use beamtune_flags::source::Format;
use beamtune_flags::{OtpVersion, parse_emu_args};
use beamtune_model::study::{Ending, Margin, Part, Pays, Phase, Trial, TrialOutcome, Tuning, TuningVerdict};
use beamtune_model::{Period, facts, metrics};
use beamtune_recording::{Reader, Selection};
use beamtune_store::Study;
use beamtune_trial::{advice, knobs, tune};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::compare::{TargetArgs, guards, margin, minutes, pins, quantity, trial_s};
use super::study::{self, Asked, Kept};
use crate::access::AccessArgs;
use crate::terminal;
use crate::trial::Setup;

/// Search for the best emulator flags of a target under load, prove them, and write them as vm.args.
///
/// The target is diagnosed as it is. What the findings advise, and flags that are known to matter, are tried; the best are confirmed on
/// fresh trials, and parts that do not pay are left out. Nothing of the target's own is changed.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: TargetArgs,
    /// What is to become better: cpu-per-request, throughput, p50, p90, p99, rss, rss-peak …
    #[arg(long, value_name = "QUANTITY", default_value = "cpu-per-request", value_parser = quantity)]
    objective: String,
    /// What must not become worse, and by how much it may: p99:+5%, rss:+10%, throughput:-2%, errors:+0.1%.
    #[arg(long, value_name = "QUANTITY:MARGIN", value_parser = margin, default_values = ["p99:+10%", "rss:+10%", "errors:+0.1%"])]
    guard: Vec<Margin>,
    /// How long it may take in all.
    #[arg(long, value_name = "TIME", default_value = "45m", value_parser = terminal::parse_duration)]
    budget: Duration,
    /// The vm.args that the target has: its lines stay in what is written. It is not changed itself.
    #[arg(long, value_name = "FILE")]
    vm_args: Option<PathBuf>,
    /// Where the new vm.args is written; without it, beside the study.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The seed of every order and choice.
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

/// What is to be found out; what can be set follows from the first trials.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Wanted {
    seed: u64,
    pub objective: String,
    guards: Vec<Margin>,
    pub trials: usize,
    /// The text of the target's vm.args.
    vm_args: String,
    output: PathBuf,
}

impl Wanted {
    /// The question as far as it is known before the target was looked at.
    pub fn without_knobs(&self) -> Tuning {
        Tuning {
            seed: self.seed,
            objective: self.objective.clone(),
            guards: self.guards.clone(),
            knobs: Vec::new(),
            advice: Vec::new(),
            trials: self.trials,
        }
    }
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let setup = args.target.setup()?;
    let (usual_s, _) = trial_s(&setup);
    let trials = (args.budget.as_secs_f64() / usual_s) as usize;
    let stages = match tune::Stages::divide(trials) {
        Ok(stages) => stages,
        Err(least) => bail!(
            "--budget {} is too little to conclude anything: {least} trials of some {usual_s:.0} s are the least, so {}; shorter trials (--for, --warm-up) need less",
            minutes(args.budget.as_secs_f64()),
            minutes(least as f64 * usual_s)
        ),
    };
    let file = args.study.clone().unwrap_or_else(|| study::usual_file("tune"));
    let output = args.output.clone().unwrap_or_else(|| file.with_extension("vm.args"));
    if output.exists() {
        bail!("{} exists already: choose another name with -o", output.display());
    }
    let vm_args = match &args.vm_args {
        Some(file) => {
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?
        }
        None => String::new(),
    };
    Input::read(Format::VmArgs, vm_args.as_str()).context("--vm-args")?;
    let plan = format!(
        "objective: {}; must not become worse: {}\n\
         {trials} trials of {} s (with warm-up and start some {usual_s:.0} s each), so {} in all: {} of the target against itself, {} to search, \
         {} to confirm, {} to find out which parts pay\n{}\n",
        args.objective,
        guards(&args.guard),
        setup.window_s,
        minutes(trials as f64 * usual_s),
        stages.same,
        stages.search,
        stages.confirm,
        stages.back_out,
        pins(&setup),
    );
    if args.plan {
        terminal::print(&plan);
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = Wanted {
        seed: args.seed,
        objective: args.objective.clone(),
        guards: args.guard.clone(),
        trials,
        vm_args,
        output: std::path::absolute(&output).context("cannot read the working folder")?,
    };
    study::begin(&file, &Kept { asked: Asked::Tune(wanted), setup }, &plan, &args.access, args.json)
}

/// The question with what can be set and what is advised: from the recording of the first trial of the target as it is. `None` before
/// there is one.
pub fn tuning(wanted: &Wanted, study: &Study, trials: &[Trial]) -> Result<Option<Tuning>> {
    let is_it = |trial: &Trial| {
        trial.order.phase == Phase::Same && matches!(trial.outcome, TrialOutcome::Valid { .. })
    };
    let Some(number) = trials.iter().position(is_it) else { return Ok(None) };
    let Some(recording) = study.recording(number)? else { return Ok(None) };
    let period = period(&recording)?;
    let release = period.facts.otp_release().map(OtpVersion::from);
    let otp = period.facts.get(facts::OTP_VERSION).and_then(OtpVersion::parse).or(release);
    let otp = otp.context("the target does not tell its OTP release: give its VM a distribution (-sname)")?;
    let cpus = period.stat(&metrics::CPUS_ALLOWED, "").map_or(1.0, |stat| stat.mean());
    let mut knobs = knobs::knobs(&otp, cpus as usize);
    let rss = period.stat(&metrics::RSS, "").ok().map(|stat| stat.mean());
    let diagnosis = beamtune_rules::diagnose(&period);
    let advice =
        advice::advice(&diagnosis, &wanted.objective, rss, beamtune_rules::is_about_memory, &mut knobs);
    Ok(Some(Tuning { knobs, advice, ..wanted.without_knobs() }))
}

/// A recording that a study holds.
fn period(recording: &[u8]) -> Result<Period> {
    let folder =
        tempfile::Builder::new().prefix("beamtune-study-").tempdir().context("cannot make a folder")?;
    let file = folder.path().join("trial.beamtune");
    std::fs::write(&file, recording).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(Reader::open(&file)?.period(&Selection::default())?)
}

/// Tells what was found out, and writes the new vm.args if there is one.
pub fn tell(
    wanted: &Wanted,
    setup: &Setup,
    study: &Study,
    trials: &[Trial],
    is_json: bool,
) -> Result<ExitCode> {
    let tuning = tuning(wanted, study, trials)?.unwrap_or_else(|| wanted.without_knobs());
    let verdict = tune::judge(&tuning, trials);
    let is_found = verdict.ending == Some(Ending::Found) && !verdict.flags.is_empty();
    if is_json {
        study::print_json(
            &json!({ "tuning": tuning, "setup": setup, "trials": trials.len(), "verdict": verdict }),
        )?;
    } else {
        terminal::print(&beamtune_report::tuning::render(&tuning, &verdict, trials, terminal::style()));
    }
    if is_found {
        let text = vm_args(wanted, setup, &tuning, &verdict)?;
        write_new(&wanted.output, &text)?;
        terminal::complain(&format!("written: {}\n", wanted.output.display()));
    }
    Ok(if is_found { ExitCode::SUCCESS } else { ExitCode::from(terminal::FOUND) })
}

/// Writes a file that is not there, or has just this text.
fn write_new(file: &Path, text: &str) -> Result<()> {
    if file.exists() && std::fs::read_to_string(file).is_ok_and(|there| there != text) {
        bail!("{} has another text: move it away, then beamtune study show writes it", file.display());
    }
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// The target's vm.args with the flags of the winner, each with what it does.
fn vm_args(wanted: &Wanted, setup: &Setup, tuning: &Tuning, verdict: &TuningVerdict) -> Result<String> {
    let mut input = Input::read(Format::VmArgs, wanted.vm_args.as_str())?;
    let day = jiff::Zoned::now().strftime("%Y-%m-%d").to_string();
    let circumstances = format!("load {}, {day}", setup.load.name);
    for part in verdict.parts.iter().filter(|part| part.pays != Pays::No) {
        let Some(knob) = tuning.knobs.get(part.knob) else { continue };
        let Some(words) = knob.levels.get(part.level) else { continue };
        let comment = beamtune_report::tuning::comment(part, knob, &tuning.objective, &circumstances);
        input = with_flags(input, part, words, &comment)?;
    }
    Ok(input.text)
}

fn with_flags(mut input: Input, part: &Part, words: &[String], comment: &str) -> Result<Input> {
    if words.first().is_some_and(|word| word.starts_with('-')) {
        // An argument of init may stand several times, so there is none whose place it takes.
        let before = input.text.trim_end();
        let gap = if before.is_empty() { "" } else { "\n" };
        let text = format!("{before}{gap}# {comment}\n{}\n", words.join(" "));
        return Ok(Input::read(Format::VmArgs, text)?);
    }
    for (at, setting) in parse_emu_args(words).into_iter().enumerate() {
        let text = match &setting.value {
            Some(value) => format!("{} {value}", setting.flag),
            None => setting.flag.clone(),
        };
        let wish = Wish::set(&text).with_context(|| format!("knob {}", part.knob))?;
        let lines = if at == 0 { vec![comment.to_owned()] } else { Vec::new() };
        input = change(&input, &wish, &lines)?;
    }
    Ok(input)
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamtune_model::study::{Knob, Ratio};

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn part(knob: usize, pays: Pays) -> Part {
        let ratio = Ratio { estimate: 0.6, low: 0.5, high: 0.7, confidence: 0.95 };
        Part { knob, level: 1, ratio: Some(ratio), pays }
    }

    #[test]
    fn what_pays_is_written_with_its_proof_and_the_rest_stays() {
        let knob = |name: &str, level: &str| Knob {
            name: name.to_owned(),
            levels: vec![Vec::new(), words(level)],
            ordered: false,
        };
        let knobs = [
            knob("busy wait", "+sbwt none +sbwtdcpu none"),
            knob("placebo", "+swt low"),
            knob("full sweeps", "-env ERL_FULLSWEEP_AFTER 5"),
        ];
        let mut input = Input::read(Format::VmArgs, "# Name\n-name shop@host\n+sbwt long\n").expect("read");
        for part in [part(0, Pays::Yes), part(2, Pays::Unknown)] {
            let knob = &knobs[part.knob];
            let comment = beamtune_report::tuning::comment(
                &part,
                knob,
                "cpu-per-request",
                "load http://x/, 2026-11-21",
            );
            input = with_flags(input, &part, &knob.levels[1], &comment).expect("written");
        }
        let proof = "cpu-per-request -40 % [-50 %, -30 %]";
        for line in [
            "-name shop@host",
            &format!("# busy wait: {proof}; load http://x/, 2026-11-21"),
            "+sbwt none",
            "+sbwtdcpu none",
            &format!("# full sweeps: {proof}, undecided; load http://x/, 2026-11-21"),
            "-env ERL_FULLSWEEP_AFTER 5",
        ] {
            assert!(input.text.lines().any(|written| written == line), "{line:?} is not in\n{}", input.text);
        }
        assert!(!input.text.contains("long") && !input.text.contains("+swt"), "{}", input.text);
    }

    #[test]
    fn a_file_with_another_text_is_not_replaced() {
        let folder = tempfile::tempdir().expect("folder");
        let file = folder.path().join("vm.args");
        write_new(&file, "+A 1\n").expect("written");
        write_new(&file, "+A 1\n").expect("the same again");
        write_new(&file, "+A 2\n").expect_err("it has another text");
    }
}
