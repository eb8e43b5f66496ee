//! Lock contention: which locks threads wait for, what owns these locks, and what helps. The data come from lock counting, or from samples
//! of waiting threads.
//!
//! Lock counting reports classes (`db_hash_slot`), and single locks by their owner (a table, a process, an allocator). Wait times are a
//! share of the duration, summed over all threads, so they may exceed 100 %. What a class protects and what usually helps are data of the
//! `flags` crate. This module joins them with facts of the node: table options, flags in effect, release.

mod answers;
pub mod blocked;
mod entities;
pub mod verdict;
mod waits;

use std::collections::HashMap;

use beamtune_model::{LockRow, Nanos, Period};

pub use answers::{Explanation, explain};
pub use entities::{LockOwner, OwnerKind};
pub use waits::{NO_NAME, Operation, operations};

/// Counts of several locks, added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of locks, a lower bound; 0 if unknown.
    pub locks: i64,
    /// Attempts to take a lock.
    pub tries: i64,
    /// Attempts that found the lock taken.
    pub collisions: i64,
    /// Wait time, summed over all threads.
    pub waited: Nanos,
}

impl Counts {
    /// Adds the counts of a row, but not its number of locks: several rows may describe the same locks.
    fn add(&mut self, row: &LockRow) {
        self.tries = self.tries.saturating_add(row.tries);
        self.collisions = self.collisions.saturating_add(row.collisions);
        self.waited = self.waited.saturating_add(row.wait_time);
    }

    /// Collisions as a share of the tries; `None` without tries.
    pub fn collision_share(&self) -> Option<f64> {
        (self.tries > 0).then(|| self.collisions as f64 / self.tries as f64)
    }
}

/// A class of locks, with the owners of its locks.
#[derive(Debug, Clone, PartialEq)]
pub struct LockClassWaits {
    /// Name, as in lock counting.
    pub class: String,
    /// The kind of lock; empty if unknown.
    pub kind: String,
    /// Counts of the whole class, or of its recorded locks if the class was not recorded.
    pub counts: Counts,
    /// Whether `counts` cover the whole class.
    pub is_whole: bool,
    /// Wait time as a share of the duration; `None` if the duration is unknown.
    pub share: Option<f64>,
    /// File and line in the emulator's source with the longest wait, and its share of the wait; `None` if not recorded.
    pub place: Option<(String, i64, f64)>,
    /// The owners of its locks, longest wait first.
    pub owners: Vec<LockOwner>,
    /// What it protects, and what helps.
    pub explanation: Explanation,
}

impl LockClassWaits {
    /// Counts of the class without those of owners that have remedies of their own.
    pub fn rest(&self) -> Counts {
        let apart = self.owners.iter().filter(|entity| entity.kind.has_own_remedy());
        apart.fold(self.counts, |rest, LockOwner { counts, .. }| Counts {
            locks: rest.locks.saturating_sub(counts.locks).max(0),
            tries: rest.tries.saturating_sub(counts.tries).max(0),
            collisions: rest.collisions.saturating_sub(counts.collisions).max(0),
            waited: rest.waited.saturating_sub(counts.waited).max(0),
        })
    }
}

/// Returns all classes with counts, longest wait first.
pub fn lock_classes(period: &Period) -> Vec<LockClassWaits> {
    let mut classes: HashMap<&str, Vec<&LockRow>> = HashMap::new();
    for row in &period.locks {
        classes.entry(&row.class).or_default().push(row);
    }
    let length = counting_duration(period);
    let mut contenders: Vec<_> =
        classes.into_iter().map(|(class, rows)| contender(period, class, &rows, length)).collect();
    contenders.sort_by(|a, b| order(&b.counts).cmp(&order(&a.counts)).then_with(|| a.class.cmp(&b.class)));
    contenders
}

/// Sort key; the largest comes first.
fn order(counts: &Counts) -> (Nanos, i64, i64) {
    (counts.waited, counts.collisions, counts.tries)
}

/// How long locks were counted; `None` if unknown.
pub fn counting_duration(period: &Period) -> Option<Nanos> {
    period.lock_session.as_ref().map(|session| session.length).filter(|length| *length > 0)
}

/// Describes a class by its rows: those of the whole class, and those of single locks.
fn contender(period: &Period, class: &str, rows: &[&LockRow], length: Option<Nanos>) -> LockClassWaits {
    let (whole, single): (Vec<_>, Vec<_>) = rows.iter().copied().partition(|row| row.id.is_none());
    let is_whole = !whole.is_empty();
    let counted = if is_whole { &whole } else { &single };
    let mut counts = Counts { locks: locks(counted), ..Counts::default() };
    counted.iter().for_each(|row| counts.add(row));
    let entities = entities::entities(period, class, &single, length);
    let kind =
        rows.iter().map(|row| row.kind.as_str()).find(|kind| !kind.is_empty()).unwrap_or_default().to_owned();
    let answer = explain(period, class, entities.first());
    LockClassWaits {
        class: class.to_owned(),
        kind,
        counts,
        is_whole,
        share: share(counts.waited, length),
        place: place(counted, counts.waited),
        owners: entities,
        explanation: answer,
    }
}

/// The number of locks that the rows describe, a lower bound. A lock has one row for each place in the source.
fn locks(rows: &[&LockRow]) -> i64 {
    if rows.iter().all(|row| row.id.is_none()) {
        return rows.iter().map(|row| row.locks).max().unwrap_or(0);
    }
    let mut places: HashMap<(Option<&str>, Option<i64>), i64> = HashMap::new();
    for row in rows {
        let at = places.entry((row.file.as_deref(), row.line)).or_default();
        *at = at.saturating_add(row.locks);
    }
    places.into_values().max().unwrap_or(0)
}

fn share(waited: Nanos, length: Option<Nanos>) -> Option<f64> {
    length.map(|length| waited as f64 / length as f64)
}

/// The place in the source with the longest wait, and its share of the wait.
fn place(rows: &[&LockRow], waited: Nanos) -> Option<(String, i64, f64)> {
    let mut places: HashMap<(&str, i64), Nanos> = HashMap::new();
    for row in rows {
        if let Some(at) = row.file.as_deref().zip(row.line) {
            let sum = places.entry(at).or_default();
            *sum = sum.saturating_add(row.wait_time);
        }
    }
    let most = places.into_iter().max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
    let ((file, line), sum) = most.filter(|(_, sum)| *sum > 0)?;
    Some((file.to_owned(), line, sum as f64 / waited.max(1) as f64))
}

/// Locks with a common remedy: those of a table or a process, or of a class that cannot be divided.
#[derive(Debug, Clone, PartialEq)]
pub struct ContendedLocks {
    /// For display: `db_tab of the table sessions`.
    pub name: String,
    /// The class.
    pub class: String,
    /// The owner of the locks; `None` for all other locks of the class, or for the whole class.
    pub id: Option<String>,
    /// Wait time, summed over all threads.
    pub waited: Nanos,
    /// As a share of the duration; `None` if the duration is unknown.
    pub share: Option<f64>,
}

/// Returns what threads waited for, longest wait first.
pub fn contended_locks(period: &Period, contenders: &[LockClassWaits]) -> Vec<ContendedLocks> {
    let length = counting_duration(period);
    let thing = |class: &str, name, id, waited| ContendedLocks {
        name,
        class: class.to_owned(),
        id,
        waited,
        share: share(waited, length),
    };
    let mut things = Vec::new();
    for contender in contenders {
        let class = contender.class.as_str();
        let apart = contender.owners.iter().filter(|entity| entity.kind.has_own_remedy());
        let before = things.len();
        for entity in apart {
            let name = format!("{class} of {}", entity.title);
            things.push(thing(class, name, Some(entity.id.clone()), entity.counts.waited));
        }
        let name = if things.len() > before { format!("other {class}") } else { class.to_owned() };
        things.push(thing(class, name, None, contender.rest().waited));
    }
    things.retain(|thing| thing.waited > 0);
    things.sort_by(|a, b| b.waited.cmp(&a.waited).then_with(|| a.name.cmp(&b.name)));
    things
}

/// Waits that would remain without the first locks of a list.
///
/// A lower bound: a thread that no longer waits for one lock reaches the next one sooner and more often.
#[derive(Debug, Clone, PartialEq)]
pub struct RemainingWaits {
    /// The name of the last lock that is removed; those before it in the list are removed, too.
    pub without: String,
    /// The remaining wait time.
    pub waited: Nanos,
    /// As a share of the duration; `None` if the duration is unknown.
    pub share: Option<f64>,
    /// Name and wait time of the next lock.
    pub next: Option<(String, Nanos)>,
}

/// Returns the remaining waits without the first of `things`, without the first two, and so on; at most `max` entries.
pub fn remaining_waits(period: &Period, things: &[ContendedLocks], max: usize) -> Vec<RemainingWaits> {
    let length = counting_duration(period);
    let mut waited = things.iter().fold(0_i64, |sum, thing| sum.saturating_add(thing.waited));
    let remains = things.iter().enumerate().map(|(index, thing)| {
        waited = waited.saturating_sub(thing.waited);
        let next = things.get(index + 1).map(|next| (next.name.clone(), next.waited));
        RemainingWaits { without: thing.name.clone(), waited, share: share(waited, length), next }
    });
    remains.take(max).collect()
}

#[cfg(test)]
mod tests;
