//! The guard process: runs a command and ends all of its processes, no matter how beamtune ends. [`crate::process::launch`] starts it.
//!
//! The guard adopts orphaned descendants ([`family::adopt_orphans`]), so that it also finds a target that daemonizes. It ends all
//! processes when its standard input closes, as happens when beamtune is killed. If beamtune itself ends the guard, it first sends a
//! byte.

use std::convert::Infallible;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use beamtune_host::discovery;
use beamtune_host::family::{self, ExitReason, Family, Termination};
use beamtune_host::process::Identity;
use beamtune_host::tree::LocalTree;
use beamtune_load::limits;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// What the guard runs.
pub struct GuardOptions {
    /// File for the command's standard error.
    pub log: PathBuf,
    /// File for the command's standard output; `None`: also `log`.
    pub out: Option<PathBuf>,
    /// Limit of open files of the command; `None`: that of the guard.
    pub descriptors: Option<u64>,
    /// Folders to remove if beamtune was killed.
    pub remove: Vec<PathBuf>,
    /// The command and its arguments.
    pub command: Vec<String>,
}

/// Maximum number of rounds. Each kills the processes that were started during the previous one; only a program that tries to escape
/// needs more rounds.
const MAX_ROUNDS: usize = 1_000;
/// Time between two rounds.
const ROUND_INTERVAL: Duration = Duration::from_millis(10);

/// Runs the command. The process ends when standard input has closed and all processes of the command have ended.
///
/// A line with the command's exit status goes to `output`.
///
/// # Errors
/// If the command cannot be started.
pub fn run(options: &GuardOptions, output: &mut dyn Write) -> Result<Infallible> {
    family::adopt_orphans().context("cannot adopt the command's processes")?;
    if let Some(descriptors) = options.descriptors {
        limits::lower_descriptors(descriptors).context("cannot set the limit of open files")?;
    }
    let Some((program, arguments)) = options.command.split_first() else { bail!("no command") };
    let log = OpenOptions::new().create(true).append(true).open(&options.log);
    let log = log.with_context(|| format!("cannot write {}", options.log.display()))?;
    let out = match &options.out {
        Some(out) => File::create(out).with_context(|| format!("cannot write {}", out.display()))?,
        None => log.try_clone()?,
    };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(out).stderr(log);
    // Caught before the command starts. A signal to all processes named beamtune, or to a whole control group, is also meant for the
    // descendants of the guard. Standard input shows whether beamtune was killed or ended normally.
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot catch signals")?;
    let began = Instant::now();
    let child = command.spawn().with_context(|| format!("cannot start {program}"))?.id();
    let all_ended = Arc::new(AtomicBool::new(false));
    let signalled = Arc::clone(&all_ended);
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || signals.forever().for_each(|_| end_all(&signalled)))?;
    let on_close = Arc::clone(&all_ended);
    let folders = options.remove.clone();
    thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let mut received = Vec::new();
        // An error also means the end of the input.
        let _ = std::io::stdin().lock().read_to_end(&mut received);
        end_all(&on_close);
        if received.is_empty() {
            folders.iter().for_each(|folder| remove(folder));
        }
        std::process::exit(0);
    })?;
    loop {
        match family::wait_for_any()? {
            Some((pid, ended)) if pid == child => {
                let took_ns = began.elapsed().as_nanos();
                let how = match ended {
                    ExitReason::Exited(code) => format!("exited {code}"),
                    ExitReason::Killed(signal) => format!("killed {signal}"),
                };
                // If beamtune was killed, nobody reads this line. The guard must continue until all processes have ended.
                let _ = writeln!(output, "{how} after {took_ns}").and_then(|()| output.flush());
            }
            Some(_) => {}
            // No process is left. Beamtune reads the line above, and then closes standard input.
            None => {
                all_ended.store(true, Ordering::Release);
                thread::park();
            }
        }
    }
}

/// Time limit for a VM to shut down gracefully: a database that is killed has to recover at its next start.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Ends all descendants of the guard. First, VMs are asked to terminate, but not their child processes, since a VM aborts when its
/// helper (erl_child_setup) ends. Only `wait` shows reliably that no process is left. A search of /proc can miss a process: one that is
/// started after the listing, by a parent that ends before it is read.
fn end_all(all_ended: &AtomicBool) {
    let own = std::process::id();
    let tree = LocalTree::default();
    let below = || {
        let below = Family::of(&tree, own).map(|family| family.pids).unwrap_or_default();
        below.into_iter().filter(|pid| *pid != own).collect::<Vec<u32>>()
    };
    let vms: Vec<Identity> =
        below().into_iter().filter_map(|pid| Some(discovery::inspect(&tree, pid).ok()?.identity)).collect();
    let is_there = |vm: &Identity| Identity::of(&tree, vm.pid).is_ok_and(|identity| identity == *vm);
    // Processes that have changed to another user may not be killable; there is nobody to report this to.
    vms.iter().for_each(|vm| drop(family::end(vm.pid, Termination::Graceful)));
    let until = Instant::now() + STOP_TIMEOUT;
    while Instant::now() < until && vms.iter().any(is_there) {
        thread::sleep(ROUND_INTERVAL);
    }
    for _ in 0..MAX_ROUNDS {
        if all_ended.load(Ordering::Acquire) {
            return;
        }
        below().into_iter().for_each(|pid| drop(family::end(pid, Termination::Kill)));
        thread::sleep(ROUND_INTERVAL);
    }
}

/// Removes a folder. Retries, since the guard of the load may still write to it.
fn remove(folder: &Path) {
    for _ in 0..MAX_ROUNDS {
        match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => thread::sleep(ROUND_INTERVAL),
            // If the folder cannot be removed, it remains; there is nobody to report this to.
            _ => return,
        }
    }
}
