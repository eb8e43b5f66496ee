//! Converts the values that a tool reports into parts of a result.

use std::collections::BTreeMap;

use beamtune_model::load::{Latency, LoadErrors, LoadResult, LoadStep};

use super::Tool;
use crate::tally::ErrorKind;

/// Nanoseconds per microsecond.
pub(super) const MICROSECOND_NS: f64 = 1e3;
/// Nanoseconds per millisecond.
pub(super) const MILLISECOND_NS: f64 = 1e6;
/// Nanoseconds per second.
pub(super) const SECOND_NS: f64 = 1e9;

/// Maximum of any count. No run exceeds it, and sums stay within 64 bits.
pub(super) const MAX_COUNT: f64 = 1e12;
/// Longest accepted time: thirty years.
const MAX_NS: f64 = 1e18;
/// Maximum length of names and texts, in characters.
const MAX_NAME_CHARS: usize = 200;
/// Maximum number of steps of a result.
pub(super) const MAX_STEPS: usize = 1000;
/// A percentile needs this many values above it, as in beamtune's own results.
const MIN_VALUES_BEYOND: f64 = 2.0;

/// Kinds of errors in addition to [`crate::tally::ErrorKind`], for tools that report less detail.
pub(super) mod kind {
    /// Connecting failed for an unknown reason.
    pub const CONNECT: &str = "connect";
    /// The connection broke for an unknown reason.
    pub const CONNECTION: &str = "connection";
    /// An unknown error.
    pub const OTHER: &str = "other";
}

/// Returns an empty result.
pub(super) fn blank(tool: Tool) -> LoadResult {
    LoadResult::blank(tool.name())
}

/// Returns an empty step.
pub(super) fn step(name: &str) -> LoadStep {
    LoadStep {
        name: shortened(name),
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

/// Returns the kind of an error: that of the first pattern in `kinds` that the error's text contains.
pub(super) fn match_kind(text: &str, kinds: &[(&str, ErrorKind)]) -> Option<&'static str> {
    kinds.iter().find(|(pattern, _)| text.contains(pattern)).map(|(_, kind)| kind.text())
}

/// Cuts a name or message to [`MAX_NAME_CHARS`].
pub(super) fn shortened(text: &str) -> String {
    text.chars().take(MAX_NAME_CHARS).collect()
}

/// Converts a number to a count, if it is valid.
pub(super) fn count(number: f64) -> Option<u64> {
    (0.0..=MAX_COUNT).contains(&number).then_some(number.round() as u64)
}

/// Converts a value to nanoseconds, if it is valid.
pub(super) fn nanoseconds(value: f64, unit_ns: f64) -> Option<u64> {
    let nanoseconds = value * unit_ns;
    (0.0..=MAX_NS).contains(&nanoseconds).then_some(nanoseconds.round() as u64)
}

/// Adds errors of a kind; the text of the first one is kept.
pub(super) fn add_errors(errors: &mut BTreeMap<String, LoadErrors>, kind: &str, count: u64, first: &str) {
    if count > 0 {
        let entry = errors.entry(kind.to_owned());
        let errors = entry.or_insert_with(|| LoadErrors { count: 0, first: shortened(first) });
        errors.count = errors.count.saturating_add(count);
    }
}

/// Statistics of times as a tool reports them.
#[derive(Debug, Clone, Default)]
pub(super) struct ReportedTimes {
    /// Number of values.
    pub count: u64,
    pub min_ns: Option<u64>,
    pub mean_ns: Option<f64>,
    pub max_ns: Option<u64>,
    /// Percentiles: percent and nanoseconds.
    pub percentiles: Vec<(f64, u64)>,
}

impl ReportedTimes {
    /// Adds a percentile, if the tool reports it.
    pub fn percentile(&mut self, percent: f64, nanoseconds: Option<u64>) {
        if let Some(nanoseconds) = nanoseconds
            && percent > 0.0
            && percent < 100.0
        {
            self.percentiles.push((percent, nanoseconds));
        }
    }

    /// Converts the times for a result; `None` if the tool reports no times. Percentiles with too few values are left out, with a remark.
    pub fn latency(self, remarks: &mut Vec<String>) -> Option<Latency> {
        let has_times = self.min_ns.is_some()
            || self.mean_ns.is_some()
            || self.max_ns.is_some()
            || !self.percentiles.is_empty();
        if self.count == 0 || !has_times {
            return None;
        }
        let is_enough = |percent: f64| {
            let beyond = self.count as f64 * (100.0 - percent) / 100.0;
            (percent <= 50.0 && self.count >= 2) || beyond >= MIN_VALUES_BEYOND * (1.0 - 1e-9)
        };
        let (enough, few): (Vec<_>, Vec<_>) =
            self.percentiles.iter().copied().partition(|(percent, _)| is_enough(*percent));
        if !few.is_empty() {
            let names: Vec<_> = few.iter().map(|(percent, _)| percentile_name(*percent)).collect();
            let remark = format!("{} omitted: {} values are too few.", names.join(", "), self.count);
            if !remarks.contains(&remark) {
                remarks.push(remark);
            }
        }
        Some(Latency {
            count: self.count,
            min_ns: self.min_ns,
            mean_ns: self.mean_ns.filter(|mean| (0.0..=MAX_NS).contains(mean)),
            percentiles_ns: enough
                .into_iter()
                .map(|(percent, nanoseconds)| (percentile_name(percent), nanoseconds))
                .collect(),
            max_ns: self.max_ns,
            histogram: None,
        })
    }
}

/// Returns the name of a percentile: `p99.9` for 99.9.
pub(super) fn percentile_name(percent: f64) -> String {
    // This is rounded, because 0.999 times 100 is 99.90000000000001.
    format!("p{}", (percent * 1e6).round() / 1e6)
}

/// Parses a time in the format of C tools (`48.00us`, `1.02s`, `2.00m`). Returns nanoseconds.
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
    (0.0..=MAX_NS).contains(&nanoseconds).then_some(nanoseconds)
}

/// Like [`time`], in whole nanoseconds.
pub(super) fn time_ns(text: &str) -> Option<u64> {
    time(text).map(|nanoseconds| nanoseconds.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_in_every_unit() {
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
    fn percentiles_of_too_few_values_are_left_out_with_a_remark() {
        let mut times = ReportedTimes { count: 100, ..ReportedTimes::default() };
        for percent in [50.0, 90.0, 98.0, 99.0, 100.0] {
            times.percentile(percent, Some(1));
        }
        times.percentile(75.0, None);
        let mut remarks = Vec::new();
        let latency = times.latency(&mut remarks).unwrap();
        assert_eq!(latency.percentiles_ns.keys().collect::<Vec<_>>(), ["p50", "p90", "p98"]);
        assert_eq!(remarks, ["p99 omitted: 100 values are too few."]);
        assert_eq!(ReportedTimes { count: 5, ..ReportedTimes::default() }.latency(&mut remarks), None);
    }

    #[test]
    fn percentiles_have_short_names() {
        assert_eq!(
            [99.0, 99.9, 0.999 * 100.0, 99.99].map(percentile_name),
            ["p99", "p99.9", "p99.9", "p99.99"]
        );
    }
}
