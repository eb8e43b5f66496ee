//! BT035: fewer schedulers than the CPUs that the VM may use, while they are all busy and processes wait for them.

use beamtune_model::{Account, Code, Cost, Evidence, Missing, Period, Scale, Threshold, Unit, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT035"),
    name: "too-few-schedulers",
    question: "Are there schedulers for the CPUs that the VM may use?",
    confirm: "one more scheduler online at run time, under the same load: throughput must rise",
    needs: &[
        &metrics::CPUS_ALLOWED,
        &metrics::SCHEDULER_ACTIVE,
        &metrics::ACTIVE_TASKS,
        &metrics::THREAD_CPU,
    ],
    account: Account::CpuUnused,
    has_the_cpu: true,
    judge,
    thresholds: &[LEFT],
    ..Rule::COMMON
};

/// Of the CPUs that the VM may use, the share that no scheduler runs on.
const LEFT: Threshold = Threshold::new(
    "too-few-schedulers.unused_share",
    "share of the CPUs that the VM may use without a scheduler",
    Scale {
        notice: 0.01,
        warning: 0.25,
        critical: 0.75,
        source: "judgement: of what could be done, that share is not",
    },
);

/// Schedulers that are active for less than this have room left (judgement).
const BUSY: f64 = 0.8;

/// Processes that wait for each scheduler, from which on another one would have something to do (judgement; our own agent is one at times).
const WAITING: f64 = 0.5;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let capacity = view::capacity(period)?;
    let cores = capacity.allowed.min(capacity.quota.unwrap_or(f64::INFINITY)).floor();
    // Waiting for a CPU counts as activity, and spinning as CPU time.
    let cpu = view::thread_cores(period, &metrics::THREAD_CPU, &[kind::SCHEDULER])?;
    let active = view::activity(period, kind::SCHEDULER)?.mean().min(cpu / capacity.online.max(1.0));
    let waiting = (period.stat(&metrics::ACTIVE_TASKS, "")?.mean() - capacity.online).max(0.0);
    let left = if cores > 0.0 { (cores - capacity.online) / cores } else { 0.0 };
    let healthy = |what: String| {
        Ok(Judgement::Healthy(format!("{:.0} schedulers online for {cores:.0} CPUs{what}", capacity.online)))
    };
    let Some(severity) = LEFT.of(period).severity(left) else { return healthy(String::new()) };
    if active < BUSY || waiting < WAITING * capacity.online {
        return healthy(format!(
            ", which suffices: they are active for {:.0} % of the time, and {waiting:.1} processes wait",
            active * 100.0
        ));
    }
    let set = view::emulator_flag(&period.facts, "+S");
    let fit = cores as i64;
    let draft = Draft::new(
        severity,
        format!(
            "only {:.0} schedulers are online, all busy, with {waiting:.0} processes waiting, and the VM may use {cores:.0} CPUs",
            capacity.online
        ),
    )
    .costs(Cost::Waiting(waiting))
    .because(Evidence::number("schedulers online", capacity.online, Unit::Count))
    .because(Evidence::number("CPUs that the VM may use", cores, Unit::Count))
    .because(
        Evidence::number("of these without a scheduler", left, Unit::Ratio).against_scale(LEFT.of(period)),
    )
    .because(Evidence::number("time in which schedulers were active", active, Unit::Ratio))
    .because(Evidence::number("processes that waited for a scheduler, on the average", waiting, Unit::Count))
    .because_some(set.value().map(|value| Evidence::text("set by hand", format!("+S {value}"))))
    .but("if others need these CPUs too (the database beside it), it may be meant so");
    Ok(Judgement::found(
        draft
            .fix(remedy::of(
                period,
                "system_flag.schedulers_online",
                &format!("erlang:system_flag(schedulers_online, {fit}), if as many were started (system_info(schedulers))"),
                "to try it without a restart",
                "throughput, and CPU per request, under the same load",
            ))
            .fix(remedy::of(
                period,
                "+S",
                &match set.value() {
                    Some(value) => format!("leave out +S {value}, or +S {fit}:{fit}"),
                    None => format!("+S {fit}:{fit}"),
                },
                "each scheduler runs on one CPU at a time",
                "throughput, and CPU per request, under the same load",
            )),
    ))
}
