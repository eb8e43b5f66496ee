//! Locks that programs take through OTP (`global`, Mnesia). Waiters sleep and retry, so no queue shows them; sampled call stacks do.

use beamtune_model::{Missing, Period, ProcessActivity, WaitSample, metrics};

use crate::signals::counts::largest_first;
use crate::signals::{blocking, stack};

/// How a kind of lock shows in call stacks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LockKind {
    /// Its name, used if no holder is known.
    pub name: &'static str,
    /// Prefixes of functions that wait for it: innermost, or the caller of a sleep.
    waits: &'static [&'static str],
    /// Prefixes of functions that run code while it is held.
    holds: &'static [&'static str],
}

/// `global:set_lock/3` sleeps between retries: `random_sleep/1` in kernel's global.erl.
pub(crate) const GLOBAL: LockKind =
    LockKind { name: "global:trans", waits: &["global:random_sleep/"], holds: &["global:trans/"] };

/// A Mnesia transaction that meets the lock of an older one restarts after a sleep: `restart/9` in mnesia_tm.erl.
pub(crate) const MNESIA: LockKind = LockKind {
    name: "Mnesia transactions",
    waits: &["mnesia_locker:", "mnesia_tm:restart/"],
    holds: &["mnesia_tm:apply_fun/", "mnesia_tm:execute_transaction/", "mnesia_tm:execute_outer/", "mnesia:"],
};

const KINDS: [&LockKind; 2] = [&GLOBAL, &MNESIA];

/// Mnesia functions that lock a whole table, according to the reference manual.
const WHOLE_TABLE: &[&str] = &[
    "mnesia:foldl/",
    "mnesia:foldr/",
    "mnesia:do_foldl/",
    "mnesia:do_foldr/",
    "mnesia:all_keys/",
    "mnesia:read_lock_table/",
    "mnesia:write_lock_table/",
];

/// A process with the lock in this share of its samples is its holder (judgement: more than half).
const MOSTLY: f64 = 0.5;

impl LockKind {
    /// Whether a process with this stack waits for such a lock.
    fn is_waited_for(&self, stack: &[String]) -> bool {
        let at = match stack.first() {
            Some(function) if stack::is_sleep(function) => stack.get(1),
            other => other,
        };
        at.is_some_and(|at| begins(at, self.waits) && !at.contains(":loop/"))
    }

    /// Whether a process with this stack holds such a lock.
    fn is_held(&self, stack: &[String]) -> bool {
        !self.is_waited_for(stack) && stack.iter().skip(1).any(|function| begins(function, self.holds))
    }
}

fn begins(function: &str, starts: &[&str]) -> bool {
    starts.iter().any(|start| function.starts_with(start))
}

/// Processes that wait for locks of a kind.
#[derive(Debug)]
pub(crate) struct LockWaits<'a> {
    /// The kind of lock.
    pub kind: &'static LockKind,
    /// Estimated number of waiting processes.
    pub waiting: f64,
    /// Number of sampled waiters, and of all sampled processes.
    pub seen: (i64, i64),
    /// The program's functions that request it, most frequent first.
    pub requested_by: Vec<&'a str>,
    /// The process that holds it most of the time, if exactly one does.
    pub holder: Option<&'a ProcessActivity>,
    /// Call stacks of holders with their sample counts, most frequent first.
    pub held_at: Vec<(&'a [String], i64)>,
}

impl<'a> LockWaits<'a> {
    /// Returns the function that locks a whole table, from the stacks of holders.
    pub(crate) fn locks_table(&self) -> Option<&'a str> {
        let mut functions = self.held_at.iter().flat_map(|(stack, _)| stack.iter());
        functions.find(|function| begins(function, WHOLE_TABLE)).map(String::as_str)
    }
}

/// Returns the lock waits, most waiters first. Waits in fewer than two thirds of the samples are left out.
pub(crate) fn waits(period: &Period) -> Result<Vec<LockWaits<'_>>, Missing> {
    let total = period.stat(&metrics::PROCESS_COUNT, "")?.mean();
    let mut found: Vec<LockWaits<'_>> =
        KINDS.into_iter().filter_map(|kind| waits_of(period, kind, total)).collect();
    found.sort_by(|a, b| b.waiting.total_cmp(&a.waiting));
    Ok(found)
}

fn waits_of<'a>(period: &'a Period, kind: &'static LockKind, total: f64) -> Option<LockWaits<'a>> {
    let sampled = || period.wait_samples.stacks.iter().filter(|place| place.pid.is_none());
    let waiting: Vec<&WaitSample> = sampled().filter(|place| kind.is_waited_for(&place.stack)).collect();
    let looks = waiting.iter().map(|place| place.samples).max().unwrap_or(0);
    let seen = waiting.iter().fold(0, |sum: i64, place| sum.saturating_add(place.count));
    if seen < blocking::MIN_SAMPLES || 3 * looks < 2 * period.wait_samples.samples {
        return None;
    }
    let askers = waiting.iter().filter_map(|place| Some((stack::of_program(&place.stack)?, place.count)));
    let stood = period.processes.iter().flat_map(|process| &process.wait_stacks);
    let stood = stood.map(|(stack, count)| (&stack[..], *count));
    let held = sampled().map(|place| (&place.stack[..], place.count)).chain(stood);
    let mut holders = period.processes.iter().filter(|process| holds_mostly(process, kind));
    let holder = holders.next().filter(|_| holders.next().is_none());
    Some(LockWaits {
        kind,
        waiting: blocking::of_all(period, total, seen),
        seen: (seen, period.wait_samples.sampled),
        requested_by: largest_first(askers).into_iter().map(|(at, _)| at).collect(),
        holder,
        held_at: largest_first(held.filter(|(stack, _)| kind.is_held(stack))),
    })
}

/// Whether the process holds such a lock in most of its samples.
fn holds_mostly(process: &ProcessActivity, kind: &LockKind) -> bool {
    let looks = process.wait_stacks.iter().chain(&process.run_stacks);
    let held =
        looks.filter(|(stack, _)| kind.is_held(stack)).fold(0, |sum: i64, (_, n)| sum.saturating_add(*n));
    held >= blocking::MIN_SAMPLES && held as f64 >= MOSTLY * f64::from(process.status_samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_and_holders_are_recognised_by_their_stacks() {
        let check = |stack: &str, waits: &[&str], holds: &[&str]| {
            let stack: Vec<String> = stack.split_whitespace().map(str::to_owned).collect();
            let names = |is: fn(&LockKind, &[String]) -> bool| -> Vec<&str> {
                KINDS.into_iter().filter(|kind| is(kind, &stack)).map(|kind| kind.name).collect()
            };
            assert_eq!(names(LockKind::is_waited_for), waits, "{stack:?}");
            assert_eq!(names(LockKind::is_held), holds, "{stack:?}");
        };
        check(
            "global:random_sleep/1 global:set_lock/4 global:trans/4 tickets:sell/1",
            &["global:trans"],
            &[],
        );
        check("gen:do_call/4 tickets:-sell/1-fun-0-/0 global:trans/4 tickets:sell/1", &[], &["global:trans"]);
        check("timer:sleep/1 mnesia_tm:restart/9 shop:pay/1", &["Mnesia transactions"], &[]);
        check(
            "mnesia_locker:receive_wlocks/4 mnesia_locker:rwlock/3 shop:-pay/1-fun-0-/1 mnesia_tm:apply_fun/3",
            &["Mnesia transactions"],
            &[],
        );
        check("prim_inet:recv0/3 shop:push/2 mnesia:foldl/6", &[], &["Mnesia transactions"]);
        check("mnesia_locker:loop/1 mnesia_sp:init_proc/4 proc_lib:init_p_do_apply/3", &[], &[]);
        check("timer:sleep/1 shop:loop/0", &[], &[]);
        check("gen_server:loop/7 proc_lib:init_p_do_apply/3", &[], &[]);
        check("", &[], &[]);
    }
}
