//! Whether a VM's threads are blocked: awake with work to do, but neither on a CPU nor runnable.
//!
//! ```text
//! awake (the VM's own clock) = on CPU + run-queue delay (both the kernel's) + blocked
//! ```
//!
//! A scheduler that waits for a lock is awake for the VM, and asleep for the kernel. No probes are needed, because all of this is counted
//! anyway. It shows that threads are blocked, but not on what; page faults and blocking system calls are included.
//!
//! Involuntary switches do not distinguish these threads. A thread that yields while it waits for a lock makes 57,000 per second if another
//! thread wants its CPU. A scheduler without work that spins before it sleeps makes 48,000, with 500 sleeps per second.
//!
//! # Thresholds
//!
//! Measured on OTP 25 with 32 processes on one table, on two shared cores. With four schedulers, 87 % of the awake time was blocked under
//! contention of the table's lock, and 16 % when they only computed. Voluntary switches were 74,000 and 17 per second. With two schedulers
//! the share showed nothing, because a thread spins and yields before it sleeps. The switches did: 1,431 and 2 per second.

use beamtune_model::cpu::{entities_of, kind};
use beamtune_model::units::SECOND_NS;
use beamtune_model::{Group, Missing, Nanos, Period, metrics};

/// Threads that are blocked for at least this share of the awake time count as blocked: half way between 16 % and 87 %.
const MIN_BLOCKED_SHARE: f64 = 0.5;
/// Below this share the result is noise: 16 % was measured without any lock, on a host whose cores were shared.
const MAX_QUIET_SHARE: f64 = 0.25;
/// A thread that sleeps less often per second of awake time does not wait for locks. Measured: 4 for threads that compute (17 on four
/// schedulers), and 700 to 30,000 for threads that contend for a table.
const MIN_SLEEPS_PER_S: f64 = 20.0;
/// Only a thread that works for at least this share of the time sleeps for a reason other than lack of work.
const MIN_WORKING_SHARE: f64 = 0.97;
/// Threads that are awake for less are not the bottleneck, whatever they wait for (judgement).
const MIN_AWAKE_SHARE: f64 = 0.05;
/// Without the VM's own times: threads that ran or were runnable for at least this share of the time cannot have been blocked.
const MIN_BUSY_SHARE: f64 = 0.9;

/// How the threads of one kind spent their time, summed over the threads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ThreadTimes {
    /// The kind: `scheduler`.
    pub kind: String,
    /// Number of threads.
    pub threads: usize,
    /// How long they were sampled.
    pub length: Nanos,
    /// Time not asleep for lack of work, by the VM; `None` without the VM's times.
    pub awake: Option<Nanos>,
    /// Time at work, without busy wait, by the VM; `None` without the VM's times.
    pub working: Option<Nanos>,
    /// Time on a CPU; `None` if the kernel does not account for it.
    pub ran: Option<Nanos>,
    /// Time runnable without a CPU. For the normal schedulers of a recording, it includes the host's steal.
    pub queued: Option<Nanos>,
    /// Number of sleeps: voluntary switches.
    pub sleeps: Option<i64>,
}

impl ThreadTimes {
    /// Wall time, summed over the threads.
    pub fn time(&self) -> Nanos {
        self.length.saturating_mul(i64::try_from(self.threads).unwrap_or(i64::MAX))
    }

    /// Time awake, but neither on a CPU nor runnable. Microstates are sampled, and may overestimate busy wait. A thread in busy wait is not
    /// blocked, so this is never longer than the working time.
    pub fn blocked(&self) -> Option<Nanos> {
        let busy = self.ran?.saturating_add(self.queued?);
        let off_cpu = self.awake?.saturating_sub(busy).max(0);
        Some(self.working.map_or(off_cpu, |working| off_cpu.min(working)))
    }

    /// Awake share of the time, 0–1.
    pub fn awake_share(&self) -> Option<f64> {
        share(self.awake?, self.time())
    }

    /// Working share of the time, 0–1.
    pub fn working_share(&self) -> Option<f64> {
        share(self.working?, self.time())
    }

    /// Blocked share of the awake time, 0–1.
    pub fn blocked_share(&self) -> Option<f64> {
        share(self.blocked()?, self.awake?)
    }

    /// Sleeps of one thread per second of awake time; without the VM's times, per second.
    pub fn sleeps_per_second(&self) -> Option<f64> {
        let seconds = self.awake.unwrap_or_else(|| self.time()) as f64 / SECOND_NS as f64;
        (seconds > 0.0).then_some(self.sleeps? as f64 / seconds)
    }
}

fn share(part: Nanos, whole: Nanos) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Whether threads are blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// They are.
    Yes,
    /// They are not.
    No,
    /// Unknown.
    NotSure,
}

/// The reason for a verdict.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// The blocked share of the awake time.
    Share(f64),
    /// Sleeps per second of a thread that worked nearly all the time and was rarely blocked. It waits for something, but for how long is
    /// unknown, since it spins and yields before it sleeps. Schedulers that waited for their run queues for 4 to 32 % of the time (messages
    /// sent back and forth) slept 240 to 7,000 times. Schedulers that contended for a table slept 715 times (measured).
    Sleeps(f64),
    /// The threads were hardly awake; the value is their awake share.
    Idle(f64),
    /// They were on a CPU or runnable nearly all the time. It is unknown whether they worked, or spun and yielded for a lock.
    OnCpu,
    /// Without the VM's times, a sleep can be for lack of work or for a lock.
    NotAsked,
    /// The kernel does not account for on-CPU time and run-queue delay.
    NotAccounted,
}

/// The verdict for the threads of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct KindVerdict {
    /// How they spent their time.
    pub times: ThreadTimes,
    /// Whether they are blocked.
    pub answer: Verdict,
    /// The reason for the verdict.
    pub why: Reason,
}

impl KindVerdict {
    /// The verdict with its reason, for display.
    pub fn sentence(&self) -> String {
        let (threads, kind) = (self.times.threads, self.times.kind.replace('_', " "));
        let kind = if threads == 1 { kind } else { format!("{kind}s") };
        let is = match self.answer {
            Verdict::Yes => "are blocked",
            Verdict::No => "are not blocked",
            Verdict::NotSure => "may be blocked",
        };
        format!("{threads} {kind} {is}: {}", self.reason())
    }

    /// The reason for the verdict, for display.
    pub fn reason(&self) -> String {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        match self.why {
            Reason::Share(share) => {
                format!("neither on a CPU nor runnable for {} of their busy time", percent(share))
            }
            Reason::Sleeps(rate) => {
                format!(
                    "each slept {rate:.0} times per second although it had work: it waits for something, for an unknown time"
                )
            }
            Reason::Idle(share) => format!("busy for only {} of the time", percent(share)),
            Reason::OnCpu => {
                "on a CPU or runnable, but whether they worked or spun for a lock is unknown".to_owned()
            }
            Reason::NotAsked => {
                "they sleep, for lack of work or for a lock: the VM's own times are missing".to_owned()
            }
            Reason::NotAccounted => {
                "this kernel does not account for run-queue delay (schedstats)".to_owned()
            }
        }
    }
}

/// Evaluates the threads of one kind.
pub fn judge(times: ThreadTimes) -> KindVerdict {
    let (answer, why) = answer(&times);
    KindVerdict { times, answer, why }
}

/// The verdict from the times of threads of one kind, with its reason.
fn answer(times: &ThreadTimes) -> (Verdict, Reason) {
    let sleeps = times.sleeps_per_second();
    let Some(awake) = times.awake_share() else {
        let busy = times
            .ran
            .zip(times.queued)
            .and_then(|(ran, queued)| share(ran.saturating_add(queued), times.time()));
        return match busy {
            None => (Verdict::NotSure, Reason::NotAccounted),
            Some(busy) if busy < MIN_AWAKE_SHARE => (Verdict::No, Reason::Idle(busy)),
            Some(busy) if busy >= MIN_BUSY_SHARE => (Verdict::NotSure, Reason::OnCpu),
            Some(_) => (Verdict::NotSure, Reason::NotAsked),
        };
    };
    if awake < MIN_AWAKE_SHARE {
        return (Verdict::No, Reason::Idle(awake));
    }
    // A thread that always has work sleeps only to wait, however briefly.
    let is_working = times.working_share().is_some_and(|share| share >= MIN_WORKING_SHARE);
    let from_sleeps = sleeps.filter(|rate| is_working && *rate >= MIN_SLEEPS_PER_S).map(Reason::Sleeps);
    match (times.blocked_share(), from_sleeps) {
        (Some(share), _) if share >= MIN_BLOCKED_SHARE => (Verdict::Yes, Reason::Share(share)),
        (_, Some(why)) => (Verdict::NotSure, why),
        (None, None) => (Verdict::NotSure, Reason::NotAccounted),
        (Some(share), None) if share < MAX_QUIET_SHARE => (Verdict::NotSure, Reason::OnCpu),
        (Some(share), None) => (Verdict::NotSure, Reason::Share(share)),
    }
}

/// Returns how the schedulers of a recording spent their time, by kind, with the VM's own times. Normal schedulers that are offline are
/// included: they are asleep, and the shares refer to the awake time.
///
/// # Errors
/// If the recording lacks the host's threads.
pub fn of_period(period: &Period) -> Result<Vec<ThreadTimes>, Missing> {
    let mut all = Vec::new();
    let length = period.end.saturating_sub(period.begin);
    for kind in kind::SCHEDULERS {
        let entities = entities_of(period, Group::HostThread, &[kind]);
        let Some(first) = entities.first() else { continue };
        let sum = |metric| {
            // All threads of a VM are read together: if the first lacks the metric, so do the others.
            period.rate(metric, first).ok()?;
            let rates = entities.iter().filter_map(|entity| period.rate(metric, entity).ok());
            Some((rates.sum::<f64>() * length as f64 / SECOND_NS as f64) as i64)
        };
        // For the kernel, steal is neither on-CPU time nor run-queue delay; nor is it a wait for a lock. It is not known per thread.
        let stolen = match *kind {
            kind::SCHEDULER => period.cores(&metrics::CPU_STEAL, "").unwrap_or(0.0) * length as f64,
            _ => 0.0,
        };
        let time = |share: fn(&Period, &str) -> Option<f64>| {
            let threads: Option<f64> = entities.iter().map(|entity| share(period, entity)).sum();
            threads.map(|threads| (threads * length as f64) as i64)
        };
        all.push(ThreadTimes {
            kind: (*kind).to_owned(),
            threads: entities.len(),
            length,
            awake: time(awake),
            working: time(working),
            ran: sum(&metrics::THREAD_CPU),
            queued: sum(&metrics::THREAD_WAIT).map(|queued| queued.saturating_add(stolen as i64)),
            sleeps: sum(&metrics::VOLUNTARY_SWITCHES),
        });
    }
    match all.is_empty() {
        true => Err(period.missing_group(Group::HostThread, "the schedulers' threads")),
        false => Ok(all),
    }
}

/// Share of time in which a scheduler was awake: the larger of two measurements. Microstate accounting counts busy wait as awake, and a
/// wait for a process lock as asleep; scheduler wall time does the opposite.
fn awake(period: &Period, entity: &str) -> Option<f64> {
    let (mut asleep, mut total) = (0.0, 0.0);
    for (state, stat) in period.family(&metrics::MSACC, entity) {
        let time = stat.delta as f64;
        total += time;
        asleep += if state == "sleep" { time } else { 0.0 };
    }
    let awake = (total > 0.0).then(|| 1.0 - asleep / total);
    let working = working(period, entity);
    awake.zip(working).map(|(awake, working)| awake.max(working)).or(awake).or(working)
}

/// Share of time in which a scheduler worked, by scheduler wall time.
fn working(period: &Period, entity: &str) -> Option<f64> {
    let active = period.rate(&metrics::SCHEDULER_ACTIVE, entity).ok()?;
    let total = period.rate(&metrics::SCHEDULER_TOTAL, entity).ok()?;
    (total > 0.0).then(|| (active / total).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
