//! Frames of other protocols directly on TCP: lines, length-prefixed frames as in Erlang's `{packet, N}`, frames of fixed size, or unframed
//! bytes.
//!
//! A frame that arrives in one piece is not copied; a split frame is assembled in the session's buffer.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use memchr::memmem;

use super::{Answer, Checks, Received, SendOutcome, missing_part};
use crate::tally::ErrorKind;
use crate::template::{Template, Values};

/// Maximum size of a frame, received or sent.
const MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;
/// Capacity that an empty buffer keeps. Small, because there are many connections.
const KEPT_BYTES: usize = 4096;

/// How a stream of bytes is divided into frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Framing(FramingKind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum FramingKind {
    Delimiter(Box<[u8]>),
    Length { bytes: usize, is_little_endian: bool },
    Fixed(NonZeroU32),
    Any,
}

impl Framing {
    /// Frames that end with a delimiter, which is not part of the payload. The error completes a sentence.
    pub fn delimiter(delimiter: &[u8]) -> Result<Self, String> {
        if delimiter.is_empty() {
            return Err("a delimiter needs at least one byte, such as \"\\n\"".to_owned());
        }
        Ok(Self(FramingKind::Delimiter(delimiter.into())))
    }

    /// Frames with a length prefix of 1, 2 or 4 bytes. The error completes a sentence.
    pub fn length_prefix(bytes: usize, is_little_endian: bool) -> Result<Self, String> {
        match bytes {
            1 | 2 | 4 => Ok(Self(FramingKind::Length { bytes, is_little_endian })),
            _ => Err(format!("a length prefix has 1, 2 or 4 bytes, not {bytes}")),
        }
    }

    /// Received frames have this size; sent payloads are not framed. The error completes a sentence.
    pub fn fixed(bytes: u32) -> Result<Self, String> {
        match NonZeroU32::new(bytes) {
            Some(size) if bytes as usize <= MAX_FRAME_BYTES => Ok(Self(FramingKind::Fixed(size))),
            _ => Err(format!("a frame has 1 to {MAX_FRAME_BYTES} bytes, not {bytes}")),
        }
    }

    /// The bytes of each read form a frame; sent payloads are not framed.
    pub fn none() -> Self {
        Self(FramingKind::Any)
    }

    /// Appends a framed payload to `out`.
    fn write(&self, out: &mut Vec<u8>, write_payload: impl FnOnce(&mut Vec<u8>)) {
        match &self.0 {
            FramingKind::Length { bytes, is_little_endian } => {
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
            FramingKind::Delimiter(delimiter) => {
                write_payload(out);
                out.extend_from_slice(delimiter);
            }
            FramingKind::Fixed(_) | FramingKind::Any => write_payload(out),
        }
    }
}

/// A message of a device.
#[derive(Debug, Clone)]
pub struct RawMessage {
    framing: Arc<Framing>,
    payload: Template,
    is_answered: bool,
    /// The whole frame, if it has no placeholders.
    fixed: Option<Box<[u8]>>,
}

impl RawMessage {
    /// Whether the next received frame is the answer to this message.
    pub fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// Creates a message with this payload, which is framed when it is sent. `is_answered` means that the next received frame is the answer
    /// to it. The error completes a sentence.
    pub fn new(payload: Template, framing: &Arc<Framing>, is_answered: bool) -> Result<Self, String> {
        let max_bytes = match framing.0 {
            FramingKind::Length { bytes, .. } if bytes < 4 => (1 << (8 * bytes)) - 1,
            _ => MAX_FRAME_BYTES,
        };
        let payload_bytes = payload.max_bytes();
        if payload_bytes > max_bytes {
            return Err(format!(
                "the message can have {payload_bytes} bytes, and at most {max_bytes} can be sent"
            ));
        }
        let fixed = payload.fixed().map(|payload| {
            let mut frame = Vec::new();
            framing.write(&mut frame, |out| out.extend_from_slice(payload));
            frame.into_boxed_slice()
        });
        Ok(Self { framing: Arc::clone(framing), payload, is_answered, fixed })
    }

    /// Returns the whole frame if it has no placeholders.
    pub fn fixed(&self) -> Option<&[u8]> {
        self.fixed.as_deref()
    }

    /// Appends the frame to `out`.
    pub fn render(&self, values: &mut Values<'_>, out: &mut Vec<u8>) {
        self.framing.write(out, |out| self.payload.render(values, out));
    }
}

/// A fault in the received frames.
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
            Self::LongFrame => "a frame longer than 16 MiB; check the framing",
            Self::Unanswered => "closed before the answer",
            Self::Cut => "closed within a frame",
        })
    }
}

impl RawFault {
    /// Returns the kind of error under which the fault is counted.
    pub fn kind(self) -> ErrorKind {
        match self {
            Self::LongFrame => ErrorKind::Protocol,
            Self::Unanswered | Self::Cut => ErrorKind::Closed,
        }
    }
}

/// Reads the frames of a connection.
#[derive(Debug)]
pub struct Reader {
    framing: Arc<Framing>,
    /// Whether the next frame is an answer.
    is_awaited: bool,
    assembly: Assembly,
}

/// Assembles a frame that did not arrive in one piece.
#[derive(Debug, Default)]
struct Assembly {
    /// Whether the buffer contains part of a frame. Otherwise its content has been delivered.
    is_within: bool,
    /// Number of missing bytes of a frame whose length is known.
    missing_bytes: usize,
    buffer: Vec<u8>,
}

/// The location of a complete frame.
enum Found<'a> {
    InInput(&'a [u8]),
    InBuffer,
}

impl Reader {
    /// Creates a reader for a new connection.
    pub fn new(framing: &Arc<Framing>) -> Self {
        Self { framing: Arc::clone(framing), is_awaited: false, assembly: Assembly::default() }
    }

    /// Notes that a message was sent. Returns whether it will have an answer.
    pub fn sent(&mut self, message: &RawMessage) -> SendOutcome {
        self.is_awaited = message.is_answered;
        if message.is_answered { SendOutcome::Awaited } else { SendOutcome::Done }
    }

    /// See [`super::Session::read`].
    pub fn read<'a>(
        &'a mut self,
        input: &'a [u8],
        checks: &Checks,
    ) -> Result<(usize, Received<'a>), RawFault> {
        if input.is_empty() {
            return Ok((0, Received::Nothing));
        }
        let assembly = &mut self.assembly;
        let (used, found) = match &self.framing.0 {
            FramingKind::Any => (input.len(), Some(Found::InInput(input))),
            FramingKind::Delimiter(delimiter) => assembly.line(input, delimiter)?,
            FramingKind::Fixed(size) => assembly.sized(input, 0, size.get() as usize),
            FramingKind::Length { .. } if assembly.is_within => assembly.sized(input, 0, 0),
            FramingKind::Length { bytes, is_little_endian } => {
                let Some(prefix) = input.get(..*bytes) else { return Ok((0, Received::Nothing)) };
                let digit = |length: usize, byte: &u8| length << 8 | usize::from(*byte);
                let length = if *is_little_endian {
                    prefix.iter().rev().fold(0, digit)
                } else {
                    prefix.iter().fold(0, digit)
                };
                if length > MAX_FRAME_BYTES {
                    return Err(RawFault::LongFrame);
                }
                assembly.sized(input, *bytes, length)
            }
        };
        let frame = match found {
            None => return Ok((used, Received::Nothing)),
            Some(Found::InInput(frame)) => frame,
            Some(Found::InBuffer) => &self.assembly.buffer,
        };
        if !std::mem::take(&mut self.is_awaited) {
            return Ok((used, Received::Message(frame)));
        }
        let wrong = missing_part(checks, frame)
            .map(|part| (ErrorKind::Check, Cow::Owned(format!("the answer does not contain {part:?}"))));
        Ok((used, Received::Answer(Answer { bytes: frame.len() as u64, keeps_alive: true, wrong })))
    }

    /// Handles the end of the connection; `unread` contains the unused bytes.
    pub fn end(&mut self, unread: &[u8]) -> Result<(), RawFault> {
        if self.assembly.is_within || !unread.is_empty() {
            Err(RawFault::Cut)
        } else if self.is_awaited {
            Err(RawFault::Unanswered)
        } else {
            Ok(())
        }
    }

    /// Releases the buffer of the last frame if it is large.
    pub fn forget(&mut self) {
        if !self.assembly.is_within && self.assembly.buffer.capacity() > KEPT_BYTES {
            self.assembly.buffer = Vec::new();
        }
    }
}

impl Assembly {
    /// Reads a frame of known length. A new frame begins after the first `from` bytes of the input.
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
                if at > MAX_FRAME_BYTES {
                    return Err(RawFault::LongFrame);
                }
                return Ok((at + delimiter.len(), Some(Found::InInput(&input[..at]))));
            }
            self.buffer.clear();
            self.is_within = true;
        }
        let held = self.buffer.len();
        // The delimiter may be split between two reads.
        let from = held.saturating_sub(delimiter.len() - 1);
        self.buffer.extend_from_slice(input);
        let at = memmem::find(&self.buffer[from..], delimiter).map(|at| from + at);
        if at.unwrap_or_else(|| (self.buffer.len() + 1).saturating_sub(delimiter.len())) > MAX_FRAME_BYTES {
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
