//! A recording of 24 hours with 64 + 64 schedulers: its size, and the time that it takes to open and to diagnose it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use beamtune_recording::Reader;

use super::Bench;
use super::figure::Figure;
use super::process::{command, output, run_to_end};

const HOURS: u32 = 24;
const SIZE_LIMIT_MB: f64 = 500.0;
const MEMORY_LIMIT_MB: f64 = 80.0;
const OPEN_LIMIT_MS: f64 = 1_000.0;
const DIAGNOSE_LIMIT_S: f64 = 10.0;
const DIAGNOSE_MEMORY_LIMIT_MB: f64 = 200.0;
/// Timeout; writing the synthetic day takes one or two minutes.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Returns the description of the method for the page.
pub fn method() -> String {
    "`crates/recording/examples/day.rs` writes the recording. Memory is `VmHWM`.".to_owned()
}

/// Writes the recording and diagnoses it.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let file = bench.folder.path().join("day.beamtune");
    let example = build(bench)?;
    let written = run_to_end(command(example).arg("write").arg(&file).arg(HOURS.to_string()), TIMEOUT)?;
    let size = fs::metadata(&file)?.len();

    let begin = Instant::now();
    let lives = Reader::open(&file)?.recorded_incarnations()?;
    let open = begin.elapsed();
    let ticks: u32 = lives.iter().map(|life| life.ticks).sum();
    ensure!(ticks == HOURS * 3_600, "the day holds {ticks} samples");

    let diagnosed = run_to_end(command(&bench.beamtune).arg("diagnose").arg(&file), TIMEOUT)?;
    let mb = |mb: f64| format!("{mb:.0} MB");
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let day = format!("{HOURS} h at one sample a second, 64 + 64 schedulers (synthetic)");
    Ok(vec![
        Figure::below(format!("size of a recording of {day}"), megabytes(size), SIZE_LIMIT_MB, mb),
        Figure::below("peak RSS of the recorder", megabytes(written.peak_rss_bytes), MEMORY_LIMIT_MB, mb),
        Figure::below(
            "opening the recording from the page cache",
            open.as_secs_f64() * 1e3,
            OPEN_LIMIT_MS,
            |ms| format!("{ms:.0} ms"),
        ),
        Figure::below(
            "duration of `beamtune diagnose` for this recording",
            diagnosed.time.as_secs_f64(),
            DIAGNOSE_LIMIT_S,
            |s| format!("{s:.1} s"),
        ),
        Figure::below(
            "peak RSS of `beamtune diagnose`",
            megabytes(diagnosed.peak_rss_bytes),
            DIAGNOSE_MEMORY_LIMIT_MB,
            mb,
        ),
    ])
}

/// Builds the program that writes the recording, which is an example of the crate `recording`.
fn build(bench: &Bench) -> Result<PathBuf> {
    let mut cargo = command(env!("CARGO"));
    cargo.args(["build", "--quiet", "--release", "-p", "beamtune-recording", "--example", "day"]);
    output(cargo.current_dir(&bench.repository))?;
    let this = std::env::current_exe()?;
    let target = this.parent().and_then(Path::parent).context("xtask is not in a target folder")?;
    Ok(target.join("release/examples/day"))
}
