//! Which candidate to try next, and which to believe in, after a few noisy trials.
//!
//! What the rules advise is tried first: the default, each advice by itself, all of them together. Then a model of the effects
//! of all parameters decides: a Gaussian process whose covariances add up over parameters and, with less weight, over pairs
//! of them (Duvenaud, Nickisch and Rasmussen, Additive Gaussian Processes, NIPS 2011), and whose mean before any trial is what the
//! rules expect. Tried is where the expected improvement, times the probability that all limits are kept, is largest
//! (Gardner et al., Bayesian Optimization with Inequality Constraints, ICML 2014). Believed is the model and never a trial: the
//! best of many noisy trials looks better than it is.
//!
//! Everything follows from the outcomes and the seed, so a study that was broken off goes on as it would have gone.

use beamtune_stats::gaussian::{Guess, Posterior};

use crate::space::{Point, Space};

/// That a level of a parameter should make the objective smaller.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// Which parameter.
    pub parameter: usize,
    /// Which level it should have.
    pub level: usize,
    /// By how much, as the logarithm of a ratio: -0.1 for some 10 % less.
    pub effect: f64,
}

/// What must stay below a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    /// Logarithm of its ratio to the default's.
    pub most: f64,
    /// Standard deviation of one trial's value.
    pub noise_sd: f64,
}

/// The question of a study.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// What can be set.
    pub space: Space,
    /// What the rules say.
    pub advice: Vec<Advice>,
    /// Standard deviation of the objective of one trial.
    pub noise_sd: f64,
    /// What must stay below a limit.
    pub limits: Vec<Limit>,
    /// How many parameters a finalist may set at most: as many as can be told apart afterwards.
    pub most_set: usize,
    /// Levels, each with its parameter, that are never tried, alone or together.
    pub fatal: Vec<Vec<(usize, usize)>>,
}

impl Problem {
    /// Whether a candidate sets little more than a finalist may, and nothing that does not go together.
    fn may_be_tried(&self, point: &[usize]) -> bool {
        let set = point.iter().zip(&self.space.parameters).filter(|(level, of)| **level != of.default);
        let has = |(parameter, level): &(usize, usize)| point.get(*parameter) == Some(level);
        set.count() <= self.most_set.saturating_add(MORE_TRIED)
            && !self.fatal.iter().any(|levels| levels.iter().all(has))
    }
}

/// What a trial has shown. Values are logarithms of ratios to the mean of the default's trials.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// What was tried.
    pub point: Point,
    /// The objective, of which less is better, and then what has limits, in their order. `None`: it did not run, or not to its
    /// end.
    pub values: Option<Vec<f64>>,
}

/// What is believed of a candidate.
#[derive(Debug, Clone, PartialEq)]
pub struct Belief {
    /// The candidate.
    pub point: Point,
    /// Its objective.
    pub objective: Guess,
    /// Probability that all limits are kept.
    pub within_limits: f64,
}

/// Standard deviations that the effect of a parameter may have, as logarithms of ratios. The likelihood weighs them.
const EFFECTS: [f64; 4] = [0.01, 0.025, 0.06, 0.15];
/// Variance of what a pair of parameters does together, beside the one of each.
const PAIRS: [f64; 2] = [0.05, 0.3];
/// How much of what the rules expect is believed.
const TRUST: [f64; 3] = [0.0, 0.5, 1.0];
/// Variance of an advised level beside others: more of what works is advised than not.
const ADVISED: f64 = 3.0;

/// A candidate is believed in if it is better than the default with this probability …
const BETTER: f64 = 0.9;
/// … and keeps the limits with this one.
const WITHIN: f64 = 0.8;

/// A part that is believed to make less than this of a difference, as the logarithm of a ratio, is not taken. Beliefs are shrunk towards
/// nothing, so it is less than what pays (of 0, 0.4 and 1 percent the best on the surfaces of `make search`).
const LEAST_BELIEVED: f64 = 0.004;
/// So many parts more than a finalist may have, a trial has: what several do is learnt sooner together (on the same surfaces, of 0, 2
/// and 4).
const MORE_TRIED: usize = 2;

/// Points that are thought of at random for each trial, beside neighbours of good ones.
const RANDOM_POINTS: usize = 300;
/// Pairs of changes of good points that are thought of.
const PAIRS_OF_CHANGES: usize = 300;
/// Good points whose neighbours are thought of.
const PARENTS: usize = 5;

/// The candidate to try next; the same for the same outcomes and seed. `None` when there is none left.
pub fn next(problem: &Problem, outcomes: &[Outcome], seed: u64) -> Option<Point> {
    let is_new = |point: &Point| outcomes.iter().all(|outcome| outcome.point != *point);
    if let Some(first) = planned(problem).into_iter().find(|point| is_new(point)) {
        return Some(first);
    }
    let models = Models::new(problem, outcomes);
    let tried = models.tried();
    let best = best_known(&tried);
    let mut random =
        fastrand::Rng::with_seed(seed ^ (outcomes.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut chosen: Option<(f64, Point)> = None;
    for point in thoughts(problem, &models, tried, &mut random).into_iter().filter(is_new) {
        let belief = models.belief(&point);
        let worth = belief.objective.expected_below(best) * belief.within_limits * models.runs(&point);
        if chosen.as_ref().is_none_or(|(most, _)| worth > *most) {
            chosen = Some((worth, point));
        }
    }
    chosen.map(|(_, point)| point)
}

/// Those that are believed to be better than the default, best first; at most so many. They are what was tried, without the parts that are
/// not believed to do anything, nor more of them than [`Problem::most_set`].
pub fn finalists(problem: &Problem, outcomes: &[Outcome], most: usize) -> Vec<Belief> {
    let models = Models::new(problem, outcomes);
    let pruned = models.tried().into_iter().map(|belief| models.pruned(belief.point));
    let mut beliefs: Vec<Belief> = pruned.collect();
    // Of one that was tried more than once all is believed the same.
    beliefs.sort_by(|a, b| a.point.cmp(&b.point));
    beliefs.dedup_by(|a, b| a.point == b.point);
    beliefs.retain(|belief| belief.objective.below(0.0) >= BETTER && belief.within_limits >= WITHIN);
    beliefs.retain(|belief| !models.broken.contains(&&belief.point));
    beliefs.sort_by(|a, b| a.objective.mean.total_cmp(&b.objective.mean));
    beliefs.truncate(most);
    beliefs
}

/// What is believed of these points, in their order.
pub fn believe(problem: &Problem, outcomes: &[Outcome], points: &[Point]) -> Vec<Belief> {
    let models = Models::new(problem, outcomes);
    points.iter().map(|point| models.belief(point)).collect()
}

/// What is tried before the model decides.
fn planned(problem: &Problem) -> Vec<Point> {
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
    // Of two that want the same parameter the stronger one comes last.
    points.push(by_effect.iter().rev().fold(default, |point, advice| with(point, advice)));
    points.retain(|point| problem.space.holds(point) && problem.may_be_tried(point));
    points
}

/// The least mean of those that are believed to keep the limits; the default does.
fn best_known(tried: &[Belief]) -> f64 {
    let kept = tried.iter().filter(|belief| belief.within_limits >= WITHIN);
    kept.map(|belief| belief.objective.mean).fold(0.0, f64::min)
}

/// Points that may be worth trying: neighbours of the best ones, also of such as did not run, and some at random.
fn thoughts(
    problem: &Problem,
    models: &Models<'_>,
    tried: Vec<Belief>,
    random: &mut fastrand::Rng,
) -> Vec<Point> {
    let space = &problem.space;
    let mut parents = tried;
    parents.extend(models.broken.iter().map(|point| models.belief(point)));
    parents.sort_by(|a, b| {
        let worth = |belief: &Belief| belief.objective.mean * belief.within_limits;
        worth(a).total_cmp(&worth(b))
    });
    parents.truncate(PARENTS);
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
        let share = random.f64() * (problem.most_set as f64 / space.parameters.len() as f64).min(1.0);
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

/// One value of all trials, with one guess of how effects are spread.
struct Model {
    posterior: Posterior,
    effect_sd: f64,
    pairs: f64,
    trust: f64,
    weight: f64,
}

/// What is known of one value: models that explain it, each with its weight.
struct Value(Vec<Model>);

/// What is known of the objective and of what has limits.
struct Models<'a> {
    problem: &'a Problem,
    /// Points of trials that have values.
    points: Vec<&'a Point>,
    objective: Value,
    limited: Vec<Value>,
    /// Points of trials that did not run.
    broken: Vec<&'a Point>,
    default: Point,
}

impl<'a> Models<'a> {
    fn new(problem: &'a Problem, outcomes: &'a [Outcome]) -> Self {
        let ran = outcomes.iter().filter_map(|outcome| Some((&outcome.point, outcome.values.as_ref()?)));
        let (points, values): (Vec<&Point>, Vec<&Vec<f64>>) = ran
            .filter(|(point, values)| problem.space.holds(point) && values.len() == problem.limits.len() + 1)
            .unzip();
        let broken = outcomes.iter().filter(|outcome| outcome.values.is_none()).map(|outcome| &outcome.point);
        let broken = broken.filter(|point| problem.space.holds(point)).collect();
        let shares = Shares::new(problem, &points);
        let fit = |index: usize, noise_sd: f64, trust: &[f64]| {
            let values: Vec<f64> = values.iter().map(|values| values[index]).collect();
            Value::fit(problem, &points, &shares, &values, noise_sd, trust)
        };
        let limited = problem
            .limits
            .iter()
            .enumerate()
            .map(|(at, limit)| fit(at + 1, limit.noise_sd, &[0.0]))
            .collect();
        let objective = fit(0, problem.noise_sd, &TRUST);
        Models { problem, objective, limited, broken, points, default: problem.space.default_point() }
    }

    fn belief(&self, point: &Point) -> Belief {
        let cross: Vec<Share> =
            self.points.iter().map(|other| Share::of(self.problem, point, other)).collect();
        let own = Share::of(self.problem, point, point);
        let expected = expected(self.problem, point);
        let objective = self.objective.guess(&cross, own, expected);
        let within = |(value, limit): (&Value, &Limit)| value.guess(&cross, own, 0.0).below(limit.most);
        let within_limits = self.limited.iter().zip(&self.problem.limits).map(within).product();
        Belief { point: point.clone(), objective, within_limits }
    }

    /// A point without the parts that are not believed to make [`LEAST_BELIEVED`] of a difference, each with the others there, nor more of
    /// them than there may be; those that matter least go first. One without which a limit would not be kept matters.
    fn pruned(&self, mut point: Point) -> Belief {
        loop {
            let belief = self.belief(&point);
            let set: Vec<usize> = (0..point.len()).filter(|at| point[*at] != self.default[*at]).collect();
            let without = |at: &usize| {
                let mut without = point.clone();
                without[*at] = self.default[*at];
                self.belief(&without)
            };
            let loses_limit =
                |without: &Belief| belief.within_limits >= WITHIN && without.within_limits < WITHIN;
            let matters = |without: &Belief| (loses_limit(without), without.objective.mean);
            let least = set.iter().map(without).min_by(|a, b| {
                let (a, b) = (matters(a), matters(b));
                a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
            });
            let does_little = |least: &Belief| {
                !loses_limit(least) && least.objective.mean < belief.objective.mean + LEAST_BELIEVED
            };
            let is_too_many = set.len() > self.problem.most_set;
            match least.filter(|least| is_too_many || does_little(least)) {
                Some(least) => point = least.point,
                None => return belief,
            }
        }
    }

    /// How likely a candidate runs at all. Of a trial that did not, each level that never ran in another one may be the cause; if
    /// all of them did, it is what they do together.
    fn runs(&self, point: &Point) -> f64 {
        let has_run = |at: usize, level: usize| self.points.iter().any(|ran| ran[at] == level);
        let chance = |broken: &&Point| {
            let levels = || broken.iter().copied().enumerate();
            let suspects: Vec<(usize, usize)> =
                levels().filter(|(at, level)| !has_run(*at, *level)).collect();
            if suspects.is_empty() {
                let set = || levels().zip(&self.default).filter(|((_, level), default)| level != *default);
                return f64::from(u8::from(!set().all(|((at, level), _)| point[at] == level)));
            }
            let met = suspects.iter().filter(|(at, level)| point[*at] == *level).count();
            1.0 - met as f64 / suspects.len() as f64
        };
        self.broken.iter().map(chance).product()
    }

    /// What is believed of each trial that ran.
    fn tried(&self) -> Vec<Belief> {
        self.points.iter().map(|point| self.belief(point)).collect()
    }
}

/// What the rules expect of a point.
fn expected(problem: &Problem, point: &[usize]) -> f64 {
    let followed = problem.advice.iter().filter(|advice| point.get(advice.parameter) == Some(&advice.level));
    followed.map(|advice| advice.effect).sum()
}

/// What two points have in common: of single parameters, and of pairs.
#[derive(Debug, Clone, Copy)]
struct Share {
    single: f64,
    pairs: f64,
}

impl Share {
    fn of(problem: &Problem, a: &[usize], b: &[usize]) -> Share {
        let (mut single, mut squares) = (0.0, 0.0);
        for (parameter, (a, b)) in a.iter().zip(b).enumerate() {
            let is_advised = |level| {
                problem.advice.iter().any(|advice| (advice.parameter, advice.level) == (parameter, level))
            };
            let advised = if is_advised(*a) && is_advised(*b) { ADVISED } else { 1.0 };
            let common = advised * problem.space.common(parameter, *a, *b);
            single += common;
            squares += common * common;
        }
        // The sum over all pairs, from the square of the sum.
        Share { single, pairs: (single * single - squares) / 2.0 }
    }

    fn covariance(self, effect_sd: f64, pairs: f64) -> f64 {
        effect_sd * effect_sd * (self.single + pairs * self.pairs)
    }
}

/// What all measured points have in common: a lower triangle.
struct Shares(Vec<Vec<Share>>);

impl Shares {
    fn new(problem: &Problem, points: &[&Point]) -> Self {
        let row = |(at, point): (usize, &&Point)| {
            points[..=at].iter().map(|other| Share::of(problem, point, other)).collect()
        };
        Shares(points.iter().enumerate().map(row).collect())
    }
}

impl Value {
    fn fit(
        problem: &Problem,
        points: &[&Point],
        shares: &Shares,
        values: &[f64],
        noise_sd: f64,
        trusts: &[f64],
    ) -> Value {
        let expected: Vec<f64> = points.iter().map(|point| expected(problem, point)).collect();
        let mut models = Vec::new();
        for effect_sd in EFFECTS {
            for pairs in PAIRS {
                for trust in trusts {
                    let row = |row: &Vec<Share>| {
                        let mut row: Vec<f64> =
                            row.iter().map(|share| share.covariance(effect_sd, pairs)).collect();
                        if let Some(own) = row.last_mut() {
                            *own += noise_sd * noise_sd;
                        }
                        row
                    };
                    let rest: Vec<f64> = values
                        .iter()
                        .zip(&expected)
                        .map(|(value, expected)| value - trust * expected)
                        .collect();
                    if let Some(posterior) = Posterior::new(shares.0.iter().map(row).collect(), &rest) {
                        models.push(Model { posterior, effect_sd, pairs, trust: *trust, weight: 0.0 });
                    }
                }
            }
        }
        let most =
            models.iter().map(|model| model.posterior.log_likelihood()).fold(f64::NEG_INFINITY, f64::max);
        let likelihood = |model: &Model| (model.posterior.log_likelihood() - most).exp();
        let sum: f64 = models.iter().map(likelihood).sum();
        for model in &mut models {
            model.weight = likelihood(model) / sum;
        }
        Value(models)
    }

    /// The mean of all models, and how far they are from it and from each other.
    fn guess(&self, cross: &[Share], own: Share, expected: f64) -> Guess {
        let guesses: Vec<(f64, Guess)> = self
            .0
            .iter()
            .map(|model| {
                let covariance = |share: &Share| share.covariance(model.effect_sd, model.pairs);
                let cross: Vec<f64> = cross.iter().map(covariance).collect();
                let Guess { mean, sd } = model.posterior.guess(&cross, covariance(&own));
                (model.weight, Guess { mean: mean + model.trust * expected, sd })
            })
            .collect();
        let mean: f64 = guesses.iter().map(|(weight, guess)| weight * guess.mean).sum();
        let variance: f64 = guesses
            .iter()
            .map(|(weight, guess)| weight * (guess.sd * guess.sd + (guess.mean - mean).powi(2)))
            .sum();
        Guess { mean, sd: variance.sqrt() }
    }
}

#[cfg(test)]
mod tests;
