//! A crash dump of four gigabytes: time and memory of `beamtune import`.

#[path = "../../../crates/import/tests/made_dump/mod.rs"]
mod made_dump;

use std::fs::File;
use std::io;
use std::time::Duration;

use anyhow::Result;

use super::Bench;
use super::figure::Figure;
use super::process::{command, run_to_end};

const MEGABYTES: u64 = 4 << 10;
const MEMORY_LIMIT_MB: f64 = 200.0;
/// Timeout, sufficient for a disk that reads 100 MB/s.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Returns the description of the method for the page.
pub fn method() -> String {
    format!(
        "The dump is synthetic: {} processes, one in a thousand of them large, then heaps. It is written just before, so most \
         of it is read from the page cache. Memory is `VmHWM`.",
        made_dump::PROCESSES
    )
}

/// Writes the dump and imports it.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let path = bench.folder.path().join("erl_crash.dump");
    let bytes = io::copy(&mut made_dump::SyntheticDump::new(MEGABYTES), &mut File::create(&path)?)?;
    let read = run_to_end(command(&bench.beamtune).arg("import").arg(&path), TIMEOUT)?;
    std::fs::remove_file(&path)?;
    let (megabytes, seconds) = (bytes as f64 / 1e6, read.time.as_secs_f64());
    Ok(vec![
        Figure::below(
            format!("peak RSS of `beamtune import` for a crash dump of {megabytes:.0} MB"),
            read.peak_rss_bytes as f64 / 1e6,
            MEMORY_LIMIT_MB,
            |mb| format!("{mb:.0} MB"),
        ),
        Figure::compared(
            "duration of this import",
            format!("{seconds:.1} s, {:.0} MB/s", megabytes / seconds),
        ),
    ])
}
