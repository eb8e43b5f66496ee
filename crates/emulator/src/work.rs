//! Runs the commands of a build under `nice`, each in its own process group, with their output in a log file. The user can cancel
//! them.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::statvfs;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::{BUILD_MB, Error};
use crate::recipe::{REMOVED, Stage};

/// Interval between checks of a running command.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time that a command has to end after SIGTERM, before it gets SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
/// Size of the part at the end of the log that is searched for error messages.
const TAIL_BYTES: u64 = 32 << 10;
/// Maximum number of lines from a failed command's output that an error contains.
const MAX_ERROR_LINES: usize = 5;
/// Maximum length of such a line; longer lines are truncated.
const MAX_LINE_CHARS: usize = 300;
/// A disk with less free space is considered full, since the emulator's larger object files do not fit.
const FULL_BYTES: u64 = 4 << 20;
/// Prefix of all commands, so that builds yield to everything else on the host.
const NICE: [&str; 3] = ["nice", "-n", "19"];

/// Observes a build, and can cancel it.
pub trait BuildObserver {
    /// Called about ten times per second with the current stage and the time since the start of the build.
    fn on_progress(&mut self, stage: Stage, elapsed: Duration);

    /// Returns whether the build should be cancelled.
    fn is_cancelled(&self) -> bool;
}

/// A running build.
pub(crate) struct Work<'w> {
    watch: &'w mut dyn BuildObserver,
    log: PathBuf,
    /// The folder whose disk is checked when a command fails.
    folder: PathBuf,
    began: Instant,
    stage: Stage,
    stage_began: Instant,
    took: Vec<(Stage, Duration)>,
}

impl<'w> Work<'w> {
    /// Starts a build with the stage `stage`. The output of commands goes to `log`.
    pub(crate) fn new(
        watch: &'w mut dyn BuildObserver,
        folder: &Path,
        log: PathBuf,
        stage: Stage,
    ) -> Work<'w> {
        let now = Instant::now();
        watch.on_progress(stage, Duration::ZERO);
        Work { watch, log, folder: folder.to_owned(), began: now, stage, stage_began: now, took: Vec::new() }
    }

    /// Starts a stage.
    pub(crate) fn stage(&mut self, stage: Stage) {
        if stage != self.stage {
            let now = Instant::now();
            self.took.push((self.stage, now - self.stage_began));
            (self.stage, self.stage_began) = (stage, now);
        }
        self.watch.on_progress(stage, self.began.elapsed());
    }

    /// Ends the last stage; returns the total time and the time of each stage.
    pub(crate) fn end(mut self) -> (Duration, Vec<(Stage, Duration)>) {
        self.took.push((self.stage, self.stage_began.elapsed()));
        (self.began.elapsed(), self.took)
    }

    /// Reports progress; returns an error if the user has cancelled.
    pub(crate) fn check_cancelled(&mut self) -> Result<(), Error> {
        self.watch.on_progress(self.stage, self.began.elapsed());
        if self.watch.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Runs a command in our environment without [`REMOVED`]. Returns an error if it fails.
    pub(crate) fn run(&mut self, what: &str, command: &mut Command) -> Result<(), Error> {
        match self.try_run(command)? {
            None => Ok(()),
            Some(how) => Err(self.failed(what, how)),
        }
    }

    /// As [`Work::run`], but returns the exit status of a failed command as `Some`.
    pub(crate) fn try_run(&mut self, command: &mut Command) -> Result<Option<String>, Error> {
        let mut nice = Command::new(NICE[0]);
        nice.args(&NICE[1..]).arg(command.get_program()).args(command.get_args());
        if let Some(folder) = command.get_current_dir() {
            nice.current_dir(folder);
        }
        for name in REMOVED {
            nice.env_remove(name);
        }
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => nice.env(name, value),
                None => nice.env_remove(name),
            };
        }
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = log.map_err(|source| Error::io(&self.log, source))?;
        let both = log.try_clone().map_err(|source| Error::io(&self.log, source))?;
        // The command gets its own process group, so that Ctrl-C reaches only us. We then end make with all of its children.
        nice.stdin(Stdio::null()).stdout(log).stderr(both).process_group(0);
        let program = text(command.get_program());
        let mut child = nice.spawn().map_err(|why| Error::Start { program: program.clone(), why })?;
        loop {
            match child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) if status.success() => return Ok(None),
                Ok(Some(status)) => return Ok(Some(status.to_string())),
                Err(why) => {
                    end(&mut child);
                    return Err(Error::Start { program, why });
                }
            }
            if let Err(cancelled) = self.check_cancelled() {
                end(&mut child);
                return Err(cancelled);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Returns the error for a failed command.
    pub(crate) fn failed(&self, what: &str, how: String) -> Error {
        let tail = tail(&self.log);
        // On a full disk, the message may not have reached the log.
        let is_full =
            statvfs(&self.folder).is_ok_and(|it| it.f_bavail.saturating_mul(it.f_frsize) < FULL_BYTES);
        if is_full || tail.contains("No space left on device") || tail.contains("Disk quota exceeded") {
            return Error::DiskFull { folder: self.folder.clone(), needed_mb: BUILD_MB };
        }
        Error::Step { what: what.to_owned(), how, last: error_lines(&tail), log: Some(self.log.clone()) }
    }
}

/// Runs a short command and returns its output; `None` if it fails or does not exist.
pub(crate) fn stdout_of(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Ends a command and all of its children.
fn end(child: &mut Child) {
    // A zombie needs no signal; it is just reaped.
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let signal = |signal| group.map(|group| kill_process_group(group, signal));
    signal(Signal::TERM);
    let until = Instant::now() + GRACE;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
        thread::sleep(POLL_INTERVAL);
    }
    signal(Signal::KILL);
    let _ = child.wait();
}

/// Returns the last lines of an output that report errors, or else its last lines. make prints every command that it runs, and
/// parallel jobs print more lines after the failed one.
fn error_lines(output: &str) -> String {
    let lines: Vec<&str> = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let is_error = |line: &&str| line.contains("rror:") || line.contains("*** ") || line.starts_with("E: ");
    let errors: Vec<&str> = lines.iter().copied().filter(is_error).collect();
    let chosen = if errors.is_empty() { lines } else { errors };
    let last = chosen.get(chosen.len().saturating_sub(MAX_ERROR_LINES)..).unwrap_or_default();
    let cut = |line: &&str| match line.char_indices().nth(MAX_LINE_CHARS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => (*line).to_owned(),
    };
    last.iter().map(cut).collect::<Vec<_>>().join(" | ")
}

/// Reads the end of a file, at most [`TAIL_BYTES`].
fn tail(path: &Path) -> String {
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        std::io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    // An unreadable log leaves nothing to report.
    read().unwrap_or_default()
}

pub(crate) fn text(text: &OsStr) -> String {
    text.to_string_lossy().into_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Cancels a build after this many progress reports.
    pub(crate) struct CancelAfter(pub(crate) u32);

    impl BuildObserver for CancelAfter {
        fn on_progress(&mut self, _: Stage, _: Duration) {
            self.0 = self.0.saturating_sub(1);
        }

        fn is_cancelled(&self) -> bool {
            self.0 == 0
        }
    }

    fn with_work<T>(reports: u32, act: impl FnOnce(&mut Work<'_>, &Path) -> T) -> T {
        let folder = tempfile::tempdir().expect("a folder");
        let mut watch = CancelAfter(reports);
        let log = folder.path().join("log");
        act(&mut Work::new(&mut watch, folder.path(), log, Stage::Compiling), folder.path())
    }

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn error_of_a_failed_command_has_its_last_lines() {
        let error = with_work(1000, |work, _| {
            work.run("compiling", &mut sh("echo one; exit 0")).expect("it ends well");
            work.run("compiling", &mut sh("echo two; echo three >&2; exit 3")).expect_err("it fails")
        });
        let text = error.to_string();
        assert!(text.starts_with("compiling failed (exit status: 3): one | two | three"), "{text}");
    }

    #[test]
    fn error_lines_are_chosen_from_long_output() {
        let check = |output: &str, expect: &str| assert_eq!(error_lines(output), expect);
        check("", "");
        check("one\n\n two \n", "one | two");
        let long = "x".repeat(1_000);
        check(&long, &format!("{}…", &long[..MAX_LINE_CHARS]));
        let output = format!(
            "gcc -c {long}\na.c:1:2: error: no y\nmake: *** [Makefile:7: a.o] Error 1\nmake: *** Waiting for unfinished jobs....\n\
             gcc -c {long}\n CC b.o\n"
        );
        let expect = "a.c:1:2: error: no y | make: *** [Makefile:7: a.o] Error 1 | make: *** Waiting for unfinished jobs....";
        check(&output, expect);
        check("E: Unable to find it\nW: old", "E: Unable to find it");
    }

    #[test]
    fn a_full_disk_has_its_own_error() {
        let script = "echo 'fatal error: error writing to /x.s: No space left on device'; exit 2";
        let error = with_work(1000, |work, _| work.run("compiling", &mut sh(script)).expect_err("it fails"));
        assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    }

    #[test]
    fn cancelling_ends_a_command_and_its_children() {
        with_work(3, |work, folder| {
            let (pid, script) = (folder.join("pid"), "sleep 1000 & echo $! > \"$FILE\"; wait");
            let error = work.run("compiling", sh(script).env("FILE", &pid)).expect_err("it is ended");
            assert!(matches!(error, Error::Cancelled), "{error}");
            let Ok(pid) = std::fs::read_to_string(pid) else { return };
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
        });
    }

    #[test]
    fn variables_that_would_change_a_build_are_unset() {
        with_work(1000, |work, folder| {
            let out = folder.join("out");
            let script = "echo \"$MAKEFLAGS|$ERL_TOP\" > \"$FILE\"";
            let mut command = sh(script);
            command.env("FILE", &out).env("ERL_TOP", "/src");
            work.run("compiling", &mut command).expect("it ends well");
            assert_eq!(std::fs::read_to_string(out).expect("written"), "|/src\n");
        });
    }
}
