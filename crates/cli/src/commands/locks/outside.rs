//! A VM that does not count locks, looked at from outside while it is recorded.
//!
//! The look leads: the recording begins before it, so that both are of the same time, goes on until it holds what was seen, and ends. Ctrl-C
//! ends the look, and what was seen until then still counts.

use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use beamtune_attach::source::NodeSource;
use beamtune_recording::{Selection, Stop};

use super::probing::{self, Probed};
use super::{Args, answer, record, tell};
use crate::subject::Live;
use crate::take::{self, Beside, Watched};
use crate::terminal;

/// How often it is looked whether the recording has begun, or has taken what was seen.
const EVERY: Duration = Duration::from_millis(20);

/// Looks at a VM that does not count locks, and tells what was seen.
pub fn look(live: &Live, vm: Option<NodeSource>, args: &Args) -> Result<ExitCode> {
    let Some(process) = &live.vm else {
        bail!(
            "{} runs on another host and does not count its locks: run beamtune locks there, or start it with an emulator that does \
             (beamtune emulator run --type lcnt)",
            live.label
        );
    };
    if args.no_probes {
        let period = record(live, vm, args, args.length, &[], None)?.period(&Selection::default())?;
        return Ok(tell(&period, answer::of_period(&period).as_ref(), args));
    }
    let seen = Slot::default();
    let (probed, reader) = std::thread::scope(|scope| {
        let probing = scope.spawn(|| {
            let probed = seen
                .has_begun()
                .then(|| probing::look(process.identity.pid, args.length, args.rate, &seen.interrupted));
            if let Some(Ok(probed)) = &probed {
                seen.put(probed);
            }
            seen.ended.request();
            probed
        });
        let reader = record(live, vm, args, args.length, &[], Some(&seen));
        // It ends before the look where it fails, or where the VM has ended.
        seen.ended.request();
        seen.interrupted.request();
        (probing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), reader)
    });
    let period = reader?.period(&Selection::default())?;
    let mut look = answer::of_period(&period);
    match probed {
        Some(Ok(mut probed)) => {
            probed.judge_by(&period);
            look = Some(answer::of_probed(&probed));
        }
        Some(Err(error)) => {
            terminal::complain(&format!("what threads wait for was not seen: {error:#}\n"));
        }
        None => {}
    }
    Ok(tell(&period, look.as_ref(), args))
}

/// What is seen of waits, on its way into a recording that is made meanwhile.
#[derive(Default)]
pub struct Slot {
    watched: Mutex<Option<Watched>>,
    /// It is recorded.
    pub begun: Stop,
    /// The look is to end: Ctrl-C.
    pub interrupted: Stop,
    /// The recording is to end, or has ended.
    pub ended: Stop,
}

impl Slot {
    /// Waits until it is recorded; `false`: it will not be.
    fn has_begun(&self) -> bool {
        while !self.begun.is_requested() && !self.ended.is_requested() {
            self.begun.wait(EVERY);
        }
        !self.ended.is_requested()
    }

    /// Waits until the recording has it, or has ended.
    fn put(&self, probed: &Probed) {
        // In a recording few waits say that there were few: nothing there says that they were not seen.
        if !answer::is_told(probed) {
            return;
        }
        let watched = Watched { length: take::nanos(probed.length), waits: probed.waits.clone() };
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = Some(watched);
        while self.is_full() && !self.ended.is_requested() {
            self.ended.wait(EVERY);
        }
    }

    fn is_full(&self) -> bool {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl Beside for Slot {
    fn watched(&self) -> Option<Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
