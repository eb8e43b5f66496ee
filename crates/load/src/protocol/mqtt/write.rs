//! Packets as a client writes them, straight from templates into the buffer that is sent.

use super::packet::{Kind, LARGEST_BYTES, property};
use super::{MqttConnect, MqttFault, Qos, Version};
use crate::template::{Template, Values};

/// Longest packet that the standards can express.
const LONGEST_BODY_BYTES: usize = 0x0fff_ffff;

/// Appends a packet; nothing if its body cannot be written, or if all is more than `largest_bytes`.
pub fn packet(
    out: &mut Vec<u8>,
    first: u8,
    largest_bytes: u32,
    body: impl FnOnce(&mut Vec<u8>) -> Result<(), MqttFault>,
) -> Result<(), MqttFault> {
    // The length stands before what it is of, and takes one to four bytes itself: room for all, and the body moves down.
    const ROOM: usize = 5;
    let at = out.len();
    out.extend_from_slice(&[0; ROOM]);
    let written = body(out);
    let length = out.len() - at - ROOM;
    let mut head = [first, 0, 0, 0, 0];
    let head_bytes = 1 + number(length, &mut head[1..]);
    let is_too_large = length > LONGEST_BODY_BYTES || head_bytes + length > largest_bytes as usize;
    let written = match written {
        Ok(()) if is_too_large => Err(MqttFault::Unsendable("the packet is larger than the broker takes")),
        written => written,
    };
    if written.is_err() {
        out.truncate(at);
        return written;
    }
    out.copy_within(at + ROOM.., at + head_bytes);
    out.truncate(at + head_bytes + length);
    out[at..at + head_bytes].copy_from_slice(&head[..head_bytes]);
    Ok(())
}

/// Writes a number of one to four bytes; how many.
fn number(mut value: usize, into: &mut [u8]) -> usize {
    let mut written = 0;
    for byte in into {
        *byte = (value & 0x7f) as u8;
        value >>= 7;
        written += 1;
        if value == 0 {
            break;
        }
        *byte |= 0x80;
    }
    written
}

/// Appends a length of two bytes and what is rendered; gives where that begins.
fn binary(out: &mut Vec<u8>, template: &Template, values: &mut Values<'_>) -> Result<usize, MqttFault> {
    let at = out.len();
    out.extend_from_slice(&[0, 0]);
    template.render(values, out);
    let length = u16::try_from(out.len() - at - 2)
        .map_err(|_| MqttFault::Unsendable("a text is longer than 65,535 bytes"))?;
    out[at..at + 2].copy_from_slice(&length.to_be_bytes());
    Ok(at + 2)
}

/// The same for what must be a text.
fn text(out: &mut Vec<u8>, template: &Template, values: &mut Values<'_>) -> Result<usize, MqttFault> {
    let at = binary(out, template, values)?;
    if out[at..].contains(&0) {
        return Err(MqttFault::Unsendable("a text has a zero character in it"));
    }
    Ok(at)
}

fn topic(out: &mut Vec<u8>, template: &Template, values: &mut Values<'_>) -> Result<(), MqttFault> {
    let at = text(out, template, values)?;
    topic_fault(&out[at..]).map_or(Ok(()), |what| Err(MqttFault::Unsendable(what)))
}

/// Appends a filter of topics.
pub fn filter(out: &mut Vec<u8>, template: &Template, values: &mut Values<'_>) -> Result<(), MqttFault> {
    let at = text(out, template, values)?;
    filter_fault(&out[at..]).map_or(Ok(()), |what| Err(MqttFault::Unsendable(what)))
}

/// Why nothing can be published there (mqtt-v5.0, 4.7).
pub fn topic_fault(topic: &[u8]) -> Option<&'static str> {
    match topic.iter().find(|byte| matches!(byte, b'+' | b'#')) {
        _ if !is_length(topic) => Some("a topic has 1 to 65535 bytes"),
        Some(b'+') => Some("`+` is for subscriptions; nothing is published under it"),
        Some(_) => Some("`#` is for subscriptions; nothing is published under it"),
        None => None,
    }
}

/// Why that cannot be subscribed to (mqtt-v5.0, 4.7.1).
pub fn filter_fault(filter: &[u8]) -> Option<&'static str> {
    if !is_length(filter) {
        return Some("a filter has 1 to 65535 bytes");
    }
    let mut levels = filter.split(|byte| *byte == b'/').peekable();
    while let Some(level) = levels.next() {
        let has_wildcard = level.iter().any(|byte| matches!(byte, b'+' | b'#'));
        if has_wildcard && level.len() > 1 {
            return Some("a wildcard of a filter stands for a whole level, as in `a/+/b` and `a/#`");
        }
        if level == b"#" && levels.peek().is_some() {
            return Some("nothing stands behind the `#` of a filter");
        }
    }
    None
}

fn is_length(text: &[u8]) -> bool {
    (1..=usize::from(u16::MAX)).contains(&text.len())
}

/// Appends a CONNECT.
pub fn connect(connect: &MqttConnect, values: &mut Values<'_>, out: &mut Vec<u8>) -> Result<(), MqttFault> {
    let is_5 = connect.version == Version::V5;
    if !is_5 && connect.password.is_some() && connect.user.is_none() {
        return Err(MqttFault::Unsendable("MQTT 3.1.1 takes no password without a user"));
    }
    packet(out, Kind::CONNECT.first_byte(), u32::MAX, |out| {
        out.extend_from_slice(b"\0\x04MQTT");
        out.push(if is_5 { 5 } else { 4 });
        let will = connect.will.as_ref();
        out.push(
            u8::from(connect.user.is_some()) << 7
                | u8::from(connect.password.is_some()) << 6
                | will.map_or(0, |will| u8::from(will.is_retained) << 5 | (will.qos as u8) << 3 | 1 << 2)
                | u8::from(connect.is_clean) << 1,
        );
        out.extend_from_slice(&connect.keep_alive_seconds.to_be_bytes());
        if is_5 {
            // Both properties have an identifier and four bytes.
            out.push(5 + if connect.session_expiry_seconds > 0 { 5 } else { 0 });
            out.push(property::MAXIMUM_PACKET_SIZE);
            out.extend_from_slice(&LARGEST_BYTES.to_be_bytes());
            if connect.session_expiry_seconds > 0 {
                out.push(property::SESSION_EXPIRY_INTERVAL);
                out.extend_from_slice(&connect.session_expiry_seconds.to_be_bytes());
            }
        }
        text(out, &connect.client_id, values)?;
        if let Some(will) = will {
            if is_5 {
                out.push(0);
            }
            topic(out, &will.topic, values)?;
            binary(out, &will.payload, values)?;
        }
        if let Some(user) = &connect.user {
            text(out, user, values)?;
        }
        if let Some(password) = &connect.password {
            binary(out, password, values)?;
        }
        Ok(())
    })
}

/// What a PUBLISH is made of.
pub struct Publish<'m> {
    pub topic: &'m Template,
    pub payload: &'m Template,
    pub qos: Qos,
    pub is_retained: bool,
    /// Not written for QoS 0.
    pub id: u16,
}

/// Appends a PUBLISH.
pub fn publish(
    version: Version,
    publish: &Publish<'_>,
    largest_bytes: u32,
    values: &mut Values<'_>,
    out: &mut Vec<u8>,
) -> Result<(), MqttFault> {
    let first = Kind::PUBLISH.first_byte() | (publish.qos as u8) << 1 | u8::from(publish.is_retained);
    packet(out, first, largest_bytes, |out| {
        topic(out, publish.topic, values)?;
        if publish.qos != Qos::AtMostOnce {
            out.extend_from_slice(&publish.id.to_be_bytes());
        }
        if version == Version::V5 {
            out.push(0);
        }
        publish.payload.render(values, out);
        Ok(())
    })
}

/// Appends a SUBSCRIBE or UNSUBSCRIBE, whose filters `body` writes.
pub fn filters(
    version: Version,
    kind: Kind,
    id: u16,
    largest_bytes: u32,
    out: &mut Vec<u8>,
    body: impl FnOnce(&mut Vec<u8>) -> Result<(), MqttFault>,
) -> Result<(), MqttFault> {
    packet(out, kind.first_byte(), largest_bytes, |out| {
        out.extend_from_slice(&id.to_be_bytes());
        if version == Version::V5 {
            out.push(0);
        }
        body(out)
    })
}

/// Appends a PUBACK, PUBREC, PUBREL or PUBCOMP; `reason` other than 0 for MQTT 5 only.
pub fn acknowledge(kind: Kind, id: u16, reason: u8, out: &mut Vec<u8>) {
    let [high, low] = id.to_be_bytes();
    if reason == 0 {
        out.extend_from_slice(&[kind.first_byte(), 2, high, low]);
    } else {
        out.extend_from_slice(&[kind.first_byte(), 3, high, low, reason]);
    }
}

/// Appends a PINGREQ, or a DISCONNECT that says that all is well.
pub fn bare(kind: Kind, out: &mut Vec<u8>) {
    out.extend_from_slice(&[kind.first_byte(), 0]);
}
