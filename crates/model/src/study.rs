//! Studies: which settings are compared, which trials were run, and what each of them has shown.
//!
//! What is to be tried next follows from a study's question and from the trials that have ended, and from nothing else. So a
//! study that was broken off goes on as it would have gone, and [`StudyStore`] keeps no more than those two.

mod tuning;
mod verdict;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::{Unit, text_names};
pub use tuning::{Advised, Ending, Fatal, Finalist, Gain, Knob, Learnt, Part, Pays, Tuning, TuningVerdict};
pub use verdict::{Answer, GuardVerdict, Margin, QuantityEffect, Question, Ratio, Verdict};

/// One of the settings that are compared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// What people call it: `A`, `B`, `default`.
    pub name: String,
    /// Emulator flags that it adds to those of the target, word by word.
    pub flags: Vec<String>,
    /// Environment variables that it adds.
    pub environment: BTreeMap<String, String>,
}

impl Arm {
    /// What it changes, for people: its flags and variables, or that it is the target as it is.
    pub fn describe(&self) -> String {
        let variables = self.environment.iter().map(|(name, value)| format!("{name}={value}"));
        let words: Vec<String> = variables.chain(self.flags.iter().cloned()).collect();
        if words.is_empty() { "as it is".to_owned() } else { words.join(" ") }
    }
}

/// To which part of a study a trial belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// One setting against itself: whether the method finds a difference where none is.
    Same,
    /// Two settings against each other.
    Pair,
    /// One of many settings, to find out which are worth more.
    Search,
    /// The best settings of a search against the target as it is.
    Confirm,
    /// A setting against itself without one part of it.
    BackOut,
}

text_names!(Phase {
    Same => "same",
    Pair => "pair",
    Search => "search",
    Confirm => "confirm",
    BackOut => "back_out",
});

/// A trial that is to be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// What it belongs to.
    pub phase: Phase,
    /// Trials of one block are compared with each other; numbered through the whole study.
    pub block: u32,
    /// Which of the settings that the block compares: of two equal ones, which of them it stands for.
    pub label: u32,
    /// What is tried.
    pub arm: Arm,
    /// Where a search has it: a level of each of its parameters. Empty where nothing is searched for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub point: Vec<usize>,
}

/// A trial that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// What it was.
    pub order: Order,
    /// When it began, seconds since 1970.
    pub began_unix_s: f64,
    /// How long it took, from the start of the target until it had ended.
    pub took_s: f64,
    /// What came of it.
    pub outcome: TrialOutcome,
    /// What is worth knowing of it and changes nothing.
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// What came of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TrialOutcome {
    /// It counts.
    Valid {
        /// What was measured.
        measures: Measures,
    },
    /// Something else than the setting has decided what was measured.
    Invalid {
        /// What; at least one.
        reasons: Vec<Invalid>,
        /// What was measured all the same.
        measures: Measures,
    },
    /// The target did not start, did not take the setting, or did not live to the end of it: that is a result.
    Failed {
        /// Why, for people.
        why: String,
    },
}

/// Why a trial does not count. Decided without a look at which setting it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Invalid {
    /// The kind.
    pub kind: InvalidKind,
    /// With the numbers, for people.
    pub why: String,
}

/// What can make a trial say nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InvalidKind {
    /// Others used the machine.
    Interference,
    /// The load generator was the limit.
    GeneratorBound,
    /// The target did not become steady.
    NotSteady,
    /// The machine was suspended, or its clock was set.
    Clock,
    /// What has to be known to judge it was not measured.
    NotMeasured,
}

text_names!(InvalidKind {
    Interference => "interference",
    GeneratorBound => "generator_bound",
    NotSteady => "not_steady",
    Clock => "clock",
    NotMeasured => "not_measured",
});

/// What a trial has measured: values by the names of [`QUANTITIES`], with what stands behind a slash (`cpu-per-request/scheduler`)
/// telling a part.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Measures(BTreeMap<String, f64>);

impl Measures {
    /// Sets a value; one that is not finite is left out.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        if value.is_finite() {
            self.0.insert(name.into(), value);
        }
    }

    /// The value of that name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

/// Something that trials measure and people compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantity {
    /// The name by which it is asked for.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    /// Unit of its values.
    pub unit: Unit,
    /// Whether more of it is better.
    pub more_is_better: bool,
}

/// Declares quantities as constants and lists them in [`QUANTITIES`].
macro_rules! quantities {
    ($($const:ident = $name:literal, $unit:ident, $more:literal, $what:literal;)+) => {
        $(#[doc = $what] pub const $const: Quantity = Quantity { name: $name, what: $what, unit: Unit::$unit, more_is_better: $more };)+
        /// Everything that trials measure, in the order in which it is shown.
        pub const QUANTITIES: &[Quantity] = &[$($const),+];
    };
}

quantities! {
    CPU_PER_REQUEST = "cpu-per-request", Nanoseconds, false, "CPU time of the VM per right answer.";
    CPU_TIME = "cpu-time", Nanoseconds, false, "CPU time of a whole run.";
    DURATION = "duration", Nanoseconds, false, "How long a run took.";
    CPU = "cpu", Cores, false, "CPU of the VM.";
    THROUGHPUT = "throughput", PerSecond, true, "Right answers a second.";
    P50 = "p50", Nanoseconds, false, "Median response, from when it was due.";
    P90 = "p90", Nanoseconds, false, "90th percentile of the responses.";
    P99 = "p99", Nanoseconds, false, "99th percentile of the responses.";
    P999 = "p99.9", Nanoseconds, false, "99.9th percentile of the responses.";
    ERRORS = "errors", Ratio, false, "Share of all that was asked for that went wrong.";
    RSS = "rss", Bytes, false, "Resident memory of the VM, mean.";
    RSS_PEAK = "rss-peak", Bytes, false, "Resident memory of the VM, at most.";
    SWITCHES = "switches-per-request", Count, false, "Context switches of the VM's threads per right answer.";
    FAULTS = "faults-per-request", Count, false, "Page faults of the VM per right answer.";
    REDUCTIONS = "reductions-per-request", Reductions, false, "Reductions per right answer.";
    COLLECTIONS = "collections-per-request", Count, false, "Garbage collections per right answer.";
}

impl Quantity {
    /// The one of that name.
    pub fn find(name: &str) -> Option<&'static Quantity> {
        QUANTITIES.iter().find(|quantity| quantity.name == name)
    }
}

/// Where a study is kept.
pub trait StudyStore {
    /// Why something could not be kept or read.
    type Error;

    /// Keeps a trial that has ended, with its recording (a file's bytes) if there is one. Either all of it is there afterwards or
    /// nothing.
    fn add(&mut self, trial: &Trial, recording: Option<&[u8]>) -> Result<(), Self::Error>;

    /// All trials, in the order in which they were added.
    fn trials(&self) -> Result<Vec<Trial>, Self::Error>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_says_what_it_changes() {
        let mut arm = Arm { name: "B".to_owned(), ..Arm::default() };
        assert_eq!(arm.describe(), "as it is");
        arm.flags = vec!["+sbwt".to_owned(), "none".to_owned()];
        arm.environment.insert("POOL".to_owned(), "4".to_owned());
        assert_eq!(arm.describe(), "POOL=4 +sbwt none");
    }

    #[test]
    fn quantities_are_found_by_their_names_and_no_name_is_given_twice() {
        for quantity in QUANTITIES {
            assert_eq!(Quantity::find(quantity.name), Some(quantity));
        }
        assert_eq!(Quantity::find("speed"), None);
    }

    #[test]
    fn what_is_not_finite_is_not_measured() {
        let mut measures = Measures::default();
        measures.set("cpu", f64::NAN);
        measures.set("rss", 5.0);
        assert_eq!(measures.iter().collect::<Vec<_>>(), [("rss", 5.0)]);
        let text = serde_json::to_string(&measures).expect("JSON");
        assert_eq!(serde_json::from_str::<Measures>(&text).expect("the same"), measures);
    }
}
