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
    Answer, ERRORS, GuardVerdict, InvalidKind, Margin, Measures, Order, Phase, QUANTITIES, QuantityEffect,
    Question, Ratio, Trial, TrialOutcome, Verdict,
};
use beamtune_stats::median;
use beamtune_stats::paired::{Effect, effect};
use beamtune_stats::sequential::{self, Decision, Plan};

pub use crate::blocks::LEAST_SAME_PAIRS;
use crate::blocks::{self, Blocks, Same, differences, limit, more_is_better, noise, worse};

/// A block has one trial of each of two settings.
const LABELS: u32 = 2;

/// Power with which the smallest effect that can be told is to be found (Bloom, Evaluation Review 19 (1995) 547, and by convention).
const POWER: f64 = 0.8;
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

pub(crate) fn ratio(effect: Effect) -> Ratio {
    Ratio {
        estimate: effect.estimate.exp(),
        low: effect.low.exp(),
        high: effect.high.exp(),
        confidence: effect.confidence,
    }
}

/// What is to be done now.
pub fn next(question: &Question, trials: &[Trial]) -> Next {
    let blocks = Blocks::of(trials, &question.objective);
    let run = |phase, number| {
        let label = blocks.next_label(question.seed, number, LABELS);
        let arm = if phase == Phase::Pair && label == 1 { &question.b } else { &question.a };
        Next::Run(Order { phase, block: number, label, arm: arm.clone(), point: Vec::new() })
    };
    if let Some((phase, number)) = blocks.open(|_| LABELS) {
        return run(phase, number);
    }
    match answer(question, trials, &blocks, decide(question, &blocks)) {
        Answer::Open => {
            let phase = match Same::of(same_pairs(question), &blocks.differences(Phase::Same, (0, 1))) {
                Same::NeedsMore => Phase::Same,
                Same::None | Same::Differs => Phase::Pair,
            };
            run(phase, blocks.next_number())
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

fn answer(question: &Question, trials: &[Trial], blocks: &Blocks<'_>, decided: Option<Decision>) -> Answer {
    if let Some((arm, why)) = blocks::fails(trials) {
        return Answer::Fails { arm, why };
    }
    if blocks.too_many_void() {
        return Answer::TooManyInvalid;
    }
    match Same::of(same_pairs(question), &blocks.differences(Phase::Same, (0, 1))) {
        Same::NeedsMore => return Answer::Open,
        Same::Differs => return Answer::MethodFindsWhatIsNot,
        Same::None => {}
    }
    match decided {
        Some(Decision::More(_)) => Answer::Open,
        Some(Decision::Same(_)) => Answer::Same,
        Some(Decision::Undecided(_)) | None => Answer::Undecided,
        Some(Decision::TooSmall(_)) => Answer::BelowDetectable,
        Some(Decision::Differs(found)) => match (found.estimate > 0.0) == more_is_better(&question.objective)
        {
            true => Answer::Better,
            false => Answer::Worse,
        },
    }
}

/// What the pairs say, where a difference that is smaller than what they can tell is none. `None` if there is no time for any look.
fn decide(question: &Question, blocks: &Blocks<'_>) -> Option<Decision> {
    let plan = plan(question)?;
    let [same, pairs] = [Phase::Same, Phase::Pair].map(|phase| blocks.differences(phase, (0, 1)));
    let least = |seen: &[f64]| plan.detectable(&noise(&same, seen), POWER, question.seed).unwrap_or(0.0);
    plan.decide(&pairs, least)
}

/// What the trials say.
pub fn judge(question: &Question, trials: &[Trial]) -> Verdict {
    let blocks = Blocks::of(trials, &question.objective);
    let same = blocks.differences(Phase::Same, (0, 1));
    let pairs = blocks.pairs(Phase::Pair, (0, 1));
    let decided = decide(question, &blocks);
    let noise = noise(&same, &differences(&pairs, &question.objective));
    let detectable = plan(question)
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
        answer: answer(question, trials, &blocks, decided),
        same: effect(&same, 0.95).map(ratio),
        same_pairs: same.len(),
        detectable,
        pairs: pairs.len(),
        effects: effects(question, decided, &pairs),
        guards: question.guards.iter().map(|margin| guard(margin, &pairs)).collect(),
        invalid,
        failed,
    }
}

fn effects(
    question: &Question,
    decided: Option<Decision>,
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
    names.into_iter().filter_map(|name| one_effect(question, decided, pairs, name)).collect()
}

fn one_effect(
    question: &Question,
    decided: Option<Decision>,
    pairs: &[(&Measures, &Measures)],
    quantity: String,
) -> Option<QuantityEffect> {
    let (a, b): (Vec<f64>, Vec<f64>) =
        pairs.iter().filter_map(|(a, b)| a.get(&quantity).zip(b.get(&quantity))).unzip();
    let found = if quantity == ERRORS.name {
        None
    } else {
        // What decides has the interval of the look that did.
        let decided = decided.filter(|_| quantity == question.objective).and_then(Decision::effect);
        decided.or_else(|| effect(&differences(pairs, &quantity), 0.95))
    };
    Some(QuantityEffect { a: median(&a)?, b: median(&b)?, ratio: found.map(ratio), quantity })
}

pub(crate) fn guard(margin: &Margin, pairs: &[(&Measures, &Measures)]) -> GuardVerdict {
    let values = worse(pairs, &margin.quantity);
    let verdict = match sequential::guard(&values, limit(margin), GUARD_LEVEL) {
        _ if values.is_empty() && !pairs.is_empty() => "not_measured",
        sequential::Guard::Kept => "kept",
        sequential::Guard::Broken => "broken",
        sequential::Guard::Unknown => "unknown",
    };
    GuardVerdict { margin: margin.clone(), verdict }
}

#[cfg(test)]
mod tests;
