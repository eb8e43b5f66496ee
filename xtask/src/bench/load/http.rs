//! CPU time per HTTP request to nginx: ours compared with wrk and others, with three numbers of connections.

use anyhow::{Context, Result, ensure};

use super::nginx::Nginx;
use super::placement::Cores;
use super::tool::{Generator, Load, NOT_INSTALLED, Tool};
use super::trial::{TrialRun, run};
use crate::bench::figure::{Figure, Verdict, factor, judge_within, median, ratio, thousands};
use crate::bench::process::is_interrupted;
use crate::bench::{Bench, CONFIDENCE, or_not_measured};

/// Numbers of connections that are measured.
const SIZES: [u32; 3] = [100, 1_000, MAX_CONNECTIONS];
/// The number of connections at which memory is measured.
const MAX_CONNECTIONS: u32 = 10_000;
/// Number of rounds with a run per generator; the minimum for an interval.
const ROUNDS: usize = 6;
/// Length of a run.
const SECONDS: u32 = 4;
/// Minimum ratio of our requests per CPU second to those of wrk.
const MIN_RATIO: f64 = 0.9;
/// Maximum memory per connection, in kilobytes.
const MAX_KB: f64 = 10.0;
/// The peers. Only wrk sets a limit.
const PEERS: [Generator; 4] = [Generator::Wrk, Generator::Oha, Generator::H2load, Generator::K6];

/// Returns the description of the method for the page.
pub fn method() -> String {
    format!(
        "An nginx with one process, on the first core, answers with 12 bytes. In each of {ROUNDS} rounds the generators run for \
         {SECONDS} s each, in random order, alone on the last core, and send the next request on a connection when the response \
         has arrived. A generator has one thread if that can be set (beamtune, wrk, h2load). The figure is valid responses per \
         second of CPU time, user and system, of the whole process (`/proc/PID/stat`), which includes opening all connections \
         at once and k6's creation of its users. Logarithms are compared within rounds. Memory is that of the process, without \
         the kernel's for sockets. Peers are searched for in `$BEAMTUNE_PEERS`, in `~/.cache/beamtune/peers/bin`, where \
         `scripts/peers.sh` installs them, and in `PATH`. wrk2 has no package and must be installed by hand."
    )
}

/// Measures with all numbers of connections.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let cores = Cores::of_this_process()?;
    let nginx = Nginx::start(bench.folder.path(), cores)?;
    let mut tools = vec![Tool::ours(&bench.beamtune)?];
    let mut figures = Vec::new();
    let mut missing = Vec::new();
    for peer in PEERS {
        match Tool::find(peer)? {
            Some(tool) => tools.push(tool),
            None => missing.push(peer),
        }
    }
    for connections in SIZES {
        let what = format!("HTTP on {connections} connections");
        figures.extend(or_not_measured(&what, of_size(bench, &tools, &nginx, cores, connections))?);
    }
    figures.extend(missing.into_iter().map(|peer| {
        let what = format!("the same against {}", peer.name());
        match peer {
            Generator::Wrk => Figure::not_measured(what, "wrk is not installed (scripts/install.sh bench)"),
            _ => Figure::compared(what, NOT_INSTALLED),
        }
    }));
    Ok(figures)
}

fn of_size(
    bench: &Bench,
    tools: &[Tool],
    nginx: &Nginx,
    cores: Cores,
    connections: u32,
) -> Result<Vec<Figure>> {
    let load = Load { url: nginx.url(), connections, seconds: SECONDS, per_second: None };
    let mut random = bench.random(connections);
    // A peer that fails once is not run again; the others continue.
    let mut results: Vec<Result<Vec<TrialRun>>> = tools.iter().map(|_| Ok(Vec::new())).collect();
    let mut order: Vec<usize> = (0..tools.len()).collect();
    for _ in 0..bench.pairs.unwrap_or(ROUNDS) {
        random.shuffle(&mut order);
        for index in &order {
            let Ok(runs) = &mut results[*index] else { continue };
            nginx.wait_until_idle()?;
            match run(&tools[*index], &load, cores.generator, bench.folder.path(), |_| Ok(())) {
                Ok(run) => runs.push(run),
                Err(error) => results[*index] = Err(error),
            }
            ensure!(!is_interrupted(), "interrupted");
        }
    }
    let mut runs = tools.iter().zip(results);
    let Some((tool, ours)) = runs.next() else { return Ok(Vec::new()) };
    let ours = ours?;
    let mut figures = Vec::new();
    let mut memories = String::new();
    for (peer, theirs) in runs {
        let what = format!(
            "HTTP requests per CPU second of the generator, {connections} connections, {}: {tool} against {peer}",
            nginx.version
        );
        figures.push(match theirs {
            Ok(theirs) => {
                memories.push_str(&format!("; {} {:.1} KB", peer.generator.name(), kb_each(&theirs)));
                against(what, (tool, &ours), (peer, &theirs))?
            }
            Err(error) if peer.generator == Generator::Wrk => {
                Figure::not_measured(what, format!("{error:#}"))
            }
            Err(error) => Figure::compared(what, format!("not compared: {error:#}")),
        });
    }
    if connections == MAX_CONNECTIONS {
        figures.push(memory(&ours, &memories));
    }
    Ok(figures)
}

fn against(
    what: String,
    (tool, ours): (&Tool, &[TrialRun]),
    (peer, theirs): (&Tool, &[TrialRun]),
) -> Result<Figure> {
    let rates = |runs: &[TrialRun]| -> Vec<f64> { runs.iter().map(TrialRun::per_cpu_s).collect() };
    let (own, others) = (rates(ours), rates(theirs));
    let effect = ratio(&own, &others, CONFIDENCE).context("too few rounds for an interval")?;
    let value = format!(
        "{} times: {} against {}{}",
        factor(&effect),
        thousands(median(&own)),
        thousands(median(&others)),
        errors(&[(tool, ours), (peer, theirs)])
    );
    Ok(match peer.generator {
        Generator::Wrk => Figure {
            what,
            value,
            limit: format!("≥ {MIN_RATIO}"),
            verdict: judge_within(&effect, MIN_RATIO, f64::INFINITY),
        },
        _ => Figure::compared(what, value),
    })
}

/// Returns the number of errors of each generator that had any.
fn errors(runs: &[(&Tool, &[TrialRun])]) -> String {
    let errors =
        runs.iter().map(|(tool, runs)| (tool, runs.iter().map(|run| run.result.errors()).sum::<u64>()));
    errors
        .filter(|(_, errors)| *errors > 0)
        .map(|(tool, errors)| format!("; {} had {errors} errors", tool.generator.name()))
        .collect()
}

/// Returns the peak RSS of all runs, per connection, in kilobytes.
fn kb_each(runs: &[TrialRun]) -> f64 {
    let peak = runs.iter().map(|run| run.peak_bytes).max().unwrap_or_default();
    peak as f64 / f64::from(MAX_CONNECTIONS) / 1e3
}

fn memory(ours: &[TrialRun], others: &str) -> Figure {
    let each = kb_each(ours);
    Figure {
        what: format!("peak RSS of beamtune per connection, {MAX_CONNECTIONS} connections"),
        value: format!("{each:.1} KB{others}"),
        limit: format!("≤ {MAX_KB:.0} KB"),
        verdict: if each <= MAX_KB { Verdict::Met } else { Verdict::Missed },
    }
}
