//! BT049: schedulers are bound to CPUs that other threads also use, and wait there while another CPU is idle.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, Scale, Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule};
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT049"),
    name: "bound-schedulers",
    question: "Are schedulers bound to CPUs that others use?",
    confirm: "run the same load with +sbt u (beamtune compare): run-queue delay falls",
    needs: &[&metrics::THREAD_CPU, &metrics::THREAD_WAIT, &metrics::CPU_IDLE],
    account: Account::CpuUnused,
    explains_run_queue: true,
    judge,
    thresholds: &[WAIT],
    ..Rule::COMMON
};

const WAIT: Threshold = Threshold::new(
    "bound-schedulers.wait_share",
    "share of their runnable time in which bound schedulers wait while another CPU is idle",
    Scale {
        notice: 0.05,
        warning: 0.15,
        critical: 0.50,
        source: "judgement: the kernel moves unbound threads within milliseconds",
    },
);

/// Minimum wait that is reported, in cores.
const MIN_CORES: f64 = 0.05;

/// A shorter wait is a notice, however large its share. Measured: RabbitMQ, which binds its schedulers, waits for 0.05 to 0.10 cores at
/// moderate load when its clients run on the same host.
const MIN_WARNING_CORES: f64 = 0.25;

/// Severity if the CPUs are not reserved for the VM, but nothing is lost yet.
const AT_RISK: f64 = 10.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let waited = view::thread_cores(period, &metrics::THREAD_WAIT, &[kind::SCHEDULER])?;
    let ran = view::thread_cores(period, &metrics::THREAD_CPU, &[kind::SCHEDULER])?;
    let idle = period.cores(&metrics::CPU_IDLE, "")?;
    let how = period.fact(facts::SCHEDULER_BIND_TYPE)?;
    let bindings = period.facts.list(facts::SCHEDULER_BINDINGS).unwrap_or_default();
    let cpus: Vec<&str> = bindings.iter().map(String::as_str).filter(|cpu| *cpu != "unbound").collect();
    if cpus.is_empty() {
        return Ok(Judgement::Healthy(match how {
            "unbound" => "schedulers not bound".to_owned(),
            how => format!("bind type {how}, but no scheduler is bound"),
        }));
    }
    // If no CPU is idle, an unbound thread would wait as well.
    let avoidable = waited.min(idle);
    let share = if ran + waited > 0.0 { avoidable / (ran + waited) } else { 0.0 };
    let quota = view::known_quota(period).ok().flatten();
    let host = period.facts.number(facts::HOST_CPUS);
    let allowed =
        period.facts.get(facts::CPUS_ALLOWED).and_then(view::cpu_list).map(|cpus| cpus.len() as i64);
    let is_restricted = host.zip(allowed).is_some_and(|(host, allowed)| allowed < host);
    let is_waking_up =
        view::mean_run_queue_delay_seconds(period).is_ok_and(|each| each < view::MAX_WAKE_UP_SECONDS);
    // Threads throttled by a quota are always runnable, bound or not.
    let by_waiting = WAIT
        .of(period)
        .severity(share)
        .filter(|_| avoidable >= MIN_CORES && !is_waking_up && !view::quota_used_up(period));
    let severity = match by_waiting {
        // The idle CPUs may be ones that the VM may not use, if it is restricted to some of the host's CPUs.
        Some(severity) if avoidable < MIN_WARNING_CORES || is_restricted => severity.min(MINOR),
        Some(severity) => severity,
        None if quota.is_some() || is_restricted => AT_RISK,
        None => {
            return Ok(Judgement::Healthy(format!(
                "{} bound schedulers: ran {ran:.2} cores, waited {waited:.2}",
                cpus.len()
            )));
        }
    };
    let waits = by_waiting.is_some();
    let flag =
        ["+sbt", "+stbt"].into_iter().find(|flag| view::emulator_flag(&period.facts, flag).value().is_some());
    let prove = "run-queue delay of the scheduler threads, and latency, under the same load";
    let binding = format!("{how}: CPU {}", first_cpus(&cpus));
    let (title, detail) = match waits {
        true => (
            format!("Bound schedulers wait {:.0} % of runnable time while CPUs are idle", share * 100.0),
            format!(
                "waited {} cores, ran {}, {} CPUs idle",
                text::cores(waited),
                text::cores(ran),
                text::cores(idle)
            ),
        ),
        false => (
            "Schedulers are bound to CPUs that others may use".to_owned(),
            "other VMs may bind their schedulers to the same CPUs".to_owned(),
        ),
    };
    let draft = Draft::new(severity, title)
        .detail(detail)
        .detail(format!("bound {binding}"))
        .costs(waits.then_some(Cost::CpuCores(avoidable)))
        .evidence(Evidence::text("binding", binding))
        .evidence(Evidence::number("run-queue delay of schedulers", waited, Unit::Cores))
        .evidence(Evidence::number("on-CPU time of schedulers", ran, Unit::Cores))
        .evidence(Evidence::number("idle CPUs of the host", idle, Unit::Cores))
        .evidence(
            Evidence::number("share of runnable time in which another CPU was idle", share, Unit::Ratio)
                .against_scale(WAIT.of(period)),
        )
        .because_some(quota.map(|quota| Evidence::number("CPU quota", quota, Unit::Cores)))
        .because_some(
            allowed
                .filter(|_| is_restricted)
                .map(|cpus| Evidence::number("CPUs that the VM may use", cpus as f64, Unit::Count)),
        )
        .but_if(
            waits && is_restricted,
            "the VM may use only some of the host's CPUs; the idle CPUs may be ones it may not use",
        )
        .but_if(waits, "bursts of a few milliseconds also wait while CPUs are idle: compare without binding")
        .but_if(!waits, "binding does no harm on CPUs reserved for this VM (cpuset, isolcpus)");
    Ok(Judgement::found(
        draft
            .remedy(remedy::of(
                period,
                flag.unwrap_or("+sbt"),
                &match flag {
                    Some(flag) => format!("{flag} u, or remove it"),
                    None => "remove erlang:system_flag(scheduler_bind_type, _) from the code".to_owned(),
                },
                "every VM that binds starts with the same CPUs, and the kernel cannot move a bound thread to a free one",
                prove,
            ))
            .remedy(remedy::of(
                period,
                "host.cpu_isolation",
                "or give each VM its own CPUs (cpuset, taskset), with as many schedulers, and keep the binding",
                "a VM binds only to CPUs that it may use",
                prove,
            )),
    ))
}

/// Formats the first CPUs of a list: `0, 1, 2 and 30 more`.
fn first_cpus(cpus: &[&str]) -> String {
    const MAX_SHOWN: usize = 16;
    match cpus.len() {
        count if count > MAX_SHOWN => {
            format!("{} and {} more", cpus[..MAX_SHOWN].join(", "), count - MAX_SHOWN)
        }
        _ => cpus.join(", "),
    }
}
