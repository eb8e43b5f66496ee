//! Comparison of two settings: the question and its results.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Arm, InvalidKind};

/// The question that a comparison answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Seed of the random order of trials.
    pub seed: u64,
    /// The baseline.
    pub a: Arm,
    /// The setting to compare with it.
    pub b: Arm,
    /// Name of the [`super::Quantity`] that decides.
    pub objective: String,
    /// Constraints: quantities that must not become worse.
    pub guards: Vec<Margin>,
    /// Number of A/A pairs: two trials of A.
    pub same_pairs: usize,
    /// Maximum number of A/B pairs: a trial of A and one of B.
    #[serde(rename = "most_pairs")]
    pub max_pairs: usize,
}

/// A constraint: by how much a quantity may become worse.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Margin {
    /// Name of the [`super::Quantity`].
    pub quantity: String,
    /// As a share of A's value: 0.05 for 5 %. For errors: as a share of all requests.
    #[serde(rename = "most")]
    pub max: f64,
}

/// Answer to the question of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Answer {
    /// Trials are missing.
    Open,
    /// B is better.
    Better,
    /// B is worse.
    Worse,
    /// Any difference is below one percent.
    Same,
    /// All pairs were run, without a conclusion.
    Undecided,
    /// There is a difference, but it is too small to be shown reliably on this machine.
    BelowDetectable,
    /// The A/A test found a difference between A and itself, a false positive: the machine changed during the study.
    #[serde(rename = "method_finds_what_is_not")]
    FalsePositive,
    /// Too many trials are invalid.
    TooManyInvalid,
    /// A setting does not work.
    Fails {
        /// Name of the setting.
        arm: String,
        /// What happened.
        why: String,
    },
}

/// Result of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The answer.
    pub answer: Answer,
    /// Ratio of the objective in A/A pairs; `None` while there are too few pairs.
    pub same: Option<Ratio>,
    /// Number of A/A pairs.
    pub same_pairs: usize,
    /// Smallest effect that is detected on this machine in nine of ten studies, as a share: 0.05 for 5 %.
    pub detectable: Option<f64>,
    /// Number of A/B pairs.
    pub pairs: usize,
    /// Effect of B on each quantity.
    pub effects: Vec<QuantityEffect>,
    /// Verdicts on the constraints.
    pub guards: Vec<GuardVerdict>,
    /// Number of invalid trials, by their first reason.
    pub invalid: BTreeMap<InvalidKind, usize>,
    /// Number of trials in which the target failed.
    pub failed: usize,
}

/// Effect of B on a quantity.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QuantityEffect {
    /// Name of the quantity, with its part after a slash.
    pub quantity: String,
    /// Median of A.
    pub a: f64,
    /// Median of B.
    pub b: f64,
    /// Ratio of B to A with its interval; `None` if there are too few pairs.
    pub ratio: Option<Ratio>,
}

/// A ratio with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// Estimate: 0.9 for ten percent less.
    pub estimate: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
    /// Confidence level of the interval.
    pub confidence: f64,
}

/// Verdict on a constraint.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GuardVerdict {
    /// The constraint.
    #[serde(flatten)]
    pub margin: Margin,
    /// `kept`, `broken`, `unknown` or `not_measured`.
    pub verdict: &'static str,
}
