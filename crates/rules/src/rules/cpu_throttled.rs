//! BT002: the kernel throttles the VM because its control group has used up its CPU quota.

use beamtune_model::{
    Account, Code, Cost, CpuUse, Evidence, Limit, Missing, Period, Scale, Signal, Subject, Threshold, Unit,
    facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule};
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT002"),
    name: "cpu-throttled",
    question: "Does a CPU quota throttle the VM?",
    confirm: "watch nr_throttled in cpu.stat of the control group under load: it grows, and stops growing with a larger quota",
    needs: &[&metrics::CGROUP_THROTTLED, &metrics::CGROUP_THROTTLED_TIME, &metrics::PROCESS_USER],
    account: Account::CpuUnused,
    role: Role::Symptom,
    explains_run_queue: true,
    judge,
    thresholds: &[PERIODS],
    ..Rule::COMMON
};

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

/// If less time was throttled, the share of periods is meaningless: for an idle group, the kernel counts only the few periods in which it
/// runs.
const MIN_CORES: f64 = 0.01;

/// Dirty CPU schedulers that use at least this share of the quota are part of the cause.
const MIN_DIRTY_SHARE: f64 = 0.25;

/// Dirty CPU schedulers that use up a quota together with the normal ones.
struct Dirty {
    /// CPU of all of them, in cores.
    cores: f64,
    online: i64,
    /// Number of them that can work all the time together with the normal ones.
    fit: i64,
}

impl Dirty {
    /// `quota` is what other processes of the group leave. Returns `None` if dirty CPU schedulers use little of it, or if fewer of them do
    /// not help.
    ///
    /// By default, as many of them are online as normal schedulers, so both together may want twice the quota. Measured on OTP 25 with a
    /// quota of 1.35 cores and two normal schedulers: two dirty ones had the group throttled in 49 to 75 % of the periods. Requests on
    /// normal schedulers then waited for up to 128 ms. With one, the group was never throttled, requests waited for up to 4 ms, and as much
    /// work was done.
    fn of(period: &Period, quota: f64) -> Option<Dirty> {
        let cores = view::thread_cores(period, &metrics::THREAD_CPU, &[kind::DIRTY_CPU]).ok()?;
        let normal = view::thread_cores(period, &metrics::THREAD_CPU, &[kind::SCHEDULER]).ok()?;
        let facts = [facts::DIRTY_CPU_SCHEDULERS_ONLINE, facts::DIRTY_CPU_SCHEDULERS];
        let online = facts.into_iter().find_map(|fact| period.facts.number(fact))?;
        let fit = (quota - normal).floor().max(1.0) as i64;
        // If even one of them exceeds the quota, fewer do not help.
        let helps = fit < online && normal + fit as f64 <= quota;
        (cores >= MIN_DIRTY_SHARE * quota && helps).then_some(Dirty { cores, online, fit })
    }
}

/// CPU use below this share of the quota fits on average: the quota is used up in bursts (judgement).
const MAX_SUFFICIENT_SHARE: f64 = 0.9;

/// Steps in which quotas are advised, in cores (judgement: people use halves).
const QUOTA_STEP_CORES: f64 = 0.5;

/// Returns the smallest step that is above the quota and covers the CPU wanted. Throttled time counts each CPU of the group on which
/// threads were stopped, so used and throttled time add up to the CPU wanted.
fn fitting_quota(quota: f64, wanted: f64) -> f64 {
    let above = ((quota / QUOTA_STEP_CORES).floor() + 1.0) * QUOTA_STEP_CORES;
    above.max((wanted / QUOTA_STEP_CORES).ceil() * QUOTA_STEP_CORES)
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let Some(quota) = view::known_quota(period)? else {
        return Ok(Judgement::Healthy("no CPU quota".to_owned()));
    };
    let throttled = period.cores(&metrics::CGROUP_THROTTLED_TIME, "cpu")?;
    period.rate(&metrics::CGROUP_THROTTLED, "cpu")?;
    let share = view::throttled_share(period).unwrap_or(0.0);
    let used = view::process_cores(period)?;
    let Some(severity) = PERIODS.of(period).severity(share) else {
        return Ok(Judgement::Healthy(format!(
            "CPU quota {quota:.2} cores, {used:.2} used; throttled in {:.1} % of periods",
            share * 100.0
        )));
    };
    let online = view::schedulers_online(period).ok();
    let fit = view::schedulers_that_fit(period, quota);
    let busy_wait_off = view::busy_waiting_off(&period.facts);
    let group = period.cores(&metrics::CGROUP_USAGE, "cpu").ok();
    let suffices = group.unwrap_or(used) < MAX_SUFFICIENT_SHARE * quota;
    let consumed = group.unwrap_or(used).max(used);
    let allowed = period.stat(&metrics::CPUS_ALLOWED, "").map_or(f64::INFINITY, |stat| stat.mean());
    let wanted = (consumed + throttled).min(allowed.max(consumed));
    let fitting = fitting_quota(quota, wanted);
    let dirty = Dirty::of(period, quota - group.map_or(0.0, |group| (group - used).max(0.0)));
    let title = format!(
        "CPU quota of {} cores throttles the VM in {:.0} % of periods",
        text::cores(quota),
        share * 100.0
    );
    Ok(Judgement::found(
        Draft::new(severity, title)
        .detail(match suffices {
            true => format!("the VM uses {} cores: it is throttled in bursts", text::cores(used)),
            false => format!(
                "about {} cores wanted: {} used, {} throttled",
                text::cores(wanted),
                text::cores(consumed),
                text::cores(throttled)
            ),
        })
        .detail(dirty.as_ref().map_or_else(String::new, |dirty| {
            format!("dirty CPU schedulers use {} cores", text::cores(dirty.cores))
        }))
        .minor_if(throttled < MIN_CORES)
        .about(Subject::limit(Limit::CpuQuota))
        .signals(suffices.then_some(Signal::QuotaSuffices))
        .costs(Cost::CpuCores(throttled))
        .part(CpuUse::Quota)
        .evidence(
            Evidence::number("throttled periods", share, Unit::Ratio)
                .against_scale(PERIODS.of(period)),
        )
        .evidence(Evidence::number("CPU quota", quota, Unit::Cores))
        .evidence(Evidence::number("CPU of the VM", used, Unit::Cores))
        .because_some(
            group.map(|cores| Evidence::number("CPU of the control group", cores, Unit::Cores)),
        )
        .evidence(Evidence::number("throttled time, per second", throttled, Unit::Cores))
        .evidence(Evidence::number("CPU wanted: used and throttled", wanted, Unit::Cores))
        .because_some(online.map(|n| Evidence::number("schedulers online", n, Unit::Count)))
        .because_some(dirty.as_ref().map(|dirty| {
            Evidence::number("CPU of the dirty CPU schedulers", dirty.cores, Unit::Cores)
                .with_text(format!("{} online, in addition to the normal ones", dirty.online))
        }))
        .but_if(throttled < MIN_CORES, "hardly any time was lost: the group ran in few periods")
        .but_if(
            period.facts.flag(facts::CGROUP_REACHES_ROOT) == Some(false),
            "parent groups are not visible from here; they may have a tighter quota",
        )
        .but_if(
            group.is_some_and(|group| group > 1.2 * used + 0.05),
            "other processes of the control group also use the quota",
        )
        .remedy(remedy::of(
            period,
            "host.cpu_quota",
            &format!(
                "raise the quota to {fitting:.1} cores (Kubernetes: limits.cpu: {:.0}m; systemd: CPUQuota={:.0}%), or remove it",
                fitting * 1_000.0,
                fitting * 100.0
            ),
            "the VM is then not throttled while it has work",
            "throttled_periods stop growing under the same load",
        ))
        .fix_if(online.is_some_and(|n| n > fit as f64), || {
            remedy::of(
                period,
                "+S",
                &format!("+S {fit}:{fit} +SDcpu {0}:{0}", dirty.as_ref().map_or(fit, |dirty| dirty.fit.min(fit))),
                "fewer threads use up the quota more slowly, so throttling starts later and is shorter",
                "p99 latency and throttled periods under the same load",
            )
        })
        .remedy(dirty.as_ref().and_then(|dirty| {
            remedy::of(
                period,
                "+SDcpu",
                &format!(
                    "+SDcpu :{0}; erlang:system_flag(dirty_cpu_schedulers_online, {0}) to try it",
                    dirty.fit
                ),
                "long jobs then wait for each other instead of stopping everything else",
                "throttled periods and p99 latency under the same load; the throughput of long jobs stays",
            )
        }))
        .fix_if(busy_wait_off.is_some(), || {
            remedy::of(
                period,
                "+sbwt",
                &busy_wait_off.unwrap_or_default(),
                "busy waiting counts against the quota",
                "throttled periods and CPU per request under the same load",
            )
        }),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advised_quota_covers_the_cpu_wanted() {
        let check = |quota: f64, wanted: f64, expect: f64| assert_eq!(fitting_quota(quota, wanted), expect);
        check(0.15, 0.98, 1.0);
        check(0.5, 1.2, 1.5);
        // In bursts, the mean CPU wanted is below the quota.
        check(1.0, 0.8, 1.5);
        check(1.9, 3.4, 3.5);
    }
}
