//! `beamtune study`: looks at a study's file, goes on with it, or writes out what it holds.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use beamtune_model::study::{Answer, Order, Phase, StudyStore, Trial, TrialOutcome};
use beamtune_recording::Stop;
use beamtune_store::Study;
use beamtune_trial::compare::{self, Next};
use serde_json::json;

use super::compare::Kept;
use crate::access::AccessArgs;
use crate::{take, terminal, trial};

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
            tell(&kept(&study)?, &study.trials()?, *json)
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

/// Runs trials until there is an answer, and tells it.
pub fn go_on(mut study: Study, kept: &Kept, access: &AccessArgs, json: bool) -> Result<ExitCode> {
    let mut trials = study.trials()?;
    let stop = Stop::default();
    take::stop_on_signals(&stop)?;
    if let Some(pins) = &kept.setup.pins {
        // What we start from now on, and the generator's threads, run there.
        beamtune_host::cpus::run_on(&pins.generator).context("cannot choose CPUs for the load")?;
    }
    while let Next::Run(order) = compare::next(&kept.question, &trials) {
        let Some(done) = trial::run(&kept.setup, access, &order, &stop)? else {
            let path = study.path().display().to_string();
            bail!("stopped after {} trials; go on with: beamtune study resume {path}", trials.len());
        };
        study.add(&done.trial, done.recording.as_deref())?;
        terminal::complain(&line(kept, trials.len() + 1, &done.trial));
        trials.push(done.trial);
    }
    tell(kept, &trials, json)
}

/// One line about a trial that has ended.
fn line(kept: &Kept, number: usize, trial: &Trial) -> String {
    let Order { phase, arm, .. } = &trial.order;
    let what = match phase {
        Phase::Same => format!("{} against itself", arm.name),
        Phase::Pair | Phase::Search | Phase::Confirm | Phase::BackOut => arm.name.clone(),
    };
    let outcome = match &trial.outcome {
        TrialOutcome::Valid { measures } => {
            let value = measures.get(&kept.question.objective);
            let told = value.map_or_else(
                || "not measured".to_owned(),
                |value| beamtune_report::study::value(&kept.question.objective, value),
            );
            format!("{} {told}", kept.question.objective)
        }
        TrialOutcome::Invalid { reasons, .. } => {
            let whys: Vec<&str> = reasons.iter().map(|reason| reason.why.as_str()).collect();
            format!("does not count: {}", whys.join("; "))
        }
        TrialOutcome::Failed { why } => format!("failed: {why}"),
    };
    format!("trial {number}  {what}  {:.0} s  {outcome}\n", trial.took_s)
}

fn tell(kept: &Kept, trials: &[Trial], is_json: bool) -> Result<ExitCode> {
    let verdict = compare::judge(&kept.question, trials);
    if is_json {
        let text = json!({ "question": kept.question, "setup": kept.setup, "trials": trials.len(), "verdict": verdict });
        let text = serde_json::to_string_pretty(&text).context("the result cannot be written as JSON")?;
        terminal::print(&(text + "\n"));
    } else {
        terminal::print(&beamtune_report::study::render(&kept.question, &verdict, terminal::style()));
    }
    Ok(match verdict.answer {
        Answer::Better | Answer::Same => ExitCode::SUCCESS,
        _ => ExitCode::from(terminal::FOUND),
    })
}

fn export(study: &Study, recordings: Option<&std::path::Path>) -> Result<ExitCode> {
    if let Some(folder) = recordings {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    for (number, trial) in study.trials()?.iter().enumerate() {
        let text = serde_json::to_string(trial).context("a trial cannot be written as JSON")?;
        terminal::print(&(text + "\n"));
        if let Some(folder) = recordings
            && let Some(recording) = study.recording(number)?
        {
            let name = format!("{:03}-{}.beamtune", number + 1, trial.order.arm.name);
            let file = folder.join(name);
            std::fs::write(&file, recording).with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
