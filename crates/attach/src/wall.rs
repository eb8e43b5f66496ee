//! How far the wall clock of a node's host is from ours, from what it showed while an answer was on its way.

use std::collections::VecDeque;

use beamtune_model::units::{Nanos, SECOND_NS};

/// A shorter round trip tells the clocks better than a later one, as long as neither has drifted: crystals do by some
/// 50 µs a second at most.
const WINDOW_NS: Nanos = 60 * SECOND_NS;

/// More samples than are taken in the window; without bound none is kept.
const MOST_TRIPS: usize = 600;

/// The last round trips.
#[derive(Debug, Default)]
pub(crate) struct WallClock {
    trips: VecDeque<Trip>,
}

/// One question and its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trip {
    /// When it was asked, on the recorder's clock.
    pub sent: Nanos,
    /// When the answer was there, and our wall clock had been looked at.
    pub arrived: Nanos,
    /// How long the node had been at it before it looked at its clock and answered.
    pub worked: Nanos,
    /// The wall clock of the node's host then, nanoseconds since 1970.
    pub theirs: i64,
    /// Ours when the answer had arrived.
    pub ours: i64,
}

/// What is known of the node's wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// Theirs minus ours.
    pub ahead: Nanos,
    /// By how much that may be wrong: the answer was on its way for some part of the round trip, and which one is not
    /// known.
    pub error: Nanos,
}

impl Trip {
    fn ahead(&self) -> Ahead {
        let on_the_way = self.arrived.saturating_sub(self.sent).saturating_sub(self.worked).max(0);
        let error = on_the_way / 2;
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
    /// Adds a round trip, and gives what the shortest of those within the window says.
    pub fn add(&mut self, trip: Trip) -> Ahead {
        let now = trip.ahead();
        // Somebody has set one of the clocks: what was measured before is of no use.
        if self.trips.iter().any(|before| !before.ahead().agrees_with(now)) {
            self.trips.clear();
        }
        self.trips.retain(|before| before.sent > trip.sent.saturating_sub(WINDOW_NS));
        if self.trips.len() >= MOST_TRIPS {
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

    /// A node whose clock is ahead by `ahead`: `there` and `back` are how long the messages take.
    fn trip(sent: Nanos, there: Nanos, worked: Nanos, back: Nanos, ahead: Nanos) -> Trip {
        let arrived = sent + there + worked + back;
        Trip { sent, arrived, worked, theirs: WALL + arrived - back + ahead, ours: WALL + arrived }
    }

    #[test]
    fn the_difference_lies_within_its_error_whichever_way_takes_longer() {
        for (there, back) in [(0, 100), (50, 50), (100, 0), (99, 1)] {
            let mut clock = WallClock::default();
            let found = clock.add(trip(7 * MS, there * MS, 30 * MS, back * MS, 3_200 * MS));
            assert_eq!(found.error, 50 * MS);
            assert!((found.ahead - 3_200 * MS).abs() <= found.error, "{found:?}");
        }
    }

    #[test]
    fn the_shortest_round_trip_of_the_last_minute_counts() {
        let mut clock = WallClock::default();
        let second = |at: i64| at * 1_000 * MS;
        assert_eq!(clock.add(trip(second(0), 20 * MS, 0, 20 * MS, 0)).error, 20 * MS);
        assert_eq!(clock.add(trip(second(1), MS, 0, MS, 0)).error, MS);
        assert_eq!(clock.add(trip(second(60), 20 * MS, 0, 20 * MS, 0)).error, MS);
        assert_eq!(clock.add(trip(second(62), 20 * MS, 0, 20 * MS, 0)).error, 20 * MS);
    }

    #[test]
    fn a_clock_that_was_set_is_seen_at_once() {
        let mut clock = WallClock::default();
        clock.add(trip(0, MS, 0, MS, 0));
        let found = clock.add(trip(1_000 * MS, 20 * MS, 0, 20 * MS, -5_000 * MS));
        assert_eq!(found, Ahead { ahead: -5_000 * MS, error: 20 * MS });
    }

    #[test]
    fn absurd_times_give_a_number_and_no_panic() {
        let mut clock = WallClock::default();
        for value in [i64::MIN, -1, 0, i64::MAX] {
            for sent in [i64::MIN, 0, i64::MAX] {
                clock.add(Trip { sent, arrived: value, worked: value, theirs: value, ours: sent });
            }
        }
    }
}
