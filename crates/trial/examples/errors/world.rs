//! Simulates comparisons whose true effect is known.

use anyhow::{Result, bail};
use beamtune_model::study::{
    Answer, Arm, CPU_PER_REQUEST, Measures, Question, Trial, TrialOrder, TrialOutcome,
};
use beamtune_trial::compare::{self, Next};

/// The noise between trials of one setting.
pub enum Noise {
    /// Drift of 4 % that both trials of a pair share, noise of each trial, and a spike in one trial of twenty.
    Drawn {
        /// Standard deviation of the noise of each trial, as a logarithm.
        sd: f64,
    },
    /// Logarithms of recorded values, ordered by time.
    Recorded(Vec<f64>),
}

/// Standard deviation of the drift from pair to pair.
const DRIFT_SD: f64 = 0.04;
/// Probability of a spike, and its maximum size as a logarithm.
const SPIKES: (f64, f64) = (0.05, 0.3);
/// Minimum number of recorded trials from which noise is resampled.
const MIN_TRIALS: usize = 20;

impl Noise {
    /// Reads the noise of the valid trials of the unchanged target in an exported study.
    pub fn recorded(file: &str) -> Result<Noise> {
        let mut values = Vec::new();
        for line in std::fs::read_to_string(file)?.lines() {
            let trial: Trial = serde_json::from_str(line)?;
            let arm = &trial.order.arm;
            if arm.flags.is_empty()
                && arm.environment.is_empty()
                && let TrialOutcome::Valid { measures } = trial.outcome
                && let Some(value) = measures.get(CPU_PER_REQUEST.name)
            {
                values.push(value.ln());
            }
        }
        if values.len() < MIN_TRIALS {
            bail!("{} valid trials are too few; at least {MIN_TRIALS} are needed", values.len());
        }
        Ok(Noise::Recorded(values))
    }

    /// Returns the number of recorded trials.
    pub fn trials(&self) -> usize {
        match self {
            Noise::Drawn { .. } => 0,
            Noise::Recorded(values) => values.len(),
        }
    }

    /// Draws the values of two consecutive trials of one setting.
    fn pair(&self, random: &mut fastrand::Rng) -> [f64; 2] {
        match self {
            Noise::Drawn { sd } => {
                let drift = DRIFT_SD * normal(random);
                [(); 2].map(|()| {
                    let spike = if random.f64() < SPIKES.0 { random.f64() * SPIKES.1 } else { 0.0 };
                    (drift + sd * normal(random) + spike).exp()
                })
            }
            Noise::Recorded(values) => {
                // The trials of a pair run one after the other, so neighbouring values are used.
                let at = random.usize(..values.len() - 1);
                let mut pair = [values[at].exp(), values[at + 1].exp()];
                if random.bool() {
                    pair.reverse();
                }
                pair
            }
        }
    }
}

/// Draws an approximately normal number: a sum of twelve uniform numbers.
fn normal(random: &mut fastrand::Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

/// The result of a comparison.
pub struct Comparison {
    /// The answer.
    pub answer: Answer,
    /// The interval of the ratio; `None` if there are too few pairs.
    pub interval: Option<(f64, f64)>,
    /// Number of pairs of A and B.
    pub pairs: u64,
}

/// Simulates a comparison of A with B. The cost of B is `effect` times that of A.
pub fn simulate(noise: &Noise, effect: f64, seed: u64) -> Comparison {
    let arm = |name: &str| Arm { name: name.to_owned(), ..Arm::default() };
    let question = Question {
        seed,
        a: arm("A"),
        b: arm("B"),
        objective: CPU_PER_REQUEST.name.to_owned(),
        guards: Vec::new(),
        same_pairs: compare::MIN_SAME_PAIRS,
        max_pairs: 30,
    };
    let mut random = fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut trials: Vec<Trial> = Vec::new();
    let mut pending: Vec<f64> = Vec::new();
    let answer = loop {
        match compare::next(&question, &trials) {
            Next::Done(answer) => break answer,
            Next::Run(order) => {
                if pending.is_empty() {
                    pending = noise.pair(&mut random).to_vec();
                }
                let value = pending.pop().unwrap_or(1.0) * if order.arm.name == "B" { effect } else { 1.0 };
                trials.push(trial(order, value));
            }
        }
    };
    let verdict = compare::judge(&question, &trials);
    let ratio = verdict.effects.first().and_then(|effect| effect.ratio);
    Comparison { answer, interval: ratio.map(|ratio| (ratio.low, ratio.high)), pairs: verdict.pairs as u64 }
}

fn trial(order: TrialOrder, value: f64) -> Trial {
    let mut measures = Measures::default();
    measures.set(CPU_PER_REQUEST.name, value);
    Trial {
        order,
        began_unix_s: 0.0,
        took_s: 0.0,
        outcome: TrialOutcome::Valid { measures },
        remarks: Vec::new(),
    }
}
