//! One run of a generator: what it did, what it cost, and what it said; and freezing, which is how truth is told from blame.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use beamtune_model::load::{LoadResult, LoadStep};

use super::tool::{Load, Tool};
use crate::bench::process::{self, cpu_s_at_end, pause, peak_rss_bytes, wait_for};

/// Beyond its time, a generator may take so long to begin and to end: k6 makes 10,000 users first.
const PATIENCE: Duration = Duration::from_secs(120);
/// Of what a program says, so many characters are shown.
const LONGEST_WORDS: usize = 160;

/// What a run showed.
#[derive(Debug)]
pub struct Seen {
    /// What it told.
    pub result: LoadResult,
    /// What it warned of, in its words.
    pub warning: Option<String>,
    /// CPU of all of it, its start among it, in seconds.
    pub cpu_s: f64,
    /// The most memory that it had, in bytes.
    pub peak_bytes: u64,
}

impl Seen {
    /// Right answers for each second of CPU.
    pub fn per_cpu_s(&self) -> f64 {
        self.result.done() as f64 / self.cpu_s
    }

    /// The step that asks; loads here have one.
    pub fn request(&self) -> Option<&LoadStep> {
        self.result.steps.iter().find(|step| !step.is_connect)
    }
}

/// What can be stopped and let go on.
pub trait Freezable {
    /// Its first process, which leads a group of all of them.
    fn pid(&self) -> u32;

    /// Stops all of it for a while.
    fn freeze(&self, length: Duration) -> Result<()> {
        self.signal("STOP")?;
        let waited = pause(length);
        self.signal("CONT")?;
        waited
    }

    /// Sends a signal to all of it.
    fn signal(&self, name: &str) -> Result<()> {
        let group = format!("-{}", self.pid());
        process::output(Command::new("kill").args(["-s", name, "--", &group])).map(drop)
    }
}

/// A generator that runs; it is killed and waited for when it goes out of scope.
pub struct Started(Child);

impl Freezable for Started {
    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // One that has ended has nothing to be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a generator to its end, and lets `meanwhile` happen after its start.
pub fn run(
    tool: &Tool,
    load: &Load,
    core: usize,
    folder: &Path,
    meanwhile: impl FnOnce(&Started) -> Result<()>,
) -> Result<Seen> {
    let folder = tempfile::tempdir_in(folder)?;
    let (printed, complaints) = (folder.path().join("printed"), folder.path().join("complaints"));
    let mut command = tool.command(load, core, folder.path())?;
    command.process_group(0).stdin(Stdio::null());
    command.stdout(File::create(&printed)?).stderr(File::create(&complaints)?);
    let started = Started(command.spawn().with_context(|| format!("{tool} does not start"))?);
    meanwhile(&started)?;

    let mut peak_bytes = 0;
    let patience = PATIENCE + Duration::from_secs(load.seconds.into());
    let cpu_s = wait_for(&format!("{tool} to end"), patience, || {
        peak_bytes = peak_rss_bytes(started.pid()).unwrap_or_default().max(peak_bytes);
        cpu_s_at_end(started.pid())
    })?;
    let said = [&complaints, &printed].map(fs::read).map(|said| said.unwrap_or_default());
    let said = said.each_ref().map(|said| String::from_utf8_lossy(said));
    // Its status says little: wrk's is a success whatever happens, ours is not if an answer was wrong.
    let result = tool.result(&printed, folder.path());
    let result = result.with_context(|| format!("it said: {}", end_of(&said[0])))?;
    Ok(Seen { result, warning: said.iter().find_map(|said| warning_in(said)), cpu_s, peak_bytes })
}

/// What a program said last before it failed: it may have said the same for each of 10,000 connections.
fn end_of(said: &str) -> String {
    let said = said.trim();
    let skipped = said.chars().count().saturating_sub(LONGEST_WORDS);
    said.chars().skip(skipped).collect()
}

/// The first line that warns, without what a log puts before its message. h2load has a warm-up, which is none.
fn warning_in(said: &str) -> Option<String> {
    let line = said.lines().find(|line| line.to_ascii_lowercase().contains("warning"))?.trim();
    let words = line.split_once("msg=").map_or(line, |(_, words)| words);
    Some(words.chars().take(LONGEST_WORDS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_a_line_that_says_so() {
        let check =
            |said: &str, expect: Option<&str>| assert_eq!(warning_in(said).as_deref(), expect, "{said}");
        check("Warm-up started for thread #0.\nfinished in 8.00s\n", None);
        check("running\n level=warning msg=\"no VUs\"\n", Some("\"no VUs\""));
        check("WARNING: too few\n", Some("WARNING: too few"));
    }

    #[test]
    fn of_many_words_the_last_are_shown() {
        assert_eq!(end_of(" none \n"), "none");
        let many = format!("{}failed\n", "again\n".repeat(10_000));
        assert_eq!(end_of(&many).chars().count(), LONGEST_WORDS);
        assert!(end_of(&many).ends_with("again\nfailed"));
    }

    #[test]
    fn what_is_frozen_uses_no_time_until_it_goes_on() {
        let spin = "while :; do :; done";
        let mut command = Command::new("sh");
        let started = Started(command.args(["-c", spin]).process_group(0).spawn().expect("sh starts"));
        started.signal("STOP").expect("it is there");
        let used = || process::cpu_ns(started.pid()).expect("it is there");
        // A signal is delivered when the process would run next.
        let state = || fs::read_to_string(format!("/proc/{}/stat", started.pid())).expect("it is there");
        wait_for("it to stop", PATIENCE, || Ok(state().contains(") T ").then_some(()))).expect("it stops");
        let before = used();
        pause(Duration::from_millis(50)).expect("not interrupted");
        assert_eq!(used(), before);
        started.freeze(Duration::from_millis(1)).expect("it is there");
        wait_for("it to go on", PATIENCE, || Ok((used() > before).then_some(()))).expect("it goes on");
    }
}
