//! Overhead on a busy node: the throughput that the node loses.

use anyhow::{Context, Result};
use beamtune_stats::paired::{self, Effect};

use super::figure::{Figure, Verdict, judge, percent};
use super::node::{Load, Node, PROCESSES, TABLES};
use super::window::{Reading, WINDOW, Watcher, Windows};
use super::{Bench, CONFIDENCE};

/// Number of pairs of windows; a pair takes 24 s.
const PAIRS: usize = 13;
/// Maximum share of the throughput that may be lost.
const LIMIT: f64 = 0.02;
/// Maximum half-width of the interval; with a wider interval, the result is inconclusive.
const HALF_WIDTH_LIMIT: f64 = 0.01;

/// Returns the description of the method for the page.
pub fn method() -> String {
    "Besides idle processes and tables, the node has a worker per core that repeats a unit of work: it computes and makes \
     garbage, reads an ETS table, and calls another process. The node counts these units. beamtune runs on the same cores. The \
     logarithms of the throughput with and without beamtune are compared, in pairs of windows as on an idle node."
        .to_owned()
}

/// Compares the node with and without beamtune.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let schedulers = std::thread::available_parallelism().context("cannot count the cores")?.get();
    let mut node = Node::start(bench.own_otp()?, &[], Load::Busy(schedulers))?;
    let windows = Windows { beamtune: &bench.beamtune, observer: None, folder: bench.folder.path() };
    let pairs = bench.pairs.unwrap_or(PAIRS);
    let readings =
        windows.blocks(&mut node, &[Watcher::None, Watcher::Beamtune], pairs, &mut bench.random(0))?;
    let [alone, watched] = &readings[..] else { return Ok(Vec::new()) };
    let by_time = loss(alone, watched, |reading| reading.rate)?;
    let by_cpu = loss(alone, watched, |reading| reading.rate / reading.os_cores)?;
    Ok(vec![
        Figure {
            what: format!(
                "throughput lost to one sample a second, busy node with {PROCESSES} processes and {TABLES} tables, {}, \
                 beamtune on the same {schedulers} cores",
                node.version
            ),
            value: format!(
                "{}; half width of the interval: {:.2} %; {pairs} pairs of {} s",
                percent(&by_time),
                by_time.half_width() * 100.0,
                WINDOW.as_secs()
            ),
            limit: format!("< {} %, half width ≤ {} %", LIMIT * 100.0, HALF_WIDTH_LIMIT * 100.0),
            verdict: verdict(&by_time),
        },
        Figure::compared(
            "throughput lost per CPU second of the VM, independent of other processes on its cores",
            percent(&by_cpu),
        ),
    ])
}

fn verdict(loss: &Effect) -> Verdict {
    match judge(loss, LIMIT) {
        Verdict::Met if loss.half_width() > HALF_WIDTH_LIMIT => Verdict::Inconclusive,
        verdict => verdict,
    }
}

/// Returns the lost share of the throughput without beamtune. Logarithms are compared, because ratios do not change when the host becomes
/// slower or faster.
fn loss(alone: &[Reading], watched: &[Reading], done: impl Fn(&Reading) -> f64) -> Result<Effect> {
    let pairs = alone.iter().zip(watched);
    let logs: Vec<f64> = pairs.map(|(alone, watched)| (done(watched) / done(alone)).ln()).collect();
    let ratio = paired::effect(&logs, CONFIDENCE).context("too few pairs for an interval")?;
    let share = |log: f64| -log.exp_m1();
    Ok(Effect { estimate: share(ratio.estimate), low: share(ratio.high), high: share(ratio.low), ..ratio })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_a_share_of_the_throughput_without_beamtune() {
        let readings = |rates: [f64; 6]| rates.map(|rate| Reading { rate, os_cores: 2.0, updates: 11 });
        let alone = readings([100.0, 200.0, 400.0, 100.0, 100.0, 100.0]);
        let watched = readings([99.0, 198.0, 396.0, 99.0, 98.0, 101.0]);
        let loss = loss(&alone, &watched, |reading| reading.rate).expect("enough pairs");
        let rounded = |share: f64| (share * 1e6).round() / 1e6;
        assert_eq!((rounded(loss.low), rounded(loss.estimate), rounded(loss.high)), (-0.01, 0.01, 0.02));
    }

    #[test]
    fn a_wide_interval_is_inconclusive_except_for_a_large_loss() {
        let check = |low: f64, estimate: f64, high: f64, expect: Verdict| {
            let effect = Effect { low, estimate, high, confidence: 0.95 };
            assert_eq!(verdict(&effect), expect, "{effect:?}");
        };
        check(-0.002, 0.004, 0.01, Verdict::Met);
        check(-0.02, -0.01, 0.01, Verdict::Inconclusive);
        check(0.0, 0.01, 0.02, Verdict::Inconclusive);
        check(0.01, 0.03, 0.05, Verdict::Inconclusive);
        check(0.03, 0.06, 0.09, Verdict::Missed);
    }
}
