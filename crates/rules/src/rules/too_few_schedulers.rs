//! BT035: fewer schedulers than CPUs that the VM may use, while all of them are busy and processes wait for them.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, Scale, Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT035"),
    name: "too-few-schedulers",
    question: "Are there fewer schedulers than CPUs that the VM may use?",
    confirm: "set one more scheduler online at run time, under the same load: throughput rises",
    needs: &[
        &metrics::CPUS_ALLOWED,
        &metrics::SCHEDULER_ACTIVE,
        &metrics::ACTIVE_TASKS,
        &metrics::THREAD_CPU,
    ],
    account: Account::CpuUnused,
    explains_run_queue: true,
    judge,
    thresholds: &[UNUSED],
    ..Rule::COMMON
};

const UNUSED: Threshold = Threshold::new(
    "too-few-schedulers.unused_share",
    "share of the CPUs that the VM may use without a scheduler",
    Scale {
        notice: 0.01,
        warning: 0.25,
        critical: 0.75,
        source: "judgement: this share of the possible work is not done",
    },
);

/// Schedulers below this utilization have room left (judgement).
const MIN_UTILIZATION: f64 = 0.8;

/// At or above this number of waiting processes per scheduler, another scheduler would have work (judgement; sometimes beamtune's agent is
/// one of them).
const MIN_WAITING: f64 = 0.5;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let capacity = view::capacity(period)?;
    let cores = capacity.allowed.min(capacity.quota.unwrap_or(f64::INFINITY)).floor();
    // Active time includes run-queue delay, and CPU time includes busy wait. So the smaller of both is work.
    let cpu = view::thread_cores(period, &metrics::THREAD_CPU, &[kind::SCHEDULER])?;
    let utilization = view::activity(period, kind::SCHEDULER)?.mean().min(cpu / capacity.online.max(1.0));
    let waiting = (period.stat(&metrics::ACTIVE_TASKS, "")?.mean() - capacity.online).max(0.0);
    let unused = if cores > 0.0 { (cores - capacity.online) / cores } else { 0.0 };
    let schedulers = text::counted(capacity.online, "scheduler", "schedulers");
    let cpus = text::counted(cores, "CPU", "CPUs");
    let Some(severity) = UNUSED.of(period).severity(unused) else {
        return Ok(Judgement::Healthy(format!("{schedulers} online for {cpus}")));
    };
    if utilization < MIN_UTILIZATION || waiting < MIN_WAITING * capacity.online {
        return Ok(Judgement::Healthy(format!(
            "{schedulers} online for {cpus}: {:.0} % utilization, {} runnable processes waiting",
            utilization * 100.0,
            text::rate(waiting)
        )));
    }
    let set = view::emulator_flag(&period.facts, "+S");
    let fit = cores as i64;
    let processes = text::counted(waiting.round(), "runnable process", "runnable processes");
    let wait = if waiting.round() == 1.0 { "waits" } else { "wait" };
    let prove = "throughput, and CPU per request, under the same load";
    // Schedulers that were not started cannot be set online later.
    let started = period.facts.number(facts::SCHEDULERS);
    let at_start = remedy::of(
        period,
        "+S",
        &match set.value() {
            Some(value) => format!("+S {fit}:{fit} in place of +S {value}, and restart the node"),
            None => format!("+S {fit}:{fit}, and restart the node"),
        },
        "a scheduler uses one CPU at most",
        prove,
    );
    let at_run_time = started.is_none_or(|started| started >= fit).then(|| {
        remedy::of(
            period,
            "system_flag.schedulers_online",
            &match started {
                Some(_) => format!("erlang:system_flag(schedulers_online, {fit})"),
                None => format!(
                    "erlang:system_flag(schedulers_online, {fit}), if system_info(schedulers) is at least {fit}"
                ),
            },
            "a test without a restart",
            prove,
        )
    });
    Ok(Judgement::found(
        Draft::new(severity, format!("Only {schedulers} for {cpus}: {processes} {wait}"))
            .detail(format!("the schedulers are {:.0} % busy", utilization * 100.0))
            .detail(set.value().map_or(String::new(), |value| format!("+S {value} is set")))
            .costs(Cost::Waiting(waiting))
            .evidence(Evidence::number("schedulers online", capacity.online, Unit::Count))
            .because_some(
                started.map(|count| Evidence::number("schedulers started", count as f64, Unit::Count)),
            )
            .evidence(Evidence::number("CPUs that the VM may use", cores, Unit::Count))
            .evidence(
                Evidence::number("share of them without a scheduler", unused, Unit::Ratio)
                    .against_scale(UNUSED.of(period)),
            )
            .evidence(Evidence::number("scheduler utilization", utilization, Unit::Ratio))
            .evidence(Evidence::number("runnable processes waiting, mean", waiting, Unit::Count))
            .because_some(set.value().map(|value| Evidence::text("flag", format!("+S {value}"))))
            .counter_evidence(
                "it may be intended, if other programs need these CPUs (a database on the same host)",
            )
            .remedy(at_run_time.flatten())
            .remedy(at_start),
    ))
}
