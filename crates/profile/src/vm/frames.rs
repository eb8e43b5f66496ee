//! Frames by address: the text of a frame is made once, not for each sample.

use std::collections::HashMap;

use beamtune_model::{Frame, ProfileBuilder};

/// Limit of frames for which a text is made; a profile of RabbitMQ has some thousands. Further ones have a common name.
const MAX_FRAMES: usize = 200_000;
/// The name of further frames.
const OTHER: &str = "[other]";

/// A kind of code: its frames are named in the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CodeKind {
    /// Functions of modules, and shared code of the JIT.
    Generated,
    /// The program and libraries.
    Native,
    /// The kernel.
    Kernel,
}

/// Indices of frames in the profile, by address.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// For each [`CodeKind`].
    indices: [HashMap<u64, u32>; 3],
    /// How many texts were made.
    made: usize,
}

impl Frames {
    /// The index of the frame at an address in a kind of code, if it was added before.
    pub fn get(&self, code: CodeKind, address: u64) -> Option<u32> {
        self.indices[code as usize].get(&address).copied()
    }

    /// Adds the frame at an address in a kind of code; returns its index.
    pub fn add(
        &mut self,
        builder: &mut ProfileBuilder,
        code: CodeKind,
        address: u64,
        mut frame: Frame,
    ) -> u32 {
        if self.made >= MAX_FRAMES {
            frame = Frame { name: OTHER.to_owned(), line: None, ..frame };
        }
        self.made += 1;
        let index = builder.frame(frame);
        let indices = &mut self.indices[code as usize];
        if indices.len() < MAX_FRAMES {
            indices.insert(address, index);
        }
        index
    }

    /// Forgets which generated code was at which address, since other code may be there now.
    pub fn forget_generated(&mut self) {
        self.indices[CodeKind::Generated as usize].clear();
    }
}

#[cfg(test)]
mod tests {
    use beamtune_model::FrameKind;

    use super::*;

    fn frame(kind: FrameKind, name: &str) -> Frame {
        Frame { kind, name: name.to_owned(), line: None }
    }

    #[test]
    fn a_frame_is_found_by_its_address_until_other_code_may_be_there() {
        let (mut frames, mut builder) = (Frames::default(), ProfileBuilder::default());
        let cart = || frame(FrameKind::Erlang, "shop:cart/1");
        let old = frames.add(&mut builder, CodeKind::Generated, 8, cart());
        let native = frames.add(&mut builder, CodeKind::Native, 8, frame(FrameKind::Library, "libc.so"));
        assert_eq!(frames.get(CodeKind::Generated, 8), Some(old));
        assert_eq!(frames.get(CodeKind::Native, 8), Some(native));
        assert_eq!(frames.get(CodeKind::Kernel, 8), None);
        assert_eq!(frames.get(CodeKind::Generated, 9), None);
        frames.forget_generated();
        assert_eq!(frames.get(CodeKind::Generated, 8), None);
        assert_eq!(frames.get(CodeKind::Native, 8), Some(native));
        // The same function at another address is the same frame.
        assert_eq!(frames.add(&mut builder, CodeKind::Generated, 16, cart()), old);
    }

    #[test]
    fn frames_beyond_the_limit_have_a_common_name() {
        let mut frames = Frames { made: MAX_FRAMES - 1, ..Frames::default() };
        let mut builder = ProfileBuilder::default();
        for (address, name) in ["last", "one more", "another"].into_iter().enumerate() {
            frames.add(&mut builder, CodeKind::Native, address as u64, frame(FrameKind::Library, name));
        }
        let names: Vec<&str> = builder.profile().frames.iter().map(|frame| frame.name.as_str()).collect();
        assert_eq!(names, ["last", OTHER]);
    }
}
