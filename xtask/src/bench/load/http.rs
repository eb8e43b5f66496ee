//! What a request of HTTP costs: ours beside wrk and others, against nginx, at three sizes.

use anyhow::{Context, Result, ensure};

use super::nginx::Nginx;
use super::place::Cores;
use super::tool::{Generator, Load, Tool};
use super::trial::{Seen, run};
use crate::bench::figure::{Figure, Verdict, judge_within, median, ratio, thousands, times};
use crate::bench::process::is_interrupted;
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
const MOST_KB: f64 = 10.0;
/// wrk is what ours has to reach; the others stand beside it.
const PEERS: [Generator; 4] = [Generator::Wrk, Generator::Oha, Generator::H2load, Generator::K6];

/// How it is measured, for the page.
pub fn method() -> String {
    format!(
        "An nginx in one process answers 12 bytes on the first core, and one generator after the other, in random order in each \
         of {ROUNDS} rounds, asks it for {SECONDS} s as fast as each connection is answered. A generator has one thread where \
         that can be said (beamtune, wrk, h2load), and the last core alone. The figure is right answers for each second of CPU, \
         user and system, from the start of its process to the end, as the kernel accounts for it in `/proc/PID/stat`; so \
         connecting, all at once, and the users that k6 makes first are part of it. Compared are logarithms within rounds. \
         Memory is the whole process's, the kernel's for sockets is not in it. Peers are looked for in `$BEAMTUNE_PEERS`, in \
         `~/.cache/beamtune/peers/bin`, where `scripts/peers.sh` puts them, and in `PATH`; wrk2 has no package and is put there \
         by hand. What is not there is not compared."
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
    // A peer that fails is run no more; the others are none the worse for it.
    let mut seen: Vec<Result<Vec<Seen>>> = tools.iter().map(|_| Ok(Vec::new())).collect();
    let mut order: Vec<usize> = (0..tools.len()).collect();
    for _ in 0..bench.pairs.unwrap_or(ROUNDS) {
        random.shuffle(&mut order);
        for index in &order {
            let Ok(runs) = &mut seen[*index] else { continue };
            nginx.calm_down()?;
            match run(&tools[*index], &load, cores.generator, bench.folder.path(), |_| Ok(())) {
                Ok(run) => runs.push(run),
                Err(error) => seen[*index] = Err(error),
            }
            ensure!(!is_interrupted(), "interrupted");
        }
    }
    let mut runs = tools.iter().zip(seen);
    let Some((tool, ours)) = runs.next() else { return Ok(Vec::new()) };
    let ours = ours?;
    let mut figures = Vec::new();
    let mut memories = String::new();
    for (peer, theirs) in runs {
        let what = format!(
            "requests of HTTP per second of the generator's CPU, {connections} connections, {}: {tool} beside {peer}",
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
    if connections == MOST {
        figures.push(memory(&ours, &memories));
    }
    Ok(figures)
}

fn against(what: String, (tool, ours): (&Tool, &[Seen]), (peer, theirs): (&Tool, &[Seen])) -> Result<Figure> {
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

/// The most that any of the runs had, for each connection, in kilobytes.
fn kb_each(seen: &[Seen]) -> f64 {
    let most = seen.iter().map(|seen| seen.peak_bytes).max().unwrap_or_default();
    most as f64 / f64::from(MOST) / 1e3
}

fn memory(ours: &[Seen], others: &str) -> Figure {
    let each = kb_each(ours);
    Figure {
        what: format!("our own memory at {MOST} connections: most ever resident, for each connection"),
        value: format!("{each:.1} KB{others}"),
        limit: format!("≤ {MOST_KB:.0} KB"),
        verdict: if each <= MOST_KB { Verdict::Kept } else { Verdict::Missed },
    }
}
