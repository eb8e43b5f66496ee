//! CPU affinity and priority of the calling thread. Processes and threads that it starts inherit both.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the numbers of the CPUs on which the calling thread may run.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Restricts the calling thread, and everything that it starts afterwards, to these CPUs.
pub fn set_affinity(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        set.set(*cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Gives the calling thread the lowest priority (nice 19), so that a load generator on the same CPUs is not delayed. Everything that the
/// thread starts afterwards inherits the priority.
pub fn lower_priority() -> io::Result<()> {
    const LOWEST: i32 = 19;
    Ok(rustix::process::setpriority_process(None, LOWEST)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_on_the_given_cpus_only() {
        std::thread::spawn(|| {
            let all = allowed().expect("some");
            set_affinity(&all[..1]).expect("allowed");
            assert_eq!(allowed().expect("one"), all[..1]);
        })
        .join()
        .expect("no panic");
    }
}
