//! Change of one kind of memory over a period.

use crate::units::Nanos;

/// One kind of memory over a period; sizes in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Movement {
    /// Name for output: `resident`, `binary`, `binary_alloc: carriers`.
    pub what: String,
    /// The first reading.
    pub first: f64,
    /// The last reading.
    pub last: f64,
    /// Minimum and maximum.
    pub range: (f64, f64),
    /// Growth in bytes per hour with its 95 % confidence interval; `None` if there are too few readings.
    pub per_hour: Option<(f64, f64, f64)>,
    /// Whether the growth differs significantly from zero.
    pub is_significant: bool,
    /// A sudden change of the level, if any.
    pub step: Option<LevelChange>,
    /// A daily pattern, if any.
    pub daily: Option<Daily>,
}

/// A sudden change of the level.
#[derive(Debug, Clone, PartialEq)]
pub struct LevelChange {
    /// Time on the recording's clock.
    pub at: Nanos,
    /// The level before.
    pub before: f64,
    /// The level after.
    pub after: f64,
    /// Kind and subject of an event recorded at the same time, if any.
    pub with: Option<String>,
}

/// A daily pattern.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Daily {
    /// Difference between the means of the highest and the lowest hour of the day.
    pub swing: f64,
    /// The highest hour, 0 to 23, UTC.
    pub peak_hour: u32,
    /// Share of the variance that is explained by the hour of the day, 0 to 1.
    pub share: f64,
}
