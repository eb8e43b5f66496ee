//! How a kind of memory has moved over a period.

use crate::units::Nanos;

/// One kind of memory over a period; sizes in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Movement {
    /// What moves, for a person: `resident`, `binary`, `binary_alloc: carriers`.
    pub what: String,
    /// The first reading.
    pub first: f64,
    /// The last one.
    pub last: f64,
    /// The least and the most.
    pub range: (f64, f64),
    /// Bytes per hour, and the ends of the interval at 95 % confidence; `None` for too few readings.
    pub per_hour: Option<(f64, f64, f64)>,
    /// True where the slope differs from none.
    pub is_sure: bool,
    /// A moment at which its level changed.
    pub step: Option<Step>,
    /// What comes back each day.
    pub daily: Option<Daily>,
}

/// A level that changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// When, on the recording's clock.
    pub at: Nanos,
    /// The level before.
    pub before: f64,
    /// The level after.
    pub after: f64,
    /// What else happened then, if something was recorded: kind, subject.
    pub with: Option<String>,
}

/// What comes back each day.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Daily {
    /// From the lowest hour to the highest.
    pub swing: f64,
    /// The highest hour, 0 to 23, in universal time.
    pub peak_hour: u32,
    /// Share of the ups and downs that the hours explain, 0 to 1.
    pub share: f64,
}
