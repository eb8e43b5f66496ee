//! Whether what is told is true: a target that is frozen for a second is told as slow as it was, and a generator that is frozen
//! says so and does not blame the target.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use beamtune_model::load::{Latency, LoadResult, LoadStep};
use beamtune_stats::paired;

use super::nginx::Nginx;
use super::place::Cores;
use super::tool::{Generator, Load, Tool};
use super::trial::{Freezable, Seen, Started, run};
use crate::bench::figure::{Figure, Verdict, judge, judge_within, median, ratio, thousands, times};
use crate::bench::process::pause;
use crate::bench::{Bench, CONFIDENCE, or_not_measured};

/// A load that is far from what either side can do.
const PER_SECOND: u32 = 1_000;
const CONNECTIONS: u32 = 50;
const SECONDS: u32 = 8;
/// In the middle of it …
const FROM: Duration = Duration::from_millis(3_500);
/// … for so long.
const FROZEN: Duration = Duration::from_secs(1);
/// Of runs.
const PAIRS: usize = 8;
/// Runs of each peer with the generator frozen.
const PEER_RUNS: usize = 2;
/// Of wrk2's p99.
const WITHIN: f64 = 0.05;
/// What the target's service time may grow by because the generator was frozen, in milliseconds: a thousandth of that.
const HARM_LIMIT_MS: f64 = 1.0;
const PEERS: [Generator; 5] =
    [Generator::Wrk2, Generator::Wrk, Generator::Oha, Generator::K6, Generator::H2load];

/// How it is measured, for the page.
pub fn method() -> String {
    format!(
        "{PER_SECOND} requests a second at equal distances on {CONNECTIONS} connections for {SECONDS} s against \
         an nginx as for HTTP; in the middle all processes of the server, or of the generator, are stopped for {} s by SIGSTOP. With \
         the server frozen, the p99 of beamtune's response is compared with that of `wrk2 --latency`, in random pairs of runs. \
         With the generator frozen, the service time that beamtune prints is compared with that of runs in which nobody was, \
         and what its peers print is shown as it is: oha with `--latency-correction`, k6 with arrivals at a constant rate, \
         h2load with `--rps`, wrk as fast as it is answered.",
        FROZEN.as_secs()
    )
}

/// The server frozen, then the generator.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let site = Site::new(bench)?;
    let mut figures = or_not_measured("server frozen", server_frozen(&site))?;
    figures.extend(or_not_measured("generator frozen", generator_frozen(&site))?);
    for peer in PEERS {
        let what = format!("the same of {}", peer.name());
        figures.extend(or_not_measured(&what, peer_frozen(&site, peer))?);
    }
    Ok(figures)
}

/// What all runs need.
struct Site<'b> {
    bench: &'b Bench,
    cores: Cores,
    nginx: Nginx,
    ours: Tool,
}

/// Who is frozen in a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Frozen {
    Nobody,
    Server,
    Generator,
}

impl<'b> Site<'b> {
    fn new(bench: &'b Bench) -> Result<Self> {
        let cores = Cores::of_this_process()?;
        let nginx = Nginx::start(bench.folder.path(), cores)?;
        Ok(Self { bench, cores, nginx, ours: Tool::ours(&bench.beamtune)? })
    }

    fn run(&self, tool: &Tool, frozen: Frozen) -> Result<Seen> {
        let per_second = Some(PER_SECOND).filter(|_| tool.generator != Generator::Wrk);
        let load = Load { url: self.nginx.url(), connections: CONNECTIONS, seconds: SECONDS, per_second };
        let freeze = |generator: &Started| {
            pause(FROM)?;
            match frozen {
                Frozen::Nobody => Ok(()),
                Frozen::Server => self.nginx.freeze(FROZEN),
                Frozen::Generator => generator.freeze(FROZEN),
            }
        };
        self.nginx.calm_down()?;
        let seen = run(tool, &load, self.cores.generator, self.bench.folder.path(), freeze)?;
        let errors = seen.result.errors();
        ensure!(tool.generator != Generator::Beamtune || errors == 0, "{errors} errors in a run of ours");
        Ok(seen)
    }

    /// Runs of two kinds, in random order within each pair.
    fn pairs(&self, number: u32, kinds: [(&Tool, Frozen); 2]) -> Result<[Vec<Seen>; 2]> {
        let mut random = self.bench.random(number);
        let mut seen = [Vec::new(), Vec::new()];
        for _ in 0..self.bench.pairs.unwrap_or(PAIRS) {
            let mut order = [0, 1];
            random.shuffle(&mut order);
            for index in order {
                let (tool, frozen) = kinds[index];
                seen[index].push(self.run(tool, frozen)?);
            }
        }
        Ok(seen)
    }
}

fn server_frozen(site: &Site<'_>) -> Result<Vec<Figure>> {
    let ours = &site.ours;
    let what = |peer: &str| {
        format!("server frozen for {} s of {SECONDS} s: p99 of {ours} beside {peer}", FROZEN.as_secs())
    };
    let Some(wrk2) = Tool::find(Generator::Wrk2)? else {
        return Ok(vec![Figure::compared(what(Generator::Wrk2.name()), "not there, not compared")]);
    };
    let [own, others] = site.pairs(SECONDS, [(ours, Frozen::Server), (&wrk2, Frozen::Server)])?;
    let (own_p99s, other_p99s) = (p99s_ms(&own, response)?, p99s_ms(&others, response)?);
    let effect = ratio(&own_p99s, &other_p99s, CONFIDENCE).context("too few pairs for an interval")?;
    Ok(vec![Figure {
        what: what(&wrk2.to_string()),
        value: format!(
            "{} times as long: {:.0} ms against {:.0} ms{}",
            times(&effect),
            median(&own_p99s),
            median(&other_p99s),
            left_out(&own)
        ),
        limit: format!("{} to {}", 1.0 - WITHIN, 1.0 + WITHIN),
        verdict: judge_within(&effect, 1.0 - WITHIN, 1.0 + WITHIN),
    }])
}

fn generator_frozen(site: &Site<'_>) -> Result<Vec<Figure>> {
    let ours = &site.ours;
    let [frozen, free] = site.pairs(PER_SECOND, [(ours, Frozen::Generator), (ours, Frozen::Nobody)])?;
    let told: Vec<String> = frozen.iter().filter_map(|seen| freeze_in(&seen.result)).collect();
    let is_told = told.len() == frozen.len();
    let (frozen_p99s, free_p99s) = (p99s_ms(&frozen, service)?, p99s_ms(&free, service)?);
    let differences: Vec<f64> =
        frozen_p99s.iter().zip(&free_p99s).map(|(frozen, free)| frozen - free).collect();
    let effect = paired::effect(&differences, CONFIDENCE).context("too few pairs for an interval")?;
    Ok(vec![
        Figure {
            what: format!("generator frozen for {} s of {SECONDS} s: {ours} says so", FROZEN.as_secs()),
            value: format!(
                "in {} of {} runs{}",
                told.len(),
                frozen.len(),
                told.last().map_or_else(String::new, |words| format!(": {words}"))
            ),
            limit: "all".to_owned(),
            verdict: if is_told { Verdict::Kept } else { Verdict::Missed },
        },
        Figure {
            what: "the same: how much longer the p99 of the target's service time is told than without"
                .to_owned(),
            value: format!(
                "{:+.2} ms [{:+.2}, {:+.2}], from {:.2} ms; response told as {:.2} ms; generator-bound, and left out: {}, \
                 and {} without a freeze",
                effect.estimate,
                effect.low,
                effect.high,
                median(&free_p99s),
                median(&p99s_ms(&frozen, response)?),
                bound(&frozen),
                bound(&free)
            ),
            limit: format!("< {HARM_LIMIT_MS} ms"),
            verdict: judge(&effect, HARM_LIMIT_MS),
        },
    ])
}

/// What a peer says of a run in which it was frozen.
fn peer_frozen(site: &Site<'_>, peer: Generator) -> Result<Vec<Figure>> {
    let Some(tool) = Tool::find(peer)? else {
        let what = format!("the same of {}", peer.name());
        return Ok(vec![Figure::compared(what, "not there, not compared")]);
    };
    let runs = site.bench.pairs.unwrap_or(PEER_RUNS).min(PEER_RUNS);
    let seen = (0..runs).map(|_| site.run(&tool, Frozen::Generator)).collect::<Result<Vec<_>>>()?;
    let told: Vec<String> = seen.iter().map(told).collect();
    let warnings: Vec<&str> = seen.iter().filter_map(|seen| seen.warning.as_deref()).collect();
    let warned = match warnings.first() {
        None => "no warning".to_owned(),
        Some(words) => format!("in {} of {runs} runs a warning: {words}", warnings.len()),
    };
    Ok(vec![Figure::compared(
        format!("the same of {tool}: what it tells"),
        format!("{}; {warned}", told.join("; ")),
    )])
}

/// What a peer tells of its answers' times: from when they were due, if it knows that, or from when they were sent.
fn told(seen: &Seen) -> String {
    let step = seen.request();
    let times = step.and_then(|step| step.response.as_ref().or(step.service.as_ref()));
    let of = format!("of {} answers", thousands(seen.result.done() as f64));
    let percentile = times.and_then(|times| times.percentile_ns("p99"));
    match (percentile, times.and_then(|times| times.max_ns)) {
        (Some(p99), _) => format!("a p99 of {:.1} ms {of}", p99 as f64 / 1e6),
        (None, Some(max)) => format!("no p99, at most {:.1} ms {of}", max as f64 / 1e6),
        (None, None) => format!("no times {of}"),
    }
}

fn response(step: &LoadStep) -> Option<&Latency> {
    step.response.as_ref()
}

fn service(step: &LoadStep) -> Option<&Latency> {
    step.service.as_ref()
}

/// The p99 of each run, in milliseconds.
fn p99s_ms(seen: &[Seen], times: fn(&LoadStep) -> Option<&Latency>) -> Result<Vec<f64>> {
    let p99 = |seen: &Seen| times(seen.request()?)?.percentile_ns("p99");
    seen.iter().map(|seen| Ok(p99(seen).context("a run has told no p99")? as f64 / 1e6)).collect()
}

/// What a result says of the freeze: that the generator did not run for as long. A shorter stall is something else's fault.
fn freeze_in(result: &LoadResult) -> Option<String> {
    result.seconds.iter().find_map(|second| {
        let words = second.bound.as_deref()?;
        let (_, length) = words.split_once("did not run for ")?;
        let length_ms: f64 = length.strip_suffix(" ms")?.parse().ok()?;
        let is_it = length_ms >= 0.9 * FROZEN.as_secs_f64() * 1e3;
        is_it.then(|| format!("“second {}: {words}”", second.second))
    })
}

/// In how many of all seconds the generator was the limit.
fn bound(seen: &[Seen]) -> String {
    let sum = |of: fn(&LoadResult) -> u32| seen.iter().map(|seen| of(&seen.result)).sum::<u32>();
    let (bound, judged) =
        (sum(|result| result.generator.bound_seconds), sum(|result| result.generator.judged_seconds));
    format!("{bound} of {judged} s")
}

/// A remark if the generator was the limit where it should not have been.
fn left_out(seen: &[Seen]) -> String {
    let is_any = seen.iter().any(|seen| seen.result.generator.bound_seconds > 0);
    if is_any { format!("; generator-bound, and left out: {}", bound(seen)) } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freeze_is_told_only_by_a_stall_as_long() {
        let result = |words: &str| -> LoadResult {
            let second = serde_json::json!({"second": 3, "asked": 1000, "done": 1000, "errors": 0, "connected": 50,
                "waiting": 0, "p50_ns": 1, "p99_ns": 2, "cores": 0.1, "bound": words});
            serde_json::from_value(serde_json::json!({"version": 1, "tool": "beamtune", "targets": [], "length_s": 8.0,
                "asked": {"model": "unknown"}, "is_interrupted": false, "unfinished": 0, "steps": [], "remarks": [],
                "generator": {"processes": 1, "threads": 1, "bound_seconds": 1, "judged_seconds": 8},
                "seconds": [second]}))
            .expect("a result")
        };
        let told = freeze_in(&result("a thread of the generator did not run for 1001 ms"));
        assert_eq!(told.as_deref(), Some("“second 3: a thread of the generator did not run for 1001 ms”"));
        assert_eq!(freeze_in(&result("a thread of the generator did not run for 90 ms")), None);
        assert_eq!(freeze_in(&result("the generator was late by 1001.0 ms (p99; limit 1.0 ms)")), None);
    }
}
