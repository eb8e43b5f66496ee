//! BT050: processes wait for some schedulers while others have nothing to do.
//!
//! A scheduler without work takes some from another's run queue, so this does not last, unless the VM may not move the work: processes
//! that were started with the option `{scheduler, N}`, or set it by `process_flag/2`.

use beamtune_model::cpu::entities_of;
use beamtune_model::{
    Account, Code, Cost, Evidence, Group, Missing, Period, Scale, SeriesStat, Subject, Threshold, Unit,
    metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT050"),
    name: "scheduler-imbalance",
    question: "Do processes wait for one scheduler while others idle?",
    confirm: "erlang:statistics(run_queue_lengths) some times: always the same queue is long, and others are empty",
    needs: &[&metrics::SCHEDULER_ACTIVE, &metrics::SCHEDULER_TOTAL, &metrics::RUN_QUEUE],
    account: Account::CpuUnused,
    judge,
    thresholds: &[LOST],
    ..Rule::COMMON
};

/// Of the schedulers' time, the share in which one idles while work waits for another.
const LOST: Threshold = Threshold::new(
    "scheduler-imbalance.lost_share",
    "share of the schedulers' time in which one idles while work waits for another",
    Scale {
        notice: 0.05,
        warning: 0.15,
        critical: 0.60,
        source: "judgement: so much more could be done by the same schedulers",
    },
);

/// A scheduler that is active for this share of the time …
const BUSY: f64 = 0.9;
/// … and so many processes wait for, on the average, has too much work.
const WAITING: f64 = 1.5;

/// A scheduler whose queue is shorter than this, on the average, takes what comes at once. (Our own agent is one at times.)
const EMPTY: f64 = 0.5;

/// Looks at the queues without which a mean says nothing.
const ENOUGH_LOOKS: u32 = 5;

/// A normal scheduler.
struct Scheduler<'a> {
    number: &'a str,
    active: f64,
    queue: f64,
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let online = view::schedulers_online(period)?;
    let mut all = Vec::new();
    for entity in entities_of(period, Group::SchedulerTime, &[kind::SCHEDULER]) {
        let number = entity.rsplit('/').next().unwrap_or(entity);
        if number.parse().is_ok_and(|number: f64| number > online) {
            continue;
        }
        let active = period.rate(&metrics::SCHEDULER_ACTIVE, entity)?;
        let total = period.rate(&metrics::SCHEDULER_TOTAL, entity)?;
        let queue = period.stat(&metrics::RUN_QUEUE, entity)?;
        if queue.samples < ENOUGH_LOOKS {
            return Ok(Judgement::NotJudged {
                reason: format!("the run queues were looked at {} times only", queue.samples),
                next: "record for longer: --for 10s".to_owned(),
            });
        }
        all.push(Scheduler {
            number,
            active: (active / total.max(1.0)).clamp(0.0, 1.0),
            queue: SeriesStat::mean(queue),
        });
    }
    if all.is_empty() {
        period.rate(&metrics::SCHEDULER_ACTIVE, "scheduler/1")?;
    }
    let (busy, rest): (Vec<&Scheduler<'_>>, Vec<&Scheduler<'_>>) =
        all.iter().partition(|one| one.active >= BUSY && one.queue >= WAITING);
    let waiting: f64 = busy.iter().map(|one| one.queue).sum();
    let idle: f64 = rest.iter().filter(|one| one.queue < EMPTY).map(|one| 1.0 - one.active).sum();
    let lost = waiting.min(idle);
    let share = lost / online.max(1.0);
    let Some(severity) = LOST.of(period).severity(share) else {
        return Ok(Judgement::Healthy(match busy.len() {
            0 => "no scheduler has more work than it can do while another one idles".to_owned(),
            busy => format!(
                "{busy} of {online:.0} schedulers have processes waiting, and the others are busy as well"
            ),
        }));
    };
    let numbers: Vec<&str> = busy.iter().map(|one| one.number).take(8).collect();
    let numbers = numbers.join(", ");
    // +sub true implies +scl false, and +scl true behind it takes it back.
    let is = |flag, value| view::emulator_flag(&period.facts, flag).value() == Some(value);
    let (by_use, no_compaction) = (is("+sub", "true") && !is("+scl", "true"), is("+scl", "false"));
    let prove = "run queues of the single schedulers (beamtune show --view schedulers), throughput and latency under the same load";
    Ok(Judgement::found(
        Draft::new(
            severity,
            format!(
                "{waiting:.1} processes wait for scheduler {numbers}, while {idle:.1} other schedulers are idle: the VM may not move them"
            ),
        )
        .about(Subject::Threads { name: format!("scheduler {numbers}") })
        .costs(Cost::Waiting(waiting))
        .because(Evidence::number("processes waiting there, on the average", waiting, Unit::Count))
        .because(Evidence::number("schedulers idle, on the average", idle, Unit::Count))
        .because(Evidence::number("of the schedulers' time lost", share, Unit::Ratio).against_scale(LOST.of(period)))
        .because(Evidence::number("schedulers online", online, Unit::Count))
        .because_some((by_use || no_compaction).then(|| {
            let flag = if by_use { "+sub true" } else { "+scl false" };
            Evidence::text("compaction of load", format!("switched off ({flag})"))
        }))
        .but("a call of a NIF that never gives up its scheduler keeps what was queued there only until others have taken it: see long-schedule")
        .fix(remedy::of(
            period,
            "code.unbound_processes",
            "look for {scheduler, N} in spawn_opt and process_flag, and take it away",
            "processes that are not bound go to the scheduler that has nothing to do",
            prove,
        ))
        .fix_if(by_use, || {
            remedy::of(period, "+sub", "+sub false, or leave it out", "the default, with which everybody else runs", prove)
        })
        .fix_if(no_compaction, || {
            remedy::of(period, "+scl", "+scl true, or leave it out", "the default, with which everybody else runs", prove)
        }),
    ))
}
