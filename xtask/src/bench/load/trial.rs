//! Runs a generator once: its result, CPU time, memory and warnings. Also freezes processes.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use beamtune_model::load::{LoadResult, LoadStep};

use super::tool::{Load, Tool};
use crate::bench::process::{self, cpu_s_at_end, pause, peak_rss_bytes, wait_for};

/// Time limit for starting and ending, in addition to the duration of the run: k6 creates 10,000 users first.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum number of characters of a program's output that are shown.
const MAX_CHARS: usize = 160;

/// The result of a run.
#[derive(Debug)]
pub struct TrialRun {
    /// The result, as the generator reported it.
    pub result: LoadResult,
    /// The first warning.
    pub warning: Option<String>,
    /// CPU time of the whole process, in seconds.
    pub cpu_s: f64,
    /// Peak RSS.
    pub peak_bytes: u64,
}

impl TrialRun {
    /// Returns the number of valid responses per CPU second.
    pub fn per_cpu_s(&self) -> f64 {
        self.result.done() as f64 / self.cpu_s
    }

    /// Returns the step with the requests; loads here have one such step.
    pub fn request(&self) -> Option<&LoadStep> {
        self.result.steps.iter().find(|step| !step.is_connect)
    }
}

/// A process group that can be stopped and continued.
pub trait Freezable {
    /// Returns the process id of the group leader.
    fn pid(&self) -> u32;

    /// Stops the group for some time.
    fn freeze(&self, length: Duration) -> Result<()> {
        self.signal("STOP")?;
        let waited = pause(length);
        self.signal("CONT")?;
        waited
    }

    /// Sends a signal to the group.
    fn signal(&self, name: &str) -> Result<()> {
        let group = format!("-{}", self.pid());
        process::output(Command::new("kill").args(["-s", name, "--", &group])).map(drop)
    }
}

/// A running generator that is killed and waited for when dropped.
pub struct Started(Child);

impl Freezable for Started {
    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // This fails if the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a generator to its end. `meanwhile` is called after the start.
pub fn run(
    tool: &Tool,
    load: &Load,
    core: usize,
    folder: &Path,
    meanwhile: impl FnOnce(&Started) -> Result<()>,
) -> Result<TrialRun> {
    let folder = tempfile::tempdir_in(folder)?;
    let (stdout, stderr) = (folder.path().join("stdout"), folder.path().join("stderr"));
    let mut command = tool.command(load, core, folder.path())?;
    command.process_group(0).stdin(Stdio::null());
    command.stdout(File::create(&stdout)?).stderr(File::create(&stderr)?);
    let started = Started(command.spawn().with_context(|| format!("cannot start {tool}"))?);
    meanwhile(&started)?;

    let mut peak_bytes = 0;
    let timeout = TIMEOUT + Duration::from_secs(load.seconds.into());
    let cpu_s = wait_for(&format!("{tool} to end"), timeout, || {
        peak_bytes = peak_rss_bytes(started.pid()).unwrap_or_default().max(peak_bytes);
        cpu_s_at_end(started.pid())
    })?;
    let outputs = [&stderr, &stdout].map(fs::read).map(|output| output.unwrap_or_default());
    let outputs = outputs.each_ref().map(|output| String::from_utf8_lossy(output));
    // The exit status says nothing: wrk always reports success, and beamtune reports failure if a response was wrong.
    let result = tool.result(&stdout, folder.path());
    let result = result.with_context(|| format!("stderr: {}", end_of(&outputs[0])))?;
    let warning = outputs.iter().find_map(|output| warning_in(output));
    Ok(TrialRun { result, warning, cpu_s, peak_bytes })
}

/// Returns the end of an output, which may repeat an error for each of 10,000 connections.
fn end_of(output: &str) -> String {
    let output = output.trim();
    let skipped = output.chars().count().saturating_sub(MAX_CHARS);
    output.chars().skip(skipped).collect()
}

/// Returns the message of the first line with the word "warning". The "Warm-up" that h2load prints is not a warning.
fn warning_in(output: &str) -> Option<String> {
    let line = output.lines().find(|line| line.to_ascii_lowercase().contains("warning"))?.trim();
    let message = line.split_once("msg=").map_or(line, |(_, message)| message);
    Some(message.chars().take(MAX_CHARS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_a_line_with_that_word() {
        let check = |output: &str, expect: Option<&str>| {
            assert_eq!(warning_in(output).as_deref(), expect, "{output}");
        };
        check("Warm-up started for thread #0.\nfinished in 8.00s\n", None);
        check("running\n level=warning msg=\"no VUs\"\n", Some("\"no VUs\""));
        check("WARNING: too few\n", Some("WARNING: too few"));
    }

    #[test]
    fn the_end_of_a_long_output_is_shown() {
        assert_eq!(end_of(" none \n"), "none");
        let many = format!("{}failed\n", "again\n".repeat(10_000));
        assert_eq!(end_of(&many).chars().count(), MAX_CHARS);
        assert!(end_of(&many).ends_with("again\nfailed"));
    }

    #[test]
    fn a_frozen_process_uses_no_cpu() {
        let spin = "while :; do :; done";
        let mut command = Command::new("sh");
        let started = Started(command.args(["-c", spin]).process_group(0).spawn().expect("sh starts"));
        started.signal("STOP").expect("it runs");
        let used = || process::cpu_ns(started.pid()).expect("it exists");
        // A signal is delivered when the process runs next.
        let state = || fs::read_to_string(format!("/proc/{}/stat", started.pid())).expect("it exists");
        wait_for("it to stop", TIMEOUT, || Ok(state().contains(") T ").then_some(()))).expect("it stops");
        let before = used();
        pause(Duration::from_millis(50)).expect("not interrupted");
        assert_eq!(used(), before);
        started.freeze(Duration::from_millis(1)).expect("it exists");
        wait_for("it to continue", TIMEOUT, || Ok((used() > before).then_some(()))).expect("it continues");
    }
}
