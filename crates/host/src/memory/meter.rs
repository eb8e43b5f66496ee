//! What finding out may cost: CPU time, some times as much while others have the CPU, and a number of reads for clocks that stand
//! still.

use std::cell::Cell;

use beamtune_model::{Clock, Nanos};

use crate::error::HostError;

/// Reads at most, whatever the clock says. One of a few words takes some 0.5 µs.
const MOST_READS: u32 = 1_000_000;
/// On a busy host a thread waits for the CPU. So long is waited for so much work, at most.
const TIMES_AS_LONG: i64 = 4;
/// The clock is looked at once for so many reads.
const READS_A_LOOK: u32 = 32;

/// Counts what is read, and says when it is enough.
pub(super) struct Meter<'a> {
    clock: &'a dyn Clock,
    begin: Nanos,
    until: Nanos,
    budget_ns: Nanos,
    begin_cpu: Nanos,
    reads: Cell<u32>,
    is_over: Cell<bool>,
}

impl<'a> Meter<'a> {
    /// From now on, for so much CPU time.
    pub fn start(clock: &'a dyn Clock, budget_ns: Nanos) -> Self {
        let begin = clock.now();
        Meter {
            clock,
            begin,
            until: begin.saturating_add(budget_ns.saturating_mul(TIMES_AS_LONG)),
            budget_ns,
            begin_cpu: clock.cpu(),
            reads: Cell::new(0),
            is_over: Cell::new(false),
        }
    }

    /// True if one more read is allowed.
    pub fn take(&self) -> bool {
        if self.is_over.get() {
            return false;
        }
        let reads = self.reads.get().saturating_add(1);
        self.reads.set(reads);
        let is_late = || self.worked_ns() > self.budget_ns || self.clock.now() > self.until;
        if reads > MOST_READS || (reads % READS_A_LOOK == 1 && is_late()) {
            self.is_over.set(true);
        }
        !self.is_over.get()
    }

    /// True once a read was refused.
    pub fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// CPU time since the start.
    fn worked_ns(&self) -> Nanos {
        self.clock.cpu().saturating_sub(self.begin_cpu)
    }

    /// Time since the start.
    pub fn spent_ns(&self) -> Nanos {
        self.clock.now().saturating_sub(self.begin)
    }

    /// True if something that takes so long takes no more than a share of all the time, and that is still there.
    pub fn has_left(&self, needs_ns: Nanos, percent: i64) -> bool {
        let share_ns = self.budget_ns / 100 * percent;
        let is_in_time = || self.worked_ns().saturating_add(needs_ns) <= self.budget_ns;
        !self.is_over() && needs_ns <= share_ns && is_in_time()
    }

    /// Why the rest of a file is not read.
    pub fn error(&self, path: &str) -> HostError {
        HostError::TooDear { path: path.to_owned(), after_ms: self.spent_ns() / 1_000_000 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host on which a thread has the CPU for a part of the time.
    struct Busy {
        now: Cell<Nanos>,
        /// It works in one of so many steps.
        of: i64,
    }

    impl Clock for Busy {
        fn now(&self) -> Nanos {
            self.now.get()
        }

        fn wall(&self) -> i64 {
            0
        }

        fn cpu(&self) -> Nanos {
            self.now.get() / self.of
        }

        fn sleep_until(&self, until: Nanos) {
            self.now.set(until);
        }
    }

    #[test]
    fn work_counts_and_waiting_only_if_it_is_long() {
        let ends_at = |of: i64| {
            let clock = Busy { now: Cell::new(0), of };
            let meter = Meter::start(&clock, 100);
            while meter.take() {
                clock.sleep_until(clock.now() + 1);
            }
            // The clock is looked at now and then.
            clock.now() / 50 * 50
        };
        assert_eq!([1, 3, 10].map(ends_at), [100, 300, 400]);
    }
}
