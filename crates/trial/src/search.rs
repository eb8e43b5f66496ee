//! Bayesian optimization: chooses the next candidate and the best candidates after a few noisy trials.
//!
//! The first candidates are the default, each piece of advice from the rules alone, and all advice together. Then a model of the effects
//! of all parameters decides. It is a Gaussian process whose covariance is a sum over parameters and, with less weight, over pairs of
//! parameters (Duvenaud, Nickisch and Rasmussen, Additive Gaussian Processes, NIPS 2011). The prior mean is the effect that the rules
//! expect. The next candidate maximizes the expected improvement times the probability that all limits are kept (Gardner et al.,
//! Bayesian Optimization with Inequality Constraints, ICML 2014). Candidates are ranked by the model and never by their measured values,
//! because the best of many noisy trials looks better than it is.
//!
//! All results depend only on the outcomes and the seed, so a study can be interrupted and continued without affecting its results.

use beamtune_stats::gaussian::{Posterior, Prediction};

use crate::space::{Point, Space};

/// Advice from a rule: a level of a parameter that should reduce the objective.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// Index of the parameter.
    pub parameter: usize,
    /// The advised level.
    pub level: usize,
    /// Expected effect, as the logarithm of a ratio: -0.1 for about 10 % less.
    pub effect: f64,
}

/// An upper limit for a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    /// The limit, as the logarithm of the ratio to the value of the default.
    pub max: f64,
    /// Standard deviation of the measured value in one trial.
    pub noise_sd: f64,
}

/// The problem to optimize.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// The parameters.
    pub space: Space,
    /// The advice from the rules.
    pub advice: Vec<Advice>,
    /// Standard deviation of the measured objective in one trial.
    pub noise_sd: f64,
    /// The limits of the other values.
    pub limits: Vec<Limit>,
    /// Maximum number of parameters that a finalist may set, because the back-out can distinguish only that many.
    pub max_set: usize,
    /// Combinations of (parameter, level) that are never tried.
    pub fatal: Vec<Vec<(usize, usize)>>,
}

impl Problem {
    /// Whether a candidate contains no fatal combination, and sets at most [`EXTRA_PARTS`] parameters more than a finalist may set.
    fn may_be_tried(&self, point: &[usize]) -> bool {
        let set = point.iter().zip(&self.space.parameters).filter(|(level, of)| **level != of.default);
        let has = |(parameter, level): &(usize, usize)| point.get(*parameter) == Some(level);
        set.count() <= self.max_set.saturating_add(EXTRA_PARTS)
            && !self.fatal.iter().any(|levels| levels.iter().all(has))
    }
}

/// The outcome of a trial. Values are logarithms of ratios to the mean of the trials of the default.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The candidate.
    pub point: Point,
    /// The objective (less is better), followed by the values with limits, in the order of [`Problem::limits`]. `None` if the target did
    /// not run until the end of the trial.
    pub values: Option<Vec<f64>>,
}

/// The prediction of the model for a candidate.
#[derive(Debug, Clone, PartialEq)]
pub struct Belief {
    /// The candidate.
    pub point: Point,
    /// The predicted objective.
    pub objective: Prediction,
    /// Probability that all limits are kept.
    pub within_limits: f64,
}

/// Prior standard deviations of the effect of a parameter, as logarithms of ratios. For each of them, a model is fitted and weighted by
/// its likelihood.
const EFFECT_SDS: [f64; 4] = [0.01, 0.025, 0.06, 0.15];
/// Prior variances of the interaction of two parameters, relative to the variance of their single effects.
const PAIR_VARIANCES: [f64; 2] = [0.05, 0.3];
/// Weights of the effect that the rules expect in the prior mean.
const ADVICE_WEIGHTS: [f64; 3] = [0.0, 0.5, 1.0];
/// Prior variance of an advised level relative to other levels, because advised levels have larger effects.
const ADVISED_VARIANCE: f64 = 3.0;

/// Minimum probability that a finalist is better than the default.
const MIN_PROBABILITY_BETTER: f64 = 0.9;
/// Minimum probability that a finalist keeps all limits.
const MIN_PROBABILITY_WITHIN: f64 = 0.8;

/// Minimum predicted effect of a part that is kept, as the logarithm of a ratio. Predictions are shrunk towards 0, so this is less than
/// the smallest worthwhile gain. (The best of 0, 0.4 and 1 percent on the surfaces of `make search`.)
const MIN_EFFECT: f64 = 0.004;
/// Number of parts that a candidate may set in addition to those of a finalist, because the effects of several parts are learnt sooner
/// together. (The best of 0, 2 and 4 on the surfaces of `make search`.)
const EXTRA_PARTS: usize = 2;

/// Number of random candidates per trial, in addition to the neighbours of good points.
const RANDOM_POINTS: usize = 300;
/// Number of candidates per trial that differ from a good point in two parameters.
const PAIRS_OF_CHANGES: usize = 300;
/// Number of good points whose neighbours are candidates.
const MAX_PARENTS: usize = 5;

/// Returns the next candidate to try, determined by outcomes and seed. `None` if no candidate is left.
pub fn next(problem: &Problem, outcomes: &[Outcome], seed: u64) -> Option<Point> {
    let is_new = |point: &Point| outcomes.iter().all(|outcome| outcome.point != *point);
    if let Some(first) = initial_points(problem).into_iter().find(|point| is_new(point)) {
        return Some(first);
    }
    let models = Models::new(problem, outcomes);
    let tried = models.tried();
    let best = best_known(&tried);
    let mut random =
        fastrand::Rng::with_seed(seed ^ (outcomes.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut chosen: Option<(f64, Point)> = None;
    for point in candidates(problem, &models, tried, &mut random).into_iter().filter(is_new) {
        let belief = models.belief(&point);
        let improvement = belief.objective.expected_improvement(best);
        let score = improvement * belief.within_limits * models.run_probability(&point);
        if chosen.as_ref().is_none_or(|(highest, _)| score > *highest) {
            chosen = Some((score, point));
        }
    }
    chosen.map(|(_, point)| point)
}

/// Returns at most `max` points that are probably better than the default and keep the limits, best first. These are the tried points
/// without the parts that have too little effect, and with at most [`Problem::max_set`] parts.
pub fn finalists(problem: &Problem, outcomes: &[Outcome], max: usize) -> Vec<Belief> {
    let models = Models::new(problem, outcomes);
    let pruned = models.tried().into_iter().map(|belief| models.pruned(belief.point));
    let mut beliefs: Vec<Belief> = pruned.collect();
    // Equal points have equal beliefs.
    beliefs.sort_by(|a, b| a.point.cmp(&b.point));
    beliefs.dedup_by(|a, b| a.point == b.point);
    beliefs.retain(|belief| {
        belief.objective.probability_below(0.0) >= MIN_PROBABILITY_BETTER
            && belief.within_limits >= MIN_PROBABILITY_WITHIN
    });
    beliefs.retain(|belief| !models.broken.contains(&&belief.point));
    beliefs.sort_by(|a, b| a.objective.mean.total_cmp(&b.objective.mean));
    beliefs.truncate(max);
    beliefs
}

/// Returns the predictions of the model for these points, in the same order.
pub fn believe(problem: &Problem, outcomes: &[Outcome], points: &[Point]) -> Vec<Belief> {
    let models = Models::new(problem, outcomes);
    points.iter().map(|point| models.belief(point)).collect()
}

/// Returns the points that are tried before the model decides.
fn initial_points(problem: &Problem) -> Vec<Point> {
    let default = problem.space.default_point();
    let with = |mut point: Point, advice: &Advice| {
        if let Some(level) = point.get_mut(advice.parameter) {
            *level = advice.level;
        }
        point
    };
    let mut by_effect: Vec<&Advice> = problem.advice.iter().collect();
    by_effect.sort_by(|a, b| a.effect.total_cmp(&b.effect));
    let mut points = vec![default.clone()];
    points.extend(by_effect.iter().map(|advice| with(default.clone(), advice)));
    // If two pieces of advice concern the same parameter, the stronger one is applied last and takes effect.
    points.push(by_effect.iter().rev().fold(default, |point, advice| with(point, advice)));
    points.retain(|point| problem.space.contains(point) && problem.may_be_tried(point));
    points
}

/// Returns the smallest predicted mean of the tried points that probably keep the limits. The mean of the default is 0.
fn best_known(tried: &[Belief]) -> f64 {
    let kept = tried.iter().filter(|belief| belief.within_limits >= MIN_PROBABILITY_WITHIN);
    kept.map(|belief| belief.objective.mean).fold(0.0, f64::min)
}

/// Returns candidates: neighbours of the best points, including points whose trials failed, and random points.
fn candidates(
    problem: &Problem,
    models: &Models<'_>,
    tried: Vec<Belief>,
    random: &mut fastrand::Rng,
) -> Vec<Point> {
    let space = &problem.space;
    let mut parents = tried;
    parents.extend(models.broken.iter().map(|point| models.belief(point)));
    parents.sort_by(|a, b| {
        let score = |belief: &Belief| belief.objective.mean * belief.within_limits;
        score(a).total_cmp(&score(b))
    });
    parents.truncate(MAX_PARENTS);
    let mut points = Vec::new();
    let changes: Vec<(usize, usize)> = (0..space.parameters.len())
        .flat_map(|parameter| (0..space.parameters[parameter].levels).map(move |level| (parameter, level)))
        .collect();
    let with = |mut point: Point, (parameter, level): (usize, usize)| {
        point[parameter] = level;
        point
    };
    if changes.is_empty() {
        return points;
    }
    for parent in &parents {
        points.extend(changes.iter().map(|change| with(parent.point.clone(), *change)));
    }
    for _ in 0..PAIRS_OF_CHANGES {
        let Some(parent) = parents.get(random.usize(..parents.len().max(1))) else { break };
        let mut change = || changes[random.usize(..changes.len())];
        points.push(with(with(parent.point.clone(), change()), change()));
    }
    for _ in 0..RANDOM_POINTS {
        let share = random.f64() * (problem.max_set as f64 / space.parameters.len() as f64).min(1.0);
        let level =
            |parameter: &crate::space::Parameter, random: &mut fastrand::Rng| match random.f64() < share {
                true => random.usize(..parameter.levels),
                false => parameter.default,
            };
        points.push(space.parameters.iter().map(|parameter| level(parameter, random)).collect());
    }
    points.retain(|point| problem.may_be_tried(point));
    points.sort();
    points.dedup();
    points
}

/// A model of one value under one choice of hyperparameters.
struct Model {
    posterior: Posterior,
    effect_sd: f64,
    pair_variance: f64,
    advice_weight: f64,
    /// Share of this model in the average.
    weight: f64,
}

/// The weighted average of all models of one value.
struct ModelAverage(Vec<Model>);

/// The models of the objective and of the values with limits.
struct Models<'a> {
    problem: &'a Problem,
    /// Points of trials that have values.
    points: Vec<&'a Point>,
    objective: ModelAverage,
    limited: Vec<ModelAverage>,
    /// Points of failed trials.
    broken: Vec<&'a Point>,
    default: Point,
}

impl<'a> Models<'a> {
    fn new(problem: &'a Problem, outcomes: &'a [Outcome]) -> Self {
        let ran = outcomes.iter().filter_map(|outcome| Some((&outcome.point, outcome.values.as_ref()?)));
        let (points, values): (Vec<&Point>, Vec<&Vec<f64>>) = ran
            .filter(|(point, values)| {
                problem.space.contains(point) && values.len() == problem.limits.len() + 1
            })
            .unzip();
        let broken = outcomes.iter().filter(|outcome| outcome.values.is_none()).map(|outcome| &outcome.point);
        let broken = broken.filter(|point| problem.space.contains(point)).collect();
        let similarities = Similarities::new(problem, &points);
        let fit = |index: usize, noise_sd: f64, advice_weights: &[f64]| {
            let values: Vec<f64> = values.iter().map(|values| values[index]).collect();
            ModelAverage::fit(problem, &points, &similarities, &values, noise_sd, advice_weights)
        };
        let limited = problem
            .limits
            .iter()
            .enumerate()
            .map(|(at, limit)| fit(at + 1, limit.noise_sd, &[0.0]))
            .collect();
        let objective = fit(0, problem.noise_sd, &ADVICE_WEIGHTS);
        Models { problem, objective, limited, broken, points, default: problem.space.default_point() }
    }

    fn belief(&self, point: &Point) -> Belief {
        let cross: Vec<Similarity> =
            self.points.iter().map(|other| Similarity::new(self.problem, point, other)).collect();
        let own = Similarity::new(self.problem, point, point);
        let expected = expected_effect(self.problem, point);
        let objective = self.objective.predict(&cross, own, expected);
        let within = |(model, limit): (&ModelAverage, &Limit)| {
            model.predict(&cross, own, 0.0).probability_below(limit.max)
        };
        let within_limits = self.limited.iter().zip(&self.problem.limits).map(within).product();
        Belief { point: point.clone(), objective, within_limits }
    }

    /// Drops the parts of a point one by one, the least effective first. A part is dropped if there are more than [`Problem::max_set`]
    /// parts, or if its effect in addition to the other parts is below [`MIN_EFFECT`]. A part that is needed to keep a limit is not
    /// dropped.
    fn pruned(&self, mut point: Point) -> Belief {
        loop {
            let belief = self.belief(&point);
            let set: Vec<usize> = (0..point.len()).filter(|at| point[*at] != self.default[*at]).collect();
            let without = |at: &usize| {
                let mut without = point.clone();
                without[*at] = self.default[*at];
                self.belief(&without)
            };
            let loses_limit = |without: &Belief| {
                belief.within_limits >= MIN_PROBABILITY_WITHIN
                    && without.within_limits < MIN_PROBABILITY_WITHIN
            };
            let cost = |without: &Belief| (loses_limit(without), without.objective.mean);
            let cheapest = set.iter().map(without).min_by(|a, b| {
                let (a, b) = (cost(a), cost(b));
                a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
            });
            let costs_little = |without: &Belief| {
                !loses_limit(without) && without.objective.mean < belief.objective.mean + MIN_EFFECT
            };
            let is_too_many = set.len() > self.problem.max_set;
            match cheapest.filter(|without| is_too_many || costs_little(without)) {
                Some(without) => point = without.point,
                None => return belief,
            }
        }
    }

    /// Returns the probability that the target runs with a candidate. The cause of a failed trial is assumed to be one of its levels that
    /// never ran in another trial, each with equal probability. If all its levels did, the cause is their combination.
    fn run_probability(&self, point: &Point) -> f64 {
        let has_run = |at: usize, level: usize| self.points.iter().any(|ran| ran[at] == level);
        let probability = |broken: &&Point| {
            let levels = || broken.iter().copied().enumerate();
            let suspects: Vec<(usize, usize)> =
                levels().filter(|(at, level)| !has_run(*at, *level)).collect();
            if suspects.is_empty() {
                let set = || levels().zip(&self.default).filter(|((_, level), default)| level != *default);
                return f64::from(u8::from(!set().all(|((at, level), _)| point[at] == level)));
            }
            let shared = suspects.iter().filter(|(at, level)| point[*at] == *level).count();
            1.0 - shared as f64 / suspects.len() as f64
        };
        self.broken.iter().map(probability).product()
    }

    /// Returns the prediction for the point of each trial that ran.
    fn tried(&self) -> Vec<Belief> {
        self.points.iter().map(|point| self.belief(point)).collect()
    }
}

/// Returns the effect that the rules expect of a point.
fn expected_effect(problem: &Problem, point: &[usize]) -> f64 {
    let followed = problem.advice.iter().filter(|advice| point.get(advice.parameter) == Some(&advice.level));
    followed.map(|advice| advice.effect).sum()
}

/// Similarity of two points: the covariance of their effects at unit variance.
#[derive(Debug, Clone, Copy)]
struct Similarity {
    /// The sum over the parameters.
    single: f64,
    /// The sum over the pairs of parameters.
    pairs: f64,
}

impl Similarity {
    fn new(problem: &Problem, a: &[usize], b: &[usize]) -> Similarity {
        let (mut single, mut squares) = (0.0, 0.0);
        for (parameter, (a, b)) in a.iter().zip(b).enumerate() {
            let is_advised = |level| {
                problem.advice.iter().any(|advice| (advice.parameter, advice.level) == (parameter, level))
            };
            let advised = if is_advised(*a) && is_advised(*b) { ADVISED_VARIANCE } else { 1.0 };
            let similarity = advised * problem.space.correlation(parameter, *a, *b);
            single += similarity;
            squares += similarity * similarity;
        }
        // The sum of the products of all pairs is derived from the square of the sum.
        Similarity { single, pairs: (single * single - squares) / 2.0 }
    }

    fn covariance(self, effect_sd: f64, pair_variance: f64) -> f64 {
        effect_sd * effect_sd * (self.single + pair_variance * self.pairs)
    }
}

/// The similarities of all measured points, as a lower triangular matrix.
struct Similarities(Vec<Vec<Similarity>>);

impl Similarities {
    fn new(problem: &Problem, points: &[&Point]) -> Self {
        let row = |(at, point): (usize, &&Point)| {
            points[..=at].iter().map(|other| Similarity::new(problem, point, other)).collect()
        };
        Similarities(points.iter().enumerate().map(row).collect())
    }
}

impl ModelAverage {
    fn fit(
        problem: &Problem,
        points: &[&Point],
        similarities: &Similarities,
        values: &[f64],
        noise_sd: f64,
        advice_weights: &[f64],
    ) -> ModelAverage {
        let expected: Vec<f64> = points.iter().map(|point| expected_effect(problem, point)).collect();
        let mut models = Vec::new();
        for effect_sd in EFFECT_SDS {
            for pair_variance in PAIR_VARIANCES {
                for &advice_weight in advice_weights {
                    let row = |row: &Vec<Similarity>| {
                        let mut row: Vec<f64> = row
                            .iter()
                            .map(|similarity| similarity.covariance(effect_sd, pair_variance))
                            .collect();
                        if let Some(own) = row.last_mut() {
                            *own += noise_sd * noise_sd;
                        }
                        row
                    };
                    let residuals: Vec<f64> = values
                        .iter()
                        .zip(&expected)
                        .map(|(value, expected)| value - advice_weight * expected)
                        .collect();
                    let covariances = similarities.0.iter().map(row).collect();
                    if let Some(posterior) = Posterior::new(covariances, &residuals) {
                        models.push(Model {
                            posterior,
                            effect_sd,
                            pair_variance,
                            advice_weight,
                            weight: 0.0,
                        });
                    }
                }
            }
        }
        let highest =
            models.iter().map(|model| model.posterior.log_likelihood()).fold(f64::NEG_INFINITY, f64::max);
        let likelihood = |model: &Model| (model.posterior.log_likelihood() - highest).exp();
        let sum: f64 = models.iter().map(likelihood).sum();
        for model in &mut models {
            model.weight = likelihood(model) / sum;
        }
        ModelAverage(models)
    }

    /// Predicts by the weighted mean of all models. The variance is the sum of the variances within and between the models.
    fn predict(&self, cross: &[Similarity], own: Similarity, expected: f64) -> Prediction {
        let predictions: Vec<(f64, Prediction)> = self
            .0
            .iter()
            .map(|model| {
                let covariance =
                    |similarity: &Similarity| similarity.covariance(model.effect_sd, model.pair_variance);
                let cross: Vec<f64> = cross.iter().map(covariance).collect();
                let Prediction { mean, sd } = model.posterior.predict(&cross, covariance(&own));
                (model.weight, Prediction { mean: mean + model.advice_weight * expected, sd })
            })
            .collect();
        let mean: f64 = predictions.iter().map(|(weight, prediction)| weight * prediction.mean).sum();
        let variance: f64 = predictions
            .iter()
            .map(|(weight, prediction)| {
                weight * (prediction.sd * prediction.sd + (prediction.mean - mean).powi(2))
            })
            .sum();
        Prediction { mean, sd: variance.sqrt() }
    }
}

#[cfg(test)]
mod tests;
