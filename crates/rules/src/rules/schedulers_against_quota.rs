//! BT003: more schedulers than the CPUs that the VM may use.
//!
//! The VM sets the number of schedulers at start, from the CPUs that it sees. OTP before 23 does not see
//! quotas of control groups at all, and releases up to 26 miss some; a quota that was changed later is
//! never seen, nor is one that an outer group sets.

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Limit, Missing, Period, Scale, Subject, Threshold, Unit,
    facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT003"),
    name: "schedulers-against-quota",
    question: "Do the schedulers fit the CPUs that the VM may use?",
    confirm: "+S as large as the quota under the same load: run-queue wait and p99 must fall (beamtune compare)",
    needs: &[&metrics::CPUS_ALLOWED],
    account: Account::CpuUnused,
    judge,
    thresholds: &[RATIO],
    ..Rule::COMMON
};

/// Schedulers online for each core that the VM may use.
const RATIO: Threshold = Threshold::new(
    "schedulers-against-quota.schedulers_per_core",
    "schedulers online for each core that the VM may use",
    Scale {
        notice: 1.3,
        warning: 2.0,
        // Alone this costs little; throttling is judged by its own rule.
        critical: 16.0,
        source: "judgement; an upgrade that changed the count by quota caused outages (erlang/otp#8450)",
    },
);

/// With so many times as many a burst of all of them uses up its quota in an eighth of each period, whatever they do now (judgement): a
/// warning, and no more while nothing is lost.
const MANY_TIMES: f64 = 8.0;
/// Less of what the VM may use than this is no loss to count; what a burst would lose is more (judgement).
const WORTH_SHARE: f64 = 0.01;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let capacity = view::capacity(period)?;
    let limit = capacity.allowed.min(capacity.quota.unwrap_or(f64::INFINITY));
    if limit <= 0.0 {
        return Err(Missing {
            what: "the number of CPUs that the VM may use".to_owned(),
            why: "the host says that it is zero".to_owned(),
            next: "look at the cpuset of the VM's control group".to_owned(),
        });
    }
    // Less than one scheduler is not to be had.
    let ratio = capacity.online / limit.max(1.0);
    let by_quota = capacity.quota.is_some_and(|quota| quota < capacity.allowed);
    let limit_name = if by_quota { "CPU quota" } else { "CPUs allowed" };
    let stopped = view::throttled_cores(period);
    // What waking up takes is waited for with any number of schedulers. Without the counters every wait is a loss.
    let wakes_up = view::wait_per_turn_seconds(period).is_ok_and(|seconds| seconds < view::TURN_SECONDS);
    let waited = view::thread_cores(period, &metrics::THREAD_WAIT, &[view::kind::SCHEDULER])
        .ok()
        .map(|cores| if wakes_up { 0.0 } else { cores });
    let loss = stopped.into_iter().chain(waited).reduce(f64::max);
    // Without load nothing can be lost; that it will be is a guess.
    let harmless = stopped.is_some_and(|cores| cores < 0.001) && waited.is_some_and(|cores| cores < 0.05);
    let severity = RATIO.of(period).severity(ratio);
    let fit = view::schedulers_that_fit(period, limit);
    // One that has but a part of a CPU is better than none for that part.
    let Some(severity) = severity.filter(|_| capacity.online > fit as f64) else {
        return Ok(Judgement::Healthy(format!(
            "{:.0} schedulers online for {limit:.2} cores ({limit_name})",
            capacity.online
        )));
    };
    let seen = period.facts.number(facts::CPU_QUOTA);
    Ok(Judgement::found(
        Draft::new(
            severity,
            format!(
                "{:.0} schedulers are online, but the VM may use {limit:.2} cores ({limit_name})",
                capacity.online
            ),
        )
        .confidence(match harmless {
            true if ratio < MANY_TIMES => Confidence::Guess,
            true => Confidence::Inferred,
            false => Confidence::Measured,
        })
        .about(by_quota.then_some(Subject::limit(Limit::CpuQuota)))
        .costs(loss.filter(|loss| *loss >= WORTH_SHARE * limit).map(Cost::CpuCores))
        .because(Evidence::number("schedulers online", capacity.online, Unit::Count))
        .because(Evidence::number("cores that the VM may use", limit, Unit::Cores).with_text(limit_name))
        .because(Evidence::number("schedulers per core", ratio, Unit::Ratio).against_scale(RATIO.of(period)))
        .because(match seen {
            Some(quota) => Evidence::number("CPUs by quota, as the VM sees them", quota as f64, Unit::Count),
            None => Evidence::text("CPUs by quota, as the VM sees them", "unknown"),
        })
        .because_some(
            view::emulator_flag(&period.facts, "+S")
                .value()
                .map(|value| Evidence::text("set by hand", format!("+S {value}"))),
        )
        .but_if(harmless, "no thread was stopped or kept waiting in this time, so nothing is lost yet")
        .fix(remedy::of(
            period,
            "+S",
            &format!("+S {fit}:{fit}"),
            "threads that cannot run at the same time only take turns, and each has its own allocators",
            "throttled periods, context switches and p99 latency under the same load",
        ))
        .fix(remedy::of(
            period,
            "system_flag.schedulers_online",
            &format!("erlang:system_flag(schedulers_online, {fit})"),
            "the same without a restart, to try it",
            "run beamtune doctor again: schedulers online must have changed",
        )),
    ))
}
