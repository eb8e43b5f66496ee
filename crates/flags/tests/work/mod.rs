//! How the work of a reader grows with its text, without regard to how fast the machine is.

/// The CPU time of this thread so far in nanoseconds: others use the machine, too.
fn cpu_ns() -> u64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    schedstat.split(' ').next().expect("a first field").parse().expect("nanoseconds")
}

/// That eight times the length takes no more than 24 times the CPU time. It is eight times where the work is linear, and 64 times
/// where it is quadratic. `work` is done for a length.
#[track_caller]
pub fn assert_no_more_than_linear(length: usize, work: impl Fn(usize)) {
    let time = |length| {
        let begin = cpu_ns();
        work(length);
        cpu_ns() - begin
    };
    // What is done once is done here.
    time(length / 8);
    let (short, long) = (time(length / 8), time(length));
    println!("{short} ns of CPU time for an eighth, {long} ns for all");
    assert!(long <= 24 * short, "{long} ns of CPU time for all, {short} ns for an eighth of it");
}
