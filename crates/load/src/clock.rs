//! Instants: nanoseconds of CLOCK_MONOTONIC. All processes of a host share this clock, so instants of several generator processes
//! and of a recorder can be compared.

use rustix::time::{ClockId, clock_gettime};

/// One second, in nanoseconds.
pub const SECOND_NS: u64 = 1_000_000_000;

/// Returns the current instant.
pub fn now_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// Returns the CPU time of the calling thread.
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither clock is ever negative.
    (time.tv_sec as u64).wrapping_mul(SECOND_NS).wrapping_add(time.tv_nsec as u64)
}
