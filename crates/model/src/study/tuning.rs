//! Tuning: the search for a better setting of a target, and its results.

use serde::{Deserialize, Serialize};

use super::{GuardVerdict, Margin, Ratio};

/// A parameter that a search can change.
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
            _ => "unchanged".to_owned(),
        }
    }
}

/// A level, or a combination of levels, with which a VM does not start, crashes or hangs: pairs of knob index and level index.
pub type FatalLevels = Vec<(usize, usize)>;

/// The question that a search answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// Seed of the order of trials and of all random choices.
    pub seed: u64,
    /// Name of the quantity to improve.
    pub objective: String,
    /// Constraints: quantities that must not become worse.
    pub guards: Vec<Margin>,
    /// Parameters to change.
    pub knobs: Vec<Knob>,
    /// Advice of the rules.
    pub advice: Vec<AdvisedLevel>,
    /// Levels, and combinations of levels, that are never tried.
    pub fatal: Vec<FatalLevels>,
    /// Total number of trials to run.
    pub trials: usize,
}

/// Advice to set a knob to a level.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AdvisedLevel {
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
pub enum TuningOutcome {
    /// A setting was shown to be better.
    Found,
    /// None of the tried settings is believed to be better.
    NothingBetter,
    /// The confirmation trials did not show that any finalist is better without violating a constraint.
    NotConfirmed,
    /// The A/A test found a difference between the unchanged target and itself, which is a false positive.
    MethodFindsWhatIsNot,
    /// Too many trials are invalid.
    TooManyInvalid,
    /// The unchanged target does not work.
    Fails {
        /// What happened.
        why: String,
    },
    /// Too few trials for a conclusion.
    TooFewTrials {
        /// Minimum number of trials needed for a conclusion.
        #[serde(rename = "least")]
        min_trials: usize,
    },
}

/// Result of a search.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TuningVerdict {
    /// How the search ended; `None` while it is running.
    pub ending: Option<TuningOutcome>,
    /// Finalists, the most promising first, with the results of their confirmation trials.
    pub finalists: Vec<Finalist>,
    /// Index of the winning finalist, if any.
    pub winner: Option<usize>,
    /// Parts of the winning setting.
    pub parts: Vec<SettingPart>,
    /// The recommended level of each knob; empty if nothing is recommended.
    pub point: Vec<usize>,
    /// Flags of the recommended setting.
    pub flags: Vec<String>,
    /// Effect of the recommended setting in the confirmation trials; `None` if exactly this setting was not tried, or not often enough.
    pub gain: Option<SettingEffect>,
    /// One entry per level. A level that is fatal to the VM has no trials.
    pub levels: Vec<LevelResult>,
    /// Indexes of the Pareto-optimal trials of the search, with respect to CPU per response, p99 and resident memory.
    #[serde(rename = "front")]
    pub pareto_front: Vec<usize>,
}

/// Effect of a setting compared with the unchanged target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SettingEffect {
    /// Ratio of the objective.
    pub ratio: Ratio,
    /// Number of pairs of confirmation trials.
    pub pairs: usize,
    /// Whether the same trials were used to select the setting, so that the effect tends to be overestimated.
    #[serde(rename = "has_chosen_it")]
    pub selected_by_same_trials: bool,
    /// Prediction interval for the ratio in a replication of this comparison.
    #[serde(rename = "again")]
    pub repeat_interval: Ratio,
    /// Number of pairs that the prediction interval assumes for the replication.
    pub again_pairs: usize,
    /// Constraints: whether each of these quantities became worse.
    pub guards: Vec<GuardVerdict>,
}

/// Results of a search for one level of a knob.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LevelResult {
    /// Index of the knob.
    pub knob: usize,
    /// Index of the level.
    pub level: usize,
    /// Number of valid trials with this level.
    pub trials: usize,
    /// Number of trials in which the target failed.
    pub failed: usize,
    /// Estimated effect of the level alone, with its credible interval; `None` without valid trials.
    pub effect: Option<Ratio>,
    /// Probability that this level violates no constraint.
    pub within_guards: f64,
    /// Whether the level is never tried, because a VM does not start with it.
    pub is_fatal: bool,
}

/// A setting that was tried in confirmation trials.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finalist {
    /// The level of each knob.
    pub point: Vec<usize>,
    /// Ratio of the objective to that of the unchanged target; `None` while there are too few blocks.
    pub ratio: Option<Ratio>,
    /// p-value: probability of a difference at least as large if the setting has no effect.
    pub p: Option<f64>,
    /// Whether it is significantly better, corrected for multiple comparisons.
    pub is_better: bool,
    /// Constraints that it violates.
    pub broken: Vec<String>,
}

/// A part of the winning setting: one knob at its level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SettingPart {
    /// Index of the knob.
    pub knob: usize,
    /// Index of the level.
    pub level: usize,
    /// Ratio of the objective to that of the setting without this part; `None` if this was not tried, or not often enough.
    pub ratio: Option<Ratio>,
    /// Whether the part helps.
    #[serde(rename = "pays")]
    pub verdict: PartVerdict,
}

/// Whether a part of a setting helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartVerdict {
    /// Shown to help.
    Yes,
    /// Shown not to improve the objective by one percent or more.
    No,
    /// Undecided.
    Unknown,
}
