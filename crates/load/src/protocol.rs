//! The protocols that devices speak: state machines over bytes, without sockets or clocks.
//!
//! A [`Session`] is the protocol state of one connection. The engine passes it the bytes from the socket, and sends the bytes that the
//! session writes. The session reports what the received bytes mean to the device: ready, an answer, a message.

pub mod http;
pub mod mqtt;
pub mod raw;
pub mod websocket;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::tally::ErrorKind;
use crate::template::{Template, Values};
use http::{HttpFault, HttpRequest};
use mqtt::{MqttConnect, MqttFault, MqttMessage};
use raw::{RawFault, RawMessage};
use websocket::{CloseFrame, WebSocketFault};

/// Number of bytes at the beginning of a body or message that checks examine.
const CHECKED_BYTES: usize = 64 * 1024;

/// A message of a device, in the device's protocol.
#[derive(Debug, Clone)]
pub enum Message {
    /// An HTTP/1.1 request; its answer is the reply.
    Http(Box<HttpRequest>),
    /// A WebSocket message. It has no answer; messages from the server are independent of it.
    WebSocket {
        /// Whether it is a text message, with a UTF-8 payload.
        is_text: bool,
        /// The payload.
        payload: Template,
    },
    /// A WebSocket ping; its answer is the pong.
    WebSocketPing,
    /// A WebSocket Close frame; its answer is the server's Close frame, which ends the connection.
    WebSocketClose(CloseFrame),
    /// A frame directly on TCP. If [`RawMessage::is_answered`], its answer is the next frame.
    Raw(Box<RawMessage>),
    /// An MQTT packet; its answer is the acknowledgement, if it has one.
    Mqtt(Box<MqttMessage>),
}

impl Message {
    /// Whether the message has an answer. Otherwise it is done once it is sent.
    pub fn is_answered(&self) -> bool {
        match self {
            Self::Http(_) | Self::WebSocketPing | Self::WebSocketClose(_) => true,
            Self::WebSocket { .. } => false,
            Self::Raw(message) => message.is_answered(),
            Self::Mqtt(message) => message.is_answered(),
        }
    }
}

/// Conditions for an answer or a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checks {
    /// Ranges of accepted statuses. Empty: 200 to 399 for HTTP, reason codes below 128 for MQTT.
    pub statuses: Vec<(u16, u16)>,
    /// HTTP header fields: name, and a text that the value must contain (empty: the field must exist).
    pub fields: Vec<(String, String)>,
    /// Texts that the first 64 kB of the body or message must contain.
    pub body: Vec<String>,
}

/// Whether a message that was sent will have an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOutcome {
    /// The session will report [`Heard::Answer`].
    Awaited,
    /// No answer will come.
    Done,
}

/// What a session has read.
#[derive(Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// Nothing complete yet.
    Nothing,
    /// The session is open and can be used.
    Ready,
    /// The answer to the last message.
    Answer(Answer),
    /// The payload of a message that is not an answer.
    Message(&'a [u8]),
}

/// A complete answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Size of its body in bytes.
    pub bytes: u64,
    /// Whether the connection can be used again.
    pub keeps_alive: bool,
    /// Why the answer fails its checks; `None` if it passes.
    pub wrong: Option<(ErrorKind, Cow<'static, str>)>,
}

/// A violation of the protocol by the peer, or a message that cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// In HTTP.
    Http(HttpFault),
    /// In WebSocket.
    WebSocket(WebSocketFault),
    /// In frames directly on TCP.
    Raw(RawFault),
    /// In MQTT.
    Mqtt(MqttFault),
    /// Message and session belong to different protocols.
    Foreign,
}

impl Fault {
    /// Returns the kind of error under which the fault is counted.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Http(HttpFault::Unanswered | HttpFault::Cut) => ErrorKind::Closed,
            Self::Http(_) => ErrorKind::Protocol,
            Self::WebSocket(fault) => fault.kind(),
            Self::Raw(fault) => fault.kind(),
            Self::Mqtt(fault) => fault.kind(),
            Self::Foreign => ErrorKind::Unsendable,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(fault) => fault.fmt(f),
            Self::WebSocket(fault) => fault.fmt(f),
            Self::Raw(fault) => fault.fmt(f),
            Self::Mqtt(fault) => fault.fmt(f),
            Self::Foreign => f.write_str("the message and the device use different protocols"),
        }
    }
}

/// The protocol state of one connection.
#[derive(Debug)]
pub enum Session {
    /// HTTP/1.1.
    Http(http::Reader),
    /// WebSocket.
    WebSocket(websocket::Connection),
    /// Frames directly on TCP.
    Raw(raw::Reader),
    /// MQTT.
    Mqtt(mqtt::Client),
}

/// The protocol of a group of devices, with the data that opens a session.
#[derive(Debug, Clone)]
pub enum Protocol {
    /// HTTP/1.1.
    Http,
    /// WebSocket, with the upgrade request.
    WebSocket(Arc<websocket::Upgrade>),
    /// Frames directly on TCP.
    Raw(Arc<raw::Framing>),
    /// MQTT 3.1.1 or 5.0.
    Mqtt(Box<MqttConnect>),
}

impl Session {
    /// Creates the state before the first connection.
    pub fn new(protocol: &Protocol) -> Self {
        match protocol {
            Protocol::Http => Self::Http(http::Reader::default()),
            Protocol::WebSocket(_) => Self::WebSocket(websocket::Connection::default()),
            Protocol::Raw(framing) => Self::Raw(raw::Reader::new(framing)),
            Protocol::Mqtt(connect) => Self::Mqtt(mqtt::Client::new(connect)),
        }
    }

    /// Resets the state for a new connection, except for state that outlives a connection.
    pub fn reset(&mut self, protocol: &Protocol) {
        match (&mut *self, protocol) {
            (Self::Mqtt(client), Protocol::Mqtt(connect)) => client.reset(connect),
            _ => *self = Self::new(protocol),
        }
    }

    /// Whether the end of an idle connection is an error, because state is lost with it: subscriptions, the position in a conversation.
    pub fn is_long_lived(&self) -> bool {
        !matches!(self, Self::Http(_))
    }

    /// Writes the bytes that open the session to `out`. Returns whether the session is ready immediately, in which case it never reports
    /// [`Heard::Ready`].
    pub fn open(
        &mut self,
        protocol: &Protocol,
        values: &mut Values<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, Fault> {
        match (self, protocol) {
            (Self::Http(_), Protocol::Http) | (Self::Raw(_), Protocol::Raw(_)) => Ok(true),
            (Self::WebSocket(connection), Protocol::WebSocket(upgrade)) => {
                connection.open(upgrade, values, out);
                Ok(false)
            }
            (Self::Mqtt(client), Protocol::Mqtt(connect)) => {
                client.open(connect, values, out).map_err(Fault::Mqtt)?;
                Ok(false)
            }
            _ => Err(Fault::Foreign),
        }
    }

    /// Writes a message to `out`; `checks` apply to its answer. `scratch` is overwritten.
    pub fn send(
        &mut self,
        message: &Message,
        checks: &Checks,
        values: &mut Values<'_>,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<SendOutcome, Fault> {
        match (self, message) {
            (Self::Http(reader), Message::Http(request)) => {
                reader.expect(request.is_head(), checks);
                request.render(values, scratch, out);
                Ok(SendOutcome::Awaited)
            }
            (Self::WebSocket(connection), Message::WebSocket { is_text, payload }) => {
                connection.send(*is_text, payload, values, scratch, out);
                Ok(SendOutcome::Done)
            }
            (Self::WebSocket(connection), Message::WebSocketPing) => {
                connection.ping(out);
                Ok(SendOutcome::Awaited)
            }
            (Self::WebSocket(connection), Message::WebSocketClose(frame)) => {
                connection.close_with(frame, out);
                Ok(SendOutcome::Awaited)
            }
            (Self::Raw(reader), Message::Raw(message)) => {
                message.render(values, out);
                Ok(reader.sent(message))
            }
            (Self::Mqtt(client), Message::Mqtt(message)) => {
                client.send(message, values, out).map_err(Fault::Mqtt)
            }
            _ => Err(Fault::Foreign),
        }
    }

    /// Reads until the first event. Returns the event and the number of bytes used, which may be 0. The caller passes the unused bytes
    /// again, followed by more. `checks` are those of the last message. `out` receives automatic replies (a pong, an acknowledgement) and,
    /// after a fault, the closing message.
    pub fn read<'a>(
        &'a mut self,
        input: &'a [u8],
        checks: &Checks,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Received<'a>), Fault> {
        match self {
            Self::Http(reader) => match reader.read(input).map_err(Fault::Http)? {
                (used, Some(reply)) => Ok((used, Received::Answer(reader.answer(reply, checks)))),
                (used, None) => Ok((used, Received::Nothing)),
            },
            Self::WebSocket(connection) => connection.read(input, out).map_err(Fault::WebSocket),
            Self::Raw(reader) => reader.read(input, checks).map_err(Fault::Raw),
            Self::Mqtt(client) => client.read(input, checks, out).map_err(Fault::Mqtt),
        }
    }

    /// Releases the buffer of the last message if it is large.
    pub fn release_buffer(&mut self) {
        match self {
            Self::Http(_) | Self::Mqtt(_) => {}
            Self::WebSocket(connection) => connection.forget(),
            Self::Raw(reader) => reader.forget(),
        }
    }

    /// Writes the protocol's closing message to `out`, if it has one. The caller then closes the connection without waiting.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::WebSocket(connection) => connection.close(out),
            Self::Mqtt(client) => client.close(out),
            Self::Http(_) | Self::Raw(_) => {}
        }
    }

    /// Handles the closing of the connection by the peer; `unread` contains the unused bytes. Returns [`Heard::Nothing`] if nothing was
    /// pending.
    pub fn end(&mut self, unread: &[u8], checks: &Checks) -> Result<Received<'_>, Fault> {
        match self {
            Self::Http(reader) => match reader.end(unread).map_err(Fault::Http)? {
                Some(reply) => Ok(Received::Answer(reader.answer(reply, checks))),
                None => Ok(Received::Nothing),
            },
            Self::WebSocket(connection) => {
                connection.end(unread).map_err(Fault::WebSocket).map(|()| Received::Nothing)
            }
            Self::Raw(reader) => reader.end(unread).map_err(Fault::Raw).map(|()| Received::Nothing),
            Self::Mqtt(client) => Err(Fault::Mqtt(client.end(unread))),
        }
    }

    /// Returns when [`Self::keep_alive`] is due, if the last bytes were sent at `last_sent_ns`. `None` without keep-alive.
    pub fn keep_alive_due(&self, last_sent_ns: u64) -> Option<u64> {
        match self {
            Self::Mqtt(client) => client.keep_alive_due(last_sent_ns),
            Self::Http(_) | Self::WebSocket(_) | Self::Raw(_) => None,
        }
    }

    /// Writes a keep-alive ping to `out`.
    pub fn keep_alive(&mut self, out: &mut Vec<u8>) {
        if let Self::Mqtt(client) = self {
            client.keep_alive(out);
        }
    }

    /// Whether a keep-alive ping has not been answered yet.
    pub fn awaits_pong(&self) -> bool {
        matches!(self, Self::Mqtt(client) if client.awaits_pong())
    }
}

/// Returns the bytes of a message that never changes and can be sent without rendering.
pub fn fixed<'m>(
    session: &mut Session,
    message: &'m Message,
    checks: &Checks,
) -> Option<(&'m [u8], SendOutcome)> {
    match (session, message) {
        (Session::Http(reader), Message::Http(request)) => {
            let bytes = request.fixed()?;
            reader.expect(request.is_head(), checks);
            Some((bytes, SendOutcome::Awaited))
        }
        (Session::Raw(reader), Message::Raw(message)) => {
            let bytes = message.fixed()?;
            Some((bytes, reader.sent(message)))
        }
        // WebSocket frames have random masks, and MQTT packets have identifiers.
        _ => None,
    }
}

/// Whether `text` contains `part`.
pub(crate) fn contains(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || text.windows(part.len()).any(|window| window == part)
}

/// Returns the first text of the checks that is missing at the beginning of the payload.
pub(crate) fn missing_part<'c>(checks: &'c Checks, payload: &[u8]) -> Option<&'c str> {
    let payload = &payload[..payload.len().min(CHECKED_BYTES)];
    checks.body.iter().map(String::as_str).find(|part| !contains(payload, part.as_bytes()))
}
