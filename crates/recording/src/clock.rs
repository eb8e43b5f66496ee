//! The system clock, and requests to stop.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use beamtune_model::units::SECOND_NS;
use beamtune_model::{Clock, Nanos};

/// A request to stop a recorder; clones share it.
///
/// It takes a lock, so a signal handler must not call it: wait for the signal in a thread and call it from there.
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

    /// Returns after `time`, or once the stop is requested.
    pub fn wait(&self, time: Duration) {
        let requested = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.0.1.wait_timeout_while(requested, time, |requested| !*requested));
    }
}

/// `CLOCK_MONOTONIC`, counted from the clock's creation, or continued from an earlier instant.
#[derive(Debug)]
pub struct SystemClock {
    made: Instant,
    begin: Nanos,
    stop: Stop,
}

impl SystemClock {
    /// A clock at zero, whose sleep ends once `stop` is requested.
    pub fn new(stop: Stop) -> Self {
        SystemClock::from(0, stop)
    }

    /// A clock that shows `begin` now, to continue an earlier recording.
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

fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamtune_model::units::SECOND_NS;

    #[test]
    fn sleep_ends_on_time_and_not_before() {
        let clock = SystemClock::new(Stop::default());
        let until = clock.now() + SECOND_NS / 100;
        clock.sleep_until(until);
        assert!(clock.now() >= until);
        let before = clock.now();
        clock.sleep_until(before - 3_600 * SECOND_NS);
        assert!(clock.now() - before < 600 * SECOND_NS, "an instant in the past does not sleep");
    }

    #[test]
    fn a_request_to_stop_ends_the_sleep() {
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
