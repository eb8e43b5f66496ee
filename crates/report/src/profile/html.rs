//! A flame graph as one page that needs no network: zoom, search, and a choice of threads, states and processes.

use std::collections::BTreeMap;

use beamtune_model::{CpuState, FrameKind, Profile};
use serde_json::json;

use super::{Page, missing, state_name, subtitle};
use crate::text;

/// The page; `__DATA__` is replaced.
const TEMPLATE: &str = include_str!("flame.html");
/// Process kinds to choose from; those with most CPU time are kept.
const MAX_PROCESSES: usize = 100;

/// The page.
pub fn html(page: &Page<'_>) -> String {
    let profile = page.profile;
    let frames: Vec<_> = profile
        .frames
        .iter()
        .map(|frame| {
            let name = match frame.kind {
                FrameKind::Erlang => text::exact_sentence(&frame.name),
                _ => text::clean(&frame.name),
            };
            json!([name, FrameKind::ALL.iter().position(|kind| *kind == frame.kind), frame.line])
        })
        .collect();
    let mut threads: Vec<&str> = profile.threads.iter().map(|thread| thread.kind.as_str()).collect();
    threads.sort_unstable();
    threads.dedup();
    let mut by_process = BTreeMap::<&str, i64>::new();
    for sample in &profile.samples {
        if let Some(name) = sample.process.and_then(|number| profile.processes.get(&number)) {
            *by_process.entry(name).or_default() += sample.weight;
        }
    }
    let mut processes: Vec<(&str, i64)> = by_process.into_iter().collect();
    processes.sort_by_key(|(_, time)| -time);
    processes.truncate(MAX_PROCESSES);
    // Samples of all seconds with the same stack, thread kind, state and process are one.
    let mut samples = BTreeMap::<(u32, usize, usize, i64), i64>::new();
    for sample in &profile.samples {
        let kind = profile.thread(sample).map_or("other", |thread| thread.kind.as_str());
        let thread = threads.iter().position(|known| *known == kind).unwrap_or_default();
        let state = CpuState::ALL.iter().position(|state| *state == sample.state).unwrap_or_default();
        let name = sample.process.and_then(|number| profile.processes.get(&number));
        let process = name.and_then(|name| processes.iter().position(|(known, _)| known == name));
        let process = process.map_or(-1, |index| index as i64);
        *samples.entry((sample.stack, thread, state, process)).or_default() += sample.weight;
    }
    let samples: Vec<_> = samples
        .into_iter()
        .map(|((stack, thread, state, process), weight)| json!([stack, thread, state, process, weight]))
        .collect();
    let stacks: Vec<Vec<u32>> =
        profile.stacks.iter().map(|stack| without_recursion(profile, &stack.frames)).collect();
    let data = json!({
        "title": format!("{}: CPU profile", text::clean(page.node)),
        "subtitle": subtitle(page),
        "frames": frames,
        "stacks": stacks,
        "threads": threads.iter().map(|kind| kind.replace('_', " ")).collect::<Vec<_>>(),
        "states": CpuState::ALL.iter().map(|state| state_name(*state)).collect::<Vec<_>>(),
        "processes": processes.iter().map(|(name, _)| text::sentence(name)).collect::<Vec<_>>(),
        "samples": samples,
        "remarks": missing(profile),
    });
    // No name can end the script element.
    TEMPLATE.replace("__DATA__", &data.to_string().replace('<', "\\u003c"))
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
        let text = html(&Page { node: "<b>@web1", rate: 99, profile: &profile });
        assert_eq!(text.matches("</script>").count(), 2, "its own two");
        assert!(!text.contains("<img") && !text.contains("<b>@"));
        let json = text.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).unwrap();
        let data: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(data["frames"][0][0], hostile);
        assert_eq!(data["samples"], json!([[0, 0, 0, -1, 30_000_000]]));
    }
}
