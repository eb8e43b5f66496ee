//! Determines how often a thread is sampled while it is on-CPU.
//!
//! A thread's CPU clock triggers the samples, so each sample represents an amount of CPU time, and a sleeping thread is never sampled. If
//! the clock had the same period as a regular event (a timer of the VM, the kernel's tick), samples would show this event always or never.
//! The usual remedy is a prime number of samples per second. The periods of threads also differ slightly, so that threads that run in
//! lockstep are not all sampled at the same instant.

use beamtune_model::units::SECOND_NS;

/// Maximum samples per second of a thread's CPU time: a prime below 200; its cost was measured.
const MAX_PER_SECOND: u64 = 199;
/// Minimum samples per second of a thread's CPU time: fewer say little after five seconds. With many busy cores this takes precedence over
/// the requested total.
const MIN_PER_SECOND: u64 = 11;
/// Relative difference between the longest and the shortest period.
const SPREAD: f64 = 0.04;

/// Returns the CPU time between two samples of a thread, in nanoseconds. Threads that use `cores` cores together get at most
/// `max_per_second` samples per second.
pub fn period(max_per_second: u32, cores: f64, tid: u32) -> u64 {
    let each = f64::from(max_per_second) / cores.max(1.0);
    spread(each.clamp(MIN_PER_SECOND as f64, MAX_PER_SECOND as f64), tid)
}

/// Returns the CPU time between two samples, in nanoseconds, for a thread with this rate: slightly different for each thread.
pub fn spread(per_second: f64, tid: u32) -> u64 {
    // A pseudo-random number that is always the same for a thread: Knuth's multiplicative hash.
    let chance = f64::from(tid.wrapping_mul(2_654_435_761)) / f64::from(u32::MAX);
    (SECOND_NS as f64 / per_second * (1.0 + SPREAD * (chance - 0.5))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_busy_cores_share_the_samples() {
        let check = |max, cores, per_second: f64| {
            let period = period(max, cores, 4711) as f64 / SECOND_NS as f64;
            assert!((period * per_second - 1.0).abs() <= 0.021, "{max} for {cores}: {period}");
        };
        check(1_000, 0.1, 199.0);
        check(1_000, 4.0, 199.0);
        check(1_000, 10.0, 100.0);
        check(1_000, 64.0, 15.6);
        check(1_000, 1_000.0, 11.0);
        check(0, 1.0, 11.0);
    }

    #[test]
    fn periods_of_threads_differ() {
        let mut periods: Vec<u64> = (1..=100).map(|tid| period(1_000, 1.0, tid)).collect();
        periods.sort_unstable();
        periods.dedup();
        assert!(periods.len() > 95, "{}", periods.len());
    }
}
