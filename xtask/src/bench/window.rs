//! Windows: a node is measured for some seconds, with or without an observer, in random order.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use beamtune_recording::Reader;

use super::node::{Etop, Node};
use super::process::{Running, TIMEOUT, command, cpu_ns, pause, peak_rss_bytes, wait_for};

/// Length of a window: details are read every 10 s, so a window covers every kind of sample.
pub const WINDOW: Duration = Duration::from_secs(10);
/// Time from the observer's start to the window, which excludes the cost of starting. The half second keeps samples away from both ends of
/// the window.
pub const BEFORE: Duration = Duration::from_millis(1_500);
/// Time from the observer's end to the next window.
pub const AFTER: Duration = Duration::from_millis(300);

/// The observer of the node in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watcher {
    /// The node runs alone.
    None,
    /// `beamtune record` with one sample a second.
    Beamtune,
    /// `etop` with one refresh a second.
    Etop,
}

/// The result of a window.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// The value that the node measured, see [`Node::end`].
    pub rate: f64,
    /// CPU time of the node's process, in cores.
    pub os_cores: f64,
    /// Number of samples or tables of the observer, from [`BEFORE`] the window to its end.
    pub updates: usize,
}

/// Settings for running windows.
pub struct Windows<'a> {
    /// The beamtune binary.
    pub beamtune: &'a Path,
    /// Folder of etop's modules, if the OTP lacks them.
    pub observer: Option<PathBuf>,
    /// Folder for recordings.
    pub folder: &'a Path,
}

impl Windows<'_> {
    /// Runs blocks of one window per observer, in random order within a block. Returns the readings of each observer, in the order of
    /// `watchers` and of the blocks.
    pub fn blocks(
        &self,
        node: &mut Node,
        watchers: &[Watcher],
        count: usize,
        random: &mut fastrand::Rng,
    ) -> Result<Vec<Vec<Reading>>> {
        let mut readings = vec![Vec::with_capacity(count); watchers.len()];
        let mut order: Vec<usize> = (0..watchers.len()).collect();
        for _ in 0..count {
            random.shuffle(&mut order);
            for index in &order {
                readings[*index].push(self.window(node, watchers[*index])?);
            }
        }
        Ok(readings)
    }

    fn window(&self, node: &mut Node, watcher: Watcher) -> Result<Reading> {
        let (reading, updates) = match watcher {
            Watcher::None => (measure(node)?, 0),
            Watcher::Beamtune => {
                let recorder = Recorder::start(self.beamtune, node, self.folder)?;
                (measure(node)?, recorder.stop(WINDOW.as_secs() as usize)?)
            }
            Watcher::Etop => {
                let etop = Etop::start(node, self.observer.as_deref())?;
                let reading = measure(node)?;
                let tables = etop.tables();
                // etop waits a second after each table, so the page reports the number of tables.
                ensure!(tables > 0, "etop printed no table");
                (reading, tables)
            }
        };
        pause(AFTER)?;
        Ok(Reading { updates, ..reading })
    }
}

fn measure(node: &mut Node) -> Result<Reading> {
    pause(BEFORE)?;
    let (begin, before) = (Instant::now(), cpu_ns(node.pid())?);
    node.begin()?;
    pause(WINDOW)?;
    let rate = node.end()?;
    let used = cpu_ns(node.pid())? - before;
    Ok(Reading { rate, os_cores: used as f64 / begin.elapsed().as_nanos() as f64, updates: 0 })
}

/// A running `beamtune record`.
pub struct Recorder {
    running: Running,
    file: PathBuf,
}

impl Recorder {
    /// Starts the recorder and waits until it has attached.
    pub fn start(beamtune: &Path, node: &Node, folder: &Path) -> Result<Recorder> {
        let file = folder.join(format!("{:016x}.beamtune", fastrand::u64(..)));
        let mut record = command(beamtune);
        // The limit of 10 minutes ends the recorder if this program is killed.
        record.args(["record", &node.name, "--every", "1s", "--for", "10m", "-o"]).arg(&file);
        let mut recorder = Recorder { running: Running::start(&mut record)?, file };
        // The recorder creates the file after attaching.
        let ended = wait_for("beamtune record to attach", TIMEOUT, || {
            let ended = recorder.running.exit_status()?.is_some();
            Ok((ended || recorder.file.exists()).then_some(ended))
        })?;
        if ended {
            return Err(recorder.running.failure()).context("beamtune record");
        }
        Ok(recorder)
    }

    /// Returns the peak RSS of the recorder so far.
    pub fn peak_rss_bytes(&self) -> Result<u64> {
        peak_rss_bytes(self.running.pid()).context("beamtune record has ended")
    }

    /// Ends the recorder and returns the number of samples that the VM answered. Fails if there are fewer than expected, because the
    /// measured overhead would then be too low.
    pub fn stop(self, expected: usize) -> Result<usize> {
        let reader = self.finish()?;
        let answered = answered(&reader, expected)?;
        std::fs::remove_file(reader.path())?;
        Ok(answered)
    }

    /// Ends the recorder and opens its recording.
    pub fn finish(self) -> Result<Reader> {
        self.running.interrupt()?;
        self.running.finish(TIMEOUT).context("beamtune record")?;
        Ok(Reader::open(&self.file)?)
    }
}

/// Returns the number of samples that the node answered. Fails if there are fewer than expected.
pub fn answered(reader: &Reader, expected: usize) -> Result<usize> {
    let mut answered = 0;
    for sample in reader.samples() {
        answered += usize::from(sample?.tick.vm.is_some());
    }
    ensure!(answered >= expected, "the node answered {answered} samples, expected {expected}");
    Ok(answered)
}
