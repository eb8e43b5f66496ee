//! `record --keep`: keeps the last few hours of one or more nodes, each in its own thread and file.
//!
//! Messages are single lines on standard error, for the journal.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use beamtune_attach::Target;
use beamtune_model::Nanos;
use beamtune_node::record::{RecordError, record_node_into};
use beamtune_node::target::LiveTarget;
use beamtune_recording::{Outcome, Plan, Progress, Ring, Stop, Writer};

use super::Args;
use crate::signals::stop_on_signals;
use crate::terminal;

/// Time between two searches for a node that is not running yet.
const SEARCH_INTERVAL: Duration = Duration::from_secs(10);
/// Minimum time between two messages about trouble.
const MESSAGE_INTERVAL: Duration = Duration::from_secs(60);

/// Records until Ctrl-C. A target that fails does not stop the others, but changes the exit status.
pub(super) fn run(args: &Args, ring: Ring) -> Result<ExitCode> {
    let several = args.targets.len() > 1;
    if let Some(output) = &args.output {
        if several && output.is_file() {
            bail!("{} is a file: for several targets, name a folder with -o", output.display());
        }
        if is_folder(output, several) {
            std::fs::create_dir_all(output).with_context(|| format!("cannot create {}", output.display()))?;
        }
    }
    let stop = Stop::default();
    stop_on_signals(&stop)?;
    let files = Files { output: args.output.as_deref(), several, taken: Mutex::default() };
    let record = |target: &String| {
        let ended = record_target(args, target, ring, &files, &stop);
        if let Err(error) = &ended {
            // Logged immediately, since the other targets may be recorded for months.
            log(target, &format!("{error:#}"));
        }
        ended.is_ok()
    };
    let failed = thread::scope(|scope| {
        let (mut threads, mut here, mut failed) = (Vec::new(), None, 0);
        for target in &args.targets {
            match thread::Builder::new().spawn_scoped(scope, || record(target)) {
                Ok(thread) => threads.push(thread),
                Err(_) if here.is_none() => here = Some(target),
                Err(error) => {
                    log(target, &format!("not recorded: no thread can be started: {error}"));
                    failed += 1;
                }
            }
        }
        // The first target without a thread is recorded by this one.
        failed += usize::from(here.is_some_and(|target| !record(target)));
        failed += threads.into_iter().filter_map(|thread| thread.join().ok()).filter(|ok| !ok).count();
        failed
    });
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(terminal::CANNOT) })
}

/// The files of the nodes.
struct Files<'a> {
    output: Option<&'a Path>,
    several: bool,
    /// Files that are already used. Closing a second handle on such a file would release SQLite's POSIX locks.
    taken: Mutex<HashSet<PathBuf>>,
}

impl Files<'_> {
    /// Returns the file of a node: the file given with `-o`, or a file in the folder, with the node's name.
    fn of(&self, node: &str) -> Result<PathBuf> {
        let path = match self.output {
            Some(path) if !is_folder(path, self.several) => path.to_owned(),
            folder => {
                // A node name is usually a valid file name. In any case, the file must stay within the folder.
                let name: String = node
                    .chars()
                    .map(|c| if c.is_alphanumeric() || "@._-".contains(c) { c } else { '_' })
                    .collect();
                folder.unwrap_or(Path::new(".")).join(format!("{name}.btr"))
            }
        };
        if !self.taken.lock().unwrap_or_else(PoisonError::into_inner).insert(path.clone()) {
            bail!(
                "another target is already recorded into {}: record nodes with the same name with separate commands, each with its \
                 own file (-o FILE)",
                path.display()
            );
        }
        Ok(path)
    }
}

/// True if `-o` names a folder, which may not exist yet.
pub(super) fn is_folder(path: &Path, several: bool) -> bool {
    several || path.is_dir() || path.as_os_str().to_string_lossy().ends_with('/')
}

/// Searches for a node until it is running, then records it.
fn record_target(args: &Args, target: &str, ring: Ring, files: &Files<'_>, stop: &Stop) -> Result<()> {
    let is_process = target.parse::<u32>().is_ok();
    if !is_process {
        target.parse::<Target>()?;
    }
    let mut messages = MessageFilter::default();
    while !stop.is_requested() {
        let ended = match LiveTarget::find(Some(target), &args.access.options()) {
            Ok(live) => record_live(args, &live, ring, files, stop),
            // A process id does not come back after a restart.
            Err(error) if is_process => Err(RecordError::Permanent(error)),
            Err(error) => Err(RecordError::Temporary(error)),
        };
        match ended {
            Ok((path, outcome)) => {
                let path = path.display();
                let samples = outcome.samples;
                log(target, &format!("{samples} samples; diagnose them with: beamtune diagnose {path}"));
                return Ok(());
            }
            Err(RecordError::Permanent(error)) => return Err(error),
            Err(RecordError::Temporary(error) | RecordError::Unanswered(_, error)) => {
                let text = format!("retrying every {} s: {error:#}", SEARCH_INTERVAL.as_secs());
                if let Some(line) = messages.line(Some(&text)) {
                    log(target, &line);
                }
                stop.wait(SEARCH_INTERVAL);
            }
        }
    }
    Ok(())
}

fn record_live(
    args: &Args,
    live: &LiveTarget,
    ring: Ring,
    files: &Files<'_>,
    stop: &Stop,
) -> Result<(PathBuf, Outcome), RecordError> {
    // Waits without a limit if the node is down or the disk is full.
    let plan =
        Plan { wait_for_return: Nanos::MAX, wait_for_room: Nanos::MAX, triggers: true, ..Plan::default() };
    let mut file = PathBuf::new();
    let open = |node: &str| {
        file = files.of(node)?;
        let writer = Writer::ring(&file, ring, node)?;
        let begins = if writer.first_instant(0) > 0 { "recording continues" } else { "recording" };
        let (keep, size) = (ring.keep / 60_000_000_000, ring.max_bytes / 1_000_000);
        log(node, &format!("{begins} in {}: the last {keep} min, at most {size} MB", file.display()));
        Ok(writer)
    };
    let mut messages = MessageFilter::default();
    let mut progress = |progress: &Progress<'_>| {
        progress.notices.iter().for_each(|notice| log(&live.label, notice));
        if let Some(line) = messages.line(progress.trouble) {
            log(&live.label, &line);
        }
    };
    let options = args.record_options(None);
    let (_, outcome) = record_node_into(live, &options, plan, stop, open, &mut progress)?;
    Ok((file, outcome))
}

/// Reports trouble when it begins and when it ends, not with every sample.
#[derive(Default)]
struct MessageFilter {
    last: Option<String>,
    at: Option<Instant>,
}

impl MessageFilter {
    fn line(&mut self, now: Option<&str>) -> Option<String> {
        if self.last.as_deref() == now || self.at.is_some_and(|at| at.elapsed() < MESSAGE_INTERVAL) {
            return None;
        }
        self.at = Some(Instant::now());
        self.last = now.map(str::to_owned);
        Some(now.unwrap_or("sampling works again").to_owned())
    }
}

fn log(target: &str, message: &str) {
    terminal::complain(&beamtune_report::text::clean(&format!("{target}: {message}")));
    terminal::complain("\n");
}
