//! Trials that are compared with each other: blocks, what of them counts, and what the pairs in them say.
//!
//! A block holds one trial of each setting that it compares, in random order, so that what drifts is in all of them. If one of its trials
//! does not count, the block is void and is run again as a whole.

use std::collections::BTreeMap;

use beamtune_model::study::{ERRORS, Margin, Measures, Phase, Quantity, Trial, TrialOutcome};
use beamtune_stats::median;
use beamtune_stats::paired::effect;

/// Fewest pairs of equal settings: with fewer, ranks give no interval of 95 %.
pub const LEAST_SAME_PAIRS: usize = 6;
/// Where A differs from itself so clearly, as many pairs again are asked (of six pairs: all differ in one direction, which chance does
/// in 3 % of the cases) …
const SAME_LEVEL: f64 = 0.05;
/// … and if then A still differs from itself at this level, it is not chance.
const SAME_LEVEL_AGAIN: f64 = 0.01;
/// A setting that has failed so often does not work.
const MOST_FAILURES: usize = 2;
/// So many blocks may be void before it matters …
const VOID_BLOCKS: usize = 4;
/// … and then this share of all of them: a third.
const VOID_SHARE: f64 = 1.0 / 3.0;

/// Trials of one block, by label.
struct Block<'t> {
    phase: Phase,
    number: u32,
    trials: BTreeMap<u32, &'t Trial>,
}

/// All blocks of a study, in the order in which they were begun.
pub(crate) struct Blocks<'t> {
    blocks: Vec<Block<'t>>,
    /// Name of the quantity without which a trial does not count.
    objective: &'t str,
}

impl<'t> Blocks<'t> {
    pub(crate) fn of(trials: &'t [Trial], objective: &'t str) -> Self {
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

    fn measured(&self, block: &Block<'t>, label: u32) -> Option<&'t Measures> {
        match &block.trials.get(&label)?.outcome {
            TrialOutcome::Valid { measures } if measures.get(self.objective).is_some() => Some(measures),
            _ => None,
        }
    }

    /// Whether what is there of a block counts so far.
    fn counts(&self, block: &Block<'t>) -> bool {
        block.trials.keys().all(|label| self.measured(block, *label).is_some())
    }

    /// The last block, if it counts so far and has fewer trials than blocks of its phase have: it is run to its end.
    pub(crate) fn open(&self, labels: impl Fn(Phase) -> u32) -> Option<(Phase, u32)> {
        let last = self.blocks.last().filter(|last| self.counts(last))?;
        (last.trials.len() < labels(last.phase) as usize).then_some((last.phase, last.number))
    }

    /// The number of a new block.
    pub(crate) fn next_number(&self) -> u32 {
        self.blocks.last().map_or(0, |last| last.number + 1)
    }

    /// Which of so many labels is next in a block: their order is drawn.
    pub(crate) fn next_label(&self, seed: u64, number: u32, labels: u32) -> u32 {
        // Neighbouring blocks must not get alike seeds.
        let mixed = seed ^ (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut order: Vec<u32> = (0..labels).collect();
        fastrand::Rng::with_seed(mixed).shuffle(&mut order);
        let block = self.blocks.iter().find(|block| block.number == number);
        let is_there = |label: &u32| block.is_some_and(|block| block.trials.contains_key(label));
        order.into_iter().find(|label| !is_there(label)).unwrap_or(0)
    }

    /// What two labels measured in each block of a phase that has both.
    pub(crate) fn pairs(&self, phase: Phase, labels: (u32, u32)) -> Vec<(&'t Measures, &'t Measures)> {
        let of_phase = self.blocks.iter().filter(|block| block.phase == phase && self.counts(block));
        of_phase
            .filter_map(|block| self.measured(block, labels.0).zip(self.measured(block, labels.1)))
            .collect()
    }

    /// How the second label differs from the first in what decides.
    pub(crate) fn differences(&self, phase: Phase, labels: (u32, u32)) -> Vec<f64> {
        differences(&self.pairs(phase, labels), self.objective)
    }

    /// Whether so many blocks are void that nothing should be concluded.
    pub(crate) fn too_many_void(&self) -> bool {
        // A setting that fails is a result.
        let is_spoilt = |trial: &&Trial| match &trial.outcome {
            TrialOutcome::Valid { measures } => measures.get(self.objective).is_none(),
            TrialOutcome::Invalid { .. } => true,
            TrialOutcome::Failed { .. } => false,
        };
        let is_void = |block: &&Block<'t>| block.trials.values().copied().any(|trial| is_spoilt(&trial));
        let void = self.blocks.iter().filter(is_void).count();
        void > VOID_BLOCKS && void as f64 > VOID_SHARE * self.blocks.len() as f64
    }
}

/// Differences of a quantity, one per pair that has it: logarithms of ratios; of errors, differences of shares.
pub(crate) fn differences(pairs: &[(&Measures, &Measures)], quantity: &str) -> Vec<f64> {
    let difference = |a: f64, b: f64| match quantity == ERRORS.name {
        true => Some(b - a),
        false => (a > 0.0 && b > 0.0).then(|| (b / a).ln()),
    };
    pairs.iter().filter_map(|(a, b)| difference(a.get(quantity)?, b.get(quantity)?)).collect()
}

/// By how much the second of each pair is worse, so that less is better for every quantity.
pub(crate) fn worse(pairs: &[(&Measures, &Measures)], quantity: &str) -> Vec<f64> {
    let sign = if more_is_better(quantity) { -1.0 } else { 1.0 };
    differences(pairs, quantity).into_iter().map(|difference| sign * difference).collect()
}

/// How much [`worse`] a margin lets something become.
pub(crate) fn limit(margin: &Margin) -> f64 {
    match (margin.quantity == ERRORS.name, more_is_better(&margin.quantity)) {
        (true, _) => margin.most,
        (false, false) => margin.most.ln_1p(),
        (false, true) => -(-margin.most).ln_1p(),
    }
}

/// Whether more of a quantity is better.
pub(crate) fn more_is_better(quantity: &str) -> bool {
    Quantity::find(quantity).is_some_and(|quantity| quantity.more_is_better)
}

/// A setting that has failed too often, with what happened.
pub(crate) fn fails<'t>(trials: impl IntoIterator<Item = &'t Trial>) -> Option<(String, String)> {
    let mut failures: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for trial in trials {
        if let TrialOutcome::Failed { why } = &trial.outcome {
            failures.entry(&trial.order.arm.name).or_default().push(why);
        }
    }
    let (arm, whys) = failures.into_iter().find(|(_, whys)| whys.len() >= MOST_FAILURES)?;
    Some((arm.to_owned(), whys.last()?.to_string()))
}

/// How pairs differ where there is no effect: those of a setting with itself, and others without their own effect.
pub(crate) fn noise(same: &[f64], others: &[f64]) -> Vec<f64> {
    let centred = |values: &[f64]| {
        let middle = median(values).unwrap_or(0.0);
        values.iter().map(|value| value - middle).collect::<Vec<f64>>()
    };
    [centred(same), centred(others)].concat()
}

/// What A against itself has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Same {
    /// More pairs are needed.
    NeedsMore,
    /// No difference, as it must be.
    None,
    /// One where there cannot be any.
    Differs,
}

impl Same {
    /// From pairs of which at first so many are asked.
    pub(crate) fn of(first: usize, differences: &[f64]) -> Same {
        let differs = |pairs: &[f64], level: f64| {
            effect(pairs, 1.0 - level).is_some_and(|found| found.low > 0.0 || found.high < 0.0)
        };
        match (differences.get(..first), differences.get(..2 * first)) {
            (None, _) => Same::NeedsMore,
            (Some(first), _) if !differs(first, SAME_LEVEL) => Same::None,
            (_, None) => Same::NeedsMore,
            (_, Some(all)) if differs(all, SAME_LEVEL_AGAIN) => Same::Differs,
            (_, Some(_)) => Same::None,
        }
    }
}
