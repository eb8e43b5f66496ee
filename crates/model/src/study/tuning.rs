//! Tuning: the search for a better setting, and its results.

use serde::{Deserialize, Serialize};

use super::{GuardVerdict, Margin, Ratio};

/// A parameter that can be set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knob {
    /// Name for output.
    pub name: String,
    /// Flags of each level, one word per element; the first level is the unchanged target.
    pub levels: Vec<Vec<String>>,
    /// Whether adjacent levels have similar effects.
    pub ordered: bool,
}

impl Knob {
    /// Name of a level for output.
    pub fn level(&self, level: usize) -> String {
        match self.levels.get(level) {
            Some(words) if !words.is_empty() => words.join(" "),
            _ => "as it is".to_owned(),
        }
    }
}

/// Levels, each with the index of its knob, with which a VM does not start, crashes or hangs: a single level, or a combination.
pub type Fatal = Vec<(usize, usize)>;

/// The question of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// Seed of the order of trials and of all random choices.
    pub seed: u64,
    /// Name of the quantity to improve.
    pub objective: String,
    /// Quantities that must not become worse.
    pub guards: Vec<Margin>,
    /// Parameters to search.
    pub knobs: Vec<Knob>,
    /// Advice of the rules.
    pub advice: Vec<Advised>,
    /// Levels that are never tried.
    pub fatal: Vec<Fatal>,
    /// Total number of trials.
    pub trials: usize,
}

/// Advice to set a knob to a level.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advised {
    /// Index of the knob.
    pub knob: usize,
    /// Index of the level.
    pub level: usize,
    /// Expected effect on the objective, as the logarithm of a ratio: -0.1 for about 10 % less.
    pub effect: f64,
    /// Source of the advice.
    pub why: String,
}

/// How a search ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Ending {
    /// A setting was shown to be better.
    Found,
    /// None of the tried settings is believed to be better.
    NothingBetter,
    /// In the trials for confirmation no finalist was shown to be better with its guards kept.
    NotConfirmed,
    /// The unchanged target differs from itself.
    MethodFindsWhatIsNot,
    /// Too many trials do not count.
    TooManyInvalid,
    /// The unchanged target does not work.
    Fails {
        /// What happened.
        why: String,
    },
    /// Too few trials for a conclusion.
    TooFewTrials {
        /// Sufficient number of trials.
        least: usize,
    },
}

/// Result of a search.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TuningVerdict {
    /// How it ended; `None` while it is running.
    pub ending: Option<Ending>,
    /// Finalists, most promising first, with the results of the trials for confirmation.
    pub finalists: Vec<Finalist>,
    /// Index of the winning finalist.
    pub winner: Option<usize>,
    /// Parts of the winner.
    pub parts: Vec<Part>,
    /// The recommended setting; empty without one.
    pub point: Vec<usize>,
    /// Its flags.
    pub flags: Vec<String>,
    /// Its effect in the trials for confirmation; `None` if it was not tried exactly as recommended, or too rarely.
    pub gain: Option<Gain>,
    /// Results for each level that was tried, and for levels that are never tried.
    pub levels: Vec<Learnt>,
    /// Indexes of the Pareto-optimal trials of the search, by CPU per response, p99 and resident memory.
    pub front: Vec<usize>,
}

/// Effect of a setting compared with the unchanged target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gain {
    /// Ratio of the objective.
    pub ratio: Ratio,
    /// Number of pairs of trials for confirmation.
    pub pairs: usize,
    /// Whether these trials also selected the setting, so that the effect tends to be overestimated.
    pub has_chosen_it: bool,
    /// Prediction interval for the ratio in a repeated comparison …
    pub again: Ratio,
    /// … with this number of pairs.
    pub again_pairs: usize,
    /// Quantities that must not become worse.
    pub guards: Vec<GuardVerdict>,
}

/// Results of a search for one level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Learnt {
    /// Index of the knob.
    pub knob: usize,
    /// Index of the level.
    pub level: usize,
    /// Number of valid trials with it.
    pub trials: usize,
    /// Number of trials in which the target failed.
    pub failed: usize,
    /// Estimated effect of the level alone, with its credible interval; `None` without valid trials.
    pub effect: Option<Ratio>,
    /// Probability that all guards are kept.
    pub within_guards: f64,
    /// Whether it is never tried, because a VM does not start with it.
    pub is_fatal: bool,
}

/// A setting that was tried for confirmation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finalist {
    /// The setting.
    pub point: Vec<usize>,
    /// Ratio of the objective to that of the unchanged target; `None` while there are too few blocks.
    pub ratio: Option<Ratio>,
    /// p-value: probability of such differences without an effect.
    pub p: Option<f64>,
    /// Whether it is better, with correction for multiple finalists.
    pub is_better: bool,
    /// Guards that it violates.
    pub broken: Vec<String>,
}

/// One knob of the winner.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// Index of the knob.
    pub knob: usize,
    /// Index of the level.
    pub level: usize,
    /// Ratio of the objective to that of the setting without this part; `None` if that was not tried, or too rarely.
    pub ratio: Option<Ratio>,
    /// Conclusion.
    pub pays: Pays,
}

/// Whether a part of a setting helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pays {
    /// Shown to help.
    Yes,
    /// Shown not to help by one percent or more.
    No,
    /// Undecided.
    Unknown,
}
