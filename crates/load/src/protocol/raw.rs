//! Frames of a protocol that is none of the known ones, straight on TCP: lines, lengths before the payload as Erlang's
//! `{packet, N}` has them, pieces of one size, or whatever comes. No socket, no clock.
//!
//! A frame that has come in one piece is read where it lies; one that the network has cut is put together in the session's
//! own buffer.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use memchr::memmem;

use super::{Answer, Checks, Heard, Sent, missing_part};
use crate::tally::ErrorKind;
use crate::template::{Template, Values};

/// Longest frame that is read or sent.
const LONGEST_FRAME_BYTES: usize = 16 * 1024 * 1024;
/// So much of the buffer is kept when nothing is in it, for each of the many connections.
const KEPT_BYTES: usize = 4096;

/// How a stream of bytes is cut into frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Framing(Cut);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Cut {
    Delimiter(Box<[u8]>),
    Length { bytes: usize, is_little_endian: bool },
    Fixed(NonZeroU32),
    Any,
}

impl Framing {
    /// Each frame ends with a delimiter, which is not part of it. The error is a sentence's end.
    pub fn delimiter(delimiter: &[u8]) -> Result<Self, String> {
        if delimiter.is_empty() {
            return Err("a delimiter has at least one byte, as \"\\n\" has".to_owned());
        }
        Ok(Self(Cut::Delimiter(delimiter.into())))
    }

    /// Before each frame stands how many bytes it has, in 1, 2 or 4 bytes. The error is a sentence's end.
    pub fn length_prefix(bytes: usize, is_little_endian: bool) -> Result<Self, String> {
        match bytes {
            1 | 2 | 4 => Ok(Self(Cut::Length { bytes, is_little_endian })),
            _ => Err(format!("a length stands in 1, 2 or 4 bytes, not in {bytes}")),
        }
    }

    /// The frames that come have so many bytes each; what is sent is sent as it stands. The error is a sentence's end.
    pub fn fixed(bytes: u32) -> Result<Self, String> {
        match NonZeroU32::new(bytes) {
            Some(size) if bytes as usize <= LONGEST_FRAME_BYTES => Ok(Self(Cut::Fixed(size))),
            _ => Err(format!("a frame has 1 to {LONGEST_FRAME_BYTES} bytes, not {bytes}")),
        }
    }

    /// Whatever comes at once is a frame; what is sent is sent as it stands.
    pub fn none() -> Self {
        Self(Cut::Any)
    }

    /// Appends a payload to `out` with what belongs before and behind it.
    fn write(&self, out: &mut Vec<u8>, write_payload: impl FnOnce(&mut Vec<u8>)) {
        match &self.0 {
            Cut::Length { bytes, is_little_endian } => {
                let from = out.len();
                out.extend_from_slice(&[0; 4][..*bytes]);
                write_payload(out);
                let length = (out.len() - from - bytes) as u32;
                let prefix = &mut out[from..from + bytes];
                if *is_little_endian {
                    prefix.copy_from_slice(&length.to_le_bytes()[..*bytes]);
                } else {
                    prefix.copy_from_slice(&length.to_be_bytes()[4 - bytes..]);
                }
            }
            Cut::Delimiter(delimiter) => {
                write_payload(out);
                out.extend_from_slice(delimiter);
            }
            Cut::Fixed(_) | Cut::Any => write_payload(out),
        }
    }
}

/// What is sent.
#[derive(Debug, Clone)]
pub struct RawMessage {
    framing: Arc<Framing>,
    payload: Template,
    is_answered: bool,
    /// The whole frame, if no value is in it.
    fixed: Option<Box<[u8]>>,
}

impl RawMessage {
    /// Whether the next frame that comes is its answer.
    pub fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// From a payload, which is framed when it is sent. `is_answered`: the next frame that comes is its answer. The error
    /// is a sentence's end.
    pub fn new(payload: Template, framing: &Arc<Framing>, is_answered: bool) -> Result<Self, String> {
        let most = match framing.0 {
            Cut::Length { bytes, .. } if bytes < 4 => (1 << (8 * bytes)) - 1,
            _ => LONGEST_FRAME_BYTES,
        };
        let longest = payload.longest_bytes();
        if longest > most {
            return Err(format!("the message may have {longest} bytes, and no more than {most} can be sent"));
        }
        let fixed = payload.fixed().map(|payload| {
            let mut frame = Vec::new();
            framing.write(&mut frame, |out| out.extend_from_slice(payload));
            frame.into_boxed_slice()
        });
        Ok(Self { framing: Arc::clone(framing), payload, is_answered, fixed })
    }

    /// The whole frame, if it is always the same.
    pub fn fixed(&self) -> Option<&[u8]> {
        self.fixed.as_deref()
    }

    /// Appends the frame to `out`.
    pub fn render(&self, values: &mut Values<'_>, out: &mut Vec<u8>) {
        self.framing.write(out, |out| self.payload.render(values, out));
    }
}

/// What about the frames that come is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawFault {
    /// A frame of more than 16 MiB.
    LongFrame,
    /// The connection ended before the answer.
    Unanswered,
    /// The connection ended within a frame.
    Cut,
}

impl fmt::Display for RawFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LongFrame => "a frame longer than 16 MiB; is the framing right?",
            Self::Unanswered => "closed before it answered",
            Self::Cut => "closed within a frame",
        })
    }
}

impl RawFault {
    /// As what it is counted.
    pub fn kind(self) -> ErrorKind {
        match self {
            Self::LongFrame => ErrorKind::Protocol,
            Self::Unanswered | Self::Cut => ErrorKind::Closed,
        }
    }
}

/// The reader of one connection's frames.
#[derive(Debug)]
pub struct Reader {
    framing: Arc<Framing>,
    /// Whether the next frame is an answer.
    is_awaited: bool,
    assembly: Assembly,
}

/// A frame that did not come in one piece.
#[derive(Debug, Default)]
struct Assembly {
    /// Whether a part of a frame is in the buffer; if not, what is there has been said.
    is_within: bool,
    /// What is missing of a frame whose length is known.
    missing_bytes: usize,
    buffer: Vec<u8>,
}

/// Where a frame lies.
enum Found<'a> {
    InInput(&'a [u8]),
    InBuffer,
}

impl Reader {
    /// For a new connection.
    pub fn new(framing: &Arc<Framing>) -> Self {
        Self { framing: Arc::clone(framing), is_awaited: false, assembly: Assembly::default() }
    }

    /// The message was sent.
    pub fn sent(&mut self, message: &RawMessage) -> Sent {
        self.is_awaited = message.is_answered;
        if message.is_answered { Sent::Awaited } else { Sent::Done }
    }

    /// Reads on, as [`super::Session::read`] does.
    pub fn read<'a>(&'a mut self, input: &'a [u8], checks: &Checks) -> Result<(usize, Heard<'a>), RawFault> {
        if input.is_empty() {
            return Ok((0, Heard::Nothing));
        }
        let assembly = &mut self.assembly;
        let (used, found) = match &self.framing.0 {
            Cut::Any => (input.len(), Some(Found::InInput(input))),
            Cut::Delimiter(delimiter) => assembly.line(input, delimiter)?,
            Cut::Fixed(size) => assembly.sized(input, 0, size.get() as usize),
            Cut::Length { .. } if assembly.is_within => assembly.sized(input, 0, 0),
            Cut::Length { bytes, is_little_endian } => {
                let Some(prefix) = input.get(..*bytes) else { return Ok((0, Heard::Nothing)) };
                let digit = |length: usize, byte: &u8| length << 8 | usize::from(*byte);
                let length = if *is_little_endian {
                    prefix.iter().rev().fold(0, digit)
                } else {
                    prefix.iter().fold(0, digit)
                };
                if length > LONGEST_FRAME_BYTES {
                    return Err(RawFault::LongFrame);
                }
                assembly.sized(input, *bytes, length)
            }
        };
        let frame = match found {
            None => return Ok((used, Heard::Nothing)),
            Some(Found::InInput(frame)) => frame,
            Some(Found::InBuffer) => &self.assembly.buffer,
        };
        if !std::mem::take(&mut self.is_awaited) {
            return Ok((used, Heard::Message(frame)));
        }
        let wrong = missing_part(checks, frame)
            .map(|part| (ErrorKind::Check, Cow::Owned(format!("the answer does not contain {part:?}"))));
        Ok((used, Heard::Answer(Answer { bytes: frame.len() as u64, keeps_alive: true, wrong })))
    }

    /// The peer has closed the connection; `unread` of what it sent was not used.
    pub fn end(&mut self, unread: &[u8]) -> Result<(), RawFault> {
        if self.assembly.is_within || !unread.is_empty() {
            Err(RawFault::Cut)
        } else if self.is_awaited {
            Err(RawFault::Unanswered)
        } else {
            Ok(())
        }
    }

    /// The last frame is not needed any more.
    pub fn forget(&mut self) {
        if !self.assembly.is_within && self.assembly.buffer.capacity() > KEPT_BYTES {
            self.assembly.buffer = Vec::new();
        }
    }
}

impl Assembly {
    /// Reads a frame of a known length, which begins behind the first `from` bytes of the input if it has not begun yet.
    fn sized<'a>(&mut self, input: &'a [u8], from: usize, length: usize) -> (usize, Option<Found<'a>>) {
        if !self.is_within {
            if let Some(frame) = input.get(from..from + length) {
                return (from + length, Some(Found::InInput(frame)));
            }
            self.buffer.clear();
            self.is_within = true;
            self.missing_bytes = length;
        }
        let took = self.missing_bytes.min(input.len() - from);
        self.buffer.extend_from_slice(&input[from..from + took]);
        self.missing_bytes -= took;
        self.is_within = self.missing_bytes > 0;
        (from + took, (!self.is_within).then_some(Found::InBuffer))
    }

    /// Reads a frame that ends with a delimiter.
    fn line<'a>(
        &mut self,
        input: &'a [u8],
        delimiter: &[u8],
    ) -> Result<(usize, Option<Found<'a>>), RawFault> {
        if !self.is_within {
            if let Some(at) = memmem::find(input, delimiter) {
                if at > LONGEST_FRAME_BYTES {
                    return Err(RawFault::LongFrame);
                }
                return Ok((at + delimiter.len(), Some(Found::InInput(&input[..at]))));
            }
            self.buffer.clear();
            self.is_within = true;
        }
        let held = self.buffer.len();
        // The network may have cut through the delimiter.
        let from = held.saturating_sub(delimiter.len() - 1);
        self.buffer.extend_from_slice(input);
        let at = memmem::find(&self.buffer[from..], delimiter).map(|at| from + at);
        if at.unwrap_or_else(|| (self.buffer.len() + 1).saturating_sub(delimiter.len())) > LONGEST_FRAME_BYTES
        {
            return Err(RawFault::LongFrame);
        }
        let Some(at) = at else { return Ok((input.len(), None)) };
        self.buffer.truncate(at);
        self.is_within = false;
        Ok((at + delimiter.len() - held, Some(Found::InBuffer)))
    }
}

#[cfg(test)]
mod tests;
