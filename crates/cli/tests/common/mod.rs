//! What the tests of the binary have in common: real VMs that always die, the binary itself, and waiting for conditions.
#![allow(
    dead_code,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "each test file uses its part"
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

/// Whether the tests run as root.
pub fn is_root() -> bool {
    run(Command::new("id").arg("-u")).stdout.trim() == "0"
}

/// Longest time that anything may take that happens at once on a quiet machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The binary under test: the static one that `make test` has built, or cargo's own.
pub fn beamtune() -> Command {
    let path = std::env::var_os("BEAMTUNE").map(PathBuf::from);
    let mut command = Command::new(path.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_beamtune"))));
    // What a developer has set must not leak into the tests.
    for name in ["BEAMTUNE_COOKIE", "NO_COLOR", "ERL_EPMD_PORT", "ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS"] {
        command.env_remove(name);
    }
    command
}

/// An Erlang release on this machine.
#[derive(Debug, Clone)]
pub struct Otp {
    pub release: u32,
    /// Folder of the chroot; `None` for the machine's own Erlang.
    pub root: Option<PathBuf>,
}

/// The Erlang of a release, or `None`, and then it has been said that the test is skipped.
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

/// All installed releases.
pub fn all_otps() -> Vec<Otp> {
    RELEASES.into_iter().filter_map(otp).collect()
}

/// Does the same on all installed releases at once: for tests that wait for most of their time.
pub fn on_all_otps(test: impl Fn(&Otp) + Sync) {
    let test = &test;
    std::thread::scope(|scope| {
        for otp in all_otps() {
            scope.spawn(move || test(&otp));
        }
    });
}

impl Otp {
    /// A command of this release's system.
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

/// A name that no other test on this machine uses.
pub fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{prefix}_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Below these ports rabbitmq.rs has its own, and from the end of them on; above that the kernel gives them to whoever asks for any.
const PORTS: std::ops::Range<u32> = 22_100..29_900;
/// How far the ports of one process of tests are from those of the next: more than any asks for.
const PORTS_EACH: u32 = 101;

/// A port at which nothing listens, and that nobody else is given until it is used.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(PORTS_EACH) % PORTS.len() as u32;
    let is_free = |port: &u16| TcpListener::bind(("0.0.0.0", *port)).is_ok();
    let port = |_| {
        let next = (first + NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS.len() as u32;
        (PORTS.start + next) as u16
    };
    PORTS.map(port).find(is_free).expect("a free port")
}

/// Copies a program that is to be run. A process of its own does: while we have a file open for writing, so has for a moment whatever
/// other threads start, and then it cannot be run.
pub fn copy_program(from: impl AsRef<OsStr>, to: &Path) {
    let said = run(Command::new("cp").arg(from).arg(to));
    assert_eq!(said.status, Some(0), "{}", said.stderr);
}

/// A child that is killed and waited for when it goes out of scope.
pub struct Running {
    pub child: Child,
    pub lines: Option<Receiver<String>>,
    pub seen: Vec<String>,
}

impl Running {
    /// Starts a command; its output can be waited for line by line.
    pub fn start(command: &mut Command) -> Running {
        Running::spoken_to(command.stdin(Stdio::null()))
    }

    /// The same with the standard input that the command has.
    pub fn spoken_to(command: &mut Command) -> Running {
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
        Running { child, lines: Some(lines), seen: Vec::new() }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that begins so, and gives the rest of it.
    pub fn expect_line(&mut self, prefix: &str) -> String {
        let deadline = Instant::now() + 3 * PATIENCE;
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
                Err(error) => panic!("no line {prefix:?} ({error}); seen: {:#?}", self.seen),
            }
        }
    }

    /// Sends a signal by its name: `KILL`, `STOP`, `INT` …
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.pid().to_string()]).status();
        assert!(status.expect("kill").success());
    }

    /// Waits for the end.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        let deadline = Instant::now() + 3 * PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                return status;
            }
            assert!(Instant::now() < deadline, "process {} does not end", self.pid());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A stopped process is killed all the same; one that has ended has nothing to be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A node with a shell of ours in it: what is written to its standard input is not read, so it only does what it was started with.
pub struct TestNode {
    pub running: Running,
    /// Full name.
    pub name: String,
    pub cookie: String,
    pub otp: Otp,
}

impl TestNode {
    /// A node with a long name that evaluates `eval` and then prints "ready".
    pub fn start(otp: &Otp, args: &[&str], eval: &str) -> TestNode {
        let name = format!("{}@127.0.0.1", unique("cli"));
        TestNode::named(otp, &["-name", &name], &name, args, eval)
    }

    /// A node named by the given flags.
    pub fn named(otp: &Otp, naming: &[&str], name: &str, args: &[&str], eval: &str) -> TestNode {
        TestNode::trusting(otp, &unique("cookie"), naming, name, args, eval)
    }

    /// The same with a cookie that others of its name have, too. It has it before it can be found.
    pub fn trusting(
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
        let mut running = Running::start(&mut command);
        running.expect_line("ready");
        TestNode { running, name: name.to_owned(), cookie: cookie.to_owned(), otp: otp.clone() }
    }

    pub fn pid(&self) -> u32 {
        self.running.pid()
    }
}

/// What a finished command said.
pub struct Said {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command to its end, within bounds.
pub fn run(command: &mut Command) -> Said {
    run_for(command, 3 * PATIENCE)
}

/// The same with a limit of its own.
pub fn run_for(command: &mut Command, limit: Duration) -> Said {
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
    let deadline = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait") {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            panic!("still running after {limit:?}: {command:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Said {
        status: status.code(),
        stdout: stdout.join().expect("stdout"),
        stderr: stderr.join().expect("stderr"),
    }
}

impl Said {
    /// The JSON on standard output.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| {
            panic!("{error}: status {:?}\n{}\n{}", self.status, self.stdout, self.stderr)
        })
    }

    /// That it could not do its work, said so in words of which these are some, and did not panic.
    #[track_caller]
    pub fn assert_refused(&self, words: &[&str]) {
        assert_eq!(self.status, Some(2), "{}\n{}", self.stdout, self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "no {word:?} in: {}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
    }
}

/// Waits until something holds.
#[track_caller]
pub fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    wait_up_to(PATIENCE, what, holds);
}

/// The same for what takes longer than most.
#[track_caller]
pub fn wait_up_to(patience: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !holds() {
        assert!(Instant::now() < deadline, "did not happen in {patience:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// How often a test reads what may move before it gives up.
const READINGS: usize = 20;

/// Reads something of a node that may move, between two readings of a gauge that are the same. Yields the gauge and what was read;
/// fails with the last change of the gauge if it never holds still.
#[track_caller]
pub fn read_while_steady<G: Debug, T>(
    what: &str,
    mut gauge: impl FnMut() -> G,
    is_same: impl Fn(&G, &G) -> bool,
    mut read: impl FnMut() -> T,
) -> (G, T) {
    let mut before = gauge();
    let mut change = String::new();
    for _ in 0..READINGS {
        let value = read();
        let after = gauge();
        if is_same(&before, &after) {
            return (after, value);
        }
        change = format!("{before:?} became {after:?}");
        eprintln!("{what}: {change}");
        before = after;
    }
    panic!("{what} did not hold still in {READINGS} readings; the last change: {change}");
}

/// The same, until what was read agrees with the gauge: a node at rest still takes a carrier for a moment, which a gauge that is the same before
/// and after does not see. What counts wrongly never agrees.
#[track_caller]
pub fn read_until_agreed<G: Debug, T>(
    what: &str,
    mut gauge: impl FnMut() -> G,
    is_same: impl Fn(&G, &G) -> bool,
    mut read: impl FnMut() -> T,
    differ: impl Fn(&G, &T) -> Option<String>,
) -> (G, T) {
    let mut difference = String::new();
    for _ in 0..READINGS {
        let (steady, value) = read_while_steady(what, &mut gauge, &is_same, &mut read);
        match differ(&steady, &value) {
            None => return (steady, value),
            Some(found) => {
                eprintln!("{what}: {found}");
                difference = found;
            }
        }
    }
    panic!("{what} did not agree in {READINGS} readings; the last difference: {difference}");
}

/// Evaluates Erlang in a node from a second, short-lived one, and gives what `io_lib:format("~p")` makes of it.
pub fn eval_in(node: &TestNode, expression: &str) -> String {
    let asker = format!("{}@127.0.0.1", unique("asker"));
    let eval = format!(
        "{{ok, Tokens, _}} = erl_scan:string({expression:?} ++ \".\"), {{ok, Forms}} = erl_parse:parse_exprs(Tokens), \
         {{value, Value, _}} = rpc:call('{}', erl_eval, exprs, [Forms, []]), io:format(\"~0p\", [Value]), halt().",
        node.name
    );
    let naming = if node.name.ends_with("@127.0.0.1") {
        ["-name", &asker]
    } else {
        ["-sname", asker.split('@').next().expect("a name")]
    };
    let mut command = Command::new("erl");
    command.args(naming).args(["-hidden", "-setcookie", &node.cookie, "-noinput", "-eval", &eval]);
    let said = run(&mut command);
    assert_eq!(said.status, Some(0), "{}\n{}", said.stdout, said.stderr);
    said.stdout
}

/// A folder of the test's own, removed at its end.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Text of a path.
pub fn text(path: &Path) -> String {
    path.display().to_string()
}
