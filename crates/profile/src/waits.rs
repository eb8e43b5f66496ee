//! Determines from call stacks what threads wait for: whether it is a lock, and which operation takes the lock.
//!
//! All threads of a VM wait in the same few functions (`ethr_event_wait` and similar, which sleep in a futex): for a lock, for work, for
//! another thread. Their callers distinguish these cases. If a thread waits for a lock, there is a locking function between the waiting
//! functions and the first function that neither waits nor locks. A scheduler without work sleeps below `erts_schedule`, an aux thread
//! below functions without names. Neither has a locking function in between.
//!
//! Static functions of a stripped VM have no names (see [`crate::elf`]) and are often in between: `event_wait` of a mutex, `wait_for_locks`
//! of process locks. They are skipped, and not shown.
//!
//! The names of these functions are from erts/lib_src/common/ethr_mutex.c, erts/lib_src/pthread/ethr_event.c,
//! erts/include/internal/ethread.h, erts/emulator/beam/erl_process_lock.c, erl_threads.h and erl_drv_thread.c of OTP 23 to 29.

use std::collections::HashMap;

use beamtune_model::locks::wait_kind;
use beamtune_model::{LockWaitRow, Nanos};

use crate::image::{Frame, Image};
use crate::names::without_underscores;
use crate::stack::{Stack, StackEnd};

/// Maximum number of different stacks; a VM under load has a few hundred.
const MAX_STACKS: usize = 20_000;
/// Maximum number of reported rows; those with the longest waits are kept.
const MAX_ROWS: usize = 200;
/// Maximum number of frames in a row, innermost first: the first one takes the lock.
const MAX_FRAMES: usize = 12;
/// Maximum number of nameless functions whose tail callers are searched. Generated code calls a few hundred, and each search takes
/// milliseconds.
const MAX_TAIL_CALL_SEARCHES: usize = 500;

/// How a thread waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaitKind {
    /// Asleep in the kernel.
    Sleep,
    /// On-CPU: the thread spins, and yields from time to time.
    Yield,
}

impl WaitKind {
    /// Returns the value for a [`WaitRow`].
    pub fn text(self) -> &'static str {
        match self {
            WaitKind::Sleep => wait_kind::SLEEP,
            WaitKind::Yield => wait_kind::YIELD,
        }
    }
}

/// What a thread was doing, according to its stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Activity {
    /// The thread waited for a lock. Contains the functions outside the lock's own functions, innermost first.
    WaitsForLock(Vec<String>),
    /// The thread was inside a locking function without a sign of waiting: it takes the lock. Contains functions as in
    /// [`Self::WaitsForLock`].
    Locks(Vec<String>),
    /// The thread waited for something else: work, or another thread. Contains the function that waited, if it has a name.
    WaitsForOther(Option<String>),
    /// The thread did none of these.
    Other,
}

/// Whether threads wait in this function: it sleeps, or yields the CPU.
fn is_waiting(function: &str) -> bool {
    match without_underscores(function) {
        "sched_yield" | "syscall" | "lll_lock_wait" | "lll_lock_wait_private" => true,
        "ethr_event_wait" | "ethr_event_swait" | "ethr_event_twait" | "ethr_event_stwait" => true,
        // Static functions of unstripped VMs: from ethr_event.c and ethr_mutex.c.
        "wait__" | "event_wait" => true,
        other => other.starts_with("futex_"),
    }
}

/// Whether this function takes a lock, and so may wait for it. Functions of condition variables are excluded.
fn is_locking(function: &str) -> bool {
    const FUNCTIONS: &[&str] = &[
        // ethread's functions; in most of the VM their fast path is inlined.
        "ethr_mutex_lock",
        "ethr_rwmutex_rlock",
        "ethr_rwmutex_rwlock",
        "ethr_spin_lock",
        "ethr_read_lock",
        "ethr_write_lock",
        // NIFs and drivers.
        "enif_mutex_lock",
        "enif_rwlock_rlock",
        "enif_rwlock_rwlock",
        "erl_drv_mutex_lock",
        "erl_drv_rwlock_rlock",
        "erl_drv_rwlock_rwlock",
        "driver_pdl_lock",
        // Process locks and ETS tables.
        "erts_proc_safelock",
        "proc_safelock",
        "wait_for_locks",
        "db_lock",
        // Static functions of ethr_mutex.c.
        "write_lock_wait",
        "read_lock_wait",
        // The C library: called from outside, or inside it (arenas of malloc).
        "lll_lock_wait",
        "lll_lock_wait_private",
        "pthread_mutex_lock",
        "pthread_spin_lock",
        "pthread_rwlock_rdlock",
        "pthread_rwlock_wrlock",
    ];
    const PREFIXES: &[&str] = &[
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
    FUNCTIONS.contains(&function) || PREFIXES.iter().any(|prefix| function.starts_with(prefix))
}

/// Determines what a thread with these frames, innermost first, was doing. `is_spinning` means that the thread is inside a spin loop.
pub fn activity(frames: &[Frame], is_spinning: bool) -> Activity {
    let (mut waits, mut locks, mut is_in_library) = (false, false, false);
    for (index, frame) in frames.iter().enumerate() {
        let Some(function) = &frame.function else {
            is_in_library |= !frame.is_program;
            continue;
        };
        let (waiting, locking) = (is_waiting(function), is_locking(function));
        // Locking functions call the C library only under contention: to enqueue themselves under an inner lock, to sleep, to wake others.
        // The C library's internal functions have no names.
        waits |= (waiting && !locks) || (locking && (is_in_library || is_spinning));
        locks |= locking;
        if !waiting && !locking {
            return match (waits, locks) {
                (true, true) => Activity::WaitsForLock(displayed(&frames[index..])),
                (false, true) => Activity::Locks(displayed(&frames[index..])),
                (true, false) => Activity::WaitsForOther(Some(function.clone())),
                (false, false) => Activity::Other,
            };
        }
        is_in_library |= !frame.is_program;
    }
    match (waits, locks) {
        (true, true) => Activity::WaitsForLock(displayed(after_last_lock(frames))),
        (false, true) => Activity::Locks(displayed(after_last_lock(frames))),
        (true, false) => Activity::WaitsForOther(None),
        (false, false) => Activity::Other,
    }
}

/// Returns the frames outside the lock. None of them has a function name, but a library may be among them.
fn after_last_lock(frames: &[Frame]) -> &[Frame] {
    let last = frames.iter().rposition(|frame| frame.function.as_deref().is_some_and(is_locking));
    last.and_then(|last| frames.get(last + 1..)).unwrap_or_default()
}

/// Returns the names for output: functions, and `[library]` for nameless functions of a library. Nameless functions of the VM are omitted.
fn displayed(frames: &[Frame]) -> Vec<String> {
    let mut names: Vec<String> = frames
        .iter()
        .filter_map(|frame| match (&frame.function, &frame.module) {
            (Some(function), _) => Some(function.clone()),
            (None, Some(module)) if !frame.is_program => Some(format!("[{module}]")),
            _ => None,
        })
        .collect();
    names.dedup();
    names.truncate(MAX_FRAMES);
    names
}

/// Counts of one stack.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    /// Number of samples.
    samples: i64,
    /// Number of events that the samples represent.
    weight: f64,
    /// The part of `weight` with a known duration.
    timed: f64,
    /// Total duration of these events, weighted.
    time: f64,
    /// The part of `timed` with a duration above 0.
    slept: f64,
}

/// Kind of thread (as an index), kind of wait, and stack.
type Key = (usize, WaitKind, Stack);

/// Counts samples by stack.
#[derive(Debug, Default)]
pub struct StackCounter {
    kinds: Vec<String>,
    stacks: Vec<(Key, Tally)>,
    index: HashMap<Key, usize>,
    /// Samples that were dropped because of [`MAX_STACKS`].
    left_out: u64,
}

/// The evaluated samples.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WaitSummary {
    /// Waits for locks, the longest first.
    pub rows: Vec<LockWaitRow>,
    /// Number of samples of on-CPU threads.
    pub on_cpu: i64,
    /// Samples of on-CPU threads that took a lock without waiting, by the operation that takes the lock; highest count first.
    pub locking: Vec<(String, i64)>,
    /// Sleeps that were not waits for locks, by the function that waited (`None`: no name); highest count first.
    pub other: Vec<(Option<String>, i64)>,
    /// Samples whose stack could not be unwound.
    pub lost: i64,
    /// Samples that were dropped because there were too many different stacks.
    pub left_out: u64,
}

impl StackCounter {
    /// Returns the index of a stack of a thread of this kind, for [`Self::add`]; `None` if there are too many stacks.
    pub fn index_of(&mut self, kind: &str, how: WaitKind, stack: Stack) -> Option<usize> {
        let kind = self.kinds.iter().position(|known| known == kind).unwrap_or_else(|| {
            self.kinds.push(kind.to_owned());
            self.kinds.len() - 1
        });
        let key = (kind, how, stack);
        if let Some(index) = self.index.get(&key) {
            return Some(*index);
        }
        if self.stacks.len() >= MAX_STACKS {
            self.left_out += 1;
            return None;
        }
        let index = self.stacks.len();
        self.stacks.push((key.clone(), Tally::default()));
        self.index.insert(key, index);
        Some(index)
    }

    /// Adds one sample that represents `weight` events, each with the duration `each`, if it is known.
    pub fn add(&mut self, stack: usize, weight: u64, each: Option<Nanos>) {
        let Some((_, tally)) = self.stacks.get_mut(stack) else { return };
        let weight = weight as f64;
        tally.samples += 1;
        tally.weight += weight;
        if let Some(each) = each {
            tally.timed += weight;
            tally.time += weight * each as f64;
            tally.slept += if each > 0 { weight } else { 0.0 };
        }
    }

    /// Evaluates all samples. `length` is the duration of sampling; `t` of the rows is 0. `late` is the average delay between wake-up and
    /// running, which is not part of a wait.
    pub fn evaluate(&self, image: &Image, length: Nanos, late: Nanos) -> WaitSummary {
        let mut tail_callers: HashMap<u64, Option<String>> = HashMap::new();
        let spins = |address| image.is_spinning(address);
        let name = |address, is_last| {
            let mut frame = image.frame(address);
            // A function called by generated code may have made a tail call to this one.
            let is_nameless = is_last && frame.function.is_none() && frame.is_program;
            if is_nameless
                && let Some(function) = image.function_at(address)
                && (tail_callers.len() < MAX_TAIL_CALL_SEARCHES || tail_callers.contains_key(&function))
            {
                frame.function =
                    tail_callers.entry(function).or_insert_with(|| image.tail_callers(function)).clone();
            }
            frame
        };
        self.evaluate_with(name, spins, length, late)
    }

    /// `name` also receives whether generated code called the frame; `spins` returns whether an address is inside a spin loop.
    fn evaluate_with(
        &self,
        mut name: impl FnMut(u64, bool) -> Frame,
        spins: impl Fn(u64) -> bool,
        length: Nanos,
        late: Nanos,
    ) -> WaitSummary {
        let mut rows: HashMap<(usize, WaitKind, Vec<String>), Tally> = HashMap::new();
        let mut locking: HashMap<String, i64> = HashMap::new();
        let mut other: HashMap<Option<String>, i64> = HashMap::new();
        let mut found = WaitSummary { left_out: self.left_out, ..WaitSummary::default() };
        for ((kind, how, stack), tally) in self.stacks.iter().filter(|(_, tally)| tally.samples > 0) {
            let last = stack.frames.len().saturating_sub(1);
            let is_last = |index| index == last && stack.end == StackEnd::Generated;
            let frames = stack.frames.iter().enumerate();
            let frames: Vec<Frame> = frames.map(|(index, address)| name(*address, is_last(index))).collect();
            found.lost += if stack.end == StackEnd::Lost { tally.samples } else { 0 };
            found.on_cpu += if *how == WaitKind::Yield { tally.samples } else { 0 };
            let is_spinning = stack.frames.first().is_some_and(|address| spins(*address));
            match activity(&frames, is_spinning) {
                Activity::WaitsForLock(names) => {
                    let sum = rows.entry((*kind, *how, names)).or_default();
                    sum.samples += tally.samples;
                    sum.weight += tally.weight;
                    sum.timed += tally.timed;
                    sum.time += tally.time;
                    sum.slept += tally.slept;
                }
                Activity::Locks(names) if *how == WaitKind::Yield => {
                    *locking.entry(names.into_iter().next().unwrap_or_default()).or_default() +=
                        tally.samples;
                }
                Activity::WaitsForOther(function) if *how == WaitKind::Sleep => {
                    *other.entry(function).or_default() += tally.samples;
                }
                _ => {}
            }
        }
        found.rows = rows
            .into_iter()
            .map(|((kind, how, stack), tally)| LockWaitRow {
                t: 0,
                length,
                thread: self.kinds.get(kind).cloned().unwrap_or_default(),
                how: how.text().to_owned(),
                stack,
                samples: tally.samples,
                waited: waited(&tally, if how == WaitKind::Sleep { late } else { 0 }),
            })
            .collect();
        found.rows.sort_by(|a, b| {
            let key = |row: &LockWaitRow| std::cmp::Reverse((row.waited, row.samples));
            key(a)
                .cmp(&key(b))
                .then_with(|| (&a.thread, &a.how, &a.stack).cmp(&(&b.thread, &b.how, &b.stack)))
        });
        found.rows.truncate(MAX_ROWS);
        found.locking = highest_first(locking);
        found.other = highest_first(other);
        found
    }
}

/// Returns the total wait time. Events without a known duration are counted with the average of the others; `late` is subtracted from each
/// sleep.
fn waited(tally: &Tally, late: Nanos) -> Nanos {
    if tally.timed > 0.0 {
        let time = tally.time * (tally.weight / tally.timed);
        (time - tally.slept * (tally.weight / tally.timed) * late as f64).max(0.0) as Nanos
    } else {
        0
    }
}

fn highest_first<K: Ord>(counts: HashMap<K, i64>) -> Vec<(K, i64)> {
    let mut counts: Vec<(K, i64)> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    counts
}

#[cfg(test)]
mod tests;
