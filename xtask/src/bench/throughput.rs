//! What being watched costs a busy node: work that it does not get done.

use anyhow::{Context, Result};
use beamtune_stats::paired::{self, Effect};

use super::figure::{Figure, Verdict, judge, percent};
use super::node::{Load, Node, PROCESSES, TABLES};
use super::window::{Reading, WINDOW, Watcher, Windows};
use super::{Bench, CONFIDENCE};

/// Pairs of windows: 24 s each.
const PAIRS: usize = 13;
/// Of the throughput.
const LIMIT: f64 = 0.02;
/// With a wider interval than this to either side, nothing is proven.
const HALF_WIDTH_LIMIT: f64 = 0.01;

/// How it is measured, for the page.
pub fn method() -> String {
    "Besides idle processes and tables, one worker per core does the same again and again: it computes and makes garbage, reads \
     an ETS table, and sends a message to another process and waits for the answer. The node counts what is done. beamtune runs \
     on the same cores. Compared are the logarithms of the throughput with and without beamtune, in pairs of windows as on an \
     idle node."
        .to_owned()
}

/// Watched by beamtune against not watched.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let schedulers = std::thread::available_parallelism().context("how many cores are there")?.get();
    let mut node = Node::start(bench.own_otp()?, &[], Load::Busy(schedulers))?;
    let windows = Windows { beamtune: &bench.beamtune, observer: None, folder: bench.folder.path() };
    let pairs = bench.pairs.unwrap_or(PAIRS);
    let readings =
        windows.blocks(&mut node, &[Watcher::Nobody, Watcher::Beamtune], pairs, &mut bench.random(0))?;
    let [nobody, watched] = &readings[..] else { return Ok(Vec::new()) };
    let by_time = lost(nobody, watched, |reading| reading.rate)?;
    let by_cpu = lost(nobody, watched, |reading| reading.rate / reading.os_cores)?;
    Ok(vec![
        Figure {
            what: format!(
                "throughput lost to one sample a second on a busy node with {PROCESSES} processes and {TABLES} \
                 tables, {}, beamtune on the same {schedulers} cores",
                node.version
            ),
            value: format!(
                "{}; half of the interval: {:.2} %; {pairs} pairs of {} s",
                percent(&by_time),
                by_time.half_width() * 100.0,
                WINDOW.as_secs()
            ),
            limit: format!("< {} %, half of the interval ≤ {} %", LIMIT * 100.0, HALF_WIDTH_LIMIT * 100.0),
            verdict: verdict(&by_time),
        },
        Figure::compared(
            "the same per second of CPU that the VM had, which leaves out what others took from the cores",
            percent(&by_cpu),
        ),
    ])
}

fn verdict(lost: &Effect) -> Verdict {
    match judge(lost, LIMIT) {
        Verdict::Kept if lost.half_width() > HALF_WIDTH_LIMIT => Verdict::Unproven,
        verdict => verdict,
    }
}

/// The share of what is done unwatched that is lost. Ratios are what stays the same while the machine gets slower or
/// faster, so it is their logarithms that are compared.
fn lost(nobody: &[Reading], watched: &[Reading], done: impl Fn(&Reading) -> f64) -> Result<Effect> {
    let pairs = nobody.iter().zip(watched);
    let logs: Vec<f64> = pairs.map(|(nobody, watched)| (done(watched) / done(nobody)).ln()).collect();
    let ratio = paired::effect(&logs, CONFIDENCE).context("too few pairs for an interval")?;
    let share = |log: f64| -log.exp_m1();
    Ok(Effect { estimate: share(ratio.estimate), low: share(ratio.high), high: share(ratio.low), ..ratio })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_a_share_of_what_is_done_unwatched() {
        let readings = |rates: [f64; 6]| rates.map(|rate| Reading { rate, os_cores: 2.0, updates: 11 });
        let nobody = readings([100.0, 200.0, 400.0, 100.0, 100.0, 100.0]);
        let watched = readings([99.0, 198.0, 396.0, 99.0, 98.0, 101.0]);
        let lost = lost(&nobody, &watched, |reading| reading.rate).expect("enough pairs");
        let rounded = |share: f64| (share * 1e6).round() / 1e6;
        assert_eq!((rounded(lost.low), rounded(lost.estimate), rounded(lost.high)), (-0.01, 0.01, 0.02));
    }

    #[test]
    fn a_wide_interval_proves_nothing_but_a_great_loss() {
        let check = |low: f64, estimate: f64, high: f64, expect: Verdict| {
            let effect = Effect { low, estimate, high, confidence: 0.95 };
            assert_eq!(verdict(&effect), expect, "{effect:?}");
        };
        check(-0.002, 0.004, 0.01, Verdict::Kept);
        check(-0.02, -0.01, 0.01, Verdict::Unproven);
        check(0.0, 0.01, 0.02, Verdict::Unproven);
        check(0.01, 0.03, 0.05, Verdict::Unproven);
        check(0.03, 0.06, 0.09, Verdict::Missed);
    }
}
