//! Merges the results of several generators that ran at the same time against the same target.
//!
//! Counts are added, and times too if all results have histograms. Percentiles cannot be merged.

use std::collections::BTreeMap;

use beamtune_model::load::{Generator, Latency, LoadModel, LoadResult, LoadSecond, LoadStep, Traffic};

use super::ImportError;
use super::convert::add_errors;
use crate::collect;
use crate::times::Times;

/// Maximum number of results.
const MAX_RESULTS: usize = 1000;

/// Merges results of one tool, each with its file name for errors.
///
/// # Errors
/// [`ImportError::Merge`] if there are no results, if several tools wrote them, or if times have no histogram.
pub fn merge(results: Vec<(String, LoadResult)>) -> Result<LoadResult, ImportError> {
    let refuse = |reason: String| ImportError::Merge { reason };
    if results.len() > MAX_RESULTS {
        return Err(refuse(format!("{} results are more than the maximum of {MAX_RESULTS}", results.len())));
    }
    let mut rest = results.into_iter();
    let Some((first_name, first)) = rest.next() else { return Err(refuse("no results".to_owned())) };
    let rest: Vec<_> = rest.collect();
    if rest.is_empty() {
        return Ok(first);
    }
    for (name, result) in &rest {
        if tool(result) != tool(&first) {
            let (one, other) = (tool(&first), tool(result));
            return Err(refuse(format!(
                "{first_name} was written by {one}, {name} by {other}; these tools measure different times"
            )));
        }
    }
    let all: Vec<(String, LoadResult)> = std::iter::once((first_name, first)).chain(rest).collect();
    for (name, result) in &all {
        if let Some((step, kind)) = result.steps.iter().find_map(without_histogram) {
            return Err(refuse(format!(
                "{name} has no histogram of the {kind} of \"{step}\", and percentiles cannot be merged: {}",
                with_histogram(tool(result))
            )));
        }
    }
    Ok(merged(all.into_iter().map(|(_, result)| result).collect()))
}

/// Returns the tool of a result, without its version.
fn tool(result: &LoadResult) -> &str {
    result.tool.split(' ').next().unwrap_or_default()
}

/// Explains how to get a result with histograms.
fn with_histogram(tool: &str) -> &'static str {
    match tool {
        "k6" => "use the files of --out json or --out csv",
        "locust" => "use the files of --json-file",
        "tsung" => "use the files tsung.dump of dumptraffic=\"protocol\"",
        "gatling" => "use the files simulation.log, if they are text",
        "h2load" => "use the files of --log-file",
        "beamtune" => "use results of loads that beamtune itself has driven",
        _ => "this tool writes no histograms",
    }
}

/// Returns the first times of a step that have no readable histogram: step and kind.
fn without_histogram(step: &LoadStep) -> Option<(&str, &'static str)> {
    let kinds = [
        ("lag", &step.lag),
        ("service time", &step.service),
        ("response time", &step.response),
        ("time to the first byte", &step.first_byte),
    ];
    kinds.into_iter().find_map(|(kind, latency)| {
        let latency = latency.as_ref()?;
        let is_readable =
            latency.histogram.as_ref().is_some_and(|histogram| Times::from_base64(histogram).is_ok());
        (!is_readable).then_some((step.name.as_str(), kind))
    })
}

/// Merges results whose times all have histograms.
fn merged(results: Vec<LoadResult>) -> LoadResult {
    let mut steps: Vec<(LoadStep, Vec<LoadStep>)> = Vec::new();
    let began: Option<Vec<f64>> = results.iter().map(|result| result.began_unix_s).collect();
    let begin_s = began.map(|began| began.into_iter().fold(f64::INFINITY, f64::min));
    let lengths = results.iter().map(|result| match (begin_s, result.began_unix_s) {
        (Some(begin_s), Some(began_s)) => began_s - begin_s + result.length_s,
        _ => result.length_s,
    });
    let length_s = lengths.fold(0.0, f64::max);
    let mut out = LoadResult {
        version: results[0].version,
        tool: results[0].tool.clone(),
        targets: Vec::new(),
        began_unix_s: begin_s,
        began_monotonic_ns: None,
        length_s,
        model: asked(&results),
        seed: None,
        is_interrupted: results.iter().any(|result| result.is_interrupted),
        generator: generator(&results),
        unfinished: results.iter().fold(0, |sum, result| sum.saturating_add(result.unfinished)),
        traffic: traffic(&results),
        steps: Vec::new(),
        seconds: Vec::new(),
        remarks: Vec::new(),
    };
    match begin_s {
        Some(begin_s) => out.seconds = seconds(&results, begin_s),
        None => out.remarks.push(
            "The start times of the results are unknown: values per second are omitted, and the results are assumed to have started together."
                .to_owned(),
        ),
    }
    let parts = results.len();
    for result in results {
        for target in result.targets {
            if !out.targets.contains(&target) {
                out.targets.push(target);
            }
        }
        for remark in result.remarks {
            if !out.remarks.contains(&remark) {
                out.remarks.push(remark);
            }
        }
        for step in result.steps {
            match steps
                .iter_mut()
                .find(|(first, _)| first.name == step.name && first.is_connect == step.is_connect)
            {
                Some((_, others)) => others.push(step),
                None => steps.push((step, Vec::new())),
            }
        }
    }
    out.steps = steps.into_iter().map(|(first, others)| merged_step(first, &others)).collect();
    out.remarks.push(format!("Merged from {parts} results; the times are from their histograms."));
    out
}

fn asked(results: &[LoadResult]) -> LoadModel {
    let add = |sum: Option<LoadModel>, result: &LoadResult| match (sum, result.model) {
        (None, asked) => Some(asked),
        (Some(LoadModel::Closed { devices: sum }), LoadModel::Closed { devices }) => {
            Some(LoadModel::Closed { devices: sum.saturating_add(devices) })
        }
        (
            Some(LoadModel::Open { per_second: rates, devices: sum }),
            LoadModel::Open { per_second, devices },
        ) => Some(LoadModel::Open { per_second: rates + per_second, devices: sum.saturating_add(devices) }),
        _ => Some(LoadModel::Unknown),
    };
    results.iter().fold(None, add).unwrap_or(LoadModel::Unknown)
}

fn generator(results: &[LoadResult]) -> Generator {
    let all = || results.iter().map(|result| &result.generator);
    let sum = |count: fn(&Generator) -> u32| all().fold(0_u32, |sum, one| sum.saturating_add(count(one)));
    let lags: Vec<&Latency> = all().filter_map(|one| one.own_lag.as_ref()).collect();
    Generator {
        // 0 means unknown; the sum is unknown if any part is unknown.
        processes: if all().all(|one| one.processes > 0) { sum(|one| one.processes) } else { 0 },
        threads: if all().all(|one| one.threads > 0) { sum(|one| one.threads) } else { 0 },
        cpu_s: all().map(|one| one.cpu_s).sum(),
        own_lag: if lags.len() == results.len() { merged_latency(&lags) } else { None },
        bound_seconds: sum(|one| one.bound_seconds),
        judged_seconds: sum(|one| one.judged_seconds),
    }
}

/// Adds up the traffic; `None` unless all results have traffic.
fn traffic(results: &[LoadResult]) -> Option<Traffic> {
    results.iter().try_fold(Traffic::default(), |sum, result| {
        let one = result.traffic?;
        Some(Traffic {
            sent_bytes: sum.sent_bytes.saturating_add(one.sent_bytes),
            received_bytes: sum.received_bytes.saturating_add(one.received_bytes),
            messages: sum.messages.saturating_add(one.messages),
            reconnects: sum.reconnects.saturating_add(one.reconnects),
        })
    })
}

fn seconds(results: &[LoadResult], begin_s: f64) -> Vec<LoadSecond> {
    let mut seconds: BTreeMap<i64, LoadSecond> = BTreeMap::new();
    for result in results {
        let offset = (result.began_unix_s.unwrap_or(begin_s).floor() - begin_s.floor()) as i64;
        for one in &result.seconds {
            let second = one.second.saturating_add(offset);
            let Some(sum) = seconds.get_mut(&second) else {
                seconds.insert(second, LoadSecond { second, ..one.clone() });
                continue;
            };
            let both = |one: Option<u64>, other: Option<u64>| Some(one?.saturating_add(other?));
            sum.due = both(sum.due, one.due);
            sum.done = sum.done.saturating_add(one.done);
            sum.errors = sum.errors.saturating_add(one.errors);
            sum.connected = both(sum.connected, one.connected);
            sum.waiting = both(sum.waiting, one.waiting);
            // Seconds have no histograms, so their percentiles cannot be merged.
            (sum.p50_ns, sum.p99_ns) = (None, None);
            sum.cores = sum.cores.zip(one.cores).map(|(one, other)| one + other);
            sum.bound = sum.bound.take().or_else(|| one.bound.clone());
        }
    }
    seconds.into_values().collect()
}

fn merged_step(mut step: LoadStep, others: &[LoadStep]) -> LoadStep {
    let latency = |of: fn(&LoadStep) -> Option<&Latency>| {
        let all: Vec<&Latency> = std::iter::once(&step).chain(others).filter_map(of).collect();
        merged_latency(&all)
    };
    let (lag, service) = (latency(|step| step.lag.as_ref()), latency(|step| step.service.as_ref()));
    let response = latency(|step| step.response.as_ref());
    let first_byte = latency(|step| step.first_byte.as_ref());
    (step.lag, step.service, step.response, step.first_byte) = (lag, service, response, first_byte);
    for other in others {
        step.done = step.done.saturating_add(other.done);
        step.received_bytes =
            step.received_bytes.zip(other.received_bytes).map(|(one, other)| one.saturating_add(other));
        for (kind, errors) in &other.errors {
            add_errors(&mut step.errors, kind, errors.count, &errors.first);
        }
    }
    step
}

fn merged_latency(all: &[&Latency]) -> Option<Latency> {
    let mut times = Times::default();
    for latency in all {
        // Unreadable histograms have been refused already.
        if let Ok(part) = Times::from_base64(latency.histogram.as_deref()?) {
            times.add(&part);
        }
    }
    let mut latency = collect::latency(&times)?;
    // Histograms round values; the exact extremes are kept.
    let extremes =
        |of: fn(&Latency) -> Option<u64>| -> Option<Vec<u64>> { all.iter().copied().map(of).collect() };
    if let Some(min) = extremes(|latency| latency.min_ns) {
        latency.min_ns = min.into_iter().min();
    }
    if let Some(max) = extremes(|latency| latency.max_ns) {
        latency.max_ns = max.into_iter().max();
    }
    Some(latency)
}
