//! MQTT 3.1.1 and 5.0 as a device speaks it (OASIS, mqtt-v3.1.1 and mqtt-v5.0). No socket, no clock.
//!
//! A device has one message under way at a time: so a broker's Receive Maximum, which is at least one, is never exceeded.
//! What a connection left unacknowledged when it broke is an error of its step and is not sent again; its identifiers are
//! not used again either until all others were. Topic aliases are not used, and none are allowed to the broker.
//!
//! The packets are our own. An idle connection of mqtt-protocol-core 0.7.9 takes 805 bytes, which would do (here it is 48).
//! But each message of 64 bytes takes it 5 to 11 allocations, where a device should need none, and 420 to 1,000 ns, where
//! here it is 70 to 100 ns and the rest of a message's way through the engine and the kernel some 2,000. The tests hold
//! what is written and read here against that crate.

mod packet;
mod reason;
mod write;

use std::borrow::Cow;
use std::fmt;

use super::{Answer, Checks, Heard, Sent};
use crate::clock::SECOND_NS;
use crate::tally::ErrorKind;
use crate::template::{Template, Values};
use packet::{Connack, Frame, LARGEST_BYTES, Packet, Publish};

pub use packet::Kind;
pub use reason::Reason;
pub use write::{filter_fault, topic_fault};

/// Of what a broker says in its own words, so many characters are told.
const LONGEST_QUOTE: usize = 200;

/// Which MQTT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// 3.1.1.
    V311,
    /// 5.0.
    V5,
}

/// How sure a message's delivery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Qos {
    /// Sent, and done.
    AtMostOnce = 0,
    /// Acknowledged.
    AtLeastOnce = 1,
    /// Acknowledged, released, completed.
    ExactlyOnce = 2,
}

/// What opens a session.
#[derive(Debug, Clone)]
pub struct MqttConnect {
    /// Which MQTT.
    pub version: Version,
    /// The client's identifier; brokers end the session of another device that has the same.
    pub client_id: Template,
    /// The user's name, if the device gives one.
    pub user: Option<Template>,
    /// Its password. 3.1.1 takes none without a user.
    pub password: Option<Template>,
    /// After so long without a packet of ours the broker may give the device up; 0: never.
    pub keep_alive_seconds: u16,
    /// Whether the broker forgets an older session of this client.
    pub is_clean: bool,
    /// How long MQTT 5 brokers keep the session when the connection has ended. With 3.1.1 a session that is not clean is
    /// kept for ever.
    pub session_expiry_seconds: u32,
    /// What the broker publishes if the device goes without saying so.
    pub will: Option<Will>,
}

/// A message that the broker publishes in place of a device that is gone.
#[derive(Debug, Clone)]
pub struct Will {
    /// Where.
    pub topic: Template,
    /// What.
    pub payload: Template,
    /// How.
    pub qos: Qos,
    /// Whether the broker keeps it for those who subscribe later.
    pub is_retained: bool,
}

/// What a device sends.
#[derive(Debug, Clone)]
pub enum MqttMessage {
    /// Publishes; done once it is sent (QoS 0) or acknowledged.
    Publish {
        /// Where.
        topic: Template,
        /// What.
        payload: Template,
        /// How.
        qos: Qos,
        /// Whether the broker keeps it for those who subscribe later.
        is_retained: bool,
    },
    /// Subscribes to filters, each with the most that its messages may come with.
    Subscribe(Vec<(Template, Qos)>),
    /// Ends subscriptions.
    Unsubscribe(Vec<Template>),
    /// Asks whether the broker is there.
    Ping,
}

impl MqttMessage {
    /// Whether the broker acknowledges it.
    pub fn is_answered(&self) -> bool {
        !matches!(self, Self::Publish { qos: Qos::AtMostOnce, .. })
    }
}

/// What went wrong with a broker, or with what was to be sent to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MqttFault {
    /// A packet is not what the standard says: which one, and what about it.
    Malformed(Kind, &'static str),
    /// A packet that may not come now, or never from a broker.
    Unexpected(Kind),
    /// A packet of so many bytes.
    Large(u64),
    /// A reason for each of so many filters was due, and others came.
    Reasons(usize),
    /// The broker uses an identifier that it has not released.
    InUse(u16),
    /// The broker remembers a session that was to be forgotten.
    SessionPresent,
    /// The connection was refused, with the broker's own words if it had any.
    Refused(Reason, Option<Box<str>>),
    /// The broker ended the connection, and said why.
    Disconnected(Reason, Option<Box<str>>),
    /// The broker closed the connection without a word.
    Closed,
    /// The broker closed the connection within a packet.
    Cut,
    /// What was to be sent cannot be.
    Unsendable(&'static str),
}

impl MqttFault {
    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused(..) | Self::Disconnected(..) => ErrorKind::Status,
            Self::Closed | Self::Cut => ErrorKind::Closed,
            Self::Unsendable(_) => ErrorKind::Unsendable,
            _ => ErrorKind::Protocol,
        }
    }
}

impl fmt::Display for MqttFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(kind, what) => write!(f, "malformed {kind}: {what}"),
            Self::Unexpected(kind) => write!(f, "{kind} out of place"),
            Self::Large(bytes) => write!(f, "a packet of {bytes} bytes, more than {LARGEST_BYTES}"),
            Self::Reasons(count) => write!(f, "{count} reasons for another number of filters"),
            Self::InUse(id) => write!(f, "identifier {id} used again before it was released"),
            Self::SessionPresent => f.write_str("CONNACK: a session is present that was to be clean"),
            Self::Refused(reason, None) | Self::Disconnected(reason, None) => reason.fmt(f),
            Self::Refused(reason, Some(words)) | Self::Disconnected(reason, Some(words)) => {
                write!(f, "{reason}: {words}")
            }
            Self::Closed => f.write_str("closed without DISCONNECT"),
            Self::Cut => f.write_str("closed within a packet"),
            Self::Unsendable(what) => write!(f, "cannot be sent: {what}"),
        }
    }
}

/// What the session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Connack,
    Nothing,
    Puback,
    Pubrec,
    Pubcomp,
    /// With a reason for each of so many filters.
    Suback(u16),
    Unsuback(u16),
    Pingresp,
}

/// A client's side of a connection.
#[derive(Debug)]
pub struct Client {
    version: Version,
    is_clean: bool,
    awaited: Awaited,
    /// The identifier of what was sent last.
    id: u16,
    /// Identifiers of messages of QoS 2 that came and are not released. A broker that has no place for more than its
    /// peer's Receive Maximum has few of them; more than there are identifiers there cannot be.
    unreleased: Vec<u16>,
    keep_alive_seconds: u16,
    /// Whether a ping was sent that is no step of the device's, and not answered.
    awaits_pong: bool,
    maximum_qos: u8,
    is_retain_available: bool,
    /// The largest packet that the broker takes.
    largest_bytes: u32,
}

impl Client {
    /// Before its first connection.
    pub fn new(connect: &MqttConnect) -> Self {
        Self {
            version: connect.version,
            is_clean: connect.is_clean,
            awaited: Awaited::Connack,
            id: 0,
            unreleased: Vec::new(),
            keep_alive_seconds: connect.keep_alive_seconds,
            awaits_pong: false,
            maximum_qos: 2,
            is_retain_available: true,
            largest_bytes: u32::MAX,
        }
    }

    /// For its next connection: what belongs to the session and not to the connection stays.
    pub fn renew(&mut self, connect: &MqttConnect) {
        let unreleased = if connect.is_clean { Vec::new() } else { std::mem::take(&mut self.unreleased) };
        *self = Self { id: self.id, unreleased, ..Self::new(connect) };
    }

    /// Writes CONNECT.
    pub fn open(
        &mut self,
        connect: &MqttConnect,
        values: &mut Values<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), MqttFault> {
        write::connect(connect, values, out)
    }

    /// Writes a message.
    pub fn send(
        &mut self,
        message: &MqttMessage,
        values: &mut Values<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Sent, MqttFault> {
        let (version, largest_bytes) = (self.version, self.largest_bytes);
        self.awaited = match message {
            MqttMessage::Publish { topic, payload, qos, is_retained } => {
                if *qos as u8 > self.maximum_qos {
                    return Err(MqttFault::Unsendable("the broker does not take that QoS"));
                }
                if *is_retained && !self.is_retain_available {
                    return Err(MqttFault::Unsendable("the broker does not retain messages"));
                }
                let id = if *qos == Qos::AtMostOnce { 0 } else { self.next_id() };
                let publish = write::Publish { topic, payload, qos: *qos, is_retained: *is_retained, id };
                write::publish(version, &publish, largest_bytes, values, out)?;
                match qos {
                    Qos::AtMostOnce => Awaited::Nothing,
                    Qos::AtLeastOnce => Awaited::Puback,
                    Qos::ExactlyOnce => Awaited::Pubrec,
                }
            }
            MqttMessage::Subscribe(filters) => {
                let count = count(filters)?;
                let id = self.next_id();
                write::filters(version, Kind::SUBSCRIBE, id, largest_bytes, out, |out| {
                    for (filter, qos) in filters {
                        write::filter(out, filter, values)?;
                        out.push(*qos as u8);
                    }
                    Ok(())
                })?;
                Awaited::Suback(count)
            }
            MqttMessage::Unsubscribe(filters) => {
                let count = count(filters)?;
                let id = self.next_id();
                write::filters(version, Kind::UNSUBSCRIBE, id, largest_bytes, out, |out| {
                    filters.iter().try_for_each(|filter| write::filter(out, filter, values))
                })?;
                Awaited::Unsuback(count)
            }
            MqttMessage::Ping => {
                write::bare(Kind::PINGREQ, out);
                Awaited::Pingresp
            }
        };
        Ok(if self.awaited == Awaited::Nothing { Sent::Done } else { Sent::Awaited })
    }

    fn next_id(&mut self) -> u16 {
        self.id = self.id.checked_add(1).unwrap_or(1);
        self.id
    }

    /// Writes DISCONNECT, so that the broker does not publish the will.
    pub fn leave(&mut self, out: &mut Vec<u8>) {
        if self.awaited != Awaited::Connack {
            write::bare(Kind::DISCONNECT, out);
        }
    }

    /// When a packet must have been sent, the last one having been sent at `last_sent_ns`. A tenth before the broker may
    /// become impatient, since what is sent takes its time.
    pub fn keep_alive_due(&self, last_sent_ns: u64) -> Option<u64> {
        let is_asked = self.keep_alive_seconds > 0 && self.awaited != Awaited::Connack;
        is_asked.then(|| last_sent_ns + u64::from(self.keep_alive_seconds) * (SECOND_NS / 10 * 9))
    }

    /// Writes a ping.
    pub fn keep_alive(&mut self, out: &mut Vec<u8>) {
        write::bare(Kind::PINGREQ, out);
        self.awaits_pong = true;
    }

    /// Whether a ping of [`Self::keep_alive`] was not answered yet.
    pub fn awaits_pong(&self) -> bool {
        self.awaits_pong
    }

    /// Reads on, as [`super::Session::read`] does.
    pub fn read<'a>(
        &mut self,
        input: &'a [u8],
        checks: &Checks,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Heard<'a>), MqttFault> {
        // A peer that speaks another protocol may never send as much as what it said would mean here.
        if self.awaited == Awaited::Connack
            && let Some(first) = input.first()
            && Kind::of(*first) != Kind::CONNACK
        {
            return Err(MqttFault::Unexpected(Kind::of(*first)));
        }
        let mut used = 0;
        while let Some(frame) = Frame::first_of(&input[used..])? {
            used += frame.length;
            let heard = self.hear(&frame, checks, out)?;
            if heard != Heard::Nothing {
                return Ok((used, heard));
            }
        }
        Ok((used, Heard::Nothing))
    }

    /// The broker has closed the connection. It should not without having said so, and 3.1.1 gives it no way to.
    pub fn end(&self, unread: &[u8]) -> MqttFault {
        if unread.is_empty() { MqttFault::Closed } else { MqttFault::Cut }
    }

    fn hear<'a>(
        &mut self,
        frame: &Frame<'a>,
        checks: &Checks,
        out: &mut Vec<u8>,
    ) -> Result<Heard<'a>, MqttFault> {
        let kind = frame.kind();
        let packet = packet::parse(self.version, frame)?;
        let unexpected = Err(MqttFault::Unexpected(kind));
        match (packet, self.awaited) {
            (Packet::Connack(connack), Awaited::Connack) => self.connected(&connack),
            (_, Awaited::Connack) | (Packet::Connack(_), _) => unexpected,
            (Packet::Publish(publish), _) => self.published(&publish, out),
            (Packet::Disconnect { reason: code, words }, _) => {
                Err(MqttFault::Disconnected(self.reason(kind, code), quoted(words)))
            }
            (Packet::Pingresp, awaited) => {
                if std::mem::take(&mut self.awaits_pong) {
                    Ok(Heard::Nothing)
                } else if awaited == Awaited::Pingresp {
                    Ok(self.answered(kind, &[0], checks))
                } else {
                    unexpected
                }
            }
            (Packet::Acknowledgement { id, .. }, _) if kind == Kind::PUBREL => {
                let known = self.unreleased.iter().position(|unreleased| *unreleased == id);
                if let Some(at) = known {
                    self.unreleased.swap_remove(at);
                }
                let is_told = known.is_none() && self.version == Version::V5;
                let reason = if is_told { reason::PACKET_IDENTIFIER_NOT_FOUND } else { 0 };
                write::acknowledge(Kind::PUBCOMP, id, reason, out);
                Ok(Heard::Nothing)
            }
            // What is left acknowledges what was sent last.
            (Packet::Acknowledgement { id, .. } | Packet::Filters { id, .. }, _) if id != self.id => {
                unexpected
            }
            (Packet::Acknowledgement { id, reason }, Awaited::Pubrec) if kind == Kind::PUBREC => {
                if reason >= reason::FAILURES {
                    return Ok(self.answered(kind, &[reason], checks));
                }
                write::acknowledge(Kind::PUBREL, id, 0, out);
                self.awaited = Awaited::Pubcomp;
                Ok(Heard::Nothing)
            }
            (Packet::Acknowledgement { reason, .. }, awaited)
                if (kind, awaited) == (Kind::PUBACK, Awaited::Puback)
                    || (kind, awaited) == (Kind::PUBCOMP, Awaited::Pubcomp) =>
            {
                Ok(self.answered(kind, &[reason], checks))
            }
            (Packet::Filters { reasons, .. }, Awaited::Suback(count)) if kind == Kind::SUBACK => {
                self.filtered(kind, reasons, count, checks)
            }
            (Packet::Filters { reasons, .. }, Awaited::Unsuback(count)) if kind == Kind::UNSUBACK => {
                // That of 3.1.1 says nothing of its filters.
                let count = if self.version == Version::V5 { count } else { 0 };
                self.filtered(kind, reasons, count, checks)
            }
            _ => unexpected,
        }
    }

    fn connected<'a>(&mut self, connack: &Connack<'_>) -> Result<Heard<'a>, MqttFault> {
        if connack.reason != 0 {
            let reason = self.reason(Kind::CONNACK, connack.reason);
            return Err(MqttFault::Refused(reason, quoted(connack.words)));
        }
        if connack.is_session_present && self.is_clean {
            return Err(MqttFault::SessionPresent);
        }
        if !connack.is_session_present {
            self.unreleased = Vec::new();
        }
        self.keep_alive_seconds = connack.keep_alive.unwrap_or(self.keep_alive_seconds);
        self.maximum_qos = connack.maximum_qos;
        self.is_retain_available = connack.is_retain_available;
        self.largest_bytes = connack.largest_bytes;
        self.awaited = Awaited::Nothing;
        Ok(Heard::Ready)
    }

    fn published<'a>(&mut self, publish: &Publish<'a>, out: &mut Vec<u8>) -> Result<Heard<'a>, MqttFault> {
        match publish.qos {
            0 => {}
            1 => write::acknowledge(Kind::PUBACK, publish.id, 0, out),
            _ => {
                let is_known = self.unreleased.contains(&publish.id);
                if is_known && !publish.is_duplicate {
                    return Err(MqttFault::InUse(publish.id));
                }
                write::acknowledge(Kind::PUBREC, publish.id, 0, out);
                if is_known {
                    return Ok(Heard::Nothing);
                }
                self.unreleased.push(publish.id);
            }
        }
        Ok(Heard::Message(publish.payload))
    }

    fn filtered<'a>(
        &mut self,
        kind: Kind,
        reasons: &[u8],
        count: u16,
        checks: &Checks,
    ) -> Result<Heard<'a>, MqttFault> {
        if reasons.len() != usize::from(count) {
            return Err(MqttFault::Reasons(reasons.len()));
        }
        Ok(self.answered(kind, reasons, checks))
    }

    /// What was sent last has its answer.
    fn answered<'a>(&mut self, kind: Kind, reasons: &[u8], checks: &Checks) -> Heard<'a> {
        self.awaited = Awaited::Nothing;
        let refused = reasons.iter().find(|reason| !allows(checks, **reason));
        let wrong = refused.map(|code| (ErrorKind::Status, Cow::Owned(self.reason(kind, *code).to_string())));
        Heard::Answer(Answer { bytes: 0, keeps_alive: true, wrong })
    }

    fn reason(&self, kind: Kind, code: u8) -> Reason {
        Reason { version: self.version, kind, code }
    }
}

/// The beginning of a broker's own words.
fn quoted(words: Option<&str>) -> Option<Box<str>> {
    words.map(|words| words.chars().take(LONGEST_QUOTE).collect())
}

/// Whether a reason is right.
fn allows(checks: &Checks, reason: u8) -> bool {
    match checks.statuses.as_slice() {
        [] => reason < reason::FAILURES,
        ranges => ranges.iter().any(|(low, high)| (*low..=*high).contains(&u16::from(reason))),
    }
}

/// How many filters there are. None are allowed to be none (mqtt-v5.0, 3.8.3).
fn count<T>(filters: &[T]) -> Result<u16, MqttFault> {
    match u16::try_from(filters.len()) {
        Ok(0) => Err(MqttFault::Unsendable("no filter")),
        Ok(count) => Ok(count),
        Err(_) => Err(MqttFault::Unsendable("more than 65,535 filters")),
    }
}

#[cfg(test)]
mod tests;
