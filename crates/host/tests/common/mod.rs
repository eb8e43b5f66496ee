//! Real VMs for tests: of every installed release, with unique names, terminated at the end of the test.

// Each test file compiles this module separately and uses a part of it.
#![allow(dead_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests"
)]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use beamtune_host::tree::{FileTree, LocalTree};
use beamtune_host::{AnnouncedBy, HostSource, MemoryBudget};
use beamtune_model::{
    Clock, Metric, Nanos, Sample, SampleBuilder, SampleRequest, SeriesTable, Source, SourceTrouble, Span,
    Tick,
};

/// Timeout for conditions that are true immediately on an idle host.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A budget for tests: on a busy host, and without optimization, reading memory takes longer than the default budget.
pub const WITHOUT_LIMIT: MemoryBudget = MemoryBudget { read_ns: 20_000_000_000, rest_factor: 0 };

/// An installed release: the host's own, or one in a chroot.
pub struct Otp {
    pub release: u32,
    pub chroot: Option<PathBuf>,
}

/// Calls `test` for each installed release, and prints which ones are missing.
pub fn on_each_release(test: impl Fn(&Otp)) {
    for release in [23, 25, 27, 29] {
        match installed(release) {
            Some(otp) => {
                println!("OTP {release}");
                test(&otp);
            }
            None => println!("skipped, because OTP {release} is not installed (make otp)"),
        }
    }
}

pub fn installed(release: u32) -> Option<Otp> {
    if release == 25 {
        let erl = Command::new("erl").arg("-version").stdin(Stdio::null()).stderr(Stdio::null()).status();
        return erl.ok().map(|_| Otp { release, chroot: None });
    }
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
    let root = variable("BEAMTUNE_OTP_DIR").or_else(|| cache.map(|cache| cache.join("beamtune/otp")))?;
    let chroot = root.join(release.to_string());
    chroot.join(".complete").exists().then_some(Otp { release, chroot: Some(chroot) })
}

/// Whether the test runs as root; otherwise prints that it is skipped.
pub fn is_root() -> bool {
    let root =
        std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !root {
        println!("skipped, because this test needs root");
    }
    root
}

/// Returns a name that no other test uses.
pub fn unique_name() -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    format!("bt_host_{}_{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed))
}

/// Waits until a condition holds.
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "timeout waiting for {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Like [`eventually`], for a condition that returns why it does not hold yet. The panic message contains the last reason.
#[track_caller]
pub fn eventually_or<T>(what: &str, mut condition: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match condition() {
            Ok(value) => return value,
            Err(why) => {
                println!("not yet {what}: {why}");
                assert!(Instant::now() < deadline, "timeout waiting for {what}: {why}");
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// A child process that is killed at the end of the test.
pub struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Running {
    pub fn start(mut command: Command) -> Running {
        // Standard input remains open, because a shell would exit without it.
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let output = child.stdout.take().expect("its output");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Running { child, lines }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to the process's standard input.
    pub fn tell(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("its input");
        writeln!(input, "{line}").expect("it reads");
    }

    /// Waits for a line that starts with `start`, and returns the rest of that line.
    pub fn line(&self, start: &str) -> String {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => match line.strip_prefix(start) {
                    Some(rest) => return rest.to_owned(),
                    None => println!("{line}"),
                },
                Err(error) => panic!("no line {start:?}: {error}"),
            }
        }
    }

    pub fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Otp {
    /// Creates a command of this release. erl, chroot and similar commands exec, so the VM has their process id.
    pub fn command(&self, program: &str) -> Command {
        match &self.chroot {
            None => Command::new(program),
            Some(root) => {
                let mut command = Command::new("chroot");
                command.arg(root).arg(program);
                command
            }
        }
    }

    /// Starts a VM that prints `up` and then evaluates `expression`. Waits for `up`.
    pub fn start(&self, arguments: &[&str], expression: &str) -> Running {
        self.start_as("-noinput", arguments, expression)
    }

    /// Like [`Otp::start`], for a VM that reads its standard input.
    pub fn start_with_input(&self, arguments: &[&str], expression: &str) -> Running {
        self.start_as("-noshell", arguments, expression)
    }

    fn start_as(&self, mode: &str, arguments: &[&str], expression: &str) -> Running {
        let mut command = self.command("erl");
        let eval = format!("io:format(\"up~n\"), {expression}");
        command.args([mode, "-kernel", "logger_level", "emergency"]).args(arguments).args(["-eval", &eval]);
        let vm = Running::start(command);
        vm.line("up");
        vm
    }
}

/// The real clock, which starts at zero.
pub struct RealClock(Instant);

impl RealClock {
    pub fn start() -> Self {
        RealClock(Instant::now())
    }
}

impl Clock for RealClock {
    fn now(&self) -> Nanos {
        self.0.elapsed().as_nanos() as Nanos
    }

    fn wall(&self) -> i64 {
        std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as i64
    }

    fn sleep_until(&self, until: Nanos) {
        thread::sleep(Duration::from_nanos((until - self.now()).max(0) as u64));
    }
}

/// A source for one process, with a clock and a table of series.
pub struct Recorder<T = LocalTree> {
    pub source: HostSource<T>,
    pub table: SeriesTable,
    clock: RealClock,
    seq: u64,
}

impl Recorder {
    pub fn of(pid: u32) -> Recorder {
        Recorder::with(LocalTree::default(), pid)
    }
}

impl<T: FileTree> Recorder<T> {
    /// Creates a recorder that reads from this tree.
    pub fn with(tree: T, pid: u32) -> Recorder<T> {
        let source = HostSource::new(tree, pid, AnnouncedBy::HostSource).unwrap();
        Recorder { source, table: SeriesTable::default(), clock: RealClock::start(), seq: 0 }
    }

    pub fn try_sample(&mut self, detail: bool) -> Result<(Sample, Span), SourceTrouble> {
        self.seq += 1;
        let t = self.clock.now();
        let mut out =
            SampleBuilder::new(&mut self.table, Tick { t, incarnation: 0, vm: None, host: None, late: 0 });
        self.source.request(SampleRequest { seq: self.seq, t, detail }, &self.clock)?;
        let span = self.source.collect(t + 1_000_000_000, &self.clock, &mut out)?;
        Ok((out.sample, span))
    }

    pub fn sample(&mut self, detail: bool) -> Sample {
        self.try_sample(detail).unwrap().0
    }

    /// Returns the value of a metric in a sample.
    pub fn value(&self, sample: &Sample, metric: &Metric, entity: &str) -> Option<i64> {
        let id = self.table.find(metric.group, entity, metric.name)?;
        sample.readings.iter().find(|(found, _)| *found == id).map(|(_, value)| *value)
    }

    /// Returns all values of a metric in a sample, with their entities.
    pub fn values(&self, sample: &Sample, metric: &Metric) -> Vec<(String, i64)> {
        let wanted = sample.readings.iter().filter_map(|(id, value)| {
            let series = self.table.get(*id)?;
            (series.group == metric.group && &*series.name == metric.name)
                .then(|| (series.entity.to_string(), *value))
        });
        wanted.collect()
    }
}

/// Whether a file exists.
pub fn exists(path: &str) -> bool {
    Path::new(path).exists()
}
