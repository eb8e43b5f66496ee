//! The protocols that devices speak, each a state machine over bytes: no socket, no clock.
//!
//! [`Session`] is one connection's state in its protocol. The engine gives it what came from the socket and sends what it
//! writes; it says what that means to the device: ready, an answer, a message.

pub mod http;
pub mod mqtt;

use std::borrow::Cow;
use std::fmt;

use crate::tally::ErrorKind;
use crate::template::Values;
use http::{HttpFault, HttpRequest};
use mqtt::{MqttConnect, MqttFault, MqttMessage};

/// What a device sends.
#[derive(Debug, Clone)]
pub enum Message {
    /// A request of HTTP/1.1; its reply is the answer.
    Http(Box<HttpRequest>),
    /// A packet of MQTT; its acknowledgement is the answer, if it has one.
    Mqtt(Box<MqttMessage>),
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

/// What ends a connection: what a peer did against its protocol or refused, or what cannot be sent to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// In HTTP.
    Http(HttpFault),
    /// In MQTT.
    Mqtt(MqttFault),
    /// A message of another protocol than the session's.
    Foreign,
}

impl Fault {
    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Http(HttpFault::Unanswered | HttpFault::Cut) => ErrorKind::Closed,
            Self::Http(_) => ErrorKind::Protocol,
            Self::Mqtt(fault) => fault.kind(),
            Self::Foreign => ErrorKind::Unsendable,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(fault) => fault.fmt(f),
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
    /// MQTT.
    Mqtt(mqtt::Client),
}

/// Which protocol a kind of devices speaks, and what opens a session in it.
#[derive(Debug, Clone)]
pub enum Protocol {
    /// HTTP/1.1.
    Http,
    /// MQTT 3.1.1 or 5.0.
    Mqtt(Box<MqttConnect>),
}

impl Session {
    /// Before the first connection.
    pub fn new(protocol: &Protocol) -> Self {
        match protocol {
            Protocol::Http => Self::Http(http::Reader::default()),
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

    /// Writes to `out` what opens the session. Without that it is ready at once: gives true, and never says
    /// [`Heard::Ready`].
    pub fn open(
        &mut self,
        protocol: &Protocol,
        values: &mut Values<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, Fault> {
        match (self, protocol) {
            (Self::Http(_), Protocol::Http) => Ok(true),
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
            (Self::Mqtt(client), Message::Mqtt(message)) => {
                client.send(message, values, out).map_err(Fault::Mqtt)
            }
            _ => Err(Fault::Foreign),
        }
    }

    /// Reads on. Gives how many bytes were used, which may be none: the rest has to be given again with more behind it.
    /// It stops at the first that is to be said. `checks` are those of what was sent last; to `out` goes what has to be
    /// sent at once (the answer to a ping, an acknowledgement).
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
            Self::Mqtt(client) => client.read(input, checks, out).map_err(Fault::Mqtt),
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
            Self::Mqtt(client) => Err(Fault::Mqtt(client.end(unread))),
        }
    }

    /// Writes to `out` what a peer wants to hear before the connection is closed, if anything.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::Http(_) => {}
            Self::Mqtt(client) => client.close(out),
        }
    }

    /// Whether the connection is meant to last while nothing is under way: its end is an error even then.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Http(_) => false,
            Self::Mqtt(_) => true,
        }
    }

    /// When [`Self::keep_alive`] is due at the latest, the last bytes having been sent at `last_sent_ns`. `None`: the peer
    /// bears silence.
    pub fn keep_alive_due(&self, last_sent_ns: u64) -> Option<u64> {
        match self {
            Self::Http(_) => None,
            Self::Mqtt(client) => client.keep_alive_due(last_sent_ns),
        }
    }

    /// Writes to `out` what keeps the connection from being given up.
    pub fn keep_alive(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::Http(_) => {}
            Self::Mqtt(client) => client.keep_alive(out),
        }
    }

    /// Whether that was not answered yet.
    pub fn awaits_pong(&self) -> bool {
        match self {
            Self::Http(_) => false,
            Self::Mqtt(client) => client.awaits_pong(),
        }
    }
}

/// A message that is the same each time and needs no state: it can be sent as it stands, and has an answer.
pub fn fixed<'m>(session: &mut Session, message: &'m Message, checks: &Checks) -> Option<&'m [u8]> {
    match (session, message) {
        (Session::Http(reader), Message::Http(request)) => {
            let bytes = request.fixed()?;
            reader.expect(request.is_head(), checks);
            Some(bytes)
        }
        _ => None,
    }
}

/// Whether a text stands somewhere in another.
pub(crate) fn contains(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || text.windows(part.len()).any(|window| window == part)
}

/// What of a payload is missing that a check wants.
pub(crate) fn missing_part<'c>(checks: &'c Checks, payload: &[u8]) -> Option<&'c str> {
    checks.body.iter().map(String::as_str).find(|part| !contains(payload, part.as_bytes()))
}
