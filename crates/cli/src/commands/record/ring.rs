//! Rings: the last hours of one or several nodes, each in a thread and a file of its own, for as long as this runs.
//!
//! What is told goes line by line to standard error, where a journal keeps it: nobody sits before this.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use beamtune_attach::Target;
use beamtune_model::Nanos;
use beamtune_recording::{Outcome, Plan, Progress, Ring, Stop, Writer};

use super::Args;
use crate::subject::Live;
use crate::take::{Failed, stop_on_signals, take_into};
use crate::terminal;

/// Between two looks for a node that has not been there yet.
const SEARCH_PAUSE: Duration = Duration::from_secs(10);
/// Between two lines about trouble that comes and goes.
const QUIET: Duration = Duration::from_secs(60);

/// Records until Ctrl-C. One target that fails does not stop the others, but the status tells.
pub(super) fn run(args: &Args, ring: Ring) -> Result<ExitCode> {
    let several = args.targets.len() > 1;
    if let Some(output) = &args.output {
        if several && output.is_file() {
            bail!("{} is a file: several targets need a folder", output.display());
        }
        if is_folder(output, several) {
            std::fs::create_dir_all(output).with_context(|| format!("cannot make {}", output.display()))?;
        }
    }
    let stop = Stop::default();
    stop_on_signals(&stop)?;
    let files = Files { output: args.output.as_deref(), several, taken: Mutex::default() };
    let hold_and_tell = |target: &String| {
        let ended = hold(args, target, ring, &files, &stop);
        if let Err(error) = &ended {
            // At once: the others may go on for months.
            say(target, &format!("{error:#}"));
        }
        ended.is_ok()
    };
    let failed = thread::scope(|scope| {
        let (mut threads, mut here, mut failed) = (Vec::new(), None, 0);
        for target in &args.targets {
            match thread::Builder::new().spawn_scoped(scope, || hold_and_tell(target)) {
                Ok(thread) => threads.push(thread),
                Err(_) if here.is_none() => here = Some(target),
                Err(error) => {
                    say(target, &format!("is not recorded, since no thread can be started for it: {error}"));
                    failed += 1;
                }
            }
        }
        // Where threads are short, this one is left.
        failed += usize::from(here.is_some_and(|target| !hold_and_tell(target)));
        failed + threads.into_iter().filter_map(|thread| thread.join().ok()).filter(|well| !well).count()
    });
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(terminal::CANNOT) })
}

/// Which file is whose.
struct Files<'a> {
    output: Option<&'a Path>,
    several: bool,
    /// Those that this process records into. Opening one of them a second time would take back SQLite's locks on it.
    taken: Mutex<HashSet<PathBuf>>,
}

impl Files<'_> {
    /// The file for a node: the one that was named, or one in the folder, named after the node.
    fn of(&self, node: &str) -> Result<PathBuf> {
        let path = match self.output {
            Some(path) if !is_folder(path, self.several) => path.to_owned(),
            folder => {
                // What a node may be called is also a file's name, but whatever it is, it stays within the folder.
                let name: String = node
                    .chars()
                    .map(|c| if c.is_alphanumeric() || "@._-".contains(c) { c } else { '_' })
                    .collect();
                folder.unwrap_or(Path::new(".")).join(format!("{name}.btr"))
            }
        };
        if !self.taken.lock().unwrap_or_else(PoisonError::into_inner).insert(path.clone()) {
            bail!(
                "another target of this command is recorded into {}: where two nodes are called the same, give each a \
                 command and a file of its own (-o FILE)",
                path.display()
            );
        }
        Ok(path)
    }
}

/// True if `-o` names a folder, which need not be there yet.
pub(super) fn is_folder(path: &Path, several: bool) -> bool {
    several || path.is_dir() || path.as_os_str().to_string_lossy().ends_with('/')
}

/// Looks for a node until it is there, and records it from then on.
fn hold(args: &Args, target: &str, ring: Ring, files: &Files<'_>, stop: &Stop) -> Result<()> {
    let is_process = target.parse::<u32>().is_ok();
    if !is_process {
        target.parse::<Target>()?;
    }
    let mut trouble = Trouble::default();
    while !stop.is_requested() {
        let ended = match Live::find(Some(target), &args.access) {
            Ok(live) => hold_live(args, &live, ring, files, stop),
            // Numbers of processes do not come again.
            Err(error) if is_process => Err(Failed::ForGood(error)),
            Err(error) => Err(Failed::ForNow(error)),
        };
        match ended {
            Ok((path, outcome)) => {
                let path = path.display();
                let samples = outcome.samples;
                say(target, &format!("{samples} samples; look at them with: beamtune diagnose {path}"));
                return Ok(());
            }
            Err(Failed::ForGood(error)) => return Err(error),
            Err(Failed::ForNow(error) | Failed::Unanswered(_, error)) => {
                let text = format!("is looked for every {} s: {error:#}", SEARCH_PAUSE.as_secs());
                if let Some(line) = trouble.line(Some(&text)) {
                    say(target, &line);
                }
                stop.wait(SEARCH_PAUSE);
            }
        }
    }
    Ok(())
}

fn hold_live(
    args: &Args,
    live: &Live,
    ring: Ring,
    files: &Files<'_>,
    stop: &Stop,
) -> Result<(PathBuf, Outcome), Failed> {
    // Node and room on the disk are waited for, however long they stay away.
    let plan =
        Plan { wait_for_return: Nanos::MAX, wait_for_room: Nanos::MAX, triggers: true, ..Plan::default() };
    let mut file = PathBuf::new();
    let open = |node: &str| {
        file = files.of(node)?;
        let writer = Writer::ring(&file, ring, node)?;
        let goes_on = if writer.begins_at(0) > 0 { "goes on" } else { "is recorded" };
        let (keep, size) = (ring.keep / 60_000_000_000, ring.max_bytes / 1_000_000);
        say(node, &format!("{goes_on} in {}: the last {keep} min, at most {size} MB", file.display()));
        Ok(writer)
    };
    let mut trouble = Trouble::default();
    let mut progress = |progress: &Progress<'_>| {
        progress.notices.iter().for_each(|notice| say(&live.label, notice));
        if let Some(line) = trouble.line(progress.trouble) {
            say(&live.label, &line);
        }
    };
    let (_, outcome) = take_into(live, &args.wish(None), plan, stop, open, &mut progress)?;
    Ok((file, outcome))
}

/// What was told of trouble, so that it is told when it begins and when it ends, but not every second.
#[derive(Default)]
struct Trouble {
    told: Option<String>,
    at: Option<Instant>,
}

impl Trouble {
    fn line(&mut self, now: Option<&str>) -> Option<String> {
        if self.told.as_deref() == now || self.at.is_some_and(|at| at.elapsed() < QUIET) {
            return None;
        }
        self.at = Some(Instant::now());
        self.told = now.map(str::to_owned);
        Some(now.unwrap_or("all is well again").to_owned())
    }
}

fn say(who: &str, what: &str) {
    terminal::complain(&beamtune_report::text::clean(&format!("{who}: {what}")));
    terminal::complain("\n");
}
