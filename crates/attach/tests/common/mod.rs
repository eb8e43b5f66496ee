//! Starts real nodes of each installed release. They have unique names, and are stopped at the end of the test.

// Each test file compiles this module separately and uses only a part of it.
#![allow(dead_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test code")]

pub mod recorder;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use beamtune_attach::connection::{Connection, Settings};
use beamtune_attach::cookie::{Cookie, FoundCookie};
use beamtune_attach::etf::{Document, Value};
use beamtune_attach::locate::{locate, registered};
use beamtune_attach::process::Process;
use beamtune_attach::{AttachError, Target};

/// The releases to test.
pub const RELEASES: [u32; 4] = [23, 25, 27, 29];

/// How long a test waits for something that is immediate on an idle machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The cookie of the test nodes.
pub const COOKIE: &str = "beamtune_test_cookie";

/// An installed OTP release: the system's, or one in a chroot.
#[derive(Clone)]
pub struct Otp {
    pub release: u32,
    chroot: Option<PathBuf>,
    /// The program to start for `erl`.
    erl: String,
}

/// Calls `test` for each installed release, and prints which ones are missing.
pub fn on_each_release(test: impl Fn(&Otp)) {
    for release in RELEASES {
        match installed(release) {
            Some(otp) => {
                println!("OTP {release}");
                test(&otp);
            }
            None => println!("skipped, because OTP {release} is not installed (make otp)"),
        }
    }
}

/// Calls `test` for each release with a lock-counting emulator. The variable BEAMTUNE_LCNT_25 (and so on) names the `erl` of that
/// emulator, as a path below the release's root.
pub fn on_each_lcnt(test: impl Fn(&Otp)) {
    for release in RELEASES {
        let name = format!("BEAMTUNE_LCNT_{release}");
        match (installed(release), std::env::var(&name)) {
            (Some(otp), Ok(erl)) => {
                println!("OTP {release}");
                test(&Otp { erl, ..otp });
            }
            _ => println!("skipped, because {name} names no erl with a lock-counting emulator"),
        }
    }
}

/// Calls `test` for one release, if it is installed.
pub fn on_release(release: u32, test: impl Fn(&Otp)) {
    match installed(release) {
        Some(otp) => test(&otp),
        None => println!("skipped, because OTP {release} is not installed (make otp)"),
    }
}

fn installed(release: u32) -> Option<Otp> {
    if release == 25 {
        let erl = Command::new("erl").arg("-version").stdin(Stdio::null()).stderr(Stdio::piped()).output();
        return erl.ok().map(|_| Otp { release, chroot: None, erl: "erl".to_owned() });
    }
    let root = std::env::var_os("BEAMTUNE_OTP_DIR").map(PathBuf::from).or_else(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
        cache.map(|cache| cache.join("beamtune/otp"))
    })?;
    let chroot = root.join(release.to_string());
    let erl = "erl".to_owned();
    chroot.join(".complete").exists().then_some(Otp { release, chroot: Some(chroot), erl })
}

impl Otp {
    /// Creates a command that runs a program of this release.
    pub fn command(&self, program: &str) -> Command {
        let program = if program == "erl" { &self.erl } else { program };
        match &self.chroot {
            None => Command::new(program),
            Some(root) => {
                let mut command = Command::new("chroot");
                command.arg(root).arg(program);
                command
            }
        }
    }

    /// Calls `test` with the path of a file that has this content. The path is as this release sees it.
    pub fn with_file<T>(&self, name: &str, content: &[u8], test: impl FnOnce(&str) -> T) -> T {
        let folder = Folder::new(self);
        folder.write(name, content);
        test(&folder.node_path(name))
    }

    /// Starts a node with a long name on the loopback interface.
    pub fn start(&self) -> TestNode {
        self.start_with(&[])
    }

    /// Starts a node with a long name on the loopback interface, with more arguments.
    pub fn start_with(&self, arguments: &[&str]) -> TestNode {
        let name = format!("{}@127.0.0.1", unique_name());
        let distribution = ["-name", &name, "-setcookie", COOKIE];
        TestNode::start(self, &name, &[&distribution, arguments].concat(), &[])
    }
}

/// A folder that a node of a release can read. It is removed at the end of the test.
pub struct Folder {
    root: PathBuf,
    folder: tempfile::TempDir,
}

impl Folder {
    pub fn new(otp: &Otp) -> Folder {
        let root = otp.chroot.clone().unwrap_or_else(|| PathBuf::from("/"));
        let folder = tempfile::tempdir_in(root.join("tmp")).expect("a folder");
        Folder { root, folder }
    }

    /// Writes a file that only its owner can read, which nodes require of their cookie file.
    pub fn write(&self, name: &str, content: &[u8]) {
        let path = self.path(name);
        std::fs::write(&path, content).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).expect("a file of ours");
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the path of a file in the folder, as the node sees it.
    pub fn node_path(&self, name: &str) -> String {
        let path = self.path(name);
        let path = Path::new("/").join(path.strip_prefix(&self.root).expect("below the root"));
        path.to_str().expect("a path of text").to_owned()
    }
}

/// Returns a node name that no other test uses.
pub fn unique_name() -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    format!("bt_attach_{}_{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed))
}

/// Below the ephemeral ports, so that the kernel does not assign them to other sockets.
const PORTS: std::ops::Range<u32> = 22_100..25_600;
/// Distance between the first ports of two test processes: more than any process uses.
const PORTS_PER_PROCESS: u32 = 101;

/// Returns a port on the loopback interface that no other test uses and on which nothing listens in either address family.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(PORTS_PER_PROCESS) % PORTS.len() as u32;
    let is_free = |port: &u16| {
        let taken = |error: std::io::Error| error.kind() == std::io::ErrorKind::AddrInUse;
        ["127.0.0.1", "::1"].iter().all(|address| !TcpListener::bind((*address, *port)).is_err_and(taken))
    };
    let port = |_| {
        let next = (first + NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS.len() as u32;
        (PORTS.start + next) as u16
    };
    PORTS.map(port).find(is_free).expect("a free port")
}

/// A running node, which is killed on drop.
pub struct TestNode {
    /// Its full name.
    pub name: String,
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl TestNode {
    /// Starts a node and waits until it is up. `arguments` must name it.
    pub fn start(otp: &Otp, name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> TestNode {
        let mut command = otp.command("erl");
        command
            .args(["-noinput", "-kernel", "logger_level", "emergency"])
            // This comes before the other arguments, which may end with -extra.
            .args(["-eval", "io:put_chars(\"up\\n\")"])
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("erl starts");
        let output = child.stdout.take().expect("its output");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let node = TestNode { name: name.to_owned(), child, lines };
        node.wait_for_line("up");
        node
    }

    /// Waits until the node prints a line.
    pub fn wait_for_line(&self, expect: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line == expect => return,
                Ok(line) => println!("{}: {line}", self.name),
                Err(error) => panic!("{} did not print {expect:?}: {error}", self.name),
            }
        }
    }

    pub fn os_pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns its distribution port, as registered with EPMD.
    pub fn port(&self) -> u16 {
        let known = registered("127.0.0.1", 4369, PATIENCE).expect("EPMD answers");
        let alive = self.name.split('@').next();
        known.iter().find(|node| Some(&*node.name) == alive).expect("a registered node").port
    }

    /// Sends the process a signal, given by name.
    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([format!("-{signal}"), self.os_pid().to_string()]).status();
        assert!(status.expect("kill runs").success());
        if signal == "STOP" {
            // The state is the first field after the command's closing parenthesis.
            let stat = format!("/proc/{}/stat", self.os_pid());
            eventually("the stop", || {
                let text = std::fs::read_to_string(&stat).expect("a process");
                text.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
            });
        }
    }

    /// Kills the node and waits for its end.
    pub fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Connects to the node by its name.
    pub fn connect(&self) -> Connection {
        self.try_connect(COOKIE).expect("a connection")
    }

    pub fn try_connect(&self, cookie: &str) -> Result<Connection, AttachError> {
        connect(&self.name, 4369, cookie)
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Connects to a target as a user would.
pub fn connect(target: &str, epmd_port: u16, cookie: &str) -> Result<Connection, AttachError> {
    let target: Target = target.parse()?;
    let located = locate(&target, epmd_port, Duration::from_secs(5))?;
    Connection::open(&located, &found(cookie), None, Settings::default())
}

/// Reads the description of a node's process from `/proc`.
pub fn process(node: &TestNode) -> Process {
    let folder = Path::new("/proc").join(node.os_pid().to_string());
    let words = |file: &str| {
        let text = std::fs::read(folder.join(file)).unwrap();
        let words = text.split(|&byte| byte == 0).filter(|word| !word.is_empty());
        words.map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>()
    };
    let variable =
        |text: &String| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    Process {
        arguments: words("cmdline"),
        environment: words("environ").iter().filter_map(variable).collect(),
        directory: std::fs::read_link(folder.join("cwd")).unwrap(),
        owner: "the owner".to_owned(),
        owner_home: None,
        root: folder.join("root"),
    }
}

pub fn found(cookie: &str) -> FoundCookie {
    FoundCookie { cookie: Cookie::new(cookie, "the test").expect("a cookie"), origin: "the test".to_owned() }
}

/// Returns a deadline for something that is immediate on an idle machine.
pub fn soon() -> Instant {
    Instant::now() + PATIENCE
}

/// Waits until `condition` holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = soon();
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Evaluates an Erlang expression on the node and returns its value.
pub fn evaluate(connection: &mut Connection, expression: &str) -> Document {
    try_evaluate(connection, expression).unwrap()
}

pub fn try_evaluate(connection: &mut Connection, expression: &str) -> Result<Document, AttachError> {
    // No function handlers; return only the value, without the bindings.
    let arguments = vec![
        form(connection, expression)?,
        Value::list([]),
        Value::atom("none"),
        Value::atom("none"),
        Value::atom("value"),
    ];
    connection.call("erl_eval", "expr", arguments, soon())
}

/// Parses an Erlang expression into its abstract form.
pub fn form(connection: &mut Connection, expression: &str) -> Result<Value<'static>, AttachError> {
    let text = format!("begin {expression} end.");
    let text = Value::List(text.chars().map(|character| Value::from(u64::from(character))).collect());
    let scanned = connection.call("erl_scan", "string", vec![text], soon())?;
    let [_, tokens, _] = scanned.root().tuple_of().expect("tokens");
    let parsed =
        connection.call("erl_parse", "parse_exprs", vec![tokens.to_value().expect("tokens")], soon())?;
    let [ok, forms] = parsed.root().tuple_of().expect("forms");
    assert!(ok.is_atom("ok"), "{expression}: {}", parsed.root());
    Ok(forms.list().expect("forms").next().expect("a form").to_value().expect("a form"))
}
