//! How often a comparison errs: false alarms between equal settings, intervals that miss the truth, effects that are not found.
//!
//! Each comparison is run as `beamtune compare` runs it, from the first pair of equal settings to its answer
//! ([`beamtune_trial::compare`]); only the measuring is made up. Its noise is either drawn (drift that both trials of a pair share in
//! part, noise of each trial, now and then something else that ran) or taken from trials that were recorded: neighbouring trials
//! of one setting, in the order in which they were run, so that their drift is in it.
//!
//! `errors [--recorded FILE…]`: each file is what `beamtune study export` prints. Prints a table. One run from one seed.

mod world;

use std::io::Write;

use anyhow::{Context, Result};
use beamtune_model::study::Answer;
use world::{Asked, Noise, ask};

/// The first seed; each comparison has its own behind it. None is one by which the levels of the looks were chosen.
const SEED: u64 = 31_415_926;
/// Comparisons of equal settings on drawn noise.
const ALARM_RUNS: u64 = 10_000;
/// Comparisons of others.
const RUNS: u64 = 2_000;
/// Effects that are to be found, as ratios.
const EFFECTS: [f64; 3] = [0.97, 0.95, 0.90];
/// 95 % of a normal distribution lie within so many standard deviations.
const Z: f64 = 1.959_964;

fn main() -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "| noise | effect | comparisons | found a difference | refused | covered by the interval | pairs, mean |"
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

/// Noises, with what they are.
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
    let (mut found, mut refused, mut told, mut covered, mut pairs) = (0, 0, 0, 0, 0);
    for Asked { answer, interval, pairs: compared } in all(noise, effect, runs) {
        match answer {
            Answer::Better | Answer::Worse => found += 1,
            Answer::MethodFindsWhatIsNot | Answer::BelowDetectable | Answer::TooManyInvalid => refused += 1,
            _ => {}
        }
        if let Some((low, high)) = interval {
            told += 1;
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
        share(covered, told),
        pairs as f64 / runs as f64
    )?;
    Ok(())
}

/// Asks so often, on all CPUs.
fn all(noise: &Noise, effect: f64, runs: u64) -> Vec<Asked> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    std::thread::scope(|scope| {
        let part = |thread: u64| {
            let runs = (thread..runs).step_by(threads as usize);
            scope
                .spawn(move || runs.map(|run| ask(noise, effect, SEED.wrapping_add(run))).collect::<Vec<_>>())
        };
        let parts: Vec<_> = (0..threads).map(part).collect();
        parts.into_iter().flat_map(|part| part.join().unwrap_or_default()).collect()
    })
}

/// A share with its interval of 95 % (Wilson, J. Am. Stat. Assoc. 22 (1927) 209).
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
