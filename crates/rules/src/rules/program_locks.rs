//! BT066: processes wait for `global` or Mnesia locks.

use beamtune_model::{Account, Code, Cost, Evidence, Missing, Period, Subject, Unit, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::program_locks::{GLOBAL, LockWaits, MNESIA, waits};
use crate::signals::{blocking, stack};

pub const RULE: Rule = Rule {
    code: Code("BT066"),
    name: "program-locks",
    question: "Do processes wait for global or Mnesia locks?",
    confirm: "one lock per item, or less work under the lock: fewer waiters under the same load, higher throughput",
    needs: &[&metrics::PROCESS_COUNT],
    account: Account::Delay,
    judge,
    thresholds: &[blocking::WAITING],
    ..Rule::COMMON
};

/// Functions and stacks listed in the evidence.
const PLACES: usize = 2;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let stands = blocking::looked_at(period)?;
    // If mnesia_locker itself is busy, it is the bottleneck.
    let is_locker_busy = period
        .process_named("mnesia_locker")
        .and_then(stack::wanted_to_run)
        .is_some_and(|share| share >= blocking::BUSY);
    let waits: Vec<LockWaits<'_>> =
        waits(period)?.into_iter().filter(|waits| *waits.kind != MNESIA || !is_locker_busy).collect();
    let found = waits.iter().filter_map(|waits| {
        Some(describe(period, waits, blocking::WAITING.of(period).severity(waits.waiting)?))
    });
    Ok(Judgement::found_or_healthy(
        found.collect(),
        format!(
            "of {} sampled processes, {} waited for a global or Mnesia lock",
            stands.sampled,
            waits.iter().map(|waits| waits.seen.0).sum::<i64>()
        ),
    ))
}

fn describe(period: &Period, waits: &LockWaits<'_>, severity: f64) -> Draft {
    let (seen, of) = waits.seen;
    let is_global = *waits.kind == GLOBAL;
    let what = if is_global { "a global:trans lock" } else { "Mnesia locks" };
    let asked = waits.asked_by.first();
    let who = match (waits.holder, asked) {
        (Some(holder), _) => {
            let table = waits.locks_table().map(|at| format!(" whole-table ({at})")).unwrap_or_default();
            format!("; {} holds a{table} lock most of the time", holder.title())
        }
        (None, Some(at)) => format!(", requested by {at}"),
        (None, None) => String::new(),
    };
    let subject = match waits.holder {
        Some(holder) => holder.subject(),
        None => Subject::Lock { name: waits.kind.name.to_owned() },
    };
    let places = waits.held_at.iter().take(PLACES).filter_map(|(stack, _)| {
        Some(Evidence::text("current function of a lock holder", stack::with_caller(stack.first()?, stack)))
    });
    let askers = (!waits.asked_by.is_empty()).then(|| {
        Evidence::text(
            "requested by",
            waits.asked_by.iter().take(PLACES).copied().collect::<Vec<_>>().join(", "),
        )
    });
    let draft = Draft::new(severity, format!("about {:.0} processes wait for {what}{who}", waits.waiting))
        .about(subject)
        .costs(Cost::Waiting(waits.waiting))
        .because(
            Evidence::number("processes waiting", waits.waiting, Unit::Count)
                .against_scale(blocking::WAITING.of(period))
                .with_text(format!("{seen} of {of} sampled")),
        )
        .because_some(askers);
    let draft = places.fold(draft, Draft::because);
    let draft = if is_global { draft } else { transactions(period).into_iter().fold(draft, Draft::because) };
    let shorter = if is_global {
        "one lock per item ({{seat, Train}, self()} instead of one lock for all), or one process per item that serialises the work; \
         no calls or sleeps while the lock is held, and a time-out for what a holder waits for"
    } else {
        "no calls, sleeps or sends to slow peers inside a transaction; read whole tables outside transactions (mnesia:async_dirty, a checkpoint)"
    };
    let why = if is_global {
        "a process that does not get the lock sleeps up to 8 s before it retries"
    } else {
        "a transaction that meets the lock of an older one restarts after a random sleep; a whole-table lock blocks every writer"
    };
    draft.fix(remedy::of(
        period,
        "code.shorter_hold",
        shorter,
        why,
        "number of waiting processes and throughput under the same load",
    ))
}

/// Mnesia's commits and restarts per second.
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
