//! What a search for a setting asks, and what it has found out.

use serde::{Deserialize, Serialize};

use super::{Margin, Ratio};

/// Something to set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knob {
    /// What people call it.
    pub name: String,
    /// Flags of each level, word by word; the first level is the target as it is.
    pub levels: Vec<Vec<String>>,
    /// Whether levels next to each other do nearly the same.
    pub ordered: bool,
}

impl Knob {
    /// What a level is called.
    pub fn level(&self, level: usize) -> String {
        match self.levels.get(level) {
            Some(words) if !words.is_empty() => words.join(" "),
            _ => "as it is".to_owned(),
        }
    }
}

/// What is to be found out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// The seed of every order and choice.
    pub seed: u64,
    /// Name of the quantity that is to become better.
    pub objective: String,
    /// What must not become worse.
    pub guards: Vec<Margin>,
    /// What can be set.
    pub knobs: Vec<Knob>,
    /// What the rules say.
    pub advice: Vec<Advised>,
    /// Trials in all.
    pub trials: usize,
}

/// That a knob should have a level.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advised {
    /// Which knob, by its place.
    pub knob: usize,
    /// Which of its levels.
    pub level: usize,
    /// By how much the objective should change, as the logarithm of a ratio: -0.1 for some 10 % less.
    pub effect: f64,
    /// Who says so.
    pub why: String,
}

/// How it has ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Ending {
    /// A setting is shown to be better.
    Found,
    /// No setting that was tried is believed to be better.
    NothingBetter,
    /// Fresh trials did not show that a finalist is better and keeps its guards.
    NotConfirmed,
    /// The target differs from itself.
    MethodFindsWhatIsNot,
    /// Too many trials do not count.
    TooManyInvalid,
    /// The target does not work as it is.
    Fails {
        /// What happened.
        why: String,
    },
    /// There are too few trials to conclude anything.
    TooFewTrials {
        /// So many would do.
        least: usize,
    },
}

/// What has been found out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TuningVerdict {
    /// How it ended; `None` while it goes on.
    pub ending: Option<Ending>,
    /// Finalists, best belief first, with what fresh trials say of each.
    pub finalists: Vec<Finalist>,
    /// The parts of the winner.
    pub parts: Vec<Part>,
    /// The setting that is advised in the end; empty where none is.
    pub point: Vec<usize>,
    /// Its flags.
    pub flags: Vec<String>,
}

/// A setting that was confirmed, or was not.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finalist {
    /// The setting.
    pub point: Vec<usize>,
    /// The objective beside the target as it is; `None` while there are too few blocks.
    pub ratio: Option<Ratio>,
    /// Probability of such differences where there is none.
    pub p: Option<f64>,
    /// Whether it is better, judged together with the others.
    pub is_better: bool,
    /// Guards that it breaks.
    pub broken: Vec<String>,
}

/// One knob of the winner.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// Which knob, by its place.
    pub knob: usize,
    /// Its level.
    pub level: usize,
    /// The objective with it beside the same without it; `None` where that was not tried, or too seldom.
    pub ratio: Option<Ratio>,
    /// What follows.
    pub pays: Pays,
}

/// Whether a part pays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pays {
    /// It is shown to.
    Yes,
    /// It is shown that it does not, by a percent at least.
    No,
    /// It cannot be told.
    Unknown,
}
