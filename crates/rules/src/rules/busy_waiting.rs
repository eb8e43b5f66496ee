//! BT001: CPU that the operating system shows and that no Erlang code used.
//!
//! Schedulers that run out of work spin for a while before they sleep, because waking up is slow. The
//! VM's own clock (scheduler wall time) calls that idle, the operating system calls it CPU. The
//! difference of the two is what spinning costs, less what going to sleep and waking up cost anyway.

use beamtune_model::{Account, Code, Cost, Evidence, Missing, Period, Scale, Threshold, Unit, Use, metrics};

use crate::remedy;
use crate::rule::{BELOW_CRITICAL, Draft, Judgement, MINOR, Rule};
use crate::signals::busy_wait::{FLAGS, Spinning};
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT001"),
    name: "busy-waiting",
    question: "Is the CPU time of the schedulers work, or busy waiting?",
    confirm: "restart one node with the flags under the same load: CPU that falls while throughput stays was spinning (beamtune compare)",
    needs: &[&metrics::SCHEDULER_ACTIVE, &metrics::THREAD_CPU],
    account: Account::CpuUsed,
    text: Some("what msacc:start(10000), msacc:print() prints"),
    judge,
    thresholds: &[SHARE, HURTS],
    ..Rule::COMMON
};

/// Share of the schedulers' CPU time that is not work.
const SHARE: Threshold = Threshold::new(
    "busy-waiting.cpu_share",
    "busy waiting, share of the schedulers' CPU time",
    Scale {
        notice: 0.30,
        warning: 0.50,
        // Spinning alone never hurts a node that has its CPUs for itself.
        critical: 2.0,
        source: "judgement; a passive TCP server at 2,500 requests/s spins 90 % of its CPU time",
    },
);

/// Where others want the CPU, or a quota counts it, spinning hurts: seconds per second in which threads of the VM
/// were kept off the CPU, for each core that it spins.
const HURTS: Threshold = Threshold::new(
    "busy-waiting.delayed_per_spun",
    "seconds in which threads of the VM were kept off the CPU, for each second of busy waiting",
    Scale {
        notice: 0.25,
        warning: 0.50,
        critical: 2.0,
        source: "judgement: who spins for a second keeps somebody waiting",
    },
);

/// Below this nobody would win anything by a change.
const WORTH_CORES: f64 = 0.10;

/// Less of what the node could use than this is a notice: 0.1 cores are much of two, and nothing of sixty-four (judgement).
const WORTH_SHARE: f64 = 0.05;

/// Without a quota, less than this is a notice, in cores (judgement: it costs power, and nobody waits for it), and so is whatever the
/// VM spins with the flags that it has by itself.
const MINOR_CORES: f64 = 0.20;

/// What msacc calls it, in emulators with extra microstates.
const BUSY_WAIT: &str = "busy_wait";

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let (mut os, mut active, mut spun) = (0.0, 0.0, 0.0);
    let mut flags = Vec::new();
    let mut all_off = true;
    for (flag, kind) in FLAGS {
        let of_kind = match Spinning::of(period, flag, kind) {
            Ok(of_kind) => of_kind,
            Err(missing) => return by_microstates(period).ok_or(missing),
        };
        (os, active, spun) = (os + of_kind.cpu, active + of_kind.worked, spun + of_kind.spun);
        all_off &= of_kind.setting.value() == Some("none");
        flags.push((flag, of_kind.setting));
    }
    let share = if os > 0.0 { spun / os } else { 0.0 };
    let healthy = || {
        let off = if all_off { "; busy waiting is off" } else { "" };
        Ok(Judgement::Healthy(format!(
            "the schedulers used {os:.2} cores of CPU, {active:.2} of it for work{off}"
        )))
    };
    if spun < WORTH_CORES {
        return healthy();
    }
    let Some(severity) = SHARE.of(period).severity(share) else { return healthy() };
    let has_quota = view::quota_cores(period).is_some();
    // As the VM does it by itself, spinning takes from nobody, but for a quota and those who are kept waiting.
    let is_asked_for = flags.iter().any(|(_, setting)| setting.value().is_some_and(|value| value != "none"));
    let is_little = view::capacity(period).is_ok_and(|capacity| spun < WORTH_SHARE * capacity.cores)
        || (!has_quota && (!is_asked_for || spun < MINOR_CORES));
    let severity = if is_little { severity.min(MINOR) } else { severity };

    // Of those kept waiting, only a quota's stops are surely made worse by spinning; neighbours may be the cause themselves.
    let stopped = view::throttled_cores(period).unwrap_or(0.0);
    let waited = view::thread_cores(period, &metrics::THREAD_WAIT, kind::SCHEDULERS).unwrap_or(0.0);
    let by_quota = HURTS.of(period).severity(stopped / spun).filter(|_| stopped >= 0.05);
    // What waking up takes is no crowd.
    let long_turns = view::wait_per_turn_seconds(period).is_ok_and(|turn| turn >= view::TURN_SECONDS);
    let by_neighbours = HURTS.of(period).severity(waited / spun).filter(|_| waited >= 0.05 && long_turns);
    let severity =
        severity.max(by_quota.unwrap_or(0.0)).max(by_neighbours.unwrap_or(0.0).min(BELOW_CRITICAL));

    let states = view::states(period, kind::SCHEDULERS).ok();
    let state = |name: &str| {
        let cores = states.as_ref()?.get(name);
        Some(Evidence::number(format!("time in the msacc state `{name}`"), cores, Unit::Cores))
    };
    let set: Vec<_> = flags.iter().map(|(flag, setting)| format!("{flag} {setting}")).collect();
    Ok(Judgement::found(
        Draft::new(
            severity,
            format!(
                "{:.0} % of the schedulers' CPU time is busy waiting, not work: of {os:.2} cores that the system \
                 shows, {active:.2} did something",
                share * 100.0
            ),
        )
        .costs(Cost::CpuCores(spun))
        // What is at stake is what would be won: of CPUs that nobody else wants, nobody gets what is given back.
        .share((is_little && by_quota.is_none() && by_neighbours.is_none() && !has_quota).then_some(0.0))
        .part(Use::BusyWaiting)
        .because(Evidence::number("CPU of the scheduler threads, by the operating system", os, Unit::Cores))
        .because(Evidence::number("activity of the schedulers, by the VM", active, Unit::Cores))
        .because(Evidence::number("busy waiting, sleep and wake-up apart", spun, Unit::Cores))
        .because(Evidence::number("share of busy waiting", share, Unit::Ratio).against_scale(SHARE.of(period)))
        .because_some(state("other"))
        .because_some(state("emulator"))
        .because(Evidence::text("flags in effect", set.join(" ")))
        .because_some(by_quota.map(|_| {
            Evidence::number("CPUs stopped by the quota meanwhile", stopped, Unit::Cores)
                .against(HURTS.of(period).warning * spun, HURTS.of(period).source)
        }))
        .because_some(by_neighbours.map(|_| {
            Evidence::number("threads kept waiting for a CPU meanwhile", waited, Unit::Cores)
                .against(HURTS.of(period).warning * spun, HURTS.of(period).source)
        }))
        .but_if(
            by_quota.is_none() && by_neighbours.is_none() && !view::quota_used_up(period),
            "nobody else wants these CPUs now: on a host of its own, spinning costs power and makes wake-ups faster",
        )
        .but_if(
            by_neighbours.is_some(),
            "on a crowded host switching it off can go either way (measured: −52 % CPU alone, +12 % crowded): compare under your load",
        )
        .but("do not scale out by the system's CPU figure here: it counts spinning as load")
        .fix(remedy::of(
            period,
            "+sbwt",
            &view::busy_waiting_off(&period.facts).unwrap_or_default(),
            "idle schedulers then sleep at once, and the CPU figure shows work only",
            "restart with the flags under the same load: CPU should fall towards the schedulers' activity; watch the p99 latency",
        )),
    ))
}

/// By what a build with extra microstates has printed: it counts spinning by itself, apart from what the operating system shows.
fn by_microstates(period: &Period) -> Option<Judgement> {
    let states = view::states(period, kind::SCHEDULERS).ok().filter(|_| period.is_imported())?;
    let awake = states.awake();
    let Some((_, spun)) = states.cores.iter().find(|(state, _)| state == BUSY_WAIT) else {
        return by_other(period, &states, awake);
    };
    let share = if awake > 0.0 { spun / awake } else { 0.0 };
    let sentence = format!("the schedulers were awake for {awake:.2} cores, {spun:.2} of it busy waiting");
    let Some(severity) = SHARE.of(period).severity(share).filter(|_| *spun >= WORTH_CORES) else {
        return Some(Judgement::Healthy(sentence));
    };
    Some(Judgement::found(
        Draft::new(
            severity,
            format!("{:.0} % of the time in which schedulers do not sleep is busy waiting", share * 100.0),
        )
        .costs(Cost::CpuCores(*spun))
        .part(Use::BusyWaiting)
        .because(Evidence::number(format!("time in the msacc state `{BUSY_WAIT}`"), *spun, Unit::Cores))
        .because(Evidence::number("time in all states but `sleep`", awake, Unit::Cores))
        .because(
            Evidence::number("share of busy waiting", share, Unit::Ratio).against_scale(SHARE.of(period)),
        )
        .but("what of it was CPU is not known: the operating system was not asked")
        .fix(remedy::of(
            period,
            "+sbwt",
            &view::busy_waiting_off(&period.facts).unwrap_or_default(),
            "idle schedulers then sleep at once, and the CPU figure shows work only",
            "restart with the flags under the same load, and msacc again; watch the p99 latency",
        )),
    ))
}

/// By what an ordinary build has printed: it counts spinning with scheduling itself, so much of that is a notice.
fn by_other(period: &Period, states: &view::States, awake: f64) -> Option<Judgement> {
    let (_, other) = states.cores.iter().find(|(state, _)| state == "other")?;
    let emulator = states.get("emulator");
    let share = if awake > 0.0 { other / awake } else { 0.0 };
    if *other < WORTH_CORES || share < SHARE.of(period).warning || *other <= emulator {
        return Some(Judgement::Healthy(format!(
            "the schedulers were awake for {awake:.2} cores, {other:.2} of it in `other`, with which busy waiting is counted"
        )));
    }
    Some(Judgement::found(
        Draft::new(
            MINOR,
            format!(
                "{:.0} % of the time in which schedulers do not sleep is `other`, more than Erlang code has: most likely busy waiting",
                share * 100.0
            ),
        )
        .because(Evidence::number("time in the msacc state `other`", *other, Unit::Cores))
        .because(Evidence::number("time in the msacc state `emulator`", emulator, Unit::Cores))
        .because(Evidence::number("share of `other`", share, Unit::Ratio).against_scale(SHARE.of(period)))
        .but("`other` holds scheduling itself, too: very many short turns of processes look the same")
        .but("what of it was CPU is not known: the operating system was not asked (beamtune doctor does)")
        .fix(remedy::of(
            period,
            "+sbwt",
            &view::busy_waiting_off(&period.facts).unwrap_or_default(),
            "idle schedulers then sleep at once, and the CPU figure shows work only",
            "restart with the flags under the same load, and msacc again: `other` must turn into `sleep`; watch the p99 latency",
        )),
    ))
}
