//! A target that is a job: it does its work and ends by itself, and no load is driven against it.

use std::time::Duration;

use anyhow::Result;
use beamtune_host::family::Family;
use beamtune_host::tree::LocalTree;
use beamtune_recording::Stop;
use beamtune_trial::measure::{Answers, Run};

use super::drive::{Driven, Drove};
use super::looks::Looks;
use super::said;
use super::started::{LOOK, Started};

/// Waits until a job has ended, that has begun at this moment of CLOCK_MONOTONIC.
pub fn watch(started: &mut Started, vm: u32, begin_ns: u64, within: Duration, stop: &Stop) -> Result<Drove> {
    let mut looks = Looks::new(vm);
    let mut is_there = true;
    let ending = loop {
        if stop.is_requested() {
            return Ok(Drove::Stopped);
        }
        is_there = is_there && looks.look();
        if let Some(ending) = started.ended() {
            break ending.clone();
        }
        let now_ns = beamtune_load::clock::now_ns();
        if now_ns > begin_ns + within.as_nanos() as u64 {
            let words = started.last_words();
            return Ok(Drove::Failed(format!(
                "the job did not end within {:.0} s (--within); it said: {}",
                within.as_secs_f64(),
                said(&words)
            )));
        }
        stop.wait(LOOK);
    };
    if !ending.is_well() {
        return Ok(Drove::Failed(format!("the job {}: {}", ending.how, said(&started.last_words()))));
    }
    // All that it has started has been waited for, and counts among the guard's.
    let cpu_ns = Family::of(&LocalTree::default(), started.guard())?.cpu_ns as f64;
    let end_ns = begin_ns + ending.took.as_nanos() as u64;
    Ok(Drove::Measured(Box::new(Driven {
        answers: Answers {
            seconds: ending.took.as_secs_f64(),
            run: Some(Run { took_ns: ending.took.as_nanos() as f64, cpu_ns }),
            ..Answers::default()
        },
        seconds: Vec::new(),
        bound: Vec::new(),
        stood_still: 0,
        begin_ns,
        end_ns,
        own_cores: looks.own_cores(begin_ns as f64, end_ns as f64),
    })))
}
