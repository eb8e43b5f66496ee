//! Runs tasks that start VMs, in parallel.

use std::sync::{Mutex, PoisonError};

use anyhow::Result;

/// Number of parallel tasks: the CPUs of the smallest host that the checks are designed for.
const MAX_PARALLEL: usize = 2;

/// Runs the tasks and returns their results, in the order of the tasks.
///
/// # Errors
/// The error of a task that failed; no further task is started.
pub fn run<T: Send, R: Send>(tasks: Vec<T>, work: impl Fn(T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let tasks = Mutex::new(tasks.into_iter().enumerate());
    // This releases the lock before the work starts.
    let next = || tasks.lock().unwrap_or_else(PoisonError::into_inner).next();
    let worker = || {
        let mut results = Vec::new();
        while let Some((index, task)) = next() {
            match work(task) {
                Ok(result) => results.push((index, result)),
                Err(error) => {
                    while next().is_some() {}
                    return Err(error);
                }
            }
        }
        Ok(results)
    };
    let mut results = std::thread::scope(|scope| -> Result<Vec<(usize, R)>> {
        let threads: Vec<_> = (0..MAX_PARALLEL).map(|_| scope.spawn(worker)).collect();
        let mut results = Vec::new();
        for thread in threads {
            match thread.join() {
                Ok(of_thread) => results.extend(of_thread?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(results)
    })?;
    results.sort_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_tasks() {
        let tasks: Vec<usize> = (0..1000).collect();
        let doubled = run(tasks.clone(), |task| Ok(2 * task)).expect("results");
        assert!(doubled.iter().zip(&tasks).all(|(result, task)| *result == 2 * task));
        assert_eq!(doubled.len(), tasks.len());
        assert!(run(Vec::<usize>::new(), Ok).expect("no results").is_empty());
    }

    #[test]
    fn no_task_is_started_after_a_failure() {
        let started = AtomicUsize::new(0);
        let failed = run((0..1000).collect(), |_: usize| -> Result<()> {
            started.fetch_add(1, Ordering::Relaxed);
            anyhow::bail!("no VM")
        });
        assert_eq!(failed.expect_err("a failure").to_string(), "no VM");
        assert!(started.into_inner() <= MAX_PARALLEL);
    }
}
