//! Decodes the lock counters of an emulator with lock counting, or the reason why they are missing.

use beamtune_model::locks::WAIT_BINS;
use beamtune_model::{Gap, LockRow, LockSession, SampleBuilder, Span, TroubleKind};

use super::{NS_PER_US, Translation, amount, bounded_text, list, number, required};
use crate::error::printable;
use crate::etf::{Term, TermError};

/// Maximum number of rows that the agent sends.
const MAX_ROWS: usize = 5_000;
/// Maximum number of lock categories; the VM has eight.
const MAX_CATEGORIES: usize = 64;

/// What all rows of one lock or lock class have in common.
struct Lock {
    class: String,
    kind: String,
    id: Option<String>,
    entity: Option<String>,
    locks: i64,
}

/// Adds lock classes and individual locks, or a gap with the reason why nothing was counted.
pub(super) fn locks(
    value: Term<'_>,
    span: Span,
    clock: Translation,
    out: &mut SampleBuilder<'_>,
) -> Result<(), TermError> {
    let outcome = value.field("told")?.as_atom()?;
    if outcome != "ok" {
        let (kind, reason) = refusal(outcome);
        let source = "vm.locks".to_owned();
        out.sample.gaps.push(Gap { begin: span.begin, end: span.end, source, kind, reason });
        return Ok(());
    }
    // An estimate has no classes.
    if value.get("classes")?.is_none() {
        return Ok(());
    }
    let t = clock.to_recorder(required(value, "end_ns")?);
    let mut rows = Vec::new();
    for class in list(value, "classes")? {
        let [class, kind, locks, places] = class.tuple_of()?;
        let (class, kind) =
            (bounded_text(class)?.unwrap_or_default(), bounded_text(kind)?.unwrap_or_default());
        add(&Lock { class, kind, id: None, entity: None, locks: amount(locks)? }, t, places, &mut rows)?;
    }
    for lock in list(value, "rows")? {
        let [class, kind, id, entity, locks, places] = lock.tuple_of()?;
        let lock = Lock {
            class: bounded_text(class)?.unwrap_or_default(),
            kind: bounded_text(kind)?.unwrap_or_default(),
            id: Some(bounded_text(id)?.unwrap_or_default()),
            entity: bounded_text(entity)?,
            locks: amount(locks)?,
        };
        add(&lock, t, places, &mut rows)?;
    }
    let categories = list(value, "categories")?.take(MAX_CATEGORIES).map(bounded_text);
    out.sample.lock_sessions.push(LockSession {
        t,
        length: amount(value.field("duration_us")?)?.saturating_mul(NS_PER_US),
        categories: categories.filter_map(Result::transpose).collect::<Result<_, _>>()?,
        locks: amount(value.field("locks")?)?,
        single_locks: amount(value.field("singles")?)?,
        reductions: number(value, "reductions")?.map(|reductions| reductions.max(0)),
        processes: number(value, "processes")?.map(|processes| processes.max(0)),
        cost_bytes: number(value, "cost_bytes")?.map(|bytes| bytes.max(0)),
        remark: remark(value)?,
    });
    out.sample.locks.append(&mut rows);
    Ok(())
}

/// Adds a row for each `{File, Line, Tries, Collisions, Microseconds, Waits, Bins}`.
fn add(lock: &Lock, t: i64, places: Term<'_>, rows: &mut Vec<LockRow>) -> Result<(), TermError> {
    for place in places.list()?.take(MAX_ROWS.saturating_sub(rows.len())) {
        let [file, line, tries, collisions, us, waits, bins] = place.tuple_of()?;
        let file = bounded_text(file)?;
        rows.push(LockRow {
            t,
            class: lock.class.clone(),
            kind: lock.kind.clone(),
            id: lock.id.clone(),
            entity: lock.entity.clone(),
            locks: lock.locks,
            line: file.is_some().then(|| amount(line)).transpose()?,
            file,
            tries: amount(tries)?,
            collisions: amount(collisions)?,
            wait_time: amount(us)?.saturating_mul(NS_PER_US),
            waits: amount(waits)?,
            histogram: bins.list()?.take(WAIT_BINS).map(amount).collect::<Result<_, _>>()?,
        });
    }
    Ok(())
}

/// Returns remarks on what the result does not cover.
fn remark(value: Term<'_>) -> Result<String, TermError> {
    let mut remarks = Vec::new();
    if value.field("disturbed")?.as_bool()? {
        remarks.push(
            "another tool changed the lock counting mask or reset the counters in the meantime".to_owned(),
        );
    }
    for category in list(value, "left_out")?.take(MAX_CATEGORIES) {
        remarks.push(format!(
            "locks of the category {} are no longer counted, because the node has too many processes (1 kB for each lock); to count \
             them again, run `erts_debug:lcnt_control(mask, Categories)` in the node's shell",
            printable(category.as_str()?)
        ));
    }
    let unplaced = amount(value.field("unplaced")?)?;
    if unplaced > 0 {
        remarks.push(format!(
            "{unplaced} counts have no source location, since the table of locations was full"
        ));
    }
    Ok(remarks.join("; "))
}

/// Returns why nothing was counted, and what to do about it. `outcome` is the protocol's `told`.
pub(crate) fn refusal(outcome: &str) -> (TroubleKind, String) {
    let (kind, reason) = match outcome {
        "not_lcnt" => (
            TroubleKind::Unsupported,
            "the emulator does not count locks; `beamtune emulator` says how to start the node with one that does",
        ),
        "busy" => {
            (TroubleKind::Denied, "another beamtune is counting the locks of this node; try again later")
        }
        "copy_save" => (
            TroubleKind::Denied,
            "the node keeps the counts of destroyed locks (copy_save), which fills its memory; end that with \
             `erts_debug:lcnt_control(copy_save, false)` in the node's shell, then try again",
        ),
        "too_large" => (
            TroubleKind::Denied,
            "too little memory for the counts of all locks; leave out the category process, which has five locks per process",
        ),
        "limit" => (TroubleKind::TimedOut, "the counts could not be read in time; allow more time"),
        "no_answer" => (
            TroubleKind::TimedOut,
            "counting did not begin in time, since all dirty CPU schedulers were busy; try again later",
        ),
        "lost" => (TroubleKind::Gone, "the counting process was killed; try again"),
        other => return (TroubleKind::Denied, format!("refused: {}", printable(other))),
    };
    (kind, reason.to_owned())
}
