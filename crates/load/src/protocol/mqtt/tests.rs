use proptest::prelude::*;
use rand_core::SeedableRng;
use rand_xoshiro::Xoroshiro128PlusPlus;

use super::*;

mod broker;

const NO_CHECKS: Checks = Checks { statuses: Vec::new(), fields: Vec::new(), body: Vec::new() };
const BOTH: [Version; 2] = [Version::V311, Version::V5];

fn connect(version: Version) -> MqttConnect {
    MqttConnect {
        version,
        client_id: Template::literal("device-7"),
        user: None,
        password: None,
        keep_alive_seconds: 60,
        is_clean: true,
        session_expiry_seconds: 0,
        will: None,
    }
}

fn with_values<T>(what: impl FnOnce(&mut Values<'_>) -> T) -> T {
    let mut random = Xoroshiro128PlusPlus::seed_from_u64(1);
    what(&mut Values { device: 7, turn: 0, count: &mut 0, random: &mut random, now_ns: 0 })
}

fn send(client: &mut Client, message: &MqttMessage) -> Result<(SendOutcome, Vec<u8>), MqttFault> {
    let mut out = Vec::new();
    let sent = with_values(|values| client.send(message, values, &mut out))?;
    Ok((sent, out))
}

/// A client with an open session.
fn opened(version: Version) -> Client {
    let mut client = Client::new(&connect(version));
    let connack: &[u8] = if version == Version::V5 { b"\x20\x03\0\0\0" } else { b"\x20\x02\0\0" };
    assert_eq!(client.read(connack, &NO_CHECKS, &mut Vec::new()), Ok((connack.len(), Received::Ready)));
    client
}

fn publish(qos: Qos) -> MqttMessage {
    MqttMessage::Publish {
        topic: Template::literal("a/b"),
        payload: Template::literal("hello"),
        qos,
        is_retained: false,
    }
}

fn subscribe(filters: &[&str]) -> MqttMessage {
    MqttMessage::Subscribe(
        filters.iter().map(|filter| (Template::literal(*filter), Qos::AtLeastOnce)).collect(),
    )
}

/// Feeds `input` to a client in pieces that end at `cuts`. Returns its events and the bytes that it sends.
fn feed(client: &mut Client, input: &[u8], cuts: &[usize]) -> (Vec<String>, Vec<u8>) {
    let (mut events, mut out) = (Vec::new(), Vec::new());
    let mut held: Vec<u8> = Vec::new();
    let mut from = 0;
    for cut in cuts.iter().copied().chain([input.len()]) {
        let cut = cut.clamp(from, input.len());
        held.extend_from_slice(&input[from..cut]);
        from = cut;
        loop {
            match client.read(&held, &NO_CHECKS, &mut out) {
                Ok((used, heard)) => {
                    let is_nothing = heard == Received::Nothing;
                    if !is_nothing {
                        events.push(format!("{heard:?}"));
                    }
                    held.drain(..used);
                    if is_nothing {
                        break;
                    }
                }
                Err(fault) => {
                    events.push(fault.to_string());
                    return (events, out);
                }
            }
        }
    }
    (events, out)
}

fn answer(wrong: Option<&str>) -> String {
    let wrong = wrong.map(|words| (ErrorKind::Status, Cow::Owned(words.to_owned())));
    format!("{:?}", Received::Answer(Answer { bytes: 0, keeps_alive: true, wrong }))
}

fn message(payload: &[u8]) -> String {
    format!("{:?}", Received::Message(payload))
}

#[test]
fn connect_packets_agree_with_the_standard() {
    let mut connect = connect(Version::V5);
    connect.user = Some(Template::literal("anna"));
    connect.password = Some(Template::literal("pw"));
    connect.session_expiry_seconds = 258;
    connect.is_clean = false;
    connect.will = Some(Will {
        topic: Template::literal("w"),
        payload: Template::literal("gone"),
        qos: Qos::AtLeastOnce,
        is_retained: true,
    });
    let mut out = Vec::new();
    with_values(|values| Client::new(&connect).open(&connect, values, &mut out)).unwrap();
    let expected = b"\x10\x33\0\x04MQTT\x05\xec\0\x3c\x0a\x27\x01\0\0\0\x11\0\0\x01\x02\0\x08device-7\0\0\x01w\0\x04gone\0\x04anna\0\x02pw";
    assert_eq!(out, expected);

    connect.version = Version::V311;
    out.clear();
    with_values(|values| Client::new(&connect).open(&connect, values, &mut out)).unwrap();
    assert_eq!(out, b"\x10\x27\0\x04MQTT\x04\xec\0\x3c\0\x08device-7\0\x01w\0\x04gone\0\x04anna\0\x02pw");

    connect.user = None;
    let refused = with_values(|values| Client::new(&connect).open(&connect, values, &mut out));
    assert_eq!(refused, Err(MqttFault::Unsendable("MQTT 3.1.1 allows no password without a user name")));
}

#[test]
fn a_refused_connection_has_its_reason() {
    for (version, bytes, words) in [
        (Version::V311, &b"\x20\x02\0\x05"[..], "CONNACK: not authorized (0x05)"),
        (Version::V311, b"\x20\x02\0\x09", "CONNACK: unknown reason 0x09"),
        (Version::V5, b"\x20\x03\0\x86\0", "CONNACK: bad user name or password (0x86)"),
        (Version::V5, b"\x20\x08\0\x87\x05\x1f\0\x02no", "CONNACK: not authorized (0x87): no"),
        (Version::V311, b"\x20\x02\x01\0", "CONNACK: session present despite a clean start"),
    ] {
        let mut client = Client::new(&connect(version));
        let fault = client.read(bytes, &NO_CHECKS, &mut Vec::new()).unwrap_err();
        assert_eq!(fault.to_string(), words);
        let is_refused = matches!(fault, MqttFault::Refused(..));
        assert_eq!(fault.kind() == ErrorKind::Status, is_refused);
    }
}

#[test]
fn acknowledgements_complete_messages_of_each_qos() {
    for version in BOTH {
        let mut client = opened(version);
        assert_eq!(send(&mut client, &publish(Qos::AtMostOnce)).unwrap().0, SendOutcome::Done);

        let (sent, bytes) = send(&mut client, &publish(Qos::AtLeastOnce)).unwrap();
        assert_eq!(sent, SendOutcome::Awaited);
        let expected: &[u8] = if version == Version::V5 {
            b"\x32\x0d\0\x03a/b\0\x01\0hello"
        } else {
            b"\x32\x0c\0\x03a/b\0\x01hello"
        };
        assert_eq!(bytes, expected);
        assert_eq!(feed(&mut client, b"\x40\x02\0\x01", &[]), (vec![answer(None)], vec![]));

        send(&mut client, &publish(Qos::ExactlyOnce)).unwrap();
        assert_eq!(feed(&mut client, b"\x50\x02\0\x02", &[]), (vec![], b"\x62\x02\0\x02".to_vec()));
        assert_eq!(feed(&mut client, b"\x70\x02\0\x02", &[]), (vec![answer(None)], vec![]));
    }
}

#[test]
fn a_refused_message_is_an_error_and_the_connection_stays_open() {
    let mut client = opened(Version::V5);
    send(&mut client, &publish(Qos::AtLeastOnce)).unwrap();
    let wrong = answer(Some("PUBACK: not authorized (0x87)"));
    assert_eq!(feed(&mut client, b"\x40\x03\0\x01\x87", &[]), (vec![wrong], vec![]));
    send(&mut client, &publish(Qos::ExactlyOnce)).unwrap();
    let wrong = answer(Some("PUBREC: quota exceeded (0x97)"));
    assert_eq!(feed(&mut client, b"\x50\x04\0\x02\x97\0", &[]), (vec![wrong], vec![]));
    send(&mut client, &subscribe(&["a/#", "b"])).unwrap();
    let wrong = answer(Some("SUBACK: topic filter invalid (0x8f)"));
    assert_eq!(feed(&mut client, b"\x90\x05\0\x03\0\x01\x8f", &[]), (vec![wrong], vec![]));
    send(&mut client, &MqttMessage::Unsubscribe(vec![Template::literal("b")])).unwrap();
    // "No subscription existed" is not a failure.
    assert_eq!(feed(&mut client, b"\xb0\x04\0\x04\0\x11", &[]), (vec![answer(None)], vec![]));

    let mut client = opened(Version::V311);
    send(&mut client, &subscribe(&["a"])).unwrap();
    let wrong = answer(Some("SUBACK: failure (0x80)"));
    assert_eq!(feed(&mut client, b"\x90\x03\0\x01\x80", &[]), (vec![wrong], vec![]));
    send(&mut client, &MqttMessage::Unsubscribe(vec![Template::literal("b")])).unwrap();
    assert_eq!(feed(&mut client, b"\xb0\x02\0\x02", &[]), (vec![answer(None)], vec![]));
}

#[test]
fn checks_can_restrict_the_accepted_reason_codes() {
    let mut client = opened(Version::V5);
    send(&mut client, &publish(Qos::AtLeastOnce)).unwrap();
    let checks = Checks { statuses: vec![(0, 0)], ..Checks::default() };
    let (_, heard) = client.read(b"\x40\x03\0\x01\x10", &checks, &mut Vec::new()).unwrap();
    assert_eq!(format!("{heard:?}"), answer(Some("PUBACK: no matching subscribers (0x10)")));
}

#[test]
fn received_messages_are_acknowledged_and_delivered_once() {
    for version in BOTH {
        // MQTT 5 has a list of properties, which is empty here.
        let none: &[u8] = if version == Version::V5 { b"\0" } else { b"" };
        let publish = |first: u8, id: &[u8], payload: &[u8]| {
            let body = [b"\0\x01t", id, none, payload].concat();
            [&[first, body.len() as u8], &body[..]].concat()
        };
        let mut client = opened(version);
        let check = |client: &mut Client, input: &[u8], events: Vec<String>, sent: &[u8]| {
            assert_eq!(feed(client, input, &[]), (events, sent.to_vec()), "{input:?}");
        };
        check(&mut client, &publish(0x30, b"", b"0"), vec![message(b"0")], b"");
        check(&mut client, &publish(0x33, b"\0\x09", b"1"), vec![message(b"1")], b"\x40\x02\0\x09");
        check(&mut client, &publish(0x34, b"\0\x09", b"2"), vec![message(b"2")], b"\x50\x02\0\x09");
        check(&mut client, &publish(0x3c, b"\0\x09", b"2"), vec![], b"\x50\x02\0\x09");
        check(&mut client, b"\x62\x02\0\x09", vec![], b"\x70\x02\0\x09");
        check(&mut client, &publish(0x34, b"\0\x09", b""), vec![message(b"")], b"\x50\x02\0\x09");
        let unknown: &[u8] = if version == Version::V5 { b"\x70\x03\0\x0a\x92" } else { b"\x70\x02\0\x0a" };
        check(&mut client, b"\x62\x02\0\x0a", vec![], unknown);
        let used = vec!["packet identifier 9 reused before it was released".to_owned()];
        check(&mut client, &publish(0x34, b"\0\x09", b"3"), used, b"");
    }
}

#[test]
fn a_session_outlives_its_connection_unless_it_is_clean() {
    for is_clean in [false, true] {
        let connect = MqttConnect { is_clean, ..connect(Version::V311) };
        let mut client = opened(Version::V311);
        send(&mut client, &publish(Qos::AtLeastOnce)).unwrap();
        assert_eq!(feed(&mut client, b"\x34\x06\0\x01t\0\x09x", &[]).0, [message(b"x")]);
        client.reset(&connect);
        let connack: &[u8] = if is_clean { b"\x20\x02\0\0" } else { b"\x20\x02\x01\0" };
        assert_eq!(feed(&mut client, connack, &[]).0, ["Ready"]);
        let again = feed(&mut client, b"\x3c\x06\0\x01t\0\x09x", &[]).0;
        assert_eq!(again, if is_clean { vec![message(b"x")] } else { vec![] });
        // The unacknowledged message of the last connection keeps its packet identifier.
        assert_eq!(&send(&mut client, &publish(Qos::AtLeastOnce)).unwrap().1[7..9], b"\0\x02");
    }
}

#[test]
fn packet_identifiers_are_never_zero() {
    let mut client = opened(Version::V311);
    client.id = u16::MAX;
    let (_, bytes) = send(&mut client, &publish(Qos::AtLeastOnce)).unwrap();
    assert_eq!(&bytes[7..9], b"\0\x01");
}

#[test]
fn keep_alive_pings_and_pings_of_steps_are_distinguished() {
    for version in BOTH {
        let mut client = opened(version);
        let mut out = Vec::new();
        assert_eq!(client.keep_alive_due(1_000), Some(1_000 + 54 * SECOND_NS));
        client.keep_alive(&mut out);
        assert_eq!(
            send(&mut client, &MqttMessage::Ping).unwrap(),
            (SendOutcome::Awaited, b"\xc0\0".to_vec())
        );
        assert!(out == b"\xc0\0" && client.awaits_pong());
        assert_eq!(feed(&mut client, b"\xd0\0", &[]), (vec![], vec![]));
        assert!(!client.awaits_pong());
        assert_eq!(feed(&mut client, b"\xd0\0", &[]), (vec![answer(None)], vec![]));
        assert_eq!(feed(&mut client, b"\xd0\0", &[]).0, ["unexpected PINGRESP"]);
    }
    let silent = Client { keep_alive_seconds: 0, ..opened(Version::V5) };
    assert_eq!(silent.keep_alive_due(0), None);
    assert_eq!(Client::new(&connect(Version::V5)).keep_alive_due(0), None);
}

#[test]
fn messages_that_the_broker_does_not_support_are_not_sent() {
    let mut client = Client::new(&connect(Version::V5));
    // Server Keep Alive 10, Maximum QoS 1, Retain Available 0, Maximum Packet Size 30.
    let connack = b"\x20\x0f\0\0\x0c\x13\0\x0a\x24\x01\x25\0\x27\0\0\0\x1e";
    assert_eq!(feed(&mut client, connack, &[]).0, ["Ready"]);
    assert_eq!(client.keep_alive_due(0), Some(9 * SECOND_NS));
    let text = |length: usize| Template::literal("x".repeat(length));
    let with = |topic: Template, payload: Template, qos, is_retained| MqttMessage::Publish {
        topic,
        payload,
        qos,
        is_retained,
    };
    let topic = || Template::literal("t");
    use Qos::{AtLeastOnce, AtMostOnce, ExactlyOnce};
    for (message, what) in [
        (with(topic(), text(1), ExactlyOnce, false), "the broker does not support this QoS"),
        (with(topic(), text(1), AtMostOnce, true), "the broker does not retain messages"),
        (with(topic(), text(25), AtMostOnce, false), "the packet is larger than the broker allows"),
        (with(text(0), text(1), AtMostOnce, false), "a topic has 1 to 65535 bytes"),
        (
            with(Template::literal("a/+"), text(1), AtMostOnce, false),
            "`+` is for subscriptions; a topic to publish to cannot contain it",
        ),
        (with(Template::literal("a\0"), text(1), AtMostOnce, false), "a string contains a NUL character"),
        (with(text(70_000), text(1), AtMostOnce, false), "a string is longer than 65,535 bytes"),
        (subscribe(&[]), "no topic filter"),
        (subscribe(&["ok", ""]), "a topic filter has 1 to 65535 bytes"),
        (subscribe(&["a/#/b"]), "`#` must be the last level of a topic filter"),
        (subscribe(&["a/b#"]), "a wildcard takes a whole level, as in `a/+/b` and `a/#`"),
        (subscribe(&["+a/b"]), "a wildcard takes a whole level, as in `a/+/b` and `a/#`"),
    ] {
        let mut out = b"before".to_vec();
        let refused = with_values(|values| client.send(&message, values, &mut out));
        assert_eq!(refused, Err(MqttFault::Unsendable(what)));
        assert_eq!(out, b"before");
    }
    assert_eq!(send(&mut client, &with(topic(), text(22), AtLeastOnce, false)).unwrap().1.len(), 30);
    assert!(send(&mut client, &with(topic(), text(23), AtLeastOnce, false)).is_err());
    for filter in ["#", "+", "/", "a/+/b", "a//#", "$share/group/a/#"] {
        assert_eq!(filter_fault(filter.as_bytes()), None);
    }
}

#[test]
fn the_reason_of_a_disconnect_is_reported() {
    let mut client = opened(Version::V5);
    let fault = client.read(b"\xe0\x01\x8e", &NO_CHECKS, &mut Vec::new()).unwrap_err();
    assert_eq!(fault.to_string(), "DISCONNECT: session taken over (0x8e)");
    assert_eq!(fault.kind(), ErrorKind::Status);
    assert_eq!(feed(&mut client, b"\xe0\0", &[]).0, ["DISCONNECT: success (0x00)"]);
    let words = "DISCONNECT: server shutting down (0x8b): bye";
    assert_eq!(feed(&mut client, b"\xe0\x08\x8b\x06\x1f\0\x03bye", &[]).0, [words]);
    assert_eq!(client.end(b"").kind(), ErrorKind::Closed);
    assert_eq!(client.end(b"\x30"), MqttFault::Cut);
}

#[test]
fn disconnect_is_only_sent_in_an_open_session() {
    let mut out = Vec::new();
    Client::new(&connect(Version::V5)).close(&mut out);
    assert_eq!(out, b"");
    opened(Version::V5).close(&mut out);
    assert_eq!(out, b"\xe0\0");
}

#[test]
fn malformed_and_unexpected_packets_are_faults() {
    use Version::{V5, V311};
    // A PUBLISH of QoS 2 with packet identifier 1 is in flight.
    for (version, bytes, words) in [
        (V311, &b"\x00\x00"[..], "unexpected packet 0"),
        (V311, b"\x10\x00", "unexpected CONNECT"),
        (V311, b"\x20\x02\0\0", "unexpected CONNACK"),
        (V5, b"\x20\x03\0\0\0", "unexpected CONNACK"),
        (V311, b"\x82\x00", "unexpected SUBSCRIBE"),
        (V311, b"\xa2\x00", "unexpected UNSUBSCRIBE"),
        (V311, b"\xc0\x00", "unexpected PINGREQ"),
        (V311, b"\xe0\x00", "unexpected DISCONNECT"),
        (V311, b"\xf0\x00", "unexpected AUTH"),
        (V5, b"\xf0\x00", "unexpected AUTH"),
        (V311, b"\x30\xff\xff\xff\xff\x01", "malformed PUBLISH: length field longer than 4 bytes"),
        (V311, b"\x30\xff\xff\xff\xff", "malformed PUBLISH: length field longer than 4 bytes"),
        (V311, b"\x30\xff\xff\xff\x7f", "packet of 268435460 bytes, more than 16777216"),
        (V5, b"\x30\xfc\xff\xff\x07", "packet of 16777217 bytes, more than 16777216"),
        // PUBLISH
        (V311, b"\x30\x00", "malformed PUBLISH: it is truncated"),
        (V311, b"\x30\x02\0\x01", "malformed PUBLISH: it is truncated"),
        (V311, b"\x30\x02\0\0", "malformed PUBLISH: empty topic"),
        (V5, b"\x30\x03\0\0\0", "malformed PUBLISH: empty topic"),
        (V311, b"\x30\x04\0\x02a\xff", "malformed PUBLISH: invalid UTF-8"),
        // A surrogate, which UTF-8 must not encode.
        (V311, b"\x30\x05\0\x03\xed\xa0\x80", "malformed PUBLISH: invalid UTF-8"),
        (V311, b"\x30\x04\0\x02a\0", "malformed PUBLISH: NUL character in a string"),
        (V311, b"\x30\x03\0\x01#", "malformed PUBLISH: wildcard in the topic"),
        (V311, b"\x30\x05\0\x03a/+", "malformed PUBLISH: wildcard in the topic"),
        (V311, b"\x36\x05\0\x01t\0\x01", "malformed PUBLISH: QoS 3"),
        (V311, b"\x38\x03\0\x01t", "malformed PUBLISH: DUP flag with QoS 0"),
        (V311, b"\x32\x05\0\x01t\0\0", "malformed PUBLISH: packet identifier 0"),
        (V311, b"\x32\x04\0\x01t\x01", "malformed PUBLISH: it is truncated"),
        (V5, b"\x30\x03\0\x01t", "malformed PUBLISH: it is truncated"),
        (V5, b"\x30\x04\0\x01t\x01", "malformed PUBLISH: it is truncated"),
        (
            V5,
            b"\x30\x08\0\x01t\xff\xff\xff\xff\x01",
            "malformed PUBLISH: variable byte integer longer than 4 bytes",
        ),
        (V5, b"\x30\x07\0\x01t\x03\x23\0\x01", "malformed PUBLISH: topic alias not allowed"),
        (V5, b"\x30\x07\0\x01t\x03\x21\0\x01", "malformed PUBLISH: property not allowed here"),
        (V5, b"\x30\x06\0\x01t\x02\xff\x01", "malformed PUBLISH: property not allowed here"),
        (V5, b"\x30\x08\0\x01t\x04\x01\x01\x01\x01", "malformed PUBLISH: duplicate property"),
        (V5, b"\x30\x06\0\x01t\x02\x01\x02", "malformed PUBLISH: property value out of range"),
        (V5, b"\x30\x06\0\x01t\x02\x0b\0", "malformed PUBLISH: property value out of range"),
        (V5, b"\x30\x08\0\x01t\x04\x03\0\x01\xff", "malformed PUBLISH: invalid UTF-8"),
        (V5, b"\x30\x07\0\x01t\x03\x26\0\x01", "malformed PUBLISH: it is truncated"),
        // Acknowledgements
        (V311, b"\x41\x02\0\x01", "malformed PUBACK: invalid flags"),
        (V311, b"\x60\x02\0\x01", "malformed PUBREL: invalid flags"),
        (V311, b"\x40\x01\0", "malformed PUBACK: it is truncated"),
        (V311, b"\x50\x02\0\0", "malformed PUBREC: packet identifier 0"),
        (V311, b"\x50\x03\0\x01\0", "malformed PUBREC: trailing bytes"),
        (V5, b"\x50\x05\0\x01\0\0\0", "malformed PUBREC: trailing bytes"),
        (V5, b"\x50\x06\0\x01\0\x02\x21\0", "malformed PUBREC: property not allowed here"),
        (V311, b"\x40\x02\0\x01", "unexpected PUBACK"),
        (V311, b"\x70\x02\0\x01", "unexpected PUBCOMP"),
        (V311, b"\x50\x02\0\x02", "unexpected PUBREC"),
        (V311, b"\x50\x02\0\x01\x50\x02\0\x01", "unexpected PUBREC"),
        (V311, b"\x90\x03\0\x01\0", "unexpected SUBACK"),
        (V311, b"\x90\x03\0\x01\x03", "malformed SUBACK: return code unknown to MQTT 3.1.1"),
        (V311, b"\xb0\x02\0\x01", "unexpected UNSUBACK"),
        (V311, b"\xb0\x03\0\x01\0", "malformed UNSUBACK: trailing bytes"),
        (V311, b"\xd0\x00", "unexpected PINGRESP"),
        (V311, b"\xd0\x01\0", "malformed PINGRESP: trailing bytes"),
        (V311, b"\xd1\x00", "malformed PINGRESP: invalid flags"),
        (V5, b"\xe0\x03\0\x01\x11", "malformed DISCONNECT: property not allowed here"),
    ] {
        let mut client = opened(version);
        send(&mut client, &publish(Qos::ExactlyOnce)).unwrap();
        assert_eq!(feed(&mut client, bytes, &[]).0, [words], "{version:?} {bytes:02x?}");
    }
    for (version, bytes, words) in [
        (V311, &b"\x20\x02\x02\0"[..], "malformed CONNACK: invalid flags"),
        (V311, b"\x21\x02\0\0", "malformed CONNACK: invalid flags"),
        (V311, b"\x20\x01\0", "malformed CONNACK: it is truncated"),
        (V311, b"\x20\x03\0\0\0", "malformed CONNACK: trailing bytes"),
        (V311, b"\x20\x02\x01\x05", "malformed CONNACK: session present in a refusal"),
        (V5, b"\x20\x02\0\0", "malformed CONNACK: it is truncated"),
        (V5, b"\x20\x06\0\0\x03\x21\0\0", "malformed CONNACK: property value out of range"),
        (V5, b"\x20\x08\0\0\x05\x27\0\0\0\0", "malformed CONNACK: property value out of range"),
        (V5, b"\x20\x05\0\0\x02\x24\x02", "malformed CONNACK: property value out of range"),
        (V311, b"\x30\x03\0\x01t", "unexpected PUBLISH"),
        (V311, b"\xd0\x00", "unexpected PINGRESP"),
        // The first byte determines the result, whatever follows.
        (V311, b"H", "unexpected PUBACK"),
        (V311, b"\x6f\xfb\xc8\xfe\xfe\x7f", "unexpected PUBREL"),
    ] {
        let mut client = Client::new(&connect(version));
        assert_eq!(feed(&mut client, bytes, &[]).0, [words], "{version:?} {bytes:02x?}");
    }
    for (bytes, count) in [(&b"\x90\x04\0\x01\0\0"[..], 2), (b"\x90\x02\0\x01", 0)] {
        let mut client = opened(V311);
        send(&mut client, &subscribe(&["a"])).unwrap();
        assert_eq!(client.read(bytes, &NO_CHECKS, &mut Vec::new()), Err(MqttFault::Reasons(count)));
    }
}

#[test]
fn an_incomplete_packet_is_not_parsed() {
    for version in BOTH {
        let whole: &[u8] =
            if version == Version::V5 { b"\x32\x07\0\x01t\0\x05\0x" } else { b"\x32\x06\0\x01t\0\x05x" };
        for length in 0..whole.len() {
            let mut client = opened(version);
            let read = client.read(&whole[..length], &NO_CHECKS, &mut Vec::new());
            assert_eq!(read, Ok((0, Received::Nothing)));
        }
    }
}

fn version() -> impl Strategy<Value = Version> {
    prop_oneof![Just(Version::V311), Just(Version::V5)]
}

proptest! {
    #[test]
    fn the_result_does_not_depend_on_how_the_input_is_split(version in version(), cuts in proptest::collection::vec(0_usize..90, 0..12)) {
        let input: &[u8] = match version {
            Version::V311 => b"\x50\x02\0\x01\x30\x05\0\x01tab\x32\x06\0\x01t\0\x05c\x34\x06\0\x01t\0\x06d\x62\x02\0\x06\x70\x02\0\x01\x62\x02\0\x06\x90\x03\0\x01\0",
            Version::V5 => b"\x50\x04\0\x01\0\0\x30\x08\0\x01t\x02\x01\x01ab\x32\x07\0\x01t\0\x05\0c\x34\x07\0\x01t\0\x06\0d\x62\x02\0\x06\x70\x03\0\x01\x92\xe0\x02\x8b\0",
        };
        let mut cuts = cuts;
        cuts.sort_unstable();
        let result = |cuts: &[usize]| {
            let mut client = opened(version);
            send(&mut client, &publish(Qos::ExactlyOnce)).unwrap();
            feed(&mut client, input, cuts)
        };
        let whole = result(&[]);
        prop_assert_eq!(whole.0.len(), 5);
        prop_assert_eq!(result(&cuts), whole);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(
        version in version(),
        kinds in proptest::collection::vec((any::<u8>(), proptest::collection::vec(any::<u8>(), 0..40)), 0..6),
        cuts in proptest::collection::vec(0_usize..250, 0..5),
    ) {
        let packets = kinds.iter().flat_map(|(first, body)| [&[*first, body.len() as u8], &body[..]].concat());
        let input: Vec<u8> = packets.collect();
        let mut cuts = cuts;
        cuts.sort_unstable();
        let result = |cuts: &[usize]| {
            let mut client = opened(version);
            send(&mut client, &subscribe(&["a"])).unwrap();
            feed(&mut client, &input, cuts)
        };
        prop_assert_eq!(result(&cuts), result(&[]));
    }
}
