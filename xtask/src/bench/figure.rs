//! Figures with their limits and verdicts, and the table that shows them.

use beamtune_stats::paired::{self, Effect};

/// Whether a figure meets its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The figure meets its limit.
    Met,
    /// The figure misses its limit.
    Missed,
    /// The interval includes the limit.
    Inconclusive,
    /// The figure has no limit.
    Compared,
    /// The figure could not be measured.
    NotMeasured,
}

/// A row of the table.
#[derive(Debug, Clone)]
pub struct Figure {
    /// What was measured.
    pub what: String,
    /// The value, with its unit.
    pub value: String,
    /// The limit, with its unit.
    pub limit: String,
    /// Whether the value meets the limit.
    pub verdict: Verdict,
}

impl Figure {
    /// Creates a figure for a value that must be below a limit in the same unit; `show` formats both.
    pub fn below(what: impl Into<String>, value: f64, limit: f64, show: impl Fn(f64) -> String) -> Figure {
        let verdict = if value < limit { Verdict::Met } else { Verdict::Missed };
        Figure { what: what.into(), value: show(value), limit: format!("< {}", show(limit)), verdict }
    }

    /// Creates a figure for a value without a limit.
    pub fn compared(what: impl Into<String>, value: impl Into<String>) -> Figure {
        Figure { what: what.into(), value: value.into(), limit: "–".into(), verdict: Verdict::Compared }
    }

    /// Creates a figure for a value that could not be measured, with the reason.
    pub fn not_measured(what: impl Into<String>, why: impl Into<String>) -> Figure {
        let value = format!("not measured: {}", why.into());
        Figure { what: what.into(), value, limit: "–".into(), verdict: Verdict::NotMeasured }
    }

    /// Appends a text to the value.
    pub fn with_suffix(mut self, suffix: &str) -> Figure {
        self.value.push_str(suffix);
        self
    }
}

/// Determines whether an effect is below a limit, at the confidence level of its interval.
pub fn judge(effect: &Effect, limit: f64) -> Verdict {
    if effect.high < limit {
        Verdict::Met
    } else if effect.low >= limit {
        Verdict::Missed
    } else {
        Verdict::Inconclusive
    }
}

/// Determines whether an effect is between two limits, at the confidence level of its interval. `high` may be infinite.
pub fn judge_within(effect: &Effect, low: f64, high: f64) -> Verdict {
    if low <= effect.low && effect.high <= high {
        Verdict::Met
    } else if effect.high < low || high < effect.low {
        Verdict::Missed
    } else {
        Verdict::Inconclusive
    }
}

/// Returns the ratio of `ours` to `others`, from pairs. Logarithms are compared, because ratios do not change when the host becomes slower
/// or faster.
pub fn ratio(ours: &[f64], others: &[f64], confidence: f64) -> Option<Effect> {
    let logs: Vec<f64> = ours.iter().zip(others).map(|(ours, other)| (ours / other).ln()).collect();
    let effect = paired::effect(&logs, confidence)?;
    Some(Effect { estimate: effect.estimate.exp(), low: effect.low.exp(), high: effect.high.exp(), ..effect })
}

/// Returns the median; NaN if there are no values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    at(sorted.len().saturating_sub(1) / 2).midpoint(at(sorted.len() / 2))
}

/// Formats a ratio with its interval: `1.17 [1.15, 1.19]`.
pub fn factor(effect: &Effect) -> String {
    format!("{:.2} [{:.2}, {:.2}]", effect.estimate, effect.low, effect.high)
}

/// Formats a rounded number with thousands separators: `238,000`.
pub fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a share with its interval: `0.21 % [0.18, 0.25]`.
pub fn percent(effect: &Effect) -> String {
    // Adding 0.0 turns -0.0 into 0.0.
    let show = |share: f64| format!("{:.2}", (share * 1e4).round() / 1e2 + 0.0);
    format!("{} % [{}, {}]", show(effect.estimate), show(effect.low), show(effect.high))
}

/// Returns the table of figures, in Markdown.
pub fn table(figures: &[Figure]) -> String {
    let mut out = String::from("| what | figure | limit | |\n|---|---|---|---|\n");
    for Figure { what, value, limit, verdict } in figures {
        let verdict = match verdict {
            Verdict::Met => "met",
            Verdict::Missed => "**missed**",
            Verdict::Inconclusive => "**inconclusive**",
            Verdict::Compared => "",
            Verdict::NotMeasured => "not measured",
        };
        // Error messages may contain any characters.
        let [what, value] = [what, value].map(|text| text.replace('|', "\\|").replace('\n', " "));
        out.push_str(&format!("| {what} | {value} | {limit} | {verdict} |\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(low: f64, estimate: f64, high: f64) -> Effect {
        Effect { estimate, low, high, confidence: 0.95 }
    }

    #[test]
    fn a_limit_is_met_or_missed_only_by_the_whole_interval() {
        let check = |effect: Effect, expect| assert_eq!(judge(&effect, 0.5), expect, "{effect:?}");
        check(effect(0.1, 0.2, 0.3), Verdict::Met);
        check(effect(0.1, 0.2, 0.5), Verdict::Inconclusive);
        check(effect(0.4, 0.6, 0.7), Verdict::Inconclusive);
        check(effect(0.5, 0.6, 0.7), Verdict::Missed);
    }

    #[test]
    fn a_ratio_is_compared_with_both_limits() {
        let check =
            |effect: Effect, expect| assert_eq!(judge_within(&effect, 0.9, 1.1), expect, "{effect:?}");
        check(effect(0.9, 1.0, 1.1), Verdict::Met);
        check(effect(0.89, 1.0, 1.05), Verdict::Inconclusive);
        check(effect(0.95, 1.0, 1.11), Verdict::Inconclusive);
        check(effect(0.7, 0.8, 0.89), Verdict::Missed);
        check(effect(1.2, 1.3, 1.4), Verdict::Missed);
        assert_eq!(judge_within(&effect(0.9, 7.0, 9.0), 0.9, f64::INFINITY), Verdict::Met);
    }

    #[test]
    fn a_ratio_is_independent_of_the_speed_of_the_host() {
        let others = [100.0, 200.0, 400.0, 100.0, 50.0, 100.0];
        let found = ratio(&others.map(|other| other * 1.25), &others, 0.95).expect("enough pairs");
        assert_eq!(factor(&found), "1.25 [1.25, 1.25]");
        assert_eq!(ratio(&others[..5], &others[..5], 0.95), None);
    }

    #[test]
    fn the_median_is_the_middle_value() {
        assert_eq!(median(&[5.0, 1.0, 3.0]), 3.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn thousands_are_separated() {
        let shown = [7.4, 999.0, 1_000.0, 238_123.0, 1_234_567.0].map(thousands);
        assert_eq!(shown, ["7", "999", "1,000", "238,123", "1,234,567"]);
    }

    #[test]
    fn a_share_is_a_percentage_without_a_negative_zero() {
        assert_eq!(percent(&effect(-0.012_34, -0.000_01, 0.02)), "0.00 % [-1.23, 2.00]");
    }

    #[test]
    fn a_row_of_the_table_is_one_line() {
        let figures = [
            Figure::below("size", 6.6, 20.0, |mb| format!("{mb} MB")).with_suffix(", static"),
            Figure::not_measured("a|b", "two\nlines"),
        ];
        assert_eq!(
            table(&figures).lines().skip(2).collect::<Vec<_>>(),
            [
                "| size | 6.6 MB, static | < 20 MB | met |",
                "| a\\|b | not measured: two lines | – | not measured |"
            ]
        );
    }
}
