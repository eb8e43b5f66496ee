//! A recording of a day, with 64 + 64 schedulers: how large it is, and how long it takes to open and to judge.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use beamtune_recording::Reader;

use super::Bench;
use super::figure::Figure;
use super::process::{command, output, run_whole};

const HOURS: u32 = 24;
const SIZE_LIMIT_MB: f64 = 500.0;
const MEMORY_LIMIT_MB: f64 = 80.0;
const OPEN_LIMIT_MS: f64 = 1_000.0;
const DIAGNOSE_LIMIT_S: f64 = 10.0;
const DIAGNOSE_MEMORY_LIMIT_MB: f64 = 200.0;
/// Making up a day takes a minute or two.
const PATIENCE: Duration = Duration::from_secs(600);

/// How it is measured, for the page.
pub fn method() -> String {
    "`crates/recording/examples/day.rs` writes the recording. Memory is the kernel's `VmHWM`.".to_owned()
}

/// Writes the day and reads it.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let file = bench.folder.path().join("day.beamtune");
    let example = build(bench)?;
    let written = run_whole(command(example).arg("write").arg(&file).arg(HOURS.to_string()), PATIENCE)?;
    let size = fs::metadata(&file)?.len();

    let begin = Instant::now();
    let lives = Reader::open(&file)?.lives()?;
    let open = begin.elapsed();
    let ticks: u32 = lives.iter().map(|life| life.ticks).sum();
    ensure!(ticks == HOURS * 3_600, "the day holds {ticks} samples");

    let diagnosed = run_whole(command(&bench.beamtune).arg("diagnose").arg(&file), PATIENCE)?;
    let mb = |mb: f64| format!("{mb:.0} MB");
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let day = format!("{HOURS} h at one sample a second, 64 + 64 schedulers (synthetic)");
    Ok(vec![
        Figure::below(format!("size of a recording of {day}"), megabytes(size), SIZE_LIMIT_MB, mb),
        Figure::below(
            "memory of the recorder over that day: most ever resident",
            megabytes(written.peak_rss_bytes),
            MEMORY_LIMIT_MB,
            mb,
        ),
        Figure::below(
            "opening the recording, in the system's cache",
            open.as_secs_f64() * 1e3,
            OPEN_LIMIT_MS,
            |ms| format!("{ms:.0} ms"),
        ),
        Figure::below("`beamtune diagnose` of it", diagnosed.time.as_secs_f64(), DIAGNOSE_LIMIT_S, |s| {
            format!("{s:.1} s")
        }),
        Figure::below(
            "memory of that: most ever resident",
            megabytes(diagnosed.peak_rss_bytes),
            DIAGNOSE_MEMORY_LIMIT_MB,
            mb,
        ),
    ])
}

/// The program that writes the day: an example of the crate `recording`.
fn build(bench: &Bench) -> Result<PathBuf> {
    let mut cargo = command(env!("CARGO"));
    cargo.args(["build", "--quiet", "--release", "-p", "beamtune-recording", "--example", "day"]);
    output(cargo.current_dir(&bench.repository))?;
    let this = std::env::current_exe()?;
    let target = this.parent().and_then(Path::parent).context("this program lies in no target folder")?;
    Ok(target.join("release/examples/day"))
}
