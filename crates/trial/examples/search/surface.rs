//! Synthetic surfaces: the effects of 18 flags on three values, advice from imperfect rules, and noisy trials.

use beamtune_trial::search::{Advice, Limit, Problem};
use beamtune_trial::space::{Parameter, Point, Space};

const FLAGS: usize = 18;
/// Probability that a flag has an effect on a value.
const EFFECT_PROBABILITY: f64 = 0.4;
/// Size of an effect: standard deviation of the logarithm.
const EFFECT_SD: f64 = 0.05;
/// Number of pairs of flags that interact.
const PAIRS: usize = 12;
/// Size of an interaction: standard deviation of the logarithm.
const PAIR_SD: f64 = 0.03;
/// Number of rules.
const RULES: usize = 6;
/// Share of wrong rules, which advise a random level of a random flag.
const WRONG: f64 = 0.3;
/// Error of the effect that a rule expects: standard deviation of the logarithm of the ratio of the expected to the true effect.
const RULE_ERROR_SD: f64 = 0.5;
/// Limits of the second and third value (p99 and resident memory), as logarithms of ratios.
const LIMITS: [f64; 2] = [0.05, 0.10];
/// Noise of the values with limits, relative to the noise of the objective.
const LIMITED_NOISE: [f64; 2] = [2.0, 0.5];
/// Number of values: the objective and the values with limits.
const VALUES: usize = 1 + LIMITS.len();

/// The true effects of all flags.
pub struct Surface {
    space: Space,
    /// The effects, indexed by value, flag and level.
    effects: Vec<Vec<Vec<f64>>>,
    pairs: Vec<Pair>,
    advice: Vec<Advice>,
    noise_sd: f64,
    best_safe: f64,
}

/// Two flags, each with a level, and their interaction for each value.
struct Pair {
    both: [(usize, usize); 2],
    interaction: [f64; VALUES],
}

/// The noise of trials.
pub struct Noise {
    random: fastrand::Rng,
    sds: [f64; VALUES],
}

fn normal(random: &mut fastrand::Rng) -> f64 {
    // Box and Muller (1958).
    (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
}

impl Surface {
    /// Draws the surface of a seed.
    pub fn draw(seed: u64, noise_sd: f64) -> Surface {
        let mut random = fastrand::Rng::with_seed(seed);
        let parameters: Vec<Parameter> = (0..FLAGS)
            .map(|flag| {
                let (levels, ordered) = match flag % 3 {
                    0 => (2, false),
                    1 => (random.usize(3..7), true),
                    _ => (random.usize(3..5), false),
                };
                Parameter { name: format!("+flag{flag}"), levels, default: random.usize(..levels), ordered }
            })
            .collect();
        let space = Space { parameters };
        let effects = (0..VALUES).map(|_| effects(&space, &mut random)).collect();
        let mut pairs = Vec::new();
        for _ in 0..PAIRS {
            let mut one = || {
                let flag = random.usize(..FLAGS);
                (flag, random.usize(..space.parameters[flag].levels))
            };
            let both = [one(), one()];
            let interaction = [(); VALUES].map(|()| PAIR_SD * normal(&mut random));
            let is_default = |(flag, level): (usize, usize)| space.parameters[flag].default == level;
            if both[0].0 != both[1].0 && !both.into_iter().any(is_default) {
                pairs.push(Pair { both, interaction });
            }
        }
        let mut surface = Surface { space, effects, pairs, advice: Vec::new(), noise_sd, best_safe: 0.0 };
        surface.advice = surface.rules(&mut random);
        surface.best_safe = surface.search_best(&mut random);
        surface
    }

    /// Returns the problem for the search.
    pub fn problem(&self) -> Problem {
        let limit = |(max, noise): (f64, f64)| Limit { max, noise_sd: noise * self.noise_sd };
        Problem {
            space: self.space.clone(),
            advice: self.advice.clone(),
            noise_sd: self.noise_sd,
            max_set: usize::MAX,
            fatal: Vec::new(),
            limits: LIMITS.into_iter().zip(LIMITED_NOISE).map(limit).collect(),
        }
    }

    /// Returns the true values of a point, as logarithms of ratios to the values of the default.
    pub fn truth(&self, point: &[usize]) -> [f64; VALUES] {
        let mut values = [0.0; VALUES];
        for (value, effects) in values.iter_mut().zip(&self.effects) {
            *value = point.iter().zip(effects).map(|(level, levels)| levels[*level]).sum();
        }
        for Pair { both, interaction } in &self.pairs {
            if both.iter().all(|(flag, level)| point[*flag] == *level) {
                values.iter_mut().zip(interaction).for_each(|(value, more)| *value += more);
            }
        }
        values
    }

    /// Whether a point keeps all limits.
    pub fn is_safe(&self, point: &[usize]) -> bool {
        self.truth(point)[1..].iter().zip(LIMITS).all(|(value, max)| *value <= max)
    }

    /// Returns the smallest objective of all points that keep the limits.
    pub fn best_safe(&self) -> f64 {
        self.best_safe
    }

    /// Returns the point that follows all advice.
    pub fn all_rules(&self) -> Point {
        let mut point = self.space.default_point();
        self.advice.iter().for_each(|advice| point[advice.parameter] = advice.level);
        point
    }

    /// Returns the points to try first: the default, each piece of advice alone, and all advice together.
    pub fn first_points(&self) -> Vec<Point> {
        let default = self.space.default_point();
        let with = |advice: &Advice| {
            let mut point = default.clone();
            point[advice.parameter] = advice.level;
            point
        };
        let mut points = vec![default.clone()];
        points.extend(self.advice.iter().map(with));
        points.push(self.all_rules());
        points
    }

    /// Returns the noise generator of one study.
    pub fn noise(&self, seed: u64) -> Noise {
        let sds = [self.noise_sd, LIMITED_NOISE[0] * self.noise_sd, LIMITED_NOISE[1] * self.noise_sd];
        Noise { random: fastrand::Rng::with_seed(seed.wrapping_mul(31).wrapping_add(7)), sds }
    }

    fn rules(&self, random: &mut fastrand::Rng) -> Vec<Advice> {
        let own = &self.effects[0];
        // The rules know the flags with the largest effects.
        let mut flags: Vec<usize> = (0..FLAGS).collect();
        let best_effect = |flag: &usize| own[*flag].iter().copied().fold(0.0, f64::min);
        flags.sort_by(|a, b| best_effect(a).total_cmp(&best_effect(b)));
        let mut advice: Vec<Advice> = Vec::new();
        for flag in flags.into_iter().take(RULES) {
            let best =
                (0..own[flag].len()).min_by(|a, b| own[flag][*a].total_cmp(&own[flag][*b])).unwrap_or(0);
            let size = best_effect(&flag).min(-0.01);
            let (parameter, level) = match random.f64() < WRONG {
                true => {
                    let flag = random.usize(..FLAGS);
                    (flag, random.usize(..self.space.parameters[flag].levels))
                }
                false => (flag, best),
            };
            let effect = size * (RULE_ERROR_SD * normal(random)).exp();
            let is_default = self.space.parameters[parameter].default == level;
            if !is_default && advice.iter().all(|advice| advice.parameter != parameter) {
                advice.push(Advice { parameter, level, effect });
            }
        }
        advice
    }

    /// Finds the best objective within the limits, by hill climbing from many points.
    fn search_best(&self, random: &mut fastrand::Rng) -> f64 {
        let mut best: f64 = 0.0;
        for start in 0..60 {
            let mut point = self.space.default_point();
            if start > 0 {
                let level = |parameter: &Parameter| random.usize(..parameter.levels);
                point = self.space.parameters.iter().map(level).collect();
            }
            loop {
                // Outside the limits, the excess is minimized before the objective.
                let cost = |point: &[usize]| {
                    let truth = self.truth(point);
                    let excess = |(value, max): (&f64, f64)| (value - max).max(0.0);
                    (truth[1..].iter().zip(LIMITS).map(excess).sum::<f64>(), truth[0])
                };
                let mut chosen = (cost(&point), None);
                for neighbour in self.neighbours(&point) {
                    let its_cost = cost(&neighbour);
                    if its_cost < chosen.0 {
                        chosen = (its_cost, Some(neighbour));
                    }
                }
                match chosen.1 {
                    Some(better) => point = better,
                    None => break,
                }
            }
            if self.is_safe(&point) {
                best = best.min(self.truth(&point)[0]);
            }
        }
        best
    }

    /// Returns all points that differ in one or two flags.
    fn neighbours(&self, point: &[usize]) -> Vec<Point> {
        let changes: Vec<(usize, usize)> = (0..FLAGS)
            .flat_map(|flag| (0..self.space.parameters[flag].levels).map(move |level| (flag, level)))
            .collect();
        let mut found = Vec::new();
        for (at, (flag, level)) in changes.iter().enumerate() {
            let mut one = point.to_vec();
            one[*flag] = *level;
            for (other, its_level) in &changes[at + 1..] {
                let mut two = one.clone();
                two[*other] = *its_level;
                found.push(two);
            }
            found.push(one);
        }
        found
    }
}

/// Draws the effects of all levels of all flags on a value, relative to the default.
fn effects(space: &Space, random: &mut fastrand::Rng) -> Vec<Vec<f64>> {
    let of_flag = |parameter: &Parameter| {
        let size = if random.f64() < EFFECT_PROBABILITY { EFFECT_SD } else { 0.0 };
        let mut levels: Vec<f64> = match parameter.ordered {
            // The effects of ordered levels form a random parabola.
            true => {
                let (slope, bend) = (size * normal(random), size * normal(random));
                (0..parameter.levels)
                    .map(|level| {
                        let x = 2.0 * level as f64 / (parameter.levels - 1) as f64 - 1.0;
                        slope * x + bend * x * x
                    })
                    .collect()
            }
            false => (0..parameter.levels).map(|_| size * normal(random)).collect(),
        };
        let default = levels[parameter.default];
        levels.iter_mut().for_each(|level| *level -= default);
        levels
    };
    space.parameters.iter().map(of_flag).collect()
}

impl Noise {
    /// Returns the measured values of a trial.
    pub fn measure(&mut self, surface: &Surface, point: &[usize]) -> Vec<f64> {
        let truth = surface.truth(point);
        truth.iter().zip(self.sds).map(|(value, sd)| value + sd * normal(&mut self.random)).collect()
    }
}
