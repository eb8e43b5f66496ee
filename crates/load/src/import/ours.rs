//! Reads results that `beamtune load` wrote (docs/load-result.schema.json), including imported ones, to show them again or to merge them.

use beamtune_model::load::{LOAD_RESULT_VERSION, Latency, LoadModel, LoadResult};
use serde::Deserialize;

use super::ImportError;
use super::convert;
use super::document::Json;
use crate::times::Times;

/// Maximum number of steps and seconds of a result. A load has far fewer steps, and at most 30 days of seconds.
const MAX_ENTRIES: usize = 3_000_000;
/// Maximum of any count, so that sums stay within 64 bits.
const MAX_COUNT: u64 = convert::MAX_COUNT as u64;
/// Maximum of a time in seconds: thirty thousand years. Calculations with larger times could overflow.
const MAX_SECONDS: f64 = 1e12;

/// Imports a result unchanged, without additional remarks.
pub(super) fn read(json: &Json) -> Result<LoadResult, ImportError> {
    let version = json.value.get("version").and_then(serde_json::Value::as_u64);
    if version.is_some_and(|version| version > u64::from(LOAD_RESULT_VERSION)) {
        return Err(json.unsupported("a result of a newer beamtune", "upgrade"));
    }
    let result = LoadResult::deserialize(&json.value)
        .map_err(|error| json.malformed("", &format!("a result of beamtune ({error})")))?;
    if result.steps.len().saturating_add(result.seconds.len()) > MAX_ENTRIES {
        return Err(json.too_large(&format!("{MAX_ENTRIES} steps and seconds")));
    }
    match invalid_value(&result) {
        Some((path, expected)) => Err(json.malformed(&path, expected)),
        None => Ok(result),
    }
}

/// Returns the first invalid value of a result: its path, and what was expected.
fn invalid_value(result: &LoadResult) -> Option<(String, &'static str)> {
    let counted = |path: &str, count: u64| (count > MAX_COUNT).then(|| (path.to_owned(), "a count"));
    let timed = |path: &str, seconds: Option<f64>| {
        let is_wrong = seconds.is_some_and(|seconds| !(0.0..=MAX_SECONDS).contains(&seconds));
        is_wrong.then(|| (path.to_owned(), "a number of seconds"))
    };
    let asked = match result.model {
        LoadModel::Open { per_second, devices } => {
            counted("/asked/devices", devices).or_else(|| timed("/asked/per_second", Some(per_second)))
        }
        LoadModel::Closed { devices } => counted("/asked/devices", devices),
        LoadModel::Unknown => None,
    };
    let generator = &result.generator;
    asked
        .or_else(|| timed("/began_unix_s", result.began_unix_s))
        .or_else(|| timed("/length_s", Some(result.length_s)))
        .or_else(|| timed("/generator/cpu_s", generator.cpu_s))
        .or_else(|| {
            let own_lag = generator.own_lag.as_ref()?;
            invalid_times(own_lag).map(|expected| ("/generator/own_lag".to_owned(), expected))
        })
        .or_else(|| counted("/unfinished", result.unfinished))
        .or_else(|| {
            let traffic = result.traffic?;
            counted("/traffic/messages", traffic.messages)
                .or_else(|| counted("/traffic/reconnects", traffic.reconnects))
        })
        .or_else(|| result.steps.iter().enumerate().find_map(|(index, step)| invalid_step(index, step)))
        .or_else(|| {
            result.seconds.iter().enumerate().find_map(|(index, second)| {
                let counts = [Some(second.done), Some(second.errors), second.due];
                let others = [second.connected, second.waiting];
                let is_wrong = counts.into_iter().chain(others).flatten().any(|count| count > MAX_COUNT)
                    || second.second.unsigned_abs() > MAX_COUNT
                    || second.cores.is_some_and(|cores| !(0.0..=convert::MAX_COUNT).contains(&cores));
                is_wrong.then(|| (format!("/seconds/{index}"), "counts of a second"))
            })
        })
}

fn invalid_step(index: usize, step: &beamtune_model::load::LoadStep) -> Option<(String, &'static str)> {
    let is_kind = |kind: &str| {
        kind.starts_with(|first: char| first.is_ascii_lowercase())
            && kind.chars().all(|char| char.is_ascii_lowercase() || char == '_')
    };
    if step.done > MAX_COUNT || step.received_bytes.is_some_and(|bytes| bytes > MAX_COUNT * 1000) {
        return Some((format!("/steps/{index}"), "counts of a step"));
    }
    if step.errors.iter().any(|(kind, errors)| !is_kind(kind) || errors.count > MAX_COUNT) {
        return Some((format!("/steps/{index}/errors"), "counts of errors by kind"));
    }
    let kinds = [
        ("lag", &step.lag),
        ("service", &step.service),
        ("response", &step.response),
        ("first_byte", &step.first_byte),
    ];
    kinds.into_iter().find_map(|(name, latency)| {
        let expected = invalid_times(latency.as_ref()?)?;
        Some((format!("/steps/{index}/{name}"), expected))
    })
}

fn invalid_times(latency: &Latency) -> Option<&'static str> {
    if latency.count > MAX_COUNT {
        return Some("a count of times");
    }
    let histogram = latency.histogram.as_deref()?;
    Times::from_base64(histogram).is_err().then_some("a histogram as beamtune writes it")
}
