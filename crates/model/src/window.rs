//! Windows: the interval between two consecutive readings of a counter, and its growth in it.
//!
//! Counters are subtracted only in this module. It handles everything that makes a difference meaningless: a restart of the node, a
//! counter reset, and two readings at the same instant. (`msacc:reset/0` resets counters, as does switching `scheduler_wall_time` off and
//! on.) A missing sample only makes the window longer.

use crate::facts::Facts;
use crate::units::{Nanos, SECOND_NS, Unit};

/// One reading of one series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Instant of the value, on the recorder's clock.
    pub t: Nanos,
    /// Number of the incarnation.
    pub incarnation: u32,
    /// The raw value.
    pub value: i64,
}

/// Growth of a counter between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Growth; never negative.
    pub delta: i64,
    /// Time between the readings; always positive.
    pub length: Nanos,
}

impl Step {
    /// Growth per second.
    pub fn per_second(self) -> f64 {
        self.delta as f64 * SECOND_NS as f64 / self.length as f64
    }

    /// Whether the growth exceeds this rate.
    pub fn is_faster_than(self, per_second: f64) -> bool {
        self.delta as f64 * SECOND_NS as f64 > per_second * self.length as f64
    }
}

/// Why the difference of two readings is meaningless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// The node was restarted between the two readings.
    Restart,
    /// The counter decreased because it was reset.
    Reset,
    /// No time passed between the two readings.
    NoTime,
}

/// Returns the growth of a counter from one reading to a later one.
pub fn step(from: Point, to: Point) -> Result<Step, Break> {
    if from.incarnation != to.incarnation {
        return Err(Break::Restart);
    }
    if to.t <= from.t {
        return Err(Break::NoTime);
    }
    match to.value.checked_sub(from.value) {
        Some(delta) if delta >= 0 => Ok(Step { delta, length: to.t - from.t }),
        _ => Err(Break::Reset),
    }
}

/// Converts a time to seconds; `None` if the unit is not a unit of time, or if the facts do not contain its length.
pub fn seconds(unit: Unit, value: f64, facts: &Facts) -> Option<f64> {
    match unit {
        Unit::Nanoseconds => Some(value / SECOND_NS as f64),
        Unit::PerfCounter => Some(value / facts.perf_counter_hz()?),
        Unit::NativeTime => Some(value / facts.native_time_hz()?),
        Unit::Seconds => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(t: Nanos, incarnation: u32, value: i64) -> Point {
        Point { t, incarnation, value }
    }

    #[test]
    fn a_meaningless_difference_is_an_error() {
        let check = |from, to, expect| assert_eq!(step(from, to), expect, "{from:?} → {to:?}");
        check(at(0, 0, 10), at(SECOND_NS, 0, 25), Ok(Step { delta: 15, length: SECOND_NS }));
        check(at(0, 0, 10), at(3 * SECOND_NS, 0, 10), Ok(Step { delta: 0, length: 3 * SECOND_NS }));
        check(at(0, 0, 10), at(SECOND_NS, 1, 25), Err(Break::Restart));
        check(at(0, 0, 10), at(SECOND_NS, 0, 9), Err(Break::Reset));
        check(at(5, 0, 10), at(5, 0, 11), Err(Break::NoTime));
        check(at(5, 0, 10), at(4, 0, 11), Err(Break::NoTime));
        // Values of a hostile node must not overflow.
        check(at(0, 0, i64::MIN), at(1, 0, i64::MAX), Err(Break::Reset));
    }

    #[test]
    fn rates_are_per_second_for_windows_of_any_length() {
        let step = step(at(0, 0, 0), at(SECOND_NS / 2, 0, 100));
        assert_eq!(step.map(Step::per_second), Ok(200.0));
    }

    #[test]
    fn perf_counter_time_needs_its_unit() {
        let mut facts = Facts::default();
        assert_eq!(seconds(Unit::PerfCounter, 1e6, &facts), None);
        facts.set(crate::facts::PERF_COUNTER_HZ, "1000000");
        assert_eq!(seconds(Unit::PerfCounter, 2e6, &facts), Some(2.0));
        assert_eq!(seconds(Unit::Bytes, 2e6, &facts), None);
    }
}
