//! Determines when a thread slept, and in which stack, by merging the events of several rings in order of time.
//!
//! A thread starts a wait. Unless the wait ends immediately, the thread is then switched out, and later switched in again. These three
//! events come from different perf events, each with its own ring. If only every n-th wait is sampled, the first sleep after a sample
//! belongs to the sampled wait. Later sleeps belong to waits that were not sampled, or have other reasons.

use beamtune_model::Nanos;

/// Nanoseconds after which a sleep no longer belongs to the wait before it: a waiting thread first spins for some microseconds, and yields
/// a few times.
const MAX_UNTIL_SLEEP_NS: u64 = 10_000_000;
/// Events younger than this, in nanoseconds, may not be complete: earlier ones may still be unread in other rings.
const SETTLE_NS: u64 = 50_000_000;

/// An event of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadEvent {
    /// The thread starts to wait, according to its stack.
    Wait {
        /// Index of the stack.
        stack: usize,
        /// Number of waits that this one represents.
        weight: u64,
        /// Whether the thread was sampled while it was switched out. If that was a preemption, the thread does not wait.
        is_leaving: bool,
    },
    /// The thread is switched out.
    Out {
        /// Whether the thread blocked; otherwise it was preempted.
        is_voluntary: bool,
    },
    /// The thread is switched in.
    In,
}

/// A wait that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedWait {
    /// Index of the stack.
    pub stack: usize,
    /// Number of waits that this one represents.
    pub weight: u64,
    /// How long the thread slept; `None` if it did not sleep.
    pub slept: Option<Nanos>,
}

/// The events of one thread.
#[derive(Debug, Default)]
pub struct Timeline {
    pending: Vec<(u64, ThreadEvent)>,
    latest: u64,
    waiting: Option<OpenWait>,
    asleep: Option<OpenWait>,
    /// Time of the last switch out, and whether it was voluntary.
    out: Option<(u64, bool)>,
    off: OffCpu,
}

/// Off-CPU totals of a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OffCpu {
    /// Number of wake-ups: switches in after a voluntary switch out.
    pub woken: u64,
    /// Time between preemptions and the next switch in.
    pub preempted: Nanos,
}

/// A wait or sleep that has not ended.
#[derive(Debug, Clone, Copy)]
struct OpenWait {
    since: u64,
    stack: usize,
    weight: u64,
    is_leaving: bool,
}

impl OpenWait {
    fn ended(self, slept: Option<Nanos>) -> EndedWait {
        EndedWait { stack: self.stack, weight: self.weight, slept }
    }
}

impl Timeline {
    /// Adds an event; `t` is in nanoseconds of the perf clock.
    pub fn push(&mut self, t: u64, event: ThreadEvent) {
        self.latest = self.latest.max(t);
        self.pending.push((t, event));
    }

    /// Appends the waits that have ended to `ended`, except those whose events may still be incomplete.
    pub fn settle(&mut self, ended: &mut Vec<EndedWait>) {
        self.settle_until(self.latest.saturating_sub(SETTLE_NS), ended);
    }

    /// Appends all remaining waits to `ended`; a sleep that has not ended is treated as if it ended at `end`. Returns the off-CPU totals.
    pub fn finish(mut self, end: u64, ended: &mut Vec<EndedWait>) -> OffCpu {
        self.settle_until(u64::MAX, ended);
        self.wake(end, ended);
        self.leave(ended);
        self.off
    }

    fn settle_until(&mut self, until: u64, ended: &mut Vec<EndedWait>) {
        // This sort is stable, and fast since the events are nearly sorted.
        self.pending.sort_by_key(|(t, _)| *t);
        let settled = self.pending.partition_point(|(t, _)| *t <= until);
        let events: Vec<(u64, ThreadEvent)> = self.pending.drain(..settled).collect();
        for (t, event) in events {
            self.count(t, event);
            match event {
                ThreadEvent::Wait { stack, weight, is_leaving } => {
                    self.leave(ended);
                    self.waiting = Some(OpenWait { since: t, stack, weight, is_leaving });
                }
                ThreadEvent::Out { is_voluntary: true } => match self.waiting {
                    Some(wait) if t.saturating_sub(wait.since) <= MAX_UNTIL_SLEEP_NS => {
                        self.waiting = None;
                        self.asleep = Some(OpenWait { since: t, ..wait });
                    }
                    _ => self.leave(ended),
                },
                ThreadEvent::Out { is_voluntary: false } => {
                    self.waiting = self.waiting.filter(|wait| !wait.is_leaving);
                }
                ThreadEvent::In => self.wake(t, ended),
            }
        }
    }

    fn count(&mut self, t: u64, event: ThreadEvent) {
        match event {
            ThreadEvent::Wait { .. } => {}
            ThreadEvent::Out { is_voluntary } => self.out = Some((t, is_voluntary)),
            ThreadEvent::In => match self.out.take() {
                Some((_, true)) => self.off.woken += 1,
                Some((since, false)) => {
                    self.off.preempted = self.off.preempted.saturating_add(length(since, t));
                }
                None => {}
            },
        }
    }

    /// Ends a sleep.
    fn wake(&mut self, t: u64, ended: &mut Vec<EndedWait>) {
        if let Some(wait) = self.asleep.take() {
            ended.push(wait.ended(Some(length(wait.since, t))));
        }
    }

    /// Ends a wait without a sleep.
    fn leave(&mut self, ended: &mut Vec<EndedWait>) {
        let wait = self.waiting.take().filter(|wait| !wait.is_leaving);
        ended.extend(wait.map(|wait| wait.ended(None)));
    }

    /// Returns the time of the latest event.
    pub fn latest(&self) -> u64 {
        self.latest
    }
}

fn length(from: u64, to: u64) -> Nanos {
    Nanos::try_from(to.saturating_sub(from)).unwrap_or(Nanos::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: ThreadEvent = ThreadEvent::Wait { stack: 3, weight: 10, is_leaving: false };
    const LEAVING: ThreadEvent = ThreadEvent::Wait { stack: 3, weight: 10, is_leaving: true };
    const OUT: ThreadEvent = ThreadEvent::Out { is_voluntary: true };
    const PREEMPTED: ThreadEvent = ThreadEvent::Out { is_voluntary: false };

    fn slept(slept: Option<Nanos>) -> EndedWait {
        EndedWait { stack: 3, weight: 10, slept }
    }

    fn check(events: &[(u64, ThreadEvent)], end: u64, expect: &[EndedWait]) {
        let mut timeline = Timeline::default();
        events.iter().for_each(|(t, event)| timeline.push(*t, *event));
        let mut ended = Vec::new();
        timeline.settle(&mut ended);
        timeline.finish(end, &mut ended);
        assert_eq!(ended, expect, "{events:?}");
    }

    #[test]
    fn a_sleep_belongs_to_the_wait_before_it() {
        check(&[(10, WAIT), (12, OUT), (52, ThreadEvent::In)], 100, &[slept(Some(40))]);
        // The order in which rings are read does not matter.
        check(&[(12, OUT), (52, ThreadEvent::In), (10, WAIT)], 100, &[slept(Some(40))]);
        check(
            &[(10, WAIT), (11, PREEMPTED), (12, ThreadEvent::In), (13, OUT), (20, ThreadEvent::In)],
            100,
            &[slept(Some(7))],
        );
    }

    #[test]
    fn only_the_first_sleep_after_a_wait_belongs_to_it() {
        let events = [(10, WAIT), (12, OUT), (20, ThreadEvent::In), (30, OUT), (90, ThreadEvent::In)];
        check(&events, 100, &[slept(Some(8))]);
    }

    #[test]
    fn a_wait_without_a_sleep_is_reported() {
        check(
            &[(10, WAIT), (20, WAIT), (22, OUT), (25, ThreadEvent::In)],
            100,
            &[slept(None), slept(Some(3))],
        );
        check(&[(10, WAIT)], 100, &[slept(None)]);
        // The thread continued to run, and slept much later for another reason.
        check(&[(10, WAIT), (20_000_000, OUT), (30_000_000, ThreadEvent::In)], 40_000_000, &[slept(None)]);
    }

    #[test]
    fn an_open_sleep_lasts_until_the_end() {
        check(&[(10, WAIT), (12, OUT)], 112, &[slept(Some(100))]);
    }

    #[test]
    fn a_thread_sampled_while_leaving_waits_only_if_it_left_voluntarily() {
        check(&[(10, LEAVING), (11, OUT), (31, ThreadEvent::In)], 100, &[slept(Some(20))]);
        check(
            &[(10, LEAVING), (11, PREEMPTED), (12, ThreadEvent::In), (13, OUT), (90, ThreadEvent::In)],
            100,
            &[],
        );
        check(&[(10, LEAVING)], 100, &[]);
    }

    #[test]
    fn a_sleep_without_a_wait_is_ignored() {
        check(&[(12, OUT), (52, ThreadEvent::In)], 100, &[]);
        check(&[(5, ThreadEvent::In), (6, PREEMPTED), (7, ThreadEvent::In)], 100, &[]);
    }

    #[test]
    fn off_cpu_totals_are_counted() {
        let mut timeline = Timeline::default();
        let events = [
            (5, ThreadEvent::In),
            (10, OUT),
            (20, ThreadEvent::In),
            (30, PREEMPTED),
            (37, ThreadEvent::In),
            (40, PREEMPTED),
            (45, ThreadEvent::In),
            (50, OUT),
            (90, ThreadEvent::In),
            (95, OUT),
        ];
        events.iter().for_each(|(t, event)| timeline.push(*t, *event));
        assert_eq!(timeline.finish(100, &mut Vec::new()), OffCpu { woken: 2, preempted: 12 });
    }

    #[test]
    fn young_events_are_kept_until_their_order_is_certain() {
        let mut timeline = Timeline::default();
        let mut ended = Vec::new();
        timeline.push(1_000, WAIT);
        timeline.push(3_000, ThreadEvent::In);
        timeline.settle(&mut ended);
        assert_eq!(ended, []);
        timeline.push(2_000, OUT);
        timeline.push(200_000_000, PREEMPTED);
        timeline.settle(&mut ended);
        assert_eq!(ended, [slept(Some(1_000))]);
        assert_eq!(timeline.latest(), 200_000_000);
    }
}
