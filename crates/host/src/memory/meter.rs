//! What finding out may cost: a time, and a number of reads for clocks that stand still.

use std::cell::Cell;

use beamtune_model::{Clock, Nanos};

use crate::error::HostError;

/// Reads at most, whatever the clock says. One of a few words takes some 0.5 µs.
const MOST_READS: u32 = 1_000_000;
/// The clock is looked at once for so many reads.
const READS_A_LOOK: u32 = 32;

/// Counts what is read, and says when it is enough.
pub(super) struct Meter<'a> {
    clock: &'a dyn Clock,
    begin: Nanos,
    until: Nanos,
    reads: Cell<u32>,
    is_over: Cell<bool>,
}

impl<'a> Meter<'a> {
    /// From now on, for so long.
    pub fn start(clock: &'a dyn Clock, budget_ns: Nanos) -> Self {
        let begin = clock.now();
        let until = begin.saturating_add(budget_ns);
        Meter { clock, begin, until, reads: Cell::new(0), is_over: Cell::new(false) }
    }

    /// True if one more read is allowed.
    pub fn take(&self) -> bool {
        if self.is_over.get() {
            return false;
        }
        let reads = self.reads.get().saturating_add(1);
        self.reads.set(reads);
        if reads > MOST_READS || (reads % READS_A_LOOK == 1 && self.clock.now() > self.until) {
            self.is_over.set(true);
        }
        !self.is_over.get()
    }

    /// True once a read was refused.
    pub fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Time since the start.
    pub fn spent_ns(&self) -> Nanos {
        self.clock.now().saturating_sub(self.begin)
    }

    /// True if something that takes so long takes no more than a share of all the time, and that is still there.
    pub fn has_left(&self, needs_ns: Nanos, percent: i64) -> bool {
        let share_ns = (self.until - self.begin) / 100 * percent;
        let is_in_time = || self.clock.now().saturating_add(needs_ns) <= self.until;
        !self.is_over() && needs_ns <= share_ns && is_in_time()
    }

    /// Why the rest of a file is not read.
    pub fn error(&self, path: &str) -> HostError {
        HostError::TooDear { path: path.to_owned(), after_ms: self.spent_ns() / 1_000_000 }
    }
}
