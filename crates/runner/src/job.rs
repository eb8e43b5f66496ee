//! A target that is a job: it does its work and ends, without a load.

use std::time::Duration;

use anyhow::Result;
use beamtune_host::family::Family;
use beamtune_host::tree::LocalTree;
use beamtune_recording::Stop;
use beamtune_trial::measure::{Answers, Run};

use crate::drive::{LoadEnd, LoadRun};
use crate::process::{GuardedCommand, POLL_INTERVAL, or_nothing};
use crate::usage::UsageSampler;

/// Waits for the end of a job that began at `begin_ns` on CLOCK_MONOTONIC.
pub fn watch(
    job: &mut GuardedCommand,
    vm: u32,
    begin_ns: u64,
    within: Duration,
    stop: &Stop,
) -> Result<LoadEnd> {
    let mut usage = UsageSampler::new(vm);
    let mut is_running = true;
    let exit = loop {
        if stop.is_requested() {
            return Ok(LoadEnd::Stopped);
        }
        is_running = is_running && usage.sample_if_due();
        if let Some(exit) = job.exit() {
            break exit.clone();
        }
        let now_ns = beamtune_load::clock::now_ns();
        if now_ns > begin_ns + within.as_nanos() as u64 {
            let output = job.last_output();
            return Ok(LoadEnd::Failed(format!(
                "the job did not end within {:.0} s (--within); its output: {}",
                within.as_secs_f64(),
                or_nothing(&output)
            )));
        }
        stop.wait(POLL_INTERVAL);
    };
    if !exit.is_success() {
        return Ok(LoadEnd::Failed(format!("the job {}: {}", exit.how, or_nothing(&job.last_output()))));
    }
    // The guard has waited for all processes of the job, so its CPU time includes theirs.
    let cpu_ns = Family::of(&LocalTree::default(), job.guard())?.cpu_ns as f64;
    let end_ns = begin_ns + exit.took.as_nanos() as u64;
    Ok(LoadEnd::Measured(Box::new(LoadRun {
        answers: Answers {
            seconds: exit.took.as_secs_f64(),
            run: Some(Run { took_ns: exit.took.as_nanos() as f64, cpu_ns }),
            ..Answers::default()
        },
        seconds: Vec::new(),
        bound: Vec::new(),
        stalled_seconds: 0,
        begin_ns,
        end_ns,
        own_cores: usage.own_cores(begin_ns as f64, end_ns as f64),
    })))
}
