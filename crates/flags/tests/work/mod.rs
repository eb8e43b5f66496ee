//! Checks how the CPU time of a reader grows with the size of its input, independently of the speed of the host.

/// Returns the CPU time of this thread in nanoseconds. Unlike the wall time, it does not depend on other processes.
fn cpu_ns() -> u64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    schedstat.split(' ').next().expect("a first field").parse().expect("nanoseconds")
}

/// Asserts that an input of eight times the length takes at most 24 times the CPU time. Linear work takes 8 times, quadratic work 64
/// times as long. `work` is called with the length.
#[track_caller]
pub fn assert_no_more_than_linear(length: usize, work: impl Fn(usize)) {
    let time = |length| {
        let begin = cpu_ns();
        work(length);
        cpu_ns() - begin
    };
    // The first call includes one-time initialisation, so it is not measured.
    time(length / 8);
    let (short, long) = (time(length / 8), time(length));
    println!("{short} ns of CPU time for an eighth of the input, {long} ns for all of it");
    assert!(long <= 24 * short, "{long} ns of CPU time for the whole input, {short} ns for an eighth of it");
}
