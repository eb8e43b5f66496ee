//! Interoperability with the broker side of mqtt-protocol-core.

use mqtt_protocol_core::mqtt as peer;
use peer::connection::Event;
use peer::packet::{GenericPacketTrait, Property, v3_1_1, v5_0};

use super::*;

/// The broker side of a connection in mqtt-protocol-core.
struct Broker {
    version: Version,
    connection: peer::Connection<peer::role::Server>,
    received: Vec<peer::packet::Packet>,
}

impl Broker {
    fn new(version: Version) -> Self {
        let of = if version == Version::V5 { peer::Version::V5_0 } else { peer::Version::V3_1_1 };
        let mut connection = peer::Connection::new(of);
        connection.set_auto_pub_response(true);
        connection.set_auto_ping_response(true);
        Self { version, connection, received: Vec::new() }
    }

    /// Collects received packets and returns the bytes to send.
    fn handle(&mut self, events: Vec<Event>) -> Vec<u8> {
        let mut out = Vec::new();
        for event in events {
            match event {
                Event::RequestSendPacket { packet, .. } => out.extend(packet.to_continuous_buffer()),
                Event::NotifyPacketReceived(packet) => self.received.push(packet),
                Event::NotifyError(error) => panic!("{error:?}"),
                _ => {}
            }
        }
        out
    }

    fn read(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut cursor = peer::common::Cursor::new(bytes);
        let mut out = Vec::new();
        while cursor.position() < bytes.len() as u64 {
            let events = self.connection.recv(&mut cursor);
            out.extend(self.handle(events));
        }
        out
    }

    fn send(&mut self, packet: impl Into<peer::packet::Packet>) -> Vec<u8> {
        let events = self.connection.send(packet.into());
        self.handle(events)
    }

    fn connack(&mut self, is_present: bool) -> Vec<u8> {
        match self.version {
            Version::V311 => {
                let code = peer::result_code::ConnectReturnCode::Accepted;
                let connack = v3_1_1::Connack::builder().session_present(is_present).return_code(code);
                self.send(connack.build().unwrap())
            }
            Version::V5 => {
                let code = peer::result_code::ConnectReasonCode::Success;
                let connack = v5_0::Connack::builder().session_present(is_present).reason_code(code);
                let words = peer::packet::ReasonString::new("welcome").unwrap();
                let user = peer::packet::UserProperty::new("a", "b").unwrap();
                let seconds = peer::packet::ServerKeepAlive::new(30).unwrap();
                let props = vec![words.into(), user.clone().into(), seconds.into(), user.into()];
                self.send(connack.props(props).build().unwrap())
            }
        }
    }

    fn publish(&mut self, qos: Qos, topic: &str, payload: &[u8]) -> Vec<u8> {
        let of = peer::packet::Qos::try_from(qos as u8).unwrap();
        let id = (qos != Qos::AtMostOnce).then(|| self.connection.acquire_packet_id().unwrap());
        match self.version {
            Version::V311 => {
                let publish = v3_1_1::Publish::builder().topic_name(topic).unwrap().qos(of).payload(payload);
                let publish = if let Some(id) = id { publish.packet_id(id) } else { publish };
                self.send(publish.build().unwrap())
            }
            Version::V5 => {
                let props: Vec<Property> = vec![
                    peer::packet::ContentType::new("text").unwrap().into(),
                    peer::packet::SubscriptionIdentifier::new(300).unwrap().into(),
                    peer::packet::CorrelationData::new(vec![0_u8, 255]).unwrap().into(),
                    peer::packet::MessageExpiryInterval::new(70_000).unwrap().into(),
                ];
                let publish = v5_0::Publish::builder().topic_name(topic).unwrap().qos(of);
                let publish = publish.payload(payload).props(props);
                let publish = if let Some(id) = id { publish.packet_id(id) } else { publish };
                self.send(publish.build().unwrap())
            }
        }
    }
}

fn qos() -> impl Strategy<Value = Qos> {
    prop_oneof![Just(Qos::AtMostOnce), Just(Qos::AtLeastOnce), Just(Qos::ExactlyOnce)]
}

proptest! {
    #[test]
    fn mqtt_protocol_core_reads_our_connect(
        version in version(),
        client_id in "[a-z]{1,200}",
        user in proptest::option::of("[a-zä]{0,90}"),
        password in proptest::option::of("[a-z]{0,90}"),
        keep_alive in any::<u16>(),
        is_clean in any::<bool>(),
        expiry in any::<u32>(),
        will in proptest::option::of(("[a-z/]{1,50}", "[a-z]{0,90}", qos(), any::<bool>())),
    ) {
        // MQTT 5 allows a password without a user name (3.1.2.9); mqtt-protocol-core does not.
        let password = password.filter(|_| user.is_some());
        let connect = MqttConnect {
            version,
            client_id: Template::literal(client_id.clone()),
            user: user.clone().map(Template::literal),
            password: password.clone().map(Template::literal),
            keep_alive_seconds: keep_alive,
            is_clean,
            session_expiry_seconds: expiry,
            will: will.clone().map(|(topic, payload, qos, is_retained)| Will {
                topic: Template::literal(topic),
                payload: Template::literal(payload),
                qos,
                is_retained,
            }),
        };
        let mut out = Vec::new();
        with_values(|values| Client::new(&connect).open(&connect, values, &mut out)).unwrap();
        let mut broker = Broker::new(version);
        broker.read(&out);
        let will_of = |topic: Option<&str>, payload: Option<&[u8]>, qos: peer::packet::Qos, is_retained| {
            let payload = payload.map(|payload| String::from_utf8(payload.to_vec()).unwrap());
            topic.map(|topic| (topic.to_owned(), payload.unwrap(), qos as u8, is_retained))
        };
        let will = will.map(|(topic, payload, qos, is_retained)| (topic, payload, qos as u8, is_retained));
        let user = user.as_deref();
        let password = password.as_deref().map(str::as_bytes);
        match &broker.received[..] {
            [peer::packet::Packet::V3_1_1Connect(got)] => {
                prop_assert_eq!(version, Version::V311);
                prop_assert_eq!(got.client_id(), client_id);
                prop_assert_eq!((got.user_name(), got.password()), (user, password));
                prop_assert_eq!((got.keep_alive(), got.clean_session()), (keep_alive, is_clean));
                prop_assert_eq!(will_of(got.will_topic(), got.will_payload(), got.will_qos(), got.will_retain()), will);
            }
            [peer::packet::Packet::V5_0Connect(got)] => {
                prop_assert_eq!(version, Version::V5);
                prop_assert_eq!(got.client_id(), client_id);
                prop_assert_eq!((got.user_name(), got.password()), (user, password));
                prop_assert_eq!((got.keep_alive(), got.clean_start()), (keep_alive, is_clean));
                prop_assert_eq!(will_of(got.will_topic(), got.will_payload(), got.will_qos(), got.will_retain()), will);
                let mut expected = vec![peer::packet::MaximumPacketSize::new(16 * 1024 * 1024).unwrap().into()];
                if expiry > 0 {
                    expected.push(peer::packet::SessionExpiryInterval::new(expiry).unwrap().into());
                }
                prop_assert_eq!(got.props(), &expected);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn mqtt_protocol_core_exchanges_messages_with_us(
        version in version(),
        topic in "[a-zä/]{1,200}",
        // With these sizes, the length field has one, two and three bytes.
        payload in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            proptest::collection::vec(any::<u8>(), 16_000..17_000),
        ],
        ours in qos(),
        theirs in qos(),
        is_retained in any::<bool>(),
        cuts in proptest::collection::vec(0_usize..17_000, 0..8),
    ) {
        let mut cuts = cuts;
        cuts.sort_unstable();
        let connect = connect(version);
        let mut client = Client::new(&connect);
        let mut broker = Broker::new(version);
        let mut out = Vec::new();
        with_values(|values| client.open(&connect, values, &mut out)).unwrap();
        broker.read(&out);
        let connack = broker.connack(false);
        prop_assert_eq!(feed(&mut client, &connack, &cuts).0, ["Ready"]);

        // The client publishes, and packets are exchanged until the answer arrives.
        let mine = MqttMessage::Publish {
            topic: Template::literal(topic.clone()),
            payload: Template::literal(payload.clone()),
            qos: ours,
            is_retained,
        };
        let (sent, mut bytes) = send(&mut client, &mine).unwrap();
        let mut events = Vec::new();
        while !bytes.is_empty() {
            let replies = broker.read(&bytes);
            let (more, out) = feed(&mut client, &replies, &cuts);
            events.extend(more);
            bytes = out;
        }
        prop_assert_eq!(events, if sent == SendOutcome::Done { vec![] } else { vec![answer(None)] });
        let (got_topic, got_payload, got_qos, got_retain) = match &broker.received[1] {
            peer::packet::Packet::V3_1_1Publish(got) => {
                (got.topic_name(), got.payload().as_slice(), got.qos(), got.retain())
            }
            peer::packet::Packet::V5_0Publish(got) => {
                (got.topic_name(), got.payload().as_slice(), got.qos(), got.retain())
            }
            other => panic!("{other:?}"),
        };
        prop_assert_eq!((got_topic, got_payload), (&topic[..], &payload[..]));
        prop_assert_eq!((got_qos as u8, got_retain), (ours as u8, is_retained));

        // The broker publishes.
        let mut bytes = broker.publish(theirs, &topic, &payload);
        let mut events = Vec::new();
        while !bytes.is_empty() {
            let (more, out) = feed(&mut client, &bytes, &cuts);
            events.extend(more);
            bytes = broker.read(&out);
        }
        prop_assert_eq!(events, [message(&payload)]);

        let (_, bytes) = send(&mut client, &MqttMessage::Ping).unwrap();
        let pong = broker.read(&bytes);
        prop_assert_eq!(feed(&mut client, &pong, &[]).0, [answer(None)]);
        for message in [subscribe(&["a/#", "+/b", "c"]), MqttMessage::Unsubscribe(vec![Template::literal("a/#")])] {
            let (_, bytes) = send(&mut client, &message).unwrap();
            broker.read(&bytes);
            let last = format!("{:?}", broker.received.last().unwrap());
            prop_assert!(last.contains("a/#"), "{}", last);
            client.awaited = Awaited::Nothing;
        }
        let mut out = Vec::new();
        client.close(&mut out);
        broker.read(&out);
        prop_assert!(matches!(
            broker.received.last(),
            Some(peer::packet::Packet::V3_1_1Disconnect(_) | peer::packet::Packet::V5_0Disconnect(_))
        ));
    }
}
