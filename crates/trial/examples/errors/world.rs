//! A made-up world in which the truth is known.

use anyhow::{Result, bail};
use beamtune_model::study::{Answer, Arm, CPU_PER_REQUEST, Measures, Order, Question, Trial, TrialOutcome};
use beamtune_trial::compare::{self, Next};

/// Of how trials of one setting differ.
pub enum Noise {
    /// Drift of 4 % that is in both trials of a pair, this much in each, and in every twentieth something else that ran.
    Drawn {
        /// Standard deviation of the logarithm.
        sd: f64,
    },
    /// Logarithms of what was recorded, in the order of time.
    Recorded(Vec<f64>),
}

/// Standard deviation of the drift from pair to pair.
const DRIFT_SD: f64 = 0.04;
/// How often something else runs, and by how much it makes a trial dearer at most.
const SPIKES: (f64, f64) = (0.05, 0.3);
/// Fewer recorded trials say nothing of how they differ.
const LEAST_TRIALS: usize = 20;

impl Noise {
    /// The valid trials of the target as it is, of a study that was exported.
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
        if values.len() < LEAST_TRIALS {
            bail!("{} valid trials are too few", values.len());
        }
        Ok(Noise::Recorded(values))
    }

    /// Recorded trials.
    pub fn trials(&self) -> usize {
        match self {
            Noise::Drawn { .. } => 0,
            Noise::Recorded(values) => values.len(),
        }
    }

    /// What two trials of one setting measure, one after the other.
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
                // Neighbours, as the trials of a pair are.
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

/// A sum of uniform numbers is as good as normal here.
fn normal(random: &mut fastrand::Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

/// What a comparison has said.
pub struct Asked {
    /// Its answer.
    pub answer: Answer,
    /// The interval of the ratio, where one was told.
    pub interval: Option<(f64, f64)>,
    /// Pairs of A and B that it took.
    pub pairs: u64,
}

/// Asks whether B, which is by `effect` dearer than A, differs.
pub fn ask(noise: &Noise, effect: f64, seed: u64) -> Asked {
    let arm = |name: &str| Arm { name: name.to_owned(), ..Arm::default() };
    let question = Question {
        seed,
        a: arm("A"),
        b: arm("B"),
        objective: CPU_PER_REQUEST.name.to_owned(),
        guards: Vec::new(),
        same_pairs: compare::LEAST_SAME_PAIRS,
        most_pairs: 30,
    };
    let mut random = fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut trials: Vec<Trial> = Vec::new();
    let mut left: Vec<f64> = Vec::new();
    let answer = loop {
        match compare::next(&question, &trials) {
            Next::Done(answer) => break answer,
            Next::Run(order) => {
                if left.is_empty() {
                    left = noise.pair(&mut random).to_vec();
                }
                let value = left.pop().unwrap_or(1.0) * if order.arm.name == "B" { effect } else { 1.0 };
                trials.push(trial(order, value));
            }
        }
    };
    let verdict = compare::judge(&question, &trials);
    let ratio = verdict.effects.first().and_then(|effect| effect.ratio);
    Asked { answer, interval: ratio.map(|ratio| (ratio.low, ratio.high)), pairs: verdict.pairs as u64 }
}

fn trial(order: Order, value: f64) -> Trial {
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
