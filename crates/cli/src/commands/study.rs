//! `beamtune study`: shows, resumes or exports a study.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use beamtune_model::study::{
    self as quantities, Answer, Phase, QUANTITIES, Question, StudyStore, Trial, TrialOrder, TrialOutcome,
};
use beamtune_recording::Stop;
use beamtune_report::study::Circumstances;
use beamtune_runner::{Load, Setup};
use beamtune_store::Study;
use beamtune_trial::compare;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::study_args::{ResultArgs, minutes};
use super::tune::{self, TargetKnobs, TuneGoal};
use crate::access::AccessArgs;
use crate::signals::stop_on_signals;
use crate::terminal;

/// The contents of a study's file, without the trials.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StudyDescription {
    pub asked: StudyQuestion,
    /// How trials are run.
    pub setup: Setup,
}

/// The question of a study.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StudyQuestion {
    /// Whether one setting differs from another.
    Compare(Question),
    /// Which setting is best.
    Tune(TuneGoal),
}

impl StudyQuestion {
    /// Returns the quantity that decides.
    fn objective(&self) -> &str {
        match self {
            StudyQuestion::Compare(question) => &question.objective,
            StudyQuestion::Tune(goal) => &goal.objective,
        }
    }

    /// Returns the minimum and maximum number of trials if all trials are valid.
    fn trials(&self, trials: &[Trial]) -> Option<(usize, usize)> {
        match self {
            StudyQuestion::Compare(question) => compare::trials(question),
            StudyQuestion::Tune(goal) => {
                let all = goal.trials(trials);
                Some((all, all))
            }
        }
    }

    /// Returns the next trial to run; `None` if the study is complete.
    fn next(
        &self,
        study: &Study,
        trials: &[Trial],
        knobs: &mut Option<TargetKnobs>,
    ) -> Result<Option<TrialOrder>> {
        match self {
            StudyQuestion::Compare(question) => Ok(match compare::next(question, trials) {
                compare::Next::Run(order) => Some(order),
                compare::Next::Done(_) => None,
            }),
            StudyQuestion::Tune(goal) => {
                if knobs.is_none() {
                    *knobs = tune::target_knobs(goal, study, trials)?;
                }
                // Before the knobs are known, the target is only compared with itself.
                let tuning = goal.tuning(trials, knobs.as_ref());
                Ok(match beamtune_trial::tune::next(&tuning, trials) {
                    beamtune_trial::tune::Next::Run(order) => Some(order),
                    beamtune_trial::tune::Next::Done(_) => None,
                })
            }
        }
    }
}

/// Show, resume or export a study of compare or tune
#[derive(clap::Subcommand)]
pub enum Args {
    /// Show the results so far
    Show {
        /// File of the study
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        result: ResultArgs,
    },
    /// Resume a study that was interrupted
    Resume {
        /// File of the study
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        result: ResultArgs,
        #[command(flatten)]
        access: AccessArgs,
    },
    /// Print all trials as JSON, one per line, and write their recordings
    Export {
        /// File of the study
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Folder for the recordings, one file per trial; created if missing
        #[arg(long, value_name = "FOLDER")]
        recordings: Option<PathBuf>,
    },
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    match args {
        Args::Show { file, result } => {
            let study = Study::read(file)?;
            print_results(&description(&study)?, &study, &study.trials()?, *result)
        }
        Args::Resume { file, result, access } => {
            let study = Study::resume(file)?;
            let description = description(&study)?;
            run_trials(study, &description, access, *result)
        }
        Args::Export { file, recordings } => {
            let study = Study::read(file)?;
            export(&study, recordings.as_deref())
        }
    }
}

fn description(study: &Study) -> Result<StudyDescription> {
    let text = study.question()?;
    serde_json::from_str(&text)
        .with_context(|| format!("cannot parse the question of {}", study.path().display()))
}

/// Returns a file name that contains the time, in the working directory.
pub fn default_file(what: &str) -> PathBuf {
    Path::new(&format!("{what}-{}.study", jiff::Zoned::now().strftime("%Y%m%d-%H%M%S"))).to_owned()
}

/// Creates the file of a study, and runs it.
pub fn begin(
    file: &Path,
    description: &StudyDescription,
    plan: &str,
    access: &AccessArgs,
    result: ResultArgs,
) -> Result<ExitCode> {
    let text = serde_json::to_string(description).context("cannot write the question as JSON")?;
    let study = Study::create(file, &text)?;
    terminal::complain(&format!("{plan}study: {}\n", file.display()));
    run_trials(study, description, access, result)
}

/// Runs trials until the question is answered, and prints the results.
fn run_trials(
    mut study: Study,
    description: &StudyDescription,
    access: &AccessArgs,
    result: ResultArgs,
) -> Result<ExitCode> {
    let mut trials = study.trials()?;
    let mut knobs = None;
    let (stop, access) = (Stop::default(), access.options());
    stop_on_signals(&stop)?;
    if let Some(pins) = &description.setup.pins {
        // The generator's threads and all processes that are started from now on inherit this.
        beamtune_host::cpus::set_affinity(&pins.generator).context("cannot bind the load to its CPUs")?;
    }
    while let Some(order) = description.asked.next(&study, &trials, &mut knobs)? {
        let Some(done) = beamtune_runner::run(&description.setup, &access, &order, &stop)? else {
            let path = study.path().display().to_string();
            bail!("stopped after {} trials; resume with: beamtune study resume {path}", trials.len());
        };
        check_measured(description, &done.trial)?;
        study.add(&done.trial, done.recording.as_deref())?;
        trials.push(done.trial);
        terminal::complain(&line(description, &trials));
    }
    print_results(description, &study, &trials, result)
}

/// Fails if a trial did not measure the quantity that decides, since the study would never end. This also holds for an invalid trial,
/// unless it ended before it measured anything.
fn check_measured(description: &StudyDescription, trial: &Trial) -> Result<()> {
    let objective = description.asked.objective();
    let (TrialOutcome::Valid { measures } | TrialOutcome::Invalid { measures, .. }) = &trial.outcome else {
        return Ok(());
    };
    let measured: Vec<&str> =
        QUANTITIES.iter().map(|quantity| quantity.name).filter(|name| measures.get(name).is_some()).collect();
    if measured.is_empty() || measures.get(objective).is_some() {
        return Ok(());
    }
    let why = match description.setup.load {
        Load::Command(_) if measures.get(quantities::DURATION.name).is_some() => {
            ": the output of the load command has no known format (load import --help; --load-result names a file)"
        }
        _ => "",
    };
    bail!(
        "{objective} was not measured{why}; choose another objective with --objective: {}",
        measured.join(", ")
    );
}

/// Describes the progress of a study: the number of trials so far and in total, and the maximum time left.
fn progress(description: &StudyDescription, trials: &[Trial]) -> String {
    let number = trials.len();
    let Some((min, max)) = description.asked.trials(trials) else { return format!("trial {number}") };
    let took_s = trials.iter().map(|trial| trial.took_s).sum::<f64>() / number.max(1) as f64;
    let left = minutes(max.saturating_sub(number) as f64 * took_s);
    if min == max {
        format!("trial {number} of {max}, {left} left")
    } else if number < min {
        format!("trial {number} of {min} to {max}, at most {left} left")
    } else {
        format!("trial {number} of at most {max}, at most {left} left")
    }
}

/// Describes the last trial in one line.
fn line(description: &StudyDescription, trials: &[Trial]) -> String {
    let Some(trial) = trials.last() else { return String::new() };
    let TrialOrder { phase, arm, .. } = &trial.order;
    let objective = description.asked.objective();
    let what = match phase {
        Phase::Same => format!("{} against itself", arm.name),
        Phase::Pair => arm.name.clone(),
        Phase::Search | Phase::Confirm | Phase::BackOut => format!("{phase}: {}", arm.name),
    };
    let outcome = match &trial.outcome {
        TrialOutcome::Valid { measures } => {
            let value = measures.get(objective);
            let text = value.map_or_else(
                || "not measured".to_owned(),
                |value| beamtune_report::study::value(objective, value),
            );
            let effects = match phase {
                Phase::Search => beamtune_trial::tune::progress(objective, trials),
                _ => None,
            };
            let percent = beamtune_report::study::percent;
            let effects = effects.map_or_else(String::new, |(last, best)| {
                format!(" ({}, best so far {})", percent(last), percent(best))
            });
            format!("{objective} {text}{effects}")
        }
        TrialOutcome::Invalid { reasons, .. } => {
            let whys: Vec<&str> = reasons.iter().map(|reason| reason.why.as_str()).collect();
            format!("invalid: {}", whys.join("; "))
        }
        TrialOutcome::Failed { reason: why } => format!("failed: {why}"),
    };
    format!("{}  {what}  {:.0} s  {outcome}\n", progress(description, trials), trial.took_s)
}

/// Prints the results of a study.
fn print_results(
    description: &StudyDescription,
    study: &Study,
    trials: &[Trial],
    result: ResultArgs,
) -> Result<ExitCode> {
    match &description.asked {
        StudyQuestion::Compare(question) => print_comparison(question, &description.setup, trials, result),
        StudyQuestion::Tune(goal) => tune::print_results(goal, &description.setup, study, trials, result),
    }
}

fn print_comparison(
    question: &Question,
    setup: &Setup,
    trials: &[Trial],
    result: ResultArgs,
) -> Result<ExitCode> {
    let verdict = compare::judge(question, trials);
    if result.json {
        print_json(
            &json!({ "question": question, "setup": setup, "trials": trials.len(), "verdict": verdict }),
        )?;
    } else {
        let load = load_words(setup);
        let run = circumstances(&load, trials);
        terminal::print(&beamtune_report::study::render(question, &verdict, run, &result.view()));
    }
    Ok(match verdict.answer {
        Answer::Better | Answer::Same => ExitCode::SUCCESS,
        _ => ExitCode::from(terminal::FOUND),
    })
}

/// Maximum length of a load's name, in characters; a command can be long.
const LOAD_NAME_CHARS: usize = 60;

/// Describes the load in one line: `load http://127.0.0.1:8080/`.
pub fn load_words(setup: &Setup) -> String {
    if let Load::Job { .. } = setup.load {
        return "the job itself".to_owned();
    }
    let name = setup.load.name().split_whitespace().collect::<Vec<_>>().join(" ");
    match name.char_indices().nth(LOAD_NAME_CHARS) {
        Some((end, _)) => format!("load {} …", &name[..end]),
        None => format!("load {name}"),
    }
}

/// Describes how the trials were run.
pub fn circumstances<'a>(load: &'a str, trials: &[Trial]) -> Circumstances<'a> {
    Circumstances { load, took_s: trials.iter().map(|trial| trial.took_s).sum() }
}

/// Prints a value as JSON.
pub fn print_json(value: &serde_json::Value) -> Result<()> {
    let text = serde_json::to_string_pretty(value).context("cannot write the result as JSON")?;
    terminal::print(&(text + "\n"));
    Ok(())
}

fn export(study: &Study, recordings: Option<&Path>) -> Result<ExitCode> {
    if let Some(folder) = recordings {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    for (number, trial) in study.trials()?.iter().enumerate() {
        let text = serde_json::to_string(trial).context("cannot write a trial as JSON")?;
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
