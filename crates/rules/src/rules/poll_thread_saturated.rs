//! BT059: a poll thread has no time left, and sockets with data wait for it.
//!
//! Since OTP 21, dedicated threads, one by default, poll all descriptors. For each event, such a thread takes the lock of the descriptor
//! and queues a task or a message, which takes some 2 µs (measured). A scheduler then enables the descriptor again. The poll thread has
//! only a fifth of the cost of an event, so many schedulers are needed to keep one busy. Schedulers poll descriptors that stay enabled for
//! a dozen events in a row (since 21.2, of NIFs since 28.0). These cost the poll thread nothing.

use beamtune_model::{Account, Code, Evidence, Missing, Period, Scale, Threshold, Unit, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule};
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT059"),
    name: "poll-thread-saturated",
    question: "Can the poll threads keep up with the sockets?",
    confirm: "double the poll threads (+IOt) under the same load: more is received, and no thread is busy all the time",
    needs: &[&metrics::THREAD_CPU],
    account: Account::CpuUsed,
    role: Role::Symptom,
    judge,
    thresholds: &[BUSY],
    ..Rule::COMMON
};

const BUSY: Threshold = Threshold::new(
    "poll-thread-saturated.busy_share",
    "share of time in which the threads of a poll set are busy",
    Scale {
        notice: 0.60,
        warning: 0.85,
        critical: 0.97,
        source: "judgement: at 85 % an event waits for several others",
    },
);

/// If scheduler utilization is higher, the schedulers are the bottleneck.
const FULL_UTILIZATION: f64 = 0.9;

/// With fewer descriptors, one of them may be ready all the time because nothing reads it.
const MIN_DESCRIPTORS: f64 = 20.0;

/// Maximum number of poll threads with which the VM starts.
const MAX_THREADS: usize = 1_024;

/// One poll thread.
struct Thread<'a> {
    entity: &'a str,
    /// CPU use, as the operating system measures it.
    cores: f64,
    /// Share of time in which it worked, or waited for a lock.
    busy: f64,
}

/// The poll threads, and the number of poll sets that they share.
struct Polling<'a> {
    threads: Vec<Thread<'a>>,
    sets: usize,
}

impl<'a> Polling<'a> {
    fn of(period: &'a Period) -> Result<Self, Missing> {
        let mut threads = Vec::new();
        let mut entities = view::entities_of(period, metrics::THREAD_CPU.group, &[kind::POLL]);
        // `poll/10` must come after `poll/9`: the position determines the poll set.
        entities.sort_by_key(|entity| (entity.len(), *entity));
        for entity in entities {
            let cores = period.cores(&metrics::THREAD_CPU, entity)?;
            // A thread that waits for a lock uses no CPU, but events wait for it. Run-queue delay is caused by the host, and is subtracted.
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

    /// Returns the mean busy share of the busiest set: the threads of a set share its events.
    fn busiest_set(&self) -> f64 {
        let share = |set: usize| {
            let of_set = || self.threads.iter().skip(set).step_by(self.sets);
            of_set().map(|thread| thread.busy).sum::<f64>() / of_set().count().max(1) as f64
        };
        (0..self.sets).map(share).fold(0.0, f64::max)
    }
}

/// Returns the share of time in which a thread did not sleep, by microstate accounting.
fn awake(period: &Period, entity: &str) -> Option<f64> {
    let (mut asleep, mut total) = (0.0, 0.0);
    for (state, stat) in period.family(&metrics::MSACC, entity) {
        total += stat.delta as f64;
        asleep += if state == "sleep" { stat.delta as f64 } else { 0.0 };
    }
    (total > 0.0).then(|| 1.0 - asleep / total)
}

/// Returns the number of poll sets: `+IOp`, or `+IOPp` in percent of the threads, or one.
fn sets(period: &Period, threads: usize) -> usize {
    let number = |flag| view::emulator_flag(&period.facts, flag).value().and_then(|value| value.parse().ok());
    let by_share = || number("+IOPp").map(|percent: usize| threads.saturating_mul(percent) / 100);
    number("+IOp").or_else(by_share).unwrap_or(1).clamp(1, threads.max(1))
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let polling = Polling::of(period)?;
    let busy = polling.busiest_set();
    let utilization = view::activity(period, kind::SCHEDULER).map(|activity| activity.mean()).ok();
    let is_full = utilization.is_some_and(|utilization| utilization >= FULL_UTILIZATION);
    let threads = text::counted(polling.threads.len() as f64, "poll thread", "poll threads");
    match BUSY.of(period).severity(busy) {
        Some(severity) => {
            Ok(Judgement::found(describe(period, &polling, severity, utilization).minor_if(is_full)))
        }
        None => Ok(Judgement::Healthy(format!("{threads}, at most {:.0} % busy", busy * 100.0))),
    }
}

fn describe(period: &Period, polling: &Polling<'_>, severity: f64, utilization: Option<f64>) -> Draft {
    let Polling { threads, sets } = polling;
    let busy = polling.busiest_set();
    let is_full = utilization.is_some_and(|utilization| utilization >= FULL_UTILIZATION);
    let subject = match threads.len() {
        1 => "Poll thread".to_owned(),
        count if *sets == 1 => format!("{count} poll threads"),
        _ => format!("Threads of one of {sets} poll sets"),
    };
    let each: Vec<_> = threads.iter().take(8).map(|one| format!("{} {:.2}", one.entity, one.cores)).collect();
    let check_io = view::states(period, &[kind::POLL]).map(|states| states.get("check_io")).ok();
    let of_kernel = view::poll_sets(period);
    let descriptors = of_kernel.as_ref().and_then(|sets| sets.descriptors);
    let uses_epoll = of_kernel.is_some_and(|sets| sets.use_epoll);
    let more = (threads.len() * 2).min(MAX_THREADS);
    let prove = "poll thread CPU (top -H -p PID), packets received and latency under the same load";
    let descriptors_text =
        descriptors.map(|count| text::counted(count, "file descriptor", "file descriptors"));
    let cores: f64 = threads.iter().map(|one| one.cores).sum();
    Draft::new(severity, format!("{subject} {:.0} % busy: socket events wait", busy * 100.0))
        .detail(descriptors_text.unwrap_or_default())
        .detail(format!("{} cores", text::cores(cores)))
        .evidence(
            Evidence::number("busy share of the poll threads", busy, Unit::Ratio)
                .against_scale(BUSY.of(period)),
        )
        .evidence(Evidence::number("CPU of the poll threads", cores, Unit::Cores).with_text(each.join(", ")))
        .because_some(check_io.map(|cores| Evidence::number("msacc state check_io", cores, Unit::Cores)))
        .evidence(Evidence::number("poll sets", *sets as f64, Unit::Count).with_text(text::counted(
            threads.len() as f64,
            "thread",
            "threads",
        )))
        .because_some(
            descriptors.map(|count| Evidence::number("file descriptors in poll sets", count, Unit::Count)),
        )
        .because_some(
            utilization
                .map(|utilization| Evidence::number("scheduler utilization", utilization, Unit::Ratio)),
        )
        .but_if(is_full, "the schedulers are fully used too: earlier events would wait for them")
        .but_if(
            descriptors.is_some_and(|count| count < MIN_DESCRIPTORS),
            "with so few descriptors, one may be ready all the time without a reader",
        )
        .remedy(remedy::of(
            period,
            "socket.active",
            "use {active, true}, or {active, N} with a large N, instead of {active, once} and recv",
            "a socket enabled for each packet returns to the poll thread; schedulers poll the others",
            prove,
        ))
        .fix_if(view::emulator_flag(&period.facts, "+IOs").value() == Some("false"), || {
            remedy::of(
                period,
                "+IOs",
                "leave out +IOs false",
                "schedulers then poll descriptors that are nearly always ready",
                prove,
            )
        })
        // Without epoll, each thread needs its own set, and the remedy is another build.
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
                "lock contention in the only epoll set (perf top: a spin lock below ep_poll or epoll_ctl)",
                prove,
            )
        })
}
