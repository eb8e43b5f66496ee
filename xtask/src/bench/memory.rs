//! Telling where the memory of a large node is: what that costs its schedulers, and how much of it is explained.

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
/// What it holds.
const MEGABYTES: u32 = 12_000;
/// How long a scheduler may be held, in milliseconds.
const HELD_LIMIT_MS: f64 = 50.0;
/// What may stay unexplained of resident memory.
const UNEXPLAINED_LIMIT: f64 = 0.03;
/// How often it is asked.
const ROUNDS: usize = 5;
/// Between two rounds.
const REST: Duration = Duration::from_secs(2);
/// How long is looked: two samples, each with all allocators.
const LOOK: Duration = Duration::from_secs(1);

/// How it is measured, for the page.
pub fn method() -> String {
    format!(
        "A node with `+S {SCHEDULERS}` holds {} GB of binaries of 1 to 16 kB, made on all schedulers, and does nothing else. How long a \
         scheduler is held at most is the CPU time that its thread has taken while `beamtune memory --for 1s` ran, which takes two \
         samples with all allocators: no single hold can have been longer. The most of all schedulers in {ROUNDS} rounds counts.",
        MEGABYTES / 1_000
    )
}

/// One node, asked several times.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let node = Node::start(bench.own_otp()?, &["+S", SCHEDULERS], Load::Carriers { megabytes: MEGABYTES })?;
    let mut rounds = Vec::new();
    for _ in 0..bench.pairs.unwrap_or(ROUNDS) {
        pause(REST)?;
        rounds.push(round(bench, &node)?);
    }
    let most = rounds.iter().map(|round| round.held_ms).fold(0.0, f64::max);
    let values = |of: fn(&Round) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
    let what = format!("{} with `+S {SCHEDULERS}` and {} GB in carriers", node.version, MEGABYTES / 1_000);
    Ok(vec![
        Figure::below(format!("{what}: the most that a scheduler is held"), most, HELD_LIMIT_MS, |ms| {
            format!("{ms:.1} ms")
        }),
        Figure::below(
            "resident memory that is not explained, page by page",
            values(|round| round.unexplained),
            UNEXPLAINED_LIMIT,
            |share| format!("{:.2} %", share * 100.0),
        )
        .with(&format!(" of {:.2} GB", values(|round| round.resident_gb))),
        Figure::compared(
            "finding that out, outside of the VM",
            format!("{:.0} ms", values(|round| round.looking_ms)),
        ),
        Figure::compared(
            "`beamtune memory --for 1s`, beyond that second",
            format!("{:.2} s", values(|round| round.took_s)),
        ),
    ])
}

struct Round {
    held_ms: f64,
    unexplained: f64,
    resident_gb: f64,
    looking_ms: f64,
    took_s: f64,
}

fn round(bench: &Bench, node: &Node) -> Result<Round> {
    let (before, begin) = (schedulers_cpu_ns(node.pid())?, Instant::now());
    let length = format!("{}s", LOOK.as_secs());
    let asked = command(&bench.beamtune).args(["memory", &node.name, "--json", "--for", &length]).output()?;
    // 1: there are findings.
    ensure!(
        matches!(asked.status.code(), Some(0 | 1)),
        "beamtune memory failed: {}",
        String::from_utf8_lossy(&asked.stderr)
    );
    let took_s = (begin.elapsed().saturating_sub(LOOK)).as_secs_f64();
    let after = schedulers_cpu_ns(node.pid())?;
    let held = after.iter().filter_map(|(tid, ns)| Some(ns.saturating_sub(*before.get(tid)?)));
    let page: Value = serde_json::from_slice(&asked.stdout)?;
    let number = |key: &str| page[key].as_f64().with_context(|| format!("{key} is not known"));
    let resident = number("resident_bytes")?;
    Ok(Round {
        held_ms: held.max().context("it has no schedulers")? as f64 / 1e6,
        unexplained: number("unexplained_bytes")?.abs() / resident,
        resident_gb: resident / 1e9,
        looking_ms: page["looking_seconds"].as_f64().context("it was not told how long looking took")? * 1e3,
        took_s,
    })
}

/// CPU time of each normal scheduler's thread so far.
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
    ensure!(!found.is_empty(), "process {pid} has no threads that are called schedulers");
    Ok(found)
}
