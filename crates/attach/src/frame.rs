//! Frames, the units of the byte stream between two nodes. This module does no I/O.
//!
//! A frame is a length in 4 bytes, followed by that many bytes. A frame of length 0 is a *tick*. If we do not answer it with a
//! tick, the node drops the connection after a minute. Source: "Distribution Protocol" in the ERTS User's Guide; net_ticktime in
//! kernel(6).

/// The frame of length 0.
pub const TICK: [u8; 4] = [0; 4];

/// A frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// A keep-alive, to be answered with [`TICK`].
    Tick,
    /// The content of a frame.
    Message(Vec<u8>),
}

/// A frame exceeds the size limit. The stream cannot be read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong {
    /// The announced length in bytes.
    pub bytes: usize,
}

/// Splits a stream into frames. Its memory grows with the bytes received, not with the announced length.
#[derive(Debug)]
pub struct Splitter {
    max_bytes: usize,
    header: Vec<u8>,
    /// Once the header is complete: the content so far, and its announced length.
    content: Option<(Vec<u8>, usize)>,
}

impl Splitter {
    /// Creates a splitter that rejects frames of more than `max_bytes`.
    pub fn new(max_bytes: usize) -> Splitter {
        Splitter { max_bytes, header: Vec::with_capacity(4), content: None }
    }

    /// Consumes the next frame from `input`. Returns `None` if the frame is not complete yet.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Frame>, TooLong> {
        let Some((content, length)) = &mut self.content else {
            take(input, 4 - self.header.len(), &mut self.header);
            let Ok(header) = <[u8; 4]>::try_from(self.header.as_slice()) else { return Ok(None) };
            let bytes = u32::from_be_bytes(header) as usize;
            if bytes > self.max_bytes {
                return Err(TooLong { bytes });
            }
            self.header.clear();
            if bytes == 0 {
                return Ok(Some(Frame::Tick));
            }
            self.content = Some((Vec::new(), bytes));
            return self.next(input);
        };
        take(input, *length - content.len(), content);
        if content.len() < *length {
            return Ok(None);
        }
        let content = std::mem::take(content);
        self.content = None;
        Ok(Some(Frame::Message(content)))
    }
}

fn take(input: &mut &[u8], max: usize, into: &mut Vec<u8>) {
    let (taken, rest) = input.split_at(max.min(input.len()));
    into.extend_from_slice(taken);
    *input = rest;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn too_long_frame_is_rejected_before_memory_is_allocated() {
        let mut splitter = Splitter::new(1_000);
        assert_eq!(splitter.next(&mut &[0xFF; 4][..]), Err(TooLong { bytes: 0xFFFF_FFFF }));
        let mut splitter = Splitter::new(1 << 30);
        assert_eq!(splitter.next(&mut &[0x3F, 0xFF, 0xFF, 0xFF, 1][..]), Ok(None));
        assert!(splitter.content.unwrap().0.capacity() < 100);
    }

    proptest! {
        #[test]
        fn frames_survive_any_split_of_the_stream(
            frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20),
            cuts in proptest::collection::vec(1..30usize, 1..200),
        ) {
            let stream: Vec<u8> = frames
                .iter()
                .flat_map(|frame| [&(frame.len() as u32).to_be_bytes()[..], frame].concat())
                .collect();
            let mut splitter = Splitter::new(40);
            let mut found = Vec::new();
            let mut rest = &stream[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (mut piece, behind) = rest.split_at((*cut).min(rest.len()));
                rest = behind;
                while let Some(frame) = splitter.next(&mut piece).unwrap() {
                    found.push(match frame {
                        Frame::Tick => Vec::new(),
                        Frame::Message(content) => content,
                    });
                }
                prop_assert!(piece.is_empty());
            }
            prop_assert_eq!(found, frames);
        }
    }
}
