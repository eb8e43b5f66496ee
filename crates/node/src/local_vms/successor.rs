//! Finds a VM again after it restarted in another network namespace, for example with its container.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use beamtune_attach::locate::Route;
use beamtune_attach::source::Finder;
use beamtune_host::discovery::{self, Vm};
use beamtune_host::error::HostError;
use beamtune_host::tree::LocalTree;
use beamtune_model::units::nanos;

use super::{Epmd, route};

/// A search reads all processes of the host, which takes 50 ms with tens of thousands. The pause after it is this many times as
/// long, so that searches use 1 % of a core.
const PAUSE_PER_SEARCH: u32 = 100;
/// Longest pause. The restarted VM may remain unrecorded for this long.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Searches for the successor of a VM.
pub(super) struct SuccessorFinder {
    before: Vm,
    /// True if there was another VM that could be mistaken for this one.
    has_twin: bool,
    last_search: RateLimited<Result<Route, String>>,
}

impl fmt::Debug for SuccessorFinder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SuccessorFinder").field(&self.before.identity).finish()
    }
}

impl Finder for SuccessorFinder {
    fn find(&self, last_heard: Instant) -> Result<Route, String> {
        self.last_search.get(Instant::now, || self.search(last_heard))
    }
}

impl SuccessorFinder {
    pub(super) fn new(before: &Vm, has_twin: bool) -> SuccessorFinder {
        SuccessorFinder { before: before.clone(), has_twin, last_search: RateLimited::default() }
    }

    fn search(&self, last_heard: Instant) -> Result<Route, String> {
        let (tree, gone_ns) = (LocalTree::default(), nanos(last_heard.elapsed()));
        let found = match self.has_twin {
            false => discovery::successor(&tree, &self.before, gone_ns, None),
            true => discovery::successor_in_same_container(&tree, &self.before, gone_ns),
        };
        let vm = found.map_err(|error| self.explain(&error))?;
        let mut epmd = Epmd::of(&vm);
        epmd.query();
        route(&vm, epmd.registration(&vm)).ok_or_else(|| format!("process {} is not a node", vm.identity.pid))
    }

    fn explain(&self, error: &HostError) -> String {
        match (error, self.has_twin, &self.before.container) {
            (HostError::Ended { .. }, true, Some(container)) => format!(
                "{error}; another VM had the same name, so only one in container {container} counts as its successor: name the VM \
                 by its process id"
            ),
            (HostError::Ended { .. }, true, None) => format!(
                "{error}; another VM had the same name, so its successor is unknown: name the VM by its process id"
            ),
            _ => error.to_string(),
        }
    }
}

/// Caches the last result of an expensive operation, until a pause has passed.
struct RateLimited<T>(Mutex<Option<(T, Instant)>>);

impl<T> Default for RateLimited<T> {
    fn default() -> Self {
        RateLimited(Mutex::default())
    }
}

impl<T: Clone> RateLimited<T> {
    fn get(&self, mut now: impl FnMut() -> Instant, run: impl FnOnce() -> T) -> T {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = now();
        match &*last {
            Some((result, due)) if begin < *due => result.clone(),
            _ => {
                let result = run();
                let end = now();
                let pause = (PAUSE_PER_SEARCH * (end - begin)).min(MAX_PAUSE);
                *last = Some((result.clone(), end + pause));
                result
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Counts the searches in one minute if each takes `took` and one is requested every 500 ms.
    fn searches_per_minute(took: Duration) -> u32 {
        let (limited, clock, searches) = (RateLimited::default(), Cell::new(Instant::now()), Cell::new(0));
        let end = clock.get() + Duration::from_secs(60);
        while clock.get() < end {
            let result = limited.get(
                || clock.get(),
                || {
                    clock.set(clock.get() + took);
                    searches.set(searches.get() + 1);
                    searches.get()
                },
            );
            assert_eq!(result, searches.get());
            clock.set(clock.get() + Duration::from_millis(500));
        }
        searches.get()
    }

    #[test]
    fn expensive_searches_are_limited_and_cheap_ones_are_not() {
        assert_eq!(searches_per_minute(Duration::from_millis(1)), 120);
        // 1 % of a core.
        let expensive = searches_per_minute(Duration::from_millis(50));
        assert!((10..=12).contains(&expensive), "{expensive}");
        // The longest pause is 10 s.
        let limited = searches_per_minute(Duration::from_secs(2));
        assert!((5..=6).contains(&limited), "{limited}");
    }
}
