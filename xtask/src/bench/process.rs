//! Child processes that always end, waits that Ctrl-C interrupts, and CPU time and memory of processes.
//!
//! Each child has its own process group, so that Ctrl-C only reaches this program, which then kills its children by process id. VMs also
//! end when their standard input closes, in case this program is killed.

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

/// Timeout of all operations that are not measured.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Polling interval; short compared with the durations measured this way (tenths of a second).
const POLL_INTERVAL: Duration = Duration::from_millis(5);

static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Makes Ctrl-C and SIGTERM end the benchmark cleanly.
pub fn catch_interrupts() -> Result<()> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, INTERRUPTED.clone()).context("cannot catch Ctrl-C")?;
    }
    Ok(())
}

/// Whether Ctrl-C was pressed.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Polls until there is a result. Fails after Ctrl-C or the timeout.
pub fn wait_for<T>(what: &str, timeout: Duration, mut poll: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(found) = poll()? {
            return Ok(found);
        }
        ensure!(!is_interrupted(), "interrupted");
        ensure!(Instant::now() < deadline, "timed out after {} s waiting for {what}", timeout.as_secs());
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Sleeps. Fails after Ctrl-C.
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

/// Creates a command without the developer's own settings for Erlang and beamtune.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for name in ["BEAMTUNE_COOKIE", "ERL_EPMD_PORT", "ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS"] {
        command.env_remove(name);
    }
    command
}

/// Runs a command and returns its standard output.
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

/// A child process that is killed and waited for when dropped.
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
}

impl Running {
    /// Starts a command.
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
                // An incomplete text is better than none.
                let _ = pipe.read_to_end(&mut text);
                String::from_utf8_lossy(&text).into_owned()
            })
        });
        Ok(Running { stdin: child.stdin.take(), child, lines, stderr })
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to the standard input.
    pub fn write_line(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("standard input is closed")?;
        writeln!(stdin, "{line}").with_context(|| format!("process {} has ended", self.child.id()))
    }

    /// Waits for a line with this prefix, and returns the rest of the line.
    pub fn expect_line(&mut self, prefix: &str) -> Result<String> {
        let mut others = String::new();
        let found = wait_for("a line", TIMEOUT, || {
            loop {
                match self.lines.try_recv() {
                    Ok(line) => match line.strip_prefix(prefix) {
                        Some(rest) => return Ok(Some(rest.to_owned())),
                        None => others.push_str(&format!("\n{line}")),
                    },
                    Err(TryRecvError::Empty) => return Ok(None),
                    Err(TryRecvError::Disconnected) => bail!("it has ended"),
                }
            }
        });
        found.with_context(|| format!("process {} printed no line {prefix:?}, but:{others}", self.pid()))
    }

    /// Returns the lines printed since the last call.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.lines.try_iter()
    }

    /// Sends SIGINT, as Ctrl-C does.
    pub fn interrupt(&self) -> Result<()> {
        output(Command::new("kill").args(["-s", "INT", &self.pid().to_string()])).map(drop)
    }

    /// Returns the exit status, if the process has ended.
    pub fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context("cannot wait for a process")
    }

    /// Waits for a successful exit.
    pub fn finish(mut self, timeout: Duration) -> Result<()> {
        match wait_for("the end of a process", timeout, || self.exit_status())?.success() {
            true => Ok(()),
            false => Err(self.failure()),
        }
    }

    /// Waits until the process accepts connections at an address. If it ends first, the error contains its output.
    pub fn wait_until_listening(&mut self, name: &str, at: SocketAddr) -> Result<()> {
        let is_up = wait_for(name, TIMEOUT, || {
            ensure!(self.exit_status()?.is_none(), "{name} ended");
            Ok(TcpStream::connect(at).ok())
        });
        is_up.map(drop).map_err(|_| self.failure().context(format!("{name} does not start")))
    }

    /// Returns the exit status and standard error of an ended process as an error.
    pub fn failure(&mut self) -> Error {
        let stderr = self.stderr.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        let status = self.exit_status().ok().flatten().map_or_else(String::new, |status| status.to_string());
        anyhow!("{status}: {}", stderr.trim())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // This fails if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Duration and memory use of a program.
pub struct ResourceUse {
    /// From start to exit.
    pub time: Duration,
    /// Peak RSS.
    pub peak_rss_bytes: u64,
}

/// Runs a program and samples its memory until it exits. Exit status 1 is a success: it means that beamtune has findings.
pub fn run_to_end(command: &mut Command, timeout: Duration) -> Result<ResourceUse> {
    let begin = Instant::now();
    let mut running = Running::start(command)?;
    let mut peak = 0;
    let status = wait_for("its exit", timeout, || {
        peak = peak.max(peak_rss_bytes(running.pid()).unwrap_or(0));
        running.exit_status()
    });
    let time = begin.elapsed();
    match status.with_context(|| format!("{command:?}"))?.code() {
        Some(0 | 1) => Ok(ResourceUse { time, peak_rss_bytes: peak }),
        _ => Err(running.failure()).with_context(|| format!("{command:?}")),
    }
}

/// Returns the peak RSS of a process; `None` once it has ended.
pub fn peak_rss_bytes(pid: u32) -> Option<u64> {
    peak_of_status(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn peak_of_status(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Returns the CPU time, in seconds, of a zombie process and of the children that it waited for. `None` while the process runs.
pub fn cpu_s_at_end(pid: u32) -> Result<Option<f64>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("the process is gone")?;
    // The state follows the name, which may contain any characters (proc(5)).
    let has_ended = stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'));
    let ticks = parse_ticks(&stat).with_context(|| format!("cannot parse /proc/{pid}/stat"))?;
    Ok(has_ended.then_some(ticks as f64 / TICKS_PER_S))
}

/// Returns the CPU time of all threads of a process, in nanoseconds (Documentation/scheduler/sched-stats.rst).
pub fn cpu_ns(pid: u32) -> Result<u64> {
    let mut sum = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).context("the process has ended")? {
        let path = thread?.path().join("schedstat");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let first = text.split_whitespace().next().context("schedstat is empty")?;
        sum += first.parse::<u64>()?;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_memory_is_read_in_its_unit() {
        let check =
            |status: &str, expect: Option<u64>| assert_eq!(peak_of_status(status), expect, "{status:?}");
        check("VmPeak:\t  9000 kB\nVmHWM:\t    3404 kB\nVmRSS:\t 1 kB\n", Some(3404 * 1024));
        check("Name:\tzombie\n", None);
        check("VmHWM:\t3404 MB\n", None);
    }

    #[test]
    fn cpu_time_is_known_when_the_process_has_ended() {
        let spin = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; read line";
        let mut running = Running::start(Command::new("sh").args(["-c", spin])).expect("sh starts");
        assert_eq!(cpu_s_at_end(running.pid()).expect("it runs"), None);
        running.write_line("").expect("it reads");
        let cpu_s = wait_for("its exit", TIMEOUT, || cpu_s_at_end(running.pid())).expect("it exits");
        assert!((0.01..10.0).contains(&cpu_s), "{cpu_s}");
        running.finish(TIMEOUT).expect("a success");
    }

    #[test]
    fn a_dropped_process_is_killed() {
        let running = Running::start(Command::new("sleep").arg("1000")).expect("sleep starts");
        let pid = running.pid();
        assert!(peak_rss_bytes(pid).is_some());
        drop(running);
        assert_eq!(peak_rss_bytes(pid), None);
    }

    #[test]
    fn the_error_of_a_failed_process_has_its_output() {
        let running = Running::start(Command::new("sh").args(["-c", "echo no such thing >&2; exit 3"]));
        let error = running.expect("sh starts").finish(TIMEOUT).expect_err("it failed");
        assert!(error.to_string().contains("no such thing"), "{error}");
    }
}
