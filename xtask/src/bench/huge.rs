//! Huge nodes: what being watched costs them, what their users feel of it, and whether one hot process is found.

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

/// Blocks of one window of each kind.
const BLOCKS: usize = 8;
/// ETS tables, and ports.
const TABLES: u32 = 100_000;
const PORTS: u32 = 50_000;
/// Processes: with this many, one sample a second may cost at most [`COST_LIMIT`] …
const PROCESSES: u32 = 200_000;
const COST_LIMIT: f64 = 0.05;
/// … and with this many, one hot process is found within [`HOT_LIMIT`] samples.
const MOST_PROCESSES: u32 = 1_000_000;
const HOT_LIMIT: usize = 3;
/// How much later 99 of 100 requests may be answered, in milliseconds.
const DELAY_LIMIT_MS: f64 = 1.0;
/// The longest that one item of a sample may take, in milliseconds.
const ITEM_LIMIT_MS: f64 = 100.0;
/// Read between samples, in steps with pauses, which holds nobody up.
const IN_STEPS: &str = "procs";
/// How long a recorder is there in windows in which it comes or goes. They are as long as the others.
const STAY: Duration = Duration::from_secs(3);
/// Room for what is started.
const FLAGS: [&str; 4] = ["+P", "2000000", "+Q", "131072"];

/// Who watches the node in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watched {
    Not,
    Steadily,
    /// The window begins with attaching, and a few samples, the first one among them.
    Comes,
    /// The window holds a few samples, leaving, and the unloading of the agent.
    Goes,
}

const KINDS: [Watched; 4] = [Watched::Not, Watched::Steadily, Watched::Comes, Watched::Goes];

/// What a window showed.
#[derive(Debug, Clone)]
struct Seen {
    p99_ms: f64,
    /// Schedulers that were active, in the mean, as the VM accounts for it.
    active: f64,
    /// CPU as the operating system accounts for it, in cores.
    os_cores: f64,
    /// What each item of the samples has cost at most, in milliseconds.
    items: Items,
}

type Items = BTreeMap<String, f64>;

/// How it is measured, for the page.
pub fn method() -> String {
    "A thousand times a second the node gets 64 bytes from outside and sends them back; the delay counts from when a request was \
     due. Compared are the p99 of windows of 10 s without anybody, with `beamtune record`, of windows that begin with its \
     attaching, and of windows in which it leaves and is unloaded, in blocks. More than 100,000 processes: the agent's module \
     stays loaded (agent/README.md)."
        .to_owned()
}

/// Both sizes, one after the other.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for processes in [PROCESSES, MOST_PROCESSES] {
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
    let mut seen: [Vec<Seen>; KINDS.len()] = Default::default();
    for _ in 0..bench.pairs.unwrap_or(BLOCKS) {
        random.shuffle(&mut order);
        for kind in order {
            seen[kind as usize].push(window(bench, &mut node, kind)?);
        }
    }
    let [alone, steadily, coming, going] = &seen;
    let more = |watched: &[Seen], of: fn(&Seen) -> f64| {
        let differences: Vec<f64> =
            alone.iter().zip(watched).map(|(alone, watched)| of(watched) - of(alone)).collect();
        paired::effect(&differences, CONFIDENCE).context("too few pairs for an interval")
    };
    let later = |what: String, watched: &[Seen]| {
        let effect = more(watched, |seen| seen.p99_ms)?;
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
    let cost = more(steadily, |seen| seen.active)?;
    let by_os = more(steadily, |seen| seen.os_cores)?;
    let has_limit = processes == PROCESSES;
    let items = || [steadily, coming, going].into_iter().flatten().flat_map(|seen| &seen.items);
    let (_, steps_ms) = dearest(items().filter(|(item, _)| *item == IN_STEPS))?;
    let (dearest, dearest_ms) = dearest(items().filter(|(item, _)| *item != IN_STEPS))?;
    let mut figures = vec![
        Figure {
            what: format!("cost of one sample a second: {what}, by the VM's own accounting"),
            value: format!(
                "{} of a core; CPU of the process as the operating system counts it: {}",
                percent(&cost),
                percent(&by_os)
            ),
            limit: if has_limit { format!("≤ {} %", COST_LIMIT * 100.0) } else { "–".into() },
            verdict: if has_limit { judge(&cost, COST_LIMIT) } else { Verdict::Compared },
        },
        later(
            "its requests, a thousand a second: how much their p99 grows while it is recorded".into(),
            steadily,
        )?,
        later("the same while a recorder attaches and takes its first samples".into(), coming)?,
        later("the same while a recorder leaves and is unloaded".into(), going)?,
        Figure::below(
            "the dearest item that is read at once in any sample",
            dearest_ms,
            ITEM_LIMIT_MS,
            |ms| format!("{ms:.1} ms"),
        )
        .with(&format!(" (`{dearest}`)")),
        Figure::compared(
            "reading of all processes, in steps of 0.5 ms between samples: the most from one sample to the next",
            format!("{steps_ms:.0} ms"),
        ),
    ];
    if !has_limit {
        figures.push(hot(bench, &mut node)?);
    }
    Ok(figures)
}

fn window(bench: &Bench, node: &mut Node, kind: Watched) -> Result<Seen> {
    let folder = bench.folder.path();
    let start = |node: &Node| Recorder::start(&bench.beamtune, node, folder);
    let mut recorder = match kind {
        Watched::Steadily | Watched::Goes => Some(start(node)?),
        Watched::Not | Watched::Comes => None,
    };
    let mut items = Items::new();
    pause(BEFORE)?;
    let before = cpu_ns(node.pid())?;
    let (delays, active) = while_working(node.answering, || {
        node.begin()?;
        let end = Instant::now() + WINDOW;
        if kind == Watched::Comes {
            recorder = Some(start(node)?);
        }
        if kind == Watched::Goes {
            pause(STAY)?;
            items = leave(recorder.take(), node, STAY)?;
        }
        pause(end.saturating_duration_since(Instant::now()))?;
        node.end()
    })?;
    let length = Duration::from_millis(delays.len() as u64);
    let os_cores = (cpu_ns(node.pid())? - before) as f64 / length.as_nanos() as f64;
    if recorder.is_some() {
        // One that has come in the window was not there for all of it.
        items = leave(recorder, node, if kind == Watched::Comes { WINDOW - BEFORE } else { WINDOW })?;
    }
    Ok(Seen { p99_ms: p99_ms(delays)?, active, os_cores, items })
}

/// Ends a recorder that was there for so long at least, waits until nothing of it is left in the node, and says what its
/// items have cost.
fn leave(recorder: Option<Recorder>, node: &mut Node, stayed: Duration) -> Result<Items> {
    let reader = recorder.context("no recorder was started")?.finish()?;
    node.wait_until_left()?;
    answered(&reader, stayed.as_secs() as usize)?;
    costs_ms(&reader)
}

/// The most that each item has cost from one sample to the next.
fn costs_ms(reader: &Reader) -> Result<Items> {
    let mut samples = reader.samples();
    let mut totals = HashMap::new();
    let mut most = Items::new();
    while let Some(sample) = samples.next() {
        for (id, value) in sample?.readings {
            let Some(series) = samples.table().get(id) else { continue };
            if series.group == beamtune_model::Group::Agent
                && &*series.name == "cost"
                && !series.entity.is_empty()
            {
                let cost_ns = value - totals.insert(id, value).unwrap_or(0);
                let most_ms = most.entry(series.entity.to_string()).or_default();
                *most_ms = f64::max(*most_ms, cost_ns as f64 / 1e6);
            }
        }
    }
    ensure!(!most.is_empty(), "the recording tells no costs");
    Ok(most)
}

/// The item that costs most, and how much.
fn dearest<'a>(items: impl Iterator<Item = (&'a String, &'a f64)>) -> Result<(&'a str, f64)> {
    let (item, ms) = items.max_by(|a, b| a.1.total_cmp(b.1)).context("there are no samples")?;
    Ok((item, *ms))
}

/// In which sample the one process that computes is the first among all.
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
                what: format!("the one process of {MOST_PROCESSES} that computes is told as the busiest"),
                value: format!("in sample {number}"),
                limit: format!("≤ {HOT_LIMIT}"),
                verdict: if number as f64 <= limit { Verdict::Kept } else { Verdict::Missed },
            });
        }
    }
    anyhow::bail!("{pid} was not found in {number} samples")
}

fn median(seen: &[Seen]) -> f64 {
    let mut values: Vec<f64> = seen.iter().map(|seen| seen.p99_ms).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
