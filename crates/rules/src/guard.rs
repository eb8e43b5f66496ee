//! Runs jobs so that a job that panics or never ends does not affect the others.
//!
//! Rust cannot end a thread from outside, so the jobs run one after the other on a worker thread that owns their data. A late job keeps its
//! thread until the program exits, and a new worker continues with the next job.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread::Builder;
use std::time::Duration;

/// Time limit of a job, in seconds (judgement: all rules together take less than 5 s for a day's recording, so a slower rule is faulty).
pub(crate) const MAX_SECONDS: u64 = 10;

/// Why a job returned no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It panicked.
    Panicked,
    /// It did not finish within this time.
    Late(Duration),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Panicked => f.write_str("failed"),
            Fault::Late(limit) => write!(f, "did not finish in {} s", limit.as_secs_f64()),
        }
    }
}

/// Applies `work` to each item, and returns the results in the order of the items.
pub(crate) fn run<I, T, F>(items: Vec<I>, limit: Duration, work: F) -> Vec<Result<T, Fault>>
where
    I: Send + Sync + 'static,
    T: Send + 'static,
    F: Fn(&I) -> T + Send + Sync + 'static,
{
    let count = items.len();
    let shared = Arc::new((items, work));
    let mut results = Vec::with_capacity(count);
    while results.len() < count {
        let (sender, done) = mpsc::channel();
        let (begun, shared) = (results.len(), Arc::clone(&shared));
        let worker = move || {
            let (items, work) = &*shared;
            for item in items.iter().skip(begun) {
                let result = catch_unwind(AssertUnwindSafe(|| work(item))).map_err(|_| Fault::Panicked);
                if sender.send(result).is_err() {
                    // Too late: another worker has taken over.
                    break;
                }
            }
        };
        // If no thread can be created (process limit), the jobs run here without a deadline.
        if Builder::new().name("rules".to_owned()).spawn(worker.clone()).is_err() {
            worker();
        }
        while results.len() < count {
            match done.recv_timeout(limit) {
                Ok(result) => results.push(result),
                Err(_) => {
                    results.push(Err(Fault::Late(limit)));
                    break;
                }
            }
        }
    }
    results
}
