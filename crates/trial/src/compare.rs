//! Compares two settings: decides whether B differs from A, and by how much.
//!
//! First, A is compared with itself. This measures the noise of the host, and ends the comparison if a difference between equal settings
//! is found. Then follow pairs of A and B, in random order and each trial with a fresh VM, until a planned look decides
//! ([`beamtune_stats::sequential`]). A block with an invalid trial is run again.
//!
//! The results of [`next`] and [`judge`] depend only on the question and the trials that have ended, so a comparison can be interrupted
//! and continued.

use std::collections::BTreeMap;

use beamtune_model::study::{
    Answer, ERRORS, GuardVerdict, InvalidKind, Margin, Measures, Phase, QUANTITIES, QuantityEffect, Question,
    Ratio, Trial, TrialOrder, TrialOutcome, Verdict,
};
use beamtune_stats::median;
use beamtune_stats::paired::{Effect, effect};
use beamtune_stats::sequential::{self, Decision, Plan};

pub use crate::blocks::MIN_SAME_PAIRS;
use crate::blocks::{self, Blocks, SelfComparison, differences, limit, more_is_better, noise, worse};

/// Number of trials in a block: one of each setting.
const LABELS: u32 = 2;

/// Power at which an effect is called detectable (Bloom, Evaluation Review 19 (1995) 547, and convention).
const POWER: f64 = 0.8;
/// One-sided level of the tests of constraints.
const GUARD_LEVEL: f64 = 0.05;

/// The next step of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Run this trial.
    Run(TrialOrder),
    /// The comparison has ended.
    Done(Answer),
}

/// Converts a difference of logarithms to a ratio.
pub(crate) fn ratio(effect: Effect) -> Ratio {
    Ratio {
        estimate: effect.estimate.exp(),
        low: effect.low.exp(),
        high: effect.high.exp(),
        confidence: effect.confidence,
    }
}

/// Returns the next step, given the trials that have ended.
pub fn next(question: &Question, trials: &[Trial]) -> Next {
    let blocks = Blocks::new(trials, &question.objective);
    let run = |phase, number| {
        let label = blocks.next_label(question.seed, number, LABELS);
        let arm = if phase == Phase::Pair && label == 1 { &question.b } else { &question.a };
        Next::Run(TrialOrder { phase, block: number, label, arm: arm.clone(), point: Vec::new() })
    };
    if let Some((phase, number)) = blocks.incomplete(|_| LABELS) {
        return run(phase, number);
    }
    match answer(question, trials, &blocks, decide(question, &blocks)) {
        Answer::Open => {
            let phase = match compare_with_itself(question, &blocks) {
                SelfComparison::NeedsMore => Phase::Same,
                SelfComparison::Passed | SelfComparison::Failed => Phase::Pair,
            };
            run(phase, blocks.next_number())
        }
        answer => Next::Done(answer),
    }
}

fn same_pairs(question: &Question) -> usize {
    question.same_pairs.max(MIN_SAME_PAIRS)
}

fn compare_with_itself(question: &Question, blocks: &Blocks<'_>) -> SelfComparison {
    SelfComparison::judge(same_pairs(question), &blocks.differences(Phase::Same, (0, 1)))
}

/// Returns the looks for which there is time; `None` if there is no time for any look.
fn plan(question: &Question) -> Option<Plan> {
    Plan::new().within(question.max_pairs)
}

/// Returns the minimum number of trials (if the first look decides) and the maximum number, provided that all trials are valid. `None` if
/// there is no time for any look.
pub fn trials(question: &Question) -> Option<(usize, usize)> {
    let plan = plan(question)?;
    let trials = |pairs: usize| 2 * (same_pairs(question) + pairs);
    Some((trials(plan.looks().first()?.pairs), trials(plan.max_pairs())))
}

fn answer(question: &Question, trials: &[Trial], blocks: &Blocks<'_>, decided: Option<Decision>) -> Answer {
    if let Some((arm, why)) = blocks::failing_setting(trials) {
        return Answer::Fails { arm, why };
    }
    if blocks.has_too_many_void_blocks() {
        return Answer::TooManyInvalid;
    }
    match compare_with_itself(question, blocks) {
        SelfComparison::NeedsMore => return Answer::Open,
        SelfComparison::Failed => return Answer::FalsePositive,
        SelfComparison::Passed => {}
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

/// Decides from the pairs. A difference below the smallest detectable one does not decide. `None` if there is no time for any look.
fn decide(question: &Question, blocks: &Blocks<'_>) -> Option<Decision> {
    let plan = plan(question)?;
    let [same, pairs] = [Phase::Same, Phase::Pair].map(|phase| blocks.differences(phase, (0, 1)));
    let min_detectable =
        |seen: &[f64]| plan.detectable(&noise(&same, seen), POWER, question.seed).unwrap_or(0.0);
    plan.decide(&pairs, min_detectable)
}

/// Returns the verdict, given the trials that have ended.
pub fn judge(question: &Question, trials: &[Trial]) -> Verdict {
    let blocks = Blocks::new(trials, &question.objective);
    let same = blocks.differences(Phase::Same, (0, 1));
    let pairs = blocks.pairs(Phase::Pair, (0, 1));
    let decided = decide(question, &blocks);
    let noise = noise(&same, &differences(&pairs, &question.objective));
    let detectable = plan(question)
        .and_then(|plan| plan.detectable(&noise, POWER, question.seed))
        .map(|size| size.exp() - 1.0);
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

/// Returns the effects on all quantities and on their parts (`cpu-per-request/scheduler`).
fn effects(
    question: &Question,
    decided: Option<Decision>,
    pairs: &[(&Measures, &Measures)],
) -> Vec<QuantityEffect> {
    let mut names: Vec<String> = Vec::new();
    for quantity in QUANTITIES {
        names.push(quantity.name.to_owned());
        let measured = pairs.iter().flat_map(|(a, _)| a.iter().map(|(name, _)| name));
        let is_part =
            |name: &&str| name.strip_prefix(quantity.name).is_some_and(|rest| rest.starts_with('/'));
        let mut parts: Vec<String> = measured.filter(is_part).map(str::to_owned).collect();
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
        // For the objective, this is the interval of the look that decided.
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
