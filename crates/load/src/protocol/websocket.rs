//! The client side of WebSocket (RFC 6455), without extensions.
//!
//! A message that arrives in one piece is not copied; a fragmented or split message is assembled in the session's buffer. Ping and Close
//! frames of the server are answered automatically.

mod frame;
#[cfg(test)]
mod tests;
mod upgrade;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use beamtune_model::text::is_hidden;
use rand_core::Rng;

use super::{Answer, Received};
use crate::tally::ErrorKind;
use crate::template::{Template, Values};
use frame::{Head, Masks, Opcode};
use upgrade::Opening;
pub use upgrade::Upgrade;

/// Maximum size of a received message.
const MAX_MESSAGE_BYTES: u32 = 16 * 1024 * 1024;
/// Capacity that an empty buffer keeps. Small, because there are many connections.
const KEPT_BYTES: usize = 4096;
/// The close code for a normal closure (RFC 6455, 7.4.1).
const NORMAL_CLOSURE: u16 = 1000;

/// A violation of WebSocket by the server, or the end of the session caused by the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebSocketFault {
    /// The reply to the upgrade is not HTTP.
    Head,
    /// The head of the reply is longer than 64 kB, or has more than 128 fields.
    LongHead,
    /// The status of the reply is not 101.
    Status(u16),
    /// The reply lacks `Upgrade: websocket` or `Connection: Upgrade`.
    Upgrade,
    /// `Sec-WebSocket-Accept` does not match the key.
    Accept,
    /// The server selected an extension, but none was offered.
    Extension,
    /// The server selected a subprotocol that was not offered.
    Subprotocol,
    /// A reserved bit is set.
    Reserved,
    /// An unknown opcode.
    Opcode(u8),
    /// A masked frame.
    Masked,
    /// A length that is not in its shortest form, or has its first bit set.
    Length,
    /// A control frame of more than 125 bytes.
    LongControl,
    /// A fragmented control frame.
    FragmentedControl,
    /// A continuation frame outside a message.
    Continuation,
    /// A new message starts within a fragmented one.
    Interleaved,
    /// A message of more than 16 MiB.
    LongMessage,
    /// Text that is not UTF-8.
    Text,
    /// A Close frame with an incomplete code, or with a code that must not be sent.
    CloseCode,
    /// The server sent a Close frame.
    Closed {
        /// Its code, if it has one.
        code: Option<u16>,
        /// Its reason, which may be empty. Control characters are replaced by question marks.
        reason: Box<str>,
    },
    /// The connection ended before the answer.
    Unanswered,
    /// The connection ended within the upgrade's reply, a frame or a message.
    Cut,
}

impl fmt::Display for WebSocketFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Head => "not an HTTP/1 reply to the upgrade",
            Self::LongHead => "head of the upgrade's reply longer than 64 kB or 128 fields",
            Self::Status(status) => return write!(f, "the upgrade was answered with status {status}"),
            Self::Upgrade => "the reply to the upgrade lacks `Upgrade: websocket` or `Connection: Upgrade`",
            Self::Accept => "wrong Sec-WebSocket-Accept",
            Self::Extension => "the server selected an extension that was not offered",
            Self::Subprotocol => "the server selected a subprotocol that was not offered",
            Self::Reserved => "a frame with a reserved bit",
            Self::Opcode(opcode) => return write!(f, "a frame with the unknown opcode {opcode}"),
            Self::Masked => "a masked frame from the server",
            Self::Length => "a frame with a malformed length",
            Self::LongControl => "a control frame longer than 125 bytes",
            Self::FragmentedControl => "a fragmented control frame",
            Self::Continuation => "a continuation frame outside a message",
            Self::Interleaved => "a new message within a fragmented one",
            Self::LongMessage => "a message longer than 16 MiB",
            Self::Text => "invalid UTF-8",
            Self::CloseCode => "a malformed Close frame",
            Self::Closed { code: None, .. } => "the server closed without a code",
            Self::Closed { code: Some(code), reason } if reason.is_empty() => {
                return write!(f, "the server closed with code {code}");
            }
            Self::Closed { code: Some(code), reason } => {
                return write!(f, "the server closed with code {code}: {reason}");
            }
            Self::Unanswered => "closed before the answer",
            Self::Cut => "closed within a message",
        })
    }
}

impl WebSocketFault {
    /// Returns the kind of error under which the fault is counted.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Status(_) => ErrorKind::Status,
            Self::Closed { .. } | Self::Unanswered | Self::Cut => ErrorKind::Closed,
            _ => ErrorKind::Protocol,
        }
    }

    /// Returns the code of the Close frame for the server (RFC 6455, 7.4.1); `None` if the session has ended.
    fn close_code(&self) -> Option<u16> {
        match self {
            Self::Text => Some(1007),
            Self::LongMessage => Some(1009),
            Self::Closed { .. } | Self::Unanswered | Self::Cut => None,
            _ => Some(1002),
        }
    }
}

/// A Close frame, which the server has to answer with a Close frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloseFrame {
    payload: Box<[u8]>,
}

impl CloseFrame {
    /// Creates a Close frame with a code and a reason. The error completes a sentence.
    pub fn new(code: u16, reason: &str) -> Result<Self, String> {
        if !may_be_sent(code) {
            return Err(format!(
                "{code} is not a valid close code; use 1000 to 1003, 1007 to 1014 or 3000 to 4999"
            ));
        }
        if reason.len() > 123 {
            return Err(format!("a close reason has at most 123 bytes, and this one has {}", reason.len()));
        }
        Ok(Self { payload: [&code.to_be_bytes(), reason.as_bytes()].concat().into_boxed_slice() })
    }
}

#[derive(Debug)]
enum State {
    /// The session is not open yet, or no longer open.
    Closed,
    Opening(Box<Opening>),
    Open,
}

/// The answer that the session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Nothing,
    Pong,
    Close,
}

/// The kind of the incomplete message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Incomplete {
    Nothing,
    Text,
    Binary,
}

/// An incomplete frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PartialFrame {
    missing_bytes: u32,
    is_final: bool,
}

/// The session of one connection.
#[derive(Debug)]
pub struct Connection {
    state: State,
    awaited: Awaited,
    incomplete: Incomplete,
    partial: Option<PartialFrame>,
    masks: Masks,
    /// Number of the last ping, which is its payload.
    pings: u32,
    /// The assembled part of a message that did not arrive in one piece.
    buffer: Vec<u8>,
    /// Number of bytes of the buffer that are known to be valid UTF-8.
    valid_bytes: u32,
}

/// What was read, without borrowing the input.
enum Step {
    Nothing,
    Ready,
    Answer {
        bytes: u64,
        keeps_alive: bool,
    },
    /// A message in one piece, at this range of the input.
    Whole(Range<usize>),
    /// A message in the buffer.
    Assembled,
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            state: State::Closed,
            awaited: Awaited::Nothing,
            incomplete: Incomplete::Nothing,
            partial: None,
            masks: Masks::new(0),
            pings: 0,
            buffer: Vec::new(),
            valid_bytes: 0,
        }
    }
}

impl Connection {
    /// Writes the request for the upgrade to `out`.
    pub fn open(&mut self, upgrade: &Arc<Upgrade>, values: &mut Values<'_>, out: &mut Vec<u8>) {
        self.masks = Masks::new(values.random.next_u64());
        self.state = State::Opening(Box::new(Opening::start(upgrade, values, out)));
    }

    /// Writes a message to `out`; `scratch` is overwritten.
    pub fn send(
        &mut self,
        is_text: bool,
        payload: &Template,
        values: &mut Values<'_>,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) {
        let opcode = if is_text { Opcode::Text } else { Opcode::Binary };
        let payload = payload.fixed().unwrap_or_else(|| {
            scratch.clear();
            payload.render(values, scratch);
            scratch
        });
        frame::write(opcode, payload, &mut self.masks, out);
    }

    /// Writes a ping to `out`. Its answer is the pong.
    pub fn ping(&mut self, out: &mut Vec<u8>) {
        self.pings = self.pings.wrapping_add(1);
        self.awaited = Awaited::Pong;
        frame::write(Opcode::Ping, &self.pings.to_be_bytes(), &mut self.masks, out);
    }

    /// Writes a Close frame to `out`. Its answer is the server's Close frame.
    pub fn close_with(&mut self, frame: &CloseFrame, out: &mut Vec<u8>) {
        self.awaited = Awaited::Close;
        frame::write(Opcode::Close, &frame.payload, &mut self.masks, out);
    }

    /// Writes a Close frame to `out` if the session is open. No answer is awaited.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        self.write_close(NORMAL_CLOSURE, out);
    }

    fn write_close(&mut self, code: u16, out: &mut Vec<u8>) {
        if matches!(self.state, State::Open) && self.awaited != Awaited::Close {
            frame::write(Opcode::Close, &code.to_be_bytes(), &mut self.masks, out);
        }
        self.state = State::Closed;
    }

    /// See [`super::Session::read`]. After a fault, `out` may contain a Close frame.
    pub fn read<'a>(
        &'a mut self,
        input: &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Received<'a>), WebSocketFault> {
        match self.step(input, out) {
            Ok((used, step)) => Ok((
                used,
                match step {
                    Step::Nothing => Received::Nothing,
                    Step::Ready => Received::Ready,
                    Step::Answer { bytes, keeps_alive } => {
                        Received::Answer(Answer { bytes, keeps_alive, wrong: None })
                    }
                    Step::Whole(range) => Received::Message(&input[range]),
                    Step::Assembled => Received::Message(&self.buffer),
                },
            )),
            Err(fault) => {
                if let Some(code) = fault.close_code() {
                    self.write_close(code, out);
                }
                self.state = State::Closed;
                Err(fault)
            }
        }
    }

    /// Handles the closing of the connection by the server; `unread` contains the unused bytes.
    pub fn end(&mut self, unread: &[u8]) -> Result<(), WebSocketFault> {
        let is_within =
            self.partial.is_some() || self.incomplete != Incomplete::Nothing || !unread.is_empty();
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Closed => Ok(()),
            _ if is_within => Err(WebSocketFault::Cut),
            State::Opening(_) => Err(WebSocketFault::Unanswered),
            State::Open if self.awaited != Awaited::Nothing => Err(WebSocketFault::Unanswered),
            State::Open => Ok(()),
        }
    }

    /// Releases the buffer of the last message if it is large.
    pub fn forget(&mut self) {
        if self.incomplete == Incomplete::Nothing && self.buffer.capacity() > KEPT_BYTES {
            self.buffer = Vec::new();
        }
    }

    fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, Step), WebSocketFault> {
        match &self.state {
            // Bytes after a Close frame are ignored.
            State::Closed => return Ok((input.len(), Step::Nothing)),
            State::Opening(opening) => {
                let (used, is_reply) = opening.read(input)?;
                if is_reply {
                    self.state = State::Open;
                }
                return Ok((used, if is_reply { Step::Ready } else { Step::Nothing }));
            }
            State::Open => {}
        }
        let mut used = 0;
        loop {
            let rest = &input[used..];
            if let Some(partial) = self.partial {
                let took = rest.len().min(partial.missing_bytes as usize);
                used += took;
                if self.keep(&rest[..took], partial)? {
                    return Ok((used, Step::Assembled));
                }
                if self.partial.is_some() {
                    return Ok((used, Step::Nothing));
                }
                continue;
            }
            let Some(head) = frame::head(rest)? else { return Ok((used, Step::Nothing)) };
            if matches!(head.opcode, Opcode::Close | Opcode::Ping | Opcode::Pong) {
                let end = head.head_bytes + head.payload_bytes as usize;
                let Some(payload) = rest.get(head.head_bytes..end) else { return Ok((used, Step::Nothing)) };
                used += end;
                if let Some(answer) = self.control(head.opcode, payload, out)? {
                    return Ok((used, answer));
                }
                continue;
            }
            let payload_bytes = self.begin(head)?;
            used += head.head_bytes;
            let whole = used..used + payload_bytes as usize;
            if head.is_final && head.opcode != Opcode::Continuation && whole.end <= input.len() {
                if self.incomplete == Incomplete::Text && std::str::from_utf8(&input[whole.clone()]).is_err()
                {
                    return Err(WebSocketFault::Text);
                }
                self.incomplete = Incomplete::Nothing;
                return Ok((whole.end, Step::Whole(whole)));
            }
            self.partial = Some(PartialFrame { missing_bytes: payload_bytes, is_final: head.is_final });
        }
    }

    /// Begins a data frame. Returns the size of its payload.
    fn begin(&mut self, head: Head) -> Result<u32, WebSocketFault> {
        let incomplete = match (head.opcode, self.incomplete) {
            (Opcode::Continuation, Incomplete::Nothing) => return Err(WebSocketFault::Continuation),
            (Opcode::Continuation, incomplete) => incomplete,
            (_, Incomplete::Text | Incomplete::Binary) => return Err(WebSocketFault::Interleaved),
            (Opcode::Text, Incomplete::Nothing) => Incomplete::Text,
            (_, Incomplete::Nothing) => Incomplete::Binary,
        };
        if self.incomplete == Incomplete::Nothing {
            self.buffer.clear();
            self.valid_bytes = 0;
        }
        self.incomplete = incomplete;
        if head.payload_bytes + self.buffer.len() as u64 > u64::from(MAX_MESSAGE_BYTES) {
            return Err(WebSocketFault::LongMessage);
        }
        Ok(head.payload_bytes as u32)
    }

    /// Adds bytes of a frame to the buffer. Returns whether the message is complete.
    fn keep(&mut self, bytes: &[u8], mut partial: PartialFrame) -> Result<bool, WebSocketFault> {
        self.buffer.extend_from_slice(bytes);
        partial.missing_bytes -= bytes.len() as u32;
        let is_whole = partial.missing_bytes == 0 && partial.is_final;
        if self.incomplete == Incomplete::Text {
            match std::str::from_utf8(&self.buffer[self.valid_bytes as usize..]) {
                Ok(_) => self.valid_bytes = self.buffer.len() as u32,
                // The last character may continue in the next piece.
                Err(error) if error.error_len().is_none() && !is_whole => {
                    self.valid_bytes += error.valid_up_to() as u32;
                }
                Err(_) => return Err(WebSocketFault::Text),
            }
        }
        self.partial = (partial.missing_bytes > 0).then_some(partial);
        if is_whole {
            self.incomplete = Incomplete::Nothing;
        }
        Ok(is_whole)
    }

    /// Handles a control frame, and answers it.
    fn control(
        &mut self,
        opcode: Opcode,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Step>, WebSocketFault> {
        let bytes = payload.len() as u64;
        match opcode {
            Opcode::Ping => frame::write(Opcode::Pong, payload, &mut self.masks, out),
            // Any other pong is an unsolicited heartbeat (RFC 6455, 5.5.3).
            Opcode::Pong if self.awaited == Awaited::Pong && payload == self.pings.to_be_bytes() => {
                self.awaited = Awaited::Nothing;
                return Ok(Some(Step::Answer { bytes, keeps_alive: true }));
            }
            Opcode::Close => {
                let (code, reason) = parse_close(payload)?;
                if self.awaited == Awaited::Close {
                    self.state = State::Closed;
                    return Ok(Some(Step::Answer { bytes, keeps_alive: false }));
                }
                frame::write(Opcode::Close, &payload[..payload.len().min(2)], &mut self.masks, out);
                let reason: String = reason.chars().map(|c| if is_hidden(c) { '?' } else { c }).collect();
                return Err(WebSocketFault::Closed { code, reason: reason.into() });
            }
            _ => {}
        }
        Ok(None)
    }
}

/// Parses the code and reason of a Close frame (RFC 6455, 5.5.1).
fn parse_close(payload: &[u8]) -> Result<(Option<u16>, &str), WebSocketFault> {
    match payload {
        [] => Ok((None, "")),
        [high, low, reason @ ..] => {
            let code = u16::from_be_bytes([*high, *low]);
            if !may_be_sent(code) {
                return Err(WebSocketFault::CloseCode);
            }
            let reason = std::str::from_utf8(reason).map_err(|_| WebSocketFault::Text)?;
            Ok((Some(code), reason))
        }
        [_] => Err(WebSocketFault::CloseCode),
    }
}

/// Whether a Close frame may contain this code. Permitted are codes of RFC 6455 (7.4) and of IANA's registry, and those for libraries and
/// applications; 1005, 1006 and 1015 are reserved for local use.
fn may_be_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}
