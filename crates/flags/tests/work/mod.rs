//! Checks how the work of a reader grows with its input, independently of the speed of the host.

/// The CPU time of this thread in nanoseconds, so that other processes do not matter.
fn cpu_ns() -> u64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    schedstat.split(' ').next().expect("a first field").parse().expect("nanoseconds")
}

/// Asserts that eight times the length takes at most 24 times the CPU time: linear work takes 8 times, quadratic work 64 times as long.
/// `work` is called with a length.
#[track_caller]
pub fn assert_no_more_than_linear(length: usize, work: impl Fn(usize)) {
    let time = |length| {
        let begin = cpu_ns();
        work(length);
        cpu_ns() - begin
    };
    // Warm up one-time initialisation.
    time(length / 8);
    let (short, long) = (time(length / 8), time(length));
    println!("{short} ns of CPU time for an eighth, {long} ns for all");
    assert!(long <= 24 * short, "{long} ns of CPU time for all, {short} ns for an eighth of it");
}
