//! MQTT 3.1.1 and 5.0 devices against mosquitto and misbehaving brokers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    missing_docs,
    reason = "tests"
)]

use std::io::{ErrorKind as IoError, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use beamtune_load::clock::{SECOND_NS, now_ns};
use beamtune_load::engine::{self, Share};
use beamtune_load::program::{Delay, Endpoint, Kind, Model, Op, Plan};
use beamtune_load::protocol::mqtt::{MqttConnect, MqttMessage, Qos, Version, Will};
use beamtune_load::protocol::{Checks, Message, Protocol};
use beamtune_load::schedule::{Profile, Spacing};
use beamtune_load::tally::{ErrorKind, Tally};
use beamtune_load::template::Template;
use tempfile::TempDir;

const VERSIONS: [Version; 2] = [Version::V311, Version::V5];
const MILLISECOND_NS: u64 = SECOND_NS / 1000;
/// Time limit for everything that a test expects to happen.
const MAX_WAIT_NS: u64 = 20 * SECOND_NS;

/// A mosquitto broker; it stops when dropped.
struct Mosquitto {
    child: Child,
    address: SocketAddr,
    _folder: TempDir,
}

impl Mosquitto {
    /// Starts a broker that requires this user and password, if any. `None` if mosquitto is not installed and the test is skipped.
    fn start(user: Option<(&str, &str)>) -> Option<Self> {
        let Some(program) =
            ["/usr/sbin/mosquitto", "/usr/bin/mosquitto"].into_iter().find(|p| Path::new(p).exists())
        else {
            eprintln!("skipped, because mosquitto is not installed (scripts/install.sh test)");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let address = free_address();
        let file = folder.path().join("mosquitto.conf");
        let mut lines = format!("listener {} 127.0.0.1\nlog_dest none\nuser root\n", address.port());
        match user {
            None => lines.push_str("allow_anonymous true\n"),
            Some((name, password)) => {
                let passwords = folder.path().join("passwords");
                let made = Command::new("mosquitto_passwd")
                    .args(["-c", "-b"])
                    .arg(&passwords)
                    .args([name, password])
                    .stderr(Stdio::null())
                    .status();
                assert!(made.unwrap().success());
                lines.push_str(&format!("allow_anonymous false\npassword_file {}\n", passwords.display()));
            }
        }
        std::fs::write(&file, lines).unwrap();
        let mut child = Command::new(program).arg("-c").arg(&file).stderr(Stdio::null()).spawn().unwrap();
        let until = Instant::now() + Duration::from_nanos(MAX_WAIT_NS);
        while TcpStream::connect(address).is_err() {
            assert!(child.try_wait().unwrap().is_none() && Instant::now() < until, "mosquitto did not start");
            thread::sleep(Duration::from_millis(10));
        }
        Some(Self { child, address, _folder: folder })
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// These ports are below the kernel's ephemeral ports, so that no connection gets one of them.
const PORTS: std::ops::Range<u32> = 27_000..29_900;
/// Distance between the first ports of two test processes: more than any process needs.
const PORTS_PER_PROCESS: u32 = 101;

/// Returns an address on which no process listens and which no other test uses.
fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(PORTS_PER_PROCESS) % PORTS.len() as u32;
    let address = |_| {
        let next = (first + NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS.len() as u32;
        SocketAddr::from((Ipv4Addr::LOCALHOST, (PORTS.start + next) as u16))
    };
    PORTS.map(address).find(|address| TcpListener::bind(address).is_ok()).expect("a free port")
}

fn text(text: &str) -> Template {
    Template::parse(text, None).unwrap()
}

fn connect(version: Version, client_id: &str) -> MqttConnect {
    MqttConnect {
        version,
        client_id: text(client_id),
        user: None,
        password: None,
        keep_alive_seconds: 60,
        is_clean: true,
        session_expiry_seconds: 0,
        will: None,
    }
}

/// A client with a persistent session.
fn persistent(version: Version, client_id: &str) -> MqttConnect {
    MqttConnect { is_clean: false, session_expiry_seconds: 60, ..connect(version, client_id) }
}

fn publish(topic: &str, payload: &str, qos: Qos) -> MqttMessage {
    MqttMessage::Publish { topic: text(topic), payload: text(payload), qos, is_retained: false }
}

fn subscribe(filter: &str, qos: Qos) -> MqttMessage {
    MqttMessage::Subscribe(vec![(text(filter), qos)])
}

/// The operations of devices. Step 0 is the connect; each added step gets the next number.
struct Script {
    connect: MqttConnect,
    devices: u64,
    ops: Vec<Op>,
    steps: usize,
    body: usize,
    timeout_ns: u64,
    model: Model,
    connect_ns: u64,
}

impl Script {
    fn new(connect: MqttConnect) -> Self {
        Self {
            connect,
            devices: 1,
            ops: vec![Op::Connect { step: 0 }],
            steps: 1,
            body: 1,
            timeout_ns: MAX_WAIT_NS,
            model: Model::Closed { ramp_ns: 0, sustain_ns: MAX_WAIT_NS, turns: Some(1) },
            connect_ns: 0,
        }
    }

    fn send(mut self, message: MqttMessage) -> Self {
        let message = Message::Mqtt(Box::new(message));
        self.ops.push(Op::Send { step: self.steps, message, checks: Box::default() });
        self.steps += 1;
        self
    }

    fn expect(mut self, part: &str) -> Self {
        let checks = Checks { body: vec![part.to_owned()], ..Checks::default() };
        self.ops.push(Op::Expect { step: self.steps, checks: Box::new(checks) });
        self.steps += 1;
        self
    }

    fn op(mut self, op: Op) -> Self {
        self.ops.push(op);
        self
    }

    fn sleep(self, nanoseconds: u64) -> Self {
        self.op(Op::Sleep(Delay::Uniform { nanoseconds, jitter: 0.0 }))
    }

    fn run(mut self, address: SocketAddr) -> Tally {
        self.ops.push(Op::Next);
        let kind = Kind {
            name: "device".to_owned(),
            devices: self.devices,
            endpoint: Endpoint { address, sources: Arc::new([]), tls: None },
            protocol: Protocol::Mqtt(Box::new(self.connect)),
            ops: self.ops,
            body: self.body,
            connect_timeout_ns: MAX_WAIT_NS,
            timeout_ns: self.timeout_ns,
            pause_ns: 10 * MILLISECOND_NS,
        };
        let plan = Plan {
            kinds: vec![kind],
            steps: (0..self.steps).map(|step| format!("step {step}")).collect(),
            model: self.model,
            seed: 1,
            start_ns: now_ns() + self.connect_ns,
            connect_ns: self.connect_ns,
            rundown_ns: MAX_WAIT_NS,
        };
        let mut all = Tally::new(self.steps);
        let stop = AtomicBool::new(false);
        engine::run(&plan, Share { index: 0, of: 1 }, &stop, &mut |second| all.add(&second.tally)).unwrap();
        all
    }
}

/// Errors: step, kind and text of the first one.
fn errors(tally: &Tally) -> Vec<(usize, ErrorKind, String)> {
    let steps = tally.steps.iter().enumerate();
    steps
        .flat_map(|(index, step)| step.iter().map(move |step| (index, step)))
        .flat_map(|(index, step)| {
            step.errors.iter().map(move |(kind, _, first)| (index, kind, first.to_owned()))
        })
        .collect()
}

fn done(tally: &Tally) -> Vec<u64> {
    tally.steps.iter().map(|step| step.as_ref().map_or(0, |step| step.done())).collect()
}

#[test]
fn messages_of_every_qos_are_delivered() {
    let Some(broker) = Mosquitto::start(None) else { return };
    for version in VERSIONS {
        let mut script = Script::new(connect(version, "echo-${device}"));
        script.devices = 3;
        script.model = Model::Closed { ramp_ns: 0, sustain_ns: MAX_WAIT_NS, turns: Some(5) };
        let script = script
            .send(subscribe("echo/${device}/+", Qos::ExactlyOnce))
            .send(publish("echo/${device}/a", "zero ${turn}", Qos::AtMostOnce))
            .expect("zero")
            .send(publish("echo/${device}/b", "one ${turn}", Qos::AtLeastOnce))
            .expect("one")
            .send(publish("echo/${device}/c", "two ${turn}", Qos::ExactlyOnce))
            .expect("two")
            .send(MqttMessage::Ping)
            .send(MqttMessage::Unsubscribe(vec![text("echo/${device}/+")]))
            .op(Op::Close);
        let tally = script.run(broker.address);
        assert_eq!(errors(&tally), []);
        assert_eq!(done(&tally), [15; 10], "{version:?}");
        assert_eq!((tally.messages, tally.reconnects), (3 * 15, 0));
    }
}

#[test]
fn a_large_message_is_delivered() {
    let Some(broker) = Mosquitto::start(None) else { return };
    for version in VERSIONS {
        let payload = "0123456789abcdef".repeat(200_000);
        let large = publish("large", &payload, Qos::ExactlyOnce);
        // This message is larger than the socket buffer, and has no answer.
        let larger = publish("nobody", &payload.repeat(5), Qos::AtMostOnce);
        let script = Script::new(connect(version, "large")).send(subscribe("large", Qos::ExactlyOnce));
        let script = script.send(large).expect("0123456789abcdef").send(larger).send(MqttMessage::Ping);
        let mut tally = script.run(broker.address);
        assert_eq!((errors(&tally), done(&tally)), (vec![], vec![1; 6]));
        assert_eq!(tally.step(3).received_bytes, 3_200_000);
    }
}

#[test]
fn a_persistent_session_delivers_messages_from_before_the_connection() {
    let Some(broker) = Mosquitto::start(None) else { return };
    for version in VERSIONS {
        for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
            let away = || persistent(version, &format!("away-{version:?}-{qos:?}"));
            let topic = format!("{version:?}/{qos:?}");
            let tally = Script::new(away()).send(subscribe(&topic, qos)).run(broker.address);
            assert_eq!(errors(&tally), []);
            let tally = Script::new(connect(version, "other"))
                .send(publish(&topic, "missed", qos))
                .run(broker.address);
            assert_eq!(errors(&tally), []);
            let tally = Script::new(away()).expect("missed").run(broker.address);
            assert_eq!((errors(&tally), tally.messages), (vec![], 1));
        }
    }
}

#[test]
fn a_will_is_delivered_only_if_the_device_failed() {
    let Some(broker) = Mosquitto::start(None) else { return };
    for version in VERSIONS {
        let topic = format!("wills/{version:?}");
        let watcher = || persistent(version, &format!("watcher-{version:?}"));
        let with_will = |payload: &str| MqttConnect {
            will: Some(Will {
                topic: text(&topic),
                payload: text(payload),
                qos: Qos::AtLeastOnce,
                is_retained: false,
            }),
            ..connect(version, "mortal")
        };
        let tally = Script::new(watcher()).send(subscribe(&topic, Qos::AtLeastOnce)).run(broker.address);
        assert_eq!(errors(&tally), []);
        // One connection is closed by a step, the other by the end of the run.
        let closed = Script::new(with_will("closed")).send(MqttMessage::Ping).op(Op::Close);
        assert_eq!(errors(&closed.run(broker.address)), []);
        let ended = Script::new(with_will("ended")).send(MqttMessage::Ping);
        assert_eq!(errors(&ended.run(broker.address)), []);
        let mut failed = Script::new(with_will("failed")).expect("what never comes");
        failed.timeout_ns = 50 * MILLISECOND_NS;
        let tally = failed.run(broker.address);
        assert_eq!(errors(&tally), [(1, ErrorKind::Timeout, "no answer in time".to_owned())]);

        let tally = Script::new(watcher()).expect("failed").run(broker.address);
        assert_eq!((errors(&tally), tally.messages), (vec![], 1));
    }
}

#[test]
fn a_wrong_password_is_refused() {
    let Some(broker) = Mosquitto::start(Some(("anna", "right"))) else { return };
    for (version, message) in
        [(Version::V311, "CONNACK: not authorized (0x05)"), (Version::V5, "CONNACK: not authorized (0x87)")]
    {
        let with = |password: &str| MqttConnect {
            user: Some(text("anna")),
            password: Some(text(password)),
            ..connect(version, "a")
        };
        let tally = Script::new(with("wrong")).run(broker.address);
        assert_eq!(errors(&tally), [(0, ErrorKind::Status, message.to_owned())]);
        let tally = Script::new(with("right")).send(MqttMessage::Ping).run(broker.address);
        assert_eq!((errors(&tally), done(&tally)), (vec![], vec![1, 1]));
    }
}

#[test]
fn sleeping_waiting_and_free_devices_keep_their_connections() {
    let Some(broker) = Mosquitto::start(None) else { return };
    // The broker disconnects a device after 1.5 s without a packet.
    let impatient = |version, id: &str| MqttConnect { keep_alive_seconds: 1, ..connect(version, id) };
    let long_ns = 2_500 * MILLISECOND_NS;
    let broker = &broker;
    thread::scope(|scope| {
        for version in VERSIONS {
            scope.spawn(move || {
                let script = Script::new(impatient(version, &format!("sleeps-{version:?}")));
                let script = script.sleep(long_ns).send(publish("a", "x", Qos::AtLeastOnce));
                let tally = script.sleep(long_ns).send(MqttMessage::Ping).run(broker.address);
                assert_eq!((errors(&tally), done(&tally), tally.reconnects), (vec![], vec![1; 3], 0));
            });
            scope.spawn(move || {
                let mut script =
                    Script::new(impatient(version, &format!("waits-{version:?}"))).expect("never");
                script.timeout_ns = long_ns;
                let tally = script.run(broker.address);
                assert_eq!(
                    errors(&tally),
                    [(1, ErrorKind::Timeout, "the answer was not complete in time".to_owned())]
                );
            });
            scope.spawn(move || {
                let script = Script::new(impatient(version, &format!("free-{version:?}")));
                let mut script = script.send(publish("a", "x", Qos::AtLeastOnce));
                script.connect_ns = long_ns;
                let profile = Profile { per_second: 20.0, ramp_ns: 0, sustain_ns: SECOND_NS };
                script.model = Model::Open { profile, spacing: Spacing::Fixed };
                let tally = script.run(broker.address);
                assert_eq!((errors(&tally), tally.reconnects), (vec![], 0));
                assert!(tally.asked >= 19 && done(&tally) == [1, tally.asked]);
            });
        }
    });
}

#[test]
fn a_closed_idle_connection_is_an_error() {
    let Some(broker) = Mosquitto::start(None) else { return };
    for version in VERSIONS {
        let mut script = Script::new(connect(version, "the same")).sleep(SECOND_NS);
        script.devices = 2;
        // The second device connects while the first one sleeps and takes over its session. Mosquitto 2.0 sends no DISCONNECT.
        script.model = Model::Closed { ramp_ns: SECOND_NS, sustain_ns: MAX_WAIT_NS, turns: Some(1) };
        let message = "closed without DISCONNECT".to_owned();
        assert_eq!(errors(&script.run(broker.address)), [(0, ErrorKind::Closed, message)]);
    }
}

/// A broker that accepts one connection, sends `reply` once, and then only reads. Returns what it received.
fn silent_broker(reply: &'static [u8]) -> (SocketAddr, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0; 4096];
        let length = stream.read(&mut buffer).unwrap();
        let mut received = buffer[..length].to_vec();
        stream.write_all(reply).unwrap();
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return received,
                Ok(length) => received.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == IoError::ConnectionReset => return received,
                Err(error) => panic!("{error}"),
            }
        }
    });
    (address, thread)
}

#[test]
fn a_connection_is_dropped_if_the_broker_answers_no_ping() {
    for model in [
        Model::Closed { ramp_ns: 0, sustain_ns: MAX_WAIT_NS, turns: Some(1) },
        Model::Open {
            profile: Profile { per_second: 1.0, ramp_ns: 0, sustain_ns: SECOND_NS },
            spacing: Spacing::Fixed,
        },
    ] {
        let (address, broker) = silent_broker(b"\x20\x02\0\0");
        let mut script = Script::new(MqttConnect { keep_alive_seconds: 1, ..connect(Version::V311, "a") });
        script.timeout_ns = 100 * MILLISECOND_NS;
        script.model = model;
        let is_open = matches!(model, Model::Open { .. });
        if is_open {
            // The device is free and drops the connection before it gets an arrival.
            script.connect_ns = 1_500 * MILLISECOND_NS;
            script = script.send(publish("a", "x", Qos::AtMostOnce));
        } else {
            script = script.sleep(MAX_WAIT_NS);
        }
        let tally = script.run(address);
        let message = "no answer to a ping in time".to_owned();
        // The arrival is due after the broker has stopped.
        let errors = errors(&tally);
        assert!(errors.contains(&(0, ErrorKind::Timeout, message)), "{is_open}: {errors:?}");
        let received = broker.join().unwrap();
        assert!(received.ends_with(b"\xc0\0"), "{received:?}");
    }
}

#[test]
fn a_device_stops_sending_if_the_broker_reads_nothing() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = mpsc::channel::<()>();
    let broker = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"\x20\x02\0\0").unwrap();
        stopped.recv().unwrap_err();
    });
    let large = publish("a", &"x".repeat(1_000_000), Qos::AtMostOnce);
    let mut script = Script::new(connect(Version::V311, "a")).send(large);
    script.timeout_ns = 100 * MILLISECOND_NS;
    script.ops.push(Op::Repeat { counter: 0, times: 1_000, back_to: 1 });
    let tally = script.run(address);
    drop(stop);
    broker.join().unwrap();
    let message = "the peer did not read the message in time".to_owned();
    assert_eq!(errors(&tally), [(1, ErrorKind::Timeout, message)]);
    assert!(done(&tally)[1] < 100);
}

#[test]
fn protocol_errors_name_the_packet() {
    for (reply, step, kind, message) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], 0, ErrorKind::Protocol, "unexpected PUBACK"),
        (b"\x20\x03\0\0\0\x30\x02\0\0", 1, ErrorKind::Protocol, "malformed PUBLISH: empty topic"),
        (
            b"\x20\x03\0\0\0\x30\xfc\xff\xff\x07",
            1,
            ErrorKind::Protocol,
            "packet of 16777217 bytes, more than 16777216",
        ),
        (b"\x20\x03\0\0\0\xe0\x01\x8b", 1, ErrorKind::Status, "DISCONNECT: server shutting down (0x8b)"),
    ] {
        let (address, broker) = silent_broker(reply);
        let tally = Script::new(connect(Version::V5, "a")).expect("x").run(address);
        assert_eq!(errors(&tally), [(step, kind, message.to_owned())]);
        broker.join().unwrap();
    }
}
