//! Huge nodes: overhead, effect on the latency of requests, and whether the only hot process is found.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use beamtune_recording::Reader;
use beamtune_stats::paired;

use super::figure::{Figure, Verdict, judge, percent};
use super::node::{Load, Node};
use super::paced::{p99_ms, while_working};
use super::process::{cpu_ns, pause};
use super::window::{BEFORE, Recorder, WINDOW, answered};
use super::{Bench, CONFIDENCE, or_not_measured};

/// Number of blocks, each with one window of each kind.
const BLOCKS: usize = 8;
/// Number of ETS tables.
const TABLES: u32 = 100_000;
/// Number of ports.
const PORTS: u32 = 50_000;
/// Number of processes of the node whose overhead has a limit.
const PROCESSES: u32 = 200_000;
/// Maximum overhead of one sample per second, as a share of a core.
const COST_LIMIT: f64 = 0.05;
/// Number of processes of the node in which one hot process must be found.
const PROCESSES_WITH_HOT_ONE: u32 = 1_000_000;
/// Maximum number of samples until the hot process is found.
const HOT_LIMIT: usize = 3;
/// Maximum increase of p99, in milliseconds.
const DELAY_LIMIT_MS: f64 = 1.0;
/// Maximum duration of an item of a sample, in milliseconds.
const ITEM_LIMIT_MS: f64 = 100.0;
/// The item that is read in short steps between samples, so that its total duration delays no request.
const IN_STEPS: &str = "procs";
/// Time from the beginning of a window until its recorder detaches, for [`WindowKind::Leaving`].
const ATTACHED: Duration = Duration::from_secs(3);
/// Flags that set the size of the process and port tables.
const FLAGS: [&str; 4] = ["+P", "2000000", "+Q", "131072"];

/// What the recorder does in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WindowKind {
    /// No recorder runs.
    Alone,
    /// The recorder samples during the whole window.
    Recorded,
    /// The recorder attaches at the beginning, and takes its first samples.
    Attaching,
    /// The recorder takes a few samples and detaches, and the agent is unloaded.
    Leaving,
}

const KINDS: [WindowKind; 4] =
    [WindowKind::Alone, WindowKind::Recorded, WindowKind::Attaching, WindowKind::Leaving];

/// The result of a window.
#[derive(Debug, Clone)]
struct Reading {
    p99_ms: f64,
    /// Mean number of active schedulers, by scheduler wall time.
    active: f64,
    /// CPU time of the process, in cores.
    os_cores: f64,
    /// Maximum duration of each item, in milliseconds.
    items: Items,
}

type Items = BTreeMap<String, f64>;

/// Returns the description of the method for the page.
pub fn method() -> String {
    "An echo server in the node gets a request of 64 bytes a thousand times a second. Delays count from when a request was due. \
     The p99 of windows of 10 s is compared, in blocks: alone, with `beamtune record`, while it attaches, and while it leaves \
     and is unloaded. Above 100,000 processes the agent's module stays loaded (agent/README.md)."
        .to_owned()
}

/// Measures nodes of both sizes.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for processes in [PROCESSES, PROCESSES_WITH_HOT_ONE] {
        figures
            .extend(or_not_measured(&format!("node with {processes} processes"), of_size(bench, processes))?);
    }
    Ok(figures)
}

fn of_size(bench: &Bench, processes: u32) -> Result<Vec<Figure>> {
    let mut node =
        Node::start(bench.own_otp()?, &FLAGS, Load::Huge { processes, tables: TABLES, ports: PORTS })?;
    let what =
        format!("node with {processes} processes, {TABLES} tables and {PORTS} ports, {}", node.version);
    let mut random = bench.random(processes);
    let mut order = KINDS;
    let mut readings: [Vec<Reading>; KINDS.len()] = Default::default();
    for _ in 0..bench.pairs.unwrap_or(BLOCKS) {
        random.shuffle(&mut order);
        for kind in order {
            readings[kind as usize].push(window(bench, &mut node, kind)?);
        }
    }
    let [alone, recorded, attaching, leaving] = &readings;
    let increase = |watched: &[Reading], of: fn(&Reading) -> f64| {
        let differences: Vec<f64> =
            alone.iter().zip(watched).map(|(alone, watched)| of(watched) - of(alone)).collect();
        paired::effect(&differences, CONFIDENCE).context("too few pairs for an interval")
    };
    let delay = |what: String, watched: &[Reading]| {
        let effect = increase(watched, |reading| reading.p99_ms)?;
        anyhow::Ok(Figure {
            what,
            value: format!(
                "{:+.2} ms [{:+.2}, {:+.2}], from {:.2} ms",
                effect.estimate,
                effect.low,
                effect.high,
                median(alone)
            ),
            limit: format!("< {DELAY_LIMIT_MS} ms"),
            verdict: judge(&effect, DELAY_LIMIT_MS),
        })
    };
    let cost = increase(recorded, |reading| reading.active)?;
    let by_os = increase(recorded, |reading| reading.os_cores)?;
    let has_limit = processes == PROCESSES;
    let items = || [recorded, attaching, leaving].into_iter().flatten().flat_map(|reading| &reading.items);
    let (_, steps_ms) = slowest(items().filter(|(item, _)| *item == IN_STEPS))?;
    let (slowest, slowest_ms) = slowest(items().filter(|(item, _)| *item != IN_STEPS))?;
    let mut figures = vec![
        Figure {
            what: format!("one sample a second, {what}, by scheduler wall time"),
            value: format!("{} of a core; CPU time of the process: {}", percent(&cost), percent(&by_os)),
            limit: if has_limit { format!("≤ {} %", COST_LIMIT * 100.0) } else { "–".into() },
            verdict: if has_limit { judge(&cost, COST_LIMIT) } else { Verdict::Compared },
        },
        delay("increase of the p99 of its requests while it is recorded".into(), recorded)?,
        delay("… while a recorder attaches and takes its first samples".into(), attaching)?,
        delay("… while a recorder detaches and the agent is unloaded".into(), leaving)?,
        Figure::below("slowest item of any sample, without `procs`", slowest_ms, ITEM_LIMIT_MS, |ms| {
            format!("{ms:.1} ms")
        })
        .with_suffix(&format!(" (`{slowest}`)")),
        Figure::compared(
            "`procs`, read in steps of 0.5 ms between samples: maximum total per sample",
            format!("{steps_ms:.0} ms"),
        ),
    ];
    if !has_limit {
        figures.push(hot(bench, &mut node)?);
    }
    Ok(figures)
}

fn window(bench: &Bench, node: &mut Node, kind: WindowKind) -> Result<Reading> {
    let folder = bench.folder.path();
    let start = |node: &Node| Recorder::start(&bench.beamtune, node, folder);
    let mut recorder = match kind {
        WindowKind::Recorded | WindowKind::Leaving => Some(start(node)?),
        WindowKind::Alone | WindowKind::Attaching => None,
    };
    let mut items = Items::new();
    pause(BEFORE)?;
    let before = cpu_ns(node.pid())?;
    let (delays, active) = while_working(node.echo, || {
        node.begin()?;
        let end = Instant::now() + WINDOW;
        if kind == WindowKind::Attaching {
            recorder = Some(start(node)?);
        }
        if kind == WindowKind::Leaving {
            pause(ATTACHED)?;
            items = leave(recorder.take(), node, ATTACHED)?;
        }
        pause(end.saturating_duration_since(Instant::now()))?;
        node.end()
    })?;
    let length = Duration::from_millis(delays.len() as u64);
    let os_cores = (cpu_ns(node.pid())? - before) as f64 / length.as_nanos() as f64;
    if recorder.is_some() {
        // A recorder that attached during the window did not sample its beginning.
        let attached = if kind == WindowKind::Attaching { WINDOW - BEFORE } else { WINDOW };
        items = leave(recorder, node, attached)?;
    }
    Ok(Reading { p99_ms: p99_ms(delays)?, active, os_cores, items })
}

/// Ends a recorder that was attached for this long, waits until the agent is unloaded, and returns the durations of the items.
fn leave(recorder: Option<Recorder>, node: &mut Node, attached: Duration) -> Result<Items> {
    let reader = recorder.context("no recorder was started")?.finish()?;
    node.wait_until_unloaded()?;
    answered(&reader, attached.as_secs() as usize)?;
    costs_ms(&reader)
}

/// Returns the maximum duration of each item from one sample to the next.
fn costs_ms(reader: &Reader) -> Result<Items> {
    let mut samples = reader.samples();
    let mut totals = HashMap::new();
    let mut maxima = Items::new();
    while let Some(sample) = samples.next() {
        for (id, value) in sample?.readings {
            let Some(series) = samples.table().get(id) else { continue };
            if series.group == beamtune_model::Group::Agent
                && &*series.name == "cost"
                && !series.entity.is_empty()
            {
                let cost_ns = value - totals.insert(id, value).unwrap_or(0);
                let max_ms = maxima.entry(series.entity.to_string()).or_default();
                *max_ms = f64::max(*max_ms, cost_ns as f64 / 1e6);
            }
        }
    }
    ensure!(!maxima.is_empty(), "the recording has no costs of the agent");
    Ok(maxima)
}

/// Returns the item with the longest duration.
fn slowest<'a>(items: impl Iterator<Item = (&'a String, &'a f64)>) -> Result<(&'a str, f64)> {
    let (item, ms) = items.max_by(|a, b| a.1.total_cmp(b.1)).context("there are no samples")?;
    Ok((item, *ms))
}

/// Measures after how many samples the only hot process is recorded as the busiest.
fn hot(bench: &Bench, node: &mut Node) -> Result<Figure> {
    let pid = node.heat()?;
    let recorder = Recorder::start(&bench.beamtune, node, bench.folder.path())?;
    pause(2 * WINDOW / 3)?;
    let reader = recorder.finish()?;
    let mut number = 0;
    for sample in reader.samples() {
        let sample = sample?;
        number += usize::from(sample.tick.vm.is_some());
        if sample.busiest.first().is_some_and(|process| *process.pid == *pid) {
            let limit = HOT_LIMIT as f64;
            return Ok(Figure {
                what: format!("one hot process among {PROCESSES_WITH_HOT_ONE} is recorded as the busiest"),
                value: format!("in sample {number}"),
                limit: format!("≤ {HOT_LIMIT}"),
                verdict: if number as f64 <= limit { Verdict::Met } else { Verdict::Missed },
            });
        }
    }
    anyhow::bail!("{pid} was not found in {number} samples")
}

fn median(readings: &[Reading]) -> f64 {
    let mut values: Vec<f64> = readings.iter().map(|reading| reading.p99_ms).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
