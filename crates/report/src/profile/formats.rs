//! Formats of other tools.

use std::collections::BTreeMap;

use beamtune_model::{CallStack, Frame, FrameKind, Nanos, Profile, StackSample};
use serde::Serialize;
use serde_json::json;

use super::Page;
use crate::json::pretty;
use crate::text;

/// Version of [`json`]; raised if the meaning of a key changes.
pub(super) const JSON_VERSION: u32 = 1;

/// One line for each stack: the frames, outermost first, separated by semicolons, and the number of samples. flamegraph.pl, inferno and speedscope
/// read it.
pub fn collapsed(profile: &Profile) -> String {
    let mut counts = BTreeMap::<String, u64>::new();
    for sample in &profile.samples {
        *counts.entry(collapsed_stack(profile, sample)).or_default() += u64::from(sample.count);
    }
    counts.iter().map(|(stack, count)| format!("{stack} {count}\n")).collect()
}

/// The thread kind, the process and the frames of a sample, outermost first.
pub(super) fn collapsed_stack(profile: &Profile, sample: &StackSample) -> String {
    let kind = profile.thread(sample).map_or("other", |thread| thread.kind.as_str());
    let process = sample.process.and_then(|number| profile.processes.get(&number));
    let roots = [Some(kind), process.map(String::as_str)];
    let roots = roots.into_iter().flatten().map(|name| safe(name, ""));
    let frames = profile.frames_of(sample.stack).map(|frame| safe(&frame.name, suffix(frame)));
    let names: Vec<String> = roots.chain(frames).collect();
    names.join(";")
}

/// The mark of perf's scripts for the kind of a frame: flamegraph.pl colours by it.
fn suffix(frame: &Frame) -> &'static str {
    match frame.kind {
        FrameKind::Kernel => "_[k]",
        FrameKind::Fragment => "_[j]",
        FrameKind::Erlang | FrameKind::Bif | FrameKind::Emulator | FrameKind::Library => "",
    }
}

/// A name without the separators of the format.
fn safe(name: &str, suffix: &str) -> String {
    let name = text::clean(name).replace([';', '\n', '\r'], "_");
    format!("{name}{suffix}")
}

/// Content of [`json`].
#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    node: &'a str,
    cpu: Nanos,
    samples_of_processes: u32,
    complete_samples_of_processes: u32,
    states: BTreeMap<&'a str, Nanos>,
    #[serde(flatten)]
    profile: &'a Profile,
}

/// beamtune's own JSON: everything of the profile. Times are in nanoseconds; `frames` of a stack are indices, outermost first.
pub fn json(page: &Page<'_>) -> String {
    let profile = page.profile;
    let of_processes = |is_counted: &dyn Fn(&CallStack) -> bool| -> u32 {
        let in_process = profile.samples.iter().filter(|sample| sample.process.is_some());
        let counted =
            in_process.filter(|sample| profile.stacks.get(sample.stack as usize).is_some_and(is_counted));
        counted.map(|sample| sample.count).sum()
    };
    let states: BTreeMap<_, _> =
        profile.by_state().into_iter().map(|(state, time)| (state.text(), time)).collect();
    let document = Document {
        version: JSON_VERSION,
        node: page.node,
        cpu: profile.total(),
        samples_of_processes: of_processes(&|_| true),
        complete_samples_of_processes: of_processes(&|stack| stack.is_complete),
        states,
        profile,
    };
    pretty(&document)
}

/// JSON for https://www.speedscope.app: one profile for each thread that was sampled, by CPU time.
pub fn speedscope(profile: &Profile, name: &str) -> String {
    let frames: Vec<_> = profile
        .frames
        .iter()
        .map(|frame| match frame.line {
            Some(line) => json!({"name": text::clean(&frame.name), "line": line}),
            None => json!({"name": text::clean(&frame.name)}),
        })
        .collect();
    let profiles: Vec<_> = profile
        .threads
        .iter()
        .enumerate()
        .filter_map(|(index, thread)| {
            let own = profile.samples.iter().filter(|sample| sample.thread as usize == index);
            let (mut samples, mut weights) = (Vec::new(), Vec::new());
            for sample in own {
                samples
                    .push(profile.stacks.get(sample.stack as usize).map_or(&[][..], |stack| &stack.frames));
                weights.push(sample.weight);
            }
            (!samples.is_empty()).then(|| {
                json!({
                    "type": "sampled",
                    "name": format!("{} ({})", text::clean(&thread.name), thread.tid),
                    "unit": "nanoseconds",
                    "startValue": 0,
                    "endValue": weights.iter().sum::<i64>(),
                    "samples": samples,
                    "weights": weights,
                })
            })
        })
        .collect();
    let document = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": "beamtune",
        "name": text::clean(name),
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
        "profiles": profiles,
    });
    format!("{document}\n")
}

#[cfg(test)]
mod tests {
    use beamtune_model::CpuState;

    use super::super::tests::profile;
    use super::*;

    #[test]
    fn collapsed_stacks_are_counted_and_hostile_names_keep_the_format() {
        let profile = profile(&[
            ("a:b/1;c:d/2;k:read", 3, CpuState::Process),
            ("a:b/1;'x\n':d/2", 2, CpuState::Process),
            ("a:b/1", 1, CpuState::GarbageCollection),
        ]);
        let text = collapsed(&profile);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines.contains(&"scheduler;a:b/1;c:d/2;read_[k] 3"), "{text}");
        assert!(lines.contains(&"scheduler;a:b/1 1"), "{text}");
    }

    #[test]
    fn speedscope_has_a_profile_for_each_thread() {
        let profile = profile(&[("a:b/1;c:d/2", 3, CpuState::Process)]);
        let document: serde_json::Value = serde_json::from_str(&speedscope(&profile, "shop")).unwrap();
        assert_eq!(document["shared"]["frames"][1]["name"], "c:d/2");
        assert_eq!(document["profiles"][0]["samples"], serde_json::json!([[0, 1]]));
        assert_eq!(document["profiles"][0]["endValue"], 30_000_000);
        assert_eq!(document["profiles"].as_array().map(Vec::len), Some(1));
    }
}
