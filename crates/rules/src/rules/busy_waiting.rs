//! BT001: CPU time that schedulers spend in busy wait.
//!
//! A scheduler without work spins for a while before it sleeps, because waking up is slow. Scheduler wall time counts that as idle, the
//! operating system counts it as CPU time. The difference is busy wait, minus the cost of going to sleep and waking up.

use beamtune_model::{
    Account, Code, Cost, CpuUse, Evidence, Missing, Period, Scale, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{BELOW_CRITICAL, Draft, Judgement, MINOR, Rule};
use crate::signals::busy_wait::{FLAGS, Spinning};
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT001"),
    name: "busy-waiting",
    question: "Is the CPU time of the schedulers work, or busy waiting?",
    confirm: "restart one node with the flags under the same load (beamtune compare): CPU falls and throughput stays",
    needs: &[&metrics::SCHEDULER_ACTIVE, &metrics::THREAD_CPU],
    account: Account::CpuUsed,
    text: Some("the output of msacc:start(10000), msacc:print()"),
    judge,
    thresholds: &[SHARE, DELAY],
    ..Rule::COMMON
};

const SHARE: Threshold = Threshold::new(
    "busy-waiting.cpu_share",
    "busy wait, share of the schedulers' CPU time",
    Scale {
        notice: 0.30,
        warning: 0.50,
        // Busy wait alone never hurts a node whose CPUs nothing else uses.
        critical: 2.0,
        source: "judgement; a passive TCP server at 2,500 requests/s busy-waits 90 % of its CPU time",
    },
);

/// Time in which threads of the VM were runnable and off-CPU, per core of busy wait. Busy wait does harm if other threads want the CPU, or
/// if it uses up a quota.
const DELAY: Threshold = Threshold::new(
    "busy-waiting.delayed_per_spun",
    "seconds in which threads of the VM were throttled or waited for a CPU, for each second of busy wait",
    Scale {
        notice: 0.25,
        warning: 0.50,
        critical: 2.0,
        source: "judgement: a second of busy wait delays another thread by as much",
    },
);

/// Minimum busy wait that is reported, in cores.
const MIN_CORES: f64 = 0.10;

/// Busy wait below this share of what the node may use is a notice (judgement: 0.1 cores is a lot out of two, and nothing out of
/// sixty-four).
const MINOR_SHARE: f64 = 0.05;

/// Without a quota, less busy wait than this is a notice (judgement: it costs power, but nothing waits for the CPU). So is any busy wait
/// with the default flags.
const MINOR_CORES: f64 = 0.20;

/// The msacc state in emulators with extra microstates.
const BUSY_WAIT: &str = "busy_wait";

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let (mut cpu, mut active, mut spun) = (0.0, 0.0, 0.0);
    let mut flags = Vec::new();
    let mut all_off = true;
    for (flag, kind) in FLAGS {
        let of_kind = match Spinning::of(period, flag, kind) {
            Ok(of_kind) => of_kind,
            Err(missing) => return by_microstates(period).ok_or(missing),
        };
        (cpu, active, spun) = (cpu + of_kind.cpu, active + of_kind.worked, spun + of_kind.spun);
        all_off &= of_kind.setting.value() == Some("none");
        flags.push((flag, of_kind.setting));
    }
    let share = if cpu > 0.0 { spun / cpu } else { 0.0 };
    let healthy = || {
        let off = if all_off { "; busy wait is off" } else { "" };
        Ok(Judgement::Healthy(format!("schedulers: {cpu:.2} cores of CPU, {active:.2} of work{off}")))
    };
    if spun < MIN_CORES {
        return healthy();
    }
    let Some(severity) = SHARE.of(period).severity(share) else { return healthy() };
    let has_quota = view::quota_cores(period).is_some();
    // With the default flags, busy wait costs only quota, and CPU that other threads wait for.
    let is_configured = flags.iter().any(|(_, setting)| setting.value().is_some_and(|value| value != "none"));
    let is_little = view::capacity(period).is_ok_and(|capacity| spun < MINOR_SHARE * capacity.cores)
        || (!has_quota && (!is_configured || spun < MINOR_CORES));
    let severity = if is_little { severity.min(MINOR) } else { severity };

    // Busy wait certainly makes throttling worse, but run-queue delay may be caused by neighbours alone.
    let throttled = view::throttled_cores(period).unwrap_or(0.0);
    let waited = view::thread_cores(period, &metrics::THREAD_WAIT, kind::SCHEDULERS).unwrap_or(0.0);
    let by_quota = DELAY.of(period).severity(throttled / spun).filter(|_| throttled >= 0.05);
    // Shorter waits are wake-ups, not a lack of CPU.
    let long_turns =
        view::mean_run_queue_delay_seconds(period).is_ok_and(|turn| turn >= view::MAX_WAKE_UP_SECONDS);
    let by_neighbours = DELAY.of(period).severity(waited / spun).filter(|_| waited >= 0.05 && long_turns);
    let severity =
        severity.max(by_quota.unwrap_or(0.0)).max(by_neighbours.unwrap_or(0.0).min(BELOW_CRITICAL));

    let states = view::states(period, kind::SCHEDULERS).ok();
    let state = |name: &str| {
        let cores = states.as_ref()?.get(name);
        Some(Evidence::number(format!("msacc state {name}"), cores, Unit::Cores))
    };
    let set: Vec<_> = flags.iter().map(|(flag, setting)| format!("{flag} {setting}")).collect();
    let off = view::busy_waiting_off(&period.facts).unwrap_or_default();
    let first_flag: Vec<&str> = off.split(' ').take(2).collect();
    let title = format!("Busy wait uses {} cores: {} frees them", text::cores(spun), first_flag.join(" "));
    Ok(Judgement::found(
        Draft::new(severity, title)
            .detail(format!(
                "{:.0} % of the schedulers' CPU time; {} cores on CPU, {} of them work",
                share * 100.0,
                text::cores(cpu),
                text::cores(active)
            ))
            .costs(Cost::CpuCores(spun))
            // The stake is what can be gained: if nothing else wants the CPUs, freeing them gains nothing.
            .share((is_little && by_quota.is_none() && by_neighbours.is_none() && !has_quota).then_some(0.0))
            .part(CpuUse::BusyWaiting)
            .evidence(Evidence::number("CPU time of scheduler threads", cpu, Unit::Cores))
            .evidence(Evidence::number("scheduler utilization", active, Unit::Cores))
            .evidence(Evidence::number("busy wait, without sleep and wake-up", spun, Unit::Cores))
            .evidence(
                Evidence::number("busy wait, share of CPU time", share, Unit::Ratio)
                    .against_scale(SHARE.of(period)),
            )
            .because_some(state("other"))
            .because_some(state("emulator"))
            .evidence(Evidence::text("flags in effect", set.join(" ")))
            .because_some(by_quota.map(|_| {
                Evidence::number("throttled by the CPU quota", throttled, Unit::Cores)
                    .against(DELAY.of(period).warning * spun, DELAY.of(period).source)
            }))
            .because_some(by_neighbours.map(|_| {
                Evidence::number("run-queue delay of schedulers", waited, Unit::Cores)
                    .against(DELAY.of(period).warning * spun, DELAY.of(period).source)
            }))
            .but_if(
                by_quota.is_none() && by_neighbours.is_none() && !view::quota_used_up(period),
                "nothing else wants these CPUs: on a dedicated host busy wait costs power and makes wake-ups faster",
            )
            .but_if(
                by_neighbours.is_some(),
                "on a crowded host the effect can go either way (measured: −52 % CPU alone, +12 % crowded): compare under your load",
            )
            .counter_evidence("do not scale out based on the host's CPU usage: it includes busy wait")
            .remedy(remedy::of(
                period,
                "+sbwt",
                &off,
                "idle schedulers sleep immediately, and the CPU usage shows only work",
                "the same load with the flags: CPU falls towards scheduler utilization; watch p99",
            )),
    ))
}

/// Evaluates imported text of a build with extra microstates, which has a state for busy wait.
fn by_microstates(period: &Period) -> Option<Judgement> {
    let states = view::states(period, kind::SCHEDULERS).ok().filter(|_| period.is_imported())?;
    let awake = states.awake();
    let Some((_, spun)) = states.cores.iter().find(|(state, _)| state == BUSY_WAIT) else {
        return by_other(period, &states, awake);
    };
    let share = if awake > 0.0 { spun / awake } else { 0.0 };
    let sentence = format!("schedulers: {awake:.2} cores awake, {spun:.2} of busy wait");
    let Some(severity) = SHARE.of(period).severity(share).filter(|_| *spun >= MIN_CORES) else {
        return Some(Judgement::Healthy(sentence));
    };
    Some(Judgement::found(
        Draft::new(severity, format!("Busy wait takes {:.0} % of the schedulers' awake time", share * 100.0))
            .detail(format!("{} of {} cores awake", text::cores(*spun), text::cores(awake)))
            .costs(Cost::CpuCores(*spun))
            .part(CpuUse::BusyWaiting)
            .evidence(Evidence::number(format!("msacc state {BUSY_WAIT}"), *spun, Unit::Cores))
            .evidence(Evidence::number("all msacc states but sleep", awake, Unit::Cores))
            .evidence(
                Evidence::number("busy wait, share of awake time", share, Unit::Ratio)
                    .against_scale(SHARE.of(period)),
            )
            .counter_evidence(
                "how much of it was CPU time is unknown without numbers of the operating system",
            )
            .remedy(remedy::of(
                period,
                "+sbwt",
                &view::busy_waiting_off(&period.facts).unwrap_or_default(),
                "idle schedulers sleep immediately, and the CPU usage shows only work",
                "msacc again, with the flags under the same load; watch p99",
            )),
    ))
}

/// Evaluates imported text of an ordinary build, whose state `other` includes busy wait and scheduling: at most a notice.
fn by_other(period: &Period, states: &view::States, awake: f64) -> Option<Judgement> {
    let (_, other) = states.cores.iter().find(|(state, _)| state == "other")?;
    let emulator = states.get("emulator");
    let share = if awake > 0.0 { other / awake } else { 0.0 };
    if *other < MIN_CORES || share < SHARE.of(period).warning || *other <= emulator {
        return Some(Judgement::Healthy(format!(
            "schedulers: {awake:.2} cores awake, {other:.2} in msacc state other, which includes busy wait"
        )));
    }
    Some(Judgement::found(
        Draft::new(
            MINOR,
            format!("Likely busy wait: msacc state other is {:.0} % of awake time", share * 100.0),
        )
        .detail(format!("{} cores in other, {} in emulator", text::cores(*other), text::cores(emulator)))
        .evidence(Evidence::number("msacc state other", *other, Unit::Cores))
        .evidence(Evidence::number("msacc state emulator", emulator, Unit::Cores))
        .evidence(
            Evidence::number("other, share of awake time", share, Unit::Ratio)
                .against_scale(SHARE.of(period)),
        )
        .counter_evidence("other includes scheduling: very many short time slices look the same")
        .counter_evidence("how much of it was CPU time is unknown without numbers of the operating system (beamtune doctor has them)")
        .remedy(remedy::of(
            period,
            "+sbwt",
            &view::busy_waiting_off(&period.facts).unwrap_or_default(),
            "idle schedulers sleep immediately, and the CPU usage shows only work",
            "msacc again, with the flags under the same load: other turns into sleep; watch p99",
        )),
    ))
}
