//! When a thread slept, and from where: what was seen of it, put into the order of time.
//!
//! A thread comes by the place at which waiting begins, then, if it does not get what it waits for at once, leaves its CPU, and comes
//! back later. The three are told by different events with rings of their own, so they are put in order here. Where only every n-th
//! coming is told, the first sleep after it is its own, and later ones are of comings that were not told, or of other reasons.

use beamtune_model::Nanos;

/// A thread that has not left its CPU so long after it began to wait did not sleep for that: it spins for some microseconds before,
/// and yields some times.
const SOON: u64 = 10_000_000;
/// What is younger than this is put into order with what comes later from other rings.
const SETTLE: u64 = 50_000_000;

/// Something that happened to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// It begins to wait, as seen in a stack.
    Wait {
        /// Which stack.
        stack: usize,
        /// How many of such it stands for.
        weight: u64,
        /// This was seen as it was leaving its CPU: if it did not want to, it does not wait.
        is_leaving: bool,
    },
    /// It leaves its CPU.
    Out {
        /// By itself.
        is_voluntary: bool,
    },
    /// It is back.
    In,
}

/// A wait that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waited {
    /// Which stack.
    pub stack: usize,
    /// How many of such it stands for.
    pub weight: u64,
    /// How long the thread was away; `None` where it never left.
    pub slept: Option<Nanos>,
}

/// One thread's.
#[derive(Debug, Default)]
pub struct Timeline {
    pending: Vec<(u64, Moment)>,
    latest: u64,
    waiting: Option<Begun>,
    asleep: Option<Begun>,
    /// Off its CPU since, and whether by itself.
    out: Option<(u64, bool)>,
    off: Off,
}

/// How a thread was off its CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Off {
    /// How often it came back after it had left by itself.
    pub woken: u64,
    /// How long it was off because another one had its CPU.
    pub preempted: Nanos,
}

/// A wait or a sleep that has not ended.
#[derive(Debug, Clone, Copy)]
struct Begun {
    since: u64,
    stack: usize,
    weight: u64,
    is_leaving: bool,
}

impl Begun {
    fn ended(self, slept: Option<Nanos>) -> Waited {
        Waited { stack: self.stack, weight: self.weight, slept }
    }
}

impl Timeline {
    /// Adds what happened at an instant.
    pub fn push(&mut self, t: u64, moment: Moment) {
        self.latest = self.latest.max(t);
        self.pending.push((t, moment));
    }

    /// Gives the waits that have ended, but for what is too young to be sure of the order.
    pub fn settle(&mut self, ended: &mut Vec<Waited>) {
        self.settle_until(self.latest.saturating_sub(SETTLE), ended);
    }

    /// Gives all, and those that have not ended as long as they have lasted until `end`; and how the thread was off its CPU.
    pub fn finish(mut self, end: u64, ended: &mut Vec<Waited>) -> Off {
        self.settle_until(u64::MAX, ended);
        self.wake(end, ended);
        self.leave(ended);
        self.off
    }

    fn settle_until(&mut self, until: u64, ended: &mut Vec<Waited>) {
        // Stable, and nearly sorted already.
        self.pending.sort_by_key(|(t, _)| *t);
        let settled = self.pending.partition_point(|(t, _)| *t <= until);
        let moments: Vec<(u64, Moment)> = self.pending.drain(..settled).collect();
        for (t, moment) in moments {
            self.count(t, moment);
            match moment {
                Moment::Wait { stack, weight, is_leaving } => {
                    self.leave(ended);
                    self.waiting = Some(Begun { since: t, stack, weight, is_leaving });
                }
                Moment::Out { is_voluntary: true } => match self.waiting {
                    Some(begun) if t.saturating_sub(begun.since) <= SOON => {
                        self.waiting = None;
                        self.asleep = Some(Begun { since: t, ..begun });
                    }
                    _ => self.leave(ended),
                },
                Moment::Out { is_voluntary: false } => {
                    self.waiting = self.waiting.filter(|begun| !begun.is_leaving);
                }
                Moment::In => self.wake(t, ended),
            }
        }
    }

    fn count(&mut self, t: u64, moment: Moment) {
        match moment {
            Moment::Wait { .. } => {}
            Moment::Out { is_voluntary } => self.out = Some((t, is_voluntary)),
            Moment::In => match self.out.take() {
                Some((_, true)) => self.off.woken += 1,
                Some((since, false)) => {
                    self.off.preempted = self.off.preempted.saturating_add(length(since, t));
                }
                None => {}
            },
        }
    }

    /// It sleeps no more.
    fn wake(&mut self, t: u64, ended: &mut Vec<Waited>) {
        if let Some(begun) = self.asleep.take() {
            ended.push(begun.ended(Some(length(begun.since, t))));
        }
    }

    /// It does not wait any more, and never slept for it.
    fn leave(&mut self, ended: &mut Vec<Waited>) {
        let begun = self.waiting.take().filter(|begun| !begun.is_leaving);
        ended.extend(begun.map(|begun| begun.ended(None)));
    }

    /// The last instant that was told.
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

    const WAIT: Moment = Moment::Wait { stack: 3, weight: 10, is_leaving: false };
    const LEAVING: Moment = Moment::Wait { stack: 3, weight: 10, is_leaving: true };
    const OUT: Moment = Moment::Out { is_voluntary: true };
    const PREEMPTED: Moment = Moment::Out { is_voluntary: false };

    fn slept(slept: Option<Nanos>) -> Waited {
        Waited { stack: 3, weight: 10, slept }
    }

    fn check(moments: &[(u64, Moment)], end: u64, expect: &[Waited]) {
        let mut timeline = Timeline::default();
        moments.iter().for_each(|(t, moment)| timeline.push(*t, *moment));
        let mut ended = Vec::new();
        timeline.settle(&mut ended);
        timeline.finish(end, &mut ended);
        assert_eq!(ended, expect, "{moments:?}");
    }

    #[test]
    fn a_sleep_belongs_to_the_wait_before_it() {
        check(&[(10, WAIT), (12, OUT), (52, Moment::In)], 100, &[slept(Some(40))]);
        // Whatever the order in which the rings were read.
        check(&[(12, OUT), (52, Moment::In), (10, WAIT)], 100, &[slept(Some(40))]);
        check(
            &[(10, WAIT), (11, PREEMPTED), (12, Moment::In), (13, OUT), (20, Moment::In)],
            100,
            &[slept(Some(7))],
        );
    }

    #[test]
    fn only_the_first_sleep_after_a_wait_is_its_own() {
        let moments = [(10, WAIT), (12, OUT), (20, Moment::In), (30, OUT), (90, Moment::In)];
        check(&moments, 100, &[slept(Some(8))]);
    }

    #[test]
    fn a_wait_without_a_sleep_is_one_all_the_same() {
        check(&[(10, WAIT), (20, WAIT), (22, OUT), (25, Moment::In)], 100, &[slept(None), slept(Some(3))]);
        check(&[(10, WAIT)], 100, &[slept(None)]);
        // It went on, and slept much later for something else.
        check(&[(10, WAIT), (20_000_000, OUT), (30_000_000, Moment::In)], 40_000_000, &[slept(None)]);
    }

    #[test]
    fn a_sleep_that_has_not_ended_lasts_until_the_end() {
        check(&[(10, WAIT), (12, OUT)], 112, &[slept(Some(100))]);
    }

    #[test]
    fn a_thread_that_was_seen_leaving_waits_only_if_it_wanted_to_leave() {
        check(&[(10, LEAVING), (11, OUT), (31, Moment::In)], 100, &[slept(Some(20))]);
        check(&[(10, LEAVING), (11, PREEMPTED), (12, Moment::In), (13, OUT), (90, Moment::In)], 100, &[]);
        check(&[(10, LEAVING)], 100, &[]);
    }

    #[test]
    fn a_sleep_for_no_wait_is_none() {
        check(&[(12, OUT), (52, Moment::In)], 100, &[]);
        check(&[(5, Moment::In), (6, PREEMPTED), (7, Moment::In)], 100, &[]);
    }

    #[test]
    fn how_a_thread_was_off_its_cpu_is_counted() {
        let mut timeline = Timeline::default();
        let moments = [
            (5, Moment::In),
            (10, OUT),
            (20, Moment::In),
            (30, PREEMPTED),
            (37, Moment::In),
            (40, PREEMPTED),
            (45, Moment::In),
            (50, OUT),
            (90, Moment::In),
            (95, OUT),
        ];
        moments.iter().for_each(|(t, moment)| timeline.push(*t, *moment));
        assert_eq!(timeline.finish(100, &mut Vec::new()), Off { woken: 2, preempted: 12 });
    }

    #[test]
    fn what_is_young_is_kept_until_its_order_is_sure() {
        let mut timeline = Timeline::default();
        let mut ended = Vec::new();
        timeline.push(1_000, WAIT);
        timeline.push(3_000, Moment::In);
        timeline.settle(&mut ended);
        assert_eq!(ended, []);
        timeline.push(2_000, OUT);
        timeline.push(200_000_000, PREEMPTED);
        timeline.settle(&mut ended);
        assert_eq!(ended, [slept(Some(1_000))]);
        assert_eq!(timeline.latest(), 200_000_000);
    }
}
