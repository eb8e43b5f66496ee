//! From stacks to what threads wait for: is it a lock, and who wants it?
//!
//! All threads of a VM wait in the same few functions (`ethr_event_wait` and its kin, which sleep in a futex): for a lock, for work, for
//! another thread. What tells them apart is who called: between the waiting functions and the first function that is neither
//! waiting nor locking there must be one of a lock. A scheduler that sleeps for lack of work is below `erts_schedule`, an auxiliary
//! thread below nothing with a name, and neither has a lock's function in between.
//!
//! Static functions of a stripped VM have no names (see [`crate::elf`]), and stand in between often: `event_wait` of a mutex,
//! `wait_for_locks` of a process's locks. They are looked through, and not shown.
//!
//! Which functions those are stands in erts/lib_src/common/ethr_mutex.c, erts/lib_src/pthread/ethr_event.c, erts/include/internal/ethread.h,
//! erts/emulator/beam/erl_process_lock.c, erl_threads.h and erl_drv_thread.c of OTP 23 to 29.

use std::collections::HashMap;

use beamtune_model::locks::how;
use beamtune_model::{Nanos, WaitRow};

use crate::image::{Frame, Image};
use crate::names::without_underscores;
use crate::stack::{Stack, StackEnd};

/// Different stacks that are kept at most; a VM under load shows some hundred.
const MOST_STACKS: usize = 20_000;
/// Rows that are told, those with the longest waits first.
const MOST_ROWS: usize = 200;
/// Frames of a row; whoever wants the lock is the first of them.
const MOST_FRAMES: usize = 12;
/// Functions without a name of which it is looked who jumps to them: the VM's own code calls some hundred, and each takes milliseconds.
const MOST_JUMPED_TO: usize = 500;

/// How a thread waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum How {
    /// It slept in the kernel.
    Sleep,
    /// It was on a CPU, spun and gave that up now and then.
    Yield,
}

impl How {
    /// As it stands in a [`WaitRow`].
    pub fn text(self) -> &'static str {
        match self {
            How::Sleep => how::SLEEP,
            How::Yield => how::YIELD,
        }
    }
}

/// What a thread was doing, by its stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doing {
    /// It waited for a lock; the functions, innermost first, without those of the lock.
    WaitsForLock(Vec<String>),
    /// It was within a lock's function, and nothing shows that it waited: it takes the lock.
    Locks(Vec<String>),
    /// It waited for something else: work, a message of another thread. The function that waited, if it has a name.
    WaitsForOther(Option<String>),
    /// It did none of this.
    Else,
}

/// Functions in which a thread waits: they sleep, or give up the CPU.
fn is_waiting(function: &str) -> bool {
    match without_underscores(function) {
        "sched_yield" | "syscall" | "lll_lock_wait" | "lll_lock_wait_private" => true,
        "ethr_event_wait" | "ethr_event_swait" | "ethr_event_twait" | "ethr_event_stwait" => true,
        // Static ones, of VMs that are not stripped: of ethr_event.c and of ethr_mutex.c.
        "wait__" | "event_wait" => true,
        other => other.starts_with("futex_"),
    }
}

/// Functions of locks: they may wait, and are called to have a lock. Those of condition variables are not among them.
fn is_locking(function: &str) -> bool {
    const FUNCTIONS: &[&str] = &[
        // ethread's, as functions; most of the VM has them inlined up to where the lock is not free.
        "ethr_mutex_lock",
        "ethr_rwmutex_rlock",
        "ethr_rwmutex_rwlock",
        "ethr_spin_lock",
        "ethr_read_lock",
        "ethr_write_lock",
        // Those of NIFs and drivers.
        "enif_mutex_lock",
        "enif_rwlock_rlock",
        "enif_rwlock_rwlock",
        "erl_drv_mutex_lock",
        "erl_drv_rwlock_rlock",
        "erl_drv_rwlock_rwlock",
        "driver_pdl_lock",
        // Those of a process, and of an ETS table.
        "erts_proc_safelock",
        "proc_safelock",
        "wait_for_locks",
        "db_lock",
        // Static ones of ethr_mutex.c.
        "write_lock_wait",
        "read_lock_wait",
        // The C library's, and its own: malloc's arenas.
        "lll_lock_wait",
        "lll_lock_wait_private",
        "pthread_mutex_lock",
        "pthread_spin_lock",
        "pthread_rwlock_rdlock",
        "pthread_rwlock_wrlock",
    ];
    const BEGINNINGS: &[&str] = &[
        "ethr_mutex_lock_",
        "rwmutex_normal_r",
        "rwmutex_freqread_rlock",
        "rwmutex_freqread_rwlock",
        "erts_mtx_lock",
        "erts_rwmtx_rlock",
        "erts_rwmtx_rwlock",
        "erts_spin_lock",
        "erts_proc_lock",
        "erts_lcnt_lock",
        "erts_lc_",
        "pthread_mutex_lock_",
    ];
    let function = without_underscores(function);
    FUNCTIONS.contains(&function) || BEGINNINGS.iter().any(|begin| function.starts_with(begin))
}

/// What a thread with these frames was doing, innermost first; `is_spinning` says whether it is within a loop that spins.
pub fn doing(frames: &[Frame], is_spinning: bool) -> Doing {
    let (mut waits, mut locks, mut is_in_library) = (false, false, false);
    for (index, frame) in frames.iter().enumerate() {
        let Some(function) = &frame.function else {
            is_in_library |= !frame.is_program;
            continue;
        };
        let (waiting, locking) = (is_waiting(function), is_locking(function));
        // Locks call the C library, which does not name its inner functions, only where they are not free: to put themselves into a queue
        // with a lock of its own, to sleep, to wake others.
        waits |= (waiting && !locks) || (locking && (is_in_library || is_spinning));
        locks |= locking;
        if !waiting && !locking {
            return match (waits, locks) {
                (true, true) => Doing::WaitsForLock(shown(&frames[index..])),
                (false, true) => Doing::Locks(shown(&frames[index..])),
                (true, false) => Doing::WaitsForOther(Some(function.clone())),
                (false, false) => Doing::Else,
            };
        }
        is_in_library |= !frame.is_program;
    }
    match (waits, locks) {
        (true, true) => Doing::WaitsForLock(shown(after_last_lock(frames))),
        (false, true) => Doing::Locks(shown(after_last_lock(frames))),
        (true, false) => Doing::WaitsForOther(None),
        (false, false) => Doing::Else,
    }
}

/// Where nothing outside of the lock has a name, there may still be a library.
fn after_last_lock(frames: &[Frame]) -> &[Frame] {
    let last = frames.iter().rposition(|frame| frame.function.as_deref().is_some_and(is_locking));
    last.and_then(|last| frames.get(last + 1..)).unwrap_or_default()
}

/// Names for a person: functions, and `[library]` for nameless ones of a library. Nameless ones of the VM are left out.
fn shown(frames: &[Frame]) -> Vec<String> {
    let mut names: Vec<String> = frames
        .iter()
        .filter_map(|frame| match (&frame.function, &frame.module) {
            (Some(function), _) => Some(function.clone()),
            (None, Some(module)) if !frame.is_program => Some(format!("[{module}]")),
            _ => None,
        })
        .collect();
    names.dedup();
    names.truncate(MOST_FRAMES);
    names
}

/// What was counted of one stack.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    /// Times that it was seen.
    seen: i64,
    /// What those stand for.
    weight: f64,
    /// Of these, how many were timed.
    timed: f64,
    /// How long the latter took, each as often as it stands for.
    time: f64,
    /// Of those that were timed, how many took any time.
    slept: f64,
}

/// Where the thread was, and how it waited there.
type Place = (usize, How, Stack);

/// Collects stacks, and what was counted of them.
#[derive(Debug, Default)]
pub struct Waits {
    kinds: Vec<String>,
    places: Vec<(Place, Tally)>,
    index: HashMap<Place, usize>,
    /// Samples that were left out because there are too many different stacks.
    left_out: u64,
}

/// What was found in the end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    /// Waits for locks, the longest first.
    pub rows: Vec<WaitRow>,
    /// Samples of threads on a CPU.
    pub on_cpu: i64,
    /// Of these, those within locks' functions that did not wait yet, by who wanted the lock; the most first.
    pub locking: Vec<(String, i64)>,
    /// Sleeps that were no waits for locks, by the function that waited; the most first. `None`: it has no name.
    pub other: Vec<(Option<String>, i64)>,
    /// Stacks that could not be unwound.
    pub lost: i64,
    /// Samples that were left out because there were too many different stacks.
    pub left_out: u64,
}

impl Waits {
    /// The number of a stack of a thread of some kind, to be counted by; `None` where there are too many.
    pub fn place(&mut self, kind: &str, how: How, stack: Stack) -> Option<usize> {
        let kind = self.kinds.iter().position(|known| known == kind).unwrap_or_else(|| {
            self.kinds.push(kind.to_owned());
            self.kinds.len() - 1
        });
        let place = (kind, how, stack);
        if let Some(index) = self.index.get(&place) {
            return Some(*index);
        }
        if self.places.len() >= MOST_STACKS {
            self.left_out += 1;
            return None;
        }
        let index = self.places.len();
        self.places.push((place.clone(), Tally::default()));
        self.index.insert(place, index);
        Some(index)
    }

    /// It was seen once, for so many; each took so long, where that is known.
    pub fn add(&mut self, place: usize, weight: u64, each: Option<Nanos>) {
        let Some((_, tally)) = self.places.get_mut(place) else { return };
        let weight = weight as f64;
        tally.seen += 1;
        tally.weight += weight;
        if let Some(each) = each {
            tally.timed += weight;
            tally.time += weight * each as f64;
            tally.slept += if each > 0 { weight } else { 0.0 };
        }
    }

    /// What it all was. `length` is how long it was looked; the instant of the rows is left at 0. `late` is how much later than it could a
    /// thread came back from a sleep, on the average, which is no part of the wait.
    pub fn found(&self, image: &Image, length: Nanos, late: Nanos) -> Found {
        let mut jumping: HashMap<u64, Option<String>> = HashMap::new();
        let spins = |address| image.is_spinning(address);
        let name = |address, is_last| {
            let mut frame = image.frame(address);
            // Whom the VM's own code has called may have jumped on to it.
            let is_nameless = is_last && frame.function.is_none() && frame.is_program;
            if is_nameless
                && let Some(function) = image.function_at(address)
                && (jumping.len() < MOST_JUMPED_TO || jumping.contains_key(&function))
            {
                frame.function =
                    jumping.entry(function).or_insert_with(|| image.jumping_to(function)).clone();
            }
            frame
        };
        self.found_by(name, spins, length, late)
    }

    /// `name` is told whether generated code is behind; `spins` whether an address is within a loop that spins.
    fn found_by(
        &self,
        mut name: impl FnMut(u64, bool) -> Frame,
        spins: impl Fn(u64) -> bool,
        length: Nanos,
        late: Nanos,
    ) -> Found {
        let mut rows: HashMap<(usize, How, Vec<String>), Tally> = HashMap::new();
        let mut locking: HashMap<String, i64> = HashMap::new();
        let mut other: HashMap<Option<String>, i64> = HashMap::new();
        let mut found = Found { left_out: self.left_out, ..Found::default() };
        for ((kind, how, stack), tally) in self.places.iter().filter(|(_, tally)| tally.seen > 0) {
            let last = stack.frames.len().saturating_sub(1);
            let is_last = |index| index == last && stack.end == StackEnd::Generated;
            let frames = stack.frames.iter().enumerate();
            let frames: Vec<Frame> = frames.map(|(index, address)| name(*address, is_last(index))).collect();
            found.lost += if stack.end == StackEnd::Lost { tally.seen } else { 0 };
            found.on_cpu += if *how == How::Yield { tally.seen } else { 0 };
            let is_spinning = stack.frames.first().is_some_and(|address| spins(*address));
            match doing(&frames, is_spinning) {
                Doing::WaitsForLock(names) => {
                    let sum = rows.entry((*kind, *how, names)).or_default();
                    sum.seen += tally.seen;
                    sum.weight += tally.weight;
                    sum.timed += tally.timed;
                    sum.time += tally.time;
                    sum.slept += tally.slept;
                }
                Doing::Locks(names) if *how == How::Yield => {
                    *locking.entry(names.into_iter().next().unwrap_or_default()).or_default() += tally.seen;
                }
                Doing::WaitsForOther(function) if *how == How::Sleep => {
                    *other.entry(function).or_default() += tally.seen;
                }
                _ => {}
            }
        }
        found.rows = rows
            .into_iter()
            .map(|((kind, how, stack), tally)| WaitRow {
                t: 0,
                length,
                thread: self.kinds.get(kind).cloned().unwrap_or_default(),
                how: how.text().to_owned(),
                stack,
                seen: tally.seen,
                waited: waited(&tally, if how == How::Sleep { late } else { 0 }),
            })
            .collect();
        found.rows.sort_by(|a, b| {
            let key = |row: &WaitRow| std::cmp::Reverse((row.waited, row.seen));
            key(a)
                .cmp(&key(b))
                .then_with(|| (&a.thread, &a.how, &a.stack).cmp(&(&b.thread, &b.how, &b.stack)))
        });
        found.rows.truncate(MOST_ROWS);
        found.locking = most_first(locking);
        found.other = most_first(other);
        found
    }
}

/// The time of all that were seen: those that were not timed took as long as the others, on the average. Each was late by so much.
fn waited(tally: &Tally, late: Nanos) -> Nanos {
    if tally.timed > 0.0 {
        let time = tally.time * (tally.weight / tally.timed);
        (time - tally.slept * (tally.weight / tally.timed) * late as f64).max(0.0) as Nanos
    } else {
        0
    }
}

fn most_first<K: Ord>(counts: HashMap<K, i64>) -> Vec<(K, i64)> {
    let mut counts: Vec<(K, i64)> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    counts
}

#[cfg(test)]
mod tests;
