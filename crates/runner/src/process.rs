//! Starts, observes and ends the processes of a trial: target and load.

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
use beamtune_host::family::{self, Family, Termination};
use beamtune_host::process::Identity;
use beamtune_host::tree::LocalTree;
use beamtune_load::limits;

/// Time limit for a target to stop its applications, before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// Time between two checks of a condition.
pub const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Number of output lines that are shown if a target fails.
const LAST_LINES: usize = 5;

/// The limit of open files when beamtune started. The load generator raises it, and targets would inherit the raised limit. The VM
/// sizes tables by it, so the second trial would measure a different VM.
static DESCRIPTORS: OnceLock<Option<u64>> = OnceLock::new();
/// The environment variable whose emulator flags are appended to all others.
const FLAGS_VARIABLE: &str = "ERL_ZFLAGS";

/// A command to start.
pub struct Launch<'a> {
    /// The command line.
    pub command: &'a str,
    /// Its working directory.
    pub folder: &'a Path,
    /// Emulator flags for its VMs, appended to all others.
    pub flags: &'a [String],
    /// Additional environment variables.
    pub environment: Vec<(String, String)>,
    /// CPUs that the command may use; empty: all.
    pub cpus: &'a [usize],
    /// The trial's folders, which the guard removes if beamtune is killed.
    pub folders: &'a [&'a Path],
    /// File for its standard error.
    pub log: PathBuf,
    /// File for its standard output; `None`: also `log`.
    pub out: Option<&'a Path>,
}

/// A running command, which is a child of a guard process. Dropping it ends all of its processes.
pub struct GuardedCommand {
    guard: Child,
    exits: Receiver<String>,
    exit: Option<CommandExit>,
    /// Files with its standard output and standard error, which may be the same file.
    logs: Vec<PathBuf>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandExit {
    /// For messages: `exited 1`.
    pub how: String,
    /// How long it ran.
    pub took: Duration,
}

impl CommandExit {
    /// Parses the guard's line: `exited 1 after 1234567` (nanoseconds).
    fn parse(line: &str) -> Option<CommandExit> {
        let (how, nanoseconds) = line.split_once(" after ")?;
        Some(CommandExit { how: how.to_owned(), took: Duration::from_nanos(nanoseconds.parse().ok()?) })
    }

    /// True for exit status 0.
    pub fn is_success(&self) -> bool {
        self.how == "exited 0"
    }
}

/// Starts a command as a child of a guard process.
pub fn launch(options: Launch<'_>) -> Result<GuardedCommand> {
    let Launch { command, folder, flags, environment, cpus, folders, log, out } = options;
    let program = std::env::current_exe().context("cannot find this program to start a guard")?;
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
    // A separate process group: Ctrl-C must not end the target in the middle of a trial, or the guard before the target.
    guard.process_group(0);
    if !flags.is_empty() {
        guard.env(FLAGS_VARIABLE, flags_variable(std::env::var(FLAGS_VARIABLE).ok().as_deref(), flags)?);
    }
    // A candidate that crashes the VM would write a crash dump into the working directory.
    if std::env::var_os("ERL_CRASH_DUMP").is_none() {
        guard.env("ERL_CRASH_DUMP", log.with_extension("dump"));
    }
    let mut guard = spawn_on(&mut guard, cpus).with_context(|| format!("cannot start {command:?}"))?;
    let output = guard.stdout.take().context("the guard has no standard output")?;
    let (sender, exits) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let logs = out.map(Path::to_owned).into_iter().chain([log]).collect();
    Ok(GuardedCommand { guard, exits, exit: None, logs })
}

/// Returns the value of ERL_ZFLAGS with `flags` appended. erlexec splits it at blanks outside of quotes; within quotes, a backslash is
/// literal.
fn flags_variable(before: Option<&str>, flags: &[String]) -> Result<String> {
    let mut words: Vec<String> =
        before.map(str::to_owned).into_iter().filter(|before| !before.is_empty()).collect();
    for word in flags {
        let is_plain = !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || "\"'\\".contains(c));
        words.push(match (is_plain, word.contains('"'), word.contains('\'')) {
            (true, ..) => word.clone(),
            (_, false, _) => format!("\"{word}\""),
            (_, true, false) => format!("'{word}'"),
            (_, true, true) => {
                bail!("{word:?} contains both kinds of quotes, which {FLAGS_VARIABLE} cannot contain")
            }
        });
    }
    Ok(words.join(" "))
}

/// Starts a command on the given CPUs, from a thread that is bound to them.
fn spawn_on(command: &mut Command, cpus: &[usize]) -> Result<Child> {
    if cpus.is_empty() {
        return Ok(command.spawn()?);
    }
    let spawned = thread::scope(|scope| {
        scope
            .spawn(|| {
                cpus::set_affinity(cpus).context("cannot bind the target to its CPUs")?;
                anyhow::Ok(command.spawn()?)
            })
            .join()
    });
    spawned.unwrap_or_else(|_| Err(anyhow::anyhow!("the thread that starts the target panicked")))
}

impl GuardedCommand {
    /// Returns how the command ended; `None` while it runs.
    pub fn exit(&mut self) -> Option<&CommandExit> {
        loop {
            match self.exits.try_recv() {
                Ok(line) => self.exit = CommandExit::parse(&line),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return self.exit.as_ref(),
            }
        }
    }

    /// Returns the process id of the guard.
    pub fn guard(&self) -> u32 {
        self.guard.id()
    }

    /// Returns the guard and all processes of the command.
    pub fn family(&self) -> Family {
        // If /proc is unreadable, discovery has already reported it.
        Family::of(&LocalTree::default(), self.guard.id()).unwrap_or_default()
    }

    /// Returns the VMs among the command's processes.
    pub fn vms(&self) -> Vec<Vm> {
        let pids = self.family().pids;
        pids.into_iter().filter_map(|pid| discovery::inspect(&LocalTree::default(), pid).ok()).collect()
    }

    /// Returns the last lines of the command's output, joined.
    pub fn last_output(&self) -> String {
        let text: Vec<u8> = self.logs.iter().flat_map(|log| std::fs::read(log).unwrap_or_default()).collect();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join(" | ")
    }

    /// Stops the target with `command` or with a signal to its VMs, then ends all remaining processes.
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
                let mut stop = stop.spawn().context("cannot run the --stop command")?;
                let until = Instant::now() + STOP_TIMEOUT;
                while stop.try_wait()?.is_none() && Instant::now() < until {
                    thread::sleep(POLL_INTERVAL);
                }
                // A command that hangs must not block the study. The target is ended below in any case.
                let _ = stop.kill();
                stop.wait()?;
            }
            None => {
                for vm in &vms {
                    family::end(vm.identity.pid, Termination::Graceful).context("cannot end the target")?;
                }
            }
        }
        let until = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < until && vms.iter().any(is_running) {
            thread::sleep(POLL_INTERVAL);
        }
        self.end()
    }

    /// Ends the guard, which asks VMs to terminate and kills all other processes.
    pub fn end(&mut self) -> Result<()> {
        if let Some(mut leash) = self.guard.stdin.take() {
            // Any byte tells the guard that beamtune is alive and removes the folders itself. The guard may have ended already.
            let _ = leash.write_all(b"end");
        }
        self.guard.wait().context("cannot wait for the guard process")?;
        Ok(())
    }
}

impl Drop for GuardedCommand {
    fn drop(&mut self) {
        // An error means that the guard has already ended.
        let _ = self.end();
    }
}

/// True if the VM is still running.
pub(crate) fn is_running(vm: &Vm) -> bool {
    Identity::of(&LocalTree::default(), vm.identity.pid).is_ok_and(|identity| identity == vm.identity)
}

/// Returns the last output of a target, or a placeholder if absent.
pub(crate) fn or_nothing(output: &str) -> &str {
    if output.is_empty() { "(no output)" } else { output }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_is_parsed() {
        let exit = CommandExit::parse("exited 3 after 2500000000").expect("read");
        assert_eq!((exit.how.as_str(), exit.took), ("exited 3", Duration::from_millis(2_500)));
        assert!(!exit.is_success());
        assert_eq!(CommandExit::parse("exited 3"), None);
    }

    #[test]
    fn flags_are_appended() {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let check = |before, flags: &[&str], expect: &str| {
            assert_eq!(flags_variable(before, &words(flags)).expect("words"), expect);
        };
        check(None, &["+sbwt", "none"], "+sbwt none");
        check(Some("+A 4"), &["+sbwt", "none"], "+A 4 +sbwt none");
        check(Some(""), &["-env", "A", "b c"], "-env A \"b c\"");
        check(None, &["-a", "\"b\"", ""], "-a '\"b\"' \"\"");
        flags_variable(None, &words(&["'\""])).expect_err("it cannot be quoted");
    }
}
