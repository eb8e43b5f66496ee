//! BT003: more schedulers than CPUs that the VM may use.
//!
//! The VM sets the number of schedulers at start, from the CPUs that it detects. OTP before 23 ignores CPU quotas of control groups, and
//! releases up to 26 miss some of them. No release detects a quota that changes later, or one that is set on an outer group.

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Limit, Missing, Period, Scale, Subject, Threshold, Unit,
    facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT003"),
    name: "schedulers-against-quota",
    question: "Are there more schedulers than CPUs that the VM may use?",
    confirm: "set +S to the quota and compare under the same load (beamtune compare): run-queue delay and p99 fall",
    needs: &[&metrics::CPUS_ALLOWED],
    account: Account::CpuUnused,
    judge,
    thresholds: &[RATIO],
    ..Rule::COMMON
};

const RATIO: Threshold = Threshold::new(
    "schedulers-against-quota.schedulers_per_core",
    "schedulers online for each core that the VM may use",
    Scale {
        notice: 1.3,
        warning: 2.0,
        // The ratio alone costs little; throttling has its own rule.
        critical: 16.0,
        source: "judgement; an upgrade that changed the count by quota caused outages (erlang/otp#8450)",
    },
);

/// At or above this ratio, a burst of all schedulers uses up the quota in an eighth of each period, whatever they do now. While nothing is
/// lost, it is at most a warning (judgement).
const RISKY_RATIO: f64 = 8.0;
/// A smaller share of the CPU that the VM may use does not count as a loss; a burst would lose more (judgement).
const MIN_LOSS_SHARE: f64 = 0.01;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let capacity = view::capacity(period)?;
    let limit = capacity.allowed.min(capacity.quota.unwrap_or(f64::INFINITY));
    if limit <= 0.0 {
        return Err(Missing {
            what: "the number of CPUs that the VM may use".to_owned(),
            why: "the host reports zero".to_owned(),
            next_step: "look at the cpuset of the VM's control group".to_owned(),
        });
    }
    // There is at least one scheduler.
    let ratio = capacity.online / limit.max(1.0);
    let is_quota = capacity.quota.is_some_and(|quota| quota < capacity.allowed);
    let limit_name = if is_quota { "CPU quota" } else { "allowed CPUs" };
    let throttled = view::throttled_cores(period);
    // Wake-up latency does not depend on the number of schedulers. If the counters are missing, every delay counts as a loss.
    let is_wake_up =
        view::mean_run_queue_delay_seconds(period).is_ok_and(|seconds| seconds < view::MAX_WAKE_UP_SECONDS);
    let delayed = view::thread_cores(period, &metrics::THREAD_WAIT, &[view::kind::SCHEDULER])
        .ok()
        .map(|cores| if is_wake_up { 0.0 } else { cores });
    let loss = throttled.into_iter().chain(delayed).reduce(f64::max);
    // Without load, nothing is lost yet. That something will be lost is a guess.
    let is_harmless =
        throttled.is_some_and(|cores| cores < 0.001) && delayed.is_some_and(|cores| cores < 0.05);
    let severity = RATIO.of(period).severity(ratio);
    let fit = view::schedulers_that_fit(period, limit);
    let schedulers = text::counted(capacity.online, "scheduler", "schedulers");
    let limit_text = format!("{} ({limit_name})", text::counted(limit, "core", "cores"));
    // One scheduler for a fraction of a CPU is better than none.
    let Some(severity) = severity.filter(|_| capacity.online > fit as f64) else {
        return Ok(Judgement::Healthy(format!("{schedulers} for {limit_text}")));
    };
    let cpu_quota = period.facts.number(facts::CPU_QUOTA);
    let set = view::emulator_flag(&period.facts, "+S");
    let lost = loss.filter(|loss| *loss >= MIN_LOSS_SHARE * limit);
    Ok(Judgement::found(
        Draft::new(severity, format!("{schedulers} online for {limit_text}"))
            .detail(lost.map_or(String::new(), |loss| {
                match throttled.is_some_and(|throttled| throttled >= loss) {
                    true => format!("{} cores throttled by the quota", text::cores(loss)),
                    // Delays are summed over all threads, so they may exceed the number of CPUs.
                    false => format!("on average {} runnable schedulers wait for a CPU", text::rate(loss)),
                }
            }))
            .detail(set.value().map_or(String::new(), |value| format!("+S {value} is set")))
            .confidence(match is_harmless {
                true if ratio < RISKY_RATIO => Confidence::Guess,
                true => Confidence::Inferred,
                false => Confidence::Measured,
            })
            .about(is_quota.then_some(Subject::limit(Limit::CpuQuota)))
            .costs(lost.map(Cost::CpuCores))
            .evidence(Evidence::number("schedulers online", capacity.online, Unit::Count))
            .evidence(Evidence::number("cores that the VM may use", limit, Unit::Cores).with_text(limit_name))
            .evidence(
                Evidence::number("schedulers per core", ratio, Unit::Ratio).against_scale(RATIO.of(period)),
            )
            .evidence(match cpu_quota {
                Some(quota) => Evidence::number("quota as the VM sees it", quota as f64, Unit::Count),
                None => Evidence::text("quota as the VM sees it", "unknown"),
            })
            .because_some(set.value().map(|value| Evidence::text("flag", format!("+S {value}"))))
            .but_if(is_harmless, "no thread was throttled or delayed: nothing is lost yet")
            .remedy(remedy::of(
                period,
                "+S",
                &match set.value() {
                    Some(value) => format!("+S {fit}:{fit} in place of +S {value}, and restart the node"),
                    None => format!("+S {fit}:{fit}"),
                },
                "threads that cannot run at the same time take turns, and each has its own allocators",
                "throttled periods, context switches and p99 latency under the same load",
            ))
            .remedy(remedy::of(
                period,
                "system_flag.schedulers_online",
                &format!("erlang:system_flag(schedulers_online, {fit})"),
                "the same without a restart, as a test",
                "run beamtune doctor again: the number of schedulers online has changed",
            )),
    ))
}
