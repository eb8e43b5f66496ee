//! Whether threads wait for each other: from how they spent their time, and from where they were seen.
//!
//! Threads that spin and yield for a lock are on a CPU for the kernel, so with few schedulers the time alone tells nothing; the samples
//! do. And threads that are blocked may wait for something else than locks, so samples that show no lock speak against it.
//!
//! What is decided here is the answer of `beamtune locks`, and what BT033 goes by.

use beamtune_model::cpu::kind;
use beamtune_model::locks::how;
use beamtune_model::units::{SECOND_NS, seconds};
use beamtune_model::{Nanos, Period, WaitRow, facts};

use super::blocked::{self, Answer, Blocked, Times};

/// Waits for locks of this share of the time in which schedulers had work limit a node: the share from which BT015 tells of it.
pub const MUCH: f64 = 0.15;
/// Below this share they do not: a VM without any contention is in functions of locks for 1 to 2 % of the time.
pub const LITTLE: f64 = 0.05;
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

/// What is known of the waits of a VM's threads.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// Whether they wait for each other.
    pub answer: Answer,
    /// How long the look was.
    pub length: Nanos,
    /// How the schedulers spent their time, by their kinds.
    pub kinds: Vec<Blocked>,
    /// In what they were seen waiting; `None` where nobody has watched, or they hardly ran.
    pub seen: Option<Waited>,
    /// Time waited for the locks that were counted, as a share of the time of all schedulers; `None` where none were.
    pub counted: Option<f64>,
}

/// Waits of schedulers for locks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waited {
    /// As a share of the time in which they had work.
    pub share: f64,
    /// They are next to nothing, as is all else.
    pub is_nothing: bool,
    /// For how long it was watched.
    pub watched: Watched,
}

/// How waits for locks were looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    /// How long; 0: not at all.
    pub length: Nanos,
    /// There may be more than were seen.
    pub is_least: bool,
}

/// From a recording alone; `None` where it tells neither how threads spent their time nor what was counted.
pub fn of_period(period: &Period) -> Option<Look> {
    let times = blocked::of_period(period).ok();
    let counted = counted_share(period);
    if times.is_none() && counted.is_none() {
        return None;
    }
    let kinds = times.unwrap_or_default().into_iter().map(blocked::judge).collect();
    // Waits of which some were missed come into no recording, unless there were many all the same ([`is_told`]).
    let watched = Watched { length: period.watched().unwrap_or(0), is_least: false };
    let look = of_waits(kinds, &period.waits, watched, period.end - period.begin);
    Some(match counted {
        Some(share) => Look { answer: by_share(share).unwrap_or(Answer::NotSure), counted, ..look },
        None => look,
    })
}

/// Time that all threads have waited for the locks that were counted, as a share of the time of all schedulers.
fn counted_share(period: &Period) -> Option<f64> {
    let session = period.lock_session.as_ref().filter(|session| session.length > 0)?;
    let schedulers = period.facts.number(facts::SCHEDULERS_ONLINE)?;
    let waited: i64 = period.locks.iter().filter(|row| row.id.is_none()).map(|row| row.waited).sum();
    Some(waited as f64 / session.length as f64 / schedulers.max(1) as f64)
}

/// Whether waits that were seen may stand in a recording, which does not tell that some were missed: few would read as if there were few.
/// `threads` are the schedulers.
pub fn is_told(waits: &[WaitRow], watched: Watched, threads: usize) -> bool {
    let waited = waits.iter().fold(0_i64, |sum, row| sum.saturating_add(row.waited));
    !watched.is_least || waited as f64 > LITTLE * watched.length as f64 * threads as f64
}

/// From how schedulers spent their time, in a look of such a length, and in what they were seen waiting meanwhile.
pub fn of_waits(kinds: Vec<Blocked>, waits: &[WaitRow], watched: Watched, length: Nanos) -> Look {
    let seen = (watched.length > 0).then(|| waited(&kinds, waits, watched)).flatten();
    Look { answer: answer(&kinds, seen), length, kinds, seen, counted: None }
}

impl Waited {
    /// `None` where it does not decide.
    fn answer(&self) -> Option<Answer> {
        let answer = if self.is_nothing { Some(Answer::No) } else { by_share(self.share) };
        answer.filter(|answer| *answer != Answer::No || !self.watched.is_least)
    }

    /// For a person.
    pub fn sentence(&self) -> String {
        format!(
            "schedulers were seen waiting for locks for {}{:.0} % of the time in which they had work, and were not waiting for a CPU ({:.1} s were watched)",
            if self.watched.is_least { "at least " } else { "" },
            self.share * 100.0,
            seconds(self.watched.length)
        )
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
    let slept = |times: &Times| sum(&|row| row.thread == times.kind && row.how == how::SLEEP);
    let threads = |times: &Times, time: Nanos| time as f64 / times.length.max(1) as f64;
    let (mut waiting, mut busy, mut wanted) = (sum(&|row| is_one(&row.thread)), 0.0, 0.0);
    for times in kinds.iter().map(|judged| &judged.times).filter(|times| is_one(&times.kind)) {
        let Some(had) = had(times).map(|had| threads(times, had)) else { continue };
        let queued = threads(times, times.queued.unwrap_or(0));
        // Of a sleep it is not seen how long the thread waited for a CPU once it was woken, only how long threads do on the average. But
        // where the VM says how long they had work, they were not blocked for longer than that leaves.
        let slept_at_most = times.blocked().map_or(f64::INFINITY, |blocked| threads(times, blocked));
        waiting = (waiting - (slept(times) - slept_at_most).max(0.0)).max(0.0);
        let slept = |times: &Times| slept(times).min(slept_at_most);
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
        watched,
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
        None if any(Answer::Yes) && waited.is_none_or(|waited| waited.watched.is_least) => Answer::Yes,
        None if is_some || any(Answer::NotSure) || schedulers().next().is_none() => Answer::NotSure,
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

    /// Schedulers waited so many seconds for locks in one in which they were watched, asleep or not; `None`: they were not.
    fn looked(kinds: &[Blocked], how: &str, waited_s: Option<f64>, is_least: bool) -> Look {
        let row = |waited: f64| WaitRow {
            thread: "scheduler".to_owned(),
            how: how.to_owned(),
            waited: (waited * SECOND_NS as f64) as Nanos,
            ..WaitRow::default()
        };
        let rows: Vec<_> = waited_s.into_iter().map(row).collect();
        let length = if waited_s.is_some() { SECOND_NS } else { 0 };
        of_waits(kinds.to_vec(), &rows, Watched { length, is_least }, SECOND_NS)
    }

    fn judged(kinds: &[Blocked], waited_s: Option<f64>) -> Answer {
        looked(kinds, how::YIELD, waited_s, false).answer
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
        // They may have spun for a lock.
        assert_eq!(judged(&[schedulers(1.0, 0.95)], None), Answer::NotSure);
        assert_eq!(judged(&[schedulers(0.01, 0.01)], None), Answer::No);
        assert_eq!(judged(&[schedulers(1.0, 0.6)], None), Answer::NotSure);
        assert_eq!(judged(&[], None), Answer::NotSure);
    }

    #[test]
    fn where_sleeps_were_not_seen_few_waits_clear_nobody() {
        let judged = |kinds: &[Blocked], waited_s| looked(kinds, how::YIELD, Some(waited_s), true).answer;
        // The threads were blocked, and nothing shows in what.
        assert_eq!(judged(&[schedulers(1.0, 0.2)], 0.0), Answer::Yes);
        assert_eq!(judged(&[schedulers(1.0, 0.6)], 0.0), Answer::NotSure);
        assert_eq!(judged(&[schedulers(1.0, 0.95)], 0.0), Answer::NotSure);
        assert_eq!(judged(&[schedulers(0.01, 0.01)], 0.0), Answer::No);
        assert_eq!(judged(&[schedulers(1.0, 0.95)], 0.2), Answer::NotSure);
        assert_eq!(judged(&[schedulers(1.0, 0.95)], 1.2), Answer::Yes);
        let said = looked(&[schedulers(1.0, 1.0)], how::YIELD, Some(1.2), true).seen.unwrap().sentence();
        assert!(said.contains("at least 60 %"), "{said}");
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
        let judged = |kinds: &[Blocked]| looked(kinds, how::SLEEP, Some(0.1), false).answer;
        assert_eq!(judged(&[starved.clone()]), Answer::No);
        // Who fights for a lock sleeps often.
        starved.times.sleeps = Some(5_000);
        assert_eq!(judged(&[starved]), Answer::Yes);
    }

    #[test]
    fn threads_do_not_sleep_for_locks_for_longer_than_they_were_blocked() {
        // They ran for one second of two that were work, waited for a CPU for 0.8, and were blocked for 0.2.
        let mut kinds = schedulers(1.0, 0.5);
        kinds.times.queued = Some(SECOND_NS * 8 / 10);
        kinds.times.sleeps = Some(5_000);
        let seen = looked(&[kinds], how::SLEEP, Some(1.0), false).seen.unwrap();
        assert!((seen.share - 0.2 / 1.2).abs() < 1e-9, "{seen:?}");
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
        let told = looked(&[unasked], how::SLEEP, Some(0.5), false);
        let said = told.seen.unwrap().sentence();
        assert!(said.contains(" 33 %"), "{said}");
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
        assert_eq!((look.answer, look.counted), (Answer::Yes, Some(0.4)));
    }
}
