//! `beamtune memory` on a large node: how long it occupies a scheduler, and the share of RSS that it explains.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Bench;
use super::figure::{Figure, median};
use super::node::{Load, Node};
use super::process::{command, pause};

/// Schedulers of the node.
const SCHEDULERS: &str = "64:64";
/// Binaries of the node, in megabytes.
const MEGABYTES: u32 = 12_000;
/// Longest time for which a scheduler may be occupied, in milliseconds.
const HELD_LIMIT_MS: f64 = 50.0;
/// Maximum unexplained share of RSS.
const UNEXPLAINED_LIMIT: f64 = 0.03;
/// Number of runs.
const ROUNDS: usize = 5;
/// Pause before each round.
const PAUSE: Duration = Duration::from_secs(2);
/// Length of `beamtune memory --for`: two samples, each with all allocators.
const SAMPLED: Duration = Duration::from_secs(1);

/// Returns the description of the method for the page.
pub fn method() -> String {
    format!(
        "An idle node with `+S {SCHEDULERS}` holds {} GB of binaries of 1 to 16 kB, created on all schedulers. The upper \
         bound of the time for which a scheduler is occupied is the CPU time of its thread during `beamtune memory --for 1s`, \
         which takes two samples with all allocators. The figure is the maximum over all schedulers and {ROUNDS} rounds.",
        MEGABYTES / 1_000
    )
}

/// Measures one node several times.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let node = Node::start(bench.own_otp()?, &["+S", SCHEDULERS], Load::Carriers { megabytes: MEGABYTES })?;
    let mut rounds = Vec::new();
    for _ in 0..bench.pairs.unwrap_or(ROUNDS) {
        pause(PAUSE)?;
        rounds.push(round(bench, &node)?);
    }
    let held_ms = rounds.iter().map(|round| round.held_ms).fold(0.0, f64::max);
    let values = |of: fn(&Round) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
    let what = format!("{} with `+S {SCHEDULERS}` and {} GB in carriers", node.version, MEGABYTES / 1_000);
    Ok(vec![
        Figure::below(
            format!("{what}: longest time for which a scheduler is occupied"),
            held_ms,
            HELD_LIMIT_MS,
            |ms| format!("{ms:.1} ms"),
        ),
        Figure::below(
            "unexplained share of RSS, page by page",
            values(|round| round.unexplained),
            UNEXPLAINED_LIMIT,
            |share| format!("{:.2} %", share * 100.0),
        )
        .with_suffix(&format!(" of {:.2} GB", values(|round| round.resident_gb))),
        Figure::compared(
            "duration of that scan, outside the VM",
            format!("{:.0} ms", values(|round| round.scan_ms)),
        ),
        Figure::compared(
            "duration of `beamtune memory --for 1s`, without that second",
            format!("{:.2} s", values(|round| round.took_s)),
        ),
    ])
}

struct Round {
    held_ms: f64,
    unexplained: f64,
    resident_gb: f64,
    scan_ms: f64,
    took_s: f64,
}

fn round(bench: &Bench, node: &Node) -> Result<Round> {
    let (before, begin) = (schedulers_cpu_ns(node.pid())?, Instant::now());
    let length = format!("{}s", SAMPLED.as_secs());
    let output =
        command(&bench.beamtune).args(["memory", &node.name, "--json", "--for", &length]).output()?;
    // Exit status 1 means that there are findings.
    ensure!(
        matches!(output.status.code(), Some(0 | 1)),
        "beamtune memory failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let took_s = (begin.elapsed().saturating_sub(SAMPLED)).as_secs_f64();
    let after = schedulers_cpu_ns(node.pid())?;
    let held = after.iter().filter_map(|(tid, ns)| Some(ns.saturating_sub(*before.get(tid)?)));
    let page: Value = serde_json::from_slice(&output.stdout)?;
    let number = |key: &str| page[key].as_f64().with_context(|| format!("beamtune memory gave no {key}"));
    let resident = number("resident_bytes")?;
    Ok(Round {
        held_ms: held.max().context("the node has no schedulers")? as f64 / 1e6,
        unexplained: number("unexplained_bytes")?.abs() / resident,
        resident_gb: resident / 1e9,
        scan_ms: number("looking_seconds")? * 1e3,
        took_s,
    })
}

/// Returns the CPU time of the thread of each normal scheduler.
fn schedulers_cpu_ns(pid: u32) -> Result<HashMap<u32, u64>> {
    let mut found = HashMap::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?;
        let name = fs::read_to_string(task.path().join("comm"))?;
        if name.starts_with("erts_sched_") || name.trim_end().ends_with("_scheduler") {
            let stat = fs::read_to_string(task.path().join("schedstat"))?;
            let ns =
                stat.split(' ').next().and_then(|ns| ns.parse().ok()).context("schedstat has no time")?;
            found.insert(task.file_name().to_string_lossy().parse()?, ns);
        }
    }
    ensure!(!found.is_empty(), "process {pid} has no scheduler threads");
    Ok(found)
}
