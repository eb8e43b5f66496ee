//! Units and kinds of measured values. Every series has exactly one of each, for life.

use serde::{Deserialize, Serialize};

/// Nanoseconds. Instants count from the start of the recording, on the recorder's monotonic clock.
pub type Nanos = i64;

/// One second in [`Nanos`].
pub const SECOND_NS: Nanos = 1_000_000_000;

/// A time in seconds.
pub fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / SECOND_NS as f64
}

/// A counter of time, with so many units in a second, rounded down to a whole number of microseconds (as nearly as the
/// unit allows). Reading a VM's threads takes some 100 µs, so what lies below is noise, and most of what a recording of it
/// would hold.
pub fn whole_microseconds(counter: i64, units_per_second: i64) -> i64 {
    counter - counter.rem_euclid((units_per_second / 1_000_000).max(1))
}

/// How a series behaves over time, and so what two readings of it mean together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Only grows while the VM (or the host) runs; the difference of two readings is what happened between.
    Counter,
    /// Stands for itself at the instant of reading.
    Gauge,
}

/// The unit of a series' raw values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Things: processes, messages, switches, faults.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
    /// The VM's `perf_counter` unit (msacc); [`crate::Facts::perf_counter_hz`] says how many make a second.
    PerfCounter,
    /// The VM's `native` time unit (scheduler wall time); only ratios of it are meant.
    NativeTime,
    /// Reductions: the VM's measure of work done, roughly one function call each.
    Reductions,
    /// Words of the VM: 8 bytes on a 64-bit machine.
    Words,
    /// Parts of a thousand.
    Permille,
    /// A share between 0 and 1 (derived values only).
    Ratio,
    /// Of derived values: per second of the thing named.
    PerSecond,
    /// Of derived values: processor cores, where 1.0 is one core used all the time.
    Cores,
    /// Of derived values: seconds.
    Seconds,
}

/// Writes the name that [`text`](Kind::text) gives and reads it back, for types whose names stand in files.
macro_rules! text_names {
    ($type:ty { $($variant:ident => $text:literal),+ $(,)? }) => {
        impl $type {
            /// The name under which this stands in recordings and JSON; never changed once released.
            pub fn text(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// The inverse of [`Self::text`]; `None` for a name that this version does not know.
            pub fn from_text(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }

            /// All variants, in the order of their declaration.
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
    fn a_counter_is_rounded_down_to_microseconds_where_its_unit_is_finer() {
        let check = |counter, units_per_second, expect| {
            assert_eq!(whole_microseconds(counter, units_per_second), expect);
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
    fn names_in_files_read_back_as_what_they_were() {
        for unit in Unit::ALL {
            assert_eq!(Unit::from_text(unit.text()), Some(*unit));
        }
        for kind in Kind::ALL {
            assert_eq!(Kind::from_text(kind.text()), Some(*kind));
        }
        assert_eq!(Unit::from_text("furlongs"), None);
    }
}
