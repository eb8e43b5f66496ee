//! What was started for a trial, the target or its load: how it is watched, and how all of it is ended.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use beamtune_host::cpus;
use beamtune_host::discovery::{self, Vm};
use beamtune_host::family::{self, Family, How};
use beamtune_host::tree::LocalTree;
use beamtune_load::limits;

/// How long a target may take to stop its applications before it is ended at once.
const STOP_PATIENCE: Duration = Duration::from_secs(15);
/// Between two looks at something that is waited for.
pub const LOOK: Duration = Duration::from_millis(50);
/// Lines at the end of its output that are told when a target fails.
const LAST_LINES: usize = 5;

/// The limit of descriptors that we were started with. The load raises ours, and what is started would have it too: a VM whose tables
/// follow from it would be another one in the second trial.
static DESCRIPTORS: OnceLock<Option<u64>> = OnceLock::new();
/// The variable by which emulator flags are added behind all others.
const FLAGS_VARIABLE: &str = "ERL_ZFLAGS";

/// What is started.
pub struct Launch<'a> {
    /// The command line.
    pub command: &'a str,
    /// The folder that it is started in.
    pub folder: &'a Path,
    /// Emulator flags for its VMs, behind all others.
    pub flags: &'a [String],
    /// Variables beside ours.
    pub environment: Vec<(String, String)>,
    /// CPUs that it may use; empty: all.
    pub cpus: &'a [usize],
    /// Folders of the trial, which its guard removes if we are killed.
    pub folders: &'a [&'a Path],
    /// Where what it says is written.
    pub log: PathBuf,
    /// Where what it prints is written, if not there too.
    pub out: Option<&'a Path>,
}

/// A command that was started; dropping it ends all of its processes.
pub struct Started {
    guard: Child,
    told: Receiver<String>,
    ended: Option<Ending>,
    /// What it has printed, and what it has said; both may be one.
    logs: Vec<PathBuf>,
}

/// How a command has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// For people: `exited 1`.
    pub how: String,
    /// How long it ran.
    pub took: Duration,
}

impl Ending {
    /// The guard's line: `exited 1 after 1234567` (nanoseconds).
    fn parse(line: &str) -> Option<Ending> {
        let (how, nanoseconds) = line.split_once(" after ")?;
        Some(Ending { how: how.to_owned(), took: Duration::from_nanos(nanoseconds.parse().ok()?) })
    }

    /// Whether it ended well.
    pub fn is_well(&self) -> bool {
        self.how == "exited 0"
    }
}

/// Starts a command under a guard.
pub fn start(launch: Launch<'_>) -> Result<Started> {
    let Launch { command, folder, flags, environment, cpus, folders, log, out } = launch;
    let program = std::env::current_exe().context("cannot find this program to start a guard with it")?;
    let mut guard = Command::new(program);
    guard.arg("guard").arg("--log").arg(&log);
    if let Some(out) = out {
        guard.arg("--out").arg(out);
    }
    for folder in folders {
        guard.arg("--remove").arg(folder);
    }
    if let Some(descriptors) = *DESCRIPTORS.get_or_init(limits::descriptors) {
        guard.args(["--descriptors", &descriptors.to_string()]);
    }
    guard.args(["--", "sh", "-c", command]).current_dir(folder);
    guard.envs(environment).stdin(Stdio::piped()).stdout(Stdio::piped());
    // Ctrl-C is for us: it must end neither the target in the middle of a trial nor the guard before the target.
    guard.process_group(0);
    if !flags.is_empty() {
        guard.env(FLAGS_VARIABLE, flags_variable(std::env::var(FLAGS_VARIABLE).ok().as_deref(), flags)?);
    }
    // A candidate that kills the VM would leave a dump wherever we are.
    if std::env::var_os("ERL_CRASH_DUMP").is_none() {
        guard.env("ERL_CRASH_DUMP", log.with_extension("dump"));
    }
    let mut guard = spawn_on(&mut guard, cpus).with_context(|| format!("cannot start {command:?}"))?;
    let output = guard.stdout.take().context("the guard has no standard output")?;
    let (tell, told) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if tell.send(line).is_err() {
                break;
            }
        }
    });
    Ok(Started { guard, told, ended: None, logs: out.map(Path::to_owned).into_iter().chain([log]).collect() })
}

/// The value of ERL_ZFLAGS with more flags. erlexec takes it apart at blanks outside of quotes; within them a backslash is one.
fn flags_variable(before: Option<&str>, flags: &[String]) -> Result<String> {
    let mut words: Vec<String> =
        before.map(str::to_owned).into_iter().filter(|before| !before.is_empty()).collect();
    for word in flags {
        let is_plain = !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || "\"'\\".contains(c));
        words.push(match (is_plain, word.contains('"'), word.contains('\'')) {
            (true, ..) => word.clone(),
            (_, false, _) => format!("\"{word}\""),
            (_, true, false) => format!("'{word}'"),
            (_, true, true) => bail!("{word:?} has both kinds of quotes, which {FLAGS_VARIABLE} cannot hold"),
        });
    }
    Ok(words.join(" "))
}

/// What a thread starts runs on its CPUs; so a thread goes there first.
fn spawn_on(command: &mut Command, cpus: &[usize]) -> Result<Child> {
    if cpus.is_empty() {
        return Ok(command.spawn()?);
    }
    let spawned = thread::scope(|scope| {
        scope
            .spawn(|| {
                cpus::run_on(cpus).context("cannot choose CPUs for the target")?;
                anyhow::Ok(command.spawn()?)
            })
            .join()
    });
    spawned.unwrap_or_else(|_| Err(anyhow::anyhow!("the thread that starts the target has ended")))
}

impl Started {
    /// How the command has ended, if it has.
    pub fn ended(&mut self) -> Option<&Ending> {
        loop {
            match self.told.try_recv() {
                Ok(line) => self.ended = Ending::parse(&line),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return self.ended.as_ref(),
            }
        }
    }

    /// The process id of its guard.
    pub fn guard(&self) -> u32 {
        self.guard.id()
    }

    /// All processes of the target, and the guard's.
    pub fn family(&self) -> Family {
        // That /proc cannot be listed has been told before: discovery needs it.
        Family::of(&LocalTree::default(), self.guard.id()).unwrap_or_default()
    }

    /// The VMs of the target.
    pub fn vms(&self) -> Vec<Vm> {
        let pids = self.family().pids;
        pids.into_iter().filter_map(|pid| discovery::look_at(&LocalTree::default(), pid).ok()).collect()
    }

    /// The last lines that it has said.
    pub fn last_words(&self) -> String {
        let text: Vec<u8> = self.logs.iter().flat_map(|log| std::fs::read(log).unwrap_or_default()).collect();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join(" | ")
    }

    /// Asks the target to stop, by its own command or by a signal to its VMs, and ends what is left.
    pub fn stop(
        mut self,
        command: Option<&str>,
        folder: &Path,
        environment: Vec<(String, String)>,
    ) -> Result<()> {
        let vms = self.vms();
        match command {
            Some(command) => {
                let mut stop = Command::new("sh");
                stop.args(["-c", command]).current_dir(folder).envs(environment);
                stop.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                let mut stop = stop.spawn().context("cannot run the command of --stop")?;
                let until = Instant::now() + STOP_PATIENCE;
                while stop.try_wait()?.is_none() && Instant::now() < until {
                    thread::sleep(LOOK);
                }
                // One that hangs must not hold up the study: what it was to stop is ended in any case.
                let _ = stop.kill();
                stop.wait()?;
            }
            None => {
                for vm in &vms {
                    family::end(vm.identity.pid, How::Asked).context("cannot end the target")?;
                }
            }
        }
        let until = Instant::now() + STOP_PATIENCE;
        while Instant::now() < until && vms.iter().any(super::is_there) {
            thread::sleep(LOOK);
        }
        self.end()
    }

    /// Ends the guard, which asks VMs to end, and ends what is left.
    pub fn end(&mut self) -> Result<()> {
        if let Some(mut leash) = self.guard.stdin.take() {
            // That we live, and remove our folders ourselves; if it has ended, there is nobody to tell it to.
            let _ = leash.write_all(b"end");
        }
        self.guard.wait().context("cannot wait for the guard of the target")?;
        Ok(())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // If it cannot be waited for, it has ended.
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_tells_how_a_command_has_ended() {
        let ending = Ending::parse("exited 3 after 2500000000").expect("read");
        assert_eq!((ending.how.as_str(), ending.took), ("exited 3", Duration::from_millis(2_500)));
        assert!(!ending.is_well());
        assert_eq!(Ending::parse("exited 3"), None);
    }

    #[test]
    fn flags_are_added_behind_those_that_there_are() {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let check = |before, flags: &[&str], expect: &str| {
            assert_eq!(flags_variable(before, &words(flags)).expect("words"), expect);
        };
        check(None, &["+sbwt", "none"], "+sbwt none");
        check(Some("+A 4"), &["+sbwt", "none"], "+A 4 +sbwt none");
        check(Some(""), &["-env", "A", "b c"], "-env A \"b c\"");
        check(None, &["-a", "\"b\"", ""], "-a '\"b\"' \"\"");
        flags_variable(None, &words(&["'\""])).expect_err("no way to write it");
    }
}
