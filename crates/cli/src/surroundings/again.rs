//! Finds a VM again that was in a network of its own: a container that was started again has another one.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use beamtune_attach::locate::Route;
use beamtune_attach::source::Finder;
use beamtune_host::discovery::{self, Vm};
use beamtune_host::error::HostError;
use beamtune_host::tree::LocalTree;

use super::{Epmd, route};
use crate::take::nanos;

/// A look passes through all processes of the host: 50 ms where there are tens of thousands. So the next one is as far away
/// as a look takes this many times, which costs a hundredth of a core.
const PAUSE_PER_LOOK: u32 = 100;
/// The longest such pause: so much of the VM's next life may be missed.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A VM that is looked for.
pub(super) struct Again {
    before: Vm,
    /// Whether another VM was there that could be taken for it.
    has_twin: bool,
    looks: Paced<Result<Route, String>>,
}

impl fmt::Debug for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Again").field(&self.before.identity).finish()
    }
}

impl Finder for Again {
    fn find(&self, last_heard: Instant) -> Result<Route, String> {
        self.looks.get(Instant::now, || self.look(last_heard))
    }
}

impl Again {
    pub(super) fn new(before: &Vm, has_twin: bool) -> Again {
        Again { before: before.clone(), has_twin, looks: Paced::default() }
    }

    fn look(&self, last_heard: Instant) -> Result<Route, String> {
        let (tree, gone_ns) = (LocalTree::default(), nanos(last_heard.elapsed()));
        let found = match self.has_twin {
            false => discovery::successor(&tree, &self.before, gone_ns, None),
            true => discovery::successor_of_twin(&tree, &self.before, gone_ns),
        };
        let vm = found.map_err(|error| self.lost(&error))?;
        let mut epmd = Epmd::of(&vm);
        epmd.ask();
        route(&vm, epmd.registration(&vm)).ok_or_else(|| format!("process {} is no node", vm.identity.pid))
    }

    fn lost(&self, error: &HostError) -> String {
        match (error, self.has_twin, &self.before.container) {
            (HostError::Ended { .. }, true, Some(container)) => format!(
                "{error}; since another VM of its name was there, only one in its container ({container}) is taken for it: \
                 name another one by its process id"
            ),
            (HostError::Ended { .. }, true, None) => format!(
                "{error}; since another VM of its name was there, which one goes on in its place cannot be told: name it by its \
                 process id"
            ),
            _ => error.to_string(),
        }
    }
}

/// The last answer to a question that is dear: until some time has passed it is not put again.
struct Paced<T>(Mutex<Option<(T, Instant)>>);

impl<T> Default for Paced<T> {
    fn default() -> Self {
        Paced(Mutex::default())
    }
}

impl<T: Clone> Paced<T> {
    fn get(&self, mut now: impl FnMut() -> Instant, ask: impl FnOnce() -> T) -> T {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = now();
        match &*last {
            Some((answer, due)) if begin < *due => answer.clone(),
            _ => {
                let answer = ask();
                let end = now();
                let pause = (PAUSE_PER_LOOK * (end - begin)).min(LONGEST_PAUSE);
                *last = Some((answer.clone(), end + pause));
                answer
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The looks that there are in a minute in which somebody wants one each half second, and each takes so long.
    fn looks_in_a_minute(took: Duration) -> u32 {
        let (paced, clock, looks) = (Paced::default(), Cell::new(Instant::now()), Cell::new(0));
        let end = clock.get() + Duration::from_secs(60);
        while clock.get() < end {
            let answer = paced.get(
                || clock.get(),
                || {
                    clock.set(clock.get() + took);
                    looks.set(looks.get() + 1);
                    looks.get()
                },
            );
            assert_eq!(answer, looks.get(), "the last one");
            clock.set(clock.get() + Duration::from_millis(500));
        }
        looks.get()
    }

    #[test]
    fn what_is_dear_is_looked_at_seldom_and_what_is_cheap_each_time() {
        assert_eq!(looks_in_a_minute(Duration::from_millis(1)), 120);
        // A hundredth of a core.
        let dear = looks_in_a_minute(Duration::from_millis(50));
        assert!((10..=12).contains(&dear), "{dear}");
        // But for the longest pause.
        let dearest = looks_in_a_minute(Duration::from_secs(2));
        assert!((5..=6).contains(&dearest), "{dearest}");
    }
}
