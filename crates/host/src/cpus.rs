//! On which CPUs we run. What a thread starts runs where the thread does.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// CPUs that the calling thread may run on, by their numbers.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Lets the calling thread, and what it starts from now on, run on these CPUs alone.
pub fn run_on(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        set.set(*cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Lets the calling thread, and what it starts from now on, run only where nobody else of the same CPUs wants to: a load generator
/// beside it is not to be late.
pub fn give_way() -> io::Result<()> {
    const LAST: i32 = 19;
    Ok(rustix::process::setpriority_process(None, LAST)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_where_it_is_told_to() {
        std::thread::spawn(|| {
            let all = allowed().expect("some");
            run_on(&all[..1]).expect("allowed");
            assert_eq!(allowed().expect("one"), all[..1]);
        })
        .join()
        .expect("no panic");
    }
}
