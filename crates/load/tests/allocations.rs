//! Tests that requests do not allocate: in every protocol, 20,000 requests cause as many allocations as 10,000.
//!
//! The allocations of the generator's thread are counted. A thread allocates a new report every second, so a longer run has a few more. TLS
//! is not tested, because rustls allocates memory for each record.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, missing_docs, reason = "tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use beamtune_load::clock::{SECOND_NS, now_ns};
use beamtune_load::engine::{self, Share};
use beamtune_load::program::{Endpoint, Kind, Model, Op, Plan};
use beamtune_load::protocol::http::HttpRequest;
use beamtune_load::protocol::mqtt::{MqttConnect, MqttMessage, Qos, Version};
use beamtune_load::protocol::raw::{Framing, RawMessage};
use beamtune_load::protocol::websocket::Upgrade;
use beamtune_load::protocol::{Checks, Message, Protocol};
use beamtune_load::schedule::{Profile, Spacing};
use beamtune_load::template::Template;

thread_local! {
    /// Allocations of this thread. The cell needs neither an allocation nor a destructor, so the allocator may use it at any time.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

/// The system allocator with a counter.
#[allow(unsafe_code, reason = "the trait is unsafe; each call is passed on unchanged")]
// SAFETY: `System` does all the work and fulfils the trait's contract; counting does not allocate and cannot panic.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller fulfils the contract, which is the same as that of the called function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const DEVICES: u64 = 10;
const REQUESTS: u64 = 10_000;
/// Maximum allocations for the report of one second: a tally with histograms for every step. The number of additional
/// reports of a run twice as long depends on the host.
const MAX_PER_REPORT: u64 = 30;
/// Maximum additional allocations of the longer run: buffers that grow by doubling do so one more time.
const MAX_ADDITIONAL: u64 = 30;

/// Starts a server that calls `serve` for each connection in a separate thread.
fn server(serve: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Answers each read with a chunked reply.
fn http(mut stream: TcpStream) {
    let mut bytes = [0; 4096];
    while let Ok(1..) = stream.read(&mut bytes) {
        let reply =
            "HTTP/1.1 200 OK\r\nX-Name: some\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        if stream.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

/// Sends each reply in two writes, split within the head.
fn http_in_pieces(mut stream: TcpStream) {
    let mut bytes = [0; 4096];
    while let Ok(1..) = stream.read(&mut bytes) {
        let (begin, end) = ("HTTP/1.1 200 OK\r\nContent-Le", "ngth: 5\r\n\r\nhello");
        if stream.write_all(begin.as_bytes()).and_then(|()| stream.write_all(end.as_bytes())).is_err() {
            return;
        }
    }
}

/// Echoes all bytes.
fn echo(mut stream: TcpStream) {
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut bytes) {
        if stream.write_all(&bytes[..read]).is_err() {
            return;
        }
    }
}

fn websocket(stream: TcpStream) {
    let mut session = tungstenite::accept(stream).unwrap();
    while let Ok(message) = session.read() {
        if (message.is_text() || message.is_binary()) && session.send(message).is_err() {
            return;
        }
    }
}

/// A broker for one device, which sends each message of the device back. Packets are short, so their length field has one byte.
fn mqtt(mut stream: TcpStream) {
    let mut head = [0; 2];
    while stream.read_exact(&mut head).is_ok() {
        let mut packet = vec![0; usize::from(head[1])];
        if stream.read_exact(&mut packet).is_err() {
            return;
        }
        let answer = match head[0] >> 4 {
            // CONNECT, CONNACK.
            1 => vec![0x20, 2, 0, 0],
            // SUBSCRIBE, SUBACK for one filter.
            8 => vec![0x90, 3, packet[0], packet[1], 1],
            // PUBLISH at QoS 1, with its packet identifier after the topic. PUBACK, and the message itself.
            3 => {
                let topic = 2 + usize::from(packet[1]);
                [&[0x40, 2, packet[topic], packet[topic + 1]], &head[..], &packet].concat()
            }
            _ => continue,
        };
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}

fn text(text: &str) -> Template {
    Template::parse(text, None).unwrap()
}

fn send(step: usize, message: Message) -> Op {
    Op::Send { step, message, checks: Box::default() }
}

fn expect(step: usize) -> Op {
    let checks = Checks { body: vec!["7".to_owned()], ..Checks::default() };
    Op::Expect { step, checks: Box::new(checks) }
}

fn closed(requests: u64) -> Model {
    Model::Closed { ramp_ns: 0, sustain_ns: 60 * SECOND_NS, turns: Some(requests / DEVICES) }
}

/// An open load of [`REQUESTS`] per second.
fn open(requests: u64) -> Model {
    let per_second = REQUESTS as f64;
    let sustain_ns = requests * SECOND_NS / REQUESTS;
    Model::Open { profile: Profile { per_second, ramp_ns: 0, sustain_ns }, spacing: Spacing::Poisson }
}

/// Runs a load in this thread. Returns the numbers of allocations, of correct answers and of reports.
fn run(address: SocketAddr, protocol: &Protocol, ops: &[Op], once: usize, model: Model) -> (u64, u64, u64) {
    let mut all = vec![Op::Connect { step: 0 }];
    all.extend_from_slice(ops);
    all.push(Op::Next);
    let kind = Kind {
        name: "device".to_owned(),
        devices: DEVICES,
        endpoint: Endpoint { address, sources: Arc::new([]), tls: None },
        protocol: protocol.clone(),
        ops: all,
        body: 1 + once,
        connect_timeout_ns: 20 * SECOND_NS,
        timeout_ns: 20 * SECOND_NS,
        pause_ns: SECOND_NS,
    };
    let steps = vec!["connect".to_owned(), "once".to_owned(), "send".to_owned(), "expect".to_owned()];
    let connect_ns = if matches!(model, Model::Open { .. }) { SECOND_NS / 5 } else { 0 };
    let start_ns = now_ns() + connect_ns;
    let plan =
        Plan { kinds: vec![kind], steps, model, seed: 1, start_ns, connect_ns, rundown_ns: 60 * SECOND_NS };
    let (mut done, mut errors, mut reports) = (0, 0, 0);
    let before = ALLOCATIONS.get();
    engine::run(&plan, Share { index: 0, of: 1 }, &AtomicBool::new(false), &mut |second| {
        done += second.tally.steps[2].as_ref().map_or(0, |step| step.done());
        errors += second.tally.errors();
        reports += 1;
    })
    .unwrap();
    let allocations = ALLOCATIONS.get() - before;
    assert_eq!(errors, 0);
    (allocations, done, reports)
}

/// Compares a run with a run of twice as many requests. Step 2 is the request of a turn; the first `once` operations run once per
/// connection.
fn check(serve: fn(TcpStream), protocol: &Protocol, ops: &[Op], once: usize, model: fn(u64) -> Model) {
    let address = server(serve);
    let (short, done, short_reports) = run(address, protocol, ops, once, model(REQUESTS));
    assert!(done * 10 >= REQUESTS * 9, "{done}");
    let (long, twice, long_reports) = run(address, protocol, ops, once, model(2 * REQUESTS));
    assert!(twice * 10 >= done * 19, "{twice} after {done}");
    let additional = MAX_ADDITIONAL + MAX_PER_REPORT * long_reports.saturating_sub(short_reports);
    assert!(
        long <= short + additional,
        "{short} allocations for {done} requests and {short_reports} reports, {long} for {twice} and {long_reports}"
    );
    assert!(short > 0, "the counter does not count");
}

fn get(path: &str) -> Message {
    let fields = [("Host".to_owned(), Template::literal("localhost"))];
    Message::Http(Box::new(HttpRequest::new("GET", &text(path), &fields, None)))
}

#[test]
fn an_http_request_does_not_allocate() {
    check(http, &Protocol::Http, &[send(2, get("/"))], 0, closed);
}

#[test]
fn an_http_request_with_placeholders_and_checks_does_not_allocate() {
    let checks = Checks {
        statuses: vec![(200, 204)],
        fields: vec![("x-name".to_owned(), "some".to_owned())],
        body: vec!["hell".to_owned()],
    };
    let message = get("/${device}?n=${count}&r=${hex:20}");
    check(http, &Protocol::Http, &[Op::Send { step: 2, message, checks: Box::new(checks) }], 0, closed);
}

#[test]
fn a_reply_in_two_parts_does_not_allocate() {
    check(http_in_pieces, &Protocol::Http, &[send(2, get("/"))], 0, closed);
}

#[test]
fn an_arrival_does_not_allocate() {
    check(http, &Protocol::Http, &[send(2, get("/"))], 0, open);
}

#[test]
fn a_websocket_message_does_not_allocate() {
    let fields = [("Host".to_owned(), Template::literal("localhost"))];
    let upgrade = Upgrade::new(&text("/"), &fields, Vec::new());
    let message = Message::WebSocket { is_text: true, payload: text("7 ${device} ${count}") };
    check(websocket, &Protocol::WebSocket(Arc::new(upgrade)), &[send(2, message), expect(3)], 0, closed);
}

#[test]
fn a_line_does_not_allocate() {
    let framing = Arc::new(Framing::delimiter(b"\n").unwrap());
    let message =
        Message::Raw(Box::new(RawMessage::new(text("7 ${device} ${count}"), &framing, false).unwrap()));
    check(echo, &Protocol::Raw(framing), &[send(2, message), expect(3)], 0, closed);
}

#[test]
fn an_mqtt_message_does_not_allocate() {
    let connect = MqttConnect {
        version: Version::V311,
        client_id: text("${device}"),
        user: None,
        password: None,
        keep_alive_seconds: 60,
        is_clean: true,
        session_expiry_seconds: 0,
        will: None,
    };
    let subscribe = MqttMessage::Subscribe(vec![(text("t/${device}"), Qos::AtLeastOnce)]);
    let publish = MqttMessage::Publish {
        topic: text("t/${device}"),
        payload: text("7 ${count}"),
        qos: Qos::AtLeastOnce,
        is_retained: false,
    };
    let ops =
        [send(1, Message::Mqtt(Box::new(subscribe))), send(2, Message::Mqtt(Box::new(publish))), expect(3)];
    check(mqtt, &Protocol::Mqtt(Box::new(connect)), &ops, 1, closed);
}
