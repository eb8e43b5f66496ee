//! Whether a VM's threads are blocked: awake with work to do, and yet neither on a CPU nor waiting for one.
//!
//! ```text
//! awake (the VM's own clock) = ran + waited for a CPU (both the kernel's) + blocked
//! ```
//!
//! A scheduler that waits for a lock is awake for the VM, and asleep for the kernel. This is free of probes: all of it
//! is counted anyway. It says that threads are blocked, and not on what; page faults and system calls that wait are in it, too.
//!
//! What does not tell: involuntary switches. A thread that yields while it waits for a lock makes 57,000 a second if another thread wants its
//! CPU, and so does a scheduler that has no work and spins a while before it sleeps (48,000, with 500 sleeps a second).
//!
//! # Thresholds
//!
//! From measurements on OTP 25 with 32 processes on one table, on two shared cores. With four schedulers 87 % of the awake
//! time was blocked where they fought for the table's lock, and 16 % where all they did was to compute; voluntary switches were
//! 74,000 a second against 17. With two schedulers the share told nothing, because a thread spins and yields before it sleeps;
//! there the switches told: 1,431 a second against 2.

use beamtune_model::cpu::{entities_of, kind};
use beamtune_model::units::SECOND_NS;
use beamtune_model::{Group, Missing, Nanos, Period, metrics};

/// A larger share of the awake time than this is not by chance: half way between 16 % and 87 %.
const BLOCKED_SHARE: f64 = 0.5;
/// Below this share nothing is told from the noise: 16 % were seen without any lock, on a host whose cores others use, too.
const QUIET_SHARE: f64 = 0.25;
/// A thread that sleeps less often than this in a second of being awake does not wait for locks: 4 (17 on four schedulers) were seen of those
/// that compute, and 700 to 30,000 of those that fight for a table.
const FEW_SLEEPS: f64 = 20.0;
/// Only of threads that do work for so much of the time a sleep says something: others sleep for lack of work.
const ALWAYS_WORKING: f64 = 0.97;
/// Threads that are awake for less than this are not the bottleneck, whatever they wait for (judgement).
const HARDLY_AWAKE: f64 = 0.05;
/// Where the VM was not asked: threads that the kernel saw running or wanting to for so much of the time had no time to be blocked.
const HAD_NO_TIME: f64 = 0.9;

/// How the threads of a kind spent their time, added up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Times {
    /// The kind: `scheduler`.
    pub kind: String,
    /// How many threads.
    pub threads: usize,
    /// How long they were looked at.
    pub length: Nanos,
    /// Not asleep for lack of work, as the VM says; `None` where it was not asked.
    pub awake: Option<Nanos>,
    /// Doing work, as the VM says, which is not to spin in wait for some; `None` where it was not asked.
    pub working: Option<Nanos>,
    /// On a CPU; `None` where the kernel does not account for it.
    pub ran: Option<Nanos>,
    /// Runnable, and without a CPU; of a recording's schedulers also what the hypervisor has taken of the host.
    pub queued: Option<Nanos>,
    /// How often they slept: voluntary switches.
    pub sleeps: Option<i64>,
}

impl Times {
    /// The time that there was: of all threads.
    pub fn time(&self) -> Nanos {
        self.length.saturating_mul(i64::try_from(self.threads).unwrap_or(i64::MAX))
    }

    /// Awake, and neither on a CPU nor waiting for one. The clocks are the VM's and the kernel's, so it can come out slightly below 0. Microstates
    /// are sampled, and may meet spinning far too often; but who spins is not blocked, so it is never longer than there was work.
    pub fn blocked(&self) -> Option<Nanos> {
        let busy = self.ran?.saturating_add(self.queued?);
        let off_cpu = self.awake?.saturating_sub(busy).max(0);
        Some(self.working.map_or(off_cpu, |working| off_cpu.min(working)))
    }

    /// Which part of the time they were awake.
    pub fn awake_share(&self) -> Option<f64> {
        share(self.awake?, self.time())
    }

    /// Which part of the time they were doing work.
    pub fn working_share(&self) -> Option<f64> {
        share(self.working?, self.time())
    }

    /// Which part of the awake time they were blocked.
    pub fn blocked_share(&self) -> Option<f64> {
        share(self.blocked()?, self.awake?)
    }

    /// How often one thread slept in a second of being awake; where the VM was not asked, in a second.
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
pub enum Answer {
    /// They are.
    Yes,
    /// They are not.
    No,
    /// It cannot be told.
    NotSure,
}

/// What the answer is drawn from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Why {
    /// The share of the awake time that was blocked.
    Share(f64),
    /// They had work nearly all the time and were not blocked for much of it, and yet each slept so often in a second: it waits for
    /// something, and nothing tells for how long, since it spins and yields before it sleeps. 240 to 7,000 were seen of schedulers that
    /// waited for their run queues for 4 to 32 % of the time (messages sent back and forth), 715 of those that fought for a table.
    Sleeps(f64),
    /// The threads were hardly awake: the share of time in which they were.
    Idle(f64),
    /// They ran, or waited for a CPU, nearly all the time. Whether they worked or spun and yielded for a lock does not show.
    OnCpu,
    /// The VM was not asked when its threads are awake, so a sleep can be for either.
    NotAsked,
    /// The kernel does not account for the time that threads run and wait.
    NotAccounted,
}

/// An answer for the threads of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Blocked {
    /// How they spent their time.
    pub times: Times,
    /// Whether they are blocked.
    pub answer: Answer,
    /// From what that follows.
    pub why: Why,
}

impl Blocked {
    /// The answer, for a person.
    pub fn sentence(&self) -> String {
        let (threads, kind) = (self.times.threads, self.times.kind.replace('_', " "));
        let kind = if threads == 1 { kind } else { format!("{kind}s") };
        let is = match self.answer {
            Answer::Yes => "are blocked",
            Answer::No => "are not blocked",
            Answer::NotSure => "may be blocked",
        };
        format!("{threads} {kind} {is}: {}", self.reason())
    }

    /// What the answer is drawn from, for a person.
    pub fn reason(&self) -> String {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        match self.why {
            Why::Share(share) => {
                format!(
                    "of the time in which they had work they neither ran nor waited for a CPU for {}",
                    percent(share)
                )
            }
            Why::Sleeps(rate) => format!(
                "each fell asleep {rate:.0} times a second although it had work all the time, so it waits at times, and for how long is not known"
            ),
            Why::Idle(share) => format!("they had work for {} of the time only", percent(share)),
            Why::OnCpu => "they had a CPU, or waited for one; whether they worked or spun for a lock does not show by time".to_owned(),
            Why::NotAsked => "they sleep, and the VM did not say whether for lack of work".to_owned(),
            Why::NotAccounted => {
                "this kernel does not account for the time that threads wait for a CPU (schedstats)"
                    .to_owned()
            }
        }
    }
}

/// Answers for the threads of one kind.
pub fn judge(times: Times) -> Blocked {
    let (answer, why) = answer(&times);
    Blocked { times, answer, why }
}

fn answer(times: &Times) -> (Answer, Why) {
    let sleeps = times.sleeps_per_second();
    let Some(awake) = times.awake_share() else {
        let busy = times
            .ran
            .zip(times.queued)
            .and_then(|(ran, queued)| share(ran.saturating_add(queued), times.time()));
        return match busy {
            None => (Answer::NotSure, Why::NotAccounted),
            Some(busy) if busy < HARDLY_AWAKE => (Answer::No, Why::Idle(busy)),
            Some(busy) if busy >= HAD_NO_TIME => (Answer::NotSure, Why::OnCpu),
            Some(_) => (Answer::NotSure, Why::NotAsked),
        };
    };
    if awake < HARDLY_AWAKE {
        return (Answer::No, Why::Idle(awake));
    }
    // Of a thread that always has work a sleep is a wait, however short.
    let is_working = times.working_share().is_some_and(|share| share >= ALWAYS_WORKING);
    let from_sleeps = sleeps.filter(|rate| is_working && *rate >= FEW_SLEEPS).map(Why::Sleeps);
    match (times.blocked_share(), from_sleeps) {
        (Some(share), _) if share >= BLOCKED_SHARE => (Answer::Yes, Why::Share(share)),
        (_, Some(why)) => (Answer::NotSure, why),
        (None, None) => (Answer::NotSure, Why::NotAccounted),
        (Some(share), None) if share < QUIET_SHARE => (Answer::NotSure, Why::OnCpu),
        (Some(share), None) => (Answer::NotSure, Why::Share(share)),
    }
}

/// How the schedulers of a recording spent their time, by their kinds, with what the VM says of their being awake. Of normal schedulers those that are
/// not online are asleep, and counted all the same: the shares are of the awake time.
pub fn of_period(period: &Period) -> Result<Vec<Times>, Missing> {
    let mut all = Vec::new();
    let length = period.end.saturating_sub(period.begin);
    for kind in kind::SCHEDULERS {
        let entities = entities_of(period, Group::HostThread, &[kind]);
        let Some(first) = entities.first() else { continue };
        let sum = |metric| {
            // All threads of a VM are read together: what the first lacks, all lack.
            period.rate(metric, first).ok()?;
            let rates = entities.iter().filter_map(|entity| period.rate(metric, entity).ok());
            Some((rates.sum::<f64>() * length as f64 / SECOND_NS as f64) as i64)
        };
        // What the hypervisor took is neither running nor waiting for the kernel, and no lock either. Whose time it was is not told.
        let stolen = match *kind {
            kind::SCHEDULER => period.cores(&metrics::CPU_STEAL, "").unwrap_or(0.0) * length as f64,
            _ => 0.0,
        };
        let time = |share: fn(&Period, &str) -> Option<f64>| {
            let threads: Option<f64> = entities.iter().map(|entity| share(period, entity)).sum();
            threads.map(|threads| (threads * length as f64) as i64)
        };
        all.push(Times {
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

/// The share of time in which a scheduler was awake. Microstate accounting counts busy waiting as awake, and a wait for a process's lock
/// as asleep; with scheduler wall time it is the other way round. So it is the larger of both.
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

/// The share of time in which it did work: scheduler wall time.
fn working(period: &Period, entity: &str) -> Option<f64> {
    let active = period.rate(&metrics::SCHEDULER_ACTIVE, entity).ok()?;
    let total = period.rate(&metrics::SCHEDULER_TOTAL, entity).ok()?;
    (total > 0.0).then(|| (active / total).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
