//! Samples a VM without lock counting while it is recorded.
//!
//! Sampling controls the recording, which begins first, so that both cover the same time, and ends when it contains the waits. Ctrl-C
//! ends sampling, and the waits so far are used. The end of the VM also ends sampling. Otherwise, time without the VM would make its
//! waits look shorter, and after a restart, the waits would be those of another VM.

use std::process::ExitCode;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use beamtune_attach::source::NodeSource;
use beamtune_host::HostError;
use beamtune_host::process::Identity;
use beamtune_host::tree::LocalTree;
use beamtune_model::Sample;
use beamtune_model::units::nanos;
use beamtune_node::record::{LockWaits, SampleObserver};
use beamtune_node::target::LiveTarget;
use beamtune_recording::{Selection, Stop};
use beamtune_report::text;

use super::probes::{self, ProbeResult};
use super::{Args, print_page, record, summary};
use crate::terminal;

/// Time between two checks whether the recording has begun, or has taken the waits.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time between two checks whether the VM runs, each of which reads a small file of /proc. The sampled time is too long by at most this.
const VM_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Minimum sampled time for a meaningful result: a stack sample represents up to a few milliseconds of a thread.
const MIN_SAMPLED_TIME: Duration = Duration::from_millis(250);
/// When the recording ends, it takes a final sample, unless the last one is less than a tenth of [`super::SAMPLE_INTERVAL`] old. After
/// this delay, it certainly takes one.
const MAX_SAMPLE_DELAY: Duration = Duration::from_millis(150);

/// Samples a VM without lock counting, and prints the page.
pub fn run(live: &LiveTarget, vm: Option<NodeSource>, args: &Args) -> Result<ExitCode> {
    let Some(process) = &live.vm else {
        bail!(
            "{} runs on another host and does not count its locks: run beamtune locks there, or start it with lock counting \
             (beamtune emulator run --type lcnt)",
            live.label
        );
    };
    if args.no_probes {
        let reader = record(live, vm, args, args.length, &[], None)?;
        let period = args.thresholds.apply(reader.period(&Selection::default())?);
        return Ok(print_page(&period, summary::from_period(&period).as_ref(), args));
    }
    let slot = WaitSlot::default();
    let (probed, reader) = std::thread::scope(|scope| {
        scope.spawn(|| slot.watch_vm(&process.identity));
        let sampling = scope.spawn(|| {
            let sample = || probes::sample(process.identity.pid, args.length, args.rate, &slot.interrupted);
            let result = slot.wait_for_begin().then(|| sample().map(without_short_sampling));
            if let Some(Ok(result)) = &result {
                slot.put(result);
            }
            slot.ended.request();
            result
        });
        let reader = record(live, vm, args, args.length, &[], Some(&slot));
        // If the recording fails, or the VM has ended, the recording ends before sampling does.
        slot.ended.request();
        slot.interrupted.request();
        (sampling.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), reader)
    });
    let period = args.thresholds.apply(reader?.period(&Selection::default())?);
    let mut look = summary::from_period(&period);
    match probed {
        Some(Ok(mut result)) => {
            result.judge_by(&period);
            if let Some(after) = slot.vm_ended.get() {
                result.remarks = remarks_of_ended_vm(*after, &result);
            }
            look = Some(summary::from_probes(&result));
        }
        Some(Err(error)) => {
            terminal::complain(&format!("cannot sample lock waits: {error:#}\n"));
        }
        None => {}
    }
    Ok(print_page(&period, look.as_ref(), args))
}

/// Returns the remarks if the VM ended during sampling.
fn remarks_of_ended_vm(after: Duration, result: &ProbeResult) -> Vec<String> {
    let after = text::seconds(after.as_secs_f64());
    // The end of the VM explains why nothing was sampled, so other remarks are left out.
    if result.length.is_zero() {
        return vec![format!(
            "the VM ended after {after}, before lock waits were sampled; repeat the command when it runs again"
        )];
    }
    let remark = format!(
        "the VM ended after {after}, which ended sampling: the results cover the time before; if it was restarted, repeat the command"
    );
    std::iter::once(remark).chain(result.remarks.iter().cloned()).collect()
}

/// Drops the waits if the sampled time is too short, as after Ctrl-C or the end of the VM.
fn without_short_sampling(mut result: ProbeResult) -> ProbeResult {
    if !result.length.is_zero() && result.length < MIN_SAMPLED_TIME {
        result.remarks = vec![format!(
            "lock waits were sampled for {} only, which is too short: repeat the command",
            text::seconds(result.length.as_secs_f64())
        )];
        (result.waits, result.length, result.is_lower_bound) = (Vec::new(), Duration::ZERO, true);
    }
    result
}

/// True if the process has ended, even if its id is in use again.
fn has_ended(identity: &Identity) -> bool {
    match Identity::of(&LocalTree::default(), identity.pid) {
        Ok(now) => now != *identity,
        // If the process cannot be read for another reason, it may still be running.
        Err(error) => matches!(error, HostError::Ended { .. }),
    }
}

/// Passes the sampled waits to a running recording.
#[derive(Default)]
pub struct WaitSlot {
    waits: Mutex<Option<LockWaits>>,
    /// The recording has begun.
    pub begun: Stop,
    /// Sampling must end, because of Ctrl-C or the end of the VM.
    pub interrupted: Stop,
    /// The recording must end, or has ended.
    pub ended: Stop,
    /// Time from the beginning of sampling to the end of the VM.
    vm_ended: OnceLock<Duration>,
}

impl WaitSlot {
    /// Waits until the recording begins; returns `false` if it failed to begin.
    fn wait_for_begin(&self) -> bool {
        while !self.begun.is_requested() && !self.ended.is_requested() {
            self.begun.wait(POLL_INTERVAL);
        }
        !self.ended.is_requested()
    }

    /// Ends sampling when the VM ends.
    fn watch_vm(&self, identity: &Identity) {
        if !self.wait_for_begin() {
            return;
        }
        let begin = Instant::now();
        while !self.ended.is_requested() {
            if has_ended(identity) {
                let _ = self.vm_ended.set(begin.elapsed());
                self.interrupted.request();
                return;
            }
            self.ended.wait(VM_POLL_INTERVAL);
        }
    }

    /// Stores the waits, and waits until the recording has taken them or has ended.
    fn put(&self, result: &ProbeResult) {
        // The recording cannot express that waits were missed, so incomplete waits would be read as little contention.
        if !summary::is_recordable(result) {
            return;
        }
        let waits = LockWaits { length: nanos(result.length), waits: result.waits.clone() };
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner) = Some(waits);
        let begin = Instant::now();
        while self.is_full() && !self.ended.is_requested() {
            // The final sample also takes the waits, so end the recording: a later sample may be that of another VM with the same
            // node name.
            if self.vm_ended.get().is_some() && begin.elapsed() > MAX_SAMPLE_DELAY {
                return;
            }
            self.ended.wait(POLL_INTERVAL);
        }
    }

    fn is_full(&self) -> bool {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl SampleObserver for WaitSlot {
    fn observe(&self, sample: &mut Sample) {
        if let Some(waits) = self.waits.lock().unwrap_or_else(PoisonError::into_inner).take() {
            waits.add_to(sample);
        }
    }
}
