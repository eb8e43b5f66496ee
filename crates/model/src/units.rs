//! Units and kinds of measured values. Each series has exactly one of each, which never changes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Nanoseconds. Instants count from the start of the recording, on the recorder's monotonic clock.
pub type Nanos = i64;

/// One second in [`Nanos`].
pub const SECOND_NS: Nanos = 1_000_000_000;

/// Converts nanoseconds to seconds.
pub fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / SECOND_NS as f64
}

/// Converts a duration to nanoseconds.
pub fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

/// Converts nanoseconds to a duration; a negative value becomes zero.
pub fn duration(nanos: Nanos) -> Duration {
    Duration::from_nanos(nanos.max(0).unsigned_abs())
}

/// Rounds a time counter down to whole microseconds, or as close as its unit allows. Reading the threads of a VM takes about
/// 100 µs, so finer digits are noise, but would take most of the space in a recording.
pub fn round_to_microseconds(counter: i64, units_per_second: i64) -> i64 {
    counter - counter.rem_euclid((units_per_second / 1_000_000).max(1))
}

/// How a series behaves over time, which decides how two readings are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Never decreases while the VM (or the host) runs; the difference of two readings is what happened between them.
    Counter,
    /// A current value, valid at the instant of the reading.
    Gauge,
}

/// The unit of a series' raw values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A number of items: processes, messages, context switches, page faults.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
    /// The VM's `perf_counter` unit (msacc); [`crate::Facts::perf_counter_hz`] is its rate.
    PerfCounter,
    /// The VM's `native` time unit (scheduler wall time); only ratios are meaningful.
    NativeTime,
    /// Reductions: the VM's unit of work, roughly one function call each.
    Reductions,
    /// Words of the VM: 8 bytes on a 64-bit system.
    Words,
    /// Parts of a thousand.
    Permille,
    /// A share between 0 and 1 (derived values only).
    Ratio,
    /// Derived values: per second.
    PerSecond,
    /// Derived values: CPU cores; 1.0 is one core used all the time.
    Cores,
    /// Derived values: seconds.
    Seconds,
}

/// Generates `text`, `from_text`, `ALL` and `Display` for enums whose names are stored in files.
macro_rules! text_names {
    ($type:ty { $($variant:ident => $text:literal),+ $(,)? }) => {
        impl $type {
            /// The name in recordings and JSON; never changes once released.
            pub fn text(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// Parses a name, as the inverse of [`Self::text`]; `None` if this version does not know the name.
            pub fn from_text(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }

            /// All variants, in order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.text())
            }
        }
    };
}
pub(crate) use text_names;

text_names!(Kind { Counter => "counter", Gauge => "gauge" });
text_names!(Unit {
    Count => "count",
    Bytes => "bytes",
    Nanoseconds => "nanoseconds",
    PerfCounter => "perf_counter",
    NativeTime => "native_time",
    Reductions => "reductions",
    Words => "words",
    Permille => "permille",
    Ratio => "ratio",
    PerSecond => "per_second",
    Cores => "cores",
    Seconds => "seconds",
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counters_with_finer_units_are_rounded_down_to_microseconds() {
        let check = |counter, units_per_second, expect| {
            assert_eq!(round_to_microseconds(counter, units_per_second), expect);
        };
        check(1_234_567, SECOND_NS, 1_234_000);
        check(999, SECOND_NS, 0);
        check(5_201, 2_600_000_000, 5_200);
        check(1_234_567, 1_000_000, 1_234_567);
        check(1_234_567, 1_000, 1_234_567);
        check(-1, SECOND_NS, -1_000);
        check(7, 0, 7);
        check(7, -1, 7);
    }

    #[test]
    fn names_in_files_round_trip() {
        for unit in Unit::ALL {
            assert_eq!(Unit::from_text(unit.text()), Some(*unit));
        }
        for kind in Kind::ALL {
            assert_eq!(Kind::from_text(kind.text()), Some(*kind));
        }
        assert_eq!(Unit::from_text("furlongs"), None);
    }
}
