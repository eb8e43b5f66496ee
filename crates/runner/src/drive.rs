//! Applies the scenario of a trial, first until the target is steady, then for the length of the window.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use beamtune_host::family;
use beamtune_host::tree::LocalTree;
use beamtune_load::addresses::{Addresses, check_tls};
use beamtune_load::clock::{SECOND_NS, now_ns};
use beamtune_load::collect::{self, Run};
use beamtune_load::limits;
use beamtune_load::program::{Model, Plan};
use beamtune_load::run;
use beamtune_load::scenario::{Scenario, ScenarioText};
use beamtune_load::tally::Tally;
use beamtune_load::times::Times;
use beamtune_model::load::{LoadResult, LoadSecond};
use beamtune_recording::Stop;
use beamtune_trial::measure::Answers;
use beamtune_trial::steady::{self, Second};

use crate::usage::UsageSample;

/// Time between the start of the threads and the beginning of the schedule.
const SETTLE: Duration = Duration::from_millis(200);
/// The schedule exceeds the longest trial by this time; the load is stopped at the end of the window.
const SLACK_NS: u64 = 5 * SECOND_NS;

/// A scenario to apply, and for how long.
pub struct ScenarioLoad<'a> {
    pub written: &'a ScenarioText,
    /// Number of generator threads.
    pub threads: usize,
    /// Length of the window, in seconds.
    pub window_s: u32,
    /// The window begins after this many seconds even if the target is not steady.
    pub warm_up_s: u32,
}

/// The measurements of a load.
pub struct LoadRun {
    /// Requests within the window.
    pub answers: Answers,
    /// The seconds of the window.
    pub seconds: Vec<Second>,
    /// For each second of the window in which the generator was the bottleneck: the reason.
    pub bound: Vec<String>,
    /// Seconds of the window in which the generator did not run at all.
    pub stalled_seconds: u64,
    /// Beginning of the window, on CLOCK_MONOTONIC.
    pub begin_ns: u64,
    /// End of the window.
    pub end_ns: u64,
    /// CPU use of the trial's processes, without the VM, in cores.
    pub own_cores: f64,
}

/// The outcome of a load.
pub enum LoadEnd {
    /// The window is complete.
    Measured(Box<LoadRun>),
    /// The VM has ended.
    VmEnded,
    /// The target failed, with this message.
    Failed(String),
    /// The load command failed, with this message.
    LoadFailed(String),
    /// The user stopped the trial.
    Stopped,
}

/// Applies a scenario to a target whose VM has this process id.
pub fn run(load: &ScenarioLoad<'_>, vm: u32, stop: &Stop) -> Result<LoadEnd> {
    let mut scenario = load.written.read(&[])?;
    let ramp_ns = lengthen(&mut scenario, load);
    let devices = scenario.kinds.iter().map(|kind| kind.count).sum();
    limits::check_descriptors(devices, limits::raise_descriptors())?;
    let mut plan = Addresses::find(&scenario)?.compile(&scenario, 0)?;
    check_tls(&plan)?;
    plan.start_ns += now_ns() + SETTLE.as_nanos() as u64;
    let is_complete = AtomicBool::new(false);
    let mut watch = TargetWatch {
        vm,
        window_s: load.window_s as usize,
        warm_up_s: load.warm_up_s as usize,
        ramp_s: i64::try_from(ramp_ns.div_ceil(SECOND_NS)).unwrap_or(i64::MAX),
        last_usage: None,
        warm: Vec::new(),
        window: None,
        vm_has_ended: false,
    };
    let mut on_second = |second: &LoadSecond, tally: &Tally| {
        let is_over = watch.add_second(second, tally);
        if is_over || stop.is_requested() {
            is_complete.store(true, Ordering::Relaxed);
        }
    };
    let about = Run { tool: format!("beamtune {}", env!("CARGO_PKG_VERSION")), ..Run::default() };
    let result = run::run(&plan, load.threads, &is_complete, about, &mut on_second)?;
    if stop.is_requested() {
        return Ok(LoadEnd::Stopped);
    }
    if watch.vm_has_ended {
        return Ok(LoadEnd::VmEnded);
    }
    let Some(window) = watch.window.filter(|window| window.is_over(load.window_s as usize)) else {
        bail!("the load ended early: a scenario for trials must not limit its turns");
    };
    Ok(LoadEnd::Measured(Box::new(window.measure(&plan, &result))))
}

/// Extends a scenario to the length of the longest trial. Returns the length of its ramp, in nanoseconds.
fn lengthen(scenario: &mut Scenario, load: &ScenarioLoad<'_>) -> u64 {
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

/// Observes the target under the load.
struct TargetWatch {
    vm: u32,
    window_s: usize,
    warm_up_s: usize,
    ramp_s: i64,
    /// The time at which the VM's CPU time was last read, and its value.
    last_usage: Option<(Instant, i64)>,
    warm: Vec<Second>,
    window: Option<Window>,
    vm_has_ended: bool,
}

/// The measured seconds.
struct Window {
    first_second: i64,
    last_second: i64,
    seconds: Vec<Second>,
    tally: Tally,
    done: u64,
    errors: u64,
    bound: Vec<String>,
    begin: Option<UsageSample>,
    end: Option<UsageSample>,
}

impl TargetWatch {
    /// Adds a second. Returns true if the window is complete, or the VM has ended.
    fn add_second(&mut self, second: &LoadSecond, tally: &Tally) -> bool {
        let Ok((cpu_ns, rss_bytes)) = family::usage(&LocalTree::default(), self.vm) else {
            self.vm_has_ended = true;
            return true;
        };
        let now = Instant::now();
        let before = self.last_usage.replace((now, cpu_ns));
        // Ignore connection setup, which precedes the schedule, and the ramp.
        let Some((then, cpu_before_ns)) = before.filter(|_| second.second >= self.ramp_s.max(0)) else {
            return false;
        };
        let elapsed_s = (now - then).as_secs_f64().max(0.001);
        let measured = Second {
            cpu_ns: (cpu_ns - cpu_before_ns) as f64 / elapsed_s,
            done: second.done,
            rss_bytes: rss_bytes as f64,
        };
        if let Some(window) = &mut self.window {
            // The last second may be incomplete, since the load is being stopped.
            if window.is_over(self.window_s) {
                return true;
            }
            window.add(measured, second, tally);
            let is_over = window.is_over(self.window_s);
            if is_over {
                window.end = UsageSample::now(self.vm);
            }
            return is_over;
        }
        self.warm.push(measured);
        if steady::is_steady(&self.warm) || self.warm.len() >= self.warm_up_s {
            self.window = Some(Window {
                first_second: second.second + 1,
                last_second: second.second,
                seconds: Vec::new(),
                tally: Tally::default(),
                done: 0,
                errors: 0,
                bound: Vec::new(),
                begin: UsageSample::now(self.vm),
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

    fn add(&mut self, measured: Second, second: &LoadSecond, tally: &Tally) {
        self.seconds.push(measured);
        self.last_second = second.second;
        self.done += second.done;
        self.errors += second.errors;
        match &second.bound {
            Some(why) => self.bound.push(why.clone()),
            // If the generator is late, its times do not describe the target.
            None => self.tally.add(tally),
        }
    }

    fn measure(self, plan: &Plan, result: &LoadResult) -> LoadRun {
        let mut response = Times::default();
        for (step, result) in self.tally.steps.iter().zip(&result.steps) {
            if let (Some(step), true) = (step, result.is_counted()) {
                response.add(&step.response);
            }
        }
        let percentiles_ns =
            collect::latency(&response).map(|latency| latency.percentiles_ns).unwrap_or_default();
        let begin_ns = plan.start_ns + self.first_second.max(0).unsigned_abs() * SECOND_NS;
        // A stalled generator does not report the seconds in which it was stalled.
        let length = (self.last_second + 1 - self.first_second).max(0).unsigned_abs();
        let own_cores = self
            .begin
            .zip(self.end)
            .map_or(0.0, |(begin, end)| (end.own_ns - begin.own_ns) / (end.at_ns - begin.at_ns).max(1.0));
        LoadRun {
            answers: Answers {
                seconds: self.seconds.len() as f64,
                done: self.done,
                errors: self.errors,
                percentiles_ns,
                run: None,
            },
            stalled_seconds: length.saturating_sub(self.seconds.len() as u64),
            seconds: self.seconds,
            bound: self.bound,
            begin_ns,
            end_ns: begin_ns + length * SECOND_NS,
            own_cores,
        }
    }
}
