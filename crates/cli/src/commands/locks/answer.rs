//! Whether threads wait for each other: from how they spent their time, and from where they were seen.
//!
//! Threads that spin and yield for a lock are on a CPU for the kernel, so with few schedulers the time alone tells nothing; the samples
//! do. And threads that are blocked may wait for something else than locks, so samples that show no lock speak against it.

use beamtune_model::cpu::kind;
use beamtune_model::units::{SECOND_NS, seconds};
use beamtune_model::{Nanos, Period, WaitRow, facts};
use beamtune_profile::blocked::{self, Blocked, Times};
use beamtune_profile::waits::How;
use beamtune_report::locks::{self, Answer, Look};

use super::probing::{self, Probed};
use crate::take;

/// Waits for locks of this share of the time in which schedulers had work limit a node: the share from which BT015 tells of it.
const MUCH: f64 = 0.15;
/// Below this share they do not: a VM without any contention is in functions of locks for 1 to 2 % of the time.
const LITTLE: f64 = 0.05;
/// Waits that together take less than this of one thread's time limit nobody where there is as little else to do ([`IDLE`], judgement).
const NOBODY: f64 = 0.02;
/// Schedulers that together want less than this of one CPU have next to nothing to do (judgement).
const IDLE: f64 = 0.2;
/// Threads that are without a CPU for more than this share of the time in which they have work lose it while they hold locks (judgement).
const STARVED: f64 = 0.2;
/// Who fights for a lock sleeps more often than this in a second: 10 were seen of threads that send messages on a starved host, whose
/// holders of locks had no CPU, and 700 to 30,000 of those that fight for a table.
const FEW_SLEEPS: f64 = 50.0;
/// Schedulers that have run for less than this together have nothing that could be shared.
const HARDLY_RAN: Nanos = SECOND_NS / 100;

/// From a recording alone; `None` where it tells neither how threads spent their time nor what was counted.
pub fn of_period(period: &Period) -> Option<Look> {
    let times = blocked::of_period(period).ok();
    let counted = counted_share(period);
    if times.is_none() && counted.is_none() {
        return None;
    }
    let kinds: Vec<Blocked> = times.unwrap_or_default().into_iter().map(blocked::judge).collect();
    let watched = Watched {
        length: period.watched().unwrap_or(0),
        // Whether sleeps could be seen does not stand there, so it has to be seen from a sleep.
        is_least: !period.waits.iter().any(|row| row.how == How::Sleep.text()),
    };
    let mut look = look(&kinds, &period.waits, watched, period.end - period.begin, Vec::new());
    if let Some(share) = counted {
        look.answer = by_share(share).unwrap_or(Answer::NotSure);
        look.means.insert(
            0,
            format!(
                "threads waited for locks that were counted for {:.0} % of the schedulers' time",
                share * 100.0
            ),
        );
    }
    Some(look)
}

/// Time that all threads have waited for the locks that were counted, as a share of the time of all schedulers.
fn counted_share(period: &Period) -> Option<f64> {
    let session = period.lock_session.as_ref().filter(|session| session.length > 0)?;
    let schedulers = period.facts.number(facts::SCHEDULERS_ONLINE)?;
    let waited: i64 = period.locks.iter().filter(|row| row.id.is_none()).map(|row| row.waited).sum();
    Some(waited as f64 / session.length as f64 / schedulers.max(1) as f64)
}

/// From a look at a running VM.
pub fn of_probed(probed: &Probed) -> Look {
    let length = take::nanos(probed.length);
    let mut means = probed.remarks.clone();
    if length > 0 {
        means.push(probing::cost_sentence(&probed.cost, probed.length));
    }
    let looked = probed.blocked.iter().map(|judged| judged.times.length).max().unwrap_or(length);
    let watched = Watched { length, is_least: probed.is_least };
    look(&probed.blocked, &probed.waits, watched, looked.max(length), means)
}

/// Whether what was seen may stand in a recording, which does not tell that waits were missed: few waits would read as if there were few.
pub fn is_told(probed: &Probed) -> bool {
    let length = take::nanos(probed.length);
    let schedulers = probed.blocked.iter().filter(|judged| judged.times.kind == kind::SCHEDULER);
    let threads: usize = schedulers.map(|judged| judged.times.threads).sum();
    let waited = probed.waits.iter().fold(0_i64, |sum, row| sum.saturating_add(row.waited));
    !probed.is_least || waited as f64 > LITTLE * length as f64 * threads as f64
}

/// How waits for locks were looked for.
#[derive(Debug, Clone, Copy)]
struct Watched {
    /// How long; 0: not at all.
    length: Nanos,
    /// There may be more than were seen.
    is_least: bool,
}

fn look(
    kinds: &[Blocked],
    waits: &[WaitRow],
    watched: Watched,
    length: Nanos,
    mut means: Vec<String>,
) -> Look {
    let waited = (watched.length > 0).then(|| waited(kinds, waits, watched)).flatten();
    if let Some(waited) = waited {
        means.insert(
            0,
            format!(
                "schedulers were seen waiting for locks for {}{:.0} % of the time in which they had work, and were not waiting for a CPU ({:.1} s were watched)",
                if waited.is_least { "at least " } else { "" },
                waited.share * 100.0,
                seconds(watched.length)
            ),
        );
    }
    Look { answer: answer(kinds, waited), length, kinds: kinds.iter().map(told).collect(), means }
}

/// Waits of schedulers for locks.
#[derive(Debug, Clone, Copy)]
struct Waited {
    /// As a share of the time in which they had work.
    share: f64,
    /// They are next to nothing, as is all else.
    is_nothing: bool,
    /// There may be more than that.
    is_least: bool,
}

impl Waited {
    /// `None` where it does not decide.
    fn answer(&self) -> Option<Answer> {
        let answer = if self.is_nothing { Some(Answer::No) } else { by_share(self.share) };
        answer.filter(|answer| *answer != Answer::No || !self.is_least)
    }
}

/// Waits of schedulers beside the time in which they had work and could do it, since they had a CPU or did not want one. Where the VM was not
/// asked for that, it is what they ran, and slept for locks.
fn waited(kinds: &[Blocked], waits: &[WaitRow], watched: Watched) -> Option<Waited> {
    let is_one = |name: &str| kind::SCHEDULERS.contains(&name);
    // How many threads waited on the average.
    let sum = |is_meant: &dyn Fn(&WaitRow) -> bool| {
        let rows = waits.iter().filter(|row| is_meant(row));
        rows.fold(0_i64, |sum, row| sum.saturating_add(row.waited)) as f64 / watched.length as f64
    };
    let slept = |times: &Times| sum(&|row| row.thread == times.kind && row.how == How::Sleep.text());
    let threads = |times: &Times, time: Nanos| time as f64 / times.length.max(1) as f64;
    let (mut waiting, mut busy, mut wanted) = (sum(&|row| is_one(&row.thread)), 0.0, 0.0);
    for times in kinds.iter().map(|judged| &judged.times).filter(|times| is_one(&times.kind)) {
        let Some(had) = had(times).map(|had| threads(times, had)) else { continue };
        let queued = threads(times, times.queued.unwrap_or(0));
        let is_rare = times.sleeps_per_second().is_some_and(|rate| rate < FEW_SLEEPS);
        if is_rare && queued > STARVED * (had + queued) {
            // The holder of the lock has lost its CPU: that is not the lock's fault.
            waiting = (waiting - slept(times)).max(0.0);
        }
        busy += if times.awake.is_some() { had } else { had + slept(times) };
        wanted += had + queued;
    }
    (busy * watched.length as f64 > HARDLY_RAN as f64).then(|| Waited {
        share: (waiting / busy).min(1.0),
        is_nothing: waiting < NOBODY && wanted < IDLE,
        is_least: watched.is_least,
    })
}

/// Time in which threads had work and could do it: of what the VM says, that without a CPU goes to whoever had it, and is lost to no lock.
fn had(times: &Times) -> Option<Nanos> {
    match times.awake {
        Some(awake) => Some(awake.saturating_sub(times.queued.unwrap_or(0)).max(times.ran.unwrap_or(0))),
        None => times.ran,
    }
}

/// For the node. Where it is known what threads wait for, that decides.
fn answer(kinds: &[Blocked], waited: Option<Waited>) -> Answer {
    let schedulers = || kinds.iter().filter(|judged| kind::SCHEDULERS.contains(&judged.times.kind.as_str()));
    let any = |answer| schedulers().any(|judged| judged.answer == answer);
    let is_some = waited.is_some_and(|waited| waited.share >= LITTLE);
    match waited.and_then(|waited| waited.answer()) {
        Some(answer) => answer,
        // Something else than a lock may block them, where all waits for locks were seen.
        None if any(blocked::Answer::Yes) && waited.is_none_or(|waited| waited.is_least) => Answer::Yes,
        None if is_some || any(blocked::Answer::NotSure) || schedulers().next().is_none() => Answer::NotSure,
        None => Answer::No,
    }
}

/// `None` between the two limits.
fn by_share(share: f64) -> Option<Answer> {
    match share {
        share if share >= MUCH => Some(Answer::Yes),
        share if share < LITTLE => Some(Answer::No),
        _ => None,
    }
}

fn told(judged: &Blocked) -> locks::Blocked {
    locks::Blocked {
        kind: judged.times.kind.clone(),
        threads: judged.times.threads,
        awake_share: judged.times.awake_share(),
        blocked_share: judged.times.blocked_share(),
        sleeps_per_second: judged.times.sleeps_per_second(),
        answer: match judged.answer {
            blocked::Answer::Yes => Answer::Yes,
            blocked::Answer::No => Answer::No,
            blocked::Answer::NotSure => Answer::NotSure,
        },
        why: judged.reason(),
    }
}

#[cfg(test)]
mod tests {
    use beamtune_model::{LockRow, LockSession};

    use super::*;

    /// Two schedulers that had work for so much of a second, and ran for so much of it.
    fn schedulers(awake: f64, ran: f64) -> Blocked {
        let nanos = |share: f64| (share * 2.0 * SECOND_NS as f64) as Nanos;
        blocked::judge(Times {
            kind: "scheduler".to_owned(),
            threads: 2,
            length: SECOND_NS,
            awake: Some(nanos(awake)),
            ran: Some(nanos(ran)),
            queued: Some(0),
            sleeps: Some(10),
            ..Times::default()
        })
    }

    /// Schedulers slept so many seconds for locks in one in which they were watched; `None`: they were not.
    fn looked(kinds: &[Blocked], waited_s: Option<f64>, is_least: bool) -> Look {
        let row = |waited: f64| WaitRow {
            thread: "scheduler".to_owned(),
            how: "sleep".to_owned(),
            waited: (waited * SECOND_NS as f64) as Nanos,
            ..WaitRow::default()
        };
        let rows: Vec<_> = waited_s.into_iter().map(row).collect();
        let length = if waited_s.is_some() { SECOND_NS } else { 0 };
        look(kinds, &rows, Watched { length, is_least }, SECOND_NS, Vec::new())
    }

    fn judged(kinds: &[Blocked], waited_s: Option<f64>) -> Answer {
        looked(kinds, waited_s, false).answer
    }

    #[test]
    fn what_threads_were_seen_waiting_for_decides_where_it_is_known() {
        // They spin: on a CPU all the time, and most of it for a lock.
        assert_eq!(judged(&[schedulers(1.0, 1.0)], Some(1.2)), Answer::Yes);
        assert_eq!(judged(&[schedulers(1.0, 1.0)], Some(0.2)), Answer::NotSure);
        assert_eq!(judged(&[schedulers(1.0, 1.0)], Some(0.02)), Answer::No);
        // Blocked by something that is no lock.
        assert_eq!(judged(&[schedulers(1.0, 0.2)], Some(0.0)), Answer::No);
        assert_eq!(judged(&[schedulers(1.0, 0.2)], Some(0.2)), Answer::NotSure);
    }

    #[test]
    fn without_samples_the_time_decides() {
        assert_eq!(judged(&[schedulers(1.0, 0.2)], None), Answer::Yes);
        assert_eq!(judged(&[schedulers(1.0, 0.95)], None), Answer::No);
        assert_eq!(judged(&[schedulers(1.0, 0.6)], None), Answer::NotSure);
        assert_eq!(judged(&[], None), Answer::NotSure);
    }

    #[test]
    fn where_sleeps_were_not_seen_few_waits_clear_nobody() {
        let judged = |kinds: &[Blocked], waited_s| looked(kinds, Some(waited_s), true).answer;
        // The threads were blocked, and nothing shows in what.
        assert_eq!(judged(&[schedulers(1.0, 0.2)], 0.0), Answer::Yes);
        assert_eq!(judged(&[schedulers(1.0, 0.6)], 0.0), Answer::NotSure);
        assert_eq!(judged(&[schedulers(1.0, 0.95)], 0.0), Answer::No);
        assert_eq!(judged(&[schedulers(1.0, 0.95)], 0.2), Answer::NotSure);
        assert_eq!(judged(&[schedulers(1.0, 0.95)], 1.2), Answer::Yes);
        let means = looked(&[schedulers(1.0, 1.0)], Some(1.2), true).means;
        assert!(means[0].contains("at least 60 %"), "{means:?}");
    }

    #[test]
    fn nodes_that_do_nothing_have_no_share() {
        assert_eq!(judged(&[schedulers(0.001, 0.001)], Some(0.0)), Answer::No);
        // A quarter of nearly nothing is nearly nothing.
        assert_eq!(judged(&[schedulers(0.02, 0.02)], Some(0.01)), Answer::No);
    }

    #[test]
    fn on_a_starved_host_few_long_sleeps_are_those_of_holders_without_a_cpu() {
        let mut starved = schedulers(1.0, 0.2);
        starved.times.queued = Some(SECOND_NS + SECOND_NS / 2);
        assert_eq!(judged(&[starved.clone()], Some(0.3)), Answer::No);
        // Who fights for a lock sleeps often.
        starved.times.sleeps = Some(5_000);
        assert_eq!(judged(&[starved], Some(0.3)), Answer::Yes);
    }

    #[test]
    fn a_vm_that_hardly_gets_a_cpu_fights_for_locks_all_the_same() {
        let mut starved = schedulers(1.0, 0.01);
        starved.times.queued = Some(2 * SECOND_NS - SECOND_NS / 50);
        starved.times.sleeps = Some(5_000);
        assert_eq!(judged(&[starved], Some(0.015)), Answer::Yes);
    }

    #[test]
    fn without_the_vms_word_time_asleep_for_locks_is_time_with_work() {
        let mut unasked = schedulers(1.0, 0.5);
        unasked.times.awake = None;
        // They ran for a second, and slept for half of one: a third.
        let told = looked(&[unasked], Some(0.5), false);
        assert!(told.means[0].contains(" 33 %"), "{:?}", told.means);
        assert_eq!(told.answer, Answer::Yes);
    }

    #[test]
    fn what_was_counted_answers_also_where_threads_were_not_seen() {
        let mut period = Period::default();
        assert_eq!(of_period(&period), None);
        period.facts.set(facts::SCHEDULERS_ONLINE, "2");
        period.lock_session = Some(LockSession { length: 10 * SECOND_NS, ..LockSession::default() });
        period.locks = vec![LockRow { waited: 8 * SECOND_NS, ..LockRow::default() }];
        let look = of_period(&period).unwrap();
        assert_eq!(look.answer, Answer::Yes);
        assert!(look.means[0].contains("40 %"), "{:?}", look.means);
    }
}
