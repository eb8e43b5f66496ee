//! Data that are read only on request.

use std::cmp::Reverse;

use super::build::MAX_ROWS;
use super::{Period, PeriodBuilder};
use crate::facts;
use crate::locks::{LockRow, LockSession, LockWaitRow};
use crate::rows::{AllocationRow, BinaryHolderRow, CarrierRow, CodeRow, CollectedProcessRow, RequestedGcRow};
use crate::sample::Sample;
use crate::units::Nanos;

impl PeriodBuilder {
    /// Adds carriers; only those of the last scan are kept.
    pub fn carriers(&mut self, row: CarrierRow) {
        add_to_last(&mut self.period.carriers, row, |row| row.t);
    }

    /// Adds tagged blocks; only those of the last scan are kept.
    pub fn allocations(&mut self, row: AllocationRow) {
        add_to_last(&mut self.period.allocations, row, |row| row.t);
    }

    /// Adds the code of an application; only rows of the last reading are kept.
    pub fn code(&mut self, row: CodeRow) {
        add_to_last(&mut self.period.code, row, |row| row.t);
    }

    /// Adds a process that refers to binaries; only rows of the last reading are kept.
    pub fn holder(&mut self, row: BinaryHolderRow) {
        add_to_last(&mut self.period.holders, row, |row| row.t);
    }

    /// Adds the summary of requested garbage collections.
    pub fn collection(&mut self, row: RequestedGcRow) {
        if self.period.collections.len() < MAX_ROWS {
            self.period.collections.push(row);
        }
    }

    /// Adds a process that was garbage collected on request.
    pub fn collected(&mut self, row: CollectedProcessRow) {
        if self.period.collected.len() < MAX_ROWS {
            self.period.collected.push(row);
        }
    }

    /// Adds a session of lock counting; only the last one is kept.
    pub fn lock_session(&mut self, session: LockSession) {
        if self.period.lock_session.as_ref().is_none_or(|known| known.t <= session.t) {
            self.period.lock_session = Some(session);
        }
    }

    /// Adds lock counts; only those of the last session are kept.
    pub fn lock(&mut self, row: LockRow) {
        add_to_last(&mut self.period.locks, row, |row| row.t);
    }

    /// Adds lock waits; only those of the last sampling are kept.
    pub fn lock_wait(&mut self, row: LockWaitRow) {
        add_to_last(&mut self.period.lock_waits, row, |row| row.t);
    }

    /// Adds all rows of a sample that were read on request.
    pub(super) fn requested_rows(&mut self, sample: &Sample) {
        sample.carriers.iter().cloned().for_each(|row| self.carriers(row));
        sample.allocations.iter().cloned().for_each(|row| self.allocations(row));
        sample.code.iter().cloned().for_each(|row| self.code(row));
        sample.holders.iter().cloned().for_each(|row| self.holder(row));
        sample.collections.iter().cloned().for_each(|row| self.collection(row));
        sample.collected.iter().cloned().for_each(|row| self.collected(row));
        sample.lock_sessions.iter().cloned().for_each(|session| self.lock_session(session));
        sample.locks.iter().cloned().for_each(|row| self.lock(row));
        sample.lock_waits.iter().cloned().for_each(|row| self.lock_wait(row));
    }
}

impl Period {
    /// The last requested garbage collection of a random sample of processes; `None` without one.
    pub fn last_sampled_collection(&self) -> Option<&RequestedGcRow> {
        self.collections.iter().rev().find(|row| row.selection == "sample")
    }

    /// Length of the last sampling of threads for lock waits; `None` if absent, or if its length is unknown.
    /// If there was one and [`waits`](Self::waits) is empty, no sampled thread waited for a lock.
    pub fn lock_sampling_length(&self) -> Option<Nanos> {
        let by_rows = self.lock_waits.iter().map(|row| row.length).max();
        by_rows.or_else(|| self.facts.number(facts::LOCK_SAMPLING_LENGTH)).filter(|length| *length > 0)
    }
}

/// Sorts the rows, the largest first.
pub(super) fn sort(period: &mut Period) {
    period.carriers.sort_by_key(|row| Reverse(row.bytes));
    period.allocations.sort_by_key(|row| Reverse(row.bytes));
    period.code.sort_by_key(|row| Reverse(row.bytes));
    period.holders.sort_by_key(|row| Reverse(row.bytes));
    period.collected.sort_by_key(|row| Reverse(row.freed()));
    period.locks.sort_by_key(|row| Reverse((row.wait_time, row.collisions, row.tries)));
    period.lock_waits.sort_by_key(|row| Reverse((row.waited, row.samples)));
}

/// Adds a row and keeps only rows of the latest reading.
fn add_to_last<R>(rows: &mut Vec<R>, row: R, t: impl Fn(&R) -> Nanos) {
    match rows.first().map(&t) {
        Some(known) if known > t(&row) => return,
        Some(known) if known < t(&row) => rows.clear(),
        _ => {}
    }
    if rows.len() < MAX_ROWS {
        rows.push(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_readings_replace_earlier_ones() {
        let mut builder = PeriodBuilder::default();
        let carrier = |t, bytes| CarrierRow { t, bytes, ..CarrierRow::default() };
        for row in [carrier(5, 1), carrier(5, 9), carrier(7, 2), carrier(7, 3), carrier(6, 8)] {
            builder.carriers(row);
        }
        let collected =
            |t, heap_before| CollectedProcessRow { t, heap_before, ..CollectedProcessRow::default() };
        for row in [collected(5, 1), collected(7, 4), collected(6, 3)] {
            builder.collected(row);
        }
        for t in 0..MAX_ROWS as i64 + 5 {
            builder.collection(RequestedGcRow { t, ..RequestedGcRow::default() });
        }
        let period = builder.finish();
        assert_eq!(period.carriers, [carrier(7, 3), carrier(7, 2)]);
        // Garbage collections change the node, so later ones do not replace earlier ones.
        assert_eq!(period.collected, [collected(7, 4), collected(6, 3), collected(5, 1)]);
        assert_eq!(period.collections.len(), MAX_ROWS);
    }

    #[test]
    fn length_of_a_sampling_without_waits_is_known() {
        let mut period = Period::default();
        assert_eq!(period.lock_sampling_length(), None);
        period.facts.set(facts::LOCK_SAMPLING_LENGTH, "9000");
        assert_eq!(period.lock_sampling_length(), Some(9_000));
        period.lock_waits = vec![LockWaitRow { length: 7_000, ..LockWaitRow::default() }];
        assert_eq!(period.lock_sampling_length(), Some(7_000));
        period.lock_waits = vec![LockWaitRow::default()];
        assert_eq!(period.lock_sampling_length(), None);
    }
}
