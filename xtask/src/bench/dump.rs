//! A crash dump of four gigabytes: how long `beamtune import` takes for it, and how much memory.

#[path = "../../../crates/import/tests/made_dump/mod.rs"]
mod made_dump;

use std::fs::File;
use std::io;
use std::time::Duration;

use anyhow::Result;

use super::Bench;
use super::figure::Figure;
use super::process::{command, run_whole};

const MEGABYTES: u64 = 4 << 10;
const MEMORY_LIMIT_MB: f64 = 200.0;
/// A slow disk reads 100 MB a second.
const PATIENCE: Duration = Duration::from_secs(300);

/// How it is measured, for the page.
pub fn method() -> String {
    format!(
        "The dump is made up: {} processes, of which every thousandth is large, then heaps. It is written to a disk first, so most of it comes \
         from the system's cache. Memory is the kernel's `VmHWM`.",
        made_dump::PROCESSES
    )
}

/// Writes the dump and has it read.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let path = bench.folder.path().join("erl_crash.dump");
    let bytes = io::copy(&mut made_dump::Made::new(MEGABYTES), &mut File::create(&path)?)?;
    let read = run_whole(command(&bench.beamtune).arg("import").arg(&path), PATIENCE)?;
    std::fs::remove_file(&path)?;
    let (megabytes, seconds) = (bytes as f64 / 1e6, read.time.as_secs_f64());
    Ok(vec![
        Figure::below(
            format!("memory of `beamtune import` of a crash dump of {megabytes:.0} MB: most ever resident"),
            read.peak_rss_bytes as f64 / 1e6,
            MEMORY_LIMIT_MB,
            |mb| format!("{mb:.0} MB"),
        ),
        Figure::compared(
            "the whole command",
            format!("{seconds:.1} s, {:.0} MB a second", megabytes / seconds),
        ),
    ])
}
