//! Real time, and being asked to stop.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use beamtune_model::units::SECOND_NS;
use beamtune_model::{Clock, Nanos};

/// Asks a recorder to end; clones ask the same one.
///
/// It takes a lock, so a signal handler must not call it: let a thread wait for the signal and call it from there.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// Asks. The recorder wakes up, takes a last sample, and ends.
    pub fn request(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    /// True once it was asked.
    pub fn is_requested(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns after `time`, or once it was asked.
    pub fn wait(&self, time: Duration) {
        let asked = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.0.1.wait_timeout_while(asked, time, |asked| !*asked));
    }
}

/// `CLOCK_MONOTONIC`, counted from when it was made, or on from an instant.
#[derive(Debug)]
pub struct SystemClock {
    made: Instant,
    begin: Nanos,
    stop: Stop,
}

impl SystemClock {
    /// A clock whose sleep ends when `stop` is requested.
    pub fn new(stop: Stop) -> Self {
        SystemClock::from(0, stop)
    }

    /// The same for a clock that shows `begin` now, because it goes on with an earlier recording.
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
        assert!(clock.now() - before < 600 * SECOND_NS, "an instant that has passed is not waited for");
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
