//! The protocols that devices speak, each a state machine over bytes: no socket, no clock.
//!
//! [`Session`] is one connection's state in its protocol. The engine gives it what came from the socket and sends what it
//! writes; it says what that means to the device: ready, an answer, a message.

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
use websocket::{Goodbye, WebSocketFault};

/// So much of a body or of a message is looked at by checks.
const LOOKED_AT_BYTES: usize = 64 * 1024;

/// What a device sends. It is of the protocol of its kind of devices.
#[derive(Debug, Clone)]
pub enum Message {
    /// A request of HTTP/1.1; its reply is the answer.
    Http(Box<HttpRequest>),
    /// A message of WebSocket. What comes back is a message, too.
    WebSocket {
        /// Whether it is text; then its payload is UTF-8.
        is_text: bool,
        /// What it says.
        payload: Template,
    },
    /// A ping of WebSocket; its pong is the answer.
    WebSocketPing,
    /// A goodbye of WebSocket; the server's is the answer, and with it the connection is over.
    WebSocketClose(Goodbye),
    /// A frame straight on TCP; if so said, the next that comes is the answer.
    Raw(Box<RawMessage>),
    /// A packet of MQTT; its acknowledgement is the answer, if it has one.
    Mqtt(Box<MqttMessage>),
}

impl Message {
    /// Whether an answer to it will come; without, it is done with the sending.
    pub fn is_answered(&self) -> bool {
        match self {
            Self::Http(_) | Self::WebSocketPing | Self::WebSocketClose(_) => true,
            Self::WebSocket { .. } => false,
            Self::Raw(message) => message.is_answered(),
            Self::Mqtt(message) => message.is_answered(),
        }
    }
}

/// What an answer must be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checks {
    /// The statuses that are right; none named: 200 to 399 for HTTP, reason codes below 128 for MQTT.
    pub statuses: Vec<(u16, u16)>,
    /// Fields of HTTP's head: name, and what its value must contain (nothing: that it is there).
    pub fields: Vec<(String, String)>,
    /// What the first 64 kB of the body or of the message must contain.
    pub body: Vec<String>,
}

/// Whether an answer to what was sent will come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The session will say [`Heard::Answer`].
    Awaited,
    /// With the sending, all is done.
    Done,
}

/// What a session has read.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard<'a> {
    /// Nothing whole yet.
    Nothing,
    /// What opens a session is done: it can be used.
    Ready,
    /// The answer to what was sent last.
    Answer(Answer),
    /// A message that nobody has to have asked for: its payload.
    Message(&'a [u8]),
}

/// An answer that has come wholly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Bytes of its body.
    pub bytes: u64,
    /// Whether the connection can be used again.
    pub keeps_alive: bool,
    /// What about it is not right; `None`: nothing.
    pub wrong: Option<(ErrorKind, Cow<'static, str>)>,
}

/// What a peer did against its protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// In HTTP.
    Http(HttpFault),
    /// In WebSocket.
    WebSocket(WebSocketFault),
    /// In frames straight on TCP.
    Raw(RawFault),
    /// In MQTT.
    Mqtt(MqttFault),
    /// A message of another protocol than the session's.
    Foreign,
}

impl Fault {
    /// As what it is counted.
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
            Self::Foreign => f.write_str("the device does not speak the message's protocol"),
        }
    }
}

/// One connection's state in its protocol.
#[derive(Debug)]
pub enum Session {
    /// HTTP/1.1.
    Http(http::Reader),
    /// WebSocket.
    WebSocket(websocket::Connection),
    /// Frames straight on TCP.
    Raw(raw::Reader),
    /// MQTT.
    Mqtt(mqtt::Client),
}

/// Which protocol a kind of devices speaks, and what opens a session in it.
#[derive(Debug, Clone)]
pub enum Protocol {
    /// HTTP/1.1.
    Http,
    /// WebSocket: how to ask for the upgrade.
    WebSocket(Arc<websocket::Upgrade>),
    /// Frames straight on TCP.
    Raw(Arc<raw::Framing>),
    /// MQTT 3.1.1 or 5.0.
    Mqtt(Box<MqttConnect>),
}

impl Session {
    /// Before the first connection.
    pub fn new(protocol: &Protocol) -> Self {
        match protocol {
            Protocol::Http => Self::Http(http::Reader::default()),
            Protocol::WebSocket(_) => Self::WebSocket(websocket::Connection::default()),
            Protocol::Raw(framing) => Self::Raw(raw::Reader::new(framing)),
            Protocol::Mqtt(connect) => Self::Mqtt(mqtt::Client::new(connect)),
        }
    }

    /// For a new connection; what outlives one is kept.
    pub fn renew(&mut self, protocol: &Protocol) {
        match (&mut *self, protocol) {
            (Self::Mqtt(client), Protocol::Mqtt(connect)) => client.renew(connect),
            _ => *self = Self::new(protocol),
        }
    }

    /// Whether the connection is meant to last while nothing is under way: more is lost with it than itself (subscriptions,
    /// a place in a conversation), so its end is an error even then.
    pub fn is_lasting(&self) -> bool {
        !matches!(self, Self::Http(_))
    }

    /// Writes to `out` what opens the session. Without that it is ready at once: gives true, and never says
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

    /// Writes a message to `out`; `checks` are for its answer. `scratch` is overwritten.
    pub fn send(
        &mut self,
        message: &Message,
        checks: &Checks,
        values: &mut Values<'_>,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<Sent, Fault> {
        match (self, message) {
            (Self::Http(reader), Message::Http(request)) => {
                reader.expect(request.is_head(), checks);
                request.render(values, scratch, out);
                Ok(Sent::Awaited)
            }
            (Self::WebSocket(connection), Message::WebSocket { is_text, payload }) => {
                connection.send(*is_text, payload, values, scratch, out);
                Ok(Sent::Done)
            }
            (Self::WebSocket(connection), Message::WebSocketPing) => {
                connection.ping(out);
                Ok(Sent::Awaited)
            }
            (Self::WebSocket(connection), Message::WebSocketClose(goodbye)) => {
                connection.say_goodbye(goodbye, out);
                Ok(Sent::Awaited)
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

    /// Reads on. Gives how many bytes were used, which may be none: the rest has to be given again with more behind it.
    /// It stops at the first that is to be said. `checks` are those of what was sent last; to `out` goes what has to be
    /// sent at once (the answer to a ping, an acknowledgement), also with a fault (why the session is ended).
    pub fn read<'a>(
        &'a mut self,
        input: &'a [u8],
        checks: &Checks,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Heard<'a>), Fault> {
        match self {
            Self::Http(reader) => match reader.read(input).map_err(Fault::Http)? {
                (used, Some(reply)) => Ok((used, Heard::Answer(reader.answer(reply, checks)))),
                (used, None) => Ok((used, Heard::Nothing)),
            },
            Self::WebSocket(connection) => connection.read(input, out).map_err(Fault::WebSocket),
            Self::Raw(reader) => reader.read(input, checks).map_err(Fault::Raw),
            Self::Mqtt(client) => client.read(input, checks, out).map_err(Fault::Mqtt),
        }
    }

    /// The message that was heard last is not needed any more: a large one's memory is given back.
    pub fn forget(&mut self) {
        match self {
            Self::Http(_) | Self::Mqtt(_) => {}
            Self::WebSocket(connection) => connection.forget(),
            Self::Raw(reader) => reader.forget(),
        }
    }

    /// The connection will be closed without waiting for anything more: writes to `out` what the peer wants to hear before,
    /// if anything.
    pub fn leave(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::WebSocket(connection) => connection.leave(out),
            Self::Mqtt(client) => client.leave(out),
            Self::Http(_) | Self::Raw(_) => {}
        }
    }

    /// The peer has closed the connection; `unread` of what it sent was not used. [`Heard::Nothing`] if nothing was
    /// under way.
    pub fn end(&mut self, unread: &[u8], checks: &Checks) -> Result<Heard<'_>, Fault> {
        match self {
            Self::Http(reader) => match reader.end(unread).map_err(Fault::Http)? {
                Some(reply) => Ok(Heard::Answer(reader.answer(reply, checks))),
                None => Ok(Heard::Nothing),
            },
            Self::WebSocket(connection) => {
                connection.end(unread).map_err(Fault::WebSocket).map(|()| Heard::Nothing)
            }
            Self::Raw(reader) => reader.end(unread).map_err(Fault::Raw).map(|()| Heard::Nothing),
            Self::Mqtt(client) => Err(Fault::Mqtt(client.end(unread))),
        }
    }

    /// When [`Self::keep_alive`] is due at the latest, the last bytes having been sent at `last_sent_ns`. `None`: the peer
    /// bears silence.
    pub fn keep_alive_due(&self, last_sent_ns: u64) -> Option<u64> {
        match self {
            Self::Mqtt(client) => client.keep_alive_due(last_sent_ns),
            Self::Http(_) | Self::WebSocket(_) | Self::Raw(_) => None,
        }
    }

    /// Writes to `out` what keeps the connection from being given up.
    pub fn keep_alive(&mut self, out: &mut Vec<u8>) {
        if let Self::Mqtt(client) = self {
            client.keep_alive(out);
        }
    }

    /// Whether that was not answered yet.
    pub fn awaits_pong(&self) -> bool {
        matches!(self, Self::Mqtt(client) if client.awaits_pong())
    }
}

/// A message that is the same each time and needs no state: it can be sent as it stands.
pub fn fixed<'m>(session: &mut Session, message: &'m Message, checks: &Checks) -> Option<(&'m [u8], Sent)> {
    match (session, message) {
        (Session::Http(reader), Message::Http(request)) => {
            let bytes = request.fixed()?;
            reader.expect(request.is_head(), checks);
            Some((bytes, Sent::Awaited))
        }
        (Session::Raw(reader), Message::Raw(message)) => {
            let bytes = message.fixed()?;
            Some((bytes, reader.sent(message)))
        }
        // Each frame of WebSocket has a mask of its own, packets of MQTT have identifiers.
        _ => None,
    }
}

/// Whether a text stands somewhere in another.
pub(crate) fn contains(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || text.windows(part.len()).any(|window| window == part)
}

/// What of a payload's beginning is missing that a check wants.
pub(crate) fn missing_part<'c>(checks: &'c Checks, payload: &[u8]) -> Option<&'c str> {
    let payload = &payload[..payload.len().min(LOOKED_AT_BYTES)];
    checks.body.iter().map(String::as_str).find(|part| !contains(payload, part.as_bytes()))
}
