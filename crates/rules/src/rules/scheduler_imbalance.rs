//! BT050: processes wait in the run queues of some schedulers while other schedulers are idle.
//!
//! An idle scheduler steals work from other run queues. So this lasts only if the VM may not migrate the processes: they were started with
//! the option `{scheduler, N}`, or set it with `process_flag/2`.

use beamtune_model::cpu::entities_of;
use beamtune_model::{
    Account, Code, Cost, Evidence, Group, Missing, Period, Scale, SeriesStat, Subject, Threshold, Unit,
    metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT050"),
    name: "scheduler-imbalance",
    question: "Do processes wait for one scheduler while others are idle?",
    confirm: "call erlang:statistics(run_queue_lengths) several times: the same queue is long each time, and others are empty",
    needs: &[&metrics::SCHEDULER_ACTIVE, &metrics::SCHEDULER_TOTAL, &metrics::RUN_QUEUE],
    account: Account::CpuUnused,
    judge,
    thresholds: &[LOST],
    ..Rule::COMMON
};

const LOST: Threshold = Threshold::new(
    "scheduler-imbalance.lost_share",
    "share of the schedulers' time in which one is idle while work waits for another",
    Scale {
        notice: 0.05,
        warning: 0.15,
        critical: 0.60,
        source: "judgement: the same schedulers could do this much more",
    },
);

/// A scheduler is overloaded at this utilization …
const BUSY_UTILIZATION: f64 = 0.9;
/// … if its mean run queue is this long.
const MIN_QUEUE: f64 = 1.5;

/// A scheduler with a shorter mean run queue runs new work immediately. (Sometimes beamtune's agent is in the queue.)
const EMPTY_QUEUE: f64 = 0.5;

/// Minimum number of samples of the run queues for a meaningful mean.
const MIN_SAMPLES: u32 = 5;

/// Maximum number of schedulers that a title lists.
const MAX_LISTED: usize = 8;

/// A normal scheduler.
struct Scheduler<'a> {
    number: &'a str,
    utilization: f64,
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
        if queue.samples < MIN_SAMPLES {
            return Ok(Judgement::NotJudged {
                reason: format!("only {} samples of the run queues", queue.samples),
                next: "record for longer: --for 10s".to_owned(),
            });
        }
        all.push(Scheduler {
            number,
            utilization: (active / total.max(1.0)).clamp(0.0, 1.0),
            queue: SeriesStat::mean(queue),
        });
    }
    if all.is_empty() {
        period.rate(&metrics::SCHEDULER_ACTIVE, "scheduler/1")?;
    }
    let (busy, rest): (Vec<&Scheduler<'_>>, Vec<&Scheduler<'_>>) =
        all.iter().partition(|one| one.utilization >= BUSY_UTILIZATION && one.queue >= MIN_QUEUE);
    let waiting: f64 = busy.iter().map(|one| one.queue).sum();
    let idle: f64 = rest.iter().filter(|one| one.queue < EMPTY_QUEUE).map(|one| 1.0 - one.utilization).sum();
    let lost = waiting.min(idle);
    let share = lost / online.max(1.0);
    let Some(severity) = LOST.of(period).severity(share) else {
        return Ok(Judgement::Healthy(match busy.len() {
            0 => "no overloaded scheduler".to_owned(),
            busy => format!("{busy} of {online:.0} schedulers overloaded, the others busy too"),
        }));
    };
    let numbers: Vec<&str> = busy.iter().map(|one| one.number).take(MAX_LISTED).collect();
    let numbers = numbers.join(", ");
    let noun = if busy.len() == 1 { "scheduler" } else { "schedulers" };
    // +sub true implies +scl false, which a later +scl true overrides.
    let is = |flag, value| view::emulator_flag(&period.facts, flag).value() == Some(value);
    let (by_utilization, no_compaction) = (is("+sub", "true") && !is("+scl", "true"), is("+scl", "false"));
    let prove = "run queue of each scheduler (beamtune show --view schedulers), throughput and latency under the same load";
    Ok(Judgement::found(
        Draft::new(
            severity,
            format!("{} processes wait for {noun} {numbers}, others idle", text::rate(waiting)),
        )
        .detail(format!("{} schedulers idle", text::rate(idle)))
        .detail("likely bound with {scheduler, N}, so that the VM does not migrate them")
        .about(Subject::Threads { name: format!("scheduler {numbers}") })
        .costs(Cost::Waiting(waiting))
        .evidence(Evidence::number("processes waiting there, mean", waiting, Unit::Count))
        .evidence(Evidence::number("idle schedulers, mean", idle, Unit::Count))
        .evidence(Evidence::number("share of scheduler time lost", share, Unit::Ratio).against_scale(LOST.of(period)))
        .evidence(Evidence::number("schedulers online", online, Unit::Count))
        .because_some((by_utilization || no_compaction).then(|| {
            let flag = if by_utilization { "+sub true" } else { "+scl false" };
            Evidence::text("compaction of load", format!("switched off ({flag})"))
        }))
        .counter_evidence("a NIF call that never yields blocks a run queue only until other schedulers have stolen from it (long-schedule)")
        .remedy(remedy::of(
            period,
            "code.unbound_processes",
            "remove {scheduler, N} from spawn_opt and process_flag",
            "the VM migrates processes that are not bound to idle schedulers",
            prove,
        ))
        .fix_if(by_utilization, || remedy::of(period, "+sub", "+sub false, or leave it out", DEFAULT, prove))
        .fix_if(no_compaction, || remedy::of(period, "+scl", "+scl true, or leave it out", DEFAULT, prove)),
    ))
}

const DEFAULT: &str = "it is the default, and what other nodes run with";
