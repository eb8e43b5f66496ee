//! Which setting is best: searched, confirmed on fresh trials, and rid of what does not pay.
//!
//! The stages follow each other, each a function of the trials that have ended, so a study that was broken off goes on as it would have
//! gone:
//!
//! 1. *Same*: the target against itself, as in a [comparison](crate::compare). It says how much trials differ, and stops where the
//!    machine changes while it is measured.
//! 2. *Search*: single trials, what the rules advise first ([`search`]). They decide nothing but which settings are worth more: the best of
//!    many noisy trials looks better than it is.
//! 3. *Confirm*: blocks of the target as it is and of up to two finalists, judged together (Holm). A finalist that breaks a guard is none.
//! 4. *Back out*: blocks of the target as it is, the winner, and the winner without each of its parts. A part that is shown not to pay is
//!    left out in the end; what cannot be told is kept and said to be so.

use std::cell::OnceCell;

use beamtune_model::study::{
    Advised, Arm, CPU_PER_REQUEST, ERRORS, Ending, Finalist, Gain, Learnt, Margin, Measures, Order, P99,
    Part, Pays, Phase, Quantity, RSS, Ratio, Trial, TrialOutcome, Tuning, TuningVerdict,
};
use beamtune_stats::gaussian::Guess;
use beamtune_stats::paired::{again, effect, p_value};
use beamtune_stats::sequential;
use beamtune_stats::{SD_OF_MAD, median};

use crate::blocks::{self, Blocks, LEAST_SAME_PAIRS, Same, differences, limit, more_is_better, worse};
use crate::compare::{guard, ratio};
use crate::knobs;
use crate::search::{self, Advice, Limit, Outcome, Problem};
use crate::space::Point;

/// Share of all trials that confirm.
const CONFIRM_SHARE: f64 = 0.3;
/// Share of all trials that back out what does not pay.
const BACK_OUT_SHARE: f64 = 0.25;
/// Finalists at most.
const MOST_FINALISTS: usize = 2;
/// Fewest blocks of which ranks show a difference of each of two finalists at 5 % (Holm: at 2.5 %, of seven).
const LEAST_CONFIRM_BLOCKS: usize = 8;
/// Fewest blocks of which ranks give an interval of 95 %.
const LEAST_BACK_OUT_BLOCKS: usize = 6;
/// Trials that take a setting of two parts apart: those of one part need none, and what people tune is seldom a single flag.
const LEAST_BACK_OUT: usize = LEAST_BACK_OUT_BLOCKS * 4;
/// Parts that are left out one by one, at most.
const MOST_BACKED_OUT: usize = 4;
/// Fewest trials of a search: the target as it is, and a few others.
const LEAST_SEARCH: usize = 6;
/// Trials that do not count are made up for by so many more, as a share of their phase: each takes a whole block with it, and of too few
/// blocks nothing is shown.
const SLACK: f64 = 0.25;
/// Level of all finalists together.
const LEVEL: f64 = 0.05;
/// What makes less than this much of a difference does not pay: one percent.
const PAYS: f64 = 0.01;
/// Noise of a trial is not taken for less than this (a few pairs may agree by chance).
const LEAST_NOISE_SD: f64 = 0.005;

/// By how much the time may be exceeded if without that nothing could be concluded.
const OVERRUN: f64 = 1.25;

/// So many pairs has the first look of a comparison, which is what another run is held against.
const AGAIN_PAIRS: usize = 8;
/// A belief's interval of 95 %, in standard deviations.
const BELIEF_SDS: f64 = 1.96;
/// What people weigh against each other.
const FRONT: [Quantity; 3] = [CPU_PER_REQUEST, P99, RSS];

/// How many trials each stage has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stages {
    /// Of the target against itself, at least.
    pub same: usize,
    /// Of the search.
    pub search: usize,
    /// That confirm.
    pub confirm: usize,
    /// That back out.
    pub back_out: usize,
}

impl Stages {
    /// Divides trials among the stages; an error says how many would be needed at least.
    pub fn divide(trials: usize) -> Result<Stages, usize> {
        Stages::of(trials).ok_or_else(Stages::least)
    }

    fn of(trials: usize) -> Option<Stages> {
        let share = |share: f64| (trials as f64 * share) as usize;
        let same = 2 * LEAST_SAME_PAIRS;
        let confirm = share(CONFIRM_SHARE).max(LEAST_CONFIRM_BLOCKS * 2);
        let back_out = share(BACK_OUT_SHARE).max(LEAST_BACK_OUT);
        let search = trials.checked_sub(same + confirm + back_out)?;
        (search >= LEAST_SEARCH).then_some(Stages { same, search, confirm, back_out })
    }

    /// Fewest trials that can show anything.
    pub fn least() -> usize {
        // The larger the number, the more is left for the search, so there is one.
        (1..).find(|trials| Stages::of(*trials).is_some()).unwrap_or(usize::MAX)
    }
}

/// What the margin of errors is to the model of the search, which thinks of effects of some percent: as much as 5 % of anything else. A
/// margin of a tenth of a percent would lie within what it expects of any flag that it has not seen.
const ERRORS_LIKE: f64 = 0.05;

/// By what a guard's values and its margin are multiplied for the model.
fn scale(margin: &Margin) -> f64 {
    if margin.quantity == ERRORS.name { ERRORS_LIKE / limit(margin) } else { 1.0 }
}

/// How many trials there is time for: planned ones, until it is known from the first trials how long they take. Where that is too little
/// for anything to be concluded, and by not more than [`OVERRUN`], as many as are needed.
pub fn within(budget_s: f64, planned: usize, trials: &[Trial]) -> usize {
    let same = trials.iter().filter(|trial| trial.order.phase == Phase::Same);
    let same: Vec<f64> = same.map(|trial| trial.took_s).collect();
    let Some(first) = same.get(..2 * LEAST_SAME_PAIRS) else { return planned };
    let Some(took_s) = median(first).filter(|took_s| *took_s > 0.0) else { return planned };
    let left_s = budget_s - first.iter().sum::<f64>();
    let fit = first.len() + (left_s.max(0.0) / took_s) as usize;
    let least = Stages::least();
    if fit < least && least as f64 * took_s <= budget_s * OVERRUN { least } else { fit }
}

/// The objective of the search's last trial and of its best one, as ratios to the median of the target as it is. Single trials decide
/// nothing; they tell whoever waits how it goes.
pub fn so_far(objective: &str, trials: &[Trial]) -> Option<(f64, f64)> {
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

/// What is to be done now.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// This trial.
    Run(Order),
    /// Nothing more.
    Done(Ending),
}

/// What is to be done now.
pub fn next(tuning: &Tuning, trials: &[Trial]) -> Next {
    let stages = match Stages::divide(tuning.trials) {
        Ok(stages) => stages,
        Err(least) => return Next::Done(Ending::TooFewTrials { least }),
    };
    Study::new(tuning, stages, trials).next()
}

/// What the trials say.
pub fn judge(tuning: &Tuning, trials: &[Trial]) -> TuningVerdict {
    let stages = match Stages::divide(tuning.trials) {
        Ok(stages) => stages,
        Err(least) => {
            let ending = Some(Ending::TooFewTrials { least });
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
    verdict.levels = study.learnt();
    verdict.front = front(trials);
    if study.of_phase(Phase::Confirm) > 0 {
        verdict.finalists = study.confirmed();
    }
    if let Some(winner) = study.winner(&verdict.finalists) {
        verdict.winner = verdict.finalists.iter().position(|finalist| finalist.point == winner.point);
        verdict.point.clone_from(&winner.point);
        verdict.parts = study.parts(&winner.point);
        let left_out = verdict.parts.iter().filter(|part| part.pays == Pays::No).map(|part| part.knob);
        let left_out: Vec<usize> = left_out.collect();
        verdict.gain = study.gain(&left_out);
        for knob in left_out {
            if let Some(level) = verdict.point.get_mut(knob) {
                *level = 0;
            }
        }
        // More trials may show what fewer did not.
        let guards = verdict.gain.iter().flat_map(|gain| &gain.guards);
        if verdict.ending == Some(Ending::Found) && guards.into_iter().any(|guard| guard.verdict == "broken")
        {
            verdict.ending = Some(Ending::NotConfirmed);
            verdict.point = vec![0; verdict.point.len()];
        }
    }
    verdict.flags = knobs::flags(&tuning.knobs, &verdict.point);
    verdict
}

/// The trials of a search to which no other one is better in CPU per answer, p99 and resident memory at once, by their places.
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
    /// What the search has found, which takes a model of all its trials.
    finalists: OnceCell<Vec<Point>>,
}

impl<'t> Study<'t> {
    fn new(tuning: &'t Tuning, stages: Stages, trials: &'t [Trial]) -> Self {
        let blocks = Blocks::of(trials, &tuning.objective);
        Study { tuning, stages, trials, blocks, finalists: OnceCell::new() }
    }

    fn next(&self) -> Next {
        if let Some((phase, number)) = self.blocks.open(|phase| self.labels(phase)) {
            return self.run(phase, number);
        }
        let same = self.trials.iter().filter(|trial| trial.order.phase == Phase::Same);
        if let Some((_, why)) = blocks::fails(same) {
            return Next::Done(Ending::Fails { why });
        }
        if self.blocks.too_many_void() {
            return Next::Done(Ending::TooManyInvalid);
        }
        match Same::of(LEAST_SAME_PAIRS, &self.blocks.differences(Phase::Same, (0, 1))) {
            Same::NeedsMore => return self.run(Phase::Same, self.blocks.next_number()),
            Same::Differs => return Next::Done(Ending::MethodFindsWhatIsNot),
            Same::None => {}
        }
        if self.searches()
            && let Some(point) = self.next_point()
        {
            return Next::Run(self.order(Phase::Search, self.blocks.next_number(), 0, point));
        }
        if self.finalists().is_empty() {
            return Next::Done(Ending::NothingBetter);
        }
        if self.goes_on(Phase::Confirm, self.stages.confirm) {
            return self.run(Phase::Confirm, self.blocks.next_number());
        }
        let confirmed = self.confirmed();
        let Some(winner) = self.winner(&confirmed) else { return Next::Done(Ending::NotConfirmed) };
        if self.set(&winner.point).len() > 1 && self.goes_on(Phase::BackOut, self.stages.back_out) {
            return self.run(Phase::BackOut, self.blocks.next_number());
        }
        Next::Done(Ending::Found)
    }

    /// Trials of a phase, those that do not count too: they take time as well.
    fn of_phase(&self, phase: Phase) -> usize {
        self.trials.iter().filter(|trial| trial.order.phase == phase).count()
    }

    /// Whether the search goes on: as [`Study::goes_on`] for single trials.
    fn searches(&self) -> bool {
        let (counted, all) = (self.outcomes().len(), self.of_phase(Phase::Search));
        counted < self.stages.search && (all as f64) < self.stages.search as f64 * (1.0 + SLACK)
    }

    /// Whether another block of a phase is to be run: until there are as many that count as fit into its trials. Those that do not count
    /// are made up for, up to a [share](SLACK) more.
    fn goes_on(&self, phase: Phase, trials: usize) -> bool {
        let labels = self.labels(phase) as usize;
        let counted = labels * self.blocks.pairs(phase, (0, 1)).len();
        let all = self.of_phase(phase) + labels;
        counted + labels <= trials && all as f64 <= trials as f64 * (1.0 + SLACK)
    }

    /// Trials of one block.
    fn labels(&self, phase: Phase) -> u32 {
        match phase {
            Phase::Same | Phase::Pair => 2,
            Phase::Search => 1,
            Phase::Confirm => 1 + self.finalists().len() as u32,
            Phase::BackOut => 2 + self.left_out().len() as u32,
        }
    }

    fn run(&self, phase: Phase, number: u32) -> Next {
        let label = self.blocks.next_label(self.tuning.seed, number, self.labels(phase));
        let default = vec![0; self.tuning.knobs.len()];
        let place = (label as usize).checked_sub(1);
        let point = match (phase, place) {
            (Phase::Confirm, Some(place)) => self.finalists().get(place).cloned().unwrap_or(default),
            (Phase::BackOut, Some(place)) => {
                let mut point = self.winner_point();
                let without = place.checked_sub(1).and_then(|place| self.left_out().get(place).copied());
                if let Some(level) = without.and_then(|knob| point.get_mut(knob)) {
                    *level = 0;
                }
                point
            }
            _ => default,
        };
        Next::Run(self.order(phase, number, label, point))
    }

    fn order(&self, phase: Phase, block: u32, label: u32, point: Point) -> Order {
        let flags = knobs::flags(&self.tuning.knobs, &point);
        let name = if flags.is_empty() { "as it is".to_owned() } else { flags.join(" ") };
        Order { phase, block, label, arm: Arm { name, flags, ..Arm::default() }, point }
    }

    /// The question of the search, with the noise that the target has beside itself.
    fn problem(&self) -> Problem {
        let pairs = self.blocks.pairs(Phase::Same, (0, 1));
        let noise_sd = |quantity: &str| {
            let distances: Vec<f64> =
                differences(&pairs, quantity).iter().map(|difference| difference.abs()).collect();
            // The difference of two trials has the noise of both.
            let sd = median(&distances).unwrap_or(0.0) * SD_OF_MAD / std::f64::consts::SQRT_2;
            sd.max(if quantity == ERRORS.name { LEAST_NOISE_SD / 100.0 } else { LEAST_NOISE_SD })
        };
        let limit = |margin: &Margin| Limit {
            most: scale(margin) * limit(margin),
            noise_sd: scale(margin) * noise_sd(&margin.quantity),
        };
        let advice = |advised: &Advised| Advice {
            parameter: advised.knob,
            level: advised.level,
            effect: advised.effect,
        };
        Problem {
            space: knobs::space(&self.tuning.knobs),
            advice: self.tuning.advice.iter().map(advice).collect(),
            noise_sd: noise_sd(&self.tuning.objective),
            limits: self.tuning.guards.iter().map(limit).collect(),
            most_set: self.most_parts(),
            fatal: self.tuning.fatal.clone(),
        }
    }

    /// What each trial of the search has shown, beside the target as it is.
    fn outcomes(&self) -> Vec<Outcome> {
        let reference = self.reference();
        let values = |measures: &Measures| {
            let mut values = worse(&[(&reference, measures)], &self.tuning.objective);
            values.truncate(1);
            values.extend(self.tuning.guards.iter().map(|margin| {
                // What was not measured is not known to be worse.
                let found = worse(&[(&reference, measures)], &margin.quantity).pop().unwrap_or(0.0);
                scale(margin) * found
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

    /// The target as it is: medians of all that was measured of it against itself.
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
            // As many as there are enough blocks for.
            let most =
                (self.stages.confirm / LEAST_CONFIRM_BLOCKS).saturating_sub(1).clamp(1, MOST_FINALISTS);
            let beliefs = search::finalists(&self.problem(), &self.outcomes(), most);
            let is_set = |point: &Point| point.iter().any(|level| *level > 0);
            beliefs.into_iter().map(|belief| belief.point).filter(is_set).collect()
        })
    }

    fn confirmed(&self) -> Vec<Finalist> {
        let objective = &self.tuning.objective;
        let sign = if more_is_better(objective) { -1.0 } else { 1.0 };
        let judged: Vec<Finalist> = self
            .finalists()
            .iter()
            .cloned()
            .enumerate()
            .map(|(place, point)| {
                let pairs = self.blocks.pairs(Phase::Confirm, (0, place as u32 + 1));
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

    /// The best finalist that is shown to be better and breaks no guard.
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

    /// The knobs that a point sets.
    fn set(&self, point: &[usize]) -> Vec<usize> {
        (0..point.len()).filter(|knob| point.get(*knob).is_some_and(|level| *level > 0)).collect()
    }

    /// How many parts a setting may have: as many as can be left out one by one in the trials that there are for it.
    fn most_parts(&self) -> usize {
        (self.stages.back_out / LEAST_BACK_OUT_BLOCKS).saturating_sub(2).clamp(1, MOST_BACKED_OUT)
    }

    /// The parts of the winner, which are left out one by one.
    fn left_out(&self) -> Vec<usize> {
        self.set(&self.winner_point())
    }

    /// What each part of the winner does.
    fn parts(&self, winner: &[usize]) -> Vec<Part> {
        let set = self.set(winner);
        let alone = set.len() == 1;
        let part = |(place, knob): (usize, usize)| {
            let level = winner.get(knob).copied().unwrap_or(0);
            let pairs = match alone {
                // Of a single one all has been confirmed.
                true => self.winner_pairs(),
                false => self.blocks.pairs(Phase::BackOut, (place as u32 + 2, 1)),
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
                        () if worst < 0.0 => Pays::Yes,
                        () if best > -PAYS => Pays::No,
                        () => Pays::Unknown,
                    }
                }
                None => Pays::Unknown,
            };
            Part { knob, level, ratio: found.map(ratio), pays }
        };
        set.into_iter().enumerate().map(part).collect()
    }

    /// What the setting that is left does, if these knobs of the winner are left out in the end. Of one, that was tried. Told from trials
    /// that have not chosen it, where there are enough of them.
    fn gain(&self, left_out: &[usize]) -> Option<Gain> {
        let backed_out = |place: usize| self.blocks.pairs(Phase::BackOut, (0, place as u32 + 1));
        let fresh = match left_out {
            [] => backed_out(0),
            [knob] => backed_out(1 + self.left_out().iter().position(|other| other == knob)?),
            _ => return None,
        };
        let has_chosen_it = left_out.is_empty() && fresh.len() < LEAST_BACK_OUT_BLOCKS;
        let pairs = if has_chosen_it { self.winner_pairs() } else { fresh };
        let found = effect(&differences(&pairs, &self.tuning.objective), 1.0 - LEVEL)?;
        let again = again(found, pairs.len(), AGAIN_PAIRS);
        Some(Gain {
            ratio: ratio(found),
            pairs: pairs.len(),
            has_chosen_it,
            again: ratio(again),
            again_pairs: AGAIN_PAIRS,
            guards: self.tuning.guards.iter().map(|margin| guard(margin, &pairs)).collect(),
        })
    }

    /// What the search has learnt of each level.
    fn learnt(&self) -> Vec<Learnt> {
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
                learnt.push(Learnt {
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
            let Guess { mean, sd } = belief.objective;
            let ends = [sign * mean - BELIEF_SDS * sd, sign * mean + BELIEF_SDS * sd];
            let believed = Ratio {
                estimate: (sign * mean).exp(),
                low: ends[0].exp(),
                high: ends[1].exp(),
                confidence: 1.0 - LEVEL,
            };
            learnt.effect = (learnt.trials > 0).then_some(believed);
            learnt.within_guards = belief.within_limits;
        }
        learnt.retain(|learnt| learnt.trials > 0 || learnt.failed > 0 || learnt.is_fatal);
        learnt
    }

    /// The winner beside the target as it is, on fresh trials.
    fn winner_pairs(&self) -> Vec<(&Measures, &Measures)> {
        let winner = self.winner_point();
        let place = self.finalists().iter().position(|point| *point == winner).unwrap_or(0);
        self.blocks.pairs(Phase::Confirm, (0, place as u32 + 1))
    }
}

#[cfg(test)]
mod tests;
