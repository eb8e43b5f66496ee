//! Decides whether there is lock contention: from how threads spent their time, and from samples of their stacks.
//!
//! For the kernel, threads that spin and yield for a lock are on a CPU. With few schedulers, the times alone therefore show nothing, but
//! the samples do. Conversely, blocked threads may wait for something other than locks, so samples without lock waits are counter-evidence.
//!
//! This is the verdict of `beamtune locks`, and the basis of BT033.

use beamtune_model::cpu::kind;
use beamtune_model::locks::wait_kind;
use beamtune_model::units::{SECOND_NS, seconds};
use beamtune_model::{LockWaitRow, Nanos, Period, facts};

use super::blocked::{self, KindVerdict, ThreadTimes, Verdict};

/// Lock waits that take at least this share of busy time limit a node. BT015 reports from the same share.
pub const MIN_CONTENDED_SHARE: f64 = 0.15;
/// Lock waits below this share do not limit a node: a VM without contention is in lock functions for 1 to 2 % of the time.
pub const MAX_UNCONTENDED_SHARE: f64 = 0.05;
/// Waits below this sum over all threads are negligible on an idle node ([`MAX_IDLE_CORES`], judgement).
const MAX_NEGLIGIBLE_CORES: f64 = 0.02;
/// Schedulers that together want less CPU than this are idle (judgement).
const MAX_IDLE_CORES: f64 = 0.2;
/// Threads that have no CPU for a larger share of their runnable time lose it while they hold locks (judgement).
const MIN_STARVED_SHARE: f64 = 0.2;
/// Threads that contend for a lock sleep more often per second than this. Threads that send messages on a starved host, where lock holders
/// had no CPU, slept 10 times. Threads that contend for a table sleep 700 to 30,000 times (measured).
const MIN_SLEEPS_PER_S: f64 = 50.0;
/// If the schedulers together ran for less than this, their share of waits means nothing.
const MIN_BUSY: Nanos = SECOND_NS / 100;

/// Half the width of a 95 % interval of a normal variable, in standard deviations.
const NORMAL_95: f64 = 1.96;

/// Whether a VM has lock contention, with the numbers behind the verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct ContentionVerdict {
    /// Whether there is lock contention.
    pub verdict: Verdict,
    /// How long threads were sampled.
    pub length: Nanos,
    /// How the schedulers spent their time, by kind.
    pub kinds: Vec<KindVerdict>,
    /// Sampled lock waits; `None` without samples, or if schedulers hardly ran.
    pub sampled: Option<SampledWaits>,
    /// Wait time by lock counting, as a share of all schedulers' time; `None` without lock counting.
    pub counted: Option<f64>,
}

/// Sampled lock waits of schedulers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampledWaits {
    /// As a share of their busy time, 0–1.
    pub share: f64,
    /// Number of samples in which a scheduler waited.
    pub samples: i64,
    /// Whether the waits are negligible and the node is idle.
    pub is_negligible: bool,
    /// How threads were sampled.
    pub sampling: Sampling,
}

/// How lock waits were sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// How long; 0 if they were not sampled.
    pub length: Nanos,
    /// Whether the samples are a lower bound.
    pub is_lower_bound: bool,
}

/// Evaluates a recording alone; `None` if it has neither the times of threads nor lock counts.
pub fn of_period(period: &Period) -> Option<ContentionVerdict> {
    let times = blocked::of_period(period).ok();
    let counted = counted_share(period);
    if times.is_none() && counted.is_none() {
        return None;
    }
    let kinds = times.unwrap_or_default().into_iter().map(blocked::judge).collect();
    // Incomplete samples are recorded only if they show long waits ([`is_recordable`]).
    let watched = Sampling { length: period.lock_sampling_length().unwrap_or(0), is_lower_bound: false };
    let look = of_waits(kinds, &period.lock_waits, watched, period.end - period.begin);
    Some(match counted {
        Some(share) => {
            ContentionVerdict { verdict: by_share(share).unwrap_or(Verdict::NotSure), counted, ..look }
        }
        None => look,
    })
}

/// Wait time of all threads by lock counting, as a share of all schedulers' time.
fn counted_share(period: &Period) -> Option<f64> {
    let session = period.lock_session.as_ref().filter(|session| session.length > 0)?;
    let schedulers = period.facts.number(facts::SCHEDULERS_ONLINE)?;
    let waited: i64 = period.locks.iter().filter(|row| row.id.is_none()).map(|row| row.wait_time).sum();
    Some(waited as f64 / session.length as f64 / schedulers.max(1) as f64)
}

/// Whether sampled waits may be recorded. A recording does not say that samples are incomplete, so few waits in them would be taken for few
/// waits of the VM. `threads` is the number of schedulers.
pub fn is_recordable(waits: &[LockWaitRow], watched: Sampling, threads: usize) -> bool {
    let waited = waits.iter().fold(0_i64, |sum, row| sum.saturating_add(row.waited));
    !watched.is_lower_bound || waited as f64 > MAX_UNCONTENDED_SHARE * watched.length as f64 * threads as f64
}

/// Evaluates how schedulers spent a time of this length, and the lock waits that were sampled meanwhile.
pub fn of_waits(
    kinds: Vec<KindVerdict>,
    waits: &[LockWaitRow],
    watched: Sampling,
    length: Nanos,
) -> ContentionVerdict {
    let seen = (watched.length > 0).then(|| waited(&kinds, waits, watched)).flatten();
    ContentionVerdict { verdict: answer(&kinds, seen), length, kinds, sampled: seen, counted: None }
}

impl SampledWaits {
    /// The verdict; `None` if the samples do not decide.
    fn answer(&self) -> Option<Verdict> {
        let answer = if self.is_negligible { Some(Verdict::No) } else { by_share(self.share) };
        answer.filter(|answer| *answer != Verdict::No || !self.sampling.is_lower_bound)
    }

    /// The 95 % interval of the share; the number of samples is a Poisson variable. It covers the sampling error only. `None` without
    /// samples.
    pub fn interval(&self) -> Option<(f64, f64)> {
        let relative = (self.samples > 0).then(|| NORMAL_95 / (self.samples as f64).sqrt())?;
        Some(((self.share * (1.0 - relative)).max(0.0), (self.share * (1.0 + relative)).min(1.0)))
    }

    /// The share as a sentence, for display.
    pub fn sentence(&self) -> String {
        format!(
            "schedulers waited for locks {}{:.0} % of their busy time, run-queue delay not included ({:.1} s sampled)",
            if self.sampling.is_lower_bound { "at least " } else { "" },
            self.share * 100.0,
            seconds(self.sampling.length)
        )
    }
}

/// Lock waits of schedulers as a share of their busy time, run-queue delay excluded. Without the VM's own times, busy time is on-CPU time
/// plus sleeps for locks.
fn waited(kinds: &[KindVerdict], waits: &[LockWaitRow], watched: Sampling) -> Option<SampledWaits> {
    let is_scheduler = |name: &str| kind::SCHEDULERS.contains(&name);
    // The mean number of waiting threads.
    let sum = |matches: &dyn Fn(&LockWaitRow) -> bool| {
        let rows = waits.iter().filter(|row| matches(row));
        rows.fold(0_i64, |sum, row| sum.saturating_add(row.waited)) as f64 / watched.length as f64
    };
    let of_schedulers = waits.iter().filter(|row| is_scheduler(&row.thread));
    let samples = of_schedulers.fold(0_i64, |sum, row| sum.saturating_add(row.samples));
    let slept = |times: &ThreadTimes| sum(&|row| row.thread == times.kind && row.how == wait_kind::SLEEP);
    let threads = |times: &ThreadTimes, time: Nanos| time as f64 / times.length.max(1) as f64;
    let (mut waiting, mut busy, mut wanted) = (sum(&|row| is_scheduler(&row.thread)), 0.0, 0.0);
    for times in kinds.iter().map(|judged| &judged.times).filter(|times| is_scheduler(&times.kind)) {
        let Some(own) = busy_time(times).map(|own| threads(times, own)) else { continue };
        let queued = threads(times, times.queued.unwrap_or(0));
        // A sleep includes the run-queue delay after the wake-up, whose length is known only on average. The VM's own times give an upper
        // limit for how long threads were blocked.
        let max_slept = times.blocked().map_or(f64::INFINITY, |blocked| threads(times, blocked));
        waiting = (waiting - (slept(times) - max_slept).max(0.0)).max(0.0);
        let slept = |times: &ThreadTimes| slept(times).min(max_slept);
        let is_rare = times.sleeps_per_second().is_some_and(|rate| rate < MIN_SLEEPS_PER_S);
        if is_rare && queued > MIN_STARVED_SHARE * (own + queued) {
            // The lock holder lost its CPU, which is not contention.
            waiting = (waiting - slept(times)).max(0.0);
        }
        busy += if times.awake.is_some() { own } else { own + slept(times) };
        wanted += own + queued;
    }
    (busy * watched.length as f64 > MIN_BUSY as f64).then(|| SampledWaits {
        share: (waiting / busy).min(1.0),
        samples,
        is_negligible: waiting < MAX_NEGLIGIBLE_CORES && wanted < MAX_IDLE_CORES,
        sampling: watched,
    })
}

/// Busy time without run-queue delay. That delay is due to the threads that had the CPU, not to a lock.
fn busy_time(times: &ThreadTimes) -> Option<Nanos> {
    match times.awake {
        Some(awake) => Some(awake.saturating_sub(times.queued.unwrap_or(0)).max(times.ran.unwrap_or(0))),
        None => times.ran,
    }
}

/// The verdict for the node. Samples of lock waits decide if there are any.
fn answer(kinds: &[KindVerdict], waited: Option<SampledWaits>) -> Verdict {
    let schedulers = || kinds.iter().filter(|judged| kind::SCHEDULERS.contains(&judged.times.kind.as_str()));
    let any = |answer| schedulers().any(|judged| judged.answer == answer);
    let has_waits = waited.is_some_and(|waited| waited.share >= MAX_UNCONTENDED_SHARE);
    match waited.and_then(|waited| waited.answer()) {
        Some(answer) => answer,
        // If samples of lock waits are complete but do not decide, something other than a lock may block the threads.
        None if any(Verdict::Yes) && waited.is_none_or(|waited| waited.sampling.is_lower_bound) => {
            Verdict::Yes
        }
        None if has_waits || any(Verdict::NotSure) || schedulers().next().is_none() => Verdict::NotSure,
        None => Verdict::No,
    }
}

/// The verdict for a share of busy time; `None` between the two limits.
fn by_share(share: f64) -> Option<Verdict> {
    match share {
        share if share >= MIN_CONTENDED_SHARE => Some(Verdict::Yes),
        share if share < MAX_UNCONTENDED_SHARE => Some(Verdict::No),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use beamtune_model::{LockRow, LockSession};

    use super::*;

    /// Two schedulers that were awake and on a CPU for these shares of a second.
    fn schedulers(awake: f64, ran: f64) -> KindVerdict {
        let nanos = |share: f64| (share * 2.0 * SECOND_NS as f64) as Nanos;
        blocked::judge(ThreadTimes {
            kind: "scheduler".to_owned(),
            threads: 2,
            length: SECOND_NS,
            awake: Some(nanos(awake)),
            ran: Some(nanos(ran)),
            queued: Some(0),
            sleeps: Some(10),
            ..ThreadTimes::default()
        })
    }

    /// Schedulers that waited this long for locks in a second of sampling; `None`: without samples.
    fn look(kinds: &[KindVerdict], how: &str, waited_s: Option<f64>, is_least: bool) -> ContentionVerdict {
        let row = |waited: f64| LockWaitRow {
            thread: "scheduler".to_owned(),
            how: how.to_owned(),
            waited: (waited * SECOND_NS as f64) as Nanos,
            ..LockWaitRow::default()
        };
        let rows: Vec<_> = waited_s.into_iter().map(row).collect();
        let length = if waited_s.is_some() { SECOND_NS } else { 0 };
        of_waits(kinds.to_vec(), &rows, Sampling { length, is_lower_bound: is_least }, SECOND_NS)
    }

    fn judged(kinds: &[KindVerdict], waited_s: Option<f64>) -> Verdict {
        look(kinds, wait_kind::YIELD, waited_s, false).verdict
    }

    #[test]
    fn samples_of_lock_waits_decide() {
        // They spin: always on a CPU, mostly for a lock.
        assert_eq!(judged(&[schedulers(1.0, 1.0)], Some(1.2)), Verdict::Yes);
        assert_eq!(judged(&[schedulers(1.0, 1.0)], Some(0.2)), Verdict::NotSure);
        assert_eq!(judged(&[schedulers(1.0, 1.0)], Some(0.02)), Verdict::No);
        // Blocked by something other than a lock.
        assert_eq!(judged(&[schedulers(1.0, 0.2)], Some(0.0)), Verdict::No);
        assert_eq!(judged(&[schedulers(1.0, 0.2)], Some(0.2)), Verdict::NotSure);
    }

    #[test]
    fn without_samples_the_times_of_threads_decide() {
        assert_eq!(judged(&[schedulers(1.0, 0.2)], None), Verdict::Yes);
        // They may have spun for a lock.
        assert_eq!(judged(&[schedulers(1.0, 0.95)], None), Verdict::NotSure);
        assert_eq!(judged(&[schedulers(0.01, 0.01)], None), Verdict::No);
        assert_eq!(judged(&[schedulers(1.0, 0.6)], None), Verdict::NotSure);
        assert_eq!(judged(&[], None), Verdict::NotSure);
    }

    #[test]
    fn few_waits_in_incomplete_samples_do_not_decide() {
        let judged =
            |kinds: &[KindVerdict], waited_s| look(kinds, wait_kind::YIELD, Some(waited_s), true).verdict;
        // The threads were blocked, but nothing shows on what.
        assert_eq!(judged(&[schedulers(1.0, 0.2)], 0.0), Verdict::Yes);
        assert_eq!(judged(&[schedulers(1.0, 0.6)], 0.0), Verdict::NotSure);
        assert_eq!(judged(&[schedulers(1.0, 0.95)], 0.0), Verdict::NotSure);
        assert_eq!(judged(&[schedulers(0.01, 0.01)], 0.0), Verdict::No);
        assert_eq!(judged(&[schedulers(1.0, 0.95)], 0.2), Verdict::NotSure);
        assert_eq!(judged(&[schedulers(1.0, 0.95)], 1.2), Verdict::Yes);
        let text =
            look(&[schedulers(1.0, 1.0)], wait_kind::YIELD, Some(1.2), true).sampled.unwrap().sentence();
        assert!(text.contains("at least 60 %"), "{text}");
    }

    #[test]
    fn idle_nodes_have_no_contention() {
        assert_eq!(judged(&[schedulers(0.001, 0.001)], Some(0.0)), Verdict::No);
        // A quarter of nearly no work is negligible.
        assert_eq!(judged(&[schedulers(0.02, 0.02)], Some(0.01)), Verdict::No);
    }

    #[test]
    fn on_a_starved_host_few_long_sleeps_are_not_contention() {
        let mut starved = schedulers(1.0, 0.2);
        starved.times.queued = Some(SECOND_NS + SECOND_NS / 2);
        let judged = |kinds: &[KindVerdict]| look(kinds, wait_kind::SLEEP, Some(0.1), false).verdict;
        assert_eq!(judged(&[starved.clone()]), Verdict::No);
        // A thread that contends for a lock sleeps often.
        starved.times.sleeps = Some(5_000);
        assert_eq!(judged(&[starved]), Verdict::Yes);
    }

    #[test]
    fn threads_do_not_sleep_for_locks_for_longer_than_they_were_blocked() {
        // Of two seconds with work, they ran for 1 s, were runnable without a CPU for 0.8 s, and blocked for 0.2 s.
        let mut kinds = schedulers(1.0, 0.5);
        kinds.times.queued = Some(SECOND_NS * 8 / 10);
        kinds.times.sleeps = Some(5_000);
        let seen = look(&[kinds], wait_kind::SLEEP, Some(1.0), false).sampled.unwrap();
        assert!((seen.share - 0.2 / 1.2).abs() < 1e-9, "{seen:?}");
    }

    #[test]
    fn a_vm_that_hardly_gets_a_cpu_can_have_contention() {
        let mut starved = schedulers(1.0, 0.01);
        starved.times.queued = Some(2 * SECOND_NS - SECOND_NS / 50);
        starved.times.sleeps = Some(5_000);
        assert_eq!(judged(&[starved], Some(0.015)), Verdict::Yes);
    }

    #[test]
    fn without_the_vms_times_sleeps_for_locks_are_busy_time() {
        let mut without_awake = schedulers(1.0, 0.5);
        without_awake.times.awake = None;
        // They ran for one second and slept for half a second: a third.
        let look = look(&[without_awake], wait_kind::SLEEP, Some(0.5), false);
        let text = look.sampled.unwrap().sentence();
        assert!(text.contains(" 33 %"), "{text}");
        assert_eq!(look.verdict, Verdict::Yes);
    }

    #[test]
    fn interval_of_the_share_narrows_with_the_number_of_samples() {
        let seen = |samples| SampledWaits {
            share: 0.2,
            samples,
            is_negligible: false,
            sampling: Sampling { length: SECOND_NS, is_lower_bound: false },
        };
        assert_eq!(seen(0).interval(), None);
        let (low, high) = seen(100).interval().unwrap();
        assert!((low - 0.1608).abs() < 1e-9 && (high - 0.2392).abs() < 1e-9, "{low} {high}");
        assert_eq!(seen(1).interval().unwrap().0, 0.0);
    }

    #[test]
    fn lock_counts_decide_without_samples() {
        let mut period = Period::default();
        assert_eq!(of_period(&period), None);
        period.facts.set(facts::SCHEDULERS_ONLINE, "2");
        period.lock_session = Some(LockSession { length: 10 * SECOND_NS, ..LockSession::default() });
        period.locks = vec![LockRow { wait_time: 8 * SECOND_NS, ..LockRow::default() }];
        let look = of_period(&period).unwrap();
        assert_eq!((look.verdict, look.counted), (Verdict::Yes, Some(0.4)));
    }
}
