//! Values that several rules derive from a period in the same way: CPU use per process and thread, and the available CPU.

use std::collections::{BTreeSet, HashMap};

pub use beamtune_model::cpu::{
    all_reductions, entities_of, kind, neighbour_cores, process_cores, programs_cores, thread_cores,
    thread_rate,
};
use beamtune_model::{
    CpuState, Facts, Group, Missing, Period, PortRow, ProcessActivity, StackSample, facts, metrics,
    units::SECOND_NS,
};

/// Utilization of the schedulers of one kind, by the VM's own clock.
#[derive(Debug, Clone, PartialEq)]
pub struct Activity {
    /// Share of time in which each scheduler was not idle, 0–1, in the order of scheduler numbers.
    pub shares: Vec<f64>,
}

impl Activity {
    /// Sum of the shares, in cores.
    pub fn cores(&self) -> f64 {
        self.shares.iter().sum()
    }

    /// Mean share.
    pub fn mean(&self) -> f64 {
        if self.shares.is_empty() { 0.0 } else { self.cores() / self.shares.len() as f64 }
    }
}

/// Utilization of the schedulers of one kind, by scheduler wall time. Offline schedulers are left out.
pub fn activity(period: &Period, kind: &str) -> Result<Activity, Missing> {
    let mut shares = Vec::new();
    // Offline schedulers sleep, and would lower the mean.
    let limit = match kind {
        kind::SCHEDULER => schedulers_online(period).ok(),
        kind::DIRTY_CPU => period.facts.number(facts::DIRTY_CPU_SCHEDULERS_ONLINE).map(|n| n as f64),
        _ => None,
    };
    for entity in entities_of(period, Group::SchedulerTime, &[kind]) {
        let number: f64 = entity.rsplit('/').next().and_then(|n| n.parse().ok()).unwrap_or(0.0);
        if limit.is_some_and(|limit| number > limit) {
            continue;
        }
        let active = period.rate(&metrics::SCHEDULER_ACTIVE, entity)?;
        let total = period.rate(&metrics::SCHEDULER_TOTAL, entity)?;
        if total > 0.0 {
            shares.push((active / total).clamp(0.0, 1.0));
        }
    }
    if shares.is_empty() {
        period.rate(&metrics::SCHEDULER_ACTIVE, &format!("{kind}/1"))?;
    }
    Ok(Activity { shares })
}

/// Processes started per second. The VM's counter also includes slots of the process table that it skips because they are in use. If the
/// table is half full, these are half of the count.
pub fn spawn_rate(period: &Period) -> Result<f64, Missing> {
    let counted = period.rate(&metrics::SPAWNED, "")?;
    let alive = period.stat(&metrics::PROCESS_COUNT, "")?.mean();
    let limit = period.facts.number(facts::PROCESS_LIMIT).filter(|limit| *limit > 0);
    Ok(counted * limit.map_or(1.0, |limit| (1.0 - alive / limit as f64).clamp(0.0, 1.0)))
}

/// Normal schedulers online: the mean over the period, because the number can change.
pub fn schedulers_online(period: &Period) -> Result<f64, Missing> {
    match period.stat(&metrics::SCHEDULERS_ONLINE, "") {
        Ok(stat) => Ok(stat.mean()),
        Err(_) => period.fact_number(facts::SCHEDULERS_ONLINE).map(|n| n as f64),
    }
}

/// Microstate accounting, summed over threads of some kinds.
#[derive(Debug, Clone, PartialEq)]
pub struct States {
    /// (state, cores), with the VM's names of the states.
    pub cores: Vec<(String, f64)>,
}

impl States {
    /// Cores in a state; 0 if the release does not have this state.
    pub fn get(&self, state: &str) -> f64 {
        self.cores.iter().find(|(name, _)| name == state).map_or(0.0, |(_, cores)| *cores)
    }

    /// Cores in any state except `sleep`.
    pub fn awake(&self) -> f64 {
        self.cores.iter().filter(|(name, _)| name != "sleep").map(|(_, cores)| cores).sum()
    }

    /// Cores that run GC: `gc`, and `gc_full` if it is counted separately.
    pub fn gc(&self) -> f64 {
        self.get("gc") + self.get("gc_full")
    }

    /// The same cores in all, with this share of GC, 0–1.
    fn with_gc_share(mut self, share: f64) -> States {
        let (gc, all) = (self.gc(), self.cores.iter().map(|(_, cores)| cores).sum::<f64>());
        let scale = |from: f64, to: f64| if from > 0.0 { to / from } else { 0.0 };
        let (of_gc, of_others) = (scale(gc, share * all), scale(all - gc, (1.0 - share) * all));
        for (state, cores) in &mut self.cores {
            *cores *= if ["gc", "gc_full"].contains(&state.as_str()) { of_gc } else { of_others };
        }
        let missing = [("gc", gc, share), ("other", all - gc, 1.0 - share)];
        let missing = missing.into_iter().filter(|(_, known, share)| *known <= 0.0 && *share > 0.0);
        self.cores.extend(missing.map(|(state, _, share)| (state.to_owned(), share * all)));
        self
    }
}

/// Microstate accounting of all threads of some kinds. The agent enables it only part of the time, so each thread's time in a state is
/// taken as a share of its time in all states. Imported text may have one sum for all threads of a kind.
pub fn states(period: &Period, kinds: &[&str]) -> Result<States, Missing> {
    let mut cores: Vec<(String, f64)> = Vec::new();
    // A VM has about fifteen states; a hostile recording could name a hundred thousand.
    let mut places: HashMap<&str, usize> = HashMap::new();
    for entity in entities_of(period, Group::Msacc, kinds) {
        let of_thread: Vec<(&str, f64)> =
            period.family(&metrics::MSACC, entity).map(|(state, stat)| (state, stat.delta as f64)).collect();
        let total: f64 = of_thread.iter().map(|(_, delta)| delta).sum();
        if total <= 0.0 {
            continue;
        }
        let threads = if entity.contains('/') { 1.0 } else { threads_of(period, entity)? };
        for (state, delta) in of_thread {
            let place = *places.entry(state).or_insert_with(|| {
                cores.push((state.to_owned(), 0.0));
                cores.len() - 1
            });
            if let Some((_, sum)) = cores.get_mut(place) {
                *sum += threads * delta / total;
            }
        }
    }
    if cores.is_empty() {
        Err(period.missing_group(Group::Msacc, "microstate accounting"))
    } else {
        Ok(States { cores })
    }
}

/// Number of threads of a kind, online or not.
fn threads_of(period: &Period, kind: &str) -> Result<f64, Missing> {
    let count = match kind {
        kind::SCHEDULER => facts::SCHEDULERS,
        kind::DIRTY_CPU => facts::DIRTY_CPU_SCHEDULERS,
        kind::DIRTY_IO => facts::DIRTY_IO_SCHEDULERS,
        _ => return Err(period.missing_group(Group::Msacc, format!("the number of {kind} threads"))),
    };
    period.fact_number(count).map(|count| count as f64)
}

/// CPU time of the threads of one kind by microstate, in cores. Sleep and busy wait are left out.
///
/// Microstates are measured in wall time: a runnable thread without a CPU stays in its state. With more threads than CPUs, the states
/// therefore add up to more than the CPUs. They are scaled to the CPU time for which the VM counts these threads as active. Without times
/// from the operating system they are not scaled.
pub fn work(period: &Period, kind: &str) -> Result<States, Missing> {
    let all = states(period, &[kind])?;
    let cpu = thread_cores(period, &metrics::THREAD_CPU, &[kind]).ok();
    let active = activity(period, kind).ok().map(|activity| activity.cores());
    let worked = cpu.zip(active).map(|(cpu, active)| active.min(cpu));
    // In ordinary builds `other` includes busy wait, which is not work. For dirty schedulers, `other` is almost only busy wait.
    let idle = cpu.zip(worked).filter(|_| kind == kind::SCHEDULER).map(|(cpu, worked)| cpu - worked);
    let weight = |state: &str, cores: f64| match state {
        "sleep" | "busy_wait" => 0.0,
        "other" => idle.map_or(0.0, |idle| (cores - idle).max(0.0)),
        _ => cores,
    };
    let weights = all.cores.into_iter().map(|(state, cores)| {
        let weight = weight(&state, cores);
        (state, weight)
    });
    let weights: Vec<(String, f64)> = weights.filter(|(_, cores)| *cores > 0.0).collect();
    let total: f64 = weights.iter().map(|(_, cores)| cores).sum();
    let scale = worked.filter(|_| total > 0.0).map_or(1.0, |worked| worked / total);
    let states = States { cores: weights.into_iter().map(|(state, cores)| (state, scale * cores)).collect() };
    // Microstate accounting is on for a part of the time, in which long GCs of dirty schedulers may not begin and end.
    Ok(match gc_share_by_profile(period, kind) {
        Some(share) => states.with_gc_share(share),
        None => states,
    })
}

/// Fewer samples of a profile are not used, but what the agent reads (judgement: the 95 % interval of a half is ±10 points).
pub(crate) const MIN_PROFILE_SAMPLES: u32 = 100;

/// GC's share of the work of threads of a kind, 0–1, by a CPU profile.
fn gc_share_by_profile(period: &Period, kind: &str) -> Option<f64> {
    let profile = period.profile.as_ref()?;
    let is_work = |sample: &&StackSample| {
        !matches!(sample.state, CpuState::BusyWait | CpuState::SleepAndWake)
            && profile.thread(sample).is_some_and(|thread| thread.kind == kind)
    };
    let (mut gc, mut all) = (0, 0);
    for sample in profile.samples.iter().filter(is_work) {
        all += u64::from(sample.count);
        if sample.state == CpuState::GarbageCollection {
            gc += u64::from(sample.count);
        }
    }
    (all >= u64::from(MIN_PROFILE_SAMPLES)).then(|| gc as f64 / all as f64)
}

/// CPU time of GC, compared with all work of some kinds of threads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GcShare {
    /// Cores used by GC.
    pub gc: f64,
    /// Cores used by work, GC included.
    pub worked: f64,
}

impl GcShare {
    /// GC's share of the work, 0–1.
    pub fn share(self) -> f64 {
        if self.worked > 0.0 { self.gc / self.worked } else { 0.0 }
    }
}

/// GC compared with the work of some kinds of threads. Dirty I/O schedulers do not belong in `kinds`: they wait for disks, which is not
/// work, and run no GC.
pub fn gc(period: &Period, kinds: &[&str]) -> Result<GcShare, Missing> {
    states(period, kinds)?;
    let works = kinds.iter().filter_map(|kind| work(period, kind).ok());
    let sum = works.fold(GcShare { gc: 0.0, worked: 0.0 }, |sum, work| GcShare {
        gc: sum.gc + work.gc(),
        worked: sum.worked + work.awake(),
    });
    // Threads whose CPU time is unknown cannot use more CPUs than exist.
    let cpus = [facts::LOGICAL_PROCESSORS_AVAILABLE, facts::LOGICAL_PROCESSORS];
    let cpus = cpus.into_iter().find_map(|fact| period.facts.number(fact)).filter(|cpus| *cpus > 0);
    let scale = cpus.map_or(1.0, |cpus| (cpus as f64 / sum.worked.max(f64::MIN_POSITIVE)).min(1.0));
    Ok(GcShare { gc: scale * sum.gc, worked: scale * sum.worked })
}

/// Parses a kernel CPU list: `0-3,8` is five CPUs. `None` if the text is not such a list, or names a CPU that no host has.
pub fn cpu_list(text: &str) -> Option<BTreeSet<u32>> {
    /// No host has this many CPUs.
    const MOST_CPUS: u32 = 65_536;
    let mut cpus = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= MOST_CPUS {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// The maximum CPU that the VM can use, and what limits it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Capacity {
    /// The maximum, in cores.
    pub cores: f64,
    /// Normal schedulers online.
    pub online: f64,
    /// CPUs that the process may run on.
    pub allowed: f64,
    /// CPU quota in cores, if any.
    pub quota: Option<f64>,
}

/// The VM's capacity: the minimum of schedulers online, CPUs allowed, and quota.
pub fn capacity(period: &Period) -> Result<Capacity, Missing> {
    let online = schedulers_online(period)?;
    let allowed = period.stat(&metrics::CPUS_ALLOWED, "")?.mean();
    let quota = quota_cores(period);
    let cores = online.min(allowed).min(quota.unwrap_or(f64::INFINITY));
    Ok(Capacity { cores, online, allowed, quota })
}

/// Work that takes less than this share of the node's CPU delays nothing (judgement: RabbitMQ under moderate load does little work, and
/// spends 40 % of it on GC).
const WORTH_CPU_SHARE: f64 = 0.10;

/// Whether work that takes this many cores delays nothing. Without host data, the number of schedulers is the capacity.
pub fn is_little_cpu(period: &Period, cores: f64) -> bool {
    let all = capacity(period)
        .map(|capacity| capacity.cores)
        .or_else(|_| schedulers_online(period))
        .or_else(|_| period.fact_number(facts::SCHEDULERS).map(|all| all as f64));
    all.is_ok_and(|all| cores < WORTH_CPU_SHARE * all)
}

/// The CPU quota in cores, if any.
pub fn quota_cores(period: &Period) -> Option<f64> {
    period.stat(&metrics::CGROUP_QUOTA, "cpu").ok().map(|stat| stat.mean() / 1_000.0)
}

/// Number of schedulers that suits a limit in cores. The limit is rounded down if the VM does not use more than the result. Otherwise it is
/// rounded up, so that the fraction of the last CPU is not lost. With a quota of 1.9 and 1.8 cores in use, one scheduler would be little
/// more than half.
pub fn schedulers_that_fit(period: &Period, limit: f64) -> i64 {
    let suffices = process_cores(period).is_ok_and(|used| used <= limit.floor());
    let fit = if suffices { limit.floor() } else { limit.ceil() };
    fit.max(1.0) as i64
}

/// The VM's CPU quota in cores; `Ok(None)` if it has none, `Err` if its control groups could not be read.
pub fn known_quota(period: &Period) -> Result<Option<f64>, Missing> {
    match quota_cores(period) {
        Some(quota) => Ok(Some(quota)),
        // The path is recorded whenever the groups could be read.
        None if period.facts.get(facts::CGROUP_PATH).is_some() => Ok(None),
        None => Err(period.missing_group(Group::HostCgroup, "the control group's CPU quota")),
    }
}

/// Time for which the quota throttled the CPUs of the VM's group, in seconds per second; `None` if unknown.
pub fn throttled_cores(period: &Period) -> Option<f64> {
    match known_quota(period).ok()? {
        Some(_) => period.cores(&metrics::CGROUP_THROTTLED_TIME, "cpu").ok(),
        None => Some(0.0),
    }
}

/// A shorter run-queue delay per time slice is the cost of a wake-up, not a lack of CPU. Measured for RabbitMQ: 19–37 µs on a host with
/// idle CPU, 3,400–4,000 µs with neighbours on the same CPU.
pub const MAX_WAKE_UP_SECONDS: f64 = 0.2e-3;

/// Mean run-queue delay per time slice, over schedulers of all kinds, in seconds; 0 if none was runnable.
pub fn mean_run_queue_delay_seconds(period: &Period) -> Result<f64, Missing> {
    let rate = |metric| thread_rate(period, metric, kind::SCHEDULERS);
    let turns = rate(&metrics::VOLUNTARY_SWITCHES)? + rate(&metrics::INVOLUNTARY_SWITCHES)?;
    let waited = thread_cores(period, &metrics::THREAD_WAIT, kind::SCHEDULERS)?;
    Ok(if turns > 0.0 {
        waited / turns
    } else if waited > 0.0 {
        f64::INFINITY
    } else {
        0.0
    })
}

/// Share of the enforcement periods in which the quota throttled the group; `None` without a quota.
pub fn throttled_share(period: &Period) -> Option<f64> {
    let periods = period.rate(&metrics::CGROUP_PERIODS, "cpu").ok()?;
    let throttled = period.rate(&metrics::CGROUP_THROTTLED, "cpu").ok()?;
    Some(if periods > 0.0 { throttled / periods } else { 0.0 })
}

/// Whether the quota was used up so often that run-queue delay is no sign of neighbours. Throttled time cannot be subtracted from the
/// delay: each throttled thread waits, but the group counts each CPU once. Measured with 8 schedulers and half a core: 7.5 s of delay and
/// 1.4 s of throttled time per second.
pub fn quota_used_up(period: &Period) -> bool {
    let used = period.cores(&metrics::CGROUP_USAGE, "cpu").ok().zip(quota_cores(period));
    throttled_share(period).is_some_and(|share| share >= 0.05)
        || used.is_some_and(|(used, quota)| used >= 0.9 * quota)
}

/// A control group that uses this share of its memory limit is short of memory (judgement): the rest is used up within seconds.
pub const NEARLY_FULL: f64 = 0.9;

/// Maximum used share of the memory limit of the VM's control group; `None` without a limit. It includes the group's kernel caches, which
/// the kernel could drop.
pub fn group_memory_used(period: &Period) -> Option<f64> {
    let limit = period.stat(&metrics::CGROUP_MEMORY_LIMIT, "memory").ok()?.last.value;
    let used = period.stat(&metrics::CGROUP_MEMORY, "memory").ok()?.max;
    (limit > 0).then(|| used as f64 / limit as f64)
}

/// Mean run queue length over the period, summed over the entities whose names begin with `prefix`.
pub fn run_queue(period: &Period, prefix: &str) -> Result<f64, Missing> {
    let entities: Vec<_> =
        period.entities(Group::RunQueue).into_iter().filter(|entity| entity.starts_with(prefix)).collect();
    let Some(first) = entities.first() else { return Ok(period.stat(&metrics::RUN_QUEUE, prefix)?.mean()) };
    period.stat(&metrics::RUN_QUEUE, first)?;
    Ok(entities
        .iter()
        .filter_map(|entity| period.stat(&metrics::RUN_QUEUE, entity).ok())
        .map(beamtune_model::SeriesStat::mean)
        .sum())
}

/// Each scan lists the processes that have messages or did work. Scans run once a second, slow ones every three seconds. If a process is
/// missing for longer than this, in seconds, its queue is empty, or the process has exited.
const QUEUE_TOLD_SECONDS: f64 = 15.0;
/// With a longer sampling interval, it may be missing from this many samples.
const QUEUE_TOLD_TICKS: f64 = 3.0;

/// Queue length of a process at the end; `None` if the process is no longer listed. Its last reading is compared with the last scan, not
/// with the end of the period: the queues of an unresponsive node are not empty.
pub fn queue_now(period: &Period, process: &ProcessActivity) -> Option<f64> {
    let (told, queue) = process.last_queue;
    let looked = period.stat(&metrics::SCAN_LONGEST_QUEUE, "").map_or(period.end, |stat| stat.last.t);
    let between = period.seconds() / f64::from(period.vm_ticks.max(1));
    let most = QUEUE_TOLD_SECONDS.max(QUEUE_TOLD_TICKS * between);
    (looked.saturating_sub(told) as f64 <= most * SECOND_NS as f64).then_some(queue as f64)
}

/// Emptying a shorter queue does not show that its process keeps up (judgement).
const MIN_EMPTIED: i64 = 20;
/// A queue below this share of its previous length was emptied, or is being emptied (judgement).
const EMPTIED: f64 = 0.5;
/// This many times in a period is no coincidence (judgement).
const EMPTIED_TIMES: usize = 2;

/// Whether a process repeatedly takes all of its messages. Such a process is not behind, however many messages wait in between.
pub fn is_emptied_again(process: &ProcessActivity) -> bool {
    let is_emptied = |pair: &&[(i64, i64)]| match **pair {
        [(_, before), (_, after)] => before >= MIN_EMPTIED && (after as f64) <= EMPTIED * before as f64,
        _ => false,
    };
    process.queue.points().windows(2).filter(is_emptied).count() >= EMPTIED_TIMES
}

/// What is known about an emulator flag of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flag {
    /// The flags were not recorded.
    Unknown,
    /// The flag was not given.
    Default,
    /// The last value that was given.
    Set(String),
}

impl Flag {
    /// The given value, if any.
    pub fn value(&self) -> Option<&str> {
        match self {
            Flag::Set(value) => Some(value),
            Flag::Unknown | Flag::Default => None,
        }
    }
}

impl std::fmt::Display for Flag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Flag::Unknown => "(unknown)",
            Flag::Default => "(default)",
            Flag::Set(value) => value,
        })
    }
}

/// Looks up an emulator flag (`+sbwt`) in the node's arguments.
pub fn emulator_flag(facts: &Facts, flag: &str) -> Flag {
    match facts.list(facts::EMU_ARGS) {
        None => Flag::Unknown,
        Some(args) => beamtune_flags::effective_value(&args, flag).map_or(Flag::Default, Flag::Set),
    }
}

/// Initial call of every process that was started with a fun. The agent starts such processes, too. If all others exit immediately, it
/// samples only its own.
pub const ANY_FUN: &str = "erlang:apply/2";

/// Mean queue length of a process in the samples that list it.
pub fn mean_queue(process: &ProcessActivity) -> f64 {
    let lengths = process.queue.points();
    lengths.iter().map(|point| point.1 as f64).sum::<f64>() / lengths.len().max(1) as f64
}

/// The poll sets of a VM.
pub struct PollSets {
    /// Number of poll sets.
    pub count: usize,
    /// Whether any of them is a kernel poll set (epoll).
    pub use_epoll: bool,
    /// Maximum number of descriptors, summed over all poll sets; `None` if they were not counted.
    pub descriptors: Option<f64>,
}

/// The poll sets; `None` if they were not read.
pub fn poll_sets(period: &Period) -> Option<PollSets> {
    let sets: Vec<_> = period
        .entities(Group::CheckIo)
        .into_iter()
        .filter_map(|set| Some((set, period.stat(&metrics::POLLSET_KERNEL_POLL, set).ok()?)))
        .collect();
    let descriptors =
        sets.iter().filter_map(|(set, _)| Some(period.stat(&metrics::POLLSET_FDS, set).ok()?.max as f64));
    (!sets.is_empty()).then(|| PollSets {
        count: sets.len(),
        use_epoll: sets.iter().any(|(_, stat)| stat.last.value == 1),
        descriptors: descriptors.reduce(|sum, count| sum + count),
    })
}

/// Numeric value of an allocator flag, for one allocator (by its letter) or for all: `+MBsbct`, `+Musbct`.
pub fn allocator_flag(facts: &Facts, letter: char, name: &str) -> Option<f64> {
    let flag = |of: char| emulator_flag(facts, &format!("+M{of}{name}"));
    flag(letter).value().or(flag('u').value()).and_then(|value| value.parse().ok())
}

/// Whether such a flag is unset or below `than`. A remedy that raises a value must not lower it.
pub fn is_lower(facts: &Facts, letter: char, name: &str, than: f64) -> bool {
    allocator_flag(facts, letter, name).is_none_or(|given| given < than)
}

/// Whether dirty schedulers share allocator instances. They do unless each has its own (`+Mdai max`).
pub fn shares_dirty_allocators(facts: &Facts) -> bool {
    emulator_flag(facts, "+Mdai").value() != Some("max")
}

/// Flags that disable busy waiting, without those that are set to `none` already; `None` if all are.
pub fn busy_waiting_off(facts: &Facts) -> Option<String> {
    let left: Vec<_> = ["+sbwt", "+sbwtdcpu", "+sbwtdio"]
        .into_iter()
        .filter(|flag| emulator_flag(facts, flag).value() != Some("none"))
        .map(|flag| format!("{flag} none"))
        .collect();
    (!left.is_empty()).then(|| left.join(" "))
}

/// Says that the pages were not read, why, and what to do.
pub fn pages_not_read(period: &Period) -> String {
    let Missing { why, next_step: next, .. } = period.missing_group(Group::HostContent, "pages");
    format!("the pages were not read ({why}): {next}")
}

/// Formats a duration with a suitable unit: `40 s`, `12 min`, `3.5 h`, `2.1 days`.
pub fn duration_text(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3_600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

/// Points of a trace as (seconds, value), for a trend.
pub fn trend_points(trace: &beamtune_model::period::Trace) -> Vec<(f64, f64)> {
    trace.points().iter().map(|&(t, value)| (t as f64 / SECOND_NS as f64, value as f64)).collect()
}

/// Share of all reductions that these processes executed.
pub(crate) fn reductions_share(period: &Period, processes: &[&ProcessActivity]) -> Option<f64> {
    let total = all_reductions(period).ok()?;
    let own: f64 = processes.iter().map(|process| process.reductions as f64).sum();
    (total > 0.0).then(|| (own / total).min(1.0))
}

/// Owners of the recorded ports that `is_meant` selects, without duplicates.
pub(crate) fn port_owners(period: &Period, is_meant: impl Fn(&PortRow) -> bool) -> Vec<String> {
    let owners = period.ports.iter().filter(|port| is_meant(port)).filter_map(|port| port.connected.as_ref());
    let mut owners: Vec<String> = owners.map(|pid| period.title_of(pid)).collect();
    owners.sort();
    owners.dedup();
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_cpu_lists_are_parsed() {
        let check = |text: &str, expect: Option<&[u32]>| {
            assert_eq!(cpu_list(text), expect.map(|cpus| cpus.iter().copied().collect()), "{text}");
        };
        check("0-3,8", Some(&[0, 1, 2, 3, 8]));
        check("5", Some(&[5]));
        check("", None);
        check("3-1", None);
        check("0-4294967295", None);
    }

    #[test]
    fn durations_have_a_suitable_unit() {
        let check = |seconds, expect: &str| assert_eq!(duration_text(seconds), expect);
        check(40.4, "40 s");
        check(719.0, "12 min");
        check(12_600.0, "3.5 h");
        check(181_440.0, "2.1 days");
    }
}
