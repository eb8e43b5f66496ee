//! Processes that always end, waiting that Ctrl-C interrupts, and the most memory that a process ever had.
//!
//! Each process is started in a group of its own, so that Ctrl-C reaches only this program, which then ends what
//! it has started, by process id. VMs end with their standard input too, should this program be killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, bail, ensure};

use super::machine::{TICKS_PER_S, parse_ticks};

/// What takes longer than this, and is no measurement, has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at a process. Short against what is timed so (tenths of a second).
const LOOK_PAUSE: Duration = Duration::from_millis(5);

static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// From now on Ctrl-C ends the benchmark in order.
pub fn catch_interrupts() -> Result<()> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, INTERRUPTED.clone()).context("cannot catch Ctrl-C")?;
    }
    Ok(())
}

/// True after Ctrl-C.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Waits for something; an error after Ctrl-C, or when it takes too long.
pub fn wait_for<T>(what: &str, patience: Duration, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        ensure!(!is_interrupted(), "interrupted");
        ensure!(Instant::now() < deadline, "waited {} s in vain for {what}", patience.as_secs());
        std::thread::sleep(LOOK_PAUSE);
    }
}

/// Lets time pass; an error after Ctrl-C.
pub fn pause(length: Duration) -> Result<()> {
    let end = Instant::now() + length;
    loop {
        ensure!(!is_interrupted(), "interrupted");
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}

/// A command that a developer's own settings do not reach.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for name in ["BEAMTUNE_COOKIE", "ERL_EPMD_PORT", "ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS"] {
        command.env_remove(name);
    }
    command
}

/// Runs a short command to its end and gives what it printed.
pub fn output(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?} failed: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A process that is killed and waited for when it goes out of scope.
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
}

impl Running {
    /// Starts a command. Its output can be waited for line by line.
    pub fn start(command: &mut Command) -> Result<Running> {
        let started = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = started.with_context(|| format!("cannot start {command:?}"))?;
        let (sender, lines) = channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines() {
                    let Ok(line) = line else { break };
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        let stderr = child.stderr.take().map(|mut pipe| {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                // What could be read is what there is to show.
                let _ = pipe.read_to_end(&mut text);
                String::from_utf8_lossy(&text).into_owned()
            })
        });
        Ok(Running { stdin: child.stdin.take(), child, lines, stderr })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to its standard input.
    pub fn say(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("its standard input is closed")?;
        writeln!(stdin, "{line}").with_context(|| format!("process {} has ended", self.child.id()))
    }

    /// Waits for a line that begins so, and gives the rest of it.
    pub fn expect_line(&mut self, prefix: &str) -> Result<String> {
        let mut seen = String::new();
        let found = wait_for("a line", PATIENCE, || {
            loop {
                match self.lines.try_recv() {
                    Ok(line) => match line.strip_prefix(prefix) {
                        Some(rest) => return Ok(Some(rest.to_owned())),
                        None => seen.push_str(&format!("\n{line}")),
                    },
                    Err(TryRecvError::Empty) => return Ok(None),
                    Err(TryRecvError::Disconnected) => bail!("it has ended"),
                }
            }
        });
        found.with_context(|| format!("no line {prefix:?} from process {}{seen}", self.pid()))
    }

    /// The lines that have come meanwhile.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.lines.try_iter()
    }

    /// Asks it to end, as Ctrl-C does.
    pub fn interrupt(&self) -> Result<()> {
        output(Command::new("kill").args(["-s", "INT", &self.pid().to_string()])).map(drop)
    }

    /// Its status, if it has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context("cannot wait for a process")
    }

    /// Waits for its end, which is to be a success.
    pub fn finish(mut self, patience: Duration) -> Result<()> {
        match wait_for("the end of a process", patience, || self.ended())?.success() {
            true => Ok(()),
            false => Err(self.failure()),
        }
    }

    /// Waits until it takes connections at an address; if it ends instead, that is why.
    pub fn wait_until_it_listens(&mut self, name: &str, at: SocketAddr) -> Result<()> {
        let is_up = wait_for(name, PATIENCE, || {
            ensure!(self.ended()?.is_none(), "{name} has ended");
            Ok(TcpStream::connect(at).ok())
        });
        is_up.map(drop).map_err(|_| self.failure().context(format!("{name} does not start")))
    }

    /// What an ended process has to say for itself.
    pub fn failure(&mut self) -> Error {
        let said = self.stderr.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        let status = self.ended().ok().flatten().map_or_else(String::new, |status| status.to_string());
        anyhow!("{status}: {}", said.trim())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended has nothing to be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a program that ran to its end has used.
pub struct Used {
    /// From its start to its end.
    pub time: Duration,
    /// The most that was ever resident.
    pub peak_rss_bytes: u64,
}

/// Runs a program, and looks at its memory until it ends. A status of 1 is no failure: it says that something was found.
pub fn run_whole(command: &mut Command, patience: Duration) -> Result<Used> {
    let begin = Instant::now();
    let mut running = Running::start(command)?;
    let mut peak = 0;
    let status = wait_for("its end", patience, || {
        peak = peak.max(peak_rss_bytes(running.pid()).unwrap_or(0));
        running.ended()
    });
    let time = begin.elapsed();
    match status.with_context(|| format!("{command:?}"))?.code() {
        Some(0 | 1) => Ok(Used { time, peak_rss_bytes: peak }),
        _ => Err(running.failure()).with_context(|| format!("{command:?}")),
    }
}

/// The most memory that a process ever had, in bytes; `None` once it has ended.
pub fn peak_rss_bytes(pid: u32) -> Option<u64> {
    peak_of_status(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn peak_of_status(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// CPU time of a process, with that of those that it has waited for, in seconds: exact once it has ended, until it is waited
/// for. `None` while it runs.
pub fn cpu_s_at_end(pid: u32) -> Result<Option<f64>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("a process is gone")?;
    // proc(5): the state follows the name, which may hold anything.
    let has_ended = stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'));
    let ticks = parse_ticks(&stat).with_context(|| format!("cannot understand /proc/{pid}/stat"))?;
    Ok(has_ended.then_some(ticks as f64 / TICKS_PER_S))
}

/// CPU time that all threads of a process have had, in nanoseconds (Documentation/scheduler/sched-stats.rst).
pub fn cpu_ns(pid: u32) -> Result<u64> {
    let mut sum = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).context("a process has ended")? {
        let path = thread?.path().join("schedstat");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let first = text.split_whitespace().next().context("an empty schedstat")?;
        sum += first.parse::<u64>()?;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_of_memory_is_read_in_its_unit() {
        let check =
            |status: &str, expect: Option<u64>| assert_eq!(peak_of_status(status), expect, "{status:?}");
        check("VmPeak:\t  9000 kB\nVmHWM:\t    3404 kB\nVmRSS:\t 1 kB\n", Some(3404 * 1024));
        check("Name:\tzombie\n", None);
        check("VmHWM:\t3404 MB\n", None);
    }

    #[test]
    fn the_cpu_of_a_process_is_told_when_it_has_ended() {
        let spin = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; read line";
        let mut running = Running::start(Command::new("sh").args(["-c", spin])).expect("sh starts");
        assert_eq!(cpu_s_at_end(running.pid()).expect("it is there"), None);
        running.say("").expect("it listens");
        let cpu_s = wait_for("its end", PATIENCE, || cpu_s_at_end(running.pid())).expect("it ends");
        assert!((0.01..10.0).contains(&cpu_s), "{cpu_s}");
        running.finish(PATIENCE).expect("a success");
    }

    #[test]
    fn a_process_is_ended_with_its_guard() {
        let running = Running::start(Command::new("sleep").arg("1000")).expect("sleep starts");
        let pid = running.pid();
        assert!(peak_rss_bytes(pid).is_some());
        drop(running);
        assert_eq!(peak_rss_bytes(pid), None);
    }

    #[test]
    fn what_a_failed_process_said_is_in_the_error() {
        let running = Running::start(Command::new("sh").args(["-c", "echo no such thing >&2; exit 3"]));
        let error = running.expect("sh starts").finish(PATIENCE).expect_err("it failed");
        assert!(error.to_string().contains("no such thing"), "{error}");
    }
}
