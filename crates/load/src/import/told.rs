//! What a tool tells of a step, brought into the shape of a result.

use std::collections::BTreeMap;

use beamtune_model::load::{Latency, LoadErrors, LoadResult, LoadStep};

use super::Tool;
use crate::tally::ErrorKind;

/// Microseconds in nanoseconds.
pub(super) const MICROSECOND_NS: f64 = 1e3;
/// Milliseconds in nanoseconds.
pub(super) const MILLISECOND_NS: f64 = 1e6;
/// Seconds in nanoseconds.
pub(super) const SECOND_NS: f64 = 1e9;

/// No run counts more of anything; so sums stay within 64 bits.
pub(super) const MOST: f64 = 1e12;
/// Thirty years: no time is longer.
const LONGEST_NS: f64 = 1e18;
/// Characters of names and words that are kept.
const NAME_CHARS: usize = 200;
/// Steps of a result.
pub(super) const MOST_STEPS: usize = 1000;
/// So many values lie beyond a percentile that says something, as in our own results.
const BEYOND: f64 = 2.0;

/// Kinds of errors beyond those of [`crate::tally::ErrorKind`], for tools that do not tell more.
pub(super) mod kind {
    /// The connection was not made; the tool does not tell why.
    pub const CONNECT: &str = "connect";
    /// The connection broke; the tool does not tell how.
    pub const CONNECTION: &str = "connection";
    /// The tool does not tell what went wrong.
    pub const OTHER: &str = "other";
}

/// A result of which nothing is known yet.
pub(super) fn blank(tool: Tool) -> LoadResult {
    LoadResult::blank(tool.name())
}

/// A step of which nothing is known yet.
pub(super) fn step(name: &str) -> LoadStep {
    LoadStep {
        name: words(name),
        is_connect: false,
        is_send: false,
        done: 0,
        errors: BTreeMap::new(),
        received_bytes: None,
        lag: None,
        service: None,
        response: None,
        first_byte: None,
    }
}

/// The kind of an error by the words for it: that of the first of `kinds` which they contain.
pub(super) fn kind_in(words: &str, kinds: &[(&str, ErrorKind)]) -> Option<&'static str> {
    kinds.iter().find(|(word, _)| words.contains(word)).map(|(_, kind)| kind.text())
}

/// A name or a message, not longer than makes sense.
pub(super) fn words(text: &str) -> String {
    text.chars().take(NAME_CHARS).collect()
}

/// A count, if it can be one.
pub(super) fn count(number: f64) -> Option<u64> {
    (0.0..=MOST).contains(&number).then_some(number.round() as u64)
}

/// A time in nanoseconds, if it can be one.
pub(super) fn nanoseconds(value: f64, unit_ns: f64) -> Option<u64> {
    let nanoseconds = value * unit_ns;
    (0.0..=LONGEST_NS).contains(&nanoseconds).then_some(nanoseconds.round() as u64)
}

/// Counts errors of a kind; the first words stay.
pub(super) fn add_errors(errors: &mut BTreeMap<String, LoadErrors>, kind: &str, count: u64, first: &str) {
    if count > 0 {
        let entry = errors.entry(kind.to_owned());
        let errors = entry.or_insert_with(|| LoadErrors { count: 0, first: words(first) });
        errors.count = errors.count.saturating_add(count);
    }
}

/// What a tool tells of times.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    /// Values.
    pub count: u64,
    pub min_ns: Option<u64>,
    pub mean_ns: Option<f64>,
    pub max_ns: Option<u64>,
    /// In percent, and what it told.
    pub percentiles: Vec<(f64, u64)>,
}

impl Told {
    /// Takes a percentile if there is one.
    pub fn percentile(&mut self, percent: f64, nanoseconds: Option<u64>) {
        if let Some(nanoseconds) = nanoseconds
            && percent > 0.0
            && percent < 100.0
        {
            self.percentiles.push((percent, nanoseconds));
        }
    }

    /// As it stands in a result: nothing if there is nothing, and percentiles only of which there are enough values. Says
    /// which are left out.
    pub fn latency(self, remarks: &mut Vec<String>) -> Option<Latency> {
        let is_told = self.min_ns.is_some()
            || self.mean_ns.is_some()
            || self.max_ns.is_some()
            || !self.percentiles.is_empty();
        if self.count == 0 || !is_told {
            return None;
        }
        let is_enough = |percent: f64| {
            let beyond = self.count as f64 * (100.0 - percent) / 100.0;
            (percent <= 50.0 && self.count >= 2) || beyond >= BEYOND * (1.0 - 1e-9)
        };
        let (enough, few): (Vec<_>, Vec<_>) =
            self.percentiles.iter().copied().partition(|(percent, _)| is_enough(*percent));
        if !few.is_empty() {
            let names: Vec<_> = few.iter().map(|(percent, _)| percentile_name(*percent)).collect();
            let remark = format!("{} left out: {} values do not tell them.", names.join(", "), self.count);
            if !remarks.contains(&remark) {
                remarks.push(remark);
            }
        }
        Some(Latency {
            count: self.count,
            min_ns: self.min_ns,
            mean_ns: self.mean_ns.filter(|mean| (0.0..=LONGEST_NS).contains(mean)),
            percentiles_ns: enough
                .into_iter()
                .map(|(percent, nanoseconds)| (percentile_name(percent), nanoseconds))
                .collect(),
            max_ns: self.max_ns,
            histogram: None,
        })
    }
}

/// `p99.9` of 99.9.
pub(super) fn percentile_name(percent: f64) -> String {
    // A tool that writes 0.999 as a share must not make p99.90000000000001 of it.
    format!("p{}", (percent * 1e6).round() / 1e6)
}

/// A time as C tools write it: `48.00us`, `1.02s`, `2.00m`.
pub(super) fn time(text: &str) -> Option<f64> {
    let at = text.find(|char: char| char.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(at);
    let unit_ns = match unit {
        "ns" => 1.0,
        "us" => MICROSECOND_NS,
        "ms" => MILLISECOND_NS,
        "s" => SECOND_NS,
        "m" => 60.0 * SECOND_NS,
        "h" => 3600.0 * SECOND_NS,
        _ => return None,
    };
    let nanoseconds = number.parse::<f64>().ok()? * unit_ns;
    (0.0..=LONGEST_NS).contains(&nanoseconds).then_some(nanoseconds)
}

/// [`time`] in whole nanoseconds.
pub(super) fn time_ns(text: &str) -> Option<u64> {
    time(text).map(|nanoseconds| nanoseconds.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_every_unit() {
        let check = |text, expected| assert_eq!(time_ns(text), expected, "{text}");
        check("48.00us", Some(48_000));
        check("3.61ms", Some(3_610_000));
        check("1.02s", Some(1_020_000_000));
        check("2.00m", Some(120_000_000_000));
        check("-nan", None);
        check("-nanus", None);
        check("5", None);
        check("-1s", None);
        check("1e300h", None);
    }

    #[test]
    fn percentiles_of_too_few_values_are_left_out_and_said() {
        let mut told = Told { count: 100, ..Told::default() };
        for percent in [50.0, 90.0, 98.0, 99.0, 100.0] {
            told.percentile(percent, Some(1));
        }
        told.percentile(75.0, None);
        let mut remarks = Vec::new();
        let latency = told.latency(&mut remarks).unwrap();
        assert_eq!(latency.percentiles_ns.keys().collect::<Vec<_>>(), ["p50", "p90", "p98"]);
        assert_eq!(remarks, ["p99 left out: 100 values do not tell them."]);
        assert_eq!(Told { count: 5, ..Told::default() }.latency(&mut remarks), None);
    }

    #[test]
    fn percentiles_have_short_names() {
        assert_eq!(
            [99.0, 99.9, 0.999 * 100.0, 99.99].map(percentile_name),
            ["p99", "p99.9", "p99.9", "p99.99"]
        );
    }
}
