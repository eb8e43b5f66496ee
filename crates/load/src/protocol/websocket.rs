//! A client's side of WebSocket (RFC 6455). No socket, no clock, no extensions.
//!
//! A message that has come in one piece is read where it lies; one that was fragmented, or cut by the network, is put
//! together in the session's own buffer. Pings and goodbyes of the server are answered by the way.

mod frame;
#[cfg(test)]
mod tests;
mod upgrade;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use beamtune_model::text::is_hidden;
use rand_core::Rng;

use super::{Answer, Heard};
use crate::tally::ErrorKind;
use crate::template::{Template, Values};
use frame::{Head, Masks, Opcode};
use upgrade::Opening;
pub use upgrade::Upgrade;

/// Longest message that is read.
const LONGEST_MESSAGE_BYTES: u32 = 16 * 1024 * 1024;
/// So much of the buffer is kept when nothing is in it, for each of the many connections.
const KEPT_BYTES: usize = 4096;
/// A goodbye without complaint (RFC 6455, 7.4.1).
const NORMAL_CLOSURE: u16 = 1000;

/// What about a server is not WebSocket, or how it ended the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebSocketFault {
    /// The reply to the upgrade is no HTTP.
    Head,
    /// Its head is longer than 64 kB, or has more than 128 fields.
    LongHead,
    /// It has another status than 101.
    Status(u16),
    /// It does not say that the protocol is WebSocket now.
    Upgrade,
    /// It does not prove that the server has read the key.
    Accept,
    /// It chooses an extension, and none was offered.
    Extension,
    /// It chooses a subprotocol that was not offered.
    Subprotocol,
    /// A reserved bit is set.
    Reserved,
    /// An opcode that stands for nothing.
    Opcode(u8),
    /// A masked frame.
    Masked,
    /// A length in more bytes than it needs, or with its first bit set.
    Length,
    /// A control frame of more than 125 bytes.
    LongControl,
    /// A control frame in fragments.
    FragmentedControl,
    /// A continuation, and nothing was begun.
    Continuation,
    /// A new message within another one.
    Interleaved,
    /// A message of more than 16 MiB.
    LongMessage,
    /// Text that is not UTF-8.
    Text,
    /// A goodbye with half a code, or one that must not be sent.
    CloseCode,
    /// The server has said goodbye.
    Closed {
        /// Its code, if it gave one.
        code: Option<u16>,
        /// Its words, which may be none; what would command a terminal is a question mark.
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
            Self::Head => "no HTTP/1 reply to the upgrade",
            Self::LongHead => "head of the upgrade's reply longer than 64 kB or 128 fields",
            Self::Status(status) => return write!(f, "the upgrade was answered with status {status}"),
            Self::Upgrade => {
                "the upgrade's reply does not say `Upgrade: websocket` and `Connection: Upgrade`"
            }
            Self::Accept => "wrong Sec-WebSocket-Accept",
            Self::Extension => "an extension that was not offered",
            Self::Subprotocol => "a subprotocol that was not offered",
            Self::Reserved => "a frame with a reserved bit",
            Self::Opcode(opcode) => return write!(f, "a frame with the unknown opcode {opcode}"),
            Self::Masked => "a masked frame from the server",
            Self::Length => "a frame whose length is malformed",
            Self::LongControl => "a control frame longer than 125 bytes",
            Self::FragmentedControl => "a fragmented control frame",
            Self::Continuation => "a continuation without a beginning",
            Self::Interleaved => "a new message before the end of the last",
            Self::LongMessage => "a message longer than 16 MiB",
            Self::Text => "text that is not UTF-8",
            Self::CloseCode => "a malformed Close frame",
            Self::Closed { code: None, .. } => "the server closed without a code",
            Self::Closed { code: Some(code), reason } if reason.is_empty() => {
                return write!(f, "the server closed with code {code}");
            }
            Self::Closed { code: Some(code), reason } => {
                return write!(f, "the server closed with code {code}: {reason}");
            }
            Self::Unanswered => "closed before it answered",
            Self::Cut => "closed within a message",
        })
    }
}

impl WebSocketFault {
    /// As what it is counted.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Status(_) => ErrorKind::Status,
            Self::Closed { .. } | Self::Unanswered | Self::Cut => ErrorKind::Closed,
            _ => ErrorKind::Protocol,
        }
    }

    /// The code with which the server is told (RFC 6455, 7.4.1); `None` where it is past that.
    fn close_code(&self) -> Option<u16> {
        match self {
            Self::Text => Some(1007),
            Self::LongMessage => Some(1009),
            Self::Closed { .. } | Self::Unanswered | Self::Cut => None,
            _ => Some(1002),
        }
    }
}

/// A goodbye, which the server has to answer with its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goodbye {
    payload: Box<[u8]>,
}

impl Goodbye {
    /// With a code and words. The error is a sentence's end.
    pub fn new(code: u16, reason: &str) -> Result<Self, String> {
        if !may_be_sent(code) {
            return Err(format!(
                "{code} is no code to close with; use 1000 to 1003, 1007 to 1014 or 3000 to 4999"
            ));
        }
        if reason.len() > 123 {
            return Err(format!(
                "a reason to close has at most 123 bytes, and this one has {}",
                reason.len()
            ));
        }
        Ok(Self { payload: [&code.to_be_bytes(), reason.as_bytes()].concat().into_boxed_slice() })
    }
}

#[derive(Debug)]
enum State {
    /// Not open yet, or no more.
    Closed,
    Opening(Box<Opening>),
    Open,
}

/// What was sent that has an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Nothing,
    Pong,
    Goodbye,
}

/// What the message is that was begun and has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begun {
    Nothing,
    Text,
    Binary,
}

/// The present frame, of which only a part has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Partial {
    missing_bytes: u32,
    is_final: bool,
}

/// One connection's session.
#[derive(Debug)]
pub struct Connection {
    state: State,
    awaited: Awaited,
    begun: Begun,
    partial: Option<Partial>,
    masks: Masks,
    /// The number of the last ping, which its payload is.
    pings: u32,
    /// What has come of a message that did not come in one piece.
    buffer: Vec<u8>,
    /// So many bytes of it are known to be UTF-8.
    valid_bytes: u32,
}

/// What was read, without the borrow.
enum Step {
    Nothing,
    Ready,
    Answer {
        bytes: u64,
        keeps_alive: bool,
    },
    /// A message in one piece: where in the input.
    Whole(Range<usize>),
    /// A message in the buffer.
    Assembled,
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            state: State::Closed,
            awaited: Awaited::Nothing,
            begun: Begun::Nothing,
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
        self.state = State::Opening(Box::new(Opening::ask(upgrade, values, out)));
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

    /// Writes a ping to `out`. Its pong is the answer.
    pub fn ping(&mut self, out: &mut Vec<u8>) {
        self.pings = self.pings.wrapping_add(1);
        self.awaited = Awaited::Pong;
        frame::write(Opcode::Ping, &self.pings.to_be_bytes(), &mut self.masks, out);
    }

    /// Writes a goodbye to `out`. The server's is the answer.
    pub fn say_goodbye(&mut self, goodbye: &Goodbye, out: &mut Vec<u8>) {
        self.awaited = Awaited::Goodbye;
        frame::write(Opcode::Close, &goodbye.payload, &mut self.masks, out);
    }

    /// The connection will be closed without waiting for anything more: writes a goodbye to `out`, if it is time for one.
    pub fn leave(&mut self, out: &mut Vec<u8>) {
        self.say_why(NORMAL_CLOSURE, out);
    }

    fn say_why(&mut self, code: u16, out: &mut Vec<u8>) {
        if matches!(self.state, State::Open) && self.awaited != Awaited::Goodbye {
            frame::write(Opcode::Close, &code.to_be_bytes(), &mut self.masks, out);
        }
        self.state = State::Closed;
    }

    /// Reads on, as [`super::Session::read`] does. After a fault `out` may hold a last word to the server.
    pub fn read<'a>(
        &'a mut self,
        input: &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Heard<'a>), WebSocketFault> {
        match self.step(input, out) {
            Ok((used, step)) => Ok((
                used,
                match step {
                    Step::Nothing => Heard::Nothing,
                    Step::Ready => Heard::Ready,
                    Step::Answer { bytes, keeps_alive } => {
                        Heard::Answer(Answer { bytes, keeps_alive, wrong: None })
                    }
                    Step::Whole(range) => Heard::Message(&input[range]),
                    Step::Assembled => Heard::Message(&self.buffer),
                },
            )),
            Err(fault) => {
                if let Some(code) = fault.close_code() {
                    self.say_why(code, out);
                }
                self.state = State::Closed;
                Err(fault)
            }
        }
    }

    /// The server has closed the connection; `unread` of what it sent was not used.
    pub fn end(&mut self, unread: &[u8]) -> Result<(), WebSocketFault> {
        let is_within = self.partial.is_some() || self.begun != Begun::Nothing || !unread.is_empty();
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Closed => Ok(()),
            _ if is_within => Err(WebSocketFault::Cut),
            State::Opening(_) => Err(WebSocketFault::Unanswered),
            State::Open if self.awaited != Awaited::Nothing => Err(WebSocketFault::Unanswered),
            State::Open => Ok(()),
        }
    }

    /// The last message is not needed any more.
    pub fn forget(&mut self) {
        if self.begun == Begun::Nothing && self.buffer.capacity() > KEPT_BYTES {
            self.buffer = Vec::new();
        }
    }

    fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, Step), WebSocketFault> {
        match &self.state {
            // What comes behind a goodbye says nothing.
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
                if self.begun == Begun::Text && std::str::from_utf8(&input[whole.clone()]).is_err() {
                    return Err(WebSocketFault::Text);
                }
                self.begun = Begun::Nothing;
                return Ok((whole.end, Step::Whole(whole)));
            }
            self.partial = Some(Partial { missing_bytes: payload_bytes, is_final: head.is_final });
        }
    }

    /// Begins a data frame; how many bytes follow.
    fn begin(&mut self, head: Head) -> Result<u32, WebSocketFault> {
        let begun = match (head.opcode, self.begun) {
            (Opcode::Continuation, Begun::Nothing) => return Err(WebSocketFault::Continuation),
            (Opcode::Continuation, begun) => begun,
            (_, Begun::Text | Begun::Binary) => return Err(WebSocketFault::Interleaved),
            (Opcode::Text, Begun::Nothing) => Begun::Text,
            (_, Begun::Nothing) => Begun::Binary,
        };
        if self.begun == Begun::Nothing {
            self.buffer.clear();
            self.valid_bytes = 0;
        }
        self.begun = begun;
        if head.payload_bytes + self.buffer.len() as u64 > u64::from(LONGEST_MESSAGE_BYTES) {
            return Err(WebSocketFault::LongMessage);
        }
        Ok(head.payload_bytes as u32)
    }

    /// Keeps what has come of a frame; whether the message is whole.
    fn keep(&mut self, bytes: &[u8], mut partial: Partial) -> Result<bool, WebSocketFault> {
        self.buffer.extend_from_slice(bytes);
        partial.missing_bytes -= bytes.len() as u32;
        let is_whole = partial.missing_bytes == 0 && partial.is_final;
        if self.begun == Begun::Text {
            match std::str::from_utf8(&self.buffer[self.valid_bytes as usize..]) {
                Ok(_) => self.valid_bytes = self.buffer.len() as u32,
                // The last character may go on in the next piece.
                Err(error) if error.error_len().is_none() && !is_whole => {
                    self.valid_bytes += error.valid_up_to() as u32;
                }
                Err(_) => return Err(WebSocketFault::Text),
            }
        }
        self.partial = (partial.missing_bytes > 0).then_some(partial);
        if is_whole {
            self.begun = Begun::Nothing;
        }
        Ok(is_whole)
    }

    /// Hears a control frame, and answers it.
    fn control(
        &mut self,
        opcode: Opcode,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Step>, WebSocketFault> {
        let bytes = payload.len() as u64;
        match opcode {
            Opcode::Ping => frame::write(Opcode::Pong, payload, &mut self.masks, out),
            // Another pong than the awaited one is a sign of life that nobody asked for (RFC 6455, 5.5.3).
            Opcode::Pong if self.awaited == Awaited::Pong && payload == self.pings.to_be_bytes() => {
                self.awaited = Awaited::Nothing;
                return Ok(Some(Step::Answer { bytes, keeps_alive: true }));
            }
            Opcode::Close => {
                let (code, reason) = goodbye(payload)?;
                if self.awaited == Awaited::Goodbye {
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

/// The code and the words of a Close frame (RFC 6455, 5.5.1).
fn goodbye(payload: &[u8]) -> Result<(Option<u16>, &str), WebSocketFault> {
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

/// Whether a code may stand in a Close frame: those of RFC 6455 (7.4) and of IANA's registry of close codes, and those of
/// libraries and applications. 1005, 1006 and 1015 stand for what no frame says.
fn may_be_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}
