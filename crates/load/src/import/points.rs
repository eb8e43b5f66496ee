//! Reads files with a line per request. They are reduced to a histogram per step, and to counts and two percentiles per second.

use std::collections::{BTreeMap, HashMap};

use beamtune_model::load::{LoadErrors, LoadResult, LoadSecond, LoadStep};

use super::ImportError;
use super::convert::{self, add_errors};
use super::lines::Lines;
use crate::collect;
use crate::times::Times;

/// Maximum number of distinct steps; a histogram takes a few hundred kilobytes.
const MAX_NAMES: usize = 100;
/// Name of the step in which all further names are combined.
const OTHERS: &str = "others";
/// Lines are nearly ordered by time: a second is closed once there is a line this many seconds later.
const OPEN_SECONDS: i64 = 60;
/// Maximum length of a run: more than two days.
const MAX_SECONDS: usize = 200_000;

/// Remark for all results of this kind.
pub(super) const RIGHT_ANSWERS: &str =
    "Times are those of correct answers only; percentiles are calculated from all of them.";

/// The requests read so far.
#[derive(Default)]
pub(super) struct Points {
    steps: Vec<Step>,
    indices: HashMap<String, usize>,
    seconds: BTreeMap<i64, Second>,
    /// Seconds before this one are closed.
    open_from: Option<i64>,
    first_s: Option<f64>,
    last_s: f64,
    has_others: bool,
    has_late: bool,
}

#[derive(Default)]
struct Step {
    name: String,
    done: u64,
    errors: BTreeMap<String, LoadErrors>,
    service: Times,
    /// Exact statistics, which the histogram rounds.
    exact: Option<Exact>,
    first_byte: Times,
}

#[derive(Clone, Copy)]
struct Exact {
    min_ns: u64,
    max_ns: u64,
    sum_ns: f64,
}

#[derive(Default)]
struct Second {
    done: u64,
    errors: u64,
    times: Option<Box<Times>>,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
}

/// One request.
pub(super) struct Request<'a> {
    /// Name of the request's step.
    pub step: &'a str,
    /// When the request was sent, in seconds since 1970.
    pub began_s: f64,
    /// When the request ended, in seconds since 1970.
    pub ended_s: f64,
    /// Service time in nanoseconds, or kind and text of the error.
    pub outcome: Result<u64, (&'a str, &'a str)>,
}

impl Points {
    /// Adds a request.
    pub fn add(&mut self, lines: &Lines<'_>, request: &Request<'_>) -> Result<(), ImportError> {
        self.extend_to(lines, request.began_s)?;
        self.extend_to(lines, request.ended_s)?;
        let second = self.second(lines, request.ended_s.floor() as i64)?;
        match request.outcome {
            Ok(service_ns) => {
                second.done += 1;
                if let Some(times) = &mut second.times {
                    times.record(service_ns);
                }
            }
            Err(_) => second.errors += 1,
        }
        let step = self.step(request.step);
        match request.outcome {
            Ok(service_ns) => {
                step.done += 1;
                step.service.record(service_ns);
                let exact = step.exact.get_or_insert(Exact { min_ns: u64::MAX, max_ns: 0, sum_ns: 0.0 });
                exact.min_ns = exact.min_ns.min(service_ns);
                exact.max_ns = exact.max_ns.max(service_ns);
                exact.sum_ns += service_ns as f64;
            }
            Err((kind, first)) => add_errors(&mut step.errors, kind, 1, first),
        }
        Ok(())
    }

    /// Adds the time to the first byte of an answer.
    pub fn first_byte(&mut self, step: &str, nanoseconds: u64) {
        self.step(step).first_byte.record(nanoseconds);
    }

    /// Adds errors that are not requests.
    pub fn errors(&mut self, step: &str, kind: &str, count: u64, first: &str) {
        add_errors(&mut self.step(step).errors, kind, count, first);
    }

    /// Sets the steps, seconds, start and length of a result.
    pub fn finish(mut self, result: &mut LoadResult) {
        self.close(i64::MAX);
        if let Some(first_s) = self.first_s {
            result.began_unix_s = Some(first_s);
            result.length_s = self.last_s - first_s;
        }
        // Seconds are clock seconds, counted from the second in which the first request began.
        let begin = self.first_s.unwrap_or_default().floor() as i64;
        let mut next = begin;
        for (at, second) in self.seconds {
            // Seconds without a line had no answers; they are not missing.
            result.seconds.extend((next..at).map(|at| row(at - begin, &Second::default())));
            result.seconds.push(row(at - begin, &second));
            next = at + 1;
        }
        result.steps.extend(self.steps.into_iter().map(Step::finish));
        if self.has_others {
            result.remarks.push(format!(
                "Steps beyond the first {MAX_NAMES} are combined as \"{OTHERS}\": use fewer request names."
            ));
        }
        if self.has_late {
            result.remarks.push(format!(
                "Some lines are more than {OPEN_SECONDS} s out of order: the seconds they belong to have no percentiles."
            ));
        }
    }

    /// Extends the run to an instant.
    fn extend_to(&mut self, lines: &Lines<'_>, at_s: f64) -> Result<(), ImportError> {
        let first_s = *self.first_s.get_or_insert(at_s);
        self.first_s = Some(first_s.min(at_s));
        self.last_s = self.last_s.max(at_s);
        if self.last_s - first_s.min(at_s) > MAX_SECONDS as f64 {
            return Err(lines.too_large(format!("{MAX_SECONDS} s from its first to line {}", lines.number())));
        }
        Ok(())
    }

    fn second(&mut self, lines: &Lines<'_>, at: i64) -> Result<&mut Second, ImportError> {
        let open_from = *self.open_from.get_or_insert(at - OPEN_SECONDS);
        if at - OPEN_SECONDS > open_from {
            self.close(at - OPEN_SECONDS);
            self.open_from = Some(at - OPEN_SECONDS);
        }
        let is_late = at < open_from;
        if self.seconds.len() >= MAX_SECONDS && !self.seconds.contains_key(&at) {
            return Err(lines.too_large(format!("{MAX_SECONDS} s of requests")));
        }
        let second = self.seconds.entry(at).or_default();
        if is_late {
            self.has_late = true;
            (second.p50_ns, second.p99_ns) = (None, None);
        } else {
            second.times.get_or_insert_default();
        }
        Ok(second)
    }

    fn close(&mut self, until: i64) {
        let from = self.open_from.unwrap_or(until);
        if from >= until {
            return;
        }
        for second in self.seconds.range_mut(from..until).map(|(_, second)| second) {
            if let Some(times) = second.times.take().filter(|times| times.count() > 0) {
                second.p50_ns = Some(times.percentile_ns(50.0));
                second.p99_ns = Some(times.percentile_ns(99.0));
            }
        }
    }

    fn step(&mut self, name: &str) -> &mut Step {
        let mut index = self.indices.get(name).copied();
        if index.is_none() && self.steps.len() >= MAX_NAMES {
            self.has_others = true;
            index = self.indices.get(OTHERS).copied();
        }
        let index = index.unwrap_or_else(|| {
            let name = if self.steps.len() >= MAX_NAMES { OTHERS } else { name };
            self.steps.push(Step { name: convert::shortened(name), ..Step::default() });
            self.indices.insert(name.to_owned(), self.steps.len() - 1);
            self.steps.len() - 1
        });
        &mut self.steps[index]
    }
}

impl Step {
    fn finish(self) -> LoadStep {
        let mut service = collect::latency(&self.service);
        if let (Some(service), Some(exact)) = (&mut service, self.exact) {
            (service.min_ns, service.max_ns) = (Some(exact.min_ns), Some(exact.max_ns));
            service.mean_ns = Some(exact.sum_ns / service.count as f64);
        }
        LoadStep {
            name: self.name,
            is_connect: false,
            is_send: false,
            done: self.done,
            errors: self.errors,
            received_bytes: None,
            lag: None,
            service,
            response: None,
            first_byte: collect::latency(&self.first_byte),
        }
    }
}

fn row(second: i64, counted: &Second) -> LoadSecond {
    LoadSecond {
        p50_ns: counted.p50_ns,
        p99_ns: counted.p99_ns,
        ..LoadSecond::counted(second, counted.done, counted.errors)
    }
}

/// Returns an instant in seconds since 1970, if the number is valid.
pub(super) fn instant_s(seconds: f64) -> Option<f64> {
    (0.0..=1e11).contains(&seconds).then_some(seconds)
}
