//! Groups trials into blocks, and returns the pairs of trials to compare.
//!
//! A block contains one trial of each setting to compare, in random order, so that drift affects all settings equally. If a trial is
//! invalid, its block is void and the whole block is run again.

use std::collections::BTreeMap;

use beamtune_model::study::{ERRORS, Margin, Measures, Phase, Quantity, Trial, TrialOutcome};
use beamtune_stats::median;
use beamtune_stats::paired::effect;

/// Minimum number of pairs of A with itself. With fewer pairs, a rank test has no 95 % interval.
pub const MIN_SAME_PAIRS: usize = 6;
/// Level of the first test of A against itself. If the two differ, the number of pairs is doubled. (Six pairs differ at this level only
/// if all differ in the same direction, which happens at random in 3 % of the cases.)
const SAME_LEVEL: f64 = 0.05;
/// Level of the second test of A against itself, with twice as many pairs. If the two still differ, this is not chance.
const SECOND_SAME_LEVEL: f64 = 0.01;
/// Number of failed trials after which a setting is considered not to work.
const MAX_FAILURES: usize = 2;
/// Maximum number of void blocks that is accepted in any study.
const TOLERATED_VOID_BLOCKS: usize = 4;
/// Maximum share of void blocks, if there are more than [`TOLERATED_VOID_BLOCKS`].
const MAX_VOID_SHARE: f64 = 1.0 / 3.0;

/// A block, with its trials by label.
struct Block<'t> {
    phase: Phase,
    number: u32,
    trials: BTreeMap<u32, &'t Trial>,
}

/// All blocks of a study, in the order in which they began.
pub(crate) struct Blocks<'t> {
    blocks: Vec<Block<'t>>,
    /// Name of the quantity to optimize. A trial in which it was not measured is invalid.
    objective: &'t str,
}

impl<'t> Blocks<'t> {
    pub(crate) fn new(trials: &'t [Trial], objective: &'t str) -> Self {
        let mut blocks: Vec<Block<'t>> = Vec::new();
        for trial in trials {
            let order = &trial.order;
            let place = blocks.iter().position(|block| block.number == order.block).unwrap_or_else(|| {
                blocks.push(Block { phase: order.phase, number: order.block, trials: BTreeMap::new() });
                blocks.len() - 1
            });
            if let Some(block) = blocks.get_mut(place) {
                block.trials.insert(order.label, trial);
            }
        }
        Blocks { blocks, objective }
    }

    fn measures(&self, block: &Block<'t>, label: u32) -> Option<&'t Measures> {
        match &block.trials.get(&label)?.outcome {
            TrialOutcome::Valid { measures } if measures.get(self.objective).is_some() => Some(measures),
            _ => None,
        }
    }

    /// Whether all trials of a block are valid so far.
    fn is_valid(&self, block: &Block<'t>) -> bool {
        block.trials.keys().all(|label| self.measures(block, *label).is_some())
    }

    /// Returns phase and number of the last block if it is valid and incomplete, and must therefore be completed. `labels` returns the
    /// number of trials in a block of a phase.
    pub(crate) fn incomplete(&self, labels: impl Fn(Phase) -> u32) -> Option<(Phase, u32)> {
        let last = self.blocks.last().filter(|last| self.is_valid(last))?;
        (last.trials.len() < labels(last.phase) as usize).then_some((last.phase, last.number))
    }

    /// Returns the number of a new block.
    pub(crate) fn next_number(&self) -> u32 {
        self.blocks.last().map_or(0, |last| last.number + 1)
    }

    /// Returns the label of the next trial in a block of `labels` trials. The order is random, but determined by seed and block number.
    pub(crate) fn next_label(&self, seed: u64, number: u32, labels: u32) -> u32 {
        // The multiplication makes the seeds of consecutive blocks very different.
        let mixed = seed ^ (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut order: Vec<u32> = (0..labels).collect();
        fastrand::Rng::with_seed(mixed).shuffle(&mut order);
        let block = self.blocks.iter().find(|block| block.number == number);
        let has_run = |label: &u32| block.is_some_and(|block| block.trials.contains_key(label));
        order.into_iter().find(|label| !has_run(label)).unwrap_or(0)
    }

    /// Returns the measures of two labels, one pair per valid block of a phase that has both.
    pub(crate) fn pairs(&self, phase: Phase, labels: (u32, u32)) -> Vec<(&'t Measures, &'t Measures)> {
        let valid = self.blocks.iter().filter(|block| block.phase == phase && self.is_valid(block));
        valid.filter_map(|block| self.measures(block, labels.0).zip(self.measures(block, labels.1))).collect()
    }

    /// Returns the differences of the objective between the second and the first label, one per pair.
    pub(crate) fn differences(&self, phase: Phase, labels: (u32, u32)) -> Vec<f64> {
        differences(&self.pairs(phase, labels), self.objective)
    }

    /// Whether too many blocks are void to conclude anything.
    pub(crate) fn has_too_many_void_blocks(&self) -> bool {
        // A failed trial is a result and not invalid.
        let is_invalid = |trial: &&Trial| match &trial.outcome {
            TrialOutcome::Valid { measures } => measures.get(self.objective).is_none(),
            TrialOutcome::Invalid { .. } => true,
            TrialOutcome::Failed { .. } => false,
        };
        let is_void = |block: &&Block<'t>| block.trials.values().copied().any(|trial| is_invalid(&trial));
        let void = self.blocks.iter().filter(is_void).count();
        void > TOLERATED_VOID_BLOCKS && void as f64 > MAX_VOID_SHARE * self.blocks.len() as f64
    }
}

/// Returns the differences of a quantity, one per pair that has it: logarithms of ratios, but plain differences for shares of errors.
pub(crate) fn differences(pairs: &[(&Measures, &Measures)], quantity: &str) -> Vec<f64> {
    let difference = |a: f64, b: f64| match quantity == ERRORS.name {
        true => Some(b - a),
        false => (a > 0.0 && b > 0.0).then(|| (b / a).ln()),
    };
    pairs.iter().filter_map(|(a, b)| difference(a.get(quantity)?, b.get(quantity)?)).collect()
}

/// Returns [`differences`] with the sign for which positive values are worse, whatever the quantity.
pub(crate) fn worse(pairs: &[(&Measures, &Measures)], quantity: &str) -> Vec<f64> {
    let sign = if more_is_better(quantity) { -1.0 } else { 1.0 };
    differences(pairs, quantity).into_iter().map(|difference| sign * difference).collect()
}

/// Returns the limit of a margin on the scale of [`worse`].
pub(crate) fn limit(margin: &Margin) -> f64 {
    match (margin.quantity == ERRORS.name, more_is_better(&margin.quantity)) {
        (true, _) => margin.max,
        (false, false) => margin.max.ln_1p(),
        (false, true) => -(-margin.max).ln_1p(),
    }
}

/// Whether larger values of a quantity are better.
pub(crate) fn more_is_better(quantity: &str) -> bool {
    Quantity::find(quantity).is_some_and(|quantity| quantity.more_is_better)
}

/// Returns the name of a setting that failed [`MAX_FAILURES`] times, and the reason of its last failure.
pub(crate) fn failing_setting<'t>(trials: impl IntoIterator<Item = &'t Trial>) -> Option<(String, String)> {
    let mut failures: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for trial in trials {
        if let TrialOutcome::Failed { reason: why } = &trial.outcome {
            failures.entry(&trial.order.arm.name).or_default().push(why);
        }
    }
    let (arm, reasons) = failures.into_iter().find(|(_, reasons)| reasons.len() >= MAX_FAILURES)?;
    Some((arm.to_owned(), reasons.last()?.to_string()))
}

/// Returns differences from which the effect was removed, by centring each group at its median. `same` are the differences of a setting
/// from itself, `others` those between two settings.
pub(crate) fn noise(same: &[f64], others: &[f64]) -> Vec<f64> {
    let centred = |values: &[f64]| {
        let middle = median(values).unwrap_or(0.0);
        values.iter().map(|value| value - middle).collect::<Vec<f64>>()
    };
    [centred(same), centred(others)].concat()
}

/// The result of comparing A with itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SelfComparison {
    /// More pairs are needed.
    NeedsMore,
    /// No difference was found.
    Passed,
    /// A false positive: a difference between equal settings was found.
    Failed,
}

impl SelfComparison {
    /// Tests the differences of the first `first` pairs; if these differ, tests twice as many pairs.
    pub(crate) fn judge(first: usize, differences: &[f64]) -> SelfComparison {
        let differs = |pairs: &[f64], level: f64| {
            effect(pairs, 1.0 - level).is_some_and(|found| found.low > 0.0 || found.high < 0.0)
        };
        match (differences.get(..first), differences.get(..2 * first)) {
            (None, _) => SelfComparison::NeedsMore,
            (Some(first), _) if !differs(first, SAME_LEVEL) => SelfComparison::Passed,
            (_, None) => SelfComparison::NeedsMore,
            (_, Some(all)) if differs(all, SECOND_SAME_LEVEL) => SelfComparison::Failed,
            (_, Some(_)) => SelfComparison::Passed,
        }
    }
}
