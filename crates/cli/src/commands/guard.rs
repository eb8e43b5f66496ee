//! `beamtune guard`: starts a command and ends all that came of it, however beamtune itself ends. Nobody types this.
//!
//! It takes every orphan below it ([`family::adopt_orphans`]), so that a target which detaches itself is found as well, and ends all
//! of them when its standard input ends, as that of a process does whose parent was killed. Whoever lives says a word before.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use beamtune_host::discovery;
use beamtune_host::family::{self, Ended, Family, How};
use beamtune_host::process::Identity;
use beamtune_host::tree::LocalTree;
use beamtune_load::limits;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Starts a command and ends all that came of it when standard input ends.
#[derive(clap::Args)]
pub struct Args {
    /// Where what it says is written.
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
    /// Where what it prints is written, if not there too.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The limit of descriptors that the command is to have.
    #[arg(long, value_name = "N")]
    descriptors: Option<u64>,
    /// A folder that is removed if beamtune was killed.
    #[arg(long, value_name = "FOLDER")]
    remove: Vec<PathBuf>,
    /// The command.
    #[arg(trailing_var_arg = true, required = true)]
    command: Vec<String>,
}

/// Processes that are started while others are ended are found in the next round; more rounds than this are not needed by anything
/// that does not mean to escape.
const ROUNDS: usize = 1_000;
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(10);

pub fn run(args: &Args) -> Result<ExitCode> {
    family::adopt_orphans().context("cannot take care of what the command starts")?;
    if let Some(descriptors) = args.descriptors {
        limits::lower_descriptors(descriptors).context("cannot set the limit of descriptors")?;
    }
    let Some((program, arguments)) = args.command.split_first() else { bail!("no command") };
    let log = OpenOptions::new().create(true).append(true).open(&args.log);
    let log = log.with_context(|| format!("cannot write {}", args.log.display()))?;
    let out = match &args.out {
        Some(out) => File::create(out).with_context(|| format!("cannot write {}", out.display()))?,
        None => log.try_clone()?,
    };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(out).stderr(log);
    // Before there is anything to end. Who signals all that is called beamtune, or a whole control group, means what is below us as
    // well; whether beamtune was killed or has ended by itself, the end of standard input tells.
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot take signals")?;
    let began = Instant::now();
    let child = command.spawn().with_context(|| format!("cannot start {program}"))?.id();
    let nothing_left = Arc::new(AtomicBool::new(false));
    let signalled = Arc::clone(&nothing_left);
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || signals.forever().for_each(|_| end_all(&signalled)))?;
    let leash = Arc::clone(&nothing_left);
    let folders = args.remove.clone();
    thread::Builder::new().name("leash".to_owned()).spawn(move || {
        let mut said = Vec::new();
        // An error is the end as well.
        let _ = std::io::stdin().lock().read_to_end(&mut said);
        end_all(&leash);
        if said.is_empty() {
            folders.iter().for_each(|folder| remove(folder));
        }
        std::process::exit(0);
    })?;
    loop {
        match family::wait_for_any()? {
            Some((pid, ended)) if pid == child => {
                let took_ns = began.elapsed().as_nanos();
                let how = match ended {
                    Ended::Exited(code) => format!("exited {code}"),
                    Ended::Killed(signal) => format!("killed {signal}"),
                };
                // Whoever started us may have been killed: that nobody reads it must not end us before all others have ended.
                let _ = writeln!(std::io::stdout(), "{how} after {took_ns}");
            }
            Some(_) => {}
            // Nothing is left. Whoever started us wants to read how it ended before we go.
            None => {
                nothing_left.store(true, Ordering::Release);
                thread::park();
            }
        }
    }
}

/// How long a VM below us may take to end by itself: a database that is cut off has to be mended when it is started again.
const GRACE: Duration = Duration::from_secs(10);

/// Ends all that is below us. VMs are asked to, first; not what they have started, since a VM whose helper is gone aborts. That nothing
/// is left is only known from there being nobody to wait for: who looks through /proc can miss one that was started after the list was
/// read, by one that has ended before it was looked at.
fn end_all(nothing_left: &AtomicBool) {
    let own = std::process::id();
    let tree = LocalTree::default();
    let below = || {
        let below = Family::of(&tree, own).map(|family| family.pids).unwrap_or_default();
        below.into_iter().filter(|pid| *pid != own).collect::<Vec<u32>>()
    };
    let vms: Vec<Identity> =
        below().into_iter().filter_map(|pid| Some(discovery::look_at(&tree, pid).ok()?.identity)).collect();
    let is_there = |vm: &Identity| Identity::of(&tree, vm.pid).is_ok_and(|identity| identity == *vm);
    // What we may not end, since it has become another user's, stays; there is nobody to tell it to.
    vms.iter().for_each(|vm| drop(family::end(vm.pid, How::Asked)));
    let until = Instant::now() + GRACE;
    while Instant::now() < until && vms.iter().any(is_there) {
        thread::sleep(PAUSE);
    }
    for _ in 0..ROUNDS {
        if nothing_left.load(Ordering::Acquire) {
            return;
        }
        below().into_iter().for_each(|pid| drop(family::end(pid, How::AtOnce)));
        thread::sleep(PAUSE);
    }
}

/// Removes a folder that the guard of the load may still write into.
fn remove(folder: &Path) {
    for _ in 0..ROUNDS {
        match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => thread::sleep(PAUSE),
            // What cannot be removed stays; there is nobody to tell it to.
            _ => return,
        }
    }
}
