//! Accuracy of the reported latencies. If a server is frozen for a second, its true slowness must be reported. If a generator is frozen, it
//! must report this, and must not blame the server.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use beamtune_model::load::{Latency, LoadResult, LoadStep};
use beamtune_stats::paired;

use super::nginx::Nginx;
use super::placement::Cores;
use super::tool::{Generator, Load, NOT_INSTALLED, Tool};
use super::trial::{Freezable, Started, TrialRun, run};
use crate::bench::figure::{Figure, Verdict, factor, judge, judge_within, median, ratio, thousands};
use crate::bench::process::pause;
use crate::bench::{Bench, CONFIDENCE, or_not_measured};

/// Requests per second, far below the capacity of either side.
const PER_SECOND: u32 = 1_000;
const CONNECTIONS: u32 = 50;
const SECONDS: u32 = 8;
/// Start of the freeze, in the middle of a run.
const FREEZE_START: Duration = Duration::from_millis(3_500);
/// Duration of the freeze.
const FREEZE: Duration = Duration::from_secs(1);
/// Number of pairs of runs.
const PAIRS: usize = 8;
/// Number of runs of each peer with the generator frozen.
const PEER_RUNS: usize = 2;
/// Allowed deviation from wrk2's p99.
const TOLERANCE: f64 = 0.05;
/// By how much a frozen generator may raise the reported service time, in milliseconds: a thousandth of the freeze.
const SERVICE_LIMIT_MS: f64 = 1.0;
const PEERS: [Generator; 5] =
    [Generator::Wrk2, Generator::Wrk, Generator::Oha, Generator::K6, Generator::H2load];

/// Returns the description of the method for the page.
pub fn method() -> String {
    format!(
        "{PER_SECOND} requests a second at equal intervals on {CONNECTIONS} connections for {SECONDS} s, to an nginx as for \
         HTTP. In the middle, SIGSTOP freezes all processes of the server, or of the generator, for {} s. With the server \
         frozen, the p99 of beamtune's response time is compared with that of `wrk2 --latency`, in random pairs of runs. With \
         the generator frozen, the service time that beamtune reports is compared with that of runs without a freeze, and the \
         peers' reports are quoted: oha with `--latency-correction`, k6 with a constant arrival rate, h2load with `--rps`, wrk \
         without a rate.",
        FREEZE.as_secs()
    )
}

/// Freezes the server, then the generator.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let setup = Setup::new(bench)?;
    let mut figures = or_not_measured("server frozen", server_frozen(&setup))?;
    figures.extend(or_not_measured("generator frozen", generator_frozen(&setup))?);
    for peer in PEERS {
        let what = format!("generator frozen: {}", peer.name());
        figures.extend(or_not_measured(&what, peer_frozen(&setup, peer))?);
    }
    Ok(figures)
}

/// The data that all runs share.
struct Setup<'b> {
    bench: &'b Bench,
    cores: Cores,
    nginx: Nginx,
    ours: Tool,
}

/// The side that is frozen in a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Frozen {
    None,
    Server,
    Generator,
}

impl<'b> Setup<'b> {
    fn new(bench: &'b Bench) -> Result<Self> {
        let cores = Cores::of_this_process()?;
        let nginx = Nginx::start(bench.folder.path(), cores)?;
        Ok(Self { bench, cores, nginx, ours: Tool::ours(&bench.beamtune)? })
    }

    fn run(&self, tool: &Tool, frozen: Frozen) -> Result<TrialRun> {
        let per_second = Some(PER_SECOND).filter(|_| tool.generator != Generator::Wrk);
        let load = Load { url: self.nginx.url(), connections: CONNECTIONS, seconds: SECONDS, per_second };
        let freeze = |generator: &Started| {
            pause(FREEZE_START)?;
            match frozen {
                Frozen::None => Ok(()),
                Frozen::Server => self.nginx.freeze(FREEZE),
                Frozen::Generator => generator.freeze(FREEZE),
            }
        };
        self.nginx.wait_until_idle()?;
        let run = run(tool, &load, self.cores.generator, self.bench.folder.path(), freeze)?;
        let errors = run.result.errors();
        ensure!(tool.generator != Generator::Beamtune || errors == 0, "{errors} errors in a run of beamtune");
        Ok(run)
    }

    /// Runs pairs of two kinds of runs, in random order.
    fn pairs(&self, number: u32, kinds: [(&Tool, Frozen); 2]) -> Result<[Vec<TrialRun>; 2]> {
        let mut random = self.bench.random(number);
        let mut runs = [Vec::new(), Vec::new()];
        for _ in 0..self.bench.pairs.unwrap_or(PAIRS) {
            let mut order = [0, 1];
            random.shuffle(&mut order);
            for index in order {
                let (tool, frozen) = kinds[index];
                runs[index].push(self.run(tool, frozen)?);
            }
        }
        Ok(runs)
    }
}

fn server_frozen(setup: &Setup<'_>) -> Result<Vec<Figure>> {
    let ours = &setup.ours;
    let what = |peer: &str| {
        format!("server frozen for {} s of {SECONDS} s: p99 of {ours} against {peer}", FREEZE.as_secs())
    };
    let Some(wrk2) = Tool::find(Generator::Wrk2)? else {
        return Ok(vec![Figure::compared(what(Generator::Wrk2.name()), NOT_INSTALLED)]);
    };
    let [own, others] = setup.pairs(SECONDS, [(ours, Frozen::Server), (&wrk2, Frozen::Server)])?;
    let (own_p99s, other_p99s) = (p99s_ms(&own, response)?, p99s_ms(&others, response)?);
    let effect = ratio(&own_p99s, &other_p99s, CONFIDENCE).context("too few pairs for an interval")?;
    Ok(vec![Figure {
        what: what(&wrk2.to_string()),
        value: format!(
            "{} times: {:.0} ms against {:.0} ms{}",
            factor(&effect),
            median(&own_p99s),
            median(&other_p99s),
            excluded(&own)
        ),
        limit: format!("{} to {}", 1.0 - TOLERANCE, 1.0 + TOLERANCE),
        verdict: judge_within(&effect, 1.0 - TOLERANCE, 1.0 + TOLERANCE),
    }])
}

fn generator_frozen(setup: &Setup<'_>) -> Result<Vec<Figure>> {
    let ours = &setup.ours;
    let [frozen, free] = setup.pairs(PER_SECOND, [(ours, Frozen::Generator), (ours, Frozen::None)])?;
    let reports: Vec<String> = frozen.iter().filter_map(|run| freeze_in(&run.result)).collect();
    let is_reported = reports.len() == frozen.len();
    let (frozen_p99s, free_p99s) = (p99s_ms(&frozen, service)?, p99s_ms(&free, service)?);
    let differences: Vec<f64> =
        frozen_p99s.iter().zip(&free_p99s).map(|(frozen, free)| frozen - free).collect();
    let effect = paired::effect(&differences, CONFIDENCE).context("too few pairs for an interval")?;
    Ok(vec![
        Figure {
            what: format!("generator frozen for {} s of {SECONDS} s: {ours} reports it", FREEZE.as_secs()),
            value: format!(
                "in {} of {} runs{}",
                reports.len(),
                frozen.len(),
                reports.last().map_or_else(String::new, |report| format!(": {report}"))
            ),
            limit: "all".to_owned(),
            verdict: if is_reported { Verdict::Met } else { Verdict::Missed },
        },
        Figure {
            what: "generator frozen: increase of the reported p99 of the service time".to_owned(),
            value: format!(
                "{:+.2} ms [{:+.2}, {:+.2}], from {:.2} ms; response time {:.2} ms; excluded as generator-bound: {}, \
                 without a freeze {}",
                effect.estimate,
                effect.low,
                effect.high,
                median(&free_p99s),
                median(&p99s_ms(&frozen, response)?),
                bound_seconds(&frozen),
                bound_seconds(&free)
            ),
            limit: format!("< {SERVICE_LIMIT_MS} ms"),
            verdict: judge(&effect, SERVICE_LIMIT_MS),
        },
    ])
}

/// Returns the reports of a peer that was frozen.
fn peer_frozen(setup: &Setup<'_>, peer: Generator) -> Result<Vec<Figure>> {
    let Some(tool) = Tool::find(peer)? else {
        let what = format!("generator frozen: {}", peer.name());
        return Ok(vec![Figure::compared(what, NOT_INSTALLED)]);
    };
    let count = setup.bench.pairs.unwrap_or(PEER_RUNS).min(PEER_RUNS);
    let runs = (0..count).map(|_| setup.run(&tool, Frozen::Generator)).collect::<Result<Vec<_>>>()?;
    let reports: Vec<String> = runs.iter().map(latency_report).collect();
    let warnings: Vec<&str> = runs.iter().filter_map(|run| run.warning.as_deref()).collect();
    let warning = match warnings.first() {
        None => "no warning".to_owned(),
        Some(text) => format!("a warning in {} of {count} runs: {text}", warnings.len()),
    };
    Ok(vec![Figure::compared(
        format!("generator frozen: report of {tool}"),
        format!("{}; {warning}", reports.join("; ")),
    )])
}

/// Returns the response time that a peer reports, or the service time if it only measures that.
fn latency_report(run: &TrialRun) -> String {
    let step = run.request();
    let times = step.and_then(|step| step.response.as_ref().or(step.service.as_ref()));
    let of = format!("of {} responses", thousands(run.result.done() as f64));
    let percentile = times.and_then(|times| times.percentile_ns("p99"));
    match (percentile, times.and_then(|times| times.max_ns)) {
        (Some(p99), _) => format!("p99 {:.1} ms {of}", p99 as f64 / 1e6),
        (None, Some(max)) => format!("no p99, maximum {:.1} ms {of}", max as f64 / 1e6),
        (None, None) => format!("no times {of}"),
    }
}

fn response(step: &LoadStep) -> Option<&Latency> {
    step.response.as_ref()
}

fn service(step: &LoadStep) -> Option<&Latency> {
    step.service.as_ref()
}

/// Returns the p99 of each run, in milliseconds.
fn p99s_ms(runs: &[TrialRun], times: fn(&LoadStep) -> Option<&Latency>) -> Result<Vec<f64>> {
    let p99 = |run: &TrialRun| times(run.request()?)?.percentile_ns("p99");
    runs.iter().map(|run| Ok(p99(run).context("a run reported no p99")? as f64 / 1e6)).collect()
}

/// Returns the reason with which a result reports the freeze. A shorter stall has another cause.
fn freeze_in(result: &LoadResult) -> Option<String> {
    result.seconds.iter().find_map(|second| {
        let reason = second.bound.as_deref()?;
        let (_, length) = reason.split_once("did not run for ")?;
        let length_ms: f64 = length.strip_suffix(" ms")?.parse().ok()?;
        let is_freeze = length_ms >= 0.9 * FREEZE.as_secs_f64() * 1e3;
        is_freeze.then(|| format!("“second {}: {reason}”", second.second))
    })
}

/// Returns the seconds in which the generator was the bottleneck, out of all seconds: `13 of 60 s`.
fn bound_seconds(runs: &[TrialRun]) -> String {
    let sum = |of: fn(&LoadResult) -> u32| runs.iter().map(|run| of(&run.result)).sum::<u32>();
    let (bound, judged) =
        (sum(|result| result.generator.bound_seconds), sum(|result| result.generator.judged_seconds));
    format!("{bound} of {judged} s")
}

/// Returns a remark if seconds were excluded because the generator was the bottleneck.
fn excluded(runs: &[TrialRun]) -> String {
    let is_any = runs.iter().any(|run| run.result.generator.bound_seconds > 0);
    if is_any { format!("; excluded as generator-bound: {}", bound_seconds(runs)) } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stall_as_long_as_the_freeze_is_attributed_to_it() {
        let result = |reason: &str| -> LoadResult {
            let second = serde_json::json!({"second": 3, "asked": 1000, "done": 1000, "errors": 0, "connected": 50,
                "waiting": 0, "p50_ns": 1, "p99_ns": 2, "cores": 0.1, "bound": reason});
            serde_json::from_value(serde_json::json!({"version": 1, "tool": "beamtune", "targets": [], "length_s": 8.0,
                "asked": {"model": "unknown"}, "is_interrupted": false, "unfinished": 0, "steps": [], "remarks": [],
                "generator": {"processes": 1, "threads": 1, "bound_seconds": 1, "judged_seconds": 8},
                "seconds": [second]}))
            .expect("a result")
        };
        let report = freeze_in(&result("a thread of the generator did not run for 1001 ms"));
        assert_eq!(report.as_deref(), Some("“second 3: a thread of the generator did not run for 1001 ms”"));
        assert_eq!(freeze_in(&result("a thread of the generator did not run for 90 ms")), None);
        assert_eq!(freeze_in(&result("the generator was late by 1001.0 ms (p99; limit 1.0 ms)")), None);
    }
}
