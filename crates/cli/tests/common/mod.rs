//! Shared by the tests of the binary: nodes that always end with their test, the command that runs the binary, and waiting for conditions.
#![allow(
    dead_code,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "no test file uses all of it"
)]

pub mod containers;
pub mod group;
pub mod loops;
pub mod network;
pub mod trials;

use std::ffi::OsStr;
use std::fmt::Debug;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Releases that beamtune is tested on.
pub const RELEASES: [u32; 4] = [23, 25, 27, 29];

/// True if the tests run as root.
pub fn is_root() -> bool {
    run(Command::new("id").arg("-u")).stdout.trim() == "0"
}

/// Timeout for anything that takes only a moment on an idle host.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a command for the binary under test: the static one that `make test` has built, or cargo's own.
pub fn beamtune() -> Command {
    let path = std::env::var_os("BEAMTUNE").map(PathBuf::from);
    let mut command = Command::new(path.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_beamtune"))));
    // The developer's environment must not affect the tests.
    for name in ["BEAMTUNE_COOKIE", "NO_COLOR", "ERL_EPMD_PORT", "ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS"] {
        command.env_remove(name);
    }
    command
}

/// An Erlang release on this host.
#[derive(Debug, Clone)]
pub struct Otp {
    pub release: u32,
    /// Folder of the chroot; `None` for the host's own Erlang.
    pub root: Option<PathBuf>,
}

/// Finds the Erlang of a release. If it is not installed, returns `None` and prints that the test is skipped.
pub fn otp(release: u32) -> Option<Otp> {
    static OWN: std::sync::OnceLock<Option<u32>> = std::sync::OnceLock::new();
    let own = *OWN.get_or_init(|| {
        let eval = "io:put_chars(erlang:system_info(otp_release)), halt().";
        let output = Command::new("erl").args(["-noshell", "-eval", eval]).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    });
    if own == Some(release) {
        return Some(Otp { release, root: None });
    }
    let cache = std::env::var_os("BEAMTUNE_OTP_DIR").map(PathBuf::from).unwrap_or_else(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
        cache.unwrap_or_else(home).join("beamtune/otp")
    });
    let root = cache.join(release.to_string());
    if root.join(".complete").exists() {
        return Some(Otp { release, root: Some(root) });
    }
    eprintln!("skipped, because OTP {release} is not installed (make otp)");
    None
}

/// Returns all installed releases.
pub fn all_otps() -> Vec<Otp> {
    RELEASES.into_iter().filter_map(otp).collect()
}

/// Runs a test on all installed releases in parallel. For tests that mostly wait.
pub fn on_all_otps(test: impl Fn(&Otp) + Sync) {
    let test = &test;
    std::thread::scope(|scope| {
        for otp in all_otps() {
            scope.spawn(move || test(&otp));
        }
    });
}

impl Otp {
    /// Returns a command that runs in the file system of this release.
    pub fn command(&self, program: &str) -> Command {
        match &self.root {
            Some(root) => {
                let mut command = Command::new("chroot");
                command.arg(root).arg(program);
                command
            }
            None => Command::new(program),
        }
    }
}

/// Returns a name that no other test on this host uses.
pub fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{prefix}_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The ports of rabbitmq.rs are below this range, the kernel's ephemeral ports above it.
const PORTS: std::ops::Range<u32> = 22_100..29_900;
/// Distance between the first ports of two test processes with consecutive process ids. No test process uses more ports than this.
const PORTS_PER_PROCESS: u32 = 101;

/// Returns a port on which nothing listens and that no other test gets.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(PORTS_PER_PROCESS) % PORTS.len() as u32;
    let is_free = |port: &u16| TcpListener::bind(("0.0.0.0", *port)).is_ok();
    let port = |_| {
        let next = (first + NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS.len() as u32;
        (PORTS.start + next) as u16
    };
    PORTS.map(port).find(is_free).expect("a free port")
}

/// Copies an executable in a child process. If this process had the copy open for writing, children that other threads start would
/// inherit that until their exec. As long as any process has the file open for writing, executing it fails (ETXTBSY).
pub fn copy_program(from: impl AsRef<OsStr>, to: &Path) {
    let output = run(Command::new("cp").arg(from).arg(to));
    assert_eq!(output.status, Some(0), "{}", output.stderr);
}

/// A child process that is killed and reaped when it goes out of scope.
pub struct Process {
    pub child: Child,
    pub lines: Option<Receiver<String>>,
    pub seen: Vec<String>,
}

impl Process {
    /// Starts a command without standard input. The test can wait for lines of its output.
    pub fn start(command: &mut Command) -> Process {
        Process::start_with_stdin(command.stdin(Stdio::null()))
    }

    /// Like [`Process::start`], but with the command's own standard input.
    pub fn start_with_stdin(command: &mut Command) -> Process {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("start a process");
        let stdout = child.stdout.take().expect("a pipe");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { break };
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Process { child, lines: Some(lines), seen: Vec::new() }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line with this prefix and returns the rest of it.
    pub fn expect_line(&mut self, prefix: &str) -> String {
        let deadline = Instant::now() + 3 * TIMEOUT;
        let lines = self.lines.as_ref().expect("output");
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match lines.recv_timeout(left) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if let Some(rest) = line.strip_prefix(prefix) {
                        return rest.to_owned();
                    }
                }
                Err(error) => panic!("no line {prefix:?} ({error}); read: {:#?}", self.seen),
            }
        }
    }

    /// Sends a signal by name: `KILL`, `STOP`, `INT` …
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.pid().to_string()]).status();
        assert!(status.expect("kill").success());
    }

    /// Waits until the process ends.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        let deadline = Instant::now() + 3 * TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                return status;
            }
            assert!(Instant::now() < deadline, "process {} does not end", self.pid());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL also ends a stopped process. If the process has already ended, it does nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A node without a shell, which only evaluates the given expression.
pub struct TestNode {
    pub process: Process,
    /// Full name.
    pub name: String,
    pub cookie: String,
    pub otp: Otp,
}

impl TestNode {
    /// Starts a node with a long name, which evaluates `eval` and then prints "ready".
    pub fn start(otp: &Otp, args: &[&str], eval: &str) -> TestNode {
        let name = format!("{}@127.0.0.1", unique("cli"));
        TestNode::named(otp, &["-name", &name], &name, args, eval)
    }

    /// Starts a node whose name is set by the flags `naming`.
    pub fn named(otp: &Otp, naming: &[&str], name: &str, args: &[&str], eval: &str) -> TestNode {
        TestNode::with_cookie(otp, &unique("cookie"), naming, name, args, eval)
    }

    /// Like [`TestNode::named`], but with a given cookie.
    pub fn with_cookie(
        otp: &Otp,
        cookie: &str,
        naming: &[&str],
        name: &str,
        args: &[&str],
        eval: &str,
    ) -> TestNode {
        let eval = format!("{eval}, io:put_chars(\"ready\\n\").");
        let mut command = otp.command("erl");
        command.args(args).args(naming).args(["-setcookie", cookie, "-noinput", "-eval", &eval]);
        let mut process = Process::start(&mut command);
        process.expect_line("ready");
        TestNode { process, name: name.to_owned(), cookie: cookie.to_owned(), otp: otp.clone() }
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }
}

/// Exit status and output of a finished command.
pub struct Output {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command until it ends, with a timeout.
pub fn run(command: &mut Command) -> Output {
    run_for(command, 3 * TIMEOUT)
}

/// Runs a command until it ends, with the given timeout.
pub fn run_for(command: &mut Command, timeout: Duration) -> Output {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
    let read = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(mut pipe) = pipe {
                let _ = pipe.read_to_end(&mut text);
            }
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let stdout = read(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let stderr = read(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let deadline = Instant::now() + timeout;
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait") {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            panic!("still running after {timeout:?}: {command:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Output {
        status: status.code(),
        stdout: stdout.join().expect("stdout"),
        stderr: stderr.join().expect("stderr"),
    }
}

impl Output {
    /// Parses standard output as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| {
            panic!("{error}: status {:?}\n{}\n{}", self.status, self.stdout, self.stderr)
        })
    }

    /// Asserts that the command failed with status 2, without a panic, and that its error message contains all of `words`.
    #[track_caller]
    pub fn assert_refused(&self, words: &[&str]) {
        assert_eq!(self.status, Some(2), "{}\n{}", self.stdout, self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "no {word:?} in: {}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
    }
}

/// Waits until a condition is true.
#[track_caller]
pub fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    wait_up_to(TIMEOUT, what, holds);
}

/// Waits until a condition is true, with the given timeout.
#[track_caller]
pub fn wait_up_to(timeout: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + timeout;
    while !holds() {
        assert!(Instant::now() < deadline, "did not happen in {timeout:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Maximum number of times that a test reads a changing value before it fails.
const MAX_READINGS: usize = 20;

/// Reads a value of a node between two equal readings of a gauge. Returns the gauge and the value. If no two readings are equal, fails
/// with the last change of the gauge.
#[track_caller]
pub fn read_while_steady<G: Debug, T>(
    what: &str,
    mut gauge: impl FnMut() -> G,
    is_same: impl Fn(&G, &G) -> bool,
    mut read: impl FnMut() -> T,
) -> (G, T) {
    let mut before = gauge();
    let mut change = String::new();
    for _ in 0..MAX_READINGS {
        let value = read();
        let after = gauge();
        if is_same(&before, &after) {
            return (after, value);
        }
        change = format!("{before:?} became {after:?}");
        eprintln!("{what}: {change}");
        before = after;
    }
    panic!("{what} changed in each of {MAX_READINGS} readings, last {change}");
}

/// Repeats [`read_while_steady`] until the value agrees with the gauge. An idle node sometimes has one more carrier for a moment, which
/// equal readings before and after do not reveal. A value that is counted wrongly never agrees.
#[track_caller]
pub fn read_until_agreed<G: Debug, T>(
    what: &str,
    mut gauge: impl FnMut() -> G,
    is_same: impl Fn(&G, &G) -> bool,
    mut read: impl FnMut() -> T,
    differ: impl Fn(&G, &T) -> Option<String>,
) -> (G, T) {
    let mut difference = String::new();
    for _ in 0..MAX_READINGS {
        let (steady, value) = read_while_steady(what, &mut gauge, &is_same, &mut read);
        match differ(&steady, &value) {
            None => return (steady, value),
            Some(found) => {
                eprintln!("{what}: {found}");
                difference = found;
            }
        }
    }
    panic!("{what} did not agree in {MAX_READINGS} readings, last difference {difference}");
}

/// Evaluates an Erlang expression in a node, from a second, short-lived node. Returns the value as printed by `io_lib:format("~0p")`.
pub fn eval_in(node: &TestNode, expression: &str) -> String {
    let caller = format!("{}@127.0.0.1", unique("caller"));
    let eval = format!(
        "{{ok, Tokens, _}} = erl_scan:string({expression:?} ++ \".\"), {{ok, Forms}} = erl_parse:parse_exprs(Tokens), \
         {{value, Value, _}} = rpc:call('{}', erl_eval, exprs, [Forms, []]), io:format(\"~0p\", [Value]), halt().",
        node.name
    );
    let naming = if node.name.ends_with("@127.0.0.1") {
        ["-name", &caller]
    } else {
        ["-sname", caller.split('@').next().expect("a name")]
    };
    let mut command = Command::new("erl");
    command.args(naming).args(["-hidden", "-setcookie", &node.cookie, "-noinput", "-eval", &eval]);
    let output = run(&mut command);
    assert_eq!(output.status, Some(0), "{}\n{}", output.stdout, output.stderr);
    output.stdout
}

/// Creates a temporary folder, which is removed when dropped.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Converts a path to text.
pub fn text(path: &Path) -> String {
    path.display().to_string()
}
