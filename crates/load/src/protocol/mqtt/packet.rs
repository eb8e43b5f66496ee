//! Parses the MQTT 3.1.1 and 5.0 packets that a broker sends. It copies and allocates nothing.
//!
//! Numbers and rules are those of the standards (OASIS, mqtt-v3.1.1 and mqtt-v5.0, chapters 2 and 3). The parser checks everything within a
//! packet; the session checks whether the packet is valid at this point.

use std::fmt;
use std::str;

use super::{MqttFault, Version};

/// Maximum size of a received packet. CONNECT announces it to MQTT 5 brokers. Other brokers may send up to 256 MiB, which is treated as a
/// fault here.
pub const MAX_PACKET_BYTES: u32 = 16 * 1024 * 1024;

/// The kind of a packet: the upper half of its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind(pub(super) u8);

impl Kind {
    pub(super) const CONNECT: Self = Self(1);
    pub(super) const CONNACK: Self = Self(2);
    pub(super) const PUBLISH: Self = Self(3);
    pub(super) const PUBACK: Self = Self(4);
    pub(super) const PUBREC: Self = Self(5);
    pub(super) const PUBREL: Self = Self(6);
    pub(super) const PUBCOMP: Self = Self(7);
    pub(super) const SUBSCRIBE: Self = Self(8);
    pub(super) const SUBACK: Self = Self(9);
    pub(super) const UNSUBSCRIBE: Self = Self(10);
    pub(super) const UNSUBACK: Self = Self(11);
    pub(super) const PINGREQ: Self = Self(12);
    pub(super) const PINGRESP: Self = Self(13);
    pub(super) const DISCONNECT: Self = Self(14);

    /// Returns the kind of a packet with this first byte.
    pub(super) fn from_first_byte(first: u8) -> Self {
        Self(first >> 4)
    }

    /// Returns the first byte of a packet other than PUBLISH.
    pub(super) fn first_byte(self) -> u8 {
        self.0 << 4 | self.flags()
    }

    /// Returns the lower half of the first byte, which is fixed for all packets except PUBLISH.
    fn flags(self) -> u8 {
        if matches!(self, Self::PUBREL | Self::SUBSCRIBE | Self::UNSUBSCRIBE) { 2 } else { 0 }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 16] = [
            "packet 0",
            "CONNECT",
            "CONNACK",
            "PUBLISH",
            "PUBACK",
            "PUBREC",
            "PUBREL",
            "PUBCOMP",
            "SUBSCRIBE",
            "SUBACK",
            "UNSUBSCRIBE",
            "UNSUBACK",
            "PINGREQ",
            "PINGRESP",
            "DISCONNECT",
            "AUTH",
        ];
        f.write_str(NAMES[usize::from(self.0 & 15)])
    }
}

/// The bytes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    first: u8,
    body: &'a [u8],
    /// Total length, including first byte and length field.
    pub length: usize,
}

impl<'a> Frame<'a> {
    /// Returns the first packet of the input; `None` if it is incomplete.
    pub fn first(input: &'a [u8]) -> Result<Option<Self>, MqttFault> {
        let Some((&first, rest)) = input.split_first() else { return Ok(None) };
        let malformed =
            MqttFault::Malformed(Kind::from_first_byte(first), "length field longer than 4 bytes");
        let mut length = 0;
        for (at, &byte) in rest.iter().take(4).enumerate() {
            length |= usize::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                let whole = 2 + at + length;
                if whole > MAX_PACKET_BYTES as usize {
                    return Err(MqttFault::Large(whole as u64));
                }
                let body = input.get(2 + at..whole);
                return Ok(body.map(|body| Self { first, body, length: whole }));
            }
        }
        if rest.len() < 4 { Ok(None) } else { Err(malformed) }
    }

    /// Returns the kind of the packet.
    pub fn kind(&self) -> Kind {
        Kind::from_first_byte(self.first)
    }
}

/// A packet that a broker may send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet<'a> {
    Connack(Connack<'a>),
    Publish(Publish<'a>),
    /// PUBACK, PUBREC, PUBREL, PUBCOMP.
    Acknowledgement {
        id: u16,
        reason: u8,
    },
    /// SUBACK, UNSUBACK: with a reason code per topic filter, but none in an UNSUBACK of 3.1.1.
    Filters {
        id: u16,
        reasons: &'a [u8],
    },
    Pingresp,
    Disconnect {
        reason: u8,
        reason_string: Option<&'a str>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connack<'a> {
    pub is_session_present: bool,
    pub reason: u8,
    pub reason_string: Option<&'a str>,
    /// Server Keep Alive in seconds, which overrides the client's.
    pub keep_alive: Option<u16>,
    pub max_qos: u8,
    pub is_retain_available: bool,
    pub max_packet_bytes: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publish<'a> {
    pub qos: u8,
    pub is_duplicate: bool,
    /// 0 for QoS 0.
    pub id: u16,
    pub payload: &'a [u8],
}

/// Parses a packet.
pub fn parse<'a>(version: Version, frame: &Frame<'a>) -> Result<Packet<'a>, MqttFault> {
    let kind = frame.kind();
    if !kind.may_be_received(version) {
        return Err(MqttFault::Unexpected(kind));
    }
    let flags = frame.first & 15;
    let parsed = if kind != Kind::PUBLISH && flags != kind.flags() {
        Err("invalid flags")
    } else {
        let mut body = Bytes(frame.body);
        content(version, kind, flags, &mut body)
            .and_then(|packet| if body.0.is_empty() { Ok(packet) } else { Err("trailing bytes") })
    };
    parsed.map_err(|what| MqttFault::Malformed(kind, what))
}

impl Kind {
    /// Whether a broker may send this kind of packet.
    fn may_be_received(self, version: Version) -> bool {
        match self {
            Self::CONNACK
            | Self::PUBLISH
            | Self::PUBACK
            | Self::PUBREC
            | Self::PUBREL
            | Self::PUBCOMP
            | Self::SUBACK
            | Self::UNSUBACK
            | Self::PINGRESP => true,
            Self::DISCONNECT => version == Version::V5,
            // This includes AUTH, which may only be sent to a client that requested it in CONNECT.
            _ => false,
        }
    }
}

/// What is wrong with a packet, as text that completes a sentence.
type ParseError = &'static str;

fn content<'a>(
    version: Version,
    kind: Kind,
    flags: u8,
    body: &mut Bytes<'a>,
) -> Result<Packet<'a>, ParseError> {
    let is_5 = version == Version::V5;
    Ok(match kind {
        Kind::CONNACK => Packet::Connack(connack(is_5, body)?),
        Kind::PUBLISH => Packet::Publish(publish(is_5, flags, body)?),
        Kind::SUBACK | Kind::UNSUBACK => {
            let id = body.id()?;
            if is_5 {
                properties(body, REASON_PROPERTIES, |_, _| {})?;
            }
            let has_reasons = is_5 || kind == Kind::SUBACK;
            let reasons = if has_reasons { std::mem::take(&mut body.0) } else { &[] };
            if !is_5 && reasons.iter().any(|reason| !matches!(reason, 0..=2 | 0x80)) {
                return Err("return code unknown to MQTT 3.1.1");
            }
            Packet::Filters { id, reasons }
        }
        Kind::PINGRESP => Packet::Pingresp,
        Kind::DISCONNECT => {
            let (reason, reason_string) = reason(body, DISCONNECT_PROPERTIES)?;
            Packet::Disconnect { reason, reason_string }
        }
        _ => {
            let id = body.id()?;
            let reason = if is_5 { reason(body, REASON_PROPERTIES)?.0 } else { 0 };
            Packet::Acknowledgement { id, reason }
        }
    })
}

fn connack<'a>(is_5: bool, body: &mut Bytes<'a>) -> Result<Connack<'a>, ParseError> {
    let flags = body.byte()?;
    let reason = body.byte()?;
    if flags > 1 {
        return Err("invalid flags");
    }
    if flags == 1 && reason != 0 {
        return Err("session present in a refusal");
    }
    let mut connack = Connack {
        is_session_present: flags == 1,
        reason,
        reason_string: None,
        keep_alive: None,
        max_qos: 2,
        is_retain_available: true,
        max_packet_bytes: u32::MAX,
    };
    if is_5 {
        properties(body, CONNACK_PROPERTIES, |id, value| match (id, value) {
            (property::REASON_STRING, Value::Text(text)) => connack.reason_string = Some(text),
            (property::SERVER_KEEP_ALIVE, Value::Number(seconds)) => {
                connack.keep_alive = Some(seconds as u16);
            }
            (property::MAXIMUM_QOS, Value::Number(qos)) => connack.max_qos = qos as u8,
            (property::RETAIN_AVAILABLE, Value::Number(is)) => connack.is_retain_available = is == 1,
            (property::MAXIMUM_PACKET_SIZE, Value::Number(bytes)) => connack.max_packet_bytes = bytes,
            _ => {}
        })?;
    }
    Ok(connack)
}

fn publish<'a>(is_5: bool, flags: u8, body: &mut Bytes<'a>) -> Result<Publish<'a>, ParseError> {
    let (qos, is_duplicate) = (flags >> 1 & 3, flags & 8 != 0);
    match qos {
        0 if is_duplicate => return Err("DUP flag with QoS 0"),
        3 => return Err("QoS 3"),
        _ => {}
    }
    let topic = body.text()?;
    if topic.is_empty() {
        // MQTT 5 allows this only with a topic alias, which CONNECT does not permit.
        return Err("empty topic");
    }
    if topic.contains(['+', '#']) {
        return Err("wildcard in the topic");
    }
    let id = if qos == 0 { 0 } else { body.id()? };
    if is_5 {
        properties(body, PUBLISH_PROPERTIES, |_, _| {})?;
    }
    Ok(Publish { qos, is_duplicate, id, payload: std::mem::take(&mut body.0) })
}

/// Parses the reason code and reason string at the end of an MQTT 5 packet. Both are optional; a missing reason code means success.
fn reason<'a>(body: &mut Bytes<'a>, allowed: u64) -> Result<(u8, Option<&'a str>), ParseError> {
    let mut reason_string = None;
    if body.0.is_empty() {
        return Ok((0, None));
    }
    let reason = body.byte()?;
    if !body.0.is_empty() {
        properties(body, allowed, |id, value| {
            if let (property::REASON_STRING, Value::Text(text)) = (id, value) {
                reason_string = Some(text);
            }
        })?;
    }
    Ok((reason, reason_string))
}

/// Identifiers of the properties that are read or written (mqtt-v5.0, 2.2.2.2).
pub mod property {
    pub const SESSION_EXPIRY_INTERVAL: u8 = 17;
    pub const SERVER_KEEP_ALIVE: u8 = 19;
    pub const REASON_STRING: u8 = 31;
    pub const RECEIVE_MAXIMUM: u8 = 33;
    pub const TOPIC_ALIAS: u8 = 35;
    pub const MAXIMUM_QOS: u8 = 36;
    pub const RETAIN_AVAILABLE: u8 = 37;
    pub const USER_PROPERTY: u8 = 38;
    pub const MAXIMUM_PACKET_SIZE: u8 = 39;
    pub const SUBSCRIPTION_IDENTIFIER: u8 = 11;
}

const REASON_PROPERTIES: u64 = bits(&[31, 38]);
const DISCONNECT_PROPERTIES: u64 = bits(&[28, 31, 38]);
const CONNACK_PROPERTIES: u64 = bits(&[17, 18, 19, 21, 22, 26, 28, 31, 33, 34, 36, 37, 38, 39, 40, 41, 42]);
/// The topic alias (35) is excluded: CONNECT does not set Topic Alias Maximum, so the broker may not send one.
const PUBLISH_PROPERTIES: u64 = bits(&[1, 2, 3, 8, 9, 11, 38]);

const fn bits(ids: &[u8]) -> u64 {
    let mut bits = 0;
    let mut at = 0;
    while at < ids.len() {
        bits |= 1 << ids[at];
        at += 1;
    }
    bits
}

/// The value of a property; `Other` if it is not used.
enum Value<'a> {
    Number(u32),
    Text(&'a str),
    Other,
}

/// Parses the properties. `allowed` has one bit per allowed identifier.
fn properties<'a>(
    body: &mut Bytes<'a>,
    allowed: u64,
    mut each: impl FnMut(u8, Value<'a>),
) -> Result<(), ParseError> {
    let length = body.number()?;
    let mut rest = Bytes(body.take(length as usize)?);
    let mut seen = 0_u64;
    while !rest.0.is_empty() {
        let id = rest.byte()?;
        let bit = 1_u64.checked_shl(u32::from(id)).unwrap_or(0);
        if id == property::TOPIC_ALIAS {
            return Err("topic alias not allowed");
        }
        if allowed & bit == 0 {
            return Err("property not allowed here");
        }
        let may_repeat = matches!(id, property::USER_PROPERTY | property::SUBSCRIPTION_IDENTIFIER);
        if seen & bit != 0 && !may_repeat {
            return Err("duplicate property");
        }
        seen |= bit;
        let value = match id {
            1 | 36 | 37 | 40 | 41 | 42 => match rest.byte()? {
                byte @ 0..=1 => Value::Number(u32::from(byte)),
                _ => return Err("property value out of range"),
            },
            19 | 33 | 34 => Value::Number(u32::from(rest.two()?)),
            2 | 17 | 39 => {
                let (high, low) = (rest.two()?, rest.two()?);
                Value::Number(u32::from(high) << 16 | u32::from(low))
            }
            11 => Value::Number(rest.number()?),
            9 | 22 => {
                rest.binary()?;
                Value::Other
            }
            38 => {
                rest.text()?;
                rest.text()?;
                Value::Other
            }
            _ => Value::Text(rest.text()?),
        };
        let is_never_zero = matches!(
            id,
            property::RECEIVE_MAXIMUM | property::MAXIMUM_PACKET_SIZE | property::SUBSCRIPTION_IDENTIFIER
        );
        if is_never_zero && matches!(value, Value::Number(0)) {
            return Err("property value out of range");
        }
        each(id, value);
    }
    Ok(())
}

/// The unparsed rest of a body.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], ParseError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or("it is truncated")?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, ParseError> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn two(&mut self) -> Result<u16, ParseError> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn id(&mut self) -> Result<u16, ParseError> {
        match self.two()? {
            0 => Err("packet identifier 0"),
            id => Ok(id),
        }
    }

    /// Parses a variable byte integer.
    fn number(&mut self) -> Result<u32, ParseError> {
        let mut number = 0;
        for at in 0..4 {
            let byte = self.byte()?;
            number |= u32::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err("variable byte integer longer than 4 bytes")
    }

    fn binary(&mut self) -> Result<&'a [u8], ParseError> {
        let length = self.two()?;
        self.take(usize::from(length))
    }

    fn text(&mut self) -> Result<&'a str, ParseError> {
        let text = str::from_utf8(self.binary()?).map_err(|_| "invalid UTF-8")?;
        if text.contains('\0') {
            return Err("NUL character in a string");
        }
        Ok(text)
    }
}
