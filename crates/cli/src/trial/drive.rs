//! Drives the load of a trial: until the target is steady, and then for as long as the window lasts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use beamtune_host::family;
use beamtune_host::tree::LocalTree;
use beamtune_load::clock::{SECOND_NS, now_ns};
use beamtune_load::collect::{self, Run};
use beamtune_load::limits;
use beamtune_load::program::{Model, Plan};
use beamtune_load::run;
use beamtune_load::scenario::Scenario;
use beamtune_load::tally::Tally;
use beamtune_load::times::Times;
use beamtune_model::load::{LoadResult, LoadSecond};
use beamtune_recording::Stop;
use beamtune_trial::measure::Answers;
use beamtune_trial::steady::{self, Second};

use super::looks::Look;
use crate::commands::load::{Written, compile, reach};

/// Between the moment at which threads are started and the begin of the schedule.
const SETTLE: Duration = Duration::from_millis(200);
/// The load goes on for longer than is needed at most: it is ended as soon as the window is over.
const SLACK_NS: u64 = 5 * SECOND_NS;

/// What is to be driven, and for how long.
pub struct Load<'a> {
    /// The scenario.
    pub written: &'a Written,
    /// Threads of the generator.
    pub threads: usize,
    /// Seconds that count.
    pub window_s: u32,
    /// Seconds after which the window begins though the target is not steady.
    pub warm_up_s: u32,
}

/// What came of it.
pub struct Driven {
    /// In the window.
    pub answers: Answers,
    /// The window's seconds.
    pub seconds: Vec<Second>,
    /// Why the generator was the limit, of each second of the window in which it was.
    pub bound: Vec<String>,
    /// Seconds within the window in which the generator did not run at all.
    pub stood_still: u64,
    /// The window on CLOCK_MONOTONIC.
    pub begin_ns: u64,
    /// Its end.
    pub end_ns: u64,
    /// CPU that was used beside the VM by what belongs to the trial, in cores.
    pub own_cores: f64,
}

/// How driving has ended.
pub enum Drove {
    /// The window is over.
    Measured(Box<Driven>),
    /// The VM has ended.
    VmEnded,
    /// The target did not do what it should: why, for people.
    Failed(String),
    /// What was to drive the load did not: why, for people.
    LoadFailed(String),
    /// Somebody has asked us to stop.
    Stopped,
}

/// Drives the load against a target whose VM has this process id.
pub fn drive(load: &Load<'_>, vm: u32, stop: &Stop) -> Result<Drove> {
    let mut scenario = load.written.read(&[])?;
    let ramp_ns = lengthen(&mut scenario, load);
    let devices = scenario.kinds.iter().map(|kind| kind.count).sum();
    limits::check_descriptors(devices, limits::raise_descriptors())?;
    let addresses = reach::Addresses::find(&scenario)?;
    let mut plan = compile(&scenario, &addresses, 0)?;
    reach::greet(&plan)?;
    plan.start_ns += now_ns() + SETTLE.as_nanos() as u64;
    let enough = AtomicBool::new(false);
    let mut watch = Watch {
        vm,
        window_s: load.window_s as usize,
        warm_up_s: load.warm_up_s as usize,
        ramp_s: i64::try_from(ramp_ns.div_ceil(SECOND_NS)).unwrap_or(i64::MAX),
        last: None,
        warm: Vec::new(),
        window: None,
        has_ended: false,
    };
    let mut on_second = |second: &LoadSecond, tally: &Tally| {
        let is_over = watch.second(second, tally);
        if is_over || stop.is_requested() {
            enough.store(true, Ordering::Relaxed);
        }
    };
    let about = Run { tool: format!("beamtune {}", env!("CARGO_PKG_VERSION")), ..Run::default() };
    let result = run::run(&plan, load.threads, &enough, about, &mut on_second)?;
    if stop.is_requested() {
        return Ok(Drove::Stopped);
    }
    if watch.has_ended {
        return Ok(Drove::VmEnded);
    }
    let Some(window) = watch.window.filter(|window| window.is_over(load.window_s as usize)) else {
        bail!("the load ended before its time: a scenario for trials must not end by itself (turns)");
    };
    Ok(Drove::Measured(Box::new(window.driven(&plan, &result))))
}

/// Makes a scenario as long as a trial can be. Gives how long its load rises.
fn lengthen(scenario: &mut Scenario, load: &Load<'_>) -> u64 {
    let level_ns = (u64::from(load.window_s) + u64::from(load.warm_up_s)) * SECOND_NS + SLACK_NS;
    match &mut scenario.load.model {
        Model::Closed { ramp_ns, sustain_ns, turns } => {
            (*sustain_ns, *turns) = (level_ns, None);
            *ramp_ns
        }
        Model::Open { profile, .. } => {
            profile.sustain_ns = level_ns;
            profile.ramp_ns
        }
    }
}

/// What is seen of the target while it is driven.
struct Watch {
    vm: u32,
    window_s: usize,
    warm_up_s: usize,
    ramp_s: i64,
    /// When the VM was looked at last, and its CPU time then.
    last: Option<(Instant, i64)>,
    warm: Vec<Second>,
    window: Option<Window>,
    has_ended: bool,
}

/// What counts.
struct Window {
    first_second: i64,
    last_second: i64,
    seconds: Vec<Second>,
    tally: Tally,
    done: u64,
    errors: u64,
    bound: Vec<String>,
    begin: Option<Look>,
    end: Option<Look>,
}

impl Watch {
    /// A second has passed; whether that is enough.
    fn second(&mut self, second: &LoadSecond, tally: &Tally) -> bool {
        let Ok((cpu_ns, rss_bytes)) = family::usage(&LocalTree::default(), self.vm) else {
            self.has_ended = true;
            return true;
        };
        let now = Instant::now();
        let before = self.last.replace((now, cpu_ns));
        // Connections that are made before the schedule begins, and a load that still rises, say nothing.
        let Some((then, cpu_before_ns)) = before.filter(|_| second.second >= self.ramp_s.max(0)) else {
            return false;
        };
        let elapsed_s = (now - then).as_secs_f64().max(0.001);
        let seen = Second {
            cpu_ns: (cpu_ns - cpu_before_ns) as f64 / elapsed_s,
            done: second.done,
            rss_bytes: rss_bytes as f64,
        };
        if let Some(window) = &mut self.window {
            // What comes while the load is being stopped is no whole second.
            if window.is_over(self.window_s) {
                return true;
            }
            window.take(seen, second, tally);
            let is_over = window.is_over(self.window_s);
            if is_over {
                window.end = Look::now(self.vm);
            }
            return is_over;
        }
        self.warm.push(seen);
        if steady::is_steady(&self.warm) || self.warm.len() >= self.warm_up_s {
            self.window = Some(Window {
                first_second: second.second + 1,
                last_second: second.second,
                seconds: Vec::new(),
                tally: Tally::default(),
                done: 0,
                errors: 0,
                bound: Vec::new(),
                begin: Look::now(self.vm),
                end: None,
            });
        }
        false
    }
}

impl Window {
    fn is_over(&self, window_s: usize) -> bool {
        self.seconds.len() >= window_s
    }

    fn take(&mut self, seen: Second, second: &LoadSecond, tally: &Tally) {
        self.seconds.push(seen);
        self.last_second = second.second;
        self.done += second.done;
        self.errors += second.errors;
        match &second.bound {
            Some(why) => self.bound.push(why.clone()),
            // What the generator was late with says nothing of the target's times.
            None => self.tally.add(tally),
        }
    }

    fn driven(self, plan: &Plan, result: &LoadResult) -> Driven {
        let mut response = Times::default();
        for (step, told) in self.tally.steps.iter().zip(&result.steps) {
            if let (Some(step), true) = (step, told.counts()) {
                response.add(&step.response);
            }
        }
        let percentiles_ns =
            collect::latency(&response).map(|latency| latency.percentiles_ns).unwrap_or_default();
        let begin_ns = plan.start_ns + self.first_second.max(0).unsigned_abs() * SECOND_NS;
        // A generator that was stopped tells nothing of some seconds.
        let length = (self.last_second + 1 - self.first_second).max(0).unsigned_abs();
        let own_cores = self
            .begin
            .zip(self.end)
            .map_or(0.0, |(begin, end)| (end.own_ns - begin.own_ns) / (end.at_ns - begin.at_ns).max(1.0));
        Driven {
            answers: Answers {
                seconds: self.seconds.len() as f64,
                done: self.done,
                errors: self.errors,
                percentiles_ns,
                run: None,
            },
            stood_still: length.saturating_sub(self.seconds.len() as u64),
            seconds: self.seconds,
            bound: self.bound,
            begin_ns,
            end_ns: begin_ns + length * SECOND_NS,
            own_cores,
        }
    }
}
