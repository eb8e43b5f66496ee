//! What values a setting takes from which release on, as data, and what a VM makes of one: accepted as it is,
//! changed without a word, refused at start, or fatal.
//!
//! The emulator reads numbers as C does: `8k` is 8, and 5000000000 is 705032704 where it is put into an `int`.
//! Nothing of that is reported at start, so it is told here.

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
    /// The first version that this holds for; absent: from the beginning.
    pub from: Option<OtpVersion>,
    /// The allocators that this holds for, by their letters (`u` is the flag for all of them); absent: all those
    /// for which nothing else is said. Only for flags such as `+M<S>as`.
    pub letters: Option<String>,
    /// Words that are taken as they are. The empty word is the flag without a value.
    #[serde(default)]
    pub words: Vec<String>,
    /// What the expression [`Entry::effective`](crate::Entry::effective) prints for a value, where that is not the
    /// value itself. Empty: it cannot be told from the value alone.
    #[serde(default)]
    pub shows: BTreeMap<String, String>,
    /// Decimal numbers are taken, within these bounds.
    pub integer: Option<Integer>,
    /// What one of the number is: `processes`, `KiB`, `words` (8 bytes), `percent`.
    pub unit: Option<String>,
    /// How the number is read.
    #[serde(default)]
    pub reads: Reads,
    /// What becomes of a number below the lower bound.
    #[serde(default)]
    pub below: Below,
    /// What becomes of a number above the upper bound.
    #[serde(default)]
    pub above: Above,
    /// How a number that is taken is changed.
    pub rounds: Option<Rounds>,
    /// Values of a form of their own.
    pub form: Option<Form>,
    /// Words that look right, as other flags or older manuals have them, and are refused.
    #[serde(default)]
    pub refuses: Vec<String>,
    /// What becomes of all other values.
    #[serde(default)]
    pub otherwise: Otherwise,
    /// Values of which only the machine or other settings can tell whether they are taken.
    pub depends: Option<Depends>,
}

/// Bounds of a number, both included; one that is absent does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Integer {
    /// The lowest number that is taken.
    pub min: Option<i64>,
    /// The highest number that is taken.
    pub max: Option<i64>,
}

/// What becomes of a number below the lower bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Below {
    /// The VM does not start.
    #[default]
    Refused,
    /// The bound takes its place, without a word.
    Raised,
    /// It is counted from above, modulo the upper bound plus one.
    Wraps,
}

/// What becomes of a number above the upper bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Above {
    /// The VM does not start.
    #[default]
    Refused,
    /// The bound takes its place, without a word.
    Capped,
    /// It is counted from below, modulo the upper bound plus one.
    Wraps,
}

/// What becomes of a value that is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Otherwise {
    /// The VM does not start, or the call fails.
    #[default]
    Refused,
    /// The default takes its place, without a word.
    Ignored,
}

/// How a number that is taken is changed, without a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rounds {
    /// Up to a power of two.
    PowerOfTwo,
    /// Up to the next size of a heap: 12, 38, then each the sum of the two before and one; above 833026 each is a
    /// fifth more.
    HeapSize,
    /// Up to this number.
    AtLeast(i64),
    /// Down to this number.
    AtMost(i64),
    /// Up to a multiple of this number.
    UpToMultipleOf(i64),
    /// Another setting, or the number of schedulers, bounds it.
    ByOther,
}

/// Values of which only the machine or other settings can tell whether they are taken.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Depends {
    /// Numbers within these bounds.
    pub integer: Option<Integer>,
    /// These words.
    #[serde(default)]
    pub words: Vec<String>,
    /// What it depends on.
    pub on: String,
}

/// Values with which a VM crashes, hangs or ends while it starts, though they look valid.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fatal {
    /// The first version that this holds for; absent: from the beginning.
    pub from: Option<OtpVersion>,
    /// The first version that this does not hold for any more.
    pub until: Option<OtpVersion>,
    /// These words.
    #[serde(default)]
    pub words: Vec<String>,
    /// Numbers within these bounds, as the VM reads them.
    pub integer: Option<Integer>,
    /// Every value.
    #[serde(default)]
    pub always: bool,
    /// What happens.
    pub why: String,
}

impl Takes {
    /// What is taken, for a person: `1024..134217727 processes, rounded up to a power of two | legacy`.
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

    /// The same for a sentence: `1024 to 134217727 processes, rounded up to a power of two; or legacy`.
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
            None | Some(Rounds::ByOther) => {}
            Some(Rounds::PowerOfTwo) => text.push_str(", rounded up to a power of two"),
            Some(Rounds::HeapSize) => text.push_str(", rounded up to a heap size"),
            Some(Rounds::AtLeast(least)) => text.push_str(&format!(", raised to {least}")),
            Some(Rounds::AtMost(most)) => text.push_str(&format!(", lowered to {most}")),
            Some(Rounds::UpToMultipleOf(step)) => {
                text.push_str(&format!(", rounded up to a multiple of {step}"));
            }
        }
        match self.below {
            Below::Refused => {}
            Below::Raised => text.push_str(", less is raised to that"),
            Below::Wraps => text.push_str(", less wraps around"),
        }
        match self.above {
            Above::Refused => {}
            Above::Capped => text.push_str(", more is lowered to that"),
            Above::Wraps => text.push_str(", more wraps around"),
        }
        text
    }

    /// Whether both take the same values and change them alike, but for numbers that are out of all bounds.
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
    fn what_is_taken_is_told_to_a_person() {
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
        check("+S", 25, "N, N:M or :M; 0 or less counts from the number of processors");
        check("ERL_FULLSWEEP_AFTER", 25, "0..65535 collections, less wraps around, more wraps around");
    }

    #[test]
    fn what_is_taken_is_told_in_a_sentence() {
        let check = |id: &str, expect: &str| {
            let takes = entry(id).and_then(|entry| entry.takes_in(25)).expect(id);
            assert_eq!(takes.in_words(), expect, "{id}");
        };
        check("+P", "1024 to 134217727 processes, rounded up to a power of two; or legacy");
        check("+c", "no value, true or false");
        check("+MMmcs", "0 to 9223372036854775807 segments, lowered to 30");
        check("+S", "N, N:M or :M; 0 or less counts from the number of processors");
    }
}
