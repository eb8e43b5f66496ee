//! How often a thread on a CPU is looked at.
//!
//! The clock of a thread runs while that is on a CPU, so a sample is drawn for so much CPU time, and none of a thread that sleeps. What
//! happens at a regular pace (a timer of the VM, a tick of the kernel) would be seen always or never by a clock of the same
//! pace; the usual way out is a prime number of samples a second. Each thread's clock differs a little from the others'
//! beside that, so that threads which work in step are not all looked at in the same instant.

use beamtune_model::units::SECOND_NS;

/// Samples of a thread in a second of its CPU time: a prime number below 200, the pace that was tried out.
pub const PER_SECOND: u64 = 199;
/// Below this rate five seconds say little; where many cores are busy, more samples are drawn than were asked for.
const LEAST_PER_SECOND: u64 = 11;
/// The paces of threads differ by up to so much of themselves.
const SPREAD: f64 = 0.04;

/// CPU time between two samples of a thread, in nanoseconds, so that there are at most `most` in a second where threads use `cores` cores
/// together.
pub fn period(most: u32, cores: f64, tid: u32) -> u64 {
    let each = f64::from(most) / cores.max(1.0);
    let per_second = each.clamp(LEAST_PER_SECOND as f64, PER_SECOND as f64);
    // Any number that looks like chance, and the same for the same thread: Knuth's multiplicative hash.
    let chance = f64::from(tid.wrapping_mul(2_654_435_761)) / f64::from(u32::MAX);
    (SECOND_NS as f64 / per_second * (1.0 + SPREAD * (chance - 0.5))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_busy_cores_share_the_samples() {
        let check = |most, cores, per_second: f64| {
            let period = period(most, cores, 4711) as f64 / SECOND_NS as f64;
            assert!((period * per_second - 1.0).abs() <= 0.021, "{most} for {cores}: {period}");
        };
        check(1_000, 0.1, 199.0);
        check(1_000, 4.0, 199.0);
        check(1_000, 10.0, 100.0);
        check(1_000, 64.0, 15.6);
        check(1_000, 1_000.0, 11.0);
        check(0, 1.0, 11.0);
    }

    #[test]
    fn threads_have_paces_of_their_own() {
        let mut periods: Vec<u64> = (1..=100).map(|tid| period(1_000, 1.0, tid)).collect();
        periods.sort_unstable();
        periods.dedup();
        assert!(periods.len() > 95, "{}", periods.len());
    }
}
