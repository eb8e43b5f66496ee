//! Measures the error rates of comparisons: false positives between equal settings, intervals that do not contain the true effect, and
//! effects that are not found.
//!
//! Each comparison runs as in `beamtune compare`, from the first pair of equal settings to the answer ([`beamtune_trial::compare`]), but
//! with simulated measurements. The noise is either drawn (drift that both trials of a pair share, noise of each trial, and occasional
//! spikes) or resampled from recorded trials. Neighbouring trials of one setting are resampled together, which preserves drift.
//!
//! `errors [--recorded FILE…]`: each file is the output of `beamtune study export`. Prints a table; deterministic.

mod world;

use std::io::Write;

use anyhow::{Context, Result};
use beamtune_model::study::Answer;
use world::{Comparison, Noise, simulate};

/// The first seed; comparison n has seed `SEED + n`. The levels of the looks were chosen with other seeds.
const SEED: u64 = 31_415_926;
/// Number of comparisons of equal settings.
const ALARM_RUNS: u64 = 10_000;
/// Number of comparisons of different settings, per effect.
const RUNS: u64 = 2_000;
/// The true effects, as ratios.
const EFFECTS: [f64; 3] = [0.97, 0.95, 0.90];
/// 97.5 % quantile of the normal distribution.
const Z: f64 = 1.959_964;

fn main() -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "| noise | effect | comparisons | found a difference | no conclusion | covered by the interval | pairs, mean |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    for (name, noise) in noises()? {
        row(&mut out, &name, &noise, 1.0, ALARM_RUNS)?;
        for effect in EFFECTS {
            row(&mut out, &name, &noise, effect, RUNS)?;
        }
    }
    Ok(())
}

/// Returns the kinds of noise with their descriptions.
fn noises() -> Result<Vec<(String, Noise)>> {
    let drawn = |sd: f64| (format!("drawn, {:.0} % in each trial", sd * 100.0), Noise::Drawn { sd });
    let mut all = vec![drawn(0.02), drawn(0.05)];
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("--recorded") {
        for file in arguments {
            let noise =
                Noise::recorded(&file).with_context(|| format!("cannot read the trials of {file}"))?;
            let name = std::path::Path::new(&file)
                .file_stem()
                .map_or_else(|| file.clone(), |it| it.to_string_lossy().into_owned());
            all.push((format!("{name}, {} recorded trials", noise.trials()), noise));
        }
    }
    Ok(all)
}

fn row(out: &mut impl Write, name: &str, noise: &Noise, effect: f64, runs: u64) -> Result<()> {
    let (mut found, mut refused, mut with_interval, mut covered, mut pairs) = (0, 0, 0, 0, 0);
    for Comparison { answer, interval, pairs: compared } in simulate_all(noise, effect, runs) {
        match answer {
            Answer::Better | Answer::Worse => found += 1,
            Answer::FalsePositive | Answer::BelowDetectable | Answer::TooManyInvalid => refused += 1,
            _ => {}
        }
        if let Some((low, high)) = interval {
            with_interval += 1;
            covered += u64::from(low <= effect && effect <= high);
        }
        pairs += compared;
    }
    let effect = if effect == 1.0 { "none".to_owned() } else { format!("{:+.0} %", (effect - 1.0) * 100.0) };
    writeln!(
        out,
        "| {name} | {effect} | {runs} | {} | {} | {} | {:.1} |",
        share(found, runs),
        share(refused, runs),
        share(covered, with_interval),
        pairs as f64 / runs as f64
    )?;
    Ok(())
}

/// Simulates this number of comparisons on all CPUs.
fn simulate_all(noise: &Noise, effect: f64, runs: u64) -> Vec<Comparison> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    std::thread::scope(|scope| {
        let part = |thread: u64| {
            let runs = (thread..runs).step_by(threads as usize);
            scope.spawn(move || {
                runs.map(|run| simulate(noise, effect, SEED.wrapping_add(run))).collect::<Vec<_>>()
            })
        };
        let parts: Vec<_> = (0..threads).map(part).collect();
        parts.into_iter().flat_map(|part| part.join().unwrap_or_default()).collect()
    })
}

/// Formats a share with its 95 % interval (Wilson, J. Am. Stat. Assoc. 22 (1927) 209).
fn share(count: u64, of: u64) -> String {
    if of == 0 {
        return "–".to_owned();
    }
    let (n, p) = (of as f64, count as f64 / of as f64);
    let middle = (p + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z / (1.0 + Z * Z / n) * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    format!(
        "{:.1} % [{:.1}, {:.1}]",
        p * 100.0,
        (middle - half).max(0.0) * 100.0,
        (middle + half).min(1.0) * 100.0
    )
}
