//! Estimates the offset between the wall clock of a node's host and ours, from round trips.

use std::collections::VecDeque;

use beamtune_model::units::{Nanos, SECOND_NS};

/// Window within which a shorter round trip gives a better estimate than a later one, since clocks drift by at most some 50 µs
/// per second.
const WINDOW_NS: Nanos = 60 * SECOND_NS;

/// Maximum number of round trips kept. A window contains fewer.
const MAX_TRIPS: usize = 600;

/// Estimates the offset from the latest round trips.
#[derive(Debug, Default)]
pub(crate) struct WallClock {
    trips: VecDeque<Trip>,
}

/// One round trip: a request and its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trip {
    /// When the request was sent, on the recorder's clock.
    pub sent: Nanos,
    /// When the answer had arrived and our wall clock had been read, on the recorder's clock.
    pub arrived: Nanos,
    /// Time that the node spent on the request before it read its wall clock and answered.
    pub worked: Nanos,
    /// Wall clock of the node's host when it answered, in nanoseconds since 1970.
    pub theirs: i64,
    /// Our wall clock when the answer had arrived, in nanoseconds since 1970.
    pub ours: i64,
}

/// Offset of the node's wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// The clock of the node's host minus ours.
    pub ahead: Nanos,
    /// Maximum error of the offset: half of the transit time, since its division between request and answer is unknown.
    pub error: Nanos,
}

impl Trip {
    fn ahead(&self) -> Ahead {
        let transit = self.arrived.saturating_sub(self.sent).saturating_sub(self.worked).max(0);
        let error = transit / 2;
        let ours = self.ours.saturating_sub(error);
        Ahead { ahead: self.theirs.saturating_sub(ours), error }
    }
}

impl Ahead {
    fn agrees_with(self, other: Ahead) -> bool {
        self.ahead.abs_diff(other.ahead) <= self.error.saturating_add(other.error).unsigned_abs()
    }
}

impl WallClock {
    /// Adds a round trip. Returns the estimate from the shortest round trip within the window.
    pub fn add(&mut self, trip: Trip) -> Ahead {
        let now = trip.ahead();
        // One of the clocks was set, so earlier measurements are invalid.
        if self.trips.iter().any(|before| !before.ahead().agrees_with(now)) {
            self.trips.clear();
        }
        self.trips.retain(|before| before.sent > trip.sent.saturating_sub(WINDOW_NS));
        if self.trips.len() >= MAX_TRIPS {
            self.trips.pop_front();
        }
        self.trips.push_back(trip);
        self.trips.iter().map(Trip::ahead).min_by_key(|ahead| ahead.error).unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;
    /// 2023.
    const WALL: i64 = 1_700_000_000_000 * MS;

    /// A round trip to a node whose clock is ahead by `ahead`; `there` and `back` are transit times.
    fn trip(sent: Nanos, there: Nanos, worked: Nanos, back: Nanos, ahead: Nanos) -> Trip {
        let arrived = sent + there + worked + back;
        Trip { sent, arrived, worked, theirs: WALL + arrived - back + ahead, ours: WALL + arrived }
    }

    #[test]
    fn true_offset_is_within_the_error_for_any_asymmetry() {
        for (there, back) in [(0, 100), (50, 50), (100, 0), (99, 1)] {
            let mut clock = WallClock::default();
            let found = clock.add(trip(7 * MS, there * MS, 30 * MS, back * MS, 3_200 * MS));
            assert_eq!(found.error, 50 * MS);
            assert!((found.ahead - 3_200 * MS).abs() <= found.error, "{found:?}");
        }
    }

    #[test]
    fn shortest_round_trip_of_the_last_minute_is_used() {
        let mut clock = WallClock::default();
        let second = |at: i64| at * 1_000 * MS;
        assert_eq!(clock.add(trip(second(0), 20 * MS, 0, 20 * MS, 0)).error, 20 * MS);
        assert_eq!(clock.add(trip(second(1), MS, 0, MS, 0)).error, MS);
        assert_eq!(clock.add(trip(second(60), 20 * MS, 0, 20 * MS, 0)).error, MS);
        assert_eq!(clock.add(trip(second(62), 20 * MS, 0, 20 * MS, 0)).error, 20 * MS);
    }

    #[test]
    fn clock_that_was_set_is_detected_immediately() {
        let mut clock = WallClock::default();
        clock.add(trip(0, MS, 0, MS, 0));
        let found = clock.add(trip(1_000 * MS, 20 * MS, 0, 20 * MS, -5_000 * MS));
        assert_eq!(found, Ahead { ahead: -5_000 * MS, error: 20 * MS });
    }

    #[test]
    fn extreme_times_do_not_panic() {
        let mut clock = WallClock::default();
        for value in [i64::MIN, -1, 0, i64::MAX] {
            for sent in [i64::MIN, 0, i64::MAX] {
                clock.add(Trip { sent, arrived: value, worked: value, theirs: value, ours: sent });
            }
        }
    }
}
