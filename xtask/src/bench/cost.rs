//! What being watched costs an idle node: by beamtune on every release, and beside it by etop.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use beamtune_stats::paired::{self, Effect};

use super::figure::{Figure, judge, percent};
use super::node::{Load, Node, Otp, PROCESSES, TABLES};
use super::process::{command, output};
use super::window::{AFTER, BEFORE, Reading, WINDOW, Watcher, Windows};
use super::{Bench, CONFIDENCE, or_not_measured};

/// Blocks of windows: of two windows 24 s each, with etop of three 36 s.
const BLOCKS: usize = 10;
/// Of one core.
const LIMIT: f64 = 0.005;
/// Releases that beamtune supports.
const RELEASES: [u32; 4] = [23, 25, 27, 29];

/// How it is measured, for the page.
pub fn method() -> String {
    format!(
        "A node with {PROCESSES} processes that wait and {TABLES} ETS tables counts with `scheduler_wall_time_all` how long all \
         its schedulers, the dirty ones too, were active, in windows of {} s without anybody, with `beamtune record` at its \
         usual one sample a second, and with etop. A window holds every kind of sample, also the dearer ones that come each \
         10 s; it begins {} s after the watcher was started, and {} s lie between the watcher's end and what follows. A block \
         has one window of each kind. `scheduler_wall_time` itself is on in all windows. The nodes of all releases are \
         measured at the same time, in windows of their own, which costs them precision rather than flatters them. The VM \
         counts a scheduler as active also while the operating system has taken its core away; the operating system counts CPU \
         alone, but of all threads, and their busy waiting. A recording in which samples are missing is no measurement.",
        WINDOW.as_secs(),
        BEFORE.as_secs_f64(),
        AFTER.as_secs_f64()
    )
}

/// All releases at once: each node is idle, so they hardly meet.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let observer = observer(bench);
    let of_otp = |index: usize, otp: &Otp| match &observer {
        // etop runs on the machine's own Erlang.
        Ok(observer) if index == 0 => {
            let watchers = [Watcher::Nobody, Watcher::Beamtune, Watcher::Etop];
            of_release(bench, otp, &watchers, observer.clone())
        }
        _ => of_release(bench, otp, &[Watcher::Nobody, Watcher::Beamtune], None),
    };
    let mut figures = Vec::new();
    std::thread::scope(|scope| {
        let of_otp = &of_otp;
        let start = |(index, otp)| (otp, scope.spawn(move || of_otp(index, otp)));
        let threads: Vec<(&Otp, _)> = bench.otps.iter().enumerate().map(start).collect();
        for (otp, thread) in threads {
            let found = thread.join().map_err(|_| anyhow!("a thread has panicked")).flatten();
            figures.extend(or_not_measured(&format!("cost on an idle node, OTP {}", otp.release), found)?);
        }
        anyhow::Ok(())
    })?;
    if let Err(error) = observer {
        figures.push(Figure::not_measured("the same by etop", format!("{error:#}")));
    }
    figures.push(Figure::compared(
        "the same by observer_cli at 1.5 s",
        "1.1 % (an earlier measurement on such a node, OTP 25; not measured in this run, as Debian does not have it)",
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
    let [nobody, watched @ ..] = &readings[..] else { return Ok(Vec::new()) };

    let mut figures = Vec::new();
    for (watcher, watched) in watchers[1..].iter().zip(watched) {
        let by_vm = more(nobody, watched, |reading| reading.rate)?;
        let by_os = more(nobody, watched, |reading| reading.os_cores)?;
        let value = format!(
            "{} of a core; CPU of the process as the operating system counts it: {}",
            percent(&by_vm),
            percent(&by_os)
        );
        figures.push(match watcher {
            Watcher::Etop => Figure::compared(
                "the same by etop at an interval of 1 s, without its tracing",
                format!("{value}; {:.2} tables a second", updates_per_s(watched)),
            ),
            _ => Figure {
                what: format!(
                    "cost of one sample a second on an idle node with {PROCESSES} processes and {TABLES} \
                     tables, {}, by the VM's own accounting",
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

/// How often a watcher looks, in the mean.
fn updates_per_s(watched: &[Reading]) -> f64 {
    let updates: usize = watched.iter().map(|reading| reading.updates).sum();
    updates as f64 / ((BEFORE + WINDOW).as_secs_f64() * watched.len() as f64)
}

/// What is used more when watched.
fn more(nobody: &[Reading], watched: &[Reading], used: impl Fn(&Reading) -> f64) -> Result<Effect> {
    let differences: Vec<f64> =
        nobody.iter().zip(watched).map(|(nobody, watched)| used(watched) - used(nobody)).collect();
    paired::effect(&differences, CONFIDENCE).context("too few pairs for an interval")
}

/// Where etop's beams are: `None` if the Erlang has them. Debian's package is unpacked rather than installed, as
/// it wants 270 MB of a graphical system that etop does not use.
fn observer(bench: &Bench) -> Result<Option<PathBuf>> {
    let eval = "io:format(\"~p\", [code:which(etop)]), halt().";
    if output(command("erl").args(["-noshell", "-eval", eval]))? != "non_existing" {
        return Ok(None);
    }
    let folder = bench.folder.path().join("observer");
    std::fs::create_dir(&folder)?;
    output(command("apt-get").args(["download", "-q", "erlang-observer"]).current_dir(&folder))?;
    let is = |ending: &'static str| move |path: &PathBuf| path.to_string_lossy().ends_with(ending);
    let package =
        entries(&folder)?.into_iter().find(is(".deb")).context("apt-get has downloaded no package")?;
    output(command("dpkg-deb").arg("-x").arg(&package).arg(&folder))?;
    let libraries = entries(&folder.join("usr/lib/erlang/lib"))?;
    Ok(Some(libraries.first().context("the package erlang-observer holds no library")?.join("ebin")))
}

fn entries(folder: &std::path::Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}
