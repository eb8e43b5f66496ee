//! A load that a command applies: another load generator, or any other command that ends.
//!
//! If [`beamtune_load::import`] can read the results of the command, the requests are counted. These are the requests of the last
//! seconds if the results contain seconds, otherwise those of the whole run. Without such results, the run itself is measured: its
//! duration, and the CPU time that the target used during the run.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use beamtune_load::clock::{SECOND_NS, now_ns};
use beamtune_load::import::{self, ImportError};
use beamtune_model::load::{LoadResult, LoadSecond};
use beamtune_recording::Stop;
use beamtune_trial::load_result::{self, CountedPart};
use beamtune_trial::measure::{Answers, Run};
use beamtune_trial::steady::Second;
use serde::{Deserialize, Serialize};

use crate::drive::{LoadEnd, LoadRun};
use crate::process::{Launch, POLL_INTERVAL, launch, or_nothing};
use crate::usage::UsageSampler;

/// A command that applies a load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadCommand {
    /// The command line.
    pub command: String,
    /// File with the results, relative to the trial's folder; `None`: standard output.
    pub result: Option<PathBuf>,
    /// Time limit of the command, in seconds.
    pub within_s: f64,
}

/// The data of a trial that its load command needs.
pub(crate) struct TrialContext<'a> {
    /// How the command is started.
    pub launch: Launch<'a>,
    /// The trial's folder.
    pub data: &'a Path,
    /// Length of the window in seconds, for results that contain seconds.
    pub window_s: u32,
    /// Process id of the VM.
    pub vm: u32,
}

impl LoadCommand {
    /// Runs the command against a target.
    pub(crate) fn run(&self, trial: TrialContext<'_>, stop: &Stop) -> Result<LoadEnd> {
        let TrialContext { launch: options, data, window_s, vm } = trial;
        let out = options.log.with_extension("out");
        let (began, began_at, begin_ns) = (Instant::now(), SystemTime::now(), now_ns());
        let mut usage = UsageSampler::new(vm);
        let mut command = launch(Launch { out: Some(&out), ..options })?;
        let exit = loop {
            if stop.is_requested() {
                return Ok(LoadEnd::Stopped);
            }
            if !usage.sample_if_due() {
                return Ok(LoadEnd::VmEnded);
            }
            if let Some(exit) = command.exit() {
                break exit.clone();
            }
            if began.elapsed() > Duration::from_secs_f64(self.within_s) {
                let output = command.last_output();
                return Ok(LoadEnd::LoadFailed(format!(
                    "it did not end within {:.0} s (--within); its output: {}",
                    self.within_s,
                    or_nothing(&output)
                )));
            }
            stop.wait(POLL_INTERVAL);
        };
        let end_ns = begin_ns + exit.took.as_nanos() as u64;
        usage.sample();
        let failure =
            (!exit.is_success()).then(|| format!("{}: {}", exit.how, or_nothing(&command.last_output())));
        let results = match (self.results(&out, data, began_at), failure) {
            // Some generators exit with an error if results miss a threshold (k6).
            (Ok(Some(results)), Some(_)) if exit.how.starts_with("exited") && results.is_complete() => {
                Some(results)
            }
            (_, Some(why)) => return Ok(LoadEnd::LoadFailed(why)),
            (results, None) => results?,
        };
        command.end()?;
        let run = CommandRun { begin_ns, end_ns, usage };
        let Some(results) = results else { return Ok(LoadEnd::Measured(Box::new(run.measure()))) };
        Ok(LoadEnd::Measured(Box::new(match load_result::last_seconds(&results.result, window_s) {
            CountedPart::Seconds(seconds) => run.measure_seconds(&results, seconds),
            CountedPart::Whole => run.measure_requests(&results.result),
            CountedPart::TooFew(seconds) => {
                return Ok(LoadEnd::LoadFailed(format!(
                    "its results cover {seconds} full seconds, but {window_s} are measured (--for): let it run longer, so that they also cover the warm-up"
                )));
            }
        })))
    }

    /// Reads the command's results; `None` if its output has no known format.
    fn results(&self, out: &Path, data: &Path, began: SystemTime) -> Result<Option<Results>> {
        let path = self.result.as_ref().map_or_else(|| out.to_owned(), |name| data.join(name));
        let what = if self.result.is_some() { "--load-result" } else { "output of the load command" };
        let cannot_read = || format!("{what}: cannot read {}", path.display());
        let file = std::fs::File::open(&path).with_context(cannot_read)?;
        let written = file.metadata().and_then(|about| about.modified()).with_context(cannot_read)?;
        // The file of an earlier run would become the result of every trial.
        if self.result.is_some() && written + Duration::from_secs(1) < began {
            bail!("{what}: {} was not written by the load command", path.display());
        }
        match import::read_from(what, file, None) {
            Ok(result) => Ok(Some(Results { result, written })),
            Err(ImportError::Unknown { .. }) if self.result.is_none() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The results of a command, and when they were written.
struct Results {
    result: LoadResult,
    written: SystemTime,
}

impl Results {
    /// True if the results were written completely.
    fn is_complete(&self) -> bool {
        // The importer uses this wording.
        let is_cut = |remark: &String| remark.to_lowercase().contains("cut off");
        !self.result.is_interrupted && !self.result.remarks.iter().any(is_cut)
    }
}

/// Converts a wall-clock time to CLOCK_MONOTONIC. The result is wrong if the wall clock has been set since then.
fn monotonic_ns(wall_s: f64) -> f64 {
    let wall_now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    now_ns() as f64 - (wall_now_s - wall_s) * 1e9
}

/// The run of a command, with times on CLOCK_MONOTONIC.
struct CommandRun {
    begin_ns: u64,
    end_ns: u64,
    usage: UsageSampler,
}

impl CommandRun {
    /// Measures the window that consists of these seconds of the results.
    fn measure_seconds(self, results: &Results, seconds: &[LoadSecond]) -> LoadRun {
        let zero_ns = self.zero_ns(results);
        let moment = |second: i64| zero_ns + (second.max(0).unsigned_abs() * SECOND_NS) as f64;
        let begin_ns = moment(seconds.first().map_or(0, |it| it.second));
        let end_ns = moment(seconds.last().map_or(0, |it| it.second + 1));
        let second = |load: &LoadSecond| {
            let (from, to) = (self.usage.at(moment(load.second))?, self.usage.at(moment(load.second + 1))?);
            Some(Second { cpu_ns: to.vm_ns - from.vm_ns, done: load.done, rss_bytes: to.rss_bytes })
        };
        LoadRun {
            answers: load_result::answers_of_seconds(seconds),
            seconds: seconds.iter().filter_map(second).collect(),
            bound: seconds.iter().filter_map(|second| second.bound.clone()).collect(),
            stalled_seconds: 0,
            begin_ns: begin_ns as u64,
            end_ns: end_ns as u64,
            own_cores: self.usage.own_cores(begin_ns, end_ns),
        }
    }

    /// Returns time 0 of the results: the time that they state, or the time of their last line minus their length.
    fn zero_ns(&self, Results { result, written }: &Results) -> f64 {
        let is_within = |zero_ns: &f64| {
            *zero_ns >= self.begin_ns as f64 && *zero_ns + result.length_s * 1e9 <= self.end_ns as f64 + 1e9
        };
        let monotonic = result.began_monotonic_ns.map(|zero_ns| zero_ns as f64);
        // Wall-clock times of results are in full seconds.
        let wall = result.began_unix_s.map(|began_s| monotonic_ns(began_s.floor()));
        let last_line_s = written.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let last_ns = monotonic_ns(last_line_s).min(self.end_ns as f64);
        let stated = monotonic.filter(is_within).or(wall.filter(is_within));
        stated.unwrap_or(last_ns - result.length_s * 1e9).max(self.begin_ns as f64)
    }

    /// Measures a whole run, with the requests in its results.
    fn measure_requests(self, result: &LoadResult) -> LoadRun {
        let answers = load_result::answers_of_run(result, self.took().as_secs_f64());
        self.load_run(answers)
    }

    /// Measures a whole run without results: its duration and the CPU time of the VM.
    fn measure(self) -> LoadRun {
        let took = self.took();
        let until = |at_ns: u64| self.usage.at(at_ns as f64).map_or(0.0, |sample| sample.vm_ns);
        let cpu_ns = until(self.end_ns) - until(self.begin_ns);
        let run = Run { took_ns: took.as_nanos() as f64, cpu_ns };
        self.load_run(Answers { seconds: took.as_secs_f64(), run: Some(run), ..Answers::default() })
    }

    fn took(&self) -> Duration {
        Duration::from_nanos(self.end_ns.saturating_sub(self.begin_ns))
    }

    fn load_run(self, answers: Answers) -> LoadRun {
        LoadRun {
            answers,
            // The load of each second is unknown, so it cannot be checked whether the load was steady.
            seconds: Vec::new(),
            bound: Vec::new(),
            stalled_seconds: 0,
            begin_ns: self.begin_ns,
            end_ns: self.end_ns,
            own_cores: self.usage.own_cores(self.begin_ns as f64, self.end_ns as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_begin_at_the_stated_time_or_before_the_last_line() {
        let text = (1..=10)
            .map(|second| format!("id: test-1, time {second}.000 s, sent: 10 msg/s, received: 10 msg/s\n"));
        let result = import::read("perf-test", text.collect::<String>().as_bytes()).expect("read");
        // The run ended now, two seconds after its last line.
        let end_ns = now_ns();
        let begin_ns = end_ns - 14 * SECOND_NS;
        let run = CommandRun { begin_ns, end_ns, usage: UsageSampler::new(0) };
        let written = SystemTime::now() - Duration::from_secs(2);
        let results = |began: Option<u64>| Results {
            result: LoadResult { began_monotonic_ns: began, ..result.clone() },
            written,
        };
        let second = |ns: f64| ((ns - begin_ns as f64) / 1e9 * 10.0).round() / 10.0;
        assert_eq!(second(run.zero_ns(&results(None))), 2.0);
        assert_eq!(second(run.zero_ns(&results(Some(begin_ns + SECOND_NS)))), 1.0);
        assert_eq!(second(run.zero_ns(&results(Some(5)))), 2.0, "this time is not within the run");
        let CountedPart::Seconds(seconds) = load_result::last_seconds(&result, 4) else { panic!("seconds") };
        let measured = run.measure_seconds(&results(None), seconds);
        assert_eq!((second(measured.begin_ns as f64), second(measured.end_ns as f64)), (7.0, 11.0));
        assert_eq!((measured.answers.seconds, measured.answers.done), (4.0, 40));
    }
}
