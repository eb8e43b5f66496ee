//! Windows: from two raw readings to what happened between them.
//!
//! This is the only place that subtracts counters. Everything that can make a difference meaningless
//! is known here: a VM that was restarted in between, a counter that somebody set back
//! (`msacc:reset/0`, `scheduler_wall_time` switched off and on), two readings of one instant.
//! A missing sample is no obstacle: the window is then longer, and says so by its length.

use crate::facts::Facts;
use crate::units::{Nanos, SECOND_NS, Unit};

/// One reading of one series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// The instant for which it stands, on the recorder's clock.
    pub t: Nanos,
    /// The life of the VM that it belongs to.
    pub incarnation: u32,
    /// The raw value.
    pub value: i64,
}

/// What a counter did between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// How much it grew; never negative.
    pub delta: i64,
    /// In what time; always positive.
    pub length: Nanos,
}

impl Step {
    /// Growth per second.
    pub fn per_second(self) -> f64 {
        self.delta as f64 * SECOND_NS as f64 / self.length as f64
    }

    /// Whether it grew by more than this per second.
    pub fn is_faster_than(self, per_second: f64) -> bool {
        self.delta as f64 * SECOND_NS as f64 > per_second * self.length as f64
    }
}

/// Why two readings of a counter say nothing together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// The VM was restarted in between.
    Restart,
    /// The counter went backwards: somebody reset it.
    Reset,
    /// No time passed between the two readings.
    NoTime,
}

/// The step of a counter from one reading to a later one.
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

/// A time that a counter holds, in seconds; `None` for units that are no time, or whose length the facts do not tell.
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
    fn a_counter_steps_or_says_why_not() {
        let check = |from, to, expect| assert_eq!(step(from, to), expect, "{from:?} → {to:?}");
        check(at(0, 0, 10), at(SECOND_NS, 0, 25), Ok(Step { delta: 15, length: SECOND_NS }));
        check(at(0, 0, 10), at(3 * SECOND_NS, 0, 10), Ok(Step { delta: 0, length: 3 * SECOND_NS }));
        check(at(0, 0, 10), at(SECOND_NS, 1, 25), Err(Break::Restart));
        check(at(0, 0, 10), at(SECOND_NS, 0, 9), Err(Break::Reset));
        check(at(5, 0, 10), at(5, 0, 11), Err(Break::NoTime));
        check(at(5, 0, 10), at(4, 0, 11), Err(Break::NoTime));
        // What a hostile node may send must not overflow.
        check(at(0, 0, i64::MIN), at(1, 0, i64::MAX), Err(Break::Reset));
    }

    #[test]
    fn rates_are_per_second_whatever_the_window() {
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
