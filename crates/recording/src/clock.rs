//! The system clock, and requests to stop a recorder.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use beamtune_model::units::{SECOND_NS, nanos};
use beamtune_model::{Clock, Nanos};

/// A request to stop a recorder; clones share the same request.
///
/// Its methods take a lock, so they must not be called from a signal handler. Let a thread wait for the signal and call
/// [`Stop::request`].
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// Requests the stop. The recorder wakes up, takes a last sample, and ends.
    pub fn request(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    /// Whether the stop was requested.
    pub fn is_requested(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until `time` has passed or the stop is requested.
    pub fn wait(&self, time: Duration) {
        let requested = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.0.1.wait_timeout_while(requested, time, |requested| !*requested));
    }
}

/// `CLOCK_MONOTONIC`, counted from the creation of the clock or continued from an earlier instant.
#[derive(Debug)]
pub struct SystemClock {
    made: Instant,
    begin: Nanos,
    stop: Stop,
}

impl SystemClock {
    /// Creates a clock that starts at zero, and whose sleep ends once `stop` is requested.
    pub fn new(stop: Stop) -> Self {
        SystemClock::from(0, stop)
    }

    /// Creates a clock that starts at `begin`, to continue an earlier recording.
    pub fn from(begin: Nanos, stop: Stop) -> Self {
        SystemClock { made: Instant::now(), begin, stop }
    }

    /// Wall-clock time now, nanoseconds since 1970.
    pub fn wall_now() -> i64 {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, nanos)
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Nanos {
        self.begin.saturating_add(nanos(self.made.elapsed()))
    }

    fn wall(&self) -> i64 {
        SystemClock::wall_now()
    }

    fn cpu(&self) -> Nanos {
        let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        spent.tv_sec.saturating_mul(SECOND_NS).saturating_add(spent.tv_nsec)
    }

    fn sleep_until(&self, until: Nanos) {
        let left = until.saturating_sub(self.now());
        if let Ok(left @ 1..) = u64::try_from(left) {
            self.stop.wait(Duration::from_nanos(left));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamtune_model::units::SECOND_NS;

    #[test]
    fn sleep_does_not_end_early() {
        let clock = SystemClock::new(Stop::default());
        let until = clock.now() + SECOND_NS / 100;
        clock.sleep_until(until);
        assert!(clock.now() >= until);
        let before = clock.now();
        clock.sleep_until(before - 3_600 * SECOND_NS);
        assert!(clock.now() - before < 600 * SECOND_NS, "no sleep until an instant in the past");
    }

    #[test]
    fn sleep_ends_once_a_stop_is_requested() {
        let stop = Stop::default();
        let clock = SystemClock::new(stop.clone());
        let sleeper = std::thread::spawn(move || {
            clock.sleep_until(3_600 * SECOND_NS);
            clock.now()
        });
        stop.request();
        assert!(stop.is_requested());
        assert!(sleeper.join().expect("no panic") < 600 * SECOND_NS);
    }
}
