//! What a lock-counting emulator has counted, and why it has not.

use beamtune_model::locks::WAIT_BINS;
use beamtune_model::{Gap, LockRow, LockSession, SampleBuilder, Span, TroubleKind};

use super::{NS_PER_US, Translation, amount, list, needed, number, words};
use crate::error::printable;
use crate::etf::{Term, TermError};

/// Rows that the agent tells at most.
const MOST_ROWS: usize = 5_000;
/// Categories: the VM has eight.
const MOST_CATEGORIES: usize = 64;

/// What the rows of one lock, or of one class, have in common.
struct Of {
    class: String,
    kind: String,
    id: Option<String>,
    entity: Option<String>,
    locks: i64,
}

pub(super) fn locks(
    value: Term<'_>,
    span: Span,
    clock: Translation,
    out: &mut SampleBuilder<'_>,
) -> Result<(), TermError> {
    let told = value.field("told")?.as_atom()?;
    if told != "ok" {
        let (kind, reason) = refusal(told);
        let source = "vm.locks".to_owned();
        out.sample.gaps.push(Gap { begin: span.begin, end: span.end, source, kind, reason });
        return Ok(());
    }
    // An answer to the question what it would cost.
    if value.get("classes")?.is_none() {
        return Ok(());
    }
    let t = clock.to_recorder(needed(value, "end_ns")?);
    let mut rows = Vec::new();
    for class in list(value, "classes")? {
        let [class, kind, locks, places] = class.tuple_of()?;
        let (class, kind) = (words(class)?.unwrap_or_default(), words(kind)?.unwrap_or_default());
        add(&Of { class, kind, id: None, entity: None, locks: amount(locks)? }, t, places, &mut rows)?;
    }
    for lock in list(value, "rows")? {
        let [class, kind, id, entity, locks, places] = lock.tuple_of()?;
        let of = Of {
            class: words(class)?.unwrap_or_default(),
            kind: words(kind)?.unwrap_or_default(),
            id: Some(words(id)?.unwrap_or_default()),
            entity: words(entity)?,
            locks: amount(locks)?,
        };
        add(&of, t, places, &mut rows)?;
    }
    let categories = list(value, "categories")?.take(MOST_CATEGORIES).map(words);
    out.sample.lock_sessions.push(LockSession {
        t,
        length: amount(value.field("duration_us")?)?.saturating_mul(NS_PER_US),
        categories: categories.filter_map(Result::transpose).collect::<Result<_, _>>()?,
        locks: amount(value.field("locks")?)?,
        told: amount(value.field("singles")?)?,
        reductions: number(value, "reductions")?.map(|reductions| reductions.max(0)),
        processes: number(value, "processes")?.map(|processes| processes.max(0)),
        cost_bytes: number(value, "cost_bytes")?.map(|bytes| bytes.max(0)),
        remark: remark(value)?,
    });
    out.sample.locks.append(&mut rows);
    Ok(())
}

/// Adds the rows of `[{File, Line, Tries, Collisions, Microseconds, Waits, Bins}]`.
fn add(of: &Of, t: i64, places: Term<'_>, rows: &mut Vec<LockRow>) -> Result<(), TermError> {
    for place in places.list()?.take(MOST_ROWS.saturating_sub(rows.len())) {
        let [file, line, tries, collisions, us, waits, bins] = place.tuple_of()?;
        let file = words(file)?;
        rows.push(LockRow {
            t,
            class: of.class.clone(),
            kind: of.kind.clone(),
            id: of.id.clone(),
            entity: of.entity.clone(),
            locks: of.locks,
            line: file.is_some().then(|| amount(line)).transpose()?,
            file,
            tries: amount(tries)?,
            collisions: amount(collisions)?,
            waited: amount(us)?.saturating_mul(NS_PER_US),
            waits: amount(waits)?,
            histogram: bins.list()?.take(WAIT_BINS).map(amount).collect::<Result<_, _>>()?,
        });
    }
    Ok(())
}

/// What the agent could not do, or what came between.
fn remark(value: Term<'_>) -> Result<String, TermError> {
    let mut remarks = Vec::new();
    if value.field("disturbed")?.as_bool()? {
        remarks.push("somebody else has set another mask meanwhile, or has begun to count anew".to_owned());
    }
    for category in list(value, "left_out")?.take(MOST_CATEGORIES) {
        remarks.push(format!(
            "the locks of the category {} were counted before and are not any more, since counting those of so many processes again \
             would take 1 kB for each lock; `erts_debug:lcnt_control(mask, Categories)` in its shell does that",
            printable(category.as_str()?)
        ));
    }
    let unplaced = amount(value.field("unplaced")?)?;
    if unplaced > 0 {
        remarks.push(format!("{unplaced} counts are of more places in the source than there was room for"));
    }
    Ok(remarks.join("; "))
}

/// Why nothing was counted, and what to do about it. `told` is the agent's word for it.
pub(crate) fn refusal(told: &str) -> (TroubleKind, String) {
    let (kind, reason) = match told {
        "not_lcnt" => (
            TroubleKind::Unsupported,
            "the emulator does not count locks; `beamtune emulator` says how to start the node with one that does",
        ),
        "busy" => {
            (TroubleKind::Denied, "another beamtune counts the locks of this node just now; try again later")
        }
        "copy_save" => (
            TroubleKind::Denied,
            "somebody has had the node keep the counts of locks that have gone (copy_save), which fills its memory; \
             `erts_debug:lcnt_control(copy_save, false)` in its shell ends that, then try again",
        ),
        "too_large" => (
            TroubleKind::Denied,
            "there are more locks than there is memory for their counts; leave out the locks of processes, of which each has five",
        ),
        "limit" => (TroubleKind::TimedOut, "the counts could not be collected in time; allow more time"),
        "no_answer" => (
            TroubleKind::TimedOut,
            "the node did not begin to count in time, since its dirty CPU schedulers were all taken; try again later",
        ),
        "lost" => (TroubleKind::Gone, "somebody has ended the process that counts; try again"),
        other => return (TroubleKind::Denied, format!("it was refused: {}", printable(other))),
    };
    (kind, reason.to_owned())
}
