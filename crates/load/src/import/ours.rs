//! Results that `beamtune load` wrote (docs/load-result.schema.json), also those that were imported: shown again, or merged.

use beamtune_model::load::{Asked, LOAD_RESULT_VERSION, Latency, LoadResult};
use serde::Deserialize;

use super::ImportError;
use super::document::Json;
use super::told::MOST;
use crate::times::Times;

/// The most steps and seconds of a result; what `beamtune load` writes has far fewer steps, and 30 days of seconds.
const MOST_ENTRIES: usize = 3_000_000;
/// No count is larger, so that sums of all stay within 64 bits.
const MOST_COUNT: u64 = MOST as u64;
/// Thirty thousand years: seconds are counted and told without a look at their size.
const MOST_SECONDS: f64 = 1e12;

/// Reads it. What the result says of the generator stays as it is; nothing is added to its remarks.
pub(super) fn read(json: &Json) -> Result<LoadResult, ImportError> {
    let version = json.value.get("version").and_then(serde_json::Value::as_u64);
    if version.is_some_and(|version| version > u64::from(LOAD_RESULT_VERSION)) {
        return Err(json.unsupported("a result of a newer beamtune", "read it with that one"));
    }
    let result = LoadResult::deserialize(&json.value)
        .map_err(|error| json.malformed("", &format!("a result of beamtune ({error})")))?;
    if result.steps.len().saturating_add(result.seconds.len()) > MOST_ENTRIES {
        return Err(json.too_large(&format!("{MOST_ENTRIES} steps and seconds")));
    }
    match wrong(&result) {
        Some((path, expected)) => Err(json.malformed(&path, expected)),
        None => Ok(result),
    }
}

/// What cannot be in a result: where, and what ought to stand there.
fn wrong(result: &LoadResult) -> Option<(String, &'static str)> {
    let counted = |path: &str, count: u64| (count > MOST_COUNT).then(|| (path.to_owned(), "a count"));
    let timed = |path: &str, seconds: Option<f64>| {
        let is_wrong = seconds.is_some_and(|seconds| !(0.0..=MOST_SECONDS).contains(&seconds));
        is_wrong.then(|| (path.to_owned(), "a number of seconds"))
    };
    let asked = match result.asked {
        Asked::Open { per_second, devices } => {
            counted("/asked/devices", devices).or_else(|| timed("/asked/per_second", Some(per_second)))
        }
        Asked::Closed { devices } => counted("/asked/devices", devices),
        Asked::Unknown => None,
    };
    let generator = &result.generator;
    asked
        .or_else(|| timed("/began_unix_s", result.began_unix_s))
        .or_else(|| timed("/length_s", Some(result.length_s)))
        .or_else(|| timed("/generator/cpu_s", generator.cpu_s))
        .or_else(|| {
            let own_lag = generator.own_lag.as_ref()?;
            wrong_times(own_lag).map(|expected| ("/generator/own_lag".to_owned(), expected))
        })
        .or_else(|| counted("/unfinished", result.unfinished))
        .or_else(|| {
            let traffic = result.traffic?;
            counted("/traffic/messages", traffic.messages)
                .or_else(|| counted("/traffic/reconnects", traffic.reconnects))
        })
        .or_else(|| result.steps.iter().enumerate().find_map(|(index, step)| wrong_step(index, step)))
        .or_else(|| {
            result.seconds.iter().enumerate().find_map(|(index, second)| {
                let counts = [Some(second.done), Some(second.errors), second.asked];
                let others = [second.connected, second.waiting];
                let is_wrong = counts.into_iter().chain(others).flatten().any(|count| count > MOST_COUNT)
                    || second.second.unsigned_abs() > MOST_COUNT
                    || second.cores.is_some_and(|cores| !(0.0..=MOST).contains(&cores));
                is_wrong.then(|| (format!("/seconds/{index}"), "counts of a second"))
            })
        })
}

fn wrong_step(index: usize, step: &beamtune_model::load::LoadStep) -> Option<(String, &'static str)> {
    let is_kind = |kind: &str| {
        kind.starts_with(|first: char| first.is_ascii_lowercase())
            && kind.chars().all(|char| char.is_ascii_lowercase() || char == '_')
    };
    if step.done > MOST_COUNT || step.received_bytes.is_some_and(|bytes| bytes > MOST_COUNT * 1000) {
        return Some((format!("/steps/{index}"), "counts of a step"));
    }
    if step.errors.iter().any(|(kind, errors)| !is_kind(kind) || errors.count > MOST_COUNT) {
        return Some((format!("/steps/{index}/errors"), "counts of errors by kind"));
    }
    let kinds = [
        ("lag", &step.lag),
        ("service", &step.service),
        ("response", &step.response),
        ("first_byte", &step.first_byte),
    ];
    kinds.into_iter().find_map(|(name, latency)| {
        let expected = wrong_times(latency.as_ref()?)?;
        Some((format!("/steps/{index}/{name}"), expected))
    })
}

fn wrong_times(latency: &Latency) -> Option<&'static str> {
    if latency.count > MOST_COUNT {
        return Some("a count of times");
    }
    let histogram = latency.histogram.as_deref()?;
    Times::from_base64(histogram).is_err().then_some("a histogram as beamtune writes it")
}
