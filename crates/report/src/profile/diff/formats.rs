//! The comparison for programs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::Page;
use super::super::formats::collapsed_stack;
use super::{CONFIDENCE, Change, Comparison, Times, Verdict};

/// Version of [`json_diff`]; raised if the meaning of a key changes.
const JSON_VERSION: u32 = 1;
/// What the counts of [`collapsed_diff`] add up to on each side: counts are millionths of the sampled CPU time.
const COLLAPSED_TOTAL: f64 = 1e6;

/// Beamtune's own JSON. Shares are from 0 to 1, also their changes; CPU time is in cores, times are in nanoseconds.
pub fn json_diff(comparison: &Comparison<'_>) -> String {
    let side = |page: &Page<'_>| {
        let profile = page.profile;
        json!({
            "node": page.node, "rate_hz": page.profile.rate_hz, "length": profile.length, "cpu": profile.total(),
            "samples": profile.sample_count(),
        })
    };
    let functions = |changes: &[Change]| -> Vec<Value> { changes.iter().map(change).collect() };
    let mut path = Vec::new();
    let paths: Vec<Value> = comparison
        .paths
        .iter()
        .map(|found| {
            path.truncate(found.depth);
            path.push(found.change.name.as_str());
            let mut row = change(&found.change);
            row["path"] = json!(path);
            row
        })
        .collect();
    let [before, after] = &comparison.pages;
    let document = json!({
        "version": JSON_VERSION,
        "before": side(before),
        "after": side(after),
        "confidence": CONFIDENCE,
        "dispersion": comparison.dispersion,
        "states": functions(&comparison.states),
        "own": functions(&comparison.own),
        "total": functions(&comparison.total),
        "call_paths": paths,
    });
    format!("{document:#}\n")
}

fn change(change: &Change) -> Value {
    let [before, after] = change.shares;
    let [cores_before, cores_after] = change.cores;
    let difference = &change.difference;
    json!({
        "name": change.name,
        "share": {"before": before, "after": after},
        "cores": {"before": cores_before, "after": cores_after},
        "change": {"estimate": difference.estimate, "low": difference.low, "high": difference.high},
        "verdict": match change.verdict() {
            Verdict::More => "more",
            Verdict::Less => "less",
            Verdict::NotShown => "no_difference_shown",
        },
    })
}

/// One line for each stack in the format of difffolded.pl, which flamegraph.pl and inferno read: the frames, outermost first, separated by
/// semicolons, and the millionths of the sampled CPU time before and after.
pub fn collapsed_diff(comparison: &Comparison<'_>) -> String {
    let mut stacks = BTreeMap::<String, Times>::new();
    for (index, page) in comparison.pages.iter().enumerate() {
        for sample in &page.profile.samples {
            stacks.entry(collapsed_stack(page.profile, sample)).or_default()[index] += sample.weight;
        }
    }
    let totals = comparison.pages.map(|page| page.profile.total().max(1) as f64);
    let count = |times: &Times, index: usize| (COLLAPSED_TOTAL * times[index] as f64 / totals[index]).round();
    stacks.iter().map(|(stack, times)| format!("{stack} {} {}\n", count(times, 0), count(times, 1))).collect()
}

#[cfg(test)]
mod tests {
    use beamtune_model::{CpuState, Profile};

    use super::super::super::tests::profile;
    use super::*;

    fn pair() -> [Profile; 2] {
        let before = profile(&[("a:b/1;c:d/2", 30, CpuState::Process), ("a:b/1", 10, CpuState::Process)]);
        let after =
            profile(&[("a:b/1;c:d/2", 10, CpuState::Process), ("a:b/1;k:read", 10, CpuState::Process)]);
        [before, after]
    }

    #[test]
    fn collapsed_stacks_have_both_counts_of_one_total() {
        let profiles = pair();
        let [before, after] = [0, 1].map(|index| Page { node: "a", profile: &profiles[index] });
        let lines = "scheduler;a:b/1 250000 0\nscheduler;a:b/1;c:d/2 750000 500000\nscheduler;a:b/1;read_[k] 0 500000\n";
        assert_eq!(collapsed_diff(&Comparison::new(before, after)), lines);
        let mirrored = collapsed_diff(&Comparison::new(after, before));
        assert!(mirrored.starts_with("scheduler;a:b/1 0 250000\n"), "{mirrored}");
    }

    #[test]
    fn json_has_changes_with_intervals_and_full_paths() {
        let profiles = pair();
        let [before, after] = [0, 1].map(|index| Page { node: "a", profile: &profiles[index] });
        let document: Value = serde_json::from_str(&json_diff(&Comparison::new(before, after))).unwrap();
        assert_eq!(
            (&document["before"]["samples"], &document["after"]["cpu"]),
            (&json!(40), &json!(200_000_000))
        );
        let own = document["own"].as_array().unwrap();
        let called = own.iter().find(|row| row["name"] == "c:d/2").unwrap();
        assert_eq!(called["share"], json!({"before": 0.75, "after": 0.5}));
        assert_eq!(called["change"]["estimate"], -0.25);
        assert_eq!(called["verdict"], "no_difference_shown");
        let paths: Vec<&Value> =
            document["call_paths"].as_array().unwrap().iter().map(|row| &row["path"]).collect();
        assert_eq!(paths[..2], [&json!(["a:b/1"]), &json!(["a:b/1", "c:d/2"])]);
    }
}
