//! BT049: schedulers are bound to CPUs that others use too. They wait there while another CPU is idle.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, Scale, Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule};
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT049"),
    name: "bound-schedulers",
    question: "Are schedulers bound to CPUs that others use?",
    confirm: "the same load with +sbt u: run-queue wait must fall (beamtune compare)",
    needs: &[&metrics::THREAD_CPU, &metrics::THREAD_WAIT, &metrics::CPU_IDLE],
    account: Account::CpuUnused,
    has_the_cpu: true,
    judge,
    thresholds: &[WAIT],
    ..Rule::COMMON
};

/// Of the time in which bound schedulers wanted a CPU, the share in which they waited though another one was idle.
const WAIT: Threshold = Threshold::new(
    "bound-schedulers.wait_share",
    "share of the time in which bound schedulers wait for their CPU while another one is idle",
    Scale {
        notice: 0.05,
        warning: 0.15,
        critical: 0.50,
        source: "judgement: threads that are not bound are moved within some milliseconds",
    },
);

/// Below this nothing is lost.
const WORTH_CORES: f64 = 0.05;

/// Below this, in cores, it is worth knowing, however large its share: RabbitMQ, which binds its schedulers by itself, waits for 0.05 to 0.10
/// cores at a moderate load beside its clients (measured).
const MUCH_CORES: f64 = 0.25;

/// Where nothing is lost yet, and the CPUs are not the VM's alone.
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
            "unbound" => "schedulers are not bound to CPUs".to_owned(),
            how => format!("binding ({how}) was asked for, and no scheduler is bound"),
        }));
    }
    // What is waited for while no CPU is idle would be waited for anyway.
    let in_vain = waited.min(idle);
    let share = if ran + waited > 0.0 { in_vain / (ran + waited) } else { 0.0 };
    let quota = view::known_quota(period).ok().flatten();
    let host = period.facts.number(facts::HOST_CPUS);
    let allowed =
        period.facts.get(facts::CPUS_ALLOWED).and_then(view::cpu_list).map(|cpus| cpus.len() as i64);
    let in_part = host.zip(allowed).is_some_and(|(host, allowed)| allowed < host);
    let is_waking_up = view::wait_per_turn_seconds(period).is_ok_and(|each| each < view::TURN_SECONDS);
    // Threads that the quota stops are ready to run all the while, bound or not.
    let by_waiting = WAIT
        .of(period)
        .severity(share)
        .filter(|_| in_vain >= WORTH_CORES && !is_waking_up && !view::quota_used_up(period));
    let severity = match by_waiting {
        // The CPUs that were idle may not be the VM's.
        Some(severity) if in_vain < MUCH_CORES || in_part => severity.min(MINOR),
        Some(severity) => severity,
        None if quota.is_some() || in_part => AT_RISK,
        None => {
            return Ok(Judgement::Healthy(format!(
                "{} schedulers are bound, ran for {ran:.2} cores and waited for {waited:.2}",
                cpus.len()
            )));
        }
    };
    let lost = by_waiting.is_some();
    let flag =
        ["+sbt", "+stbt"].into_iter().find(|flag| view::emulator_flag(&period.facts, flag).value().is_some());
    let prove = "run-queue wait of the scheduler threads, and latency, under the same load";
    let draft = Draft::new(
        severity,
        match lost {
            true => format!(
                "schedulers are bound to CPUs that others use: they wait in {:.0} % of the time in which they want to run, while {idle:.2} CPUs are idle",
                share * 100.0
            ),
            false => "schedulers are bound to CPUs, though the VM has no CPUs of its own: others may be bound to the same".to_owned(),
        },
    )
    .costs(lost.then_some(Cost::CpuCores(in_vain)))
    .because(Evidence::text("bound", how).with_text(format!("{how}: to CPU {}", told(&cpus))))
    .because(Evidence::number("schedulers kept waiting for a CPU", waited, Unit::Cores))
    .because(Evidence::number("schedulers on a CPU", ran, Unit::Cores))
    .because(Evidence::number("idle CPUs of the host", idle, Unit::Cores))
    .because(Evidence::number("share of waiting while a CPU was idle", share, Unit::Ratio).against_scale(WAIT.of(period)))
    .because_some(quota.map(|quota| Evidence::number("CPU quota", quota, Unit::Cores)))
    .because_some(allowed.filter(|_| in_part).map(|cpus| Evidence::number("CPUs that the VM may run on", cpus as f64, Unit::Count)))
    .but_if(lost && in_part, "the VM may run on some of the host's CPUs only: those that were idle may be others")
    .but_if(lost, "bursts of a few milliseconds wait on a host with idle CPUs, too: compare without binding")
    .but_if(!lost, "on CPUs that are kept for this VM alone (cpuset, isolcpus) binding does no harm");
    Ok(Judgement::found(
        draft
            .fix(remedy::of(
                period,
                flag.unwrap_or("+sbt"),
                &match flag {
                    Some(flag) => format!("{flag} u, or leave it out"),
                    None => "leave schedulers unbound: no erlang:system_flag(scheduler_bind_type, _)".to_owned(),
                },
                "every VM that binds begins with the same CPUs, and the kernel may not move a bound thread to a free one",
                prove,
            ))
            .fix(remedy::of(
                period,
                "host.cpu_isolation",
                "or CPUs of its own for each VM (cpuset, taskset), with as many schedulers, and keep it bound to these",
                "a VM binds only to CPUs that it may use",
                prove,
            )),
    ))
}

/// CPUs as a person reads them: not more than a line.
fn told(cpus: &[&str]) -> String {
    const MOST: usize = 16;
    match cpus.len() {
        count if count > MOST => format!("{} and {} more", cpus[..MOST].join(", "), count - MOST),
        _ => cpus.join(", "),
    }
}
