//! What is known of locks: the counts of a lock-counting emulator, and what threads of any VM were seen waiting for.
//!
//! The two answer the same question from two sides. A lock-counting emulator (`-emu_type lcnt`) counts every try of every lock, and so
//! names the lock; a stock VM tells nothing, but the host sees which of its threads sleep or yield within the code of a lock, and the
//! stack there names the operation that wanted it.

use crate::units::Nanos;

/// Bins of lock counting's histogram of waits: bin *n* holds waits of 2^*n* ns and more, below 2^(*n*+1); the last one holds all longer
/// ones (`ERTS_LCNT_HISTOGRAM_SLOT_SIZE`, erts/emulator/beam/erl_lock_count.h).
pub const WAIT_BINS: usize = 30;

/// A time for which locks were counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockSession {
    /// When it ended, from the recording's start; the same in all its [`LockRow`]s.
    pub t: Nanos,
    /// How long it was, by lock counting's own clock. Shares of the duration refer to it.
    pub length: Nanos,
    /// Categories of locks that were counted (`db`, `process` …); empty where that is not known, as of an imported text.
    pub categories: Vec<String>,
    /// Locks that were counted.
    pub locks: i64,
    /// Those of which there is a row of their own ([`LockRow::id`]).
    pub told: i64,
    /// Reductions of the node meanwhile: the work by which sessions are compared. `None` where nobody has counted them.
    pub reductions: Option<i64>,
    /// Processes of the node at its end; `None` where nobody has counted them.
    pub processes: Option<i64>,
    /// Memory that collecting the counts has taken in the node at most, in bytes; `None` where nobody has looked.
    pub cost_bytes: Option<i64>,
    /// What is missing or was not exact, for a person; empty: nothing.
    pub remark: String,
}

/// Counts of one lock, or of all locks of a class, at one place in the emulator's source.
///
/// The rows without [`id`](Self::id) are complete: their sums are those of lock counting. Those with one are of single locks, of which
/// only those that stand out are told; what they count is within the former.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockRow {
    /// That of its [`LockSession`].
    pub t: Nanos,
    /// The class, as lock counting names it: `db_tab`.
    pub class: String,
    /// Its kind, as lock counting names it: `mutex`, `rw_mutex`, `spinlock`, `rw_spinlock`, `proclock`.
    pub kind: String,
    /// The single lock, as lock counting names it: a table, a pid, a port, an allocator, a number. `None` of a whole class.
    pub id: Option<String>,
    /// What that is, as its owner knows it, where it lived when it was looked up: a registered name, the name and owner of a table,
    /// the driver of a port.
    pub entity: Option<String>,
    /// Locks that the row is of.
    pub locks: i64,
    /// File of the emulator's source in which it was taken; `None` where lock counting does not tell.
    pub file: Option<String>,
    /// Line there.
    pub line: Option<i64>,
    /// How often it was tried to take it.
    pub tries: i64,
    /// How often somebody else had it then.
    pub collisions: i64,
    /// Time spent waiting, of all threads together.
    pub waited: Nanos,
    /// Waits that were timed.
    pub waits: i64,
    /// Waits by their length, as [`WAIT_BINS`] says; empty where it is not known, and without the zeros at the end.
    pub histogram: Vec<i64>,
}

/// Where threads of one kind were seen waiting for a lock on a VM that does not count locks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaitRow {
    /// When the look ended, from the recording's start; the same in all rows of a look.
    pub t: Nanos,
    /// How long the look was.
    pub length: Nanos,
    /// Kind of the threads: `scheduler`, `dirty_cpu_scheduler`, `dirty_io_scheduler`, `aux`, `poll`, `async`, `other`.
    pub thread: String,
    /// How they waited: see [`how`].
    pub how: String,
    /// Functions of the emulator, innermost first, without those of the lock itself; empty where no stack was to be had.
    pub stack: Vec<String>,
    /// Times that it was seen.
    pub seen: i64,
    /// Time spent there, of all threads together: measured where waits were timed, else estimated from the samples.
    pub waited: Nanos,
}

/// What stands in [`WaitRow::how`].
pub mod how {
    /// In the kernel until they are woken.
    pub const SLEEP: &str = "sleep";
    /// Giving up the CPU again and again before that.
    pub const YIELD: &str = "yield";
}
