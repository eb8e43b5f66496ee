//! A flame graph as one page that needs no network: zoom, search, and a choice of threads, states and processes. The page of a comparison
//! has both profiles: their samples have two times, and boxes are coloured by the change.

use std::collections::{BTreeMap, HashMap};

use beamtune_model::{CpuState, Frame, FrameKind, Nanos, Profile};
use serde_json::{Value, json};

use super::diff::{Comparison, MIN_SHARE};
use super::{Page, missing, state_name, subtitle};
use crate::text;

/// The page; `__DATA__` is replaced.
const TEMPLATE: &str = include_str!("flame.html");
/// Process kinds to choose from; those with most CPU time are kept.
const MAX_PROCESSES: usize = 100;

/// The page of a profile.
pub fn html(page: &Page<'_>) -> String {
    let mut data = merged([page.profile]);
    data["title"] = json!(format!("{}: CPU profile", text::clean(page.node)));
    data["subtitle"] = json!(subtitle(page));
    data["remarks"] = json!(missing(page.profile));
    fill(&data)
}

/// The page of a comparison.
pub fn html_diff(comparison: &Comparison<'_>) -> String {
    let pages = comparison.pages;
    let mut data = merged(pages.map(|page| page.profile));
    let labels = ["before", "after"];
    let labelled = |text: &dyn Fn(&Page<'_>) -> String| {
        let labelled: Vec<String> =
            labels.iter().zip(&pages).map(|(label, page)| format!("{label}: {}", text(page))).collect();
        labelled.join(" · ")
    };
    let remarks = labels.iter().zip(&pages).flat_map(|(label, page)| {
        missing(page.profile).into_iter().map(move |remark| format!("{label}: {remark}"))
    });
    let [before, after] = pages.map(|page| text::clean(page.node));
    data["title"] = match before == after {
        true => json!(format!("{after}: CPU profiles compared")),
        false => json!(format!("{before} and {after}: CPU profiles compared")),
    };
    data["subtitle"] = json!(labelled(&subtitle));
    data["remarks"] = json!(remarks.collect::<Vec<_>>());
    data["diff"] = json!({
        "lengths": pages.map(|page| page.profile.length),
        "cpu": pages.map(|page| page.profile.total()),
        "independentSamples": pages.map(|page| f64::from(page.profile.sample_count()) / comparison.dispersion),
        "z": comparison.z_of_paths,
        "minShare": MIN_SHARE,
    });
    fill(&data)
}

/// The page with its data. No name can end the script element.
fn fill(data: &Value) -> String {
    TEMPLATE.replace("__DATA__", &data.to_string().replace('<', "\\u003c"))
}

/// Frames, stacks and samples of profiles, in which equal frames have one index. A sample is its stack, thread kind, state and process, and its
/// time in each of the profiles.
fn merged<const PROFILES: usize>(profiles: [&Profile; PROFILES]) -> Value {
    let mut kinds: Vec<&str> =
        profiles.iter().flat_map(|profile| &profile.threads).map(|thread| thread.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let processes = largest_processes(&profiles);
    let mut frames = Vec::new();
    let mut known = HashMap::<&Frame, u32>::new();
    let mut stacks = Vec::new();
    // Samples of all seconds with the same stack, thread kind, state and process are one.
    let mut samples = BTreeMap::<(usize, usize, usize, i64), [Nanos; PROFILES]>::new();
    for (index, profile) in profiles.into_iter().enumerate() {
        let indices: Vec<u32> = profile
            .frames
            .iter()
            .map(|frame| {
                let next = known.len() as u32;
                *known.entry(frame).or_insert_with(|| {
                    frames.push(frame_row(frame));
                    next
                })
            })
            .collect();
        let first_stack = stacks.len();
        for stack in &profile.stacks {
            let own = without_recursion(profile, &stack.frames).into_iter();
            stacks.push(own.filter_map(|frame| indices.get(frame as usize).copied()).collect::<Vec<_>>());
        }
        for sample in &profile.samples {
            let kind = profile.thread(sample).map_or("other", |thread| thread.kind.as_str());
            let thread = kinds.iter().position(|known| *known == kind).unwrap_or_default();
            let state = CpuState::ALL.iter().position(|state| *state == sample.state).unwrap_or_default();
            let name = sample.process.and_then(|number| profile.processes.get(&number));
            let process = name.and_then(|name| processes.iter().position(|known| known == name));
            let process = process.map_or(-1, |index| index as i64);
            let key = (first_stack + sample.stack as usize, thread, state, process);
            samples.entry(key).or_insert([0; PROFILES])[index] += sample.weight;
        }
    }
    let samples: Vec<Value> = samples
        .into_iter()
        .map(|((stack, thread, state, process), times)| {
            let row = [json!(stack), json!(thread), json!(state), json!(process)];
            row.into_iter().chain(times.map(Value::from)).collect()
        })
        .collect();
    json!({
        "frames": frames,
        "stacks": stacks,
        "threads": kinds.iter().map(|kind| text::clean(kind).replace('_', " ")).collect::<Vec<_>>(),
        "states": CpuState::ALL.iter().map(|state| state_name(*state)).collect::<Vec<_>>(),
        "processes": processes.iter().map(|name| text::sentence(name)).collect::<Vec<_>>(),
        "samples": samples,
    })
}

fn frame_row(frame: &Frame) -> Value {
    let name = match frame.kind {
        FrameKind::Erlang | FrameKind::Bif => text::exact_sentence(&frame.name),
        _ => text::clean(&frame.name),
    };
    json!([name, FrameKind::ALL.iter().position(|kind| *kind == frame.kind), frame.line])
}

/// The names of processes with most CPU time.
fn largest_processes<'p>(profiles: &[&'p Profile]) -> Vec<&'p str> {
    let mut times = BTreeMap::<&str, Nanos>::new();
    for profile in profiles {
        for sample in &profile.samples {
            if let Some(name) = sample.process.and_then(|number| profile.processes.get(&number)) {
                let time = times.entry(name).or_default();
                // The sum of one profile has been checked, the sum of two has not.
                *time = time.saturating_add(sample.weight);
            }
        }
    }
    let mut processes: Vec<_> = times.into_iter().collect();
    processes.sort_by_key(|(_, time)| -time);
    processes.truncate(MAX_PROCESSES);
    processes.into_iter().map(|(name, _)| name).collect()
}

/// Frames without those that repeat the function before them: deep recursion is one box.
fn without_recursion(profile: &Profile, frames: &[u32]) -> Vec<u32> {
    let function =
        |frame: u32| profile.frames.get(frame as usize).map(|frame| (frame.kind, frame.name.as_str()));
    let mut out: Vec<u32> = Vec::new();
    for frame in frames {
        match out.last_mut() {
            Some(last) if function(*last) == function(*frame) => *last = *frame,
            _ => out.push(*frame),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::profile;
    use super::*;

    #[test]
    fn recursion_is_one_box() {
        let profile = profile(&[("a:b/1;a:b/1;c:d/2;a:b/1", 1, CpuState::Process)]);
        assert_eq!(without_recursion(&profile, &profile.stacks[0].frames), [0, 1, 0]);
    }

    #[test]
    fn names_cannot_leave_their_element() {
        let hostile = "x:'</script><img src=a onerror=alert(1)>'/0";
        let profile = profile(&[(hostile, 3, CpuState::Process)]);
        let text = html(&Page { node: "<b>@web1", profile: &profile });
        assert_eq!(text.matches("</script>").count(), 2, "its own two");
        assert!(!text.contains("<img") && !text.contains("<b>@"));
        let json = text.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).unwrap();
        let data: Value = serde_json::from_str(json).unwrap();
        assert_eq!(data["frames"][0][0], hostile);
        assert_eq!(data["samples"], json!([[0, 0, 0, -1, 30_000_000]]));
        assert_eq!(data["diff"], Value::Null);
    }

    #[test]
    fn a_comparison_has_two_times_of_each_sample_and_one_index_of_equal_frames() {
        let before = profile(&[("a:b/1;c:d/2", 3, CpuState::Process)]);
        let after = profile(&[("e:f/0", 1, CpuState::Process), ("a:b/1;c:d/2", 2, CpuState::Process)]);
        let [before, after] = [&before, &after].map(|profile| Page { node: "web1", profile });
        let data = merged([before.profile, after.profile]);
        assert_eq!(data["frames"].as_array().map(Vec::len), Some(3));
        assert_eq!(data["stacks"], json!([[0, 1], [2], [0, 1]]));
        assert_eq!(
            data["samples"],
            json!([[0, 0, 0, -1, 30_000_000, 0], [1, 0, 0, -1, 0, 10_000_000], [2, 0, 0, -1, 0, 20_000_000]])
        );
        let text = html_diff(&Comparison::new(before, after));
        assert!(
            text.contains("\"independentSamples\":[3.0,3.0]") && text.contains("web1: CPU profiles compared")
        );
    }
}
