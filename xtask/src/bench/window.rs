//! Windows: a node is measured for a while, with somebody watching it or without, in random order.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use beamtune_recording::Reader;

use super::node::{Etop, Node};
use super::process::{PATIENCE, Running, command, cpu_ns, pause, peak_rss_bytes, wait_for};

/// Length of a window: the shortest one that holds every kind of sample, as details are read each 10 s.
pub const WINDOW: Duration = Duration::from_secs(10);
/// From the watcher's start to the window: what starting costs is not what watching costs. The half second keeps
/// the window's ends away from the samples.
pub const BEFORE: Duration = Duration::from_millis(1_500);
/// From the watcher's end to the next window.
pub const AFTER: Duration = Duration::from_millis(300);

/// Who watches the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watcher {
    /// Nobody.
    Nobody,
    /// `beamtune record` at one sample a second.
    Beamtune,
    /// `etop` at one refresh a second.
    Etop,
}

/// What a window showed.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// What the node has measured itself.
    pub rate: f64,
    /// CPU that the operating system saw its process use, in cores.
    pub os_cores: f64,
    /// Samples or tables that the watcher has got, from [`BEFORE`] the window to its end.
    pub updates: usize,
}

/// What windows need.
pub struct Windows<'a> {
    /// The binary.
    pub beamtune: &'a Path,
    /// Folder of etop's beams, where the Erlang has none itself.
    pub observer: Option<PathBuf>,
    /// Where recordings may be put.
    pub folder: &'a Path,
}

impl Windows<'_> {
    /// Blocks of one window for each watcher, in an order drawn for each block. Gives each watcher's readings, in the
    /// order of `watchers` and of the blocks.
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
            Watcher::Nobody => (measure(node)?, 0),
            Watcher::Beamtune => {
                let recorder = Recorder::start(self.beamtune, node, self.folder)?;
                (measure(node)?, recorder.stop(WINDOW.as_secs() as usize)?)
            }
            Watcher::Etop => {
                let etop = Etop::start(node, self.observer.as_deref())?;
                let reading = measure(node)?;
                let tables = etop.tables();
                // How many is told beside the figure: it waits for a second after each one.
                ensure!(tables > 0, "etop has printed no table");
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

/// `beamtune record`, running.
pub struct Recorder {
    running: Running,
    file: PathBuf,
}

impl Recorder {
    /// Starts it and waits until it has attached.
    pub fn start(beamtune: &Path, node: &Node, folder: &Path) -> Result<Recorder> {
        let file = folder.join(format!("{:016x}.beamtune", fastrand::u64(..)));
        let mut record = command(beamtune);
        // Should this program be killed, it ends all the same.
        record.args(["record", &node.name, "--every", "1s", "--for", "10m", "-o"]).arg(&file);
        let mut recorder = Recorder { running: Running::start(&mut record)?, file };
        // The file is made when the node has been attached to.
        let ended = wait_for("beamtune record to attach", PATIENCE, || {
            let ended = recorder.running.ended()?.is_some();
            Ok((ended || recorder.file.exists()).then_some(ended))
        })?;
        if ended {
            return Err(recorder.running.failure()).context("beamtune record");
        }
        Ok(recorder)
    }

    /// The most memory that it has had so far, in bytes.
    pub fn peak_rss_bytes(&self) -> Result<u64> {
        peak_rss_bytes(self.running.pid()).context("beamtune record has ended")
    }

    /// Ends it, and gives the number of samples that the VM has answered. An error if there are fewer than
    /// expected: then what it costs would say nothing.
    pub fn stop(self, expected: usize) -> Result<usize> {
        let reader = self.finish()?;
        let answered = answered(&reader, expected)?;
        std::fs::remove_file(reader.path())?;
        Ok(answered)
    }

    /// Ends it, and opens what it has recorded.
    pub fn finish(self) -> Result<Reader> {
        self.running.interrupt()?;
        self.running.finish(PATIENCE).context("beamtune record")?;
        Ok(Reader::open(&self.file)?)
    }
}

/// How many samples of a recording the node has answered; fewer than were expected are an error.
pub fn answered(reader: &Reader, expected: usize) -> Result<usize> {
    let mut answered = 0;
    for sample in reader.samples() {
        answered += usize::from(sample?.tick.vm.is_some());
    }
    ensure!(answered >= expected, "only {answered} of {expected} samples were answered while recording");
    Ok(answered)
}
