//! Limits for reading a process's memory: CPU time, a multiple of it as wall time (for a busy host), and a number of reads, in case the
//! clock does not advance.

use std::cell::Cell;

use beamtune_model::{Clock, Nanos};

use crate::error::HostError;

/// Maximum number of reads, independent of the clock. Reading a few words takes about 0.5 µs.
const MAX_READS: u32 = 1_000_000;
/// Maximum wall time, as a multiple of the CPU time: on a busy host, a thread waits for a CPU.
const MAX_WALL_FACTOR: i64 = 4;
/// The clock is checked once in this many reads.
const READS_PER_CHECK: u32 = 32;

/// Counts reads, and detects when a limit is reached.
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
    /// Starts with a budget of CPU time.
    pub fn start(clock: &'a dyn Clock, budget_ns: Nanos) -> Self {
        let begin = clock.now();
        Meter {
            clock,
            begin,
            until: begin.saturating_add(budget_ns.saturating_mul(MAX_WALL_FACTOR)),
            budget_ns,
            begin_cpu: clock.cpu(),
            reads: Cell::new(0),
            is_over: Cell::new(false),
        }
    }

    /// Counts a read. Returns whether it is allowed.
    pub fn take(&self) -> bool {
        if self.is_over.get() {
            return false;
        }
        let reads = self.reads.get().saturating_add(1);
        self.reads.set(reads);
        let is_late = || self.worked_ns() > self.budget_ns || self.clock.now() > self.until;
        if reads > MAX_READS || (reads % READS_PER_CHECK == 1 && is_late()) {
            self.is_over.set(true);
        }
        !self.is_over.get()
    }

    /// Whether a read was refused.
    pub fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// CPU time since the start.
    fn worked_ns(&self) -> Nanos {
        self.clock.cpu().saturating_sub(self.begin_cpu)
    }

    /// Wall time since the start.
    pub fn spent_ns(&self) -> Nanos {
        self.clock.now().saturating_sub(self.begin)
    }

    /// Whether an operation of this duration needs at most this share of the budget, and the remaining budget suffices.
    pub fn has_left(&self, needs_ns: Nanos, percent: i64) -> bool {
        let share_ns = self.budget_ns / 100 * percent;
        let is_in_time = || self.worked_ns().saturating_add(needs_ns) <= self.budget_ns;
        !self.is_over() && needs_ns <= share_ns && is_in_time()
    }

    /// Creates the error for a file that was not read to its end.
    pub fn error(&self, path: &str) -> HostError {
        HostError::OverBudget { path: path.to_owned(), after_ms: self.spent_ns() / 1_000_000 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host on which a thread has a CPU only for a part of the time.
    struct BusyHost {
        now: Cell<Nanos>,
        /// The thread has a CPU in one out of this many steps.
        of: i64,
    }

    impl Clock for BusyHost {
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
    fn cpu_time_is_limited_and_wall_time_to_a_multiple_of_it() {
        let ends_at = |of: i64| {
            let clock = BusyHost { now: Cell::new(0), of };
            let meter = Meter::start(&clock, 100);
            while meter.take() {
                clock.sleep_until(clock.now() + 1);
            }
            // The clock is not checked for every read.
            clock.now() / 50 * 50
        };
        assert_eq!([1, 3, 10].map(ends_at), [100, 300, 400]);
    }
}
