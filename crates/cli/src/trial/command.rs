//! A load that a command drives: another generator, or anything else that ends by itself.
//!
//! Where the command prints or writes results that [`beamtune_load::import`] reads, its answers are counted: of its last seconds if the
//! results tell seconds, else of the whole run. Where it does not, the run itself is what is measured: how long it took, and what CPU time
//! the target used for it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use beamtune_load::clock::{SECOND_NS, now_ns};
use beamtune_load::import::{self, ImportError};
use beamtune_model::load::{LoadResult, LoadSecond};
use beamtune_recording::Stop;
use beamtune_trial::measure::{Answers, Run};
use beamtune_trial::steady::Second;
use beamtune_trial::told::{self, Told};
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
        let out = launch.log.with_extension("out");
        let (began, began_at, begin_ns) = (Instant::now(), SystemTime::now(), now_ns());
        let mut looks = Looks::new(vm);
        let mut started = start(Launch { out: Some(&out), ..launch })?;
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
                    "it did not end within {:.0} s (--within); it said: {}",
                    self.within_s,
                    said(&words)
                )));
            }
            stop.wait(LOOK);
        };
        let end_ns = begin_ns + ending.took.as_nanos() as u64;
        looks.look_now();
        let failed = (!ending.is_well()).then(|| format!("{}: {}", ending.how, said(&started.last_words())));
        let told = match (self.told(&out, data, began_at), failed) {
            // Generators end so as well where they have answers and did not like them (k6's thresholds).
            (Ok(Some(told)), Some(_)) if ending.how.starts_with("exited") && told.is_whole() => Some(told),
            (_, Some(why)) => return Ok(Drove::LoadFailed(why)),
            (told, None) => told?,
        };
        started.end()?;
        let whole = Whole { begin_ns, end_ns, looks };
        let Some(told) = told else { return Ok(Drove::Measured(Box::new(whole.run()))) };
        Ok(Drove::Measured(Box::new(match told::last_seconds(&told.result, window_s) {
            Told::Seconds(seconds) => whole.seconds(&told, seconds),
            Told::Whole => whole.answers(&told.result),
            Told::TooFew(seconds) => {
                return Ok(Drove::LoadFailed(format!(
                    "it told of {seconds} whole seconds, and {window_s} count (--for): let it run longer, by as much as the target takes to warm up"
                )));
            }
        })))
    }

    /// What it has told of what it did; `None` if that is nothing that is read.
    fn told(&self, out: &Path, data: &Path, began: SystemTime) -> Result<Option<Results>> {
        let path = self.result.as_ref().map_or_else(|| out.to_owned(), |name| data.join(name));
        let what = if self.result.is_some() { "--load-result" } else { "what the load command printed" };
        let cannot_read = || format!("{what}: cannot read {}", path.display());
        let file = std::fs::File::open(&path).with_context(cannot_read)?;
        let written = file.metadata().and_then(|about| about.modified()).with_context(cannot_read)?;
        // One that was there before would be taken for the result of every trial.
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

/// What a command has told, and when it had.
struct Results {
    result: LoadResult,
    written: SystemTime,
}

impl Results {
    /// Whether it was told to its end.
    fn is_whole(&self) -> bool {
        let is_cut = |remark: &String| remark.to_lowercase().contains("cut off");
        !self.result.is_interrupted && !self.result.remarks.iter().any(is_cut)
    }
}

/// A moment of the wall clock, which has not been set meanwhile, on CLOCK_MONOTONIC.
fn monotonic_ns(wall_s: f64) -> f64 {
    let wall_now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    now_ns() as f64 - (wall_now_s - wall_s) * 1e9
}

/// The whole run of a command, on CLOCK_MONOTONIC.
struct Whole {
    begin_ns: u64,
    end_ns: u64,
    looks: Looks,
}

impl Whole {
    /// Of seconds that a result tells.
    fn seconds(self, results: &Results, told: &[LoadSecond]) -> Driven {
        let zero_ns = self.zero_ns(results);
        let moment = |second: i64| zero_ns + (second.max(0).unsigned_abs() * SECOND_NS) as f64;
        let begin_ns = moment(told.first().map_or(0, |it| it.second));
        let end_ns = moment(told.last().map_or(0, |it| it.second + 1));
        let second = |told: &LoadSecond| {
            let (from, to) = (self.looks.at(moment(told.second))?, self.looks.at(moment(told.second + 1))?);
            Some(Second { cpu_ns: to.vm_ns - from.vm_ns, done: told.done, rss_bytes: to.rss_bytes })
        };
        Driven {
            answers: told::of_seconds(told),
            seconds: told.iter().filter_map(second).collect(),
            bound: told.iter().filter_map(|second| second.bound.clone()).collect(),
            stood_still: 0,
            begin_ns: begin_ns as u64,
            end_ns: end_ns as u64,
            own_cores: self.looks.own_cores(begin_ns, end_ns),
        }
    }

    /// When the clock of what was told was zero: as it says, or as long before its last line as it ran.
    fn zero_ns(&self, Results { result, written }: &Results) -> f64 {
        let is_within = |zero_ns: &f64| {
            *zero_ns >= self.begin_ns as f64 && *zero_ns + result.length_s * 1e9 <= self.end_ns as f64 + 1e9
        };
        let by_itself = result.began_monotonic_ns.map(|zero_ns| zero_ns as f64);
        // Seconds of the wall clock are whole ones.
        let by_wall = result.began_unix_s.map(|began_s| monotonic_ns(began_s.floor()));
        let last_line_s = written.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let last_ns = monotonic_ns(last_line_s).min(self.end_ns as f64);
        let told = by_itself.filter(is_within).or(by_wall.filter(is_within));
        told.unwrap_or(last_ns - result.length_s * 1e9).max(self.begin_ns as f64)
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
            stood_still: 0,
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
    fn seconds_begin_where_they_were_told_to_or_before_the_last_line() {
        let text = (1..=10)
            .map(|second| format!("id: test-1, time {second}.000 s, sent: 10 msg/s, received: 10 msg/s\n"));
        let result = import::read("perf-test", text.collect::<String>().as_bytes()).expect("read");
        // It ran until now, and was shut down for two seconds after its last line.
        let end_ns = now_ns();
        let begin_ns = end_ns - 14 * SECOND_NS;
        let whole = Whole { begin_ns, end_ns, looks: Looks::new(0) };
        let written = SystemTime::now() - Duration::from_secs(2);
        let told = |began: Option<u64>| Results {
            result: LoadResult { began_monotonic_ns: began, ..result.clone() },
            written,
        };
        let second = |ns: f64| ((ns - begin_ns as f64) / 1e9 * 10.0).round() / 10.0;
        assert_eq!(second(whole.zero_ns(&told(None))), 2.0);
        assert_eq!(second(whole.zero_ns(&told(Some(begin_ns + SECOND_NS)))), 1.0);
        assert_eq!(second(whole.zero_ns(&told(Some(5)))), 2.0, "that is not within the run");
        let Told::Seconds(seconds) = told::last_seconds(&result, 4) else { panic!("seconds") };
        let driven = whole.seconds(&told(None), seconds);
        assert_eq!((second(driven.begin_ns as f64), second(driven.end_ns as f64)), (7.0, 11.0));
        assert_eq!((driven.answers.seconds, driven.answers.done), (4.0, 40));
    }
}
