//! Studies: the compared settings, the trials, and their results.
//!
//! The next trial depends only on the question of a study and on its completed trials, and a [`StudyStore`] keeps nothing else.
//! So a study that was interrupted continues as if it had not been.

mod tuning;
mod verdict;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::{Unit, text_names};
pub use tuning::{
    AdvisedLevel, FatalLevels, Finalist, Knob, LevelResult, PartVerdict, SettingEffect, SettingPart, Tuning,
    TuningOutcome, TuningVerdict,
};
pub use verdict::{Answer, GuardVerdict, Margin, QuantityEffect, Question, Ratio, Verdict};

/// A setting under comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// Name: `A`, `B`, `default`.
    pub name: String,
    /// Emulator flags added to those of the target, one word per element.
    pub flags: Vec<String>,
    /// Environment variables added.
    pub environment: BTreeMap<String, String>,
}

impl Arm {
    /// Flags and variables as text for output, or `unchanged` if the setting changes nothing.
    pub fn describe(&self) -> String {
        let variables = self.environment.iter().map(|(name, value)| format!("{name}={value}"));
        let words: Vec<String> = variables.chain(self.flags.iter().cloned()).collect();
        if words.is_empty() { "unchanged".to_owned() } else { words.join(" ") }
    }
}

/// Part of a study that a trial belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// A/A test: compares a setting with itself, to check that the method reports no difference between equal settings.
    Same,
    /// A/B test: compares two settings.
    Pair,
    /// Searches among many settings for those that may help.
    Search,
    /// Compares the best settings of a search with the unchanged target.
    Confirm,
    /// Compares a setting with the same setting without one of its parts.
    BackOut,
}

text_names!(Phase {
    Same => "same",
    Pair => "pair",
    Search => "search",
    Confirm => "confirm",
    BackOut => "back_out",
});

/// A trial to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialOrder {
    /// Part of the study.
    pub phase: Phase,
    /// Number of the block, unique in the study. Trials of one block are compared with each other.
    pub block: u32,
    /// Position among the settings that the block compares; distinguishes equal settings.
    pub label: u32,
    /// The setting.
    pub arm: Arm,
    /// In a search: the level of each knob. Empty otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub point: Vec<usize>,
}

/// A completed trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The setting that was run, and its place in the study.
    pub order: TrialOrder,
    /// Start, in seconds since 1970.
    pub began_unix_s: f64,
    /// Duration from the start of the target until its end.
    pub took_s: f64,
    /// Outcome.
    pub outcome: TrialOutcome,
    /// Remarks that do not affect the outcome.
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// Outcome of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TrialOutcome {
    /// The trial is valid.
    Valid {
        /// Measured values.
        measures: Measures,
    },
    /// Something other than the setting affected the measurement.
    Invalid {
        /// At least one reason.
        reasons: Vec<Invalid>,
        /// Measured values.
        measures: Measures,
    },
    /// The target did not start, did not accept the setting, or did not survive the trial. This is a result of the setting.
    Failed {
        /// Reason as text.
        #[serde(rename = "why")]
        reason: String,
    },
}

/// Why a trial is invalid. This is decided without knowledge of the setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Invalid {
    /// Kind of reason.
    pub kind: InvalidKind,
    /// Reason as text, with numbers.
    pub why: String,
}

/// Kinds of reasons why a trial is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InvalidKind {
    /// Other processes used the host.
    Interference,
    /// The load generator was the bottleneck.
    GeneratorBound,
    /// The target did not reach a steady state.
    NotSteady,
    /// The host was suspended, or its clock was set.
    Clock,
    /// Data needed to decide whether the trial is valid are missing.
    NotMeasured,
}

text_names!(InvalidKind {
    Interference => "interference",
    GeneratorBound => "generator_bound",
    NotSteady => "not_steady",
    Clock => "clock",
    NotMeasured => "not_measured",
});

/// Values measured in a trial, keyed by names of [`QUANTITIES`]. A suffix after a slash denotes a part (`cpu-per-request/scheduler`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Measures(BTreeMap<String, f64>);

impl Measures {
    /// Sets a value; ignores values that are not finite.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        if value.is_finite() {
            self.0.insert(name.into(), value);
        }
    }

    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// All values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

/// A quantity that trials measure and verdicts compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantity {
    /// Name on the command line.
    pub name: &'static str,
    /// Description.
    pub what: &'static str,
    /// Unit.
    pub unit: Unit,
    /// Whether larger values are better.
    pub more_is_better: bool,
}

/// Declares quantities as constants and lists them in [`QUANTITIES`].
macro_rules! quantities {
    ($($const:ident = $name:literal, $unit:ident, $more:literal, $what:literal;)+) => {
        $(#[doc = $what] pub const $const: Quantity = Quantity { name: $name, what: $what, unit: Unit::$unit, more_is_better: $more };)+
        /// All quantities, in display order.
        pub const QUANTITIES: &[Quantity] = &[$($const),+];
    };
}

quantities! {
    CPU_PER_REQUEST = "cpu-per-request", Nanoseconds, false, "CPU time of the VM per correct response.";
    CPU_TIME = "cpu-time", Nanoseconds, false, "CPU time of a whole run.";
    DURATION = "duration", Nanoseconds, false, "Duration of a run.";
    CPU = "cpu", Cores, false, "CPU use of the VM.";
    THROUGHPUT = "throughput", PerSecond, true, "Correct responses per second.";
    P50 = "p50", Nanoseconds, false, "Median response time, measured from the scheduled time of the request.";
    P90 = "p90", Nanoseconds, false, "90th percentile of the response time.";
    P99 = "p99", Nanoseconds, false, "99th percentile of the response time.";
    P999 = "p99.9", Nanoseconds, false, "99.9th percentile of the response time.";
    ERRORS = "errors", Ratio, false, "Share of requests that failed.";
    RSS = "rss", Bytes, false, "Resident memory of the VM, mean.";
    RSS_PEAK = "rss-peak", Bytes, false, "Resident memory of the VM, maximum.";
    SWITCHES = "switches-per-request", Count, false, "Context switches of the VM's threads per correct response.";
    FAULTS = "faults-per-request", Count, false, "Page faults of the VM per correct response.";
    REDUCTIONS = "reductions-per-request", Reductions, false, "Reductions per correct response.";
    COLLECTIONS = "collections-per-request", Count, false, "Garbage collections per correct response.";
}

impl Quantity {
    /// The quantity of this name.
    pub fn find(name: &str) -> Option<&'static Quantity> {
        QUANTITIES.iter().find(|quantity| quantity.name == name)
    }
}

/// Persistent storage of a study.
pub trait StudyStore {
    /// Error of reading or writing.
    type Error;

    /// Adds a completed trial with its recording (content of the file), if there is one. Atomic: stores both or neither.
    fn add(&mut self, trial: &Trial, recording: Option<&[u8]>) -> Result<(), Self::Error>;

    /// All trials, in order of addition.
    fn trials(&self) -> Result<Vec<Trial>, Self::Error>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_describes_its_changes() {
        let mut arm = Arm { name: "B".to_owned(), ..Arm::default() };
        assert_eq!(arm.describe(), "unchanged");
        arm.flags = vec!["+sbwt".to_owned(), "none".to_owned()];
        arm.environment.insert("POOL".to_owned(), "4".to_owned());
        assert_eq!(arm.describe(), "POOL=4 +sbwt none");
    }

    #[test]
    fn names_of_quantities_are_unique() {
        for quantity in QUANTITIES {
            assert_eq!(Quantity::find(quantity.name), Some(quantity));
        }
        assert_eq!(Quantity::find("speed"), None);
    }

    #[test]
    fn values_that_are_not_finite_are_ignored() {
        let mut measures = Measures::default();
        measures.set("cpu", f64::NAN);
        measures.set("rss", 5.0);
        assert_eq!(measures.iter().collect::<Vec<_>>(), [("rss", 5.0)]);
        let text = serde_json::to_string(&measures).expect("JSON");
        assert_eq!(serde_json::from_str::<Measures>(&text).expect("the same"), measures);
    }
}
