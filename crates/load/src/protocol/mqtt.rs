//! The client side of MQTT 3.1.1 and 5.0 (OASIS, mqtt-v3.1.1 and mqtt-v5.0).
//!
//! A device has one message in flight, so it never exceeds the broker's Receive Maximum, which is at least 1. If a connection breaks before
//! a message is acknowledged, the message's step fails, and the message is not sent again. Its packet identifier is not reused before all
//! others. The client uses no topic aliases and allows none.
//!
//! Packets are parsed and written here because mqtt-protocol-core 0.7.9 is too slow for a load generator. For a message of 64 bytes it
//! needs 5 to 11 allocations and 420 to 1,000 ns; this module needs no allocation and 70 to 100 ns. Engine and kernel take some 2,000 ns
//! per message. That crate's 805 bytes per idle connection would be acceptable (here 48). The tests compare this implementation with that crate.

mod packet;
mod reason;
mod write;

use std::borrow::Cow;
use std::fmt;

use super::{Answer, Checks, Received, SendOutcome};
use crate::clock::SECOND_NS;
use crate::tally::ErrorKind;
use crate::template::{Template, Values};
use packet::{Connack, Frame, MAX_PACKET_BYTES, Packet, Publish};

pub use packet::Kind;
pub use reason::Reason;
pub use write::{filter_fault, topic_fault};

/// Maximum length of a broker's reason string in results, in characters.
const MAX_REASON_CHARS: usize = 200;

/// MQTT version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// 3.1.1.
    V311,
    /// 5.0.
    V5,
}

/// Quality of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Qos {
    /// Not acknowledged.
    AtMostOnce = 0,
    /// Acknowledged.
    AtLeastOnce = 1,
    /// Acknowledged, released, completed.
    ExactlyOnce = 2,
}

/// The parameters of a CONNECT packet.
#[derive(Debug, Clone)]
pub struct MqttConnect {
    /// MQTT version.
    pub version: Version,
    /// Client identifier. A broker ends the session of another client with the same identifier.
    pub client_id: Template,
    /// User name.
    pub user: Option<Template>,
    /// Password. MQTT 3.1.1 does not allow one without a user name.
    pub password: Option<Template>,
    /// Keep Alive: the broker may close a connection that is silent for one and a half times as long. With 0 it never does.
    pub keep_alive_seconds: u16,
    /// Clean Session or Clean Start: whether the broker discards an older session of this client.
    pub is_clean: bool,
    /// How long an MQTT 5 broker keeps the session after the connection has ended. MQTT 3.1.1 keeps a session that is not clean
    /// indefinitely.
    pub session_expiry_seconds: u32,
    /// The message that the broker publishes if the connection ends without DISCONNECT.
    pub will: Option<Will>,
}

/// A will message.
#[derive(Debug, Clone)]
pub struct Will {
    /// Topic.
    pub topic: Template,
    /// Payload.
    pub payload: Template,
    /// Quality of service.
    pub qos: Qos,
    /// Whether the broker retains the message for later subscribers.
    pub is_retained: bool,
}

/// A message of a device.
#[derive(Debug, Clone)]
pub enum MqttMessage {
    /// Publishes a message; done when it is sent (QoS 0) or acknowledged.
    Publish {
        /// Topic.
        topic: Template,
        /// Payload.
        payload: Template,
        /// Quality of service.
        qos: Qos,
        /// Whether the broker retains the message for later subscribers.
        is_retained: bool,
    },
    /// Subscribes to topic filters, each with its maximum QoS.
    Subscribe(Vec<(Template, Qos)>),
    /// Unsubscribes from topic filters.
    Unsubscribe(Vec<Template>),
    /// Sends a PINGREQ.
    Ping,
}

impl MqttMessage {
    /// Whether the broker acknowledges the message.
    pub fn is_answered(&self) -> bool {
        !matches!(self, Self::Publish { qos: Qos::AtMostOnce, .. })
    }
}

/// A violation of MQTT by the broker, a refusal, or a message that cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MqttFault {
    /// A malformed packet: its kind, and what is wrong with it.
    Malformed(Kind, &'static str),
    /// A packet that is not valid at this point, or never valid from a broker.
    Unexpected(Kind),
    /// A packet of this size in bytes, above the limit.
    Large(u64),
    /// The number of reason codes differs from the number of topic filters.
    Reasons(usize),
    /// The broker reused a packet identifier before releasing it.
    InUse(u16),
    /// The broker resumed a session although a clean start was requested.
    SessionPresent,
    /// The broker refused the connection, with its reason string if it sent one.
    Refused(Reason, Option<Box<str>>),
    /// The broker sent DISCONNECT, with its reason string if it sent one.
    Disconnected(Reason, Option<Box<str>>),
    /// The broker closed the connection without DISCONNECT.
    Closed,
    /// The broker closed the connection within a packet.
    Cut,
    /// A message cannot be sent, for this reason.
    Unsendable(&'static str),
}

impl MqttFault {
    /// Returns the kind of error under which the fault is counted.
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
            Self::Unexpected(kind) => write!(f, "unexpected {kind}"),
            Self::Large(bytes) => write!(f, "packet of {bytes} bytes, more than {MAX_PACKET_BYTES}"),
            Self::Reasons(count) => {
                write!(f, "{count} reason codes, which is not the number of topic filters")
            }
            Self::InUse(id) => write!(f, "packet identifier {id} reused before it was released"),
            Self::SessionPresent => f.write_str("CONNACK: session present despite a clean start"),
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

/// The packet that the client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Connack,
    Nothing,
    Puback,
    Pubrec,
    Pubcomp,
    /// With this number of reason codes.
    Suback(u16),
    Unsuback(u16),
    Pingresp,
}

/// The client side of a session.
#[derive(Debug)]
pub struct Client {
    version: Version,
    is_clean: bool,
    awaited: Awaited,
    /// The last packet identifier.
    id: u16,
    /// Packet identifiers of received QoS 2 messages that are not yet released. Usually few; at most all 65,535 identifiers.
    unreleased: Vec<u16>,
    keep_alive_seconds: u16,
    /// Whether a keep-alive ping has not been answered. Such a ping is not a step of the device.
    awaits_pong: bool,
    max_qos: u8,
    is_retain_available: bool,
    /// The broker's Maximum Packet Size.
    max_packet_bytes: u32,
}

impl Client {
    /// Creates the state before the first connection.
    pub fn new(connect: &MqttConnect) -> Self {
        Self {
            version: connect.version,
            is_clean: connect.is_clean,
            awaited: Awaited::Connack,
            id: 0,
            unreleased: Vec::new(),
            keep_alive_seconds: connect.keep_alive_seconds,
            awaits_pong: false,
            max_qos: 2,
            is_retain_available: true,
            max_packet_bytes: u32::MAX,
        }
    }

    /// Resets the state for a new connection, except for state that belongs to the session.
    pub fn reset(&mut self, connect: &MqttConnect) {
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
    ) -> Result<SendOutcome, MqttFault> {
        let (version, max_packet_bytes) = (self.version, self.max_packet_bytes);
        self.awaited = match message {
            MqttMessage::Publish { topic, payload, qos, is_retained } => {
                if *qos as u8 > self.max_qos {
                    return Err(MqttFault::Unsendable("the broker does not support this QoS"));
                }
                if *is_retained && !self.is_retain_available {
                    return Err(MqttFault::Unsendable("the broker does not retain messages"));
                }
                let id = if *qos == Qos::AtMostOnce { 0 } else { self.next_id() };
                let publish = write::Publish { topic, payload, qos: *qos, is_retained: *is_retained, id };
                write::publish(version, &publish, max_packet_bytes, values, out)?;
                match qos {
                    Qos::AtMostOnce => Awaited::Nothing,
                    Qos::AtLeastOnce => Awaited::Puback,
                    Qos::ExactlyOnce => Awaited::Pubrec,
                }
            }
            MqttMessage::Subscribe(filters) => {
                let count = count(filters)?;
                let id = self.next_id();
                write::filters(version, Kind::SUBSCRIBE, id, max_packet_bytes, out, |out| {
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
                write::filters(version, Kind::UNSUBSCRIBE, id, max_packet_bytes, out, |out| {
                    filters.iter().try_for_each(|filter| write::filter(out, filter, values))
                })?;
                Awaited::Unsuback(count)
            }
            MqttMessage::Ping => {
                write::bare(Kind::PINGREQ, out);
                Awaited::Pingresp
            }
        };
        Ok(if self.awaited == Awaited::Nothing { SendOutcome::Done } else { SendOutcome::Awaited })
    }

    fn next_id(&mut self) -> u16 {
        self.id = self.id.checked_add(1).unwrap_or(1);
        self.id
    }

    /// Writes DISCONNECT, so that the broker does not publish the will.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        if self.awaited != Awaited::Connack {
            write::bare(Kind::DISCONNECT, out);
        }
    }

    /// Returns when the next packet must be sent, if the last one was sent at `last_sent_ns`: after nine tenths of the Keep Alive time,
    /// because a packet takes time to arrive.
    pub fn keep_alive_due(&self, last_sent_ns: u64) -> Option<u64> {
        let is_enabled = self.keep_alive_seconds > 0 && self.awaited != Awaited::Connack;
        is_enabled.then(|| last_sent_ns + u64::from(self.keep_alive_seconds) * (SECOND_NS / 10 * 9))
    }

    /// Writes a keep-alive ping.
    pub fn keep_alive(&mut self, out: &mut Vec<u8>) {
        write::bare(Kind::PINGREQ, out);
        self.awaits_pong = true;
    }

    /// Whether a keep-alive ping has not been answered yet.
    pub fn awaits_pong(&self) -> bool {
        self.awaits_pong
    }

    /// See [`super::Session::read`].
    pub fn read<'a>(
        &mut self,
        input: &'a [u8],
        checks: &Checks,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Received<'a>), MqttFault> {
        // This is checked before the packet is complete: if the peer uses another protocol, the assumed length may never arrive.
        if self.awaited == Awaited::Connack
            && let Some(first) = input.first()
            && Kind::from_first_byte(*first) != Kind::CONNACK
        {
            return Err(MqttFault::Unexpected(Kind::from_first_byte(*first)));
        }
        let mut used = 0;
        while let Some(frame) = Frame::first(&input[used..])? {
            used += frame.length;
            let heard = self.handle(&frame, checks, out)?;
            if heard != Received::Nothing {
                return Ok((used, heard));
            }
        }
        Ok((used, Received::Nothing))
    }

    /// Handles the closing of the connection by the broker, which is always a fault: MQTT 3.1.1 has no way to announce it.
    pub fn end(&self, unread: &[u8]) -> MqttFault {
        if unread.is_empty() { MqttFault::Closed } else { MqttFault::Cut }
    }

    fn handle<'a>(
        &mut self,
        frame: &Frame<'a>,
        checks: &Checks,
        out: &mut Vec<u8>,
    ) -> Result<Received<'a>, MqttFault> {
        let kind = frame.kind();
        let packet = packet::parse(self.version, frame)?;
        let unexpected = Err(MqttFault::Unexpected(kind));
        match (packet, self.awaited) {
            (Packet::Connack(connack), Awaited::Connack) => self.on_connack(&connack),
            (_, Awaited::Connack) | (Packet::Connack(_), _) => unexpected,
            (Packet::Publish(publish), _) => self.on_publish(&publish, out),
            (Packet::Disconnect { reason: code, reason_string }, _) => {
                Err(MqttFault::Disconnected(self.reason(kind, code), shortened(reason_string)))
            }
            (Packet::Pingresp, awaited) => {
                if std::mem::take(&mut self.awaits_pong) {
                    Ok(Received::Nothing)
                } else if awaited == Awaited::Pingresp {
                    Ok(self.answer(kind, &[0], checks))
                } else {
                    unexpected
                }
            }
            (Packet::Acknowledgement { id, .. }, _) if kind == Kind::PUBREL => {
                let known = self.unreleased.iter().position(|unreleased| *unreleased == id);
                if let Some(at) = known {
                    self.unreleased.swap_remove(at);
                }
                let is_refused = known.is_none() && self.version == Version::V5;
                let reason = if is_refused { reason::PACKET_IDENTIFIER_NOT_FOUND } else { 0 };
                write::acknowledge(Kind::PUBCOMP, id, reason, out);
                Ok(Received::Nothing)
            }
            // All other packets acknowledge the last message.
            (Packet::Acknowledgement { id, .. } | Packet::Filters { id, .. }, _) if id != self.id => {
                unexpected
            }
            (Packet::Acknowledgement { id, reason }, Awaited::Pubrec) if kind == Kind::PUBREC => {
                if reason >= reason::FAILURES {
                    return Ok(self.answer(kind, &[reason], checks));
                }
                write::acknowledge(Kind::PUBREL, id, 0, out);
                self.awaited = Awaited::Pubcomp;
                Ok(Received::Nothing)
            }
            (Packet::Acknowledgement { reason, .. }, awaited)
                if (kind, awaited) == (Kind::PUBACK, Awaited::Puback)
                    || (kind, awaited) == (Kind::PUBCOMP, Awaited::Pubcomp) =>
            {
                Ok(self.answer(kind, &[reason], checks))
            }
            (Packet::Filters { reasons, .. }, Awaited::Suback(count)) if kind == Kind::SUBACK => {
                self.on_filters_acknowledged(kind, reasons, count, checks)
            }
            (Packet::Filters { reasons, .. }, Awaited::Unsuback(count)) if kind == Kind::UNSUBACK => {
                // An UNSUBACK of 3.1.1 has no reason codes.
                let count = if self.version == Version::V5 { count } else { 0 };
                self.on_filters_acknowledged(kind, reasons, count, checks)
            }
            _ => unexpected,
        }
    }

    fn on_connack<'a>(&mut self, connack: &Connack<'_>) -> Result<Received<'a>, MqttFault> {
        if connack.reason != 0 {
            let reason = self.reason(Kind::CONNACK, connack.reason);
            return Err(MqttFault::Refused(reason, shortened(connack.reason_string)));
        }
        if connack.is_session_present && self.is_clean {
            return Err(MqttFault::SessionPresent);
        }
        if !connack.is_session_present {
            self.unreleased = Vec::new();
        }
        self.keep_alive_seconds = connack.keep_alive.unwrap_or(self.keep_alive_seconds);
        self.max_qos = connack.max_qos;
        self.is_retain_available = connack.is_retain_available;
        self.max_packet_bytes = connack.max_packet_bytes;
        self.awaited = Awaited::Nothing;
        Ok(Received::Ready)
    }

    fn on_publish<'a>(
        &mut self,
        publish: &Publish<'a>,
        out: &mut Vec<u8>,
    ) -> Result<Received<'a>, MqttFault> {
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
                    return Ok(Received::Nothing);
                }
                self.unreleased.push(publish.id);
            }
        }
        Ok(Received::Message(publish.payload))
    }

    fn on_filters_acknowledged<'a>(
        &mut self,
        kind: Kind,
        reasons: &[u8],
        count: u16,
        checks: &Checks,
    ) -> Result<Received<'a>, MqttFault> {
        if reasons.len() != usize::from(count) {
            return Err(MqttFault::Reasons(reasons.len()));
        }
        Ok(self.answer(kind, reasons, checks))
    }

    /// Completes the last message and returns its answer.
    fn answer<'a>(&mut self, kind: Kind, reasons: &[u8], checks: &Checks) -> Received<'a> {
        self.awaited = Awaited::Nothing;
        let refused = reasons.iter().find(|reason| !allows(checks, **reason));
        let wrong = refused.map(|code| (ErrorKind::Status, Cow::Owned(self.reason(kind, *code).to_string())));
        Received::Answer(Answer { bytes: 0, keeps_alive: true, wrong })
    }

    fn reason(&self, kind: Kind, code: u8) -> Reason {
        Reason { version: self.version, kind, code }
    }
}

/// Returns the first [`MAX_REASON_CHARS`] of a reason string.
fn shortened(reason_string: Option<&str>) -> Option<Box<str>> {
    reason_string.map(|text| text.chars().take(MAX_REASON_CHARS).collect())
}

/// Whether the checks accept a reason code.
fn allows(checks: &Checks, reason: u8) -> bool {
    match checks.statuses.as_slice() {
        [] => reason < reason::FAILURES,
        ranges => ranges.iter().any(|(low, high)| (*low..=*high).contains(&u16::from(reason))),
    }
}

/// Returns the number of topic filters, which must not be 0 (mqtt-v5.0, 3.8.3).
fn count<T>(filters: &[T]) -> Result<u16, MqttFault> {
    match u16::try_from(filters.len()) {
        Ok(0) => Err(MqttFault::Unsendable("no topic filter")),
        Ok(count) => Ok(count),
        Err(_) => Err(MqttFault::Unsendable("more than 65,535 topic filters")),
    }
}

#[cfg(test)]
mod tests;
