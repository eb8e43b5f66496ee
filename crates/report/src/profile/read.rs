//! Reads profiles that [`json`](super::json) has written. The files may come from anywhere, so nothing in them is trusted.

use std::borrow::Cow;
use std::collections::HashMap;

use beamtune_model::{CallStack, CpuState, Frame, FrameKind, Nanos, Profile, ProfiledThread, StackSample};
use serde::Deserialize;

use super::Page;
use super::formats::JSON_VERSION;

/// Size of the largest file that is read, in bytes (judgement). 64 busy CPUs at 99 Hz write at most 70 MB a minute.
pub const MAX_BYTES: usize = 512 << 20;
/// Frames of the deepest stack that is read (judgement): three times as many as `beamtune profile` keeps.
const MAX_FRAMES: usize = 4_096;

/// Why a file is not a profile.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Other text, or a file that was cut.
    #[error("not a file of beamtune profile --format json: {0}")]
    Json(#[from] serde_json::Error),
    /// Written by another release of beamtune.
    #[error(
        "format version {0}, but this beamtune reads version {JSON_VERSION}: use the beamtune that wrote it"
    )]
    Version(u32),
    /// Valid JSON whose content contradicts itself.
    #[error("damaged: {0}")]
    Damaged(&'static str),
}

/// A profile, with what the page says about it.
#[derive(Debug, Clone, PartialEq)]
pub struct SavedProfile {
    /// The node's name. Untrusted text.
    pub node: String,
    /// Samples per second of CPU time.
    pub rate: u32,
    /// The profile.
    pub profile: Profile,
}

impl SavedProfile {
    /// What a page needs.
    pub fn page(&self) -> Page<'_> {
        Page { node: &self.node, rate: self.rate, profile: &self.profile }
    }
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

#[derive(Deserialize)]
struct Document<'a> {
    version: u32,
    node: String,
    rate_hz: u32,
    length: Nanos,
    samples_without_frames: u64,
    lost_samples: u64,
    #[serde(borrow)]
    frames: Vec<FrameRow<'a>>,
    stacks: Vec<StackRow>,
    threads: Vec<ThreadRow>,
    processes: HashMap<u64, String>,
    samples: Vec<SampleRow<'a>>,
    remarks: Vec<String>,
}

#[derive(Deserialize)]
struct FrameRow<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    name: String,
    line: Option<u32>,
}

#[derive(Deserialize)]
struct StackRow {
    frames: Vec<u32>,
    is_complete: bool,
}

#[derive(Deserialize)]
struct ThreadRow {
    tid: u32,
    kind: String,
    name: String,
}

#[derive(Deserialize)]
struct SampleRow<'a> {
    t: Nanos,
    thread: u32,
    process: Option<u64>,
    #[serde(borrow)]
    state: Cow<'a, str>,
    stack: u32,
    count: u32,
    cpu: Nanos,
}

/// Reads a profile.
///
/// # Errors
/// If this is not such a file, has another version, or its parts do not fit together.
pub fn read(bytes: &[u8]) -> Result<SavedProfile, ReadError> {
    let document: Document<'_> = match serde_json::from_slice(bytes) {
        Ok(document) => document,
        // Another version may lack fields or have others.
        Err(error) => return Err(other_version(bytes).map_or(ReadError::Json(error), ReadError::Version)),
    };
    if document.version != JSON_VERSION {
        return Err(ReadError::Version(document.version));
    }
    let frame = |row: FrameRow<'_>| {
        let kind = FrameKind::from_text(&row.kind).ok_or(ReadError::Damaged("a frame's kind is unknown"))?;
        Ok(Frame { kind, name: row.name, line: row.line })
    };
    let sample = |row: SampleRow<'_>| {
        let state =
            CpuState::from_text(&row.state).ok_or(ReadError::Damaged("a sample's state is unknown"))?;
        let SampleRow { t, thread, process, stack, count, cpu: weight, .. } = row;
        Ok(StackSample { t, thread, process, state, stack, count, weight })
    };
    let profile = Profile {
        length: document.length,
        frames: document.frames.into_iter().map(frame).collect::<Result<_, ReadError>>()?,
        stacks: document
            .stacks
            .into_iter()
            .map(|StackRow { frames, is_complete }| CallStack { frames, is_complete })
            .collect(),
        threads: document
            .threads
            .into_iter()
            .map(|ThreadRow { tid, kind, name }| ProfiledThread { tid, kind, name })
            .collect(),
        samples: document.samples.into_iter().map(sample).collect::<Result<_, ReadError>>()?,
        processes: document.processes,
        lost: document.lost_samples,
        without_frames: document.samples_without_frames,
        remarks: document.remarks,
    };
    check(&profile, document.rate_hz).map_err(ReadError::Damaged)?;
    Ok(SavedProfile { node: document.node, rate: document.rate_hz, profile })
}

fn other_version(bytes: &[u8]) -> Option<u32> {
    let Version { version } = serde_json::from_slice(bytes).ok()?;
    (version != JSON_VERSION).then_some(version)
}

/// Checks that all indices exist and that the sums do not overflow.
fn check(profile: &Profile, rate: u32) -> Result<(), &'static str> {
    let (frames, stacks, threads) = (profile.frames.len(), profile.stacks.len(), profile.threads.len());
    if profile.length <= 0 || rate == 0 {
        return Err("its length or rate is not positive");
    }
    for stack in &profile.stacks {
        if stack.frames.len() > MAX_FRAMES {
            return Err("a stack has more than 4,096 frames");
        }
        if stack.frames.iter().any(|frame| *frame as usize >= frames) {
            return Err("a stack refers to a frame that is missing");
        }
    }
    let (mut count, mut weight) = (0_u32, 0 as Nanos);
    for sample in &profile.samples {
        if sample.stack as usize >= stacks || sample.thread as usize >= threads {
            return Err("a sample refers to a stack or thread that is missing");
        }
        if sample.t < 0 || sample.weight < 0 {
            return Err("a sample's time is negative");
        }
        if sample.count == 0 {
            return Err("a sample has the count 0");
        }
        let sums = count.checked_add(sample.count).zip(weight.checked_add(sample.weight));
        (count, weight) = sums.ok_or("its samples represent more CPU time than there can be")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::tests::profile;
    use super::*;

    /// A profile in which no field has its default value.
    fn full() -> SavedProfile {
        let mut profile = profile(&[
            ("shop:loop/1;'x\n\u{e9}':d/2;k:read", 3, CpuState::Process),
            ("shop:loop/1", 2, CpuState::GarbageCollection),
        ]);
        profile.frames[0].line = Some(12);
        profile.stacks[1].is_complete = false;
        profile.samples[1].process = None;
        profile.samples[1].t = 1_500_000_000;
        profile.processes.insert(80, "shop_server".to_owned());
        profile.processes.insert(u64::MAX, "\u{202e}".to_owned());
        profile.lost = 4;
        profile.without_frames = 1;
        profile.remarks.push("no kernel".to_owned());
        SavedProfile { node: "shop@web1".to_owned(), rate: 99, profile }
    }

    fn document() -> Value {
        serde_json::from_str(&super::super::json(&full().page())).unwrap()
    }

    #[test]
    fn a_profile_is_read_as_it_was_written() {
        let saved = full();
        assert_eq!(read(super::super::json(&saved.page()).as_bytes()).unwrap(), saved);
    }

    #[test]
    fn bad_input_is_refused_with_the_reason() {
        let changed = |pointer: &str, value: Value| {
            let mut document = document();
            *document.pointer_mut(pointer).unwrap() = value;
            read(document.to_string().as_bytes()).unwrap_err().to_string()
        };
        for (pointer, value, reason) in [
            ("/version", json!(2), "format version 2"),
            ("/length", json!(0), "length or rate"),
            ("/rate_hz", json!(0), "length or rate"),
            ("/rate_hz", json!(-1), "not a file of beamtune profile"),
            ("/frames/0/kind", json!("java"), "kind is unknown"),
            ("/samples/0/state", json!("asleep"), "state is unknown"),
            ("/stacks/0/frames", json!([3]), "frame that is missing"),
            ("/stacks/0/frames", json!(vec![0; MAX_FRAMES + 1]), "more than 4,096"),
            ("/samples/0/stack", json!(2), "stack or thread"),
            ("/samples/0/thread", json!(1), "stack or thread"),
            ("/samples/0/cpu", json!(-1), "negative"),
            ("/samples/0/cpu", json!(i64::MAX), "more CPU time"),
            ("/samples/0/count", json!(0), "count 0"),
            ("/samples/0/count", json!(u32::MAX), "more CPU time"),
            ("/samples", json!("none"), "not a file of beamtune profile"),
        ] {
            let found = changed(pointer, value);
            assert!(found.contains(reason), "{pointer}: {found}");
        }
        let text = document().to_string();
        for other in ["", "shop:loop/1 3\n", "{}", "[1]", &text[..text.len() / 2]] {
            assert!(matches!(read(other.as_bytes()), Err(ReadError::Json(_))), "{other}");
        }
        assert!(matches!(read(b"{\"version\": 7}"), Err(ReadError::Version(7))));
    }

    proptest! {
        #[test]
        fn changed_bytes_never_panic(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = document().to_string().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = read(&bytes);
        }
    }
}
