//! BT015: why the VM does not use the CPU that it could use.
//!
//! What is left of the capacity is split into causes that are measured each on its own: stopped by a
//! quota, kept waiting by neighbours, blocked inside the VM (locks), idle beside work that goes on in turns; what
//! remains had nothing to run. Where processes wait for an answer while messages wait for them, that is the reason.

use std::collections::HashMap;

use beamtune_model::{Code, Evidence, Missing, Period, ProcessUse, Remedy, Scale, Unit, metrics};

use super::contended_locks;
use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::view::{self, Capacity, kind};

pub const RULE: Rule = Rule {
    code: Code("BT015"),
    name: "cpu-not-used",
    question: "Why is the CPU not used?",
    needs: &[
        &metrics::SCHEDULER_ACTIVE,
        &metrics::THREAD_CPU,
        &metrics::THREAD_WAIT,
        &metrics::CPUS_ALLOWED,
        &metrics::PROCESS_USER,
    ],
    since: 21,
    judge,
};

/// Share of the schedulers' awake time in which they were blocked, neither on a CPU nor waiting for one.
const BLOCKED: Scale = Scale {
    notice: 0.15,
    warning: 0.30,
    critical: 0.80,
    source: "measured: 87 % of the awake time under lock contention with 4 schedulers, up to 16 % without any",
};

/// Times a second that each scheduler gave up its CPU to another thread while it was hardly ever asleep:
/// waiting for a lock begins with yielding, which counts as involuntary where somebody else can run.
const YIELDS: Scale = Scale {
    notice: 1_000.0,
    warning: 2_000.0,
    critical: 200_000.0,
    source: "measured on OTP 25: 2,000–117,000/s under contention of one ETS table, 40–160/s in CPU-bound work",
};

/// The same with real sleep in between, which locks cause after yielding did not help.
const SLEEPS: Scale = Scale {
    notice: 10_000.0,
    warning: 20_000.0,
    critical: 200_000.0,
    source: "measured on OTP 25: 74,000/s under lock contention with 4 schedulers, 5,600/s in message ping-pong, which is contended a little",
};

/// Schedulers that are active at least this much have no sleep of their own that would explain a switch.
const AWAKE: f64 = 0.97;

/// Below this share of the capacity a node is called idle, and nothing is explained.
const IDLE: f64 = 0.05;

/// Left-over capacity below this share needs no explanation.
const UNUSED: f64 = 0.25;

/// Kept waiting or stopped for more than this, in cores, a node is not idle, whatever it used.
const WAITING: f64 = 0.05;

/// Why capacity is left over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Locks,
    Quota,
    Neighbours,
    SerialProcess,
    Turns,
    Outside,
    Nothing,
}

impl Cause {
    /// As the finding's subject; never changed.
    fn name(self) -> &'static str {
        match self {
            Cause::Locks => "locks",
            Cause::Quota => "quota",
            Cause::Neighbours => "neighbours",
            Cause::SerialProcess => "one serial process",
            Cause::Turns => "one at a time",
            Cause::Outside => "waiting outside",
            Cause::Nothing => "no runnable work",
        }
    }
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let capacity = view::capacity(period)?;
    let cpu = view::thread_cores(period, &metrics::THREAD_CPU, &[kind::SCHEDULER])?;
    let wait = view::thread_cores(period, &metrics::THREAD_WAIT, &[kind::SCHEDULER])?;
    let active = view::activity(period, kind::SCHEDULER)?;
    let states = view::states(period, &[kind::SCHEDULER])?;
    let used = view::process_cores(period)?;
    let quota = view::quota_used_up(period);
    let steal = period.cores(&metrics::CPU_STEAL, "").unwrap_or(0.0);

    // A thread that waits for a process's lock is asleep by msacc and active by scheduler wall time; one that waits for a
    // table's lock is awake by both.
    let awake = states.awake().max(active.cores());
    // Blocked: awake by the VM's clock, but neither running nor runnable by the kernel's. What the hypervisor took looks the same.
    let blocked = (awake - cpu - wait - steal).max(0.0);
    let blocked_share = if awake > 0.0 { blocked / awake } else { 0.0 };
    let locks = locks(period, &active, blocked, blocked_share);

    let unused = (capacity.cores - used).max(0.0);
    let held_up = held_up(period);
    if locks.is_none() && !quota && wait < WAITING {
        if used < IDLE * capacity.cores && held_up.is_empty() {
            return Ok(Judgement::Healthy(format!(
                "the node is idle: {used:.2} of {:.2} cores used, and no thread waited for a CPU",
                capacity.cores
            )));
        }
        if unused < UNUSED * capacity.cores {
            return Ok(Judgement::Healthy(format!(
                "the CPU is used: {used:.2} of {:.2} cores",
                capacity.cores
            )));
        }
    }

    let serial = serial(period);
    // Threads that a quota stops wait as well; there is no telling them from those that neighbours keep waiting.
    let (stopped, neighbours) = if quota { (wait, 0.0) } else { (0.0, wait) };
    let mut left = unused;
    let mut take = |cores: f64| {
        let taken = cores.clamp(0.0, left);
        left -= taken;
        taken
    };
    let (stopped, neighbours, blocked) = (take(stopped), take(neighbours), take(blocked));
    let turns = take(if serial.is_some() || in_turns(period, &active) { f64::INFINITY } else { 0.0 });
    let nothing = left;
    let cause = match &locks {
        Some(_) => Cause::Locks,
        None => [
            (nothing, if held_up.is_empty() { Cause::Nothing } else { Cause::Outside }),
            (turns, if serial.is_some() { Cause::SerialProcess } else { Cause::Turns }),
            (neighbours, Cause::Neighbours),
            (stopped, Cause::Quota),
        ]
        .into_iter()
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or(Cause::Nothing, |(_, cause)| cause),
    };

    let share = |cores: f64| if unused > 0.0 { cores / unused } else { 0.0 };
    let of_capacity = format!("{unused:.2} of {:.2} cores are not used", capacity.cores);
    let summary = match (cause, &locks) {
        (Cause::Locks, Some((_, sign))) => {
            format!("the schedulers wait for each other (locks inside the VM): {sign}")
        }
        (Cause::Quota, _) => format!("{of_capacity}, because a CPU quota stops the VM"),
        (Cause::Neighbours, _) => format!("{of_capacity}, because other processes have the CPUs"),
        (Cause::SerialProcess, _) => format!(
            "{of_capacity}, because one process does most of the work: {}",
            serial.as_deref().unwrap_or("see serial-process")
        ),
        (Cause::Turns, _) => {
            format!("{of_capacity}, because the work goes on in turns: one process at a time, never two")
        }
        (Cause::Outside, _) => format!(
            "{of_capacity}, because work waits for answers: {} while messages wait for {}",
            stand(&held_up),
            if held_up.len() == 1 { "it" } else { "them" }
        ),
        _ => format!(
            "{of_capacity}: there is no more runnable work; processes wait for something outside, or nobody asks"
        ),
    };
    // Where locks were counted it is known which, and what helps against that one is said there.
    let counted = (cause == Cause::Locks).then(|| contended_locks::most_waited(period)).flatten();
    // An explanation is a notice; that locks hold the node back is more than that.
    let score = locks.as_ref().map_or(10.0, |(score, _)| *score);
    let draft = Draft::new(score, summary)
        .about(cause.name())
        .because(Evidence::number("capacity", capacity.cores, Unit::Cores).with_text(capacity_text(&capacity)))
        .because(Evidence::number("CPU of the VM", used, Unit::Cores))
        .because(Evidence::number("not used: stopped by the quota", share(stopped), Unit::Ratio))
        .because(Evidence::number("not used: CPU taken by others", share(neighbours), Unit::Ratio))
        .because(Evidence::number("not used: blocked inside the VM", share(blocked), Unit::Ratio))
        .because(Evidence::number("not used: idle while one process works", share(turns), Unit::Ratio))
        .because(Evidence::number("not used: nothing to run", share(nothing), Unit::Ratio))
        .because(
            Evidence::number("blocked share of the schedulers' awake time", blocked_share, Unit::Ratio)
                .against(BLOCKED.warning, BLOCKED.source),
        )
        .because_some(
            period
                .stat(&metrics::ACTIVE_TASKS, "")
                .ok()
                .map(|stat| Evidence::number("running and runnable at a time, the agent among them", stat.mean(), Unit::Count)),
        )
        .because_some(held_up.iter().max_by_key(|process| process.queue_max).map(|process| {
            Evidence::text("with messages, and yet waiting", process.title())
                .with_text(format!("{}: up to {} messages", process.title(), process.queue_max))
        }))
        .because_some(waiting_where(period).map(|text| Evidence::text("where the busiest processes wait", text)))
        .because_some(counted.as_ref().map(|thing| {
            let said = format!("{}: see the finding contended-locks, and what helps there", thing.name);
            Evidence::text("what they wait for the most, by counting", said)
        }))
        .but_if(
            cause == Cause::Locks && counted.is_none(),
            "native code that blocks, page faults and interrupts look the same from here; which lock it is takes a lock-counting emulator",
        )
        .but_if(cause == Cause::Outside, "messages that a process never takes look the same: see whether they stay");
    let remedies = if counted.is_some() { Vec::new() } else { remedies(period, cause) };
    Ok(Judgement::found(remedies.into_iter().fold(draft, Draft::fix)))
}

/// What to do about a cause, best first.
fn remedies(period: &Period, cause: Cause) -> Vec<Option<Remedy>> {
    let of = |entry, change, why, prove| remedy::of(period, entry, change, why, prove);
    match cause {
        Cause::Locks => vec![
            of(
                "ets.write_concurrency",
                "the most common cause is one ETS table that all write: {write_concurrency, auto} (25+) or true, or a table per scheduler",
                "a table has one lock by default",
                "switches a second and throughput under the same load",
            ),
            of(
                "code.split_process",
                "the next one is a process that all send to: several processes by key, or message_queue_data off_heap (25+)",
                "every send takes the receiver's lock",
                "switches a second and throughput under the same load",
            ),
            of(
                "build.lock_counting",
                "beamtune locks TARGET names the operation; on an emulator that counts locks (beamtune emulator run) also lock and table",
                "see the finding contended-locks for what was found so",
                "the lock with the most waiting time is the one to remove",
            ),
        ],
        Cause::SerialProcess | Cause::Turns => vec![of(
            "code.split_process",
            if cause == Cause::Turns {
                "find what they take turns for (a lock process, a global:trans, a pool of one) and split it by key"
            } else {
                "split the process, see the finding serial-process"
            },
            "one process uses one scheduler at most",
            "throughput under the same load",
        )],
        Cause::Quota => vec![of(
            "host.cpu_quota",
            "see the finding cpu-throttled",
            "the kernel stops the VM",
            "throttled periods must stop growing",
        )],
        Cause::Neighbours => vec![of(
            "host.cpu_isolation",
            "see the finding cpu-starved",
            "others have the CPUs",
            "run-queue wait must fall towards 0",
        )],
        Cause::Outside => vec![of(
            "code.more_in_flight",
            "make what they wait for answer sooner (see where they stand), or let more of them wait at a time (a larger pool), with a time-out",
            "the schedulers are idle, so no emulator flag can help",
            "throughput with a pool of twice the size",
        )],
        Cause::Nothing => vec![of(
            "code.more_in_flight",
            "if it should do more: let more requests in at a time (pool sizes, acceptors, prefetch), or look at what it waits for",
            "the schedulers are idle, so no emulator flag can help",
            "throughput with twice as many requests in flight",
        )],
    }
}

/// The score of the signs of lock contention, with the sign in words.
fn locks(period: &Period, active: &view::Activity, blocked: f64, share: f64) -> Option<(f64, String)> {
    let warning = |score: Option<f64>| score.filter(|score| *score >= 25.0);
    if blocked >= 0.2
        && let Some(score) = warning(BLOCKED.score(share))
    {
        return Some((score, format!("they were blocked for {:.0} % of their awake time", share * 100.0)));
    }
    // With sleep of their own the switches are ordinary; with one scheduler there is nobody to wait for.
    if active.mean() < AWAKE || active.shares.len() < 2 {
        return None;
    }
    let each = |metric| {
        let rate = view::thread_rate(period, metric, &[kind::SCHEDULER]).ok()?;
        Some(rate / active.shares.len() as f64)
    };
    let (yields, sleeps) = (each(&metrics::INVOLUNTARY_SWITCHES)?, each(&metrics::VOLUNTARY_SWITCHES)?);
    let score = [YIELDS.score(yields), SLEEPS.score(sleeps)].into_iter().flatten().reduce(f64::max);
    let text = format!(
        "each gave up its CPU {:.0} times a second, although it had something to run all the time",
        yields + sleeps
    );
    warning(score).map(|score| (score, text))
}

/// A process that is nearly always runnable and does most of the work.
fn serial(period: &Period) -> Option<String> {
    let total = period.stat(&metrics::SCAN_REDUCTIONS, "").ok()?.delta as f64;
    period
        .processes
        .iter()
        .find(|process| {
            process.judged >= 5
                && f64::from(process.runnable) >= 0.7 * f64::from(process.judged)
                && process.reductions as f64 >= 0.3 * total
        })
        .map(|process| process.title())
}

/// Processes that have messages in most seconds and yet are hardly ever runnable: each stands in a receive for something
/// else, as a worker does that waits for its database. (Not in all seconds: of several workers, the requests that come in
/// at random leave each one without any now and then.) What ends or gives up at once does not count, nor what never runs.
fn held_up(period: &Period) -> Vec<&ProcessUse> {
    let is_held_up = |process: &&ProcessUse| {
        let points = process.queue.points();
        let with_messages = points.iter().filter(|(_, messages)| *messages > 0).count();
        process.judged >= 5
            && 10 * process.runnable <= 3 * process.judged
            && 2 * process.ticks > period.vm_ticks
            && 2 * with_messages > points.len()
            && process.reductions > 0
            && process.row.as_ref().is_some_and(|row| row.status.as_deref() == Some("waiting"))
    };
    period.processes.iter().filter(is_held_up).collect()
}

/// Where they stand: `shop_db (<0.99.0>) stands in prim_inet:recv0/3`, `7 processes stand in prim_inet:recv0/3`.
fn stand(held_up: &[&ProcessUse]) -> String {
    let place = |process: &&ProcessUse| {
        process
            .row
            .as_ref()
            .and_then(|row| row.current_function.clone())
            .unwrap_or_else(|| "a receive".to_owned())
    };
    let mut places = HashMap::<String, u32>::new();
    for process in held_up {
        *places.entry(place(process)).or_default() += 1;
    }
    let most = places.into_iter().max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
    match (held_up, most) {
        ([process], _) => format!("{} stands in {}", process.title(), place(process)),
        (_, Some((place, _))) => format!("{} processes stand in {place}", held_up.len()),
        (_, None) => String::new(),
    }
}

/// True if one scheduler's worth of work was done and mostly no more than one process wanted to run: many processes that
/// take turns. The agent's collector is a second one, and its other processes are now and then caught running too.
fn in_turns(period: &Period, active: &view::Activity) -> bool {
    let Ok(tasks) = period.stat(&metrics::ACTIVE_TASKS, "") else { return false };
    let looks = tasks.trace.points();
    let alone = looks.iter().filter(|(_, tasks)| *tasks <= 2).count();
    active.shares.len() > 1 && (0.7..=1.1).contains(&active.cores()) && 2 * alone > looks.len()
}

/// What limits the capacity, in words.
fn capacity_text(capacity: &Capacity) -> String {
    let quota = capacity.quota.map_or(String::new(), |quota| format!(", quota of {quota:.2} cores"));
    format!("{:.0} schedulers online, {:.0} CPUs allowed{quota}", capacity.online, capacity.allowed)
}

/// The functions in which the busiest processes were waiting, the most frequent first; the loops of OTP's
/// behaviours say nothing and are left out.
fn waiting_where(period: &Period) -> Option<String> {
    let mut places: Vec<(&str, usize)> = Vec::new();
    for row in period.processes.iter().filter_map(|process| process.row.as_ref()) {
        if row.status.as_deref() != Some("waiting") {
            continue;
        }
        let Some(place) = row.current_function.as_deref() else { continue };
        if place.starts_with("gen_server:loop") || place.starts_with("gen_statem:loop") {
            continue;
        }
        match places.iter_mut().find(|(known, _)| *known == place) {
            Some((_, count)) => *count += 1,
            None => places.push((place, 1)),
        }
    }
    places.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let text: Vec<_> = places.iter().take(3).map(|(place, count)| format!("{place} ({count})")).collect();
    (!text.is_empty()).then(|| text.join(", "))
}
