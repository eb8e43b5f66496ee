//! Overhead on an idle node, for beamtune on every release, and for etop.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use beamtune_stats::paired::{self, Effect};

use super::figure::{Figure, judge, percent};
use super::node::{Load, Node, Otp, PROCESSES, TABLES};
use super::process::{command, output};
use super::window::{AFTER, BEFORE, Reading, WINDOW, Watcher, Windows};
use super::{Bench, CONFIDENCE, or_not_measured};

/// Number of blocks of windows: a block takes 24 s with two windows, or 36 s with three (etop).
const BLOCKS: usize = 10;
/// Maximum overhead, as a share of a core.
const LIMIT: f64 = 0.005;
/// The releases that are measured.
const RELEASES: [u32; 4] = [23, 25, 27, 29];

/// Returns the description of the method for the page.
pub fn method() -> String {
    format!(
        "A node with {PROCESSES} idle processes and {TABLES} ETS tables measures with `scheduler_wall_time_all` how long all \
         its schedulers were active, dirty ones included, in windows of {} s: alone, with `beamtune record` at its default \
         interval of 1 s, and with etop. A window covers every kind of sample, including the expensive ones every 10 s. A \
         window begins {} s after the observer started, and {} s pass after the observer ended. A block has one window of each kind. \
         `scheduler_wall_time` is on in all windows. The nodes of all releases are measured at the same time, each in its own \
         windows; that reduces precision, and does not favour beamtune. The VM counts a scheduler as active even while it \
         is off-CPU; the operating system counts only CPU time, but of all threads, busy waiting included. Windows with \
         missing samples are rejected.",
        WINDOW.as_secs(),
        BEFORE.as_secs_f64(),
        AFTER.as_secs_f64()
    )
}

/// Measures all releases at the same time: the nodes are idle, so they hardly affect each other.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let observer = observer(bench);
    let of_otp = |index: usize, otp: &Otp| match &observer {
        // etop runs on the host's OTP.
        Ok(observer) if index == 0 => {
            let watchers = [Watcher::None, Watcher::Beamtune, Watcher::Etop];
            of_release(bench, otp, &watchers, observer.clone())
        }
        _ => of_release(bench, otp, &[Watcher::None, Watcher::Beamtune], None),
    };
    let mut figures = Vec::new();
    std::thread::scope(|scope| {
        let of_otp = &of_otp;
        let start = |(index, otp)| (otp, scope.spawn(move || of_otp(index, otp)));
        let threads: Vec<(&Otp, _)> = bench.otps.iter().enumerate().map(start).collect();
        for (otp, thread) in threads {
            let found = thread.join().map_err(|_| anyhow!("a thread panicked")).flatten();
            figures.extend(or_not_measured(&format!("cost on an idle node, OTP {}", otp.release), found)?);
        }
        anyhow::Ok(())
    })?;
    if let Err(error) = observer {
        figures.push(Figure::not_measured("etop", format!("{error:#}")));
    }
    figures.push(Figure::compared(
        "observer_cli at an interval of 1.5 s",
        "1.1 % (earlier measurement on such a node, OTP 25; not in this run, because Debian does not package it)",
    ));
    let missing = RELEASES.iter().filter(|release| bench.otps.iter().all(|otp| otp.release != **release));
    figures.extend(missing.map(|release| {
        let why = format!("OTP {release} is not installed (make otp)");
        Figure::not_measured(format!("cost on an idle node, OTP {release}"), why)
    }));
    Ok(figures)
}

fn of_release(
    bench: &Bench,
    otp: &Otp,
    watchers: &[Watcher],
    observer: Option<PathBuf>,
) -> Result<Vec<Figure>> {
    let mut node = Node::start(otp, &[], Load::Idle)?;
    let windows = Windows { beamtune: &bench.beamtune, observer, folder: bench.folder.path() };
    let blocks = bench.pairs.unwrap_or(BLOCKS);
    let readings = windows.blocks(&mut node, watchers, blocks, &mut bench.random(otp.release))?;
    let [alone, watched @ ..] = &readings[..] else { return Ok(Vec::new()) };

    let mut figures = Vec::new();
    for (watcher, watched) in watchers[1..].iter().zip(watched) {
        let by_vm = increase(alone, watched, |reading| reading.rate)?;
        let by_os = increase(alone, watched, |reading| reading.os_cores)?;
        let value = format!("{} of a core; CPU time of the process: {}", percent(&by_vm), percent(&by_os));
        figures.push(match watcher {
            Watcher::Etop => Figure::compared(
                "etop at an interval of 1 s, without tracing",
                format!("{value}; {:.2} tables a second", updates_per_s(watched)),
            ),
            _ => Figure {
                what: format!(
                    "one sample a second, idle node with {PROCESSES} processes and {TABLES} tables, {}, by scheduler wall time",
                    node.version
                ),
                value,
                limit: format!("< {} %", LIMIT * 100.0),
                verdict: judge(&by_vm, LIMIT),
            },
        });
    }
    Ok(figures)
}

/// Returns the mean number of updates of an observer per second.
fn updates_per_s(watched: &[Reading]) -> f64 {
    let updates: usize = watched.iter().map(|reading| reading.updates).sum();
    updates as f64 / ((BEFORE + WINDOW).as_secs_f64() * watched.len() as f64)
}

/// Returns by how much a reading is higher with an observer.
fn increase(alone: &[Reading], watched: &[Reading], used: impl Fn(&Reading) -> f64) -> Result<Effect> {
    let differences: Vec<f64> =
        alone.iter().zip(watched).map(|(alone, watched)| used(watched) - used(alone)).collect();
    paired::effect(&differences, CONFIDENCE).context("too few pairs for an interval")
}

/// Returns the folder of etop's modules; `None` if the OTP has them. Debian's package is only unpacked: installing it would add 270 MB of
/// graphical libraries that etop does not use.
fn observer(bench: &Bench) -> Result<Option<PathBuf>> {
    let eval = "io:format(\"~p\", [code:which(etop)]), halt().";
    if output(command("erl").args(["-noshell", "-eval", eval]))? != "non_existing" {
        return Ok(None);
    }
    let folder = bench.folder.path().join("observer");
    std::fs::create_dir(&folder)?;
    output(command("apt-get").args(["download", "-q", "erlang-observer"]).current_dir(&folder))?;
    let is = |ending: &'static str| move |path: &PathBuf| path.to_string_lossy().ends_with(ending);
    let package = entries(&folder)?.into_iter().find(is(".deb")).context("apt-get downloaded no package")?;
    output(command("dpkg-deb").arg("-x").arg(&package).arg(&folder))?;
    let libraries = entries(&folder.join("usr/lib/erlang/lib"))?;
    Ok(Some(libraries.first().context("the package erlang-observer contains no library")?.join("ebin")))
}

fn entries(folder: &std::path::Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}
