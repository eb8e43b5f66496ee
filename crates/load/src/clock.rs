//! Instants: nanoseconds of CLOCK_MONOTONIC, which all processes of a host share, so that several of ours and a recorder
//! beside them speak of the same time.

use rustix::time::{ClockId, clock_gettime};

/// One second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// Now.
pub fn now_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// CPU time that the calling thread has used.
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Both clocks begin at zero and never go back.
    (time.tv_sec as u64).wrapping_mul(SECOND_NS).wrapping_add(time.tv_nsec as u64)
}
