//! Durations for which users wait: `beamtune nodes`, the first sample, and the linter.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use beamtune_recording::Reader;

use super::Bench;
use super::figure::Figure;
use super::node::{Load, Node, PROCESSES, TABLES};
use super::process::{command, output};
use crate::check_lint::files_with_flags;

const VMS: usize = 5;
const RUNS: usize = 20;
const NODES_LIMIT_MS: f64 = 100.0;
const FIRST_SAMPLE_LIMIT_MS: f64 = 150.0;
const LINTED: usize = 1000;
const LINT_LIMIT_MS: f64 = 1000.0;

/// Returns the description of how the first sample is measured, for the page.
pub fn first_sample_method() -> String {
    "From the start of `beamtune record` to the end of the VM's first read, as recorded. This includes \
     starting the program, finding the node and its cookie, connecting, and injecting the agent. The node had been \
     attached to once before."
        .to_owned()
}

/// Returns the description of how linting is measured, for the page.
pub fn lint_method() -> String {
    "The files of `fixtures/args` that contain flags, several copies of each.".to_owned()
}

/// Measures `beamtune nodes` with five VMs on the host.
pub fn nodes(bench: &Bench) -> Result<Vec<Figure>> {
    let otps = bench.otps.iter().cycle().take(VMS);
    let _nodes = otps.map(|otp| Node::start(otp, &[], Load::Empty)).collect::<Result<Vec<_>>>()?;
    let listed = output(command(&bench.beamtune).args(["nodes", "--json"]))?;
    let listed: Vec<serde_json::Value> = serde_json::from_str(&listed)?;
    ensure!(listed.len() >= VMS, "beamtune nodes lists {} of {VMS} VMs", listed.len());

    let mut times = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let begin = Instant::now();
        output(command(&bench.beamtune).arg("nodes"))?;
        times.push(begin.elapsed());
    }
    let what = format!("`beamtune nodes` with {} VMs on the host, median of {RUNS} runs", listed.len());
    Ok(vec![of_times(what, &mut times, NODES_LIMIT_MS)])
}

/// Measures the time from the start of `beamtune record` to the end of the VM's first read.
pub fn first_sample(bench: &Bench) -> Result<Vec<Figure>> {
    let node = Node::start(bench.own_otp()?, &[], Load::Idle)?;
    // The first injection makes the node load modules.
    record_once(bench, &node)?;
    let mut times = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        times.push(record_once(bench, &node)?);
    }
    let what = format!(
        "`beamtune record` to its first sample, node with {PROCESSES} processes and {TABLES} tables, median of {RUNS} runs"
    );
    Ok(vec![of_times(what, &mut times, FIRST_SAMPLE_LIMIT_MS)])
}

/// Measures `beamtune lint` on a folder with many files.
pub fn lint(bench: &Bench) -> Result<Vec<Figure>> {
    let fixtures = bench.repository.join("fixtures/args");
    let files = files_with_flags(&fixtures)?;
    let folder = bench.folder.path().join("linted");
    for number in 0..LINTED {
        let Some(file) = files.get(number % files.len().max(1)) else { break };
        let copy = folder.join((number / files.len()).to_string()).join(file.strip_prefix(&fixtures)?);
        std::fs::create_dir_all(copy.parent().context("a path without a folder")?)?;
        std::fs::copy(file, copy)?;
    }
    let mut times = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let begin = Instant::now();
        let output = command(&bench.beamtune).args(["lint", "--format", "json"]).arg(&folder).output()?;
        times.push(begin.elapsed());
        let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let (files, unread) = (&report["summary"]["files"], &report["unread"]);
        ensure!(
            *files == LINTED && *unread == serde_json::json!([]),
            "{files} files read, not read: {unread}"
        );
    }
    std::fs::remove_dir_all(&folder)?;
    let what = format!("`beamtune lint` on {LINTED} files with flags, median of {RUNS} runs");
    Ok(vec![of_times(what, &mut times, LINT_LIMIT_MS)])
}

fn record_once(bench: &Bench, node: &Node) -> Result<Duration> {
    let file = bench.folder.path().join("first.beamtune");
    let begin = SystemTime::now();
    output(command(&bench.beamtune).args(["record", &node.name, "--for", "1ms", "-o"]).arg(&file))?;
    let first = first_read(&file)?;
    std::fs::remove_file(&file)?;
    first.duration_since(begin).context("the system clock was set during the measurement")
}

/// Returns the end of the VM's first read.
fn first_read(file: &Path) -> Result<SystemTime> {
    let reader = Reader::open(file)?;
    let zero = reader.wall_at_zero().context("the recording has no start time")?;
    let sample = reader.samples().next().context("the recording holds no sample")??;
    let vm = sample.tick.vm.context("the VM did not answer the first sample")?;
    Ok(SystemTime::UNIX_EPOCH + Duration::from_nanos(u64::try_from(zero + vm.end)?))
}

fn of_times(what: String, times: &mut [Duration], limit_ms: f64) -> Figure {
    times.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let median = ms(times[(times.len() - 1) / 2]).midpoint(ms(times[times.len() / 2]));
    let longest = times.last().copied().map_or(f64::NAN, ms);
    Figure::below(what, median, limit_ms, |ms| format!("{ms:.0} ms"))
        .with_suffix(&format!(" (longest {longest:.0} ms)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::Verdict;

    #[test]
    fn the_median_is_compared_and_the_longest_is_reported() {
        let check = |ms: &[u64], expect: (&str, Verdict)| {
            let mut times: Vec<_> = ms.iter().map(|ms| Duration::from_millis(*ms)).collect();
            let figure = of_times(String::new(), &mut times, 100.0);
            assert_eq!((figure.value.as_str(), figure.verdict), expect);
        };
        check(&[400, 20, 30], ("30 ms (longest 400 ms)", Verdict::Met));
        check(&[90, 120, 100, 110], ("105 ms (longest 120 ms)", Verdict::Missed));
    }
}
