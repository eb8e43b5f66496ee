//! Finds the best setting: searches, confirms on fresh trials, and removes parts without a worthwhile gain.
//!
//! There are four stages. All decisions depend only on the trials that have ended, so a study can be interrupted and continued:
//!
//! 1. *Same*: runs the unchanged target against itself, as in a [comparison](crate::compare). This stage measures the noise of trials,
//!    and ends the study if equal settings differ, for example because the host changes meanwhile.
//! 2. *Search*: runs single trials, starting with the advice from the rules ([`search`]). They only select finalists, because the best of
//!    many noisy trials looks better than it is.
//! 3. *Confirm*: runs blocks of the unchanged target and up to two finalists, which are tested together (Holm). A finalist that violates a
//!    constraint is rejected.
//! 4. *Back out*: runs blocks of the unchanged target, the winner, and the winner without each of its parts. A part whose gain is shown
//!    to be negligible is removed; an undecided part is kept and marked as undecided.

use std::cell::OnceCell;

use beamtune_model::study::{
    AdvisedLevel, Arm, CPU_PER_REQUEST, ERRORS, Finalist, LevelResult, Margin, Measures, P99, PartVerdict,
    Phase, Quantity, RSS, Ratio, SettingEffect, SettingPart, Trial, TrialOrder, TrialOutcome, Tuning,
    TuningOutcome, TuningVerdict,
};
use beamtune_stats::gaussian::Prediction;
use beamtune_stats::paired::{effect, p_value, predict_repetition};
use beamtune_stats::sequential;
use beamtune_stats::{SD_OF_MAD, median};

use crate::blocks::{
    self, Blocks, MIN_SAME_PAIRS, SelfComparison, differences, limit, more_is_better, worse,
};
use crate::compare::{guard, ratio};
use crate::knobs;
use crate::search::{self, Advice, Limit, Outcome, Problem};
use crate::space::Point;

/// Share of all trials for the confirmation.
const CONFIRM_SHARE: f64 = 0.3;
/// Share of all trials for the back-out.
const BACK_OUT_SHARE: f64 = 0.25;
/// Maximum number of finalists.
const MAX_FINALISTS: usize = 2;
/// Minimum number of blocks of the confirmation. Rank tests of two finalists at 5 % (by Holm, the first at 2.5 %) need seven.
const MIN_CONFIRM_BLOCKS: usize = 8;
/// Minimum number of blocks of the back-out: rank tests have no 95 % interval with fewer.
const MIN_BACK_OUT_BLOCKS: usize = 6;
/// Minimum number of trials of the back-out, which suffices for a setting of two parts. A setting of one part needs none, but most tuned
/// settings have several parts.
const MIN_BACK_OUT_TRIALS: usize = MIN_BACK_OUT_BLOCKS * 4;
/// Maximum number of parts that are removed one by one.
const MAX_PARTS: usize = 4;
/// Minimum number of trials of the search: the unchanged target and a few candidates.
const MIN_SEARCH_TRIALS: usize = 6;
/// Maximum number of extra trials that replace invalid trials, as a share of the trials of the phase. Each invalid trial voids a whole
/// block, and with too few blocks nothing is significant.
const REPLACEMENT_SHARE: f64 = 0.25;
/// Family-wise level of the tests of all finalists.
const LEVEL: f64 = 0.05;
/// Minimum gain of a part that is worthwhile: one percent.
const MIN_GAIN: f64 = 0.01;
/// Lower bound of the estimated noise of a trial (a few pairs may agree by chance).
const MIN_NOISE_SD: f64 = 0.005;

/// Maximum duration of a study, as a multiple of its time budget, if the budget is too short for any conclusion.
const MAX_OVERRUN: f64 = 1.25;

/// Number of pairs of a repetition for which an effect is predicted: that of the first look of a comparison.
const REPETITION_PAIRS: usize = 8;
/// Half-width of a 95 % interval, in standard deviations.
const BELIEF_SDS: f64 = 1.96;
/// The quantities of the Pareto front.
const FRONT: [Quantity; 3] = [CPU_PER_REQUEST, P99, RSS];

/// Number of trials of each stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stages {
    /// Minimum number of trials of the target against itself.
    pub same: usize,
    /// Number of trials of the search.
    pub search: usize,
    /// Number of trials of the confirmation.
    pub confirm: usize,
    /// Number of trials of the back-out.
    pub back_out: usize,
}

impl Stages {
    /// Divides trials among the stages. The error is the minimum number of trials.
    pub fn divide(trials: usize) -> Result<Stages, usize> {
        Stages::try_divide(trials).ok_or_else(Stages::min_trials)
    }

    fn try_divide(trials: usize) -> Option<Stages> {
        let share = |share: f64| (trials as f64 * share) as usize;
        let same = 2 * MIN_SAME_PAIRS;
        let confirm = share(CONFIRM_SHARE).max(MIN_CONFIRM_BLOCKS * 2);
        let back_out = share(BACK_OUT_SHARE).max(MIN_BACK_OUT_TRIALS);
        let search = trials.checked_sub(same + confirm + back_out)?;
        (search >= MIN_SEARCH_TRIALS).then_some(Stages { same, search, confirm, back_out })
    }

    /// Returns the minimum number of trials of a study.
    pub fn min_trials() -> usize {
        // This terminates, because the trials of the search grow with the total number.
        (1..).find(|trials| Stages::try_divide(*trials).is_some()).unwrap_or(usize::MAX)
    }
}

/// The value to which the margin of errors is scaled for the model of the search. The priors of the model are effects of several percent:
/// any untried flag would be expected to exceed a margin of 0.1 %.
const ERRORS_EQUIVALENT: f64 = 0.05;

/// Returns the factor by which values and margin of a constraint are scaled for the model of the search.
fn guard_scale(margin: &Margin) -> f64 {
    if margin.quantity == ERRORS.name { ERRORS_EQUIVALENT / limit(margin) } else { 1.0 }
}

/// Returns the number of trials for which there is time. Until the first trials have shown the duration of a trial, this is the planned
/// number. If there is time for fewer trials than the minimum, but the minimum takes at most [`MAX_OVERRUN`] times the budget, it is the
/// minimum.
pub fn within(budget_s: f64, planned: usize, trials: &[Trial]) -> usize {
    let same = trials.iter().filter(|trial| trial.order.phase == Phase::Same);
    let same: Vec<f64> = same.map(|trial| trial.took_s).collect();
    let Some(first) = same.get(..2 * MIN_SAME_PAIRS) else { return planned };
    let Some(took_s) = median(first).filter(|took_s| *took_s > 0.0) else { return planned };
    let left_s = budget_s - first.iter().sum::<f64>();
    let fit = first.len() + (left_s.max(0.0) / took_s) as usize;
    let min = Stages::min_trials();
    if fit < min && min as f64 * took_s <= budget_s * MAX_OVERRUN { min } else { fit }
}

/// Returns the progress of the search, for display: the objective of the last and of the best trial, as ratios to the median of the
/// unchanged target. Single trials do not affect the verdict.
pub fn progress(objective: &str, trials: &[Trial]) -> Option<(f64, f64)> {
    let values = |phase: Phase| {
        let of_phase = trials.iter().filter(move |trial| trial.order.phase == phase);
        of_phase.filter_map(|trial| match &trial.outcome {
            TrialOutcome::Valid { measures } => measures.get(objective),
            _ => None,
        })
    };
    let reference = median(&values(Phase::Same).collect::<Vec<f64>>())?;
    let ratios: Vec<f64> = values(Phase::Search).map(|value| value / reference).collect();
    let best = ratios.iter().copied().reduce(if more_is_better(objective) { f64::max } else { f64::min })?;
    Some((*ratios.last()?, best))
}

/// The next step of a study.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Run this trial.
    Run(TrialOrder),
    /// The study has ended.
    Done(TuningOutcome),
}

/// Returns the next step, given the trials that have ended.
pub fn next(tuning: &Tuning, trials: &[Trial]) -> Next {
    let stages = match Stages::divide(tuning.trials) {
        Ok(stages) => stages,
        Err(least) => return Next::Done(TuningOutcome::TooFewTrials { min_trials: least }),
    };
    Study::new(tuning, stages, trials).next()
}

/// Returns the verdict, given the trials that have ended.
pub fn judge(tuning: &Tuning, trials: &[Trial]) -> TuningVerdict {
    let stages = match Stages::divide(tuning.trials) {
        Ok(stages) => stages,
        Err(least) => {
            let ending = Some(TuningOutcome::TooFewTrials { min_trials: least });
            return TuningVerdict { ending, ..TuningVerdict::default() };
        }
    };
    let study = Study::new(tuning, stages, trials);
    let mut verdict = TuningVerdict {
        ending: match study.next() {
            Next::Run(_) => None,
            Next::Done(ending) => Some(ending),
        },
        ..TuningVerdict::default()
    };
    verdict.levels = study.learnt_levels();
    verdict.pareto_front = front(trials);
    if study.count_trials(Phase::Confirm) > 0 {
        verdict.finalists = study.confirmed();
    }
    if let Some(winner) = study.winner(&verdict.finalists) {
        verdict.winner = verdict.finalists.iter().position(|finalist| finalist.point == winner.point);
        verdict.point.clone_from(&winner.point);
        verdict.parts = study.parts(&winner.point);
        let removed =
            verdict.parts.iter().filter(|part| part.verdict == PartVerdict::No).map(|part| part.knob);
        let removed: Vec<usize> = removed.collect();
        verdict.gain = study.gain(&removed);
        for knob in removed {
            if let Some(level) = verdict.point.get_mut(knob) {
                *level = 0;
            }
        }
        // The trials of the back-out may show a violated constraint that the confirmation did not show.
        let guards = verdict.gain.iter().flat_map(|gain| &gain.guards);
        if verdict.ending == Some(TuningOutcome::Found)
            && guards.into_iter().any(|guard| guard.verdict == "broken")
        {
            verdict.ending = Some(TuningOutcome::NotConfirmed);
            verdict.point = vec![0; verdict.point.len()];
        }
    }
    verdict.flags = knobs::flags(&tuning.knobs, &verdict.point);
    verdict
}

/// Returns the Pareto front of the search for CPU per answer, p99 and resident memory, as indices of trials.
fn front(trials: &[Trial]) -> Vec<usize> {
    let values = |trial: &Trial| match &trial.outcome {
        TrialOutcome::Valid { measures } if trial.order.phase == Phase::Search => {
            FRONT.iter().map(|quantity| measures.get(quantity.name)).collect::<Option<Vec<f64>>>()
        }
        _ => None,
    };
    let points: Vec<(usize, Vec<f64>)> =
        trials.iter().enumerate().filter_map(|(at, trial)| Some((at, values(trial)?))).collect();
    let is_beaten = |one: &[f64]| {
        points.iter().any(|(_, other)| other.iter().zip(one).all(|(other, one)| other <= one) && other != one)
    };
    points.iter().filter(|(_, one)| !is_beaten(one)).map(|(at, _)| *at).collect()
}

struct Study<'t> {
    tuning: &'t Tuning,
    stages: Stages,
    trials: &'t [Trial],
    blocks: Blocks<'t>,
    /// The finalists. They are cached, because they are computed from a model of all trials of the search.
    finalists: OnceCell<Vec<Point>>,
}

impl<'t> Study<'t> {
    fn new(tuning: &'t Tuning, stages: Stages, trials: &'t [Trial]) -> Self {
        let blocks = Blocks::new(trials, &tuning.objective);
        Study { tuning, stages, trials, blocks, finalists: OnceCell::new() }
    }

    fn next(&self) -> Next {
        if let Some((phase, number)) = self.blocks.incomplete(|phase| self.labels(phase)) {
            return self.run(phase, number);
        }
        let same = self.trials.iter().filter(|trial| trial.order.phase == Phase::Same);
        if let Some((_, why)) = blocks::failing_setting(same) {
            return Next::Done(TuningOutcome::Fails { why });
        }
        if self.blocks.has_too_many_void_blocks() {
            return Next::Done(TuningOutcome::TooManyInvalid);
        }
        match SelfComparison::judge(MIN_SAME_PAIRS, &self.blocks.differences(Phase::Same, (0, 1))) {
            SelfComparison::NeedsMore => return self.run(Phase::Same, self.blocks.next_number()),
            SelfComparison::Failed => return Next::Done(TuningOutcome::MethodFindsWhatIsNot),
            SelfComparison::Passed => {}
        }
        if self.search_continues()
            && let Some(point) = self.next_point()
        {
            return Next::Run(self.order(Phase::Search, self.blocks.next_number(), 0, point));
        }
        if self.finalists().is_empty() {
            return Next::Done(TuningOutcome::NothingBetter);
        }
        if self.phase_continues(Phase::Confirm, self.stages.confirm) {
            return self.run(Phase::Confirm, self.blocks.next_number());
        }
        let confirmed = self.confirmed();
        let Some(winner) = self.winner(&confirmed) else { return Next::Done(TuningOutcome::NotConfirmed) };
        if self.set_knobs(&winner.point).len() > 1
            && self.phase_continues(Phase::BackOut, self.stages.back_out)
        {
            return self.run(Phase::BackOut, self.blocks.next_number());
        }
        Next::Done(TuningOutcome::Found)
    }

    /// Returns the number of trials of a phase, including invalid ones, which take time, too.
    fn count_trials(&self, phase: Phase) -> usize {
        self.trials.iter().filter(|trial| trial.order.phase == phase).count()
    }

    /// Whether another trial of the search is to be run, as [`Study::phase_continues`] for blocks.
    fn search_continues(&self) -> bool {
        let (counted, all) = (self.outcomes().len(), self.count_trials(Phase::Search));
        counted < self.stages.search && (all as f64) < self.stages.search as f64 * (1.0 + REPLACEMENT_SHARE)
    }

    /// Whether another block of a phase is to be run, because the valid blocks have fewer trials than planned. Void blocks are replaced
    /// by at most [`REPLACEMENT_SHARE`] more trials.
    fn phase_continues(&self, phase: Phase, trials: usize) -> bool {
        let labels = self.labels(phase) as usize;
        let counted = labels * self.blocks.pairs(phase, (0, 1)).len();
        let all = self.count_trials(phase) + labels;
        counted + labels <= trials && all as f64 <= trials as f64 * (1.0 + REPLACEMENT_SHARE)
    }

    /// Returns the number of trials in a block of a phase.
    fn labels(&self, phase: Phase) -> u32 {
        match phase {
            Phase::Same | Phase::Pair => 2,
            Phase::Search => 1,
            Phase::Confirm => 1 + self.finalists().len() as u32,
            Phase::BackOut => 2 + self.winner_parts().len() as u32,
        }
    }

    /// Returns the next trial of a block. Label 0 is the unchanged target.
    fn run(&self, phase: Phase, number: u32) -> Next {
        let label = self.blocks.next_label(self.tuning.seed, number, self.labels(phase));
        let default = vec![0; self.tuning.knobs.len()];
        let index = (label as usize).checked_sub(1);
        let point = match (phase, index) {
            (Phase::Confirm, Some(index)) => self.finalists().get(index).cloned().unwrap_or(default),
            (Phase::BackOut, Some(index)) => {
                let mut point = self.winner_point();
                let removed = index.checked_sub(1).and_then(|index| self.winner_parts().get(index).copied());
                if let Some(level) = removed.and_then(|knob| point.get_mut(knob)) {
                    *level = 0;
                }
                point
            }
            _ => default,
        };
        Next::Run(self.order(phase, number, label, point))
    }

    fn order(&self, phase: Phase, block: u32, label: u32, point: Point) -> TrialOrder {
        let flags = knobs::flags(&self.tuning.knobs, &point);
        let name = if flags.is_empty() { "unchanged".to_owned() } else { flags.join(" ") };
        TrialOrder { phase, block, label, arm: Arm { name, flags, ..Arm::default() }, point }
    }

    /// Returns the problem of the search. The noise is that of the target against itself.
    fn problem(&self) -> Problem {
        let pairs = self.blocks.pairs(Phase::Same, (0, 1));
        let noise_sd = |quantity: &str| {
            let distances: Vec<f64> =
                differences(&pairs, quantity).iter().map(|difference| difference.abs()).collect();
            // The difference of two trials has the noise of both.
            let sd = median(&distances).unwrap_or(0.0) * SD_OF_MAD / std::f64::consts::SQRT_2;
            sd.max(if quantity == ERRORS.name { MIN_NOISE_SD / 100.0 } else { MIN_NOISE_SD })
        };
        let limit = |margin: &Margin| Limit {
            max: guard_scale(margin) * limit(margin),
            noise_sd: guard_scale(margin) * noise_sd(&margin.quantity),
        };
        let advice = |advised: &AdvisedLevel| Advice {
            parameter: advised.knob,
            level: advised.level,
            effect: advised.effect,
        };
        Problem {
            space: knobs::space(&self.tuning.knobs),
            advice: self.tuning.advice.iter().map(advice).collect(),
            noise_sd: noise_sd(&self.tuning.objective),
            limits: self.tuning.guards.iter().map(limit).collect(),
            max_set: self.max_parts(),
            fatal: self.tuning.fatal.clone(),
        }
    }

    /// Returns the outcomes of the trials of the search, relative to the unchanged target.
    fn outcomes(&self) -> Vec<Outcome> {
        let reference = self.reference();
        let values = |measures: &Measures| {
            let mut values = worse(&[(&reference, measures)], &self.tuning.objective);
            values.truncate(1);
            values.extend(self.tuning.guards.iter().map(|margin| {
                // A quantity that was not measured is treated as unchanged.
                let found = worse(&[(&reference, measures)], &margin.quantity).pop().unwrap_or(0.0);
                guard_scale(margin) * found
            }));
            (values.len() > self.tuning.guards.len()).then_some(values)
        };
        let outcome = |trial: &Trial| match &trial.outcome {
            TrialOutcome::Valid { measures } => {
                Some(Outcome { point: trial.order.point.clone(), values: Some(values(measures)?) })
            }
            TrialOutcome::Failed { .. } => Some(Outcome { point: trial.order.point.clone(), values: None }),
            TrialOutcome::Invalid { .. } => None,
        };
        self.trials.iter().filter(|trial| trial.order.phase == Phase::Search).filter_map(outcome).collect()
    }

    /// Returns the measures of the unchanged target: medians over its trials against itself.
    fn reference(&self) -> Measures {
        let pairs = self.blocks.pairs(Phase::Same, (0, 1));
        let all: Vec<&Measures> = pairs.iter().flat_map(|(a, b)| [*a, *b]).collect();
        let mut reference = Measures::default();
        for (name, _) in all.iter().flat_map(|measures| measures.iter()) {
            if reference.get(name).is_none() {
                let values: Vec<f64> = all.iter().filter_map(|measures| measures.get(name)).collect();
                reference.set(name, median(&values).unwrap_or(f64::NAN));
            }
        }
        reference
    }

    fn next_point(&self) -> Option<Point> {
        search::next(&self.problem(), &self.outcomes(), self.tuning.seed)
    }

    fn finalists(&self) -> &[Point] {
        self.finalists.get_or_init(|| {
            // The number of finalists is limited by the number of blocks.
            let max = (self.stages.confirm / MIN_CONFIRM_BLOCKS).saturating_sub(1).clamp(1, MAX_FINALISTS);
            let beliefs = search::finalists(&self.problem(), &self.outcomes(), max);
            let is_set = |point: &Point| point.iter().any(|level| *level > 0);
            beliefs.into_iter().map(|belief| belief.point).filter(is_set).collect()
        })
    }

    /// Returns the finalists with their results on fresh trials.
    fn confirmed(&self) -> Vec<Finalist> {
        let objective = &self.tuning.objective;
        let sign = if more_is_better(objective) { -1.0 } else { 1.0 };
        let judged: Vec<Finalist> = self
            .finalists()
            .iter()
            .cloned()
            .enumerate()
            .map(|(index, point)| {
                let pairs = self.blocks.pairs(Phase::Confirm, (0, index as u32 + 1));
                let found = differences(&pairs, objective);
                let broken =
                    self.tuning.guards.iter().filter(|margin| guard(margin, &pairs).verdict == "broken");
                Finalist {
                    point,
                    ratio: effect(&found, 1.0 - LEVEL).map(ratio),
                    p: p_value(&found),
                    is_better: median(&found).is_some_and(|middle| sign * middle < 0.0),
                    broken: broken.map(|margin| margin.quantity.clone()).collect(),
                }
            })
            .collect();
        let p_values: Vec<f64> = judged.iter().map(|finalist| finalist.p.unwrap_or(1.0)).collect();
        let significant = sequential::holm(&p_values, LEVEL);
        judged
            .into_iter()
            .zip(significant)
            .map(|(finalist, significant)| Finalist {
                is_better: finalist.is_better && significant,
                ..finalist
            })
            .collect()
    }

    /// Returns the best finalist that is significantly better and violates no constraint.
    fn winner<'f>(&self, finalists: &'f [Finalist]) -> Option<&'f Finalist> {
        let objective = &self.tuning.objective;
        let gain = |finalist: &Finalist| {
            let ratio = finalist.ratio.map_or(1.0, |ratio| ratio.estimate);
            if more_is_better(objective) { -ratio } else { ratio }
        };
        let kept = finalists.iter().filter(|finalist| finalist.is_better && finalist.broken.is_empty());
        kept.min_by(|a, b| gain(a).total_cmp(&gain(b)))
    }

    fn winner_point(&self) -> Point {
        let confirmed = self.confirmed();
        let default = || vec![0; self.tuning.knobs.len()];
        self.winner(&confirmed).map_or_else(default, |winner| winner.point.clone())
    }

    /// Returns the knobs that a point sets.
    fn set_knobs(&self, point: &[usize]) -> Vec<usize> {
        (0..point.len()).filter(|knob| point.get(*knob).is_some_and(|level| *level > 0)).collect()
    }

    /// Returns the maximum number of parts of a setting, which is limited by the trials of the back-out.
    fn max_parts(&self) -> usize {
        (self.stages.back_out / MIN_BACK_OUT_BLOCKS).saturating_sub(2).clamp(1, MAX_PARTS)
    }

    /// Returns the knobs that the winner sets; the back-out removes them one by one.
    fn winner_parts(&self) -> Vec<usize> {
        self.set_knobs(&self.winner_point())
    }

    /// Returns the effect of each part of the winner.
    fn parts(&self, winner: &[usize]) -> Vec<SettingPart> {
        let set = self.set_knobs(winner);
        let is_single = set.len() == 1;
        let part = |(index, knob): (usize, usize)| {
            let level = winner.get(knob).copied().unwrap_or(0);
            let pairs = match is_single {
                // The confirmation has already measured the effect of a single part.
                true => self.winner_pairs(),
                false => self.blocks.pairs(Phase::BackOut, (index as u32 + 2, 1)),
            };
            let found = effect(&differences(&pairs, &self.tuning.objective), 1.0 - LEVEL);
            let sign = if more_is_better(&self.tuning.objective) { -1.0 } else { 1.0 };
            let pays = match found {
                Some(found) => {
                    let (best, worst) = match sign > 0.0 {
                        true => (found.low, found.high),
                        false => (-found.high, -found.low),
                    };
                    match () {
                        () if worst < 0.0 => PartVerdict::Yes,
                        () if best > -MIN_GAIN => PartVerdict::No,
                        () => PartVerdict::Unknown,
                    }
                }
                None => PartVerdict::Unknown,
            };
            SettingPart { knob, level, ratio: found.map(ratio), verdict: pays }
        };
        set.into_iter().enumerate().map(part).collect()
    }

    /// Returns the gain of the winner without the `removed` knobs; `None` if there are several, because that setting was not tried. The
    /// gain is measured on the trials of the back-out, which were not used to select the winner, if there are enough of them.
    fn gain(&self, removed: &[usize]) -> Option<SettingEffect> {
        let backed_out = |index: usize| self.blocks.pairs(Phase::BackOut, (0, index as u32 + 1));
        let fresh = match removed {
            [] => backed_out(0),
            [knob] => backed_out(1 + self.winner_parts().iter().position(|other| other == knob)?),
            _ => return None,
        };
        let has_chosen_it = removed.is_empty() && fresh.len() < MIN_BACK_OUT_BLOCKS;
        let pairs = if has_chosen_it { self.winner_pairs() } else { fresh };
        let found = effect(&differences(&pairs, &self.tuning.objective), 1.0 - LEVEL)?;
        Some(SettingEffect {
            ratio: ratio(found),
            pairs: pairs.len(),
            selected_by_same_trials: has_chosen_it,
            repeat_interval: ratio(predict_repetition(found, pairs.len(), REPETITION_PAIRS)),
            again_pairs: REPETITION_PAIRS,
            guards: self.tuning.guards.iter().map(|margin| guard(margin, &pairs)).collect(),
        })
    }

    /// Returns the results of the search for each level.
    fn learnt_levels(&self) -> Vec<LevelResult> {
        let (problem, outcomes) = (self.problem(), self.outcomes());
        let mut learnt = Vec::new();
        let mut points = Vec::new();
        for (at, knob) in self.tuning.knobs.iter().enumerate() {
            for level in 1..knob.levels.len() {
                let with = || outcomes.iter().filter(|outcome| outcome.point.get(at) == Some(&level));
                let failed = with().filter(|outcome| outcome.values.is_none()).count();
                let mut point = problem.space.default_point();
                point[at] = level;
                points.push(point);
                learnt.push(LevelResult {
                    knob: at,
                    level,
                    trials: with().count() - failed,
                    failed,
                    effect: None,
                    within_guards: 0.0,
                    is_fatal: self.tuning.fatal.contains(&vec![(at, level)]),
                });
            }
        }
        let sign = if more_is_better(&self.tuning.objective) { -1.0 } else { 1.0 };
        for (learnt, belief) in learnt.iter_mut().zip(search::believe(&problem, &outcomes, &points)) {
            let Prediction { mean, sd } = belief.objective;
            let ends = [sign * mean - BELIEF_SDS * sd, sign * mean + BELIEF_SDS * sd];
            let predicted = Ratio {
                estimate: (sign * mean).exp(),
                low: ends[0].exp(),
                high: ends[1].exp(),
                confidence: 1.0 - LEVEL,
            };
            learnt.effect = (learnt.trials > 0).then_some(predicted);
            learnt.within_guards = belief.within_limits;
        }
        learnt.retain(|learnt| learnt.trials > 0 || learnt.failed > 0 || learnt.is_fatal);
        learnt
    }

    /// Returns the pairs of the unchanged target and the winner in the confirmation.
    fn winner_pairs(&self) -> Vec<(&Measures, &Measures)> {
        let winner = self.winner_point();
        let index = self.finalists().iter().position(|point| *point == winner).unwrap_or(0);
        self.blocks.pairs(Phase::Confirm, (0, index as u32 + 1))
    }
}

#[cfg(test)]
mod tests;
