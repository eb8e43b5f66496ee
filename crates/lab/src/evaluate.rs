//! Evaluates diagnoses: runs labs, software and synthetic recordings, and compares each diagnosis with what is known of the VM.
//!
//! Results are stored in a file with one line of JSON per run. A later evaluation continues it, or replaces results in it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use beamtune_node::Printer;
use beamtune_recording::Stop;

use crate::execute::Executor;
use crate::plan::{Cases, Plan, Selection, minutes};
use crate::recordings::RecordingStore;
use crate::rows::{Row, Rows, Run, is_same};

/// Options of an evaluation.
pub struct EvaluationOptions {
    /// What to evaluate.
    pub selection: Selection,
    /// Master seed, from which all other seeds are derived; `None`: that of the results to continue, otherwise a random one.
    pub seed: Option<u64>,
    /// Skip runs whose results are in the file.
    pub resume: bool,
    /// Replace results in the file.
    pub fresh: bool,
    /// File for results.
    pub output: PathBuf,
    /// Folder for recordings; `None`: they are not kept.
    pub keep: Option<PathBuf>,
    /// Prints progress and warnings.
    pub print: Printer,
}

/// An evaluation that has not begun.
pub struct Evaluation<'a> {
    options: &'a EvaluationOptions,
    master: u64,
    plan: Plan<'a>,
    /// All runs, including those whose results are kept.
    planned: Vec<Run>,
    kept: Vec<Row>,
    /// True if the file contains results that are not kept.
    drops_results: bool,
}

/// The results of an evaluation.
pub struct Results {
    /// The result of each run, and of earlier runs that were kept.
    pub rows: Vec<Row>,
    /// The runs that decide whether everything was right.
    planned: Vec<Run>,
    /// False if the evaluation was stopped.
    pub is_complete: bool,
}

impl Results {
    /// Returns results that were graded again.
    pub fn of(rows: Vec<Row>) -> Results {
        Results { planned: rows.iter().map(|row| row.run.clone()).collect(), rows, is_complete: true }
    }

    /// True if all planned runs were right.
    pub fn all_right(&self) -> bool {
        let is_planned = |row: &&Row| self.planned.iter().any(|run| is_same(run, &row.run));
        self.rows.iter().filter(is_planned).all(|row| row.faults().is_empty())
    }
}

impl<'a> Evaluation<'a> {
    /// Plans an evaluation.
    ///
    /// # Errors
    /// If the file contains results, and the options do not say what becomes of them; if no run is possible.
    pub fn new(options: &'a EvaluationOptions, cases: &'a Cases) -> Result<Evaluation<'a>> {
        let before = Rows::read(&options.output)?;
        if !before.is_empty() && !options.resume && !options.fresh {
            bail!("{} contains results: --resume continues, --fresh replaces them", options.output.display());
        }
        let old_master = before.last().map(|row| row.master).filter(|_| options.resume);
        let master = options.seed.or(old_master).unwrap_or_else(random_seed);
        let mut plan = Plan::new(&options.selection, master, cases, options.print)?;
        let planned: Vec<Run> = plan.jobs.iter().map(|job| job.run.clone()).collect();
        let is_planned = |run: &Run| planned.iter().any(|other| is_same(other, run));
        let is_kept = |row: &&Row| {
            // A run of all labs replaces everything, since another seed may choose other releases.
            let stays = if options.resume {
                row.error.is_none()
            } else {
                !options.selection.names.is_empty() && !is_planned(&row.run)
            };
            // A case that was renamed or removed cannot be graded any more.
            stays && cases.contains(&row.run.case)
        };
        let kept: Vec<Row> = before.iter().filter(is_kept).cloned().collect();
        plan.jobs.retain(|job| !kept.iter().any(|row| is_same(&row.run, &job.run)));
        let drops_results = kept.len() < before.len();
        Ok(Evaluation { options, master, plan, planned, kept, drops_results })
    }

    /// Describes the evaluation in one line.
    pub fn summary(&self) -> String {
        format!(
            "master seed {}; {} runs, about {} min; results in {}\n",
            self.master,
            self.plan.jobs.len(),
            minutes(&self.plan.jobs),
            self.options.output.display()
        )
    }

    /// Executes all runs, or those until `stop` is requested.
    ///
    /// # Errors
    /// If the labs do not compile, or a result cannot be written.
    pub fn run(self, stop: Stop) -> Result<Results> {
        let Evaluation { options, master, plan: Plan { installed, jobs }, planned, kept, drops_results } =
            self;
        let begin = || {
            if drops_results {
                back_up(&options.output, options.print)?;
            }
            Rows::begin(&options.output, kept)
        };
        let store = RecordingStore::new(options.keep.as_deref())?;
        let executor = Executor::prepare(master, &installed, &jobs, stop, store, options.print, begin)?;
        executor.run(jobs)?;
        let is_complete = !executor.stop.is_requested();
        Ok(Results { rows: executor.rows.into_sorted(), planned, is_complete })
    }
}

/// Copies a file before its results are replaced, since producing them may have taken two hours.
fn back_up(output: &Path, print: Printer) -> Result<()> {
    let mut copy = output.as_os_str().to_owned();
    copy.push(".before");
    std::fs::copy(output, &copy).with_context(|| format!("cannot write {}", copy.display()))?;
    print(&format!("copied {} to {}\n", output.display(), copy.display()));
    Ok(())
}

/// Returns a number that differs between evaluations.
fn random_seed() -> u64 {
    jiff::Timestamp::now().as_nanosecond().unsigned_abs() as u64 % 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Setting;
    use crate::rows::tests::row;

    #[test]
    fn kept_results_do_not_decide_whether_all_is_right() {
        let mut wrong = row("kept", Setting::Sick);
        wrong.judged.missing = vec!["BT005".to_owned()];
        let planned = row("planned", Setting::Sick);
        let results = |planned: &Row| Results {
            rows: vec![wrong.clone(), planned.clone()],
            planned: vec![planned.run.clone()],
            is_complete: true,
        };
        assert!(results(&planned).all_right());
        assert!(!results(&wrong).all_right());
        assert!(!Results::of(vec![planned, wrong.clone()]).all_right());
    }
}
