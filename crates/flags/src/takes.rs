//! Which values a setting takes from which release on, as data, and what a VM makes of a value: accepted
//! unchanged, changed silently, rejected at start, or fatal.
//!
//! The emulator parses numbers like C: `8k` is 8, and 5000000000 becomes 705032704 in an `int`. It reports none
//! of this at start.

mod forms;
mod judge;
mod number;

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::OtpVersion;

pub use forms::{Form, Machine};
pub use judge::{Altered, Question, Verdict};
pub use number::Reads;

/// The values that a setting takes, from one version on.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Takes {
    /// The first version that this applies to; absent: from the beginning.
    pub from: Option<OtpVersion>,
    /// The allocators that this applies to, by letter (`u` is the flag for all of them); absent: every allocator
    /// without a step of its own. Only for flags such as `+M<S>as`.
    pub letters: Option<String>,
    /// Words that are accepted unchanged. The empty word is the flag without a value.
    #[serde(default)]
    pub words: Vec<String>,
    /// What [`Entry::effective`](crate::Entry::effective) prints for a value, where that is not the value itself.
    /// Empty: it cannot be derived from the value alone.
    #[serde(default)]
    pub shows: BTreeMap<String, String>,
    /// Bounds of the decimal numbers that are accepted.
    pub integer: Option<Integer>,
    /// The unit of the number: `processes`, `KiB`, `words` (8 bytes), `percent`.
    pub unit: Option<String>,
    /// How the number is parsed.
    #[serde(default)]
    pub reads: Reads,
    /// What happens to a number below the lower bound.
    #[serde(default)]
    pub below: BelowMin,
    /// What happens to a number above the upper bound.
    #[serde(default)]
    pub above: AboveMax,
    /// How an accepted number is changed.
    pub rounds: Option<Rounding>,
    /// A form other than a plain number or word.
    pub form: Option<Form>,
    /// Words that look right, because other flags or older manuals have them, but are rejected.
    #[serde(default)]
    pub refuses: Vec<String>,
    /// What happens to all other values.
    #[serde(default)]
    pub otherwise: OtherValues,
    /// Values that are accepted or not depending on the host or on other settings.
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
    /// It is silently raised to the bound.
    Raised,
    /// It wraps around from above, modulo the upper bound plus one.
    Wraps,
}

/// What happens to a number above the upper bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AboveMax {
    /// The VM does not start.
    #[default]
    Refused,
    /// It is silently lowered to the bound.
    Capped,
    /// It wraps around from below, modulo the upper bound plus one.
    Wraps,
}

/// What happens to a value that is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OtherValues {
    /// The VM does not start, or the call fails.
    #[default]
    Refused,
    /// The default is used silently.
    Ignored,
}

/// How an accepted number is silently changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rounding {
    /// Up to a power of two.
    PowerOfTwo,
    /// Up to the next heap size: 12, 38, then each is the sum of the two before plus one; above 833026 each is 20 %
    /// larger.
    HeapSize,
    /// Up to this number.
    AtLeast(i64),
    /// Down to this number.
    AtMost(i64),
    /// Up to a multiple of this number.
    UpToMultipleOf(i64),
    /// Bounded by another setting or by the number of schedulers.
    ByOther,
}

/// Values that are accepted or not depending on the host or on other settings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostDependent {
    /// Numbers within these bounds.
    pub integer: Option<Integer>,
    /// These words.
    #[serde(default)]
    pub words: Vec<String>,
    /// What it depends on.
    pub on: String,
}

/// Values that look valid, but with which a VM crashes, hangs or ends while it starts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fatal {
    /// The first version that this applies to; absent: from the beginning.
    pub from: Option<OtpVersion>,
    /// The first version that this no longer applies to.
    pub until: Option<OtpVersion>,
    /// These words.
    #[serde(default)]
    pub words: Vec<String>,
    /// Numbers within these bounds, as parsed by the VM.
    pub integer: Option<Integer>,
    /// Every value.
    #[serde(default)]
    pub always: bool,
    /// What happens.
    pub why: String,
}

impl Takes {
    /// The accepted values for output: `1024..134217727 processes, rounded up to a power of two | legacy`.
    pub fn describe(&self) -> String {
        let mut parts = Vec::new();
        if let Some(form) = self.form {
            parts.push(form.describe().to_owned());
        }
        if let Some(integer) = &self.integer {
            parts.push(self.describe_number(integer, ".."));
        }
        parts.extend(
            self.words.iter().map(|word| if word.is_empty() { "no value".to_owned() } else { word.clone() }),
        );
        parts.join(" | ")
    }

    /// The same within a sentence: `1024 to 134217727 processes, rounded up to a power of two; or legacy`.
    pub(crate) fn in_words(&self) -> String {
        let mut parts: Vec<String> = self.form.iter().map(|form| form.describe().to_owned()).collect();
        parts.extend(self.integer.as_ref().map(|integer| self.describe_number(integer, " to ")));
        let words: Vec<&str> =
            self.words.iter().map(|word| if word.is_empty() { "no value" } else { word }).collect();
        parts.extend(match words.split_last() {
            Some((last, [])) => Some((*last).to_owned()),
            Some((last, before)) => Some(format!("{} or {last}", before.join(", "))),
            None => None,
        });
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

    /// Whether both accept the same values and change them alike. Ignores how out-of-range numbers are parsed.
    pub(crate) fn same_values(&self, other: &Takes) -> bool {
        let bare = |takes: &Takes| Takes {
            from: None,
            letters: None,
            shows: BTreeMap::new(),
            reads: Reads::default(),
            depends: None,
            ..takes.clone()
        };
        bare(self) == bare(other)
    }
}

impl Fatal {
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
            let takes = entry(id).and_then(|entry| entry.takes_in(otp)).expect(id);
            assert_eq!(takes.describe(), expect, "{id} in OTP {otp}");
        };
        check("+P", 25, "1024..134217727 processes, rounded up to a power of two | legacy");
        check("+M<S>acul", 25, "0..100 percent | de");
        check("+sws", 25, "default | legacy");
        check("+zdntgc", 25, "0..100000000 seconds | infinity");
        check("+MMmcs", 25, "0..9223372036854775807 segments, lowered to 30");
        check("+c", 25, "no value | true | false");
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
            let takes = entry(id).and_then(|entry| entry.takes_in(25)).expect(id);
            assert_eq!(takes.in_words(), expect, "{id}");
        };
        check("+P", "1024 to 134217727 processes, rounded up to a power of two; or legacy");
        check("+c", "no value, true or false");
        check("+MMmcs", "0 to 9223372036854775807 segments, lowered to 30");
        check("+S", "N, N:M or :M; 0 or less is added to the number of processors");
    }
}
