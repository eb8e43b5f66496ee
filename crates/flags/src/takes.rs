//! Data about the values that a setting accepts in each release, and how a VM treats a value: it accepts the value
//! unchanged, changes it silently, rejects it at start, or crashes.
//!
//! The emulator parses numbers with C library functions: `8k` is 8, and 5000000000 becomes 705032704 in an `int`.
//! The emulator reports no such change at start.

mod forms;
mod judge;
mod number;

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::OtpVersion;

pub use forms::{Form, HostCpus};
pub use judge::{SilentChange, ValueQuery, Verdict};
pub use number::NumberParsing;

/// The values that a setting accepts, starting with one version.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptedValues {
    /// The first version with these values; `None`: it applies from the first release on.
    pub from: Option<OtpVersion>,
    /// The letters of the allocators with these values (`u` is the flag for all allocators); `None`: every allocator
    /// that no other element lists. Only for flags such as `+M<S>as`.
    pub letters: Option<String>,
    /// Keywords that are accepted unchanged. The empty keyword means the flag without a value.
    #[serde(default)]
    pub words: Vec<String>,
    /// What [`Entry::effective`](crate::Entry::effective) prints for a value, if that differs from the value. An
    /// empty text means that it cannot be derived from the value alone.
    #[serde(default)]
    pub shows: BTreeMap<String, String>,
    /// Bounds of the accepted decimal numbers.
    pub integer: Option<Integer>,
    /// The unit of the number: `processes`, `KiB`, `words` (8 bytes), `percent`.
    pub unit: Option<String>,
    /// How the number is parsed.
    #[serde(default)]
    pub reads: NumberParsing,
    /// What happens to a number below the lower bound.
    #[serde(default)]
    pub below: BelowMin,
    /// What happens to a number above the upper bound.
    #[serde(default)]
    pub above: AboveMax,
    /// How an accepted number is changed.
    pub rounds: Option<Rounding>,
    /// A form other than a plain number or keyword.
    pub form: Option<Form>,
    /// Keywords that are rejected although other flags or older manuals list them.
    #[serde(default)]
    pub refuses: Vec<String>,
    /// What happens to all other values.
    #[serde(default)]
    pub otherwise: OtherValues,
    /// Values whose acceptance depends on the host or on other settings.
    pub depends: Option<HostDependent>,
}

/// Bounds of a number, both inclusive; an absent bound is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Integer {
    /// The lowest number that is accepted.
    pub min: Option<i64>,
    /// The highest number that is accepted.
    pub max: Option<i64>,
}

/// What happens to a number below the lower bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BelowMin {
    /// The VM does not start.
    #[default]
    Refused,
    /// The number is silently raised to the bound.
    Raised,
    /// The number wraps around from above, modulo the upper bound plus one.
    Wraps,
}

/// What happens to a number above the upper bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AboveMax {
    /// The VM does not start.
    #[default]
    Refused,
    /// The number is silently lowered to the bound.
    Capped,
    /// The number wraps around from below, modulo the upper bound plus one.
    Wraps,
}

/// How the VM reacts to a value that it does not accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OtherValues {
    /// The VM does not start, or the call fails.
    #[default]
    Refused,
    /// The VM silently uses the default.
    Ignored,
}

/// How an accepted number is silently changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rounding {
    /// Rounded up to a power of two.
    PowerOfTwo,
    /// Rounded up to the next heap size. Heap sizes start with 12 and 38; each following one is the sum of the previous
    /// two plus one, and above 833026 each is 20 % larger than the previous one.
    HeapSize,
    /// Raised to this number.
    AtLeast(i64),
    /// Lowered to this number.
    AtMost(i64),
    /// Rounded up to a multiple of this number.
    UpToMultipleOf(i64),
    /// Limited by another setting or by the number of schedulers.
    ByOther,
}

/// Values whose acceptance depends on the host or on other settings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostDependent {
    /// The bounds of the numbers that depend on the condition.
    pub integer: Option<Integer>,
    /// The keywords that depend on the condition.
    #[serde(default)]
    pub words: Vec<String>,
    /// The condition under which the values are accepted.
    pub on: String,
}

/// Values that look valid, but make the VM crash, hang or exit while it starts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FatalValues {
    /// The first version in which the values are fatal; `None`: it applies from the first release on.
    pub from: Option<OtpVersion>,
    /// The first version in which the values are no longer fatal.
    pub until: Option<OtpVersion>,
    /// The fatal keywords.
    #[serde(default)]
    pub words: Vec<String>,
    /// The bounds of the fatal numbers, as the VM parses them.
    pub integer: Option<Integer>,
    /// Whether every value is fatal.
    #[serde(default)]
    pub always: bool,
    /// What happens to the VM, for output.
    pub why: String,
}

impl AcceptedValues {
    /// Describes the accepted values for output: `1024..134217727 processes, rounded up to a power of two | legacy`.
    pub fn describe(&self) -> String {
        if self.form == Some(Form::FirstLetter) {
            return self.in_words();
        }
        let mut parts: Vec<String> = self.form.iter().map(|form| form.describe().to_owned()).collect();
        if let Some(integer) = &self.integer {
            parts.push(self.describe_number(integer, ".."));
        }
        parts.extend(
            self.words.iter().map(|word| if word.is_empty() { "no value".to_owned() } else { word.clone() }),
        );
        parts.join(" | ")
    }

    /// Describes the accepted values within a sentence: `1024 to 134217727 processes, rounded up to a power of two; or
    /// legacy`.
    pub(crate) fn in_words(&self) -> String {
        let words: Vec<&str> =
            self.words.iter().map(|word| if word.is_empty() { "no value" } else { word }).collect();
        let words = match words.split_last() {
            Some((last, [])) => Some((*last).to_owned()),
            Some((last, before)) => Some(format!("{} or {last}", before.join(", "))),
            None => None,
        };
        if let (Some(form @ Form::FirstLetter), Some(words)) = (self.form, &words) {
            return format!("{} {words}", form.describe());
        }
        let mut parts: Vec<String> = self.form.iter().map(|form| form.describe().to_owned()).collect();
        parts.extend(self.integer.as_ref().map(|integer| self.describe_number(integer, " to ")));
        parts.extend(words);
        parts.join("; or ")
    }

    fn describe_number(&self, integer: &Integer, between: &str) -> String {
        let mut text = match (integer.min, integer.max) {
            (Some(min), Some(max)) => format!("{min}{between}{max}"),
            (Some(min), None) => format!("{min} or more"),
            (None, Some(max)) => format!("at most {max}"),
            (None, None) => "a number".to_owned(),
        };
        if let Some(unit) = &self.unit {
            text.push_str(&format!(" {unit}"));
        }
        match self.rounds {
            None | Some(Rounding::ByOther) => {}
            Some(Rounding::PowerOfTwo) => text.push_str(", rounded up to a power of two"),
            Some(Rounding::HeapSize) => text.push_str(", rounded up to a heap size"),
            Some(Rounding::AtLeast(minimum)) => text.push_str(&format!(", raised to {minimum}")),
            Some(Rounding::AtMost(maximum)) => text.push_str(&format!(", lowered to {maximum}")),
            Some(Rounding::UpToMultipleOf(step)) => {
                text.push_str(&format!(", rounded up to a multiple of {step}"));
            }
        }
        match self.below {
            BelowMin::Refused => {}
            BelowMin::Raised => text.push_str(", lower values are raised to the minimum"),
            BelowMin::Wraps => text.push_str(", lower values wrap around"),
        }
        match self.above {
            AboveMax::Refused => {}
            AboveMax::Capped => text.push_str(", higher values are lowered to the maximum"),
            AboveMax::Wraps => text.push_str(", higher values wrap around"),
        }
        text
    }

    /// Whether both accept the same values and change them in the same way. Ignores how the number is parsed.
    pub(crate) fn same_values(&self, other: &AcceptedValues) -> bool {
        let bare = |takes: &AcceptedValues| AcceptedValues {
            from: None,
            letters: None,
            shows: BTreeMap::new(),
            reads: NumberParsing::default(),
            depends: None,
            ..takes.clone()
        };
        bare(self) == bare(other)
    }
}

impl FatalValues {
    fn holds_in(&self, otp: &OtpVersion) -> bool {
        self.from.as_ref().is_none_or(|from| otp >= from)
            && self.until.as_ref().is_none_or(|until| otp < until)
    }
}

impl Integer {
    fn holds(&self, number: i64) -> bool {
        self.min.is_none_or(|min| number >= min) && self.max.is_none_or(|max| number <= max)
    }
}

#[cfg(test)]
mod tests {
    use crate::entry;

    #[test]
    fn accepted_values_are_described_for_output() {
        let check = |id: &str, otp: u32, expect: &str| {
            let takes = entry(id).and_then(|entry| entry.accepted_in(otp)).expect(id);
            assert_eq!(takes.describe(), expect, "{id} in OTP {otp}");
        };
        check("+P", 25, "1024..134217727 processes, rounded up to a power of two | legacy");
        check("+M<S>acul", 25, "0..100 percent | de");
        check("+sws", 25, "default | legacy");
        check("+zdntgc", 25, "0..100000000 seconds | infinity");
        check("+MMmcs", 25, "0..9223372036854775807 segments, lowered to 30");
        check("+c", 25, "no value | true | false");
        check("+W", 25, "a word that starts with w, e or i");
        check("+S", 25, "N, N:M or :M; 0 or less is added to the number of processors");
        check(
            "ERL_FULLSWEEP_AFTER",
            25,
            "0..65535 collections, lower values wrap around, higher values wrap around",
        );
    }

    #[test]
    fn accepted_values_are_described_in_a_sentence() {
        let check = |id: &str, expect: &str| {
            let takes = entry(id).and_then(|entry| entry.accepted_in(25)).expect(id);
            assert_eq!(takes.in_words(), expect, "{id}");
        };
        check("+P", "1024 to 134217727 processes, rounded up to a power of two; or legacy");
        check("+c", "no value, true or false");
        check("+W", "a word that starts with w, e or i");
        check("+MMmcs", "0 to 9223372036854775807 segments, lowered to 30");
        check("+S", "N, N:M or :M; 0 or less is added to the number of processors");
    }
}
