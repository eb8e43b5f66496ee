//! Writes the packets of a client: renders templates directly into the output buffer.

use super::packet::{Kind, MAX_PACKET_BYTES, property};
use super::{MqttConnect, MqttFault, Qos, Version};
use crate::template::{Template, Values};

/// Maximum length of a packet's body, according to the standards.
const MAX_BODY_BYTES: usize = 0x0fff_ffff;

/// Appends a packet. Appends nothing if its body cannot be written, or if the packet is larger than `max_packet_bytes`.
pub fn packet(
    out: &mut Vec<u8>,
    first: u8,
    max_packet_bytes: u32,
    body: impl FnOnce(&mut Vec<u8>) -> Result<(), MqttFault>,
) -> Result<(), MqttFault> {
    // The length field has one to four bytes and precedes the body. Space for the longest field is reserved, and the body is moved
    // afterwards.
    const MAX_FIXED_HEADER_BYTES: usize = 5;
    let at = out.len();
    out.extend_from_slice(&[0; MAX_FIXED_HEADER_BYTES]);
    let written = body(out);
    let length = out.len() - at - MAX_FIXED_HEADER_BYTES;
    let mut head = [first, 0, 0, 0, 0];
    let head_bytes = 1 + number(length, &mut head[1..]);
    let is_too_large = length > MAX_BODY_BYTES || head_bytes + length > max_packet_bytes as usize;
    let written = match written {
        Ok(()) if is_too_large => Err(MqttFault::Unsendable("the packet is larger than the broker allows")),
        written => written,
    };
    if written.is_err() {
        out.truncate(at);
        return written;
    }
    out.copy_within(at + MAX_FIXED_HEADER_BYTES.., at + head_bytes);
    out.truncate(at + head_bytes + length);
    out[at..at + head_bytes].copy_from_slice(&head[..head_bytes]);
    Ok(())
}

/// Writes a variable byte integer. Returns its length.
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

/// Appends a template, preceded by its length in two bytes. Returns where the content begins.
fn binary(out: &mut Vec<u8>, template: &Template, values: &mut Values<'_>) -> Result<usize, MqttFault> {
    let at = out.len();
    out.extend_from_slice(&[0, 0]);
    template.render(values, out);
    let length = u16::try_from(out.len() - at - 2)
        .map_err(|_| MqttFault::Unsendable("a string is longer than 65,535 bytes"))?;
    out[at..at + 2].copy_from_slice(&length.to_be_bytes());
    Ok(at + 2)
}

/// Like [`binary`], for a string. The string must not contain NUL.
fn text(out: &mut Vec<u8>, template: &Template, values: &mut Values<'_>) -> Result<usize, MqttFault> {
    let at = binary(out, template, values)?;
    if out[at..].contains(&0) {
        return Err(MqttFault::Unsendable("a string contains a NUL character"));
    }
    Ok(at)
}

fn topic(out: &mut Vec<u8>, template: &Template, values: &mut Values<'_>) -> Result<(), MqttFault> {
    let at = text(out, template, values)?;
    topic_fault(&out[at..]).map_or(Ok(()), |what| Err(MqttFault::Unsendable(what)))
}

/// Appends a topic filter.
pub fn filter(out: &mut Vec<u8>, template: &Template, values: &mut Values<'_>) -> Result<(), MqttFault> {
    let at = text(out, template, values)?;
    filter_fault(&out[at..]).map_or(Ok(()), |what| Err(MqttFault::Unsendable(what)))
}

/// Returns why messages cannot be published to this topic (mqtt-v5.0, 4.7); `None` if they can.
pub fn topic_fault(topic: &[u8]) -> Option<&'static str> {
    match topic.iter().find(|byte| matches!(byte, b'+' | b'#')) {
        _ if !has_valid_length(topic) => Some("a topic has 1 to 65535 bytes"),
        Some(b'+') => Some("`+` is for subscriptions; a topic to publish to cannot contain it"),
        Some(_) => Some("`#` is for subscriptions; a topic to publish to cannot contain it"),
        None => None,
    }
}

/// Returns why this is not a valid topic filter (mqtt-v5.0, 4.7.1); `None` if it is valid.
pub fn filter_fault(filter: &[u8]) -> Option<&'static str> {
    if !has_valid_length(filter) {
        return Some("a topic filter has 1 to 65535 bytes");
    }
    let mut levels = filter.split(|byte| *byte == b'/').peekable();
    while let Some(level) = levels.next() {
        let has_wildcard = level.iter().any(|byte| matches!(byte, b'+' | b'#'));
        if has_wildcard && level.len() > 1 {
            return Some("a wildcard takes a whole level, as in `a/+/b` and `a/#`");
        }
        if level == b"#" && levels.peek().is_some() {
            return Some("`#` must be the last level of a topic filter");
        }
    }
    None
}

fn has_valid_length(text: &[u8]) -> bool {
    (1..=usize::from(u16::MAX)).contains(&text.len())
}

/// Appends a CONNECT.
pub fn connect(connect: &MqttConnect, values: &mut Values<'_>, out: &mut Vec<u8>) -> Result<(), MqttFault> {
    let is_5 = connect.version == Version::V5;
    if !is_5 && connect.password.is_some() && connect.user.is_none() {
        return Err(MqttFault::Unsendable("MQTT 3.1.1 allows no password without a user name"));
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
            // Length of the properties: each has an identifier and four bytes.
            out.push(5 + if connect.session_expiry_seconds > 0 { 5 } else { 0 });
            out.push(property::MAXIMUM_PACKET_SIZE);
            out.extend_from_slice(&MAX_PACKET_BYTES.to_be_bytes());
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

/// The content of a PUBLISH.
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
    max_packet_bytes: u32,
    values: &mut Values<'_>,
    out: &mut Vec<u8>,
) -> Result<(), MqttFault> {
    let first = Kind::PUBLISH.first_byte() | (publish.qos as u8) << 1 | u8::from(publish.is_retained);
    packet(out, first, max_packet_bytes, |out| {
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

/// Appends a SUBSCRIBE or UNSUBSCRIBE; `body` writes its topic filters.
pub fn filters(
    version: Version,
    kind: Kind,
    id: u16,
    max_packet_bytes: u32,
    out: &mut Vec<u8>,
    body: impl FnOnce(&mut Vec<u8>) -> Result<(), MqttFault>,
) -> Result<(), MqttFault> {
    packet(out, kind.first_byte(), max_packet_bytes, |out| {
        out.extend_from_slice(&id.to_be_bytes());
        if version == Version::V5 {
            out.push(0);
        }
        body(out)
    })
}

/// Appends a PUBACK, PUBREC, PUBREL or PUBCOMP. `reason` must be 0 for MQTT 3.1.1.
pub fn acknowledge(kind: Kind, id: u16, reason: u8, out: &mut Vec<u8>) {
    let [high, low] = id.to_be_bytes();
    if reason == 0 {
        out.extend_from_slice(&[kind.first_byte(), 2, high, low]);
    } else {
        out.extend_from_slice(&[kind.first_byte(), 3, high, low, reason]);
    }
}

/// Appends a packet without a body: a PINGREQ, or a DISCONNECT with reason code 0.
pub fn bare(kind: Kind, out: &mut Vec<u8>) {
    out.extend_from_slice(&[kind.first_byte(), 0]);
}
