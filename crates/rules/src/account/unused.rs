//! Why CPU time was unused: throttled by a quota, delayed by other processes, blocked inside the VM (locks), or idle because work takes
//! turns. For the rest, nothing was runnable; the reason is known if processes with queued messages wait for a reply.

use std::collections::HashMap;

use beamtune_model::{
    CpuShare, CpuUse, Missing, Period, ProcessActivity, ProcessRow, Scale, Subject, Threshold, WaitSample,
    WaitSamples, metrics,
};

use crate::signals::blocking::{self, BlockingProcess, State};
use crate::signals::events;
use crate::signals::lock_suspects;
use crate::signals::requests::{self, Reads};
use crate::signals::stack;
use crate::view::{self, Capacity, kind};

/// Share of the schedulers' awake time in which they were blocked: neither on a CPU nor runnable.
pub(crate) const BLOCKED: Threshold = Threshold::new(
    "cpu-not-used.blocked_share",
    "schedulers blocked, share of their awake time",
    Scale {
        notice: 0.15,
        warning: 0.30,
        critical: 0.80,
        source: "measured: 87 % of the awake time under lock contention with 4 schedulers, up to 16 % without any",
    },
);

/// Involuntary switches per second of a scheduler that hardly ever sleeps. A thread that waits for a lock yields first, which counts as
/// involuntary if another thread can run.
pub(crate) const YIELDS: Threshold = Threshold::new(
    "cpu-not-used.involuntary_switches_per_s",
    "involuntary context switches per second of each scheduler that hardly sleeps",
    Scale {
        notice: 1_000.0,
        warning: 2_000.0,
        critical: 200_000.0,
        source: "measured on OTP 25: 2,000–117,000/s under contention of one ETS table, 40–160/s in CPU-bound work",
    },
);

/// Voluntary switches per second of such a scheduler: a thread sleeps if yielding did not get it the lock.
pub(crate) const SLEEPS: Threshold = Threshold::new(
    "cpu-not-used.voluntary_switches_per_s",
    "voluntary context switches per second of each scheduler that hardly sleeps",
    Scale {
        notice: 10_000.0,
        warning: 20_000.0,
        critical: 200_000.0,
        source: "measured on OTP 25: 74,000/s under lock contention with 4 schedulers, 5,600/s in message ping-pong, which has slight contention",
    },
);

/// Microstates in which a scheduler looks for work. Scheduler wall time does not count them as active (`scheduler_wait` in erl_process.c).
/// Busy wait is `other` in builds without a separate state for it.
const WHILE_WAITING: [&str; 3] = ["busy_wait", "check_io", "other"];

/// Schedulers that are active for at least this share of the time sleep too little to explain a switch.
const AWAKE: f64 = 0.97;

/// The unused part of the capacity, in cores, by reason.
pub(crate) struct Unused<'a> {
    /// The whole unused part.
    pub cores: f64,
    /// Throttled by the quota.
    pub stopped: f64,
    /// External programs had the CPU.
    pub programs: f64,
    /// Other OS processes had the CPU.
    pub neighbours: f64,
    /// The hypervisor gave it to other guests (steal).
    pub stolen: f64,
    /// Threads were awake, but neither on a CPU nor runnable.
    pub blocked: f64,
    /// Idle because only one process at a time had work.
    pub turns: f64,
    /// Nothing was runnable.
    pub nothing: f64,
    /// Whether the quota was used up.
    pub is_quota_used: bool,
    /// Run-queue delay of schedulers that no other process can have caused: the schedulers displaced each other.
    pub among_themselves: f64,
    /// The share of the schedulers' awake time in which they were blocked.
    pub blocked_share: f64,
    /// Severity and description of the signs of lock contention.
    pub locks: Option<(f64, String)>,
    /// The lock with the longest wait, if locks were counted.
    pub lock: Option<String>,
    /// The single process that works.
    pub serial: Option<Serial>,
    /// Processes that have messages but wait for something else.
    pub held_up: Vec<&'a ProcessActivity>,
    /// The blocking process with the most waiters, of those that leave the CPU idle.
    pub hold: Option<BlockingProcess<'a>>,
    /// What idle processes wait for, if work takes turns and no single process does it.
    pub turns_for: Option<BlockingProcess<'a>>,
    /// Number of sampled processes, if all of them waited, and none for a reply, a socket or a timer.
    pub none_waits_of: Option<i64>,
}

/// A process that works while the others do not, so that at most one core is used.
pub(crate) struct Serial {
    pub(crate) subject: Subject,
    /// Whether messages or processes wait for it. If not, it may be a job that delays nobody.
    is_waited_for: bool,
}

impl Serial {
    /// Description for display.
    pub(crate) fn said(&self) -> String {
        match self.is_waited_for {
            true => format!("everything else waits for one process: {}", self.subject),
            false => {
                format!("one process always runs, and nothing seems to wait for it: {}", self.subject)
            }
        }
    }
}

impl Unused<'_> {
    /// Computes the unused part of this capacity, of which `used` cores were used.
    pub(crate) fn of<'a>(period: &'a Period, capacity: &Capacity, used: f64) -> Result<Unused<'a>, Missing> {
        let cpu = view::thread_cores(period, &metrics::THREAD_CPU, &[kind::SCHEDULER])?;
        let waited = view::thread_cores(period, &metrics::THREAD_WAIT, &[kind::SCHEDULER])?;
        let active = view::activity(period, kind::SCHEDULER)?;
        let states = view::states(period, &[kind::SCHEDULER])?;
        let is_quota_used = view::quota_used_up(period);
        let steal = period.cores(&metrics::CPU_STEAL, "").unwrap_or(0.0);

        // A thread that waits for a process lock is asleep by msacc but active by scheduler wall time. One that waits for a table lock is
        // awake by both. Msacc is on for a tenth of the time, and may happen to cover far too many bursts of work. Scheduler wall time is
        // always on; a thread that is awake beyond it only spins or polls.
        let waiting: f64 = WHILE_WAITING.into_iter().map(|state| states.get(state)).sum();
        let awake = states.awake().max(active.cores()).min(active.cores() + waiting);
        // Blocked: awake by the VM's clock, but neither running nor runnable by the kernel's. Steal looks the same.
        let off_cpu = (awake - cpu - waited).max(0.0);
        // A thread that spins or polls is not blocked, even if msacc overestimates these states.
        let blocked = (off_cpu - steal).clamp(0.0, active.cores());
        // Long time slices (long_schedule) run native code, which may wait for something other than a lock.
        let in_long_slices = events::of_kind(period, "long_schedule")
            .map_or(0.0, |wait| wait.seconds / period.seconds().max(1.0));
        let by_locks = (blocked - in_long_slices).max(0.0);
        let blocked_share = if awake > 0.0 { by_locks / awake } else { 0.0 };
        let locks = locks(period, &active, by_locks, blocked_share);
        let holds = blocking::blocking_processes(period).unwrap_or_default();
        let held_up = held_up(period);
        let waits_outside = !held_up.is_empty() || holds.iter().any(BlockingProcess::leaves_idle);
        // A job that runs alone is not what others wait for.
        let alone = serial(period, &holds);
        let is_serial = match &alone {
            Some(serial) => serial.is_waited_for || !waits_outside,
            None => in_turns(period, &active),
        };
        let serial = alone.filter(|_| is_serial);
        let turns_for =
            holds.iter().find(|hold| is_serial && serial.is_none() && hold.gives_turns()).cloned();

        // Threads that a quota throttles are runnable too, and cannot be distinguished from those that neighbours delay. Neighbours cannot
        // delay threads for longer than they ran themselves. If other processes were not counted, all delay may be theirs.
        let foreign = view::neighbour_cores(period).unwrap_or(f64::INFINITY);
        let started = view::programs_cores(period).unwrap_or(0.0);
        let (stopped, programs, neighbours) = match waited.min(foreign + started) {
            _ if is_quota_used => (waited, 0.0, 0.0),
            // Divided in proportion to the CPU that each of the two used.
            displaced if started > 0.0 && foreign.is_finite() => {
                let programs = displaced * started / (foreign + started);
                (0.0, programs, displaced - programs)
            }
            displaced => (0.0, 0.0, displaced),
        };
        // For the rest, the schedulers waited for each other, unless the hypervisor had the CPU.
        let rest = waited - stopped - programs - neighbours;
        let stolen = steal.min(off_cpu + rest);
        let among_themselves = rest - (stolen - off_cpu).max(0.0);
        let cores = (capacity.cores - used).max(0.0);
        let mut left = cores;
        let mut take = |cores: f64| {
            let taken = cores.clamp(0.0, left);
            left -= taken;
            taken
        };
        let (stopped, programs, neighbours, stolen, blocked) =
            (take(stopped), take(programs), take(neighbours), take(stolen), take(blocked));
        let turns = take(if is_serial { f64::INFINITY } else { 0.0 });
        Ok(Unused {
            cores,
            stopped,
            programs,
            neighbours,
            stolen,
            blocked,
            turns,
            nothing: left,
            is_quota_used,
            among_themselves,
            blocked_share,
            locks,
            lock: lock_suspects::most_waited(period),
            serial,
            held_up,
            hold: holds.into_iter().find(BlockingProcess::leaves_idle),
            turns_for,
            none_waits_of: none_waits_of(period),
        })
    }

    /// Describes what work waits for; `None` if nothing waits for a reply.
    pub(crate) fn outside(&self) -> Option<String> {
        match (&self.hold, &self.held_up[..]) {
            (Some(hold), _) => {
                let further = match (&hold.state, hold.waits_for(), hold.peer()) {
                    (_, Some(on), _) => format!(", which waits for {on}"),
                    // It has sent a request, and handles the reply when it arrives.
                    (State::LetsWait | State::Unknown, None, Some(peer)) => {
                        format!(", which is connected to {peer}")
                    }
                    _ => String::new(),
                };
                Some(format!("{}{further}", hold.waiting_text()))
            }
            (None, []) => None,
            (None, _) => Some(format!("{} while messages are queued", waiting_in(&self.held_up))),
        }
    }

    /// Returns the shares for the CPU account.
    pub(crate) fn shares(&self) -> Vec<CpuShare> {
        let share = |what, cores, how: String| CpuShare { what, cores, how };
        let (nothing, why) = match self.outside() {
            None => (
                CpuUse::NoRunnable,
                match self.none_waits_of {
                    Some(of) => {
                        format!(
                            "no process was runnable; of {of} sampled processes, none waited for a reply, a socket or a timer"
                        )
                    }
                    None => "no process was runnable".to_owned(),
                },
            ),
            Some(why) => (CpuUse::WaitingForReplies, why),
        };
        let turns = match &self.serial {
            Some(serial) => share(CpuUse::SerialProcess, self.turns, serial.said()),
            None => {
                let how = "at most one process was runnable at a time";
                let further = self.turns_for.as_ref().map(|turns| format!(", and {}", turns.waiting_text()));
                share(CpuUse::TakingTurns, self.turns, format!("{how}{}", further.unwrap_or_default()))
            }
        };
        vec![
            share(CpuUse::Quota, self.stopped, "threads were runnable, and the quota was used up".to_owned()),
            share(
                CpuUse::ExternalPrograms,
                self.programs,
                "threads were runnable while external programs of the node had the CPU".to_owned(),
            ),
            share(
                CpuUse::Neighbours,
                self.neighbours,
                "threads were runnable while other OS processes had the CPU".to_owned(),
            ),
            share(CpuUse::Steal, self.stolen, "steal, of the whole host".to_owned()),
            share(
                CpuUse::Locks,
                self.blocked,
                match &self.lock {
                    Some(lock) => format!(
                        "awake, but neither on a CPU nor runnable; longest wait by lock counting: {lock}"
                    ),
                    None => {
                        "awake, but neither on a CPU nor runnable: locks, or blocking native code".to_owned()
                    }
                },
            ),
            turns,
            share(nothing, self.nothing, why),
        ]
    }
}

/// Size of the random sample of processes, if all of them waited only for their next message.
fn none_waits_of(period: &Period) -> Option<i64> {
    let waits = |place: &WaitSample| place.stack.first().is_some_and(|function| !stack::is_accept(function));
    let WaitSamples { sampled, stacks: places, .. } = &period.wait_samples;
    // Processes that ran or were in a send have no stack here. Nor do processes with the rarest of many stacks.
    let unsampled = places.iter().filter(|place| place.pid.is_none());
    let unsampled = unsampled.fold(0, |sum: i64, place| sum.saturating_add(place.count));
    (unsampled > 0 && unsampled >= *sampled && !blocking::waiting(period).any(waits)).then_some(*sampled)
}

/// Severity and description of the signs of lock contention.
fn locks(period: &Period, active: &view::Activity, blocked: f64, share: f64) -> Option<(f64, String)> {
    let warning = |severity: Option<f64>| severity.filter(|severity| *severity >= 25.0);
    if blocked >= 0.2
        && let Some(severity) = warning(BLOCKED.of(period).severity(share))
    {
        return Some((severity, format!("they were blocked for {:.0} % of their awake time", share * 100.0)));
    }
    // The switches of schedulers that sleep are ordinary, and a single scheduler waits for no other.
    if active.mean() < AWAKE || active.shares.len() < 2 {
        return None;
    }
    let each = |metric| {
        let rate = view::thread_rate(period, metric, &[kind::SCHEDULER]).ok()?;
        Some(rate / active.shares.len() as f64)
    };
    let (yields, sleeps) = (each(&metrics::INVOLUNTARY_SWITCHES)?, each(&metrics::VOLUNTARY_SWITCHES)?);
    let severity = [YIELDS.of(period).severity(yields), SLEEPS.of(period).severity(sleeps)]
        .into_iter()
        .flatten()
        .reduce(f64::max);
    let text =
        format!("each gave up its CPU {:.0} times per second, although it always had work", yields + sleeps);
    warning(severity).map(|severity| (severity, text))
}

/// Finds a process that is nearly always runnable and does most of the work, or that many processes wait for while it works.
fn serial(period: &Period, holds: &[BlockingProcess<'_>]) -> Option<Serial> {
    let total = view::all_reductions(period).ok()?;
    let is_busy = |process: &&ProcessActivity| {
        stack::runnable_share(process).is_some_and(|share| share >= 0.7)
            && process.reductions as f64 >= 0.3 * total
    };
    let is_held_by = |pid: &str| holds.iter().any(|hold| hold.process.is_some_and(|held| held.pid == pid));
    let mut busy: Vec<Serial> = (period.processes.iter().filter(is_busy))
        .map(|process| Serial {
            subject: process.subject(),
            is_waited_for: view::mean_queue(process) >= 1.0 || is_held_by(&process.pid),
        })
        .collect();
    busy.sort_by_key(|serial| !serial.is_waited_for);
    // Two jobs that run at the same time are not one serial process.
    let is_one = busy.len() == 1 || busy.first().is_some_and(|first| first.is_waited_for);
    let busy = busy.into_iter().next().filter(|_| is_one);
    busy.or_else(|| {
        let behind = holds.iter().find(|hold| hold.is_behind())?;
        Some(Serial { subject: behind.subject(), is_waited_for: true })
    })
}

/// Finds processes that have messages in most samples but are hardly ever runnable. Each is in a receive for something else, like a worker
/// that waits for its database. (Not in all samples: with several workers and random requests, each worker is without messages at times.)
/// Processes that exit or give up at once are left out, as are those that never run.
fn held_up(period: &Period) -> Vec<&ProcessActivity> {
    let is_held_up =
        |process: &&ProcessActivity| waits_with_messages(period, process) && process.reductions > 0;
    period.processes.iter().filter(is_held_up).collect()
}

/// Whether a process has messages in most samples, but waits for something else in most of them.
pub(crate) fn waits_with_messages(period: &Period, process: &ProcessActivity) -> bool {
    let points = process.queue.points();
    let with_messages = points.iter().filter(|(_, messages)| *messages > 0).count();
    stack::runnable_share(process).is_some_and(|share| share <= 0.3)
        && 2 * process.ticks > period.vm_ticks
        && 2 * with_messages > points.len()
        && process.row.as_ref().is_some_and(|row| row.status.as_deref() == Some("waiting") && !takes_all(row))
        && !view::is_emptied_again(process)
        && !serves(period, process)
}

/// Whether the process waits for the next request of a client. Messages that arrived meanwhile are taken with the request.
fn serves(period: &Period, process: &ProcessActivity) -> bool {
    let stack = stack::waiting_function(process).map(|(_, stack)| stack);
    stack.is_some_and(|stack| requests::reads(period, process, stack) == Some(Reads::Request))
}

/// Whether the process is in a loop that receives any message. Its messages have then only just arrived.
fn takes_all(row: &ProcessRow) -> bool {
    !row.stack.is_empty() && !stack::is_in_midst(&row.stack)
}

/// Where they wait: `shop_db (<0.99.0>) waits in prim_inet:recv0/3`, `7 processes wait in prim_inet:recv0/3`.
fn waiting_in(held_up: &[&ProcessActivity]) -> String {
    let place = |process: &&ProcessActivity| {
        process.row.as_ref().and_then(stack::current_function).unwrap_or_else(|| "a receive".to_owned())
    };
    let mut places = HashMap::<String, u32>::new();
    for process in held_up {
        *places.entry(place(process)).or_default() += 1;
    }
    let most = places.into_iter().max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
    match (held_up, most) {
        ([process], _) => format!("{} waits in {}", process.title(), place(process)),
        (_, Some((place, _))) => format!("{} processes wait in {place}", held_up.len()),
        (_, None) => String::new(),
    }
}

/// Whether one scheduler's worth of work was done with a process runnable nearly always, and mostly only one: many processes that take
/// turns. The counts include the agent's collector, and sometimes other processes of the agent. If the same work comes in independent
/// pieces, no process is runnable in 33 to 50 % of the samples (Poisson). Fewer than 5 % of such recordings have at most one such sample in
/// eleven.
fn in_turns(period: &Period, active: &view::Activity) -> bool {
    let Ok(tasks) = period.stat(&metrics::ACTIVE_TASKS, "") else { return false };
    let looks = tasks.trace.points();
    let of = |most: i64| looks.iter().filter(|(_, tasks)| *tasks <= most).count();
    let (nobody, no_more_than_one) = (of(1), of(2));
    active.shares.len() > 1
        && (0.7..=1.1).contains(&active.cores())
        && 10 * nobody <= looks.len()
        && 2 * no_more_than_one > looks.len()
}
