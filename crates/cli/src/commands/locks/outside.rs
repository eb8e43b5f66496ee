//! A VM that does not count locks, looked at from outside while it is recorded.
//!
//! The look leads: the recording begins before it, so that both are of the same time, goes on until it holds what was seen, and ends. Ctrl-C
//! ends the look, and what was seen until then still counts. So does the end of the VM: time in which it was not there would make its waits
//! look shorter, and if it is started again at once, the rest of the time is another one's.

use std::process::ExitCode;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use beamtune_attach::source::NodeSource;
use beamtune_host::HostError;
use beamtune_host::process::Identity;
use beamtune_host::tree::LocalTree;
use beamtune_recording::{Selection, Stop};
use beamtune_report::text;

use super::probing::{self, Probed};
use super::{Args, answer, record, tell};
use crate::subject::Live;
use crate::take::{self, Beside, Watched};
use crate::terminal;

/// How often it is looked whether the recording has begun, or has taken what was seen.
const EVERY: Duration = Duration::from_millis(20);
/// How often it is looked whether the VM still runs, for a small file of /proc. What was seen is told as a share of the look's time, which
/// is too long by as much at most.
const LIFE_EVERY: Duration = Duration::from_millis(50);
/// What was watched for a shorter time says nothing: a sample stands for up to some milliseconds of each thread, and there would be few.
const LEAST_WATCHED: Duration = Duration::from_millis(250);
/// So long the recording may take no sample because it has just taken one (a tenth of [`super::EVERY`]).
const JUST_TAKEN: Duration = Duration::from_millis(150);

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
        let reader = record(live, vm, args, args.length, &[], None)?;
        let period = args.thresholds.apply(reader.period(&Selection::default())?);
        return Ok(tell(&period, answer::of_period(&period).as_ref(), args));
    }
    let seen = Slot::default();
    let (probed, reader) = std::thread::scope(|scope| {
        scope.spawn(|| seen.follow(&process.identity));
        let probing = scope.spawn(|| {
            let look = || probing::look(process.identity.pid, args.length, args.rate, &seen.interrupted);
            let probed = seen.has_begun().then(|| look().map(without_scraps));
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
    let period = args.thresholds.apply(reader?.period(&Selection::default())?);
    let mut look = answer::of_period(&period);
    match probed {
        Some(Ok(mut probed)) => {
            probed.judge_by(&period);
            if let Some(after) = seen.vm_ended.get() {
                probed.remarks = told_of_ended(*after, &probed);
            }
            look = Some(answer::of_probed(&probed));
        }
        Some(Err(error)) => {
            terminal::complain(&format!("what threads wait for was not seen: {error:#}\n"));
        }
        None => {}
    }
    Ok(tell(&period, look.as_ref(), args))
}

/// What is to be said of a VM that has ended so long after the look began.
fn told_of_ended(after: Duration, probed: &Probed) -> Vec<String> {
    let after = text::seconds(after.as_secs_f64());
    // That nothing was seen of one that is not there needs no other reason.
    if probed.length.is_zero() {
        return vec![format!(
            "the VM has ended after {after}, before it was seen what its threads wait for: if it was started again, look once more"
        )];
    }
    let told = format!(
        "the VM has ended after {after}, and with it the look, so what is told is of the time before; if it was started again, look once more"
    );
    std::iter::once(told).chain(probed.remarks.iter().cloned()).collect()
}

/// Leaves out what was watched for too short a time, since somebody or the VM's end has broken it off.
fn without_scraps(mut probed: Probed) -> Probed {
    if !probed.length.is_zero() && probed.length < LEAST_WATCHED {
        probed.remarks = vec![format!(
            "what threads wait for was watched for {} only, which is too short to tell: look once more",
            text::seconds(probed.length.as_secs_f64())
        )];
        (probed.waits, probed.length, probed.is_least) = (Vec::new(), Duration::ZERO, true);
    }
    probed
}

/// Whether it runs no more, whoever has its number now.
fn has_ended(identity: &Identity) -> bool {
    match Identity::of(&LocalTree::default(), identity.pid) {
        Ok(now) => now != *identity,
        // What cannot be read for other reasons may well be there.
        Err(error) => matches!(error, HostError::Ended { .. }),
    }
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
    /// The VM has ended, so long after the look began.
    vm_ended: OnceLock<Duration>,
}

impl Slot {
    /// Waits until it is recorded; `false`: it will not be.
    fn has_begun(&self) -> bool {
        while !self.begun.is_requested() && !self.ended.is_requested() {
            self.begun.wait(EVERY);
        }
        !self.ended.is_requested()
    }

    /// Ends the look when the VM ends.
    fn follow(&self, identity: &Identity) {
        if !self.has_begun() {
            return;
        }
        let begin = Instant::now();
        while !self.ended.is_requested() {
            if has_ended(identity) {
                let _ = self.vm_ended.set(begin.elapsed());
                self.interrupted.request();
                return;
            }
            self.ended.wait(LIFE_EVERY);
        }
    }

    /// Waits until the recording has it, or has ended.
    fn put(&self, probed: &Probed) {
        // In a recording few waits say that there were few: nothing there says that they were not seen.
        if !answer::is_told(probed) {
            return;
        }
        let watched = Watched { length: take::nanos(probed.length), waits: probed.waits.clone() };
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = Some(watched);
        let begin = Instant::now();
        while self.is_full() && !self.ended.is_requested() {
            // The last sample takes it, too, and before somebody else has the node's name: the next one may be that one's.
            if self.vm_ended.get().is_some() && begin.elapsed() > JUST_TAKEN {
                return;
            }
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
