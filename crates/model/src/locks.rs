//! Lock contention: counts of a lock-counting emulator, and lock waits sampled from the threads of any VM.
//!
//! A lock-counting emulator (`-emu_type lcnt`) counts every attempt to take a lock, by lock. A stock VM counts nothing, but the host
//! shows which VM threads sleep or yield within lock code. Their stacks identify the operation that tries to take the lock.

use crate::units::Nanos;

/// Number of bins in the wait histogram of lock counting. Bin *n* contains waits from 2^*n* ns up to 2^(*n*+1) ns, the last bin all
/// longer waits (`ERTS_LCNT_HISTOGRAM_SLOT_SIZE`, erts/emulator/beam/erl_lock_count.h).
pub const WAIT_BINS: usize = 30;

/// An interval in which locks were counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockSession {
    /// End, since the start of the recording; the same in all its [`LockRow`]s.
    pub t: Nanos,
    /// Length by the clock of lock counting; shares of the duration refer to it.
    pub length: Nanos,
    /// Categories of the counted locks (`db`, `process` …); empty if unknown, as for imported text.
    pub categories: Vec<String>,
    /// Number of counted locks.
    pub locks: i64,
    /// Number of locks that have their own row ([`LockRow::id`]).
    pub single_locks: i64,
    /// Reductions of the node in this interval, the measure of work when sessions are compared. `None` if not counted.
    pub reductions: Option<i64>,
    /// Number of processes at the end; `None` if not counted.
    pub processes: Option<i64>,
    /// Peak memory use of the node for reading the counts, in bytes; `None` if not measured.
    pub cost_bytes: Option<i64>,
    /// Missing or inexact data, as text; empty if absent.
    pub remark: String,
}

/// Counts of one lock, or of all locks of a class, at one location in the emulator's source.
///
/// Rows without [`id`](Self::id) are complete: they add up to the sums of lock counting. Rows with an `id` are single locks. Only the most
/// contended locks have such a row; their counts are included in the rows without `id`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockRow {
    /// Time of its [`LockSession`].
    pub t: Nanos,
    /// Class, as named by lock counting: `db_tab`.
    pub class: String,
    /// Kind, as named by lock counting: `mutex`, `rw_mutex`, `spinlock`, `rw_spinlock`, `proclock`.
    pub kind: String,
    /// Identifier of a single lock in lock counting: a table, a pid, a port, an allocator, a number. `None` for a whole class.
    pub id: Option<String>,
    /// Resolved name of `id`, if that still existed: a registered name, name and owner of a table, the driver of a port.
    pub entity: Option<String>,
    /// Number of locks in this row.
    pub locks: i64,
    /// Source file of the emulator that takes the lock; `None` if lock counting does not report it.
    pub file: Option<String>,
    /// Line in this file.
    pub line: Option<i64>,
    /// Attempts to take the lock.
    pub tries: i64,
    /// Attempts that failed because another thread held the lock.
    pub collisions: i64,
    /// Wait time, summed over all threads.
    pub wait_time: Nanos,
    /// Number of timed waits.
    pub waits: i64,
    /// Waits by length, see [`WAIT_BINS`]; without trailing zeros, empty if unknown.
    pub histogram: Vec<i64>,
}

/// Lock waits of threads of one kind with one stack, on a VM that does not count locks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockWaitRow {
    /// End of the sampling, since the start of the recording; the same in all its rows.
    pub t: Nanos,
    /// Length of the sampling.
    pub length: Nanos,
    /// Kind of thread: `scheduler`, `dirty_cpu_scheduler`, `dirty_io_scheduler`, `aux`, `poll`, `async`, `other`.
    pub thread: String,
    /// How the threads waited, see [`how`].
    pub how: String,
    /// Functions of the emulator, innermost first, without those of the lock itself; empty if no stack was available.
    pub stack: Vec<String>,
    /// Number of samples.
    pub samples: i64,
    /// Wait time, summed over all threads: measured if waits were timed, else estimated from the samples.
    pub waited: Nanos,
}

/// Values of [`WaitRow::how`].
pub mod wait_kind {
    /// Asleep in the kernel until woken.
    pub const SLEEP: &str = "sleep";
    /// Yielding the CPU repeatedly, before sleeping.
    pub const YIELD: &str = "yield";
}
