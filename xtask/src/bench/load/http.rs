//! What a request of HTTP costs: ours beside wrk and others, against nginx, at three sizes.

use anyhow::{Context, Result};

use super::nginx::Nginx;
use super::place::Cores;
use super::tool::{Generator, Load, Tool};
use super::trial::{Seen, run};
use crate::bench::figure::{Figure, Verdict, judge_within, median, ratio, thousands, times};
use crate::bench::{Bench, CONFIDENCE, or_not_measured};

/// Connections.
const SIZES: [u32; 3] = [100, 1_000, MOST];
/// Of these, the memory is told too.
const MOST: u32 = 10_000;
/// Rounds, in each of which every generator has a run: the fewest that allow an interval.
const ROUNDS: usize = 6;
/// Of a run.
const SECONDS: u32 = 4;
/// Of what wrk does.
const LEAST_RATIO: f64 = 0.9;
/// For each connection.
const MOST_BYTES: f64 = 10_000.0;
/// wrk is what ours has to reach; the others stand beside it.
const PEERS: [Generator; 4] = [Generator::Wrk, Generator::Oha, Generator::H2load, Generator::K6];

/// How it was measured, for the page.
pub fn method() -> String {
    format!(
        "**Load, HTTP**: nginx in one process answers 12 bytes on the first core, and one generator after the other, in random \
         order in each of {ROUNDS} rounds, asks it for {SECONDS} s as fast as each connection is answered. A generator has one \
         thread where that can be said (beamtune, wrk, h2load), and the last core alone. The figure is right answers for each \
         second of CPU, user and system, from the start of its process to the end, as the kernel accounts for it in \
         `/proc/PID/stat`; so the users that k6 makes first are part of its figure. Compared are logarithms within rounds, as \
         above. Memory is the whole process's, the kernel's for sockets is not in it. Peers are looked for in \
         `$BEAMTUNE_PEERS`, in `~/.cache/beamtune/peers/bin`, where `scripts/peers.sh` puts them, and in `PATH`; wrk2 has no \
         package and is put there by hand. What is not there is not compared."
    )
}

/// All sizes, one after the other.
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
        let what = format!("the same beside {}", peer.name());
        match peer {
            Generator::Wrk => Figure::not_measured(what, "it is not there (scripts/install.sh bench)"),
            _ => Figure::compared(what, "not there, not compared"),
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
    let mut seen: Vec<Vec<Seen>> = tools.iter().map(|_| Vec::new()).collect();
    let mut order: Vec<usize> = (0..tools.len()).collect();
    for _ in 0..bench.pairs.unwrap_or(ROUNDS) {
        random.shuffle(&mut order);
        for index in &order {
            nginx.calm_down()?;
            seen[*index].push(run(&tools[*index], &load, cores.generator, bench.folder.path(), |_| Ok(()))?);
        }
    }
    let (Some(tool), Some(ours)) = (tools.first(), seen.first()) else { return Ok(Vec::new()) };
    let mut figures = Vec::new();
    for (peer, theirs) in tools.iter().zip(&seen).skip(1) {
        figures.push(against(tool, ours, peer, theirs, &nginx.version, connections)?);
    }
    if connections == MOST {
        figures.push(memory(tools, &seen));
    }
    Ok(figures)
}

fn against(
    tool: &Tool,
    ours: &[Seen],
    peer: &Tool,
    theirs: &[Seen],
    server: &str,
    connections: u32,
) -> Result<Figure> {
    let rates = |seen: &[Seen]| -> Vec<f64> { seen.iter().map(Seen::per_cpu_s).collect() };
    let (own, others) = (rates(ours), rates(theirs));
    let effect = ratio(&own, &others, CONFIDENCE).context("too few rounds for an interval")?;
    let value = format!(
        "{} times as many: {} against {}{}",
        times(&effect),
        thousands(median(&own)),
        thousands(median(&others)),
        errors(&[(tool, ours), (peer, theirs)])
    );
    let what = format!(
        "requests of HTTP per second of the generator's CPU, {connections} connections, {server}: {tool} beside {peer}"
    );
    Ok(match peer.generator {
        Generator::Wrk => Figure {
            what,
            value,
            limit: format!("≥ {LEAST_RATIO}"),
            verdict: judge_within(&effect, LEAST_RATIO, f64::INFINITY),
        },
        _ => Figure::compared(what, value),
    })
}

/// Who had errors, and how many.
fn errors(of: &[(&Tool, &[Seen])]) -> String {
    let of = of.iter().map(|(tool, seen)| (tool, seen.iter().map(|seen| seen.result.errors()).sum::<u64>()));
    of.filter(|(_, errors)| *errors > 0)
        .map(|(tool, errors)| format!("; {} had {errors} errors", tool.generator.name()))
        .collect()
}

fn memory(tools: &[Tool], seen: &[Vec<Seen>]) -> Figure {
    let most = |seen: &[Seen]| seen.iter().map(|seen| seen.peak_bytes).max().unwrap_or_default() as f64;
    let each = |seen: &[Seen]| most(seen) / f64::from(MOST);
    let ours = seen.first().map_or(f64::NAN, |seen| each(seen));
    let others = tools.iter().zip(seen).skip(1);
    let others: String = others
        .map(|(tool, seen)| format!("; {} {:.1} KB", tool.generator.name(), each(seen) / 1e3))
        .collect();
    Figure {
        what: format!("our own memory at {MOST} connections: most ever resident, for each connection"),
        value: format!("{:.1} KB{others}", ours / 1e3),
        limit: format!("≤ {:.0} KB", MOST_BYTES / 1e3),
        verdict: if ours <= MOST_BYTES { Verdict::Kept } else { Verdict::Missed },
    }
}
