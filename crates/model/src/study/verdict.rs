//! What a comparison asks, and what it has found out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Arm, InvalidKind};

/// What is to be found out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The seed of every order.
    pub seed: u64,
    /// The setting that is compared with.
    pub a: Arm,
    /// The one that is compared.
    pub b: Arm,
    /// Name of the [`super::Quantity`] that decides.
    pub objective: String,
    /// What must not become worse.
    pub guards: Vec<Margin>,
    /// Pairs of A with itself.
    pub same_pairs: usize,
    /// Pairs of A and B, at most.
    pub most_pairs: usize,
}

/// By how much something may become worse.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Margin {
    /// Name of the [`super::Quantity`].
    pub quantity: String,
    /// As a share of A's: 0.05 for 5 %. Of errors: as a share of all requests.
    pub most: f64,
}

/// What has been found out.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Answer {
    /// Not all trials are there that it takes.
    Open,
    /// B is better.
    Better,
    /// B is worse.
    Worse,
    /// If there is a difference, it is below one percent.
    Same,
    /// All pairs are there, and it cannot be told.
    Undecided,
    /// There is a difference, but a smaller one than this machine can tell reliably.
    BelowDetectable,
    /// A differs from itself: the machine changes while it is measured.
    MethodFindsWhatIsNot,
    /// Too many trials do not count.
    TooManyInvalid,
    /// A setting does not work.
    Fails {
        /// Its name.
        arm: String,
        /// What happened.
        why: String,
    },
}

/// All that can be said.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The answer.
    pub answer: Answer,
    /// The objective's difference of A from itself; `None` before there are enough pairs.
    pub same: Option<Ratio>,
    /// Pairs of A with itself.
    pub same_pairs: usize,
    /// The smallest effect that this machine shows in nine of ten cases: a share, 0.05 for 5 %.
    pub detectable: Option<f64>,
    /// Pairs of A and B.
    pub pairs: usize,
    /// What B does to each quantity.
    pub effects: Vec<QuantityEffect>,
    /// Whether guards held.
    pub guards: Vec<GuardVerdict>,
    /// Trials that do not count, by their first reason.
    pub invalid: BTreeMap<InvalidKind, usize>,
    /// Trials in which the target failed.
    pub failed: usize,
}

/// What B does to a quantity.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QuantityEffect {
    /// Name of the quantity, with a part behind a slash.
    pub quantity: String,
    /// Median of A.
    pub a: f64,
    /// Median of B.
    pub b: f64,
    /// The ratio of B to A with its interval; `None` where there are too few pairs.
    pub ratio: Option<Ratio>,
}

/// A ratio with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// 0.9 for ten percent less.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Level of the interval.
    pub confidence: f64,
}

/// Whether a guard held.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GuardVerdict {
    /// What was asked for.
    #[serde(flatten)]
    pub margin: Margin,
    /// `kept`, `broken`, `unknown` or `not_measured`.
    pub verdict: &'static str,
}
