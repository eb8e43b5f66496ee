//! Runs the commands of a build: below `nice`, in a process group of their own, with what they say in a file, and ended as soon as the
//! user wants it.

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

/// Between two looks at a command.
const LOOK: Duration = Duration::from_millis(100);
/// How long a command may take to end when it is asked to; then it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// How much of the end of a file is looked through for its last lines.
const TAIL_BYTES: u64 = 32 << 10;
/// Lines that are told of a command that failed.
const LAST_LINES: usize = 5;
/// Of a line, so much is told.
const MOST_LINE_CHARS: usize = 300;
/// A disk with less room is full: no object of the emulator's larger files goes there.
const FULL_BYTES: u64 = 4 << 20;
/// What is in the way of somebody who uses the machine: nothing, as long as there is a CPU for him.
const NICE: [&str; 3] = ["nice", "-n", "19"];

/// Whoever watches a build.
pub trait Watch {
    /// Is told ten times a second what is being done, and for how long all of it has taken.
    fn at(&mut self, stage: Stage, elapsed: Duration);

    /// Whether it is to end.
    fn is_cancelled(&self) -> bool;
}

/// A build that is under way.
pub(crate) struct Work<'w> {
    watch: &'w mut dyn Watch,
    log: PathBuf,
    /// The folder that is told where the disk is full.
    folder: PathBuf,
    began: Instant,
    stage: Stage,
    stage_began: Instant,
    took: Vec<(Stage, Duration)>,
}

impl<'w> Work<'w> {
    /// Begins; what commands say is written into `log`.
    pub(crate) fn new(watch: &'w mut dyn Watch, folder: &Path, log: PathBuf, stage: Stage) -> Work<'w> {
        let now = Instant::now();
        watch.at(stage, Duration::ZERO);
        Work { watch, log, folder: folder.to_owned(), began: now, stage, stage_began: now, took: Vec::new() }
    }

    /// What is done from now on.
    pub(crate) fn stage(&mut self, stage: Stage) {
        if stage != self.stage {
            let now = Instant::now();
            self.took.push((self.stage, now - self.stage_began));
            (self.stage, self.stage_began) = (stage, now);
        }
        self.watch.at(stage, self.began.elapsed());
    }

    /// How long it has taken, and how long each stage has.
    pub(crate) fn end(mut self) -> (Duration, Vec<(Stage, Duration)>) {
        self.took.push((self.stage, self.stage_began.elapsed()));
        (self.began.elapsed(), self.took)
    }

    /// Ends here if the user wants it.
    pub(crate) fn look(&mut self) -> Result<(), Error> {
        self.watch.at(self.stage, self.began.elapsed());
        if self.watch.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Runs a command, whose variables are those of ours without what would change a build.
    pub(crate) fn run(&mut self, what: &str, command: &mut Command) -> Result<(), Error> {
        match self.try_run(command)? {
            None => Ok(()),
            Some(how) => Err(self.failed(what, how)),
        }
    }

    /// The same; how it ended, if not well.
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
        // Ctrl-C is for us: make is ended by its whole group, not the half of it that a terminal reaches first.
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
            if let Err(cancelled) = self.look() {
                end(&mut child);
                return Err(cancelled);
            }
            thread::sleep(LOOK);
        }
    }

    /// The error of a command that has failed.
    pub(crate) fn failed(&self, what: &str, how: String) -> Error {
        let tail = tail(&self.log);
        // On a full disk the log may lack the words, too.
        let is_full =
            statvfs(&self.folder).is_ok_and(|it| it.f_bavail.saturating_mul(it.f_frsize) < FULL_BYTES);
        if is_full || tail.contains("No space left on device") || tail.contains("Disk quota exceeded") {
            return Error::DiskFull { folder: self.folder.clone(), needed_mb: BUILD_MB };
        }
        Error::Step { what: what.to_owned(), how, last: last_words(&tail), log: Some(self.log.clone()) }
    }
}

/// What a short command prints; `None` where it fails or is not there.
pub(crate) fn said(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Ends a command with all that it has started.
fn end(child: &mut Child) {
    // What has ended already, and is only to be waited for, needs no signal.
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let signal = |signal| group.map(|group| kill_process_group(group, signal));
    signal(Signal::TERM);
    let until = Instant::now() + GRACE;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
        thread::sleep(LOOK);
    }
    signal(Signal::KILL);
    let _ = child.wait();
}

/// What a command said last of what went wrong: lines that speak of an error, else the last ones. make prints each command that it runs, and
/// those that run at once end after the one that failed.
fn last_words(said: &str) -> String {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let tells = |line: &&str| line.contains("rror:") || line.contains("*** ") || line.starts_with("E: ");
    let telling: Vec<&str> = lines.iter().copied().filter(tells).collect();
    let chosen = if telling.is_empty() { lines } else { telling };
    let last = chosen.get(chosen.len().saturating_sub(LAST_LINES)..).unwrap_or_default();
    let cut = |line: &&str| match line.char_indices().nth(MOST_LINE_CHARS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => (*line).to_owned(),
    };
    last.iter().map(cut).collect::<Vec<_>>().join(" | ")
}

/// The last lines of a file.
fn tail(path: &Path) -> String {
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        std::io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    // Without it there is nothing to tell.
    read().unwrap_or_default()
}

pub(crate) fn text(text: &OsStr) -> String {
    text.to_string_lossy().into_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Lets a build go on for so many looks.
    pub(crate) struct Looks(pub(crate) u32);

    impl Watch for Looks {
        fn at(&mut self, _: Stage, _: Duration) {
            self.0 = self.0.saturating_sub(1);
        }

        fn is_cancelled(&self) -> bool {
            self.0 == 0
        }
    }

    fn with_work<T>(looks: u32, act: impl FnOnce(&mut Work<'_>, &Path) -> T) -> T {
        let folder = tempfile::tempdir().expect("a folder");
        let mut watch = Looks(looks);
        let log = folder.path().join("log");
        act(&mut Work::new(&mut watch, folder.path(), log, Stage::Compiling), folder.path())
    }

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_command_that_fails_is_told_with_its_last_words() {
        let error = with_work(1000, |work, _| {
            work.run("compiling", &mut sh("echo one; exit 0")).expect("it ends well");
            work.run("compiling", &mut sh("echo two; echo three >&2; exit 3")).expect_err("it fails")
        });
        let text = error.to_string();
        assert!(text.starts_with("compiling failed (exit status: 3): one | two | three"), "{text}");
    }

    #[test]
    fn of_much_that_was_said_the_errors_are_told() {
        let check = |said: &str, expect: &str| assert_eq!(last_words(said), expect);
        check("", "");
        check("one\n\n two \n", "one | two");
        let long = "x".repeat(1_000);
        check(&long, &format!("{}…", &long[..MOST_LINE_CHARS]));
        let said = format!(
            "gcc -c {long}\na.c:1:2: error: no y\nmake: *** [Makefile:7: a.o] Error 1\nmake: *** Waiting for unfinished jobs....\n\
             gcc -c {long}\n CC b.o\n"
        );
        let expect = "a.c:1:2: error: no y | make: *** [Makefile:7: a.o] Error 1 | make: *** Waiting for unfinished jobs....";
        check(&said, expect);
        check("E: Unable to find it\nW: old", "E: Unable to find it");
    }

    #[test]
    fn a_full_disk_is_told_as_such() {
        let script = "echo 'fatal error: error writing to /x.s: No space left on device'; exit 2";
        let error = with_work(1000, |work, _| work.run("compiling", &mut sh(script)).expect_err("it fails"));
        assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    }

    #[test]
    fn what_a_command_has_started_ends_with_it_when_the_user_wants_it() {
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
    fn variables_that_would_change_a_build_are_taken_away() {
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
