//! Streams from MQTT brokers.

use beamtune_load::protocol::mqtt::{MqttConnect, MqttMessage, Qos, Version};
use beamtune_load::protocol::{Checks, Message, Protocol, Received, Session};
use beamtune_load::template::{Template, Values};
use rand_core::SeedableRng;
use rand_xoshiro::Xoroshiro128PlusPlus;

/// The broker's side of a connection. The first byte selects its kind and the pending messages.
pub fn mqtt(bytes: &[u8]) {
    let Some((&choice, heard)) = bytes.split_first() else { return };
    // The network may split it anywhere.
    assert_eq!(read_session(choice, heard, heard.len().max(1)), read_session(choice, heard, 1));
}

/// Events and output of a client that reads the stream in pieces.
fn read_session(choice: u8, heard: &[u8], piece: usize) -> (Vec<String>, Vec<u8>) {
    let text = |text: &str| Template::literal(text);
    let version = if choice & 1 == 0 { Version::V311 } else { Version::V5 };
    let protocol = Protocol::Mqtt(Box::new(MqttConnect {
        version,
        client_id: text("device"),
        user: None,
        password: None,
        keep_alive_seconds: 60,
        is_clean: choice & 2 == 0,
        session_expiry_seconds: 60,
        will: None,
    }));
    let publish =
        |qos| MqttMessage::Publish { topic: text("t"), payload: text("x"), qos, is_retained: false };
    let message = match choice >> 2 & 7 {
        0 => Some(publish(Qos::AtLeastOnce)),
        1 => Some(publish(Qos::ExactlyOnce)),
        2 => Some(MqttMessage::Subscribe(vec![(text("a"), Qos::AtLeastOnce), (text("b"), Qos::AtMostOnce)])),
        3 => Some(MqttMessage::Unsubscribe(vec![text("a")])),
        4 => Some(MqttMessage::Ping),
        _ => None,
    };
    let mut random = Xoroshiro128PlusPlus::seed_from_u64(1);
    let mut values = Values { device: 0, turn: 0, count: &mut 0, random: &mut random, now_ns: 0 };
    let (mut events, mut out) = (Vec::new(), Vec::new());
    let checks = Checks::default();
    let mut session = Session::new(&protocol);
    if let Some(message) = message {
        let connack: &[u8] = if version == Version::V5 { b"\x20\x03\0\0\0" } else { b"\x20\x02\0\0" };
        assert_eq!(session.read(connack, &checks, &mut out), Ok((connack.len(), Received::Ready)));
        let sent =
            session.send(&Message::Mqtt(Box::new(message)), &checks, &mut values, &mut Vec::new(), &mut out);
        assert!(sent.is_ok());
    } else {
        assert_eq!(session.open(&protocol, &mut values, &mut out), Ok(false));
    }
    out.clear();
    let mut unread: Vec<u8> = Vec::new();
    for bytes in heard.chunks(piece) {
        unread.extend_from_slice(bytes);
        loop {
            match session.read(&unread, &checks, &mut out) {
                Ok((used, Received::Nothing)) => {
                    unread.drain(..used);
                    break;
                }
                Ok((used, something)) => {
                    events.push(format!("{something:?}"));
                    unread.drain(..used);
                }
                Err(fault) => {
                    events.push(fault.to_string());
                    return (events, out);
                }
            }
        }
        // No answer is more than a byte longer than its request.
        assert!(out.len() <= heard.len() + heard.len() / 4 + 1);
    }
    let end = session.end(&unread, &checks).map(|_| ()).map_err(|fault| fault.to_string());
    events.push(format!("{end:?}"));
    (events, out)
}
