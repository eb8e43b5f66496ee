//! `beamtune study`: looks at a study's file, goes on with it, or writes out what it holds.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use beamtune_model::study::{
    self as quantities, Answer, Order, Phase, QUANTITIES, Question, StudyStore, Trial, TrialOutcome,
};
use beamtune_recording::Stop;
use beamtune_store::Study;
use beamtune_trial::compare;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::target::minutes;
use super::tune::{self, Known, Wanted};
use crate::access::AccessArgs;
use crate::trial::{Load, Setup};
use crate::{take, terminal, trial};

/// What a study's file holds beside its trials.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Kept {
    /// What is to be found out.
    pub asked: Asked,
    /// How trials are run.
    pub setup: Setup,
}

/// What a study is to find out.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// Whether one setting differs from another.
    Compare(Question),
    /// Which setting is best.
    Tune(Wanted),
}

impl Asked {
    /// Name of the quantity that decides.
    fn objective(&self) -> &str {
        match self {
            Asked::Compare(question) => &question.objective,
            Asked::Tune(wanted) => &wanted.objective,
        }
    }

    /// Trials that it takes if all of them count: at least and at most.
    fn trials(&self, trials: &[Trial]) -> Option<(usize, usize)> {
        match self {
            Asked::Compare(question) => compare::trials(question),
            Asked::Tune(wanted) => {
                let all = wanted.trials(trials);
                Some((all, all))
            }
        }
    }

    /// What is to be run next; `None` where nothing is.
    fn next(&self, study: &Study, trials: &[Trial], known: &mut Option<Known>) -> Result<Option<Order>> {
        match self {
            Asked::Compare(question) => Ok(match compare::next(question, trials) {
                compare::Next::Run(order) => Some(order),
                compare::Next::Done(_) => None,
            }),
            Asked::Tune(wanted) => {
                if known.is_none() {
                    *known = tune::known(wanted, study, trials)?;
                }
                // Before anything is known of the target, it is only held against itself.
                let tuning = wanted.tuning(trials, known.as_ref());
                Ok(match beamtune_trial::tune::next(&tuning, trials) {
                    beamtune_trial::tune::Next::Run(order) => Some(order),
                    beamtune_trial::tune::Next::Done(_) => None,
                })
            }
        }
    }
}

/// Look at a study, go on with it, or write out what it holds.
#[derive(clap::Subcommand)]
pub enum Args {
    /// What a study has found out so far.
    Show {
        /// The study's file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Goes on with a study that was broken off.
    Resume {
        /// The study's file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        access: AccessArgs,
    },
    /// Writes all trials as JSON, a line each, and their recordings to a folder.
    Export {
        /// The study's file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Where recordings are written, one file for each trial; made if it is not there.
        #[arg(long, value_name = "FOLDER")]
        recordings: Option<PathBuf>,
    },
}

pub fn run(args: &Args) -> Result<ExitCode> {
    match args {
        Args::Show { file, json } => {
            let study = Study::read(file)?;
            tell(&kept(&study)?, &study, &study.trials()?, *json)
        }
        Args::Resume { file, json, access } => {
            let study = Study::resume(file)?;
            let kept = kept(&study)?;
            go_on(study, &kept, access, *json)
        }
        Args::Export { file, recordings } => {
            let study = Study::read(file)?;
            export(&study, recordings.as_deref())
        }
    }
}

fn kept(study: &Study) -> Result<Kept> {
    let text = study.question()?;
    serde_json::from_str(&text)
        .with_context(|| format!("{}: its question is not understood", study.path().display()))
}

/// A file with the time in its name, in the working folder.
pub fn usual_file(what: &str) -> PathBuf {
    Path::new(&format!("{what}-{}.study", jiff::Zoned::now().strftime("%Y%m%d-%H%M%S"))).to_owned()
}

/// Begins a study in a new file, and runs it.
pub fn begin(file: &Path, kept: &Kept, plan: &str, access: &AccessArgs, json: bool) -> Result<ExitCode> {
    let text = serde_json::to_string(kept).context("the question cannot be written")?;
    let study = Study::create(file, &text)?;
    terminal::complain(&format!("{plan}study: {}\n", file.display()));
    go_on(study, kept, access, json)
}

/// Runs trials until there is an answer, and tells it.
fn go_on(mut study: Study, kept: &Kept, access: &AccessArgs, json: bool) -> Result<ExitCode> {
    let mut trials = study.trials()?;
    let mut known = None;
    let stop = Stop::default();
    take::stop_on_signals(&stop)?;
    if let Some(pins) = &kept.setup.pins {
        // What we start from now on, and the generator's threads, run there.
        beamtune_host::cpus::run_on(&pins.generator).context("cannot choose CPUs for the load")?;
    }
    while let Some(order) = kept.asked.next(&study, &trials, &mut known)? {
        let Some(done) = trial::run(&kept.setup, access, &order, &stop)? else {
            let path = study.path().display().to_string();
            bail!("stopped after {} trials; go on with: beamtune study resume {path}", trials.len());
        };
        must_be_measured(kept, &done.trial)?;
        study.add(&done.trial, done.recording.as_deref())?;
        trials.push(done.trial);
        terminal::complain(&line(kept, &trials));
    }
    tell(kept, &study, &trials, json)
}

/// Without what decides, a study of any length would tell nothing. A trial that does not count tells as well what is measured, unless it was
/// given up before that.
fn must_be_measured(kept: &Kept, trial: &Trial) -> Result<()> {
    let objective = kept.asked.objective();
    let (TrialOutcome::Valid { measures } | TrialOutcome::Invalid { measures, .. }) = &trial.outcome else {
        return Ok(());
    };
    let found: Vec<&str> =
        QUANTITIES.iter().map(|quantity| quantity.name).filter(|name| measures.get(name).is_some()).collect();
    if found.is_empty() || measures.get(objective).is_some() {
        return Ok(());
    }
    let why = match kept.setup.load {
        Load::Command(_) if measures.get(quantities::DURATION.name).is_some() => {
            ": nothing was recognised in what the load command printed (load import --help; --load-result names a file)"
        }
        _ => "",
    };
    bail!(
        "{objective} was not measured{why}; what was: {}. Choose another one with --objective",
        found.join(", ")
    );
}

/// How far a study is: its trials, how many there will be, and how long that takes at most.
fn progress(kept: &Kept, trials: &[Trial]) -> String {
    let number = trials.len();
    let Some((least, most)) = kept.asked.trials(trials) else { return format!("trial {number}") };
    let took_s = trials.iter().map(|trial| trial.took_s).sum::<f64>() / number.max(1) as f64;
    let left = minutes(most.saturating_sub(number) as f64 * took_s);
    if least == most {
        format!("trial {number} of {most}, {left} left")
    } else if number < least {
        format!("trial {number} of {least} to {most}, at most {left} left")
    } else {
        format!("trial {number} of at most {most}, at most {left} left")
    }
}

/// One line about the last trial.
fn line(kept: &Kept, trials: &[Trial]) -> String {
    let Some(trial) = trials.last() else { return String::new() };
    let Order { phase, arm, .. } = &trial.order;
    let objective = kept.asked.objective();
    let what = match phase {
        Phase::Same => format!("{} against itself", arm.name),
        Phase::Pair => arm.name.clone(),
        Phase::Search | Phase::Confirm | Phase::BackOut => format!("{phase}: {}", arm.name),
    };
    let outcome = match &trial.outcome {
        TrialOutcome::Valid { measures } => {
            let value = measures.get(objective);
            let told = value.map_or_else(
                || "not measured".to_owned(),
                |value| beamtune_report::study::value(objective, value),
            );
            let beside = match phase {
                Phase::Search => beamtune_trial::tune::so_far(objective, trials),
                _ => None,
            };
            let percent = beamtune_report::study::percent;
            let beside = beside.map_or_else(String::new, |(last, best)| {
                format!(" ({}, best so far {})", percent(last), percent(best))
            });
            format!("{objective} {told}{beside}")
        }
        TrialOutcome::Invalid { reasons, .. } => {
            let whys: Vec<&str> = reasons.iter().map(|reason| reason.why.as_str()).collect();
            format!("does not count: {}", whys.join("; "))
        }
        TrialOutcome::Failed { why } => format!("failed: {why}"),
    };
    format!("{}  {what}  {:.0} s  {outcome}\n", progress(kept, trials), trial.took_s)
}

/// Tells what a study has found out.
fn tell(kept: &Kept, study: &Study, trials: &[Trial], is_json: bool) -> Result<ExitCode> {
    match &kept.asked {
        Asked::Compare(question) => tell_comparison(question, &kept.setup, trials, is_json),
        Asked::Tune(wanted) => tune::tell(wanted, &kept.setup, study, trials, is_json),
    }
}

fn tell_comparison(question: &Question, setup: &Setup, trials: &[Trial], is_json: bool) -> Result<ExitCode> {
    let verdict = compare::judge(question, trials);
    if is_json {
        print_json(
            &json!({ "question": question, "setup": setup, "trials": trials.len(), "verdict": verdict }),
        )?;
    } else {
        terminal::print(&beamtune_report::study::render(question, &verdict, terminal::style()));
    }
    Ok(match verdict.answer {
        Answer::Better | Answer::Same => ExitCode::SUCCESS,
        _ => ExitCode::from(terminal::FOUND),
    })
}

/// Prints a result for programs.
pub fn print_json(value: &serde_json::Value) -> Result<()> {
    let text = serde_json::to_string_pretty(value).context("the result cannot be written as JSON")?;
    terminal::print(&(text + "\n"));
    Ok(())
}

fn export(study: &Study, recordings: Option<&Path>) -> Result<ExitCode> {
    if let Some(folder) = recordings {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    for (number, trial) in study.trials()?.iter().enumerate() {
        let text = serde_json::to_string(trial).context("a trial cannot be written as JSON")?;
        terminal::print(&(text + "\n"));
        if let Some(folder) = recordings
            && let Some(recording) = study.recording(number)?
        {
            let name = format!("{:03}-{}.beamtune", number + 1, trial.order.phase);
            let file = folder.join(name);
            std::fs::write(&file, recording).with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
