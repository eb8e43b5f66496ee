//! Reads profiles that [`json`](super::json) has written. The files may come from anywhere, so nothing in them is trusted.

use beamtune_model::{Nanos, Profile, ProfileKind};
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
    /// The profile.
    pub profile: Profile,
}

impl SavedProfile {
    /// What a page needs.
    pub fn page(&self) -> Page<'_> {
        Page { node: &self.node, profile: &self.profile }
    }
}

/// What a file says beside the profile.
#[derive(Deserialize)]
struct Header {
    version: u32,
    node: String,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// Reads a profile.
///
/// # Errors
/// If this is not such a file, has another version, or its parts do not fit together.
pub fn read(bytes: &[u8]) -> Result<SavedProfile, ReadError> {
    // Another version may lack fields or have others.
    let explained = |error| other_version(bytes).map_or(ReadError::Json(error), ReadError::Version);
    let Header { version, node } = serde_json::from_slice(bytes).map_err(explained)?;
    if version != JSON_VERSION {
        return Err(ReadError::Version(version));
    }
    let profile: Profile = serde_json::from_slice(bytes).map_err(explained)?;
    check(&profile).map_err(ReadError::Damaged)?;
    Ok(SavedProfile { node, profile })
}

fn other_version(bytes: &[u8]) -> Option<u32> {
    let Version { version } = serde_json::from_slice(bytes).ok()?;
    (version != JSON_VERSION).then_some(version)
}

/// Checks that all indices exist and that the sums do not overflow.
fn check(profile: &Profile) -> Result<(), &'static str> {
    let (frames, stacks, threads) = (profile.frames.len(), profile.stacks.len(), profile.threads.len());
    if profile.length <= 0 || profile.rate_hz == 0 && profile.kind == ProfileKind::Cpu {
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
    use beamtune_model::CpuState;
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
        SavedProfile { node: "shop@web1".to_owned(), profile }
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
            ("/frames/0/kind", json!("java"), "not a file of beamtune profile"),
            ("/samples/0/state", json!("asleep"), "not a file of beamtune profile"),
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
