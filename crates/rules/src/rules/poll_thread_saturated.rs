//! BT059: a poll thread has no time left, and sockets with data wait for it.
//!
//! Since OTP 21 threads of their own wait for all descriptors, one by default. For each event such a thread takes the descriptor's lock and
//! queues a task or a message, which takes some 2 µs (measured); the schedulers turn the descriptor on again. That is a fifth of what an event
//! costs in all, so it takes many schedulers to keep one poll thread busy. Descriptors that stay on for a dozen events in a row are
//! polled by the schedulers themselves (since 21.2, of NIFs since 28.0), and cost the thread nothing.

use beamtune_model::{Account, Code, Evidence, Missing, Period, Scale, Threshold, Unit, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule};
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT059"),
    name: "poll-thread-saturated",
    question: "Can the poll threads keep up with the sockets?",
    confirm: "twice as many poll threads (+IOt) under the same load: more must be received, and none of them may be busy all the time",
    needs: &[&metrics::THREAD_CPU],
    account: Account::CpuUsed,
    role: Role::Symptom,
    judge,
    thresholds: &[BUSY],
    ..Rule::COMMON
};

/// Share of the time in which the threads of a poll set worked.
const BUSY: Threshold = Threshold::new(
    "poll-thread-saturated.busy_share",
    "share of time in which the threads of a poll set work",
    Scale {
        notice: 0.60,
        warning: 0.85,
        critical: 0.97,
        source: "judgement: at 85 % of its time an event waits for several others",
    },
);

/// Schedulers that are active for this share of their time are the narrower place.
const SCHEDULERS_FULL: f64 = 0.9;

/// With fewer descriptors than this nobody expects much polling: one of them may be ready all the time, with nobody who takes what is there.
const FEW_DESCRIPTORS: f64 = 20.0;

/// The VM does not start with more poll threads.
const MOST_THREADS: usize = 1_024;

/// One poll thread.
struct Thread<'a> {
    entity: &'a str,
    /// Of a CPU, by the operating system.
    cores: f64,
    /// Share of its time in which it worked, or waited for a lock.
    busy: f64,
}

/// The poll threads, and in how many poll sets of the kernel the descriptors are.
struct Polling<'a> {
    threads: Vec<Thread<'a>>,
    sets: usize,
}

impl<'a> Polling<'a> {
    fn of(period: &'a Period) -> Result<Self, Missing> {
        let mut threads = Vec::new();
        let mut entities = view::entities_of(period, metrics::THREAD_CPU.group, &[kind::POLL]);
        // `poll/10` comes after `poll/9`: its number says which set it is of.
        entities.sort_by_key(|entity| (entity.len(), *entity));
        for entity in entities {
            let cores = period.cores(&metrics::THREAD_CPU, entity)?;
            // Waiting for a lock of the kernel or of the VM takes no CPU, and events wait all the same. Waiting for a CPU is the host's.
            let awake = awake(period, entity).zip(period.cores(&metrics::THREAD_WAIT, entity).ok());
            let busy = awake.map_or(cores, |(awake, waited)| cores.max(awake - waited)).clamp(0.0, 1.0);
            threads.push(Thread { entity, cores, busy });
        }
        if threads.is_empty() {
            period.cores(&metrics::THREAD_CPU, "poll/0")?;
        }
        let sets = sets(period, threads.len());
        Ok(Polling { threads, sets })
    }

    /// The mean share of the set whose threads have the least time left: threads of one set do each other's work.
    fn busiest_set(&self) -> f64 {
        let share = |set: usize| {
            let of_set = || self.threads.iter().skip(set).step_by(self.sets);
            of_set().map(|thread| thread.busy).sum::<f64>() / of_set().count().max(1) as f64
        };
        (0..self.sets).map(share).fold(0.0, f64::max)
    }
}

/// Share of the time in which a thread did not sleep, by microstate accounting.
fn awake(period: &Period, entity: &str) -> Option<f64> {
    let (mut asleep, mut total) = (0.0, 0.0);
    for (state, stat) in period.family(&metrics::MSACC, entity) {
        total += stat.delta as f64;
        asleep += if state == "sleep" { stat.delta as f64 } else { 0.0 };
    }
    (total > 0.0).then(|| 1.0 - asleep / total)
}

/// Poll sets in use: `+IOp`, or `+IOPp` in per cent of the threads, or one.
fn sets(period: &Period, threads: usize) -> usize {
    let number = |flag| view::emulator_flag(&period.facts, flag).value().and_then(|value| value.parse().ok());
    let by_share = || number("+IOPp").map(|percent: usize| threads.saturating_mul(percent) / 100);
    number("+IOp").or_else(by_share).unwrap_or(1).clamp(1, threads.max(1))
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let polling = Polling::of(period)?;
    let busy = polling.busiest_set();
    let schedulers = view::activity(period, kind::SCHEDULER).map(|activity| activity.mean()).ok();
    let full = schedulers.is_some_and(|active| active >= SCHEDULERS_FULL);
    match BUSY.of(period).severity(busy) {
        Some(severity) => {
            Ok(Judgement::found(describe(period, &polling, severity, schedulers, full).minor_if(full)))
        }
        None => Ok(Judgement::Healthy(format!(
            "poll threads: {}, busy in {:.0} % of the time at most",
            polling.threads.len(),
            busy * 100.0
        ))),
    }
}

fn describe(
    period: &Period,
    polling: &Polling<'_>,
    severity: f64,
    schedulers: Option<f64>,
    full: bool,
) -> Draft {
    let Polling { threads, sets } = polling;
    let busy = polling.busiest_set();
    let who = match threads.len() {
        1 => "the poll thread works".to_owned(),
        count if *sets == 1 => format!("the {count} poll threads work"),
        _ => format!("the threads of one of {sets} poll sets work"),
    };
    let each: Vec<_> = threads.iter().take(8).map(|one| format!("{} {:.2}", one.entity, one.cores)).collect();
    let check_io = view::states(period, &[kind::POLL]).map(|states| states.get("check_io")).ok();
    let of_kernel = view::poll_sets(period);
    let descriptors = of_kernel.as_ref().and_then(|sets| sets.descriptors);
    let uses_epoll = of_kernel.is_some_and(|sets| sets.use_epoll);
    let more = (threads.len() * 2).min(MOST_THREADS);
    let prove = "CPU of the poll threads (top -H -p PID), packets received and latency under the same load";
    Draft::new(
        severity,
        format!("{who} for {:.0} % of the time: sockets with data wait to be told of", busy * 100.0),
    )
    .because(Evidence::number("share of the time they work", busy, Unit::Ratio).against_scale(BUSY.of(period)))
    .because(
        Evidence::number("CPU of the poll threads", threads.iter().map(|one| one.cores).sum(), Unit::Cores)
            .with_text(each.join(", ")),
    )
    .because_some(check_io.map(|cores| Evidence::number("of it in the msacc state `check_io`", cores, Unit::Cores)))
    .because(Evidence::number("poll sets", *sets as f64, Unit::Count).with_text(format!("{} threads", threads.len())))
    .because_some(descriptors.map(|count| Evidence::number("descriptors in the sets", count, Unit::Count)))
    .because_some(schedulers.map(|active| Evidence::number("mean activity of the schedulers", active, Unit::Ratio)))
    .but_if(full, "the schedulers have no time left either: what is told sooner would wait for them")
    .but_if(
        descriptors.is_some_and(|count| count < FEW_DESCRIPTORS),
        "with so few descriptors one may be ready all the time, with nobody who takes what is there",
    )
    .fix(remedy::of(
        period,
        "socket.active",
        "{active, true}, or {active, N} with a large N, in place of {active, once} and of calls of recv: what stays on is polled by \
         the schedulers",
        "a socket that is turned on for each packet comes back to the poll thread each time",
        prove,
    ))
    .fix_if(view::emulator_flag(&period.facts, "+IOs").value() == Some("false"), || {
        remedy::of(
            period,
            "+IOs",
            "leave out +IOs false",
            "schedulers then poll descriptors that are ready nearly always, and the poll threads have less to do",
            prove,
        )
    })
    // Without epoll each thread needs a set of its own; it is the build that is to be changed.
    .fix_if(uses_epoll && more > threads.len(), || {
        remedy::of(
            period,
            "+IOt",
            &format!("+IOt {more}"),
            "the threads of a poll set share its events",
            prove,
        )
    })
    .fix_if(uses_epoll && *sets < more, || {
        remedy::of(
            period,
            "+IOp",
            &format!("+IOt {more} +IOp {more}, if more threads alone do not help"),
            "threads and schedulers wait for the lock of the kernel's only set (perf top: a spin lock below ep_poll or epoll_ctl)",
            prove,
        )
    })
}
