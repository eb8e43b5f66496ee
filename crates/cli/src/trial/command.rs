//! A load that a command drives: another generator, or anything else that ends by itself.
//!
//! Where the command prints or writes results that [`beamtune_load::import`] reads, its answers are counted: of its last seconds if the
//! results tell seconds, else of the whole run. Where it does not, the run itself is what is measured: how long it took, and what CPU time
//! the target used for it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use beamtune_load::clock::{SECOND_NS, now_ns};
use beamtune_load::import::{self, ImportError};
use beamtune_model::load::{LoadResult, LoadSecond};
use beamtune_recording::Stop;
use beamtune_trial::measure::{Answers, Run};
use beamtune_trial::steady::Second;
use beamtune_trial::told;
use serde::{Deserialize, Serialize};

use super::drive::{Driven, Drove};
use super::looks::Looks;
use super::said;
use super::started::{LOOK, Launch, start};

/// A command that drives a load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadCommand {
    /// The command line.
    pub command: String,
    /// The file with its results, in the folder of the trial if it is relative; without one, what it prints is read.
    pub result: Option<PathBuf>,
    /// How long it may take, in seconds.
    pub within_s: f64,
}

/// What a trial gives a command.
pub struct Given<'a> {
    /// How it is started.
    pub launch: Launch<'a>,
    /// The folder of the trial.
    pub data: &'a Path,
    /// Seconds that count where its results tell seconds.
    pub window_s: u32,
    /// The VM's process id.
    pub vm: u32,
}

impl LoadCommand {
    /// Runs it against a target.
    pub fn drive(&self, given: Given<'_>, stop: &Stop) -> Result<Drove> {
        let Given { launch, data, window_s, vm } = given;
        let (began, began_at, begin_ns) = (Instant::now(), SystemTime::now(), now_ns());
        let mut looks = Looks::new(vm);
        let mut started = start(launch)?;
        let ending = loop {
            if stop.is_requested() {
                return Ok(Drove::Stopped);
            }
            if !looks.look() {
                return Ok(Drove::VmEnded);
            }
            if let Some(ending) = started.ended() {
                break ending.clone();
            }
            if began.elapsed() > Duration::from_secs_f64(self.within_s) {
                let words = started.last_words();
                return Ok(Drove::LoadFailed(format!(
                    "it did not end within {:.0} s (--load-within); it said: {}",
                    self.within_s,
                    said(&words)
                )));
            }
            stop.wait(LOOK);
        };
        let end_ns = begin_ns + ending.took.as_nanos() as u64;
        looks.look();
        let failed = (!ending.is_well()).then(|| format!("{}: {}", ending.how, said(&started.last_words())));
        let result = match (self.result(started.log(), data, began_at), failed) {
            // Generators end so as well where they have answers and did not like them (k6's thresholds).
            (Ok(Some(result)), _) => Some(result),
            (_, Some(why)) => return Ok(Drove::LoadFailed(why)),
            (result, None) => result?,
        };
        started.end()?;
        let whole = Whole { begin_ns, end_ns, looks };
        Ok(Drove::Measured(Box::new(match &result {
            Some(result) => match told::last_seconds(result, window_s) {
                Some(seconds) => whole.seconds(result, seconds),
                None => whole.answers(result),
            },
            None => whole.run(),
        })))
    }

    /// What it has told of what it did; `None` if that is nothing that is read.
    fn result(&self, log: &Path, data: &Path, began: SystemTime) -> Result<Option<LoadResult>> {
        let Some(name) = &self.result else {
            let said = std::fs::File::open(log).with_context(|| format!("cannot read {}", log.display()))?;
            return match import::read_from("what it printed", said, None) {
                Ok(result) => Ok(Some(result)),
                Err(ImportError::Unknown { .. }) => Ok(None),
                Err(error) => Err(error).context("the load command's results"),
            };
        };
        let path = data.join(name);
        let file = std::fs::File::open(&path)
            .with_context(|| format!("--load-result: cannot read {}", path.display()))?;
        // One that was there before would be taken for the result of every trial.
        if file.metadata()?.modified()? + Duration::from_secs(1) < began {
            bail!("--load-result: {} was not written by the load command", path.display());
        }
        Ok(Some(import::read_from(&path.display().to_string(), file, None).context("--load-result")?))
    }
}

/// The whole run of a command, on CLOCK_MONOTONIC.
struct Whole {
    begin_ns: u64,
    end_ns: u64,
    looks: Looks,
}

impl Whole {
    /// Of seconds that a result tells.
    fn seconds(self, result: &LoadResult, told: &[LoadSecond]) -> Driven {
        let zero_ns = self.zero_ns(result);
        let moment = |second: i64| zero_ns + (second.max(0).unsigned_abs() * SECOND_NS) as f64;
        let begin_ns = moment(told.first().map_or(0, |it| it.second));
        let end_ns = moment(told.last().map_or(0, |it| it.second + 1));
        let second = |told: &LoadSecond| {
            let (from, to) = (self.looks.at(moment(told.second))?, self.looks.at(moment(told.second + 1))?);
            Some(Second { cpu_ns: to.vm_ns - from.vm_ns, done: told.done, rss_bytes: to.rss_bytes })
        };
        Driven {
            answers: told::of_seconds(result, told),
            seconds: told.iter().filter_map(second).collect(),
            bound: told.iter().filter_map(|second| second.bound.clone()).collect(),
            begin_ns: begin_ns as u64,
            end_ns: end_ns as u64,
            own_cores: self.looks.own_cores(begin_ns, end_ns),
        }
    }

    /// When the result's clock was zero. Where it does not say so, it ended with the command.
    fn zero_ns(&self, result: &LoadResult) -> f64 {
        let is_within = |zero_ns: &f64| {
            *zero_ns >= self.begin_ns as f64 && *zero_ns + result.length_s * 1e9 <= self.end_ns as f64 + 1e9
        };
        let told = result.began_monotonic_ns.map(|zero_ns| zero_ns as f64);
        told.filter(is_within).unwrap_or(self.end_ns as f64 - result.length_s * 1e9)
    }

    /// Of a result that tells no seconds.
    fn answers(self, result: &LoadResult) -> Driven {
        let answers = told::of_run(result, self.took().as_secs_f64());
        self.driven(answers)
    }

    /// Of a run that tells nothing.
    fn run(self) -> Driven {
        let took = self.took();
        let until = |at_ns: u64| self.looks.at(at_ns as f64).map_or(0.0, |look| look.vm_ns);
        let cpu_ns = until(self.end_ns) - until(self.begin_ns);
        let run = Run { took_ns: took.as_nanos() as f64, cpu_ns };
        self.driven(Answers { seconds: took.as_secs_f64(), run: Some(run), ..Answers::default() })
    }

    fn took(&self) -> Duration {
        Duration::from_nanos(self.end_ns.saturating_sub(self.begin_ns))
    }

    fn driven(self, answers: Answers) -> Driven {
        Driven {
            answers,
            // What it asked of the target in which second is not known, so nothing says that it should have been even.
            seconds: Vec::new(),
            bound: Vec::new(),
            begin_ns: self.begin_ns,
            end_ns: self.end_ns,
            own_cores: self.looks.own_cores(self.begin_ns as f64, self.end_ns as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_does_not_say_when_it_began_ended_with_its_command() {
        let text = (1..=10)
            .map(|second| format!("id: test-1, time {second}.000 s, sent: 10 msg/s, received: 10 msg/s\n"));
        let result = import::read("perf-test", text.collect::<String>().as_bytes()).expect("read");
        let whole = |end_s: u64| Whole {
            begin_ns: 1_000 * SECOND_NS,
            end_ns: end_s * SECOND_NS,
            looks: Looks::new(0),
        };
        let driven = whole(1_012).seconds(&result, told::last_seconds(&result, 4).expect("seconds"));
        assert_eq!((driven.begin_ns, driven.end_ns), (1_007 * SECOND_NS, 1_011 * SECOND_NS));
        assert_eq!((driven.answers.seconds, driven.answers.done), (4.0, 80));
        // One that says it is believed if that lies within the command's run.
        let told_at =
            |second: u64| LoadResult { began_monotonic_ns: Some(second * SECOND_NS), ..result.clone() };
        assert_eq!(whole(1_012).zero_ns(&told_at(1_001)), 1_001e9);
        assert_eq!(whole(1_012).zero_ns(&told_at(5)), 1_002e9);
    }
}
