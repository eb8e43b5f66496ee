//! What a search for a setting asks, and what it has found out.

use serde::{Deserialize, Serialize};

use super::{GuardVerdict, Margin, Ratio};

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

/// Levels, each with its knob's place, with which a VM does not start, crashes or hangs: one alone, or together.
pub type Fatal = Vec<(usize, usize)>;

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
    /// What is never tried.
    pub fatal: Vec<Fatal>,
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
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TuningVerdict {
    /// How it ended; `None` while it goes on.
    pub ending: Option<Ending>,
    /// Finalists, best belief first, with what fresh trials say of each.
    pub finalists: Vec<Finalist>,
    /// The place of the finalist that has won.
    pub winner: Option<usize>,
    /// The parts of the winner.
    pub parts: Vec<Part>,
    /// The setting that is advised in the end; empty where none is.
    pub point: Vec<usize>,
    /// Its flags.
    pub flags: Vec<String>,
    /// What it does, on fresh trials; `None` where it was not tried as it is advised, or too seldom.
    pub gain: Option<Gain>,
    /// What the search has learnt of each level that it tried, and of those that are never tried.
    pub levels: Vec<Learnt>,
    /// Places of the search's trials to which no other one is better in CPU per answer, p99 and resident memory at once.
    pub front: Vec<usize>,
}

/// What a setting does beside the target as it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gain {
    /// The objective's ratio.
    pub ratio: Ratio,
    /// From so many pairs of fresh trials.
    pub pairs: usize,
    /// Whether they are those that have chosen it: then it is rather told too large.
    pub has_chosen_it: bool,
    /// Where the ratio of another comparison should lie …
    pub again: Ratio,
    /// … of so many pairs.
    pub again_pairs: usize,
    /// What must not become worse.
    pub guards: Vec<GuardVerdict>,
}

/// What a search has learnt of a level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Learnt {
    /// Which knob, by its place.
    pub knob: usize,
    /// Its level.
    pub level: usize,
    /// Trials of the search with it that count.
    pub trials: usize,
    /// Those in which the target did not work.
    pub failed: usize,
    /// What it is believed to do alone, with the interval of that belief; `None` where no trial counts.
    pub effect: Option<Ratio>,
    /// Probability that it keeps all guards.
    pub within_guards: f64,
    /// Whether it is never tried, since a VM does not start with it.
    pub is_fatal: bool,
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
