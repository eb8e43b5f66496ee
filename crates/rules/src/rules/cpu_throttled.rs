//! BT002: the kernel stops the VM because its control group has used up its CPU quota.

use beamtune_model::{
    Account, Code, Cost, Evidence, Limit, Missing, Period, Scale, Signal, Subject, Threshold, Unit, Use,
    facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule};
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT002"),
    name: "cpu-throttled",
    question: "Does a CPU quota stop the VM?",
    confirm: "cpu.stat of the control group (nr_throttled) while the load runs; with a larger quota the stops must end",
    needs: &[&metrics::CGROUP_THROTTLED, &metrics::CGROUP_THROTTLED_TIME, &metrics::PROCESS_USER],
    account: Account::CpuUnused,
    role: Role::Symptom,
    has_the_cpu: true,
    judge,
    thresholds: &[PERIODS],
    ..Rule::COMMON
};

/// Share of the enforcement periods in which the group was stopped.
const PERIODS: Threshold = Threshold::new(
    "cpu-throttled.throttled_share",
    "share of the quota's periods in which the group was throttled",
    Scale {
        notice: 0.01,
        warning: 0.05,
        critical: 0.25,
        source: "judgement: each throttled period can delay a request by up to the rest of a 100 ms period",
    },
);

/// Below this, in cores, so little was stopped that the share of periods says nothing: an idle group is
/// counted only in the few periods in which it runs.
const WORTH_CORES: f64 = 0.01;

/// Dirty CPU schedulers that take more than this share of the quota have a part in it.
const DIRTY_SHARE: f64 = 0.25;

/// Dirty CPU schedulers that use up a quota beside the normal ones.
struct Dirty {
    /// CPU of all of them.
    cores: f64,
    online: i64,
    /// How many can work all the time beside what the normal ones use.
    fit: i64,
}

impl Dirty {
    /// Of what others of the group leave of the quota. `None` where they have little part in it, or cannot be fewer.
    ///
    /// As many as normal ones are online by default, so both together may want twice the quota: with a quota of 1.35 cores and two of each, two kept the group stopped in 49 to 75 % of the periods and
    /// requests of normal schedulers waiting for up to 128 ms, one in none and for up to 4 ms, with as much done (measured, OTP 25).
    fn of(period: &Period, quota: f64) -> Option<Dirty> {
        let cores = view::thread_cores(period, &metrics::THREAD_CPU, &[kind::DIRTY_CPU]).ok()?;
        let normal = view::thread_cores(period, &metrics::THREAD_CPU, &[kind::SCHEDULER]).ok()?;
        let facts = [facts::DIRTY_CPU_SCHEDULERS_ONLINE, facts::DIRTY_CPU_SCHEDULERS];
        let online = facts.into_iter().find_map(|fact| period.facts.number(fact))?;
        let fit = (quota - normal).floor().max(1.0) as i64;
        // One of them alone may be more than the quota has: then fewer are no help.
        let helps = fit < online && normal + fit as f64 <= quota;
        (cores >= DIRTY_SHARE * quota && helps).then_some(Dirty { cores, online, fit })
    }
}

/// Use below this share of the quota fits into it on average: it is used up in bursts (judgement).
const SUFFICES: f64 = 0.9;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let Some(quota) = view::known_quota(period)? else {
        return Ok(Judgement::Healthy("no CPU quota is set for the VM's control group".to_owned()));
    };
    let stopped = period.cores(&metrics::CGROUP_THROTTLED_TIME, "cpu")?;
    period.rate(&metrics::CGROUP_THROTTLED, "cpu")?;
    let share = view::throttled_share(period).unwrap_or(0.0);
    let used = view::process_cores(period)?;
    let Some(severity) = PERIODS.of(period).severity(share) else {
        return Ok(Judgement::Healthy(format!(
            "a quota of {quota:.2} cores is set and was not used up: {used:.2} cores used, {:.1} % of the periods throttled",
            share * 100.0
        )));
    };
    let online = view::schedulers_online(period).ok();
    let fit = view::schedulers_that_fit(period, quota);
    let spins = view::busy_waiting_off(&period.facts);
    let group = period.cores(&metrics::CGROUP_USAGE, "cpu").ok();
    let suffices = group.unwrap_or(used) < SUFFICES * quota;
    let dirty = Dirty::of(period, quota - group.map_or(0.0, |group| (group - used).max(0.0)));
    Ok(Judgement::found(
        Draft::new(
            severity,
            format!(
                "the CPU quota of {quota:.2} cores stopped the VM in {:.0} % of the periods of 100 ms or so, \
                 while it used {used:.2} cores",
                share * 100.0
            ),
        )
        .minor_if(stopped < WORTH_CORES)
        .about(Subject::limit(Limit::CpuQuota))
        .signals(suffices.then_some(Signal::QuotaSuffices))
        .costs(Cost::CpuCores(stopped))
        .part(Use::Quota)
        .because(
            Evidence::number("throttled periods", share, Unit::Ratio)
                .against_scale(PERIODS.of(period)),
        )
        .because(Evidence::number("quota", quota, Unit::Cores))
        .because(Evidence::number("CPU of the VM", used, Unit::Cores))
        .because_some(
            group.map(|cores| Evidence::number("CPU of the whole control group", cores, Unit::Cores)),
        )
        .because(Evidence::number("threads stopped, seconds per second", stopped, Unit::Cores))
        .because_some(online.map(|n| Evidence::number("schedulers online", n, Unit::Count)))
        .because_some(dirty.as_ref().map(|dirty| {
            Evidence::number("CPU of the dirty CPU schedulers", dirty.cores, Unit::Cores)
                .with_text(format!("{} online, beside the normal ones", dirty.online))
        }))
        .but_if(stopped < WORTH_CORES, "hardly any time was lost: the group ran in few periods")
        .but_if(
            period.facts.flag(facts::CGROUP_REACHES_ROOT) == Some(false),
            "groups further out cannot be seen from here; they may have a tighter quota",
        )
        .but_if(
            group.is_some_and(|group| group > 1.2 * used + 0.05),
            "other processes of the same control group use the quota too",
        )
        .fix(remedy::of(
            period,
            "host.cpu_quota",
            &format!(
                "raise the quota above {:.1} cores (Kubernetes: limits.cpu; systemd: CPUQuota=), or set none",
                (used * 1.5).max(quota + 0.5)
            ),
            "the VM then runs on when it has work",
            "throttled_periods must stop growing under the same load",
        ))
        .fix_if(online.is_some_and(|n| n > fit as f64), || {
            remedy::of(
                period,
                "+S",
                &format!("+S {fit}:{fit} +SDcpu {0}:{0}", dirty.as_ref().map_or(fit, |dirty| dirty.fit.min(fit))),
                "fewer threads use the quota up more slowly, so each stop is shorter and comes later",
                "p99 latency and throttled periods under the same load",
            )
        })
        .fix(dirty.as_ref().and_then(|dirty| {
            remedy::of(
                period,
                "+SDcpu",
                &format!(
                    "+SDcpu :{0}; erlang:system_flag(dirty_cpu_schedulers_online, {0}) to try it",
                    dirty.fit
                ),
                "long jobs then wait for each other, and no longer stop everything else with them",
                "throttled periods and p99 latency under the same load; what the long jobs get done should stay",
            )
        }))
        .fix_if(spins.is_some(), || {
            remedy::of(
                period,
                "+sbwt",
                &spins.unwrap_or_default(),
                "busy waiting counts against the quota",
                "throttled periods and CPU per request under the same load",
            )
        }),
    ))
}
