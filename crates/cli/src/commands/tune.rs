//! `beamtune tune`: finds the best emulator flags for a target under load, and measures the effect of each.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use beamtune_flags::args::{FlagChange, Input, change};
use beamtune_flags::source::Format;
use beamtune_flags::{OtpVersion, parse_emu_args};
use beamtune_model::study::{
    AdvisedLevel, FatalLevels, Knob, Margin, PartVerdict, Phase, SettingPart, Trial, TrialOutcome, Tuning,
    TuningOutcome, TuningVerdict,
};
use beamtune_model::{Period, facts, metrics};
use beamtune_recording::{Reader, Selection};
use beamtune_runner::Setup;
use beamtune_store::Study;
use beamtune_trial::{advice, knobs, tune};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::study::{self, StudyDescription, StudyQuestion};
use super::study_args::{ResultArgs, StudyArgs, TargetArgs, guards, minutes, pins, trial_s};
use crate::terminal;

/// Search for the best emulator flags of a target under load
///
/// First, the target is diagnosed without changes. Then the flags advised by the findings, and flags that often matter, are tried. The
/// best candidates are confirmed with new trials, and flags without effect are left out. The result is a new vm.args file; the
/// target's own files are not changed.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    study: StudyArgs,
    /// Time limit for the whole study
    #[arg(long, value_name = "TIME", default_value = "45m", value_parser = terminal::parse_duration)]
    budget: Duration,
    /// The target's vm.args: its lines are copied to the result
    #[arg(long, value_name = "FILE")]
    vm_args: Option<PathBuf>,
    /// File for the new vm.args [default: next to the study]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The goal of a search. The flags to try are known only after the first trials.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TuneGoal {
    seed: u64,
    pub objective: String,
    guards: Vec<Margin>,
    /// Time limit, in seconds.
    budget_s: f64,
    /// Planned number of trials, until their duration is known.
    planned: usize,
    /// The text of the target's vm.args.
    vm_args: String,
    output: PathBuf,
}

impl TuneGoal {
    /// Returns the total number of trials.
    pub fn trials(&self, trials: &[Trial]) -> usize {
        tune::within(self.budget_s, self.planned, trials)
    }

    /// Returns the input of the search, with the knobs if they are known.
    pub fn tuning(&self, trials: &[Trial], knobs: Option<&TargetKnobs>) -> Tuning {
        let tuning = Tuning { trials: self.trials(trials), ..self.without_knobs() };
        match knobs.cloned() {
            Some(TargetKnobs { knobs, advice, fatal, .. }) => Tuning { knobs, advice, fatal, ..tuning },
            None => tuning,
        }
    }

    /// Returns the input of the search before the knobs are known.
    fn without_knobs(&self) -> Tuning {
        Tuning {
            seed: self.seed,
            objective: self.objective.clone(),
            guards: self.guards.clone(),
            knobs: Vec::new(),
            advice: Vec::new(),
            fatal: Vec::new(),
            trials: self.planned,
        }
    }
}

/// Default constraints.
const GUARDS: [&str; 3] = ["p99:+10%", "rss:+10%", "errors:+0.1%"];

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let setup = args.target.setup()?;
    let budget_s = args.budget.as_secs_f64();
    // The duration of a command is known only after its first runs.
    let usual_s = trial_s(&setup).map(|(usual_s, _)| usual_s);
    let planned = usual_s.map_or(tune::Stages::min_trials(), |usual_s| (budget_s / usual_s) as usize);
    let stages = match (tune::Stages::divide(planned), usual_s) {
        (Ok(stages), _) => stages,
        (Err(min), usual_s) => bail!(
            "--budget {} is too short for any conclusion: the minimum is {min} trials of {:.0} s, that is {}; shorter trials (--for, --warm-up) need less",
            minutes(budget_s),
            usual_s.unwrap_or_default(),
            minutes(min as f64 * usual_s.unwrap_or_default())
        ),
    };
    let objective = args.study.objective(&setup);
    let guarded = args.study.guards(&setup, &GUARDS)?;
    let file = args.study.study.clone().unwrap_or_else(|| study::default_file("tune"));
    let output = args.output.clone().unwrap_or_else(|| file.with_extension("vm.args"));
    if output.exists() {
        bail!("{} already exists; choose another name with -o", output.display());
    }
    let vm_args = match &args.vm_args {
        Some(file) => {
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?
        }
        None => String::new(),
    };
    Input::read(Format::VmArgs, vm_args.as_str()).context("--vm-args")?;
    let length = match usual_s {
        Some(usual_s) => format!(
            "{planned} trials of {} s (with warm-up and start {usual_s:.0} s each): {} in total",
            setup.window_s,
            minutes(planned as f64 * usual_s)
        ),
        None => format!("trials for {}, at least {planned}", minutes(budget_s)),
    };
    let plan = format!(
        "objective: {objective}; must not get worse: {}\n\
         {length}: {} of the target against itself, {} to search, {} to confirm, {} to remove flags without effect\n{}\n",
        guards(&guarded),
        stages.same,
        stages.search,
        stages.confirm,
        stages.back_out,
        pins(&setup),
    );
    if args.study.plan {
        terminal::print(&plan);
        return Ok(ExitCode::SUCCESS);
    }
    let goal = TuneGoal {
        seed: args.study.seed,
        objective,
        guards: guarded,
        budget_s,
        planned,
        vm_args,
        output: std::path::absolute(&output).context("cannot read the working directory")?,
    };
    study::begin(
        &file,
        &StudyDescription { asked: StudyQuestion::Tune(goal), setup },
        &plan,
        &args.study.access,
        args.study.result,
    )
}

/// The knobs of a target, and the advice of its diagnosis.
#[derive(Debug, Clone)]
pub struct TargetKnobs {
    otp: OtpVersion,
    knobs: Vec<Knob>,
    advice: Vec<AdvisedLevel>,
    fatal: Vec<FatalLevels>,
}

/// Reads the knobs from the recording of the first valid trial without changes; `None` until it exists.
pub fn target_knobs(goal: &TuneGoal, study: &Study, trials: &[Trial]) -> Result<Option<TargetKnobs>> {
    let is_it = |trial: &Trial| {
        trial.order.phase == Phase::Same && matches!(trial.outcome, TrialOutcome::Valid { .. })
    };
    let Some(number) = trials.iter().position(is_it) else { return Ok(None) };
    let Some(recording) = study.recording(number)? else { return Ok(None) };
    let period = Arc::new(period(&recording)?);
    let release = period.facts.otp_release().map(OtpVersion::from);
    let otp = period.facts.get(facts::OTP_VERSION).and_then(OtpVersion::parse).or(release);
    let otp =
        otp.context("the target does not report its OTP release: give its VM a distribution (-sname)")?;
    let cpus = period.stat(&metrics::CPUS_ALLOWED, "").map_or(1.0, |stat| stat.mean());
    let mut knobs = knobs::knobs(&otp, cpus as usize);
    let args = period.facts.list(facts::EMU_ARGS).or_else(|| period.facts.list(facts::COMMAND_LINE));
    let rss = period.stat(&metrics::RSS, "").ok().map(|stat| stat.mean());
    let diagnosis = beamtune_rules::diagnose(&period);
    let advice = advice::advice(&diagnosis, &goal.objective, rss, beamtune_rules::is_for_memory, &mut knobs);
    let fatal = knobs::fatal_levels(&knobs, &args.unwrap_or_default(), otp.release());
    // A point contains indexes into the list of knobs, which differs between versions of beamtune.
    let is_same = |trial: &Trial| {
        let order = &trial.order;
        order.point.is_empty() || knobs::flags(&knobs, &order.point) == order.arm.flags
    };
    if !trials.iter().all(is_same) {
        bail!(
            "the study was begun by a version of beamtune that tries other flags: resume it with that version"
        );
    }
    Ok(Some(TargetKnobs { otp, knobs, advice, fatal }))
}

/// Reads a recording that is stored in a study.
fn period(recording: &[u8]) -> Result<Period> {
    let folder = tempfile::Builder::new()
        .prefix("beamtune-study-")
        .tempdir()
        .context("cannot create a temporary folder")?;
    let file = folder.path().join("trial.beamtune");
    std::fs::write(&file, recording).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(Reader::open(&file)?.period(&Selection::default())?)
}

/// Prints the results, and writes the new vm.args if there is one.
pub fn print_results(
    goal: &TuneGoal,
    setup: &Setup,
    study: &Study,
    trials: &[Trial],
    result: ResultArgs,
) -> Result<ExitCode> {
    let knobs = target_knobs(goal, study, trials)?;
    let tuning = goal.tuning(trials, knobs.as_ref());
    let verdict = tune::judge(&tuning, trials);
    let is_found = verdict.ending == Some(TuningOutcome::Found) && !verdict.flags.is_empty();
    if result.json {
        study::print_json(
            &json!({ "tuning": tuning, "setup": setup, "trials": trials.len(), "verdict": verdict }),
        )?;
    } else {
        let load = study::load_words(setup);
        let run = study::circumstances(&load, trials);
        terminal::print(&beamtune_report::tuning::render(&tuning, &verdict, trials, run, &result.view()));
    }
    if is_found {
        let otp = knobs.map_or_else(String::new, |knobs| format!("OTP {}, ", knobs.otp));
        let circumstances = format!("{otp}{}, {}", study::load_words(setup), last_day(trials)?);
        let text = vm_args(goal, &circumstances, &tuning, &verdict)?;
        write_new(&goal.output, &text)?;
        terminal::complain(&format!("wrote {}\n", goal.output.display()));
    }
    Ok(if is_found { ExitCode::SUCCESS } else { ExitCode::from(terminal::FOUND) })
}

/// Returns the day of the last trial, so that the file is the same whenever it is written.
fn last_day(trials: &[Trial]) -> Result<String> {
    let began_unix_s = trials.last().map_or(0.0, |trial| trial.began_unix_s);
    let began =
        jiff::Timestamp::from_second(began_unix_s as i64).context("the time of a trial is out of range")?;
    Ok(began.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d").to_string())
}

/// Writes a file, unless it exists with a different text.
fn write_new(file: &Path, text: &str) -> Result<()> {
    if file.exists() && std::fs::read_to_string(file).is_ok_and(|there| there != text) {
        bail!(
            "{} exists with different content: move it away, and write it again with beamtune study show",
            file.display()
        );
    }
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Returns the target's vm.args with the best flags, each with a comment.
fn vm_args(goal: &TuneGoal, circumstances: &str, tuning: &Tuning, verdict: &TuningVerdict) -> Result<String> {
    let mut input = Input::read(Format::VmArgs, goal.vm_args.as_str())?;
    for part in verdict.parts.iter().filter(|part| part.verdict != PartVerdict::No) {
        let Some(knob) = tuning.knobs.get(part.knob) else { continue };
        let Some(words) = knob.levels.get(part.level) else { continue };
        let comment = beamtune_report::tuning::comment(part, knob, &tuning.objective, circumstances);
        input = with_flags(input, part, words, &comment)?;
    }
    Ok(input.text)
}

fn with_flags(mut input: Input, part: &SettingPart, words: &[String], comment: &str) -> Result<Input> {
    if words.first().is_some_and(|word| word.starts_with('-')) {
        // An init argument may occur several times, so it is added without replacing another one.
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
        let change_request = FlagChange::set(&text).with_context(|| format!("knob {}", part.knob))?;
        let lines = if at == 0 { vec![comment.to_owned()] } else { Vec::new() };
        input = change(&input, &change_request, &lines)?;
    }
    Ok(input)
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamtune_model::study::Ratio;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn part(knob: usize, pays: PartVerdict) -> SettingPart {
        let ratio = Ratio { estimate: 0.6, low: 0.5, high: 0.7, confidence: 0.95 };
        SettingPart { knob, level: 1, ratio: Some(ratio), verdict: pays }
    }

    #[test]
    fn flags_are_written_with_their_measured_effect_and_other_lines_are_kept() {
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
        for part in [part(0, PartVerdict::Yes), part(2, PartVerdict::Unknown)] {
            let knob = &knobs[part.knob];
            let comment = beamtune_report::tuning::comment(
                &part,
                knob,
                "cpu-per-request",
                "load http://x/, 2026-11-21",
            );
            input = with_flags(input, &part, &knob.levels[1], &comment).expect("written");
        }
        let proof = "cpu-per-request -40 % [-50, -30]";
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
    fn an_existing_file_with_a_different_text_is_not_replaced() {
        let folder = tempfile::tempdir().expect("folder");
        let file = folder.path().join("vm.args");
        write_new(&file, "+A 1\n").expect("written");
        write_new(&file, "+A 1\n").expect("the same again");
        write_new(&file, "+A 2\n").expect_err("it has a different text");
    }
}
