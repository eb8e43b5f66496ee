//! `beamtune tune`: which emulator flags are best for a target under a load, each with its proof.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use beamtune_flags::args::{Input, Wish, change};
use beamtune_flags::source::Format;
use beamtune_flags::{OtpVersion, parse_emu_args};
use beamtune_model::study::{
    Advised, Ending, Fatal, Knob, Margin, Part, Pays, Phase, Trial, TrialOutcome, Tuning, TuningVerdict,
};
use beamtune_model::{Period, facts, metrics};
use beamtune_recording::{Reader, Selection};
use beamtune_store::Study;
use beamtune_trial::{advice, knobs, tune};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::study::{self, Asked, Kept};
use super::target::{StudyArgs, TargetArgs, guards, minutes, pins, trial_s};
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
    #[command(flatten)]
    study: StudyArgs,
    /// How long it may take in all.
    #[arg(long, value_name = "TIME", default_value = "45m", value_parser = terminal::parse_duration)]
    budget: Duration,
    /// The vm.args that the target has: its lines stay in what is written. It is not changed itself.
    #[arg(long, value_name = "FILE")]
    vm_args: Option<PathBuf>,
    /// Where the new vm.args is written; without it, beside the study.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// What is to be found out; what can be set follows from the first trials.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Wanted {
    seed: u64,
    pub objective: String,
    guards: Vec<Margin>,
    /// How long it may take in all, in seconds.
    budget_s: f64,
    /// Trials that are planned, as long as it is not known how long they take.
    planned: usize,
    /// The text of the target's vm.args.
    vm_args: String,
    output: PathBuf,
}

impl Wanted {
    /// Trials in all.
    pub fn trials(&self, trials: &[Trial]) -> usize {
        tune::within(self.budget_s, self.planned, trials)
    }

    /// The question, with what is known of the target.
    pub fn tuning(&self, trials: &[Trial], known: Option<&Known>) -> Tuning {
        let tuning = Tuning { trials: self.trials(trials), ..self.without_knobs() };
        match known.cloned() {
            Some(Known { knobs, advice, fatal, .. }) => Tuning { knobs, advice, fatal, ..tuning },
            None => tuning,
        }
    }

    /// The question as far as it is known before the target was looked at.
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

/// What must not become worse unless it is said otherwise.
const GUARDS: [&str; 3] = ["p99:+10%", "rss:+10%", "errors:+0.1%"];

pub fn run(args: &Args) -> Result<ExitCode> {
    let setup = args.target.setup()?;
    let budget_s = args.budget.as_secs_f64();
    // How long a command takes is only known from its first runs.
    let usual_s = trial_s(&setup).map(|(usual_s, _)| usual_s);
    let planned = usual_s.map_or(tune::Stages::least(), |usual_s| (budget_s / usual_s) as usize);
    let stages = match (tune::Stages::divide(planned), usual_s) {
        (Ok(stages), _) => stages,
        (Err(least), usual_s) => bail!(
            "--budget {} is too little to conclude anything: {least} trials of some {:.0} s are the least, so {}; shorter trials (--for, --warm-up) need less",
            minutes(budget_s),
            usual_s.unwrap_or_default(),
            minutes(least as f64 * usual_s.unwrap_or_default())
        ),
    };
    let objective = args.study.objective(&setup);
    let guarded = args.study.guards(&setup, &GUARDS)?;
    let file = args.study.study.clone().unwrap_or_else(|| study::usual_file("tune"));
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
    let length = match usual_s {
        Some(usual_s) => format!(
            "{planned} trials of {} s (with warm-up and start some {usual_s:.0} s each), so {} in all",
            setup.window_s,
            minutes(planned as f64 * usual_s)
        ),
        None => format!("as many trials as there is time for in {}, at least {planned}", minutes(budget_s)),
    };
    let plan = format!(
        "objective: {objective}; must not become worse: {}\n\
         {length}: {} of the target against itself, {} to search, {} to confirm, {} to find out which parts pay\n{}\n",
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
    let wanted = Wanted {
        seed: args.study.seed,
        objective,
        guards: guarded,
        budget_s,
        planned,
        vm_args,
        output: std::path::absolute(&output).context("cannot read the working folder")?,
    };
    study::begin(
        &file,
        &Kept { asked: Asked::Tune(wanted), setup },
        &plan,
        &args.study.access,
        args.study.json,
    )
}

/// What can be set of a target, and what is advised.
#[derive(Debug, Clone)]
pub struct Known {
    otp: OtpVersion,
    knobs: Vec<Knob>,
    advice: Vec<Advised>,
    fatal: Vec<Fatal>,
}

/// What is known of the target from the recording of its first trial as it is; `None` before there is one.
pub fn known(wanted: &Wanted, study: &Study, trials: &[Trial]) -> Result<Option<Known>> {
    let is_it = |trial: &Trial| {
        trial.order.phase == Phase::Same && matches!(trial.outcome, TrialOutcome::Valid { .. })
    };
    let Some(number) = trials.iter().position(is_it) else { return Ok(None) };
    let Some(recording) = study.recording(number)? else { return Ok(None) };
    let period = Arc::new(period(&recording)?);
    let release = period.facts.otp_release().map(OtpVersion::from);
    let otp = period.facts.get(facts::OTP_VERSION).and_then(OtpVersion::parse).or(release);
    let otp = otp.context("the target does not tell its OTP release: give its VM a distribution (-sname)")?;
    let cpus = period.stat(&metrics::CPUS_ALLOWED, "").map_or(1.0, |stat| stat.mean());
    let mut knobs = knobs::knobs(&otp, cpus as usize);
    let args = period.facts.list(facts::EMU_ARGS).or_else(|| period.facts.list(facts::COMMAND_LINE));
    let rss = period.stat(&metrics::RSS, "").ok().map(|stat| stat.mean());
    let diagnosis = beamtune_rules::diagnose(&period);
    let advice =
        advice::advice(&diagnosis, &wanted.objective, rss, beamtune_rules::is_for_memory, &mut knobs);
    let fatal = knobs::fatal(&knobs, &args.unwrap_or_default(), otp.release());
    // Points are places in the list of knobs, which another version may have longer.
    let is_same = |trial: &Trial| {
        let order = &trial.order;
        order.point.is_empty() || knobs::flags(&knobs, &order.point) == order.arm.flags
    };
    if !trials.iter().all(is_same) {
        bail!(
            "the study was begun by another version of beamtune, which knew other flags: go on with that one"
        );
    }
    Ok(Some(Known { otp, knobs, advice, fatal }))
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
    let known = known(wanted, study, trials)?;
    let tuning = wanted.tuning(trials, known.as_ref());
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
        let otp = known.map_or_else(String::new, |known| format!("OTP {}, ", known.otp));
        let circumstances = format!("{otp}load {}, {}", load_name(setup), last_day(trials)?);
        let text = vm_args(wanted, &circumstances, &tuning, &verdict)?;
        write_new(&wanted.output, &text)?;
        terminal::complain(&format!("written: {}\n", wanted.output.display()));
    }
    Ok(if is_found { ExitCode::SUCCESS } else { ExitCode::from(terminal::FOUND) })
}

/// Characters of a load's name that stand in a comment; a command can be long.
const LOAD_NAME_CHARS: usize = 60;

/// What people call the load, as it can stand in a line.
fn load_name(setup: &Setup) -> String {
    let name = setup.load.name().split_whitespace().collect::<Vec<_>>().join(" ");
    match name.char_indices().nth(LOAD_NAME_CHARS) {
        Some((end, _)) => format!("{} …", &name[..end]),
        None => name,
    }
}

/// The day of the last trial: the same whenever the file is written.
fn last_day(trials: &[Trial]) -> Result<String> {
    let began_unix_s = trials.last().map_or(0.0, |trial| trial.began_unix_s);
    let began = jiff::Timestamp::from_second(began_unix_s as i64).context("a trial of no time")?;
    Ok(began.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d").to_string())
}

/// Writes a file that is not there, or has just this text.
fn write_new(file: &Path, text: &str) -> Result<()> {
    if file.exists() && std::fs::read_to_string(file).is_ok_and(|there| there != text) {
        bail!("{} has another text: move it away, then beamtune study show writes it", file.display());
    }
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// The target's vm.args with the flags of the winner, each with what it does.
fn vm_args(wanted: &Wanted, circumstances: &str, tuning: &Tuning, verdict: &TuningVerdict) -> Result<String> {
    let mut input = Input::read(Format::VmArgs, wanted.vm_args.as_str())?;
    for part in verdict.parts.iter().filter(|part| part.pays != Pays::No) {
        let Some(knob) = tuning.knobs.get(part.knob) else { continue };
        let Some(words) = knob.levels.get(part.level) else { continue };
        let comment = beamtune_report::tuning::comment(part, knob, &tuning.objective, circumstances);
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
    use beamtune_model::study::Ratio;

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
