//! BT066: processes wait for `global` or Mnesia locks.

use beamtune_model::{Account, Code, Cost, Evidence, Missing, Period, Subject, Unit, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::program_locks::{GLOBAL, LockWaits, MNESIA, waits};
use crate::signals::{blocking, stack};
use crate::text;

pub const RULE: Rule = Rule {
    code: Code("BT066"),
    name: "program-locks",
    question: "Do processes wait for global or Mnesia locks?",
    confirm: "use one lock per item, or do less under the lock: fewer waiters and higher throughput under the same load",
    needs: &[&metrics::PROCESS_COUNT],
    account: Account::Delay,
    judge,
    thresholds: &[blocking::WAITING],
    ..Rule::COMMON
};

/// Maximum number of functions in evidence.
const MAX_LISTED: usize = 2;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let samples = blocking::wait_samples(period)?;
    // If mnesia_locker itself is busy, it is the bottleneck.
    let is_locker_busy = period
        .process_named("mnesia_locker")
        .and_then(stack::runnable_share)
        .is_some_and(|share| share >= blocking::BUSY);
    let waits: Vec<LockWaits<'_>> =
        waits(period)?.into_iter().filter(|waits| *waits.kind != MNESIA || !is_locker_busy).collect();
    let found = waits.iter().filter_map(|waits| {
        Some(describe(period, waits, blocking::WAITING.of(period).severity(waits.waiting)?))
    });
    Ok(Judgement::found_or_healthy(
        found.collect(),
        format!(
            "{} of {} sampled processes wait for a global or Mnesia lock",
            waits.iter().map(|waits| waits.seen.0).sum::<i64>(),
            samples.sampled
        ),
    ))
}

fn describe(period: &Period, waits: &LockWaits<'_>, severity: f64) -> Draft {
    let (seen, of) = waits.seen;
    let is_global = *waits.kind == GLOBAL;
    let lock = if is_global { "a global:trans lock" } else { "Mnesia locks" };
    let wait = text::counted(waits.waiting.round(), "process waits", "processes wait");
    let whole_table = waits.locks_table().filter(|_| waits.holder.is_some());
    let (subject, title) = match waits.holder {
        Some(holder) => {
            let subject = holder.subject();
            let locks = match whole_table {
                Some(_) => "locks a whole Mnesia table".to_owned(),
                None => format!("holds {lock}"),
            };
            let title = format!("{} {locks}: {wait}", text::name(&subject));
            (subject, title)
        }
        None => (Subject::Lock { name: waits.kind.name.to_owned() }, format!("{wait} for {lock}")),
    };
    let pid = text::pid(&subject).to_owned();
    let held_in = whole_table.map(|at| format!("by {at}"));
    let requested = waits.requested_by.first().map(|at| format!("requested by {at}"));
    let places = waits.held_at.iter().take(MAX_LISTED).filter_map(|(stack, _)| {
        Some(Evidence::text("current function of a lock holder", stack::with_caller(stack.first()?, stack)))
    });
    let askers = (!waits.requested_by.is_empty()).then(|| {
        Evidence::text(
            "requested by",
            waits.requested_by.iter().take(MAX_LISTED).copied().collect::<Vec<_>>().join(", "),
        )
    });
    let draft = Draft::new(severity, title)
        .detail(pid)
        .detail(held_in.unwrap_or_default())
        .detail(requested.unwrap_or_default())
        .about(subject)
        .costs(Cost::Waiting(waits.waiting))
        .evidence(
            Evidence::number("waiting processes, estimated", waits.waiting, Unit::Count)
                .against_scale(blocking::WAITING.of(period))
                .with_text(format!("{seen} of {of} sampled")),
        )
        .because_some(askers);
    let draft = places.fold(draft, Draft::evidence);
    let draft = if is_global { draft } else { transactions(period).into_iter().fold(draft, Draft::evidence) };
    let shorter = if is_global {
        "use one lock per item ({{seat, Train}, self()} instead of one lock for all), or one process per item; no calls or sleeps \
         under the lock, and a timeout for what its holder waits for"
    } else {
        "avoid calls, sleeps and sends to slow peers in a transaction; read whole tables outside (mnesia:async_dirty, a checkpoint)"
    };
    let why = if is_global {
        "a process that does not get the lock sleeps up to 8 s before it retries"
    } else {
        "a transaction that meets the lock of an older one restarts after a random sleep; a whole-table lock blocks every writer"
    };
    draft.remedy(remedy::of(
        period,
        "code.shorter_hold",
        shorter,
        why,
        "waiting processes and throughput under the same load",
    ))
}

/// Returns the commits and restarts of Mnesia transactions per second.
fn transactions(period: &Period) -> Vec<Evidence> {
    let rate = |metric| period.rate(metric, "").ok();
    let (Some(commits), Some(restarts)) = (rate(&metrics::MNESIA_COMMITS), rate(&metrics::MNESIA_RESTARTS))
    else {
        return Vec::new();
    };
    vec![
        Evidence::number("transactions committed", commits, Unit::PerSecond),
        Evidence::number("transactions restarted", restarts, Unit::PerSecond),
    ]
}
