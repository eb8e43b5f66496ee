//! One question: does setting B differ from setting A, and by how much.
//!
//! First A is held against itself: that says what this machine can tell at all, and stops where the method finds a difference
//! without there being one. Then pairs of A and B follow, in random order and each with a fresh VM, until a planned look decides
//! ([`beamtune_stats::sequential`]). A block with a trial that does not count is run again as a whole.
//!
//! [`next`] and [`judge`] are functions of the question and of the trials that have ended, so a comparison that was broken off goes
//! on as it would have gone.

use std::collections::BTreeMap;

use beamtune_model::study::{
    Answer, ERRORS, GuardVerdict, InvalidKind, Margin, Measures, Order, Phase, QUANTITIES, Quantity,
    QuantityEffect, Question, Ratio, Trial, TrialOutcome, Verdict,
};
use beamtune_stats::median;
use beamtune_stats::paired::{Effect, effect};
use beamtune_stats::sequential::{self, Decision, Plan};

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
/// Power with which the smallest effect that can be told is to be found.
const POWER: f64 = 0.9;
/// Level of a guard, one-sided.
const GUARD_LEVEL: f64 = 0.05;

/// What is to be done now.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// This trial.
    Run(Order),
    /// Nothing more.
    Done(Answer),
}

fn ratio(effect: Effect) -> Ratio {
    Ratio {
        estimate: effect.estimate.exp(),
        low: effect.low.exp(),
        high: effect.high.exp(),
        confidence: effect.confidence,
    }
}

/// Trials of one block, by label.
struct Block<'t> {
    phase: Phase,
    number: u32,
    trials: BTreeMap<u32, &'t Trial>,
}

impl<'t> Block<'t> {
    /// What both trials of a pair measured, if both count and have what decides.
    fn pair(&self, objective: &str) -> Option<(&'t Measures, &'t Measures)> {
        let measures = |label: u32| match &self.trials.get(&label)?.outcome {
            TrialOutcome::Valid { measures } if measures.get(objective).is_some() => Some(measures),
            _ => None,
        };
        measures(0).zip(measures(1))
    }

    /// Whether what is there of it counts so far.
    fn counts(&self, objective: &str) -> bool {
        self.trials.values().all(|trial| {
            matches!(&trial.outcome, TrialOutcome::Valid { measures } if measures.get(objective).is_some())
        })
    }
}

fn blocks(trials: &[Trial]) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    for trial in trials {
        let order = &trial.order;
        let place = blocks.iter().position(|block| block.number == order.block).unwrap_or_else(|| {
            blocks.push(Block { phase: order.phase, number: order.block, trials: BTreeMap::new() });
            blocks.len() - 1
        });
        blocks[place].trials.insert(order.label, trial);
    }
    blocks
}

/// What A against itself has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Same {
    /// More pairs are needed.
    NeedsMore,
    /// No difference, as it must be.
    None,
    /// One where there cannot be any.
    Differs,
}

impl Same {
    fn of(question: &Question, differences: &[f64]) -> Same {
        let first = same_pairs(question);
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

/// What is to be done now.
pub fn next(question: &Question, trials: &[Trial]) -> Next {
    let blocks = blocks(trials);
    // A block that counts so far is run to its end.
    if let Some(open) = blocks.last().filter(|last| last.trials.len() < 2 && last.counts(&question.objective))
    {
        let label = (0..2).find(|label| !open.trials.contains_key(label)).unwrap_or(0);
        return Next::Run(order(question, open.phase, open.number, label));
    }
    match answer(question, trials, &blocks) {
        Answer::Open => {
            let same = differences(&of_phase(&blocks, Phase::Same, &question.objective), &question.objective);
            let phase = match Same::of(question, &same) {
                Same::NeedsMore => Phase::Same,
                Same::None | Same::Differs => Phase::Pair,
            };
            let number = blocks.iter().map(|block| block.number + 1).max().unwrap_or(0);
            Next::Run(order(question, phase, number, first_label(question.seed, number)))
        }
        answer => Next::Done(answer),
    }
}

fn same_pairs(question: &Question) -> usize {
    question.same_pairs.max(LEAST_SAME_PAIRS)
}

/// When is looked. `None` if there is no time for any look.
fn plan(question: &Question) -> Option<Plan> {
    Plan::new().within(question.most_pairs)
}

/// Trials that it takes if all of them count: at least, if the first look decides, and at most. `None` if there is no time for any
/// look.
pub fn trials(question: &Question) -> Option<(usize, usize)> {
    let plan = plan(question)?;
    let trials = |pairs: usize| 2 * (same_pairs(question) + pairs);
    Some((trials(plan.looks().first()?.pairs), trials(plan.most_pairs())))
}

/// Which of the two comes first.
fn first_label(seed: u64, block: u32) -> u32 {
    // Neighbouring blocks must not get alike seeds.
    let mixed = seed ^ (u64::from(block) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    u32::from(fastrand::Rng::with_seed(mixed).bool())
}

fn order(question: &Question, phase: Phase, block: u32, label: u32) -> Order {
    let arm = if phase == Phase::Pair && label == 1 { &question.b } else { &question.a };
    Order { phase, block, label, arm: arm.clone() }
}

fn of_phase<'t>(blocks: &[Block<'t>], phase: Phase, objective: &str) -> Vec<(&'t Measures, &'t Measures)> {
    blocks.iter().filter(|block| block.phase == phase).filter_map(|block| block.pair(objective)).collect()
}

/// Differences of a quantity, one per pair that has it: logarithms of ratios; of errors, differences of shares.
fn differences(pairs: &[(&Measures, &Measures)], quantity: &str) -> Vec<f64> {
    let difference = |a: f64, b: f64| match quantity == ERRORS.name {
        true => Some(b - a),
        false => (a > 0.0 && b > 0.0).then(|| (b / a).ln()),
    };
    pairs.iter().filter_map(|(a, b)| difference(a.get(quantity)?, b.get(quantity)?)).collect()
}

fn answer(question: &Question, trials: &[Trial], blocks: &[Block<'_>]) -> Answer {
    if let Some(fails) = fails(trials) {
        return fails;
    }
    let void = blocks.iter().filter(|block| !block.counts(&question.objective)).count();
    if void > VOID_BLOCKS && void as f64 > VOID_SHARE * blocks.len() as f64 {
        return Answer::TooManyInvalid;
    }
    let same = differences(&of_phase(blocks, Phase::Same, &question.objective), &question.objective);
    match Same::of(question, &same) {
        Same::NeedsMore => return Answer::Open,
        Same::Differs => return Answer::MethodFindsWhatIsNot,
        Same::None => {}
    }
    let Some(plan) = plan(question) else { return Answer::Undecided };
    let pairs = differences(&of_phase(blocks, Phase::Pair, &question.objective), &question.objective);
    match plan.decide(&pairs) {
        Some(Decision::More(_)) => Answer::Open,
        Some(Decision::Same(_)) => Answer::Same,
        Some(Decision::Undecided(_)) | None => Answer::Undecided,
        Some(Decision::Differs(found)) => {
            let detectable = plan.detectable(&noise(&same, &pairs), POWER, question.seed);
            let is_more = found.estimate > 0.0;
            let more_is_better = Quantity::find(&question.objective).is_some_and(|it| it.more_is_better);
            match detectable {
                Some(least) if found.estimate.abs() < least => Answer::BelowDetectable,
                _ if is_more == more_is_better => Answer::Better,
                _ => Answer::Worse,
            }
        }
    }
}

/// A setting that has failed too often.
fn fails(trials: &[Trial]) -> Option<Answer> {
    let mut failures: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for trial in trials {
        if let TrialOutcome::Failed { why } = &trial.outcome {
            failures.entry(&trial.order.arm.name).or_default().push(why);
        }
    }
    let (arm, why) = failures.into_iter().find(|(_, whys)| whys.len() >= MOST_FAILURES)?;
    Some(Answer::Fails { arm: arm.to_owned(), why: why.last()?.to_string() })
}

/// How pairs differ where there is no effect: those of A with itself, and the others without their own.
fn noise(same: &[f64], pairs: &[f64]) -> Vec<f64> {
    let centred = |values: &[f64]| {
        let middle = median(values).unwrap_or(0.0);
        values.iter().map(|value| value - middle).collect::<Vec<f64>>()
    };
    [centred(same), centred(pairs)].concat()
}

/// What the trials say.
pub fn judge(question: &Question, trials: &[Trial]) -> Verdict {
    let blocks = blocks(trials);
    let same = differences(&of_phase(&blocks, Phase::Same, &question.objective), &question.objective);
    let pairs = of_phase(&blocks, Phase::Pair, &question.objective);
    let plan = plan(question);
    let noise = noise(&same, &differences(&pairs, &question.objective));
    let detectable = plan
        .as_ref()
        .and_then(|plan| plan.detectable(&noise, POWER, question.seed))
        .map(|least| least.exp() - 1.0);
    let mut invalid = BTreeMap::new();
    let mut failed = 0;
    for trial in trials {
        match &trial.outcome {
            TrialOutcome::Invalid { reasons, .. } => {
                let kind = reasons.first().map_or(InvalidKind::NotMeasured, |reason| reason.kind);
                *invalid.entry(kind).or_insert(0) += 1;
            }
            TrialOutcome::Failed { .. } => failed += 1,
            TrialOutcome::Valid { .. } => {}
        }
    }
    Verdict {
        answer: answer(question, trials, &blocks),
        same: effect(&same, 0.95).map(ratio),
        same_pairs: same.len(),
        detectable,
        pairs: pairs.len(),
        effects: effects(question, plan.as_ref(), &pairs),
        guards: question.guards.iter().map(|margin| guard(margin, &pairs)).collect(),
        invalid,
        failed,
    }
}

fn effects(
    question: &Question,
    plan: Option<&Plan>,
    pairs: &[(&Measures, &Measures)],
) -> Vec<QuantityEffect> {
    let mut names: Vec<String> = Vec::new();
    for quantity in QUANTITIES {
        names.push(quantity.name.to_owned());
        let parts = pairs.iter().flat_map(|(a, _)| a.iter().map(|(name, _)| name));
        let of_it = |name: &&str| name.strip_prefix(quantity.name).is_some_and(|rest| rest.starts_with('/'));
        let mut parts: Vec<String> = parts.filter(of_it).map(str::to_owned).collect();
        parts.sort();
        parts.dedup();
        names.extend(parts);
    }
    names.into_iter().filter_map(|name| one_effect(question, plan, pairs, name)).collect()
}

fn one_effect(
    question: &Question,
    plan: Option<&Plan>,
    pairs: &[(&Measures, &Measures)],
    quantity: String,
) -> Option<QuantityEffect> {
    let (a, b): (Vec<f64>, Vec<f64>) =
        pairs.iter().filter_map(|(a, b)| a.get(&quantity).zip(b.get(&quantity))).unzip();
    let found = if quantity == ERRORS.name {
        None
    } else {
        let differences = differences(pairs, &quantity);
        let decided =
            plan.filter(|_| quantity == question.objective).and_then(|plan| plan.decide(&differences));
        match decided {
            Some(Decision::Differs(found) | Decision::Same(found) | Decision::Undecided(found)) => {
                Some(found)
            }
            Some(Decision::More(_)) | None => effect(&differences, 0.95),
        }
    };
    Some(QuantityEffect { a: median(&a)?, b: median(&b)?, ratio: found.map(ratio), quantity })
}

fn guard(margin: &Margin, pairs: &[(&Measures, &Measures)]) -> GuardVerdict {
    let mut values = differences(pairs, &margin.quantity);
    let is_errors = margin.quantity == ERRORS.name;
    let more_is_better = Quantity::find(&margin.quantity).is_some_and(|it| it.more_is_better);
    let most = match (is_errors, more_is_better) {
        (true, _) => margin.most,
        (false, false) => margin.most.ln_1p(),
        (false, true) => {
            values.iter_mut().for_each(|value| *value = -*value);
            -(-margin.most).ln_1p()
        }
    };
    let verdict = match sequential::guard(&values, most, GUARD_LEVEL) {
        sequential::Guard::Kept => "kept",
        sequential::Guard::Broken => "broken",
        sequential::Guard::Unknown => "unknown",
    };
    GuardVerdict { margin: margin.clone(), verdict }
}

#[cfg(test)]
mod tests;
