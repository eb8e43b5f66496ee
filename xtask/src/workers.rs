//! Runs tasks that start VMs, a few at a time.

use std::sync::{Mutex, PoisonError};

use anyhow::Result;

/// Tasks at a time: as many as the smallest machine has processors, for which the time is planned.
const AT_A_TIME: usize = 2;

/// The result of each task, in the order of the tasks.
///
/// # Errors
/// That of a task that failed; no further one is begun then.
pub fn run<T: Send, R: Send>(tasks: Vec<T>, work: impl Fn(T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let tasks = Mutex::new(tasks.into_iter().enumerate());
    // The lock must be free again before the work begins.
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
        let threads: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(worker)).collect();
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
    fn results_stand_in_the_order_of_the_tasks() {
        let tasks: Vec<usize> = (0..1000).collect();
        let doubled = run(tasks.clone(), |task| Ok(2 * task)).expect("results");
        assert!(doubled.iter().zip(&tasks).all(|(result, task)| *result == 2 * task));
        assert_eq!(doubled.len(), tasks.len());
        assert!(run(Vec::<usize>::new(), Ok).expect("no results").is_empty());
    }

    #[test]
    fn nothing_is_begun_after_a_failure() {
        let begun = AtomicUsize::new(0);
        let failed = run((0..1000).collect(), |_: usize| -> Result<()> {
            begun.fetch_add(1, Ordering::Relaxed);
            anyhow::bail!("no VM")
        });
        assert_eq!(failed.expect_err("a failure").to_string(), "no VM");
        assert!(begun.into_inner() <= AT_A_TIME);
    }
}
