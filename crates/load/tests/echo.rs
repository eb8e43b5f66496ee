//! WebSocket and frames directly on TCP, against servers on this host.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, missing_docs, reason = "tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use beamtune_load::clock::{SECOND_NS, now_ns};
use beamtune_load::engine::{self, Share};
use beamtune_load::program::{Endpoint, Kind, Model, Op, Plan};
use beamtune_load::protocol::raw::{Framing, RawMessage};
use beamtune_load::protocol::websocket::{CloseFrame, Upgrade};
use beamtune_load::protocol::{Checks, Message, Protocol};
use beamtune_load::schedule::{Profile, Spacing};
use beamtune_load::tally::{ErrorKind, StepTally, Tally};
use beamtune_load::template::Template;
use beamtune_load::times::Times;
use tungstenite::Message as Frame;
use tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tungstenite::protocol::CloseFrame as ServerCloseFrame;

/// A server on this host with a thread per connection, which returns what it observed.
struct Server<T> {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    acceptor: JoinHandle<Vec<JoinHandle<T>>>,
}

impl<T: Send + 'static> Server<T> {
    fn start(serve: fn(TcpStream) -> T) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let acceptor = std::thread::spawn(move || {
            let mut connections = Vec::new();
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    break;
                }
                let stream = stream.unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                connections.push(std::thread::spawn(move || serve(stream)));
            }
            connections
        });
        Self { address, stop, acceptor }
    }

    /// Stops the server and returns what each connection observed.
    fn stop(self) -> Vec<T> {
        self.stop.store(true, Ordering::SeqCst);
        TcpStream::connect(self.address).unwrap();
        self.acceptor.join().unwrap().into_iter().map(|connection| connection.join().unwrap()).collect()
    }
}

/// Devices that connect and then execute turns of `ops`.
fn kind(address: SocketAddr, protocol: Protocol, devices: u64, ops: Vec<Op>) -> Kind {
    Kind {
        name: "device".to_owned(),
        devices,
        endpoint: Endpoint { address, sources: Arc::new([]), tls: None },
        protocol,
        ops,
        body: 1,
        connect_timeout_ns: 5 * SECOND_NS,
        timeout_ns: 5 * SECOND_NS,
        pause_ns: SECOND_NS / 100,
    }
}

fn run(kinds: Vec<Kind>, sustain_ns: u64, turns: Option<u64>) -> Vec<StepTally> {
    run_model(kinds, Model::Closed { ramp_ns: 0, sustain_ns, turns })
}

fn run_model(kinds: Vec<Kind>, model: Model) -> Vec<StepTally> {
    let steps = 8;
    let plan = Plan {
        kinds,
        steps: vec![String::new(); steps],
        model,
        seed: 1,
        start_ns: now_ns(),
        connect_ns: 0,
        rundown_ns: 5 * SECOND_NS,
    };
    let mut all = Tally::new(steps);
    let share = Share { index: 0, of: 1 };
    engine::run(&plan, share, &AtomicBool::new(false), &mut |second| all.add(&second.tally)).unwrap();
    all.steps.into_iter().map(|step| step.map(|step| *step).unwrap_or_default()).collect()
}

fn text(text: &str) -> Template {
    Template::parse(text, None).unwrap()
}

fn send(step: usize, message: Message) -> Op {
    Op::Send { step, message, checks: Box::default() }
}

fn send_websocket(step: usize, is_text: bool, payload: &str) -> Op {
    send(step, Message::WebSocket { is_text, payload: text(payload) })
}

fn containing(part: &str) -> Box<Checks> {
    Box::new(Checks { body: vec![part.to_owned()], ..Checks::default() })
}

/// Returns how often each step was done. Panics if there were errors.
fn done(steps: &[StepTally]) -> Vec<u64> {
    for step in steps {
        assert_eq!(step.errors.iter().collect::<Vec<_>>(), []);
    }
    steps.iter().map(StepTally::done).collect()
}

fn websocket() -> Protocol {
    let fields = [("Host".to_owned(), text("localhost"))];
    let upgrade = Upgrade::new(&text("/device/${device}"), &fields, vec!["chat".to_owned()]);
    Protocol::WebSocket(Arc::new(upgrade))
}

/// Echoes WebSocket messages. Returns the path, the number of messages, and the code of the client's Close frame.
fn echo(stream: TcpStream) -> (String, u64, Option<u16>) {
    let (mut path, mut messages, mut code) = (String::new(), 0, None);
    // The library defines this signature.
    #[allow(clippy::result_large_err)]
    let on_request = |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
        path = request.uri().path().to_owned();
        response.headers_mut().insert("Sec-WebSocket-Protocol", "chat".parse().unwrap());
        Ok(response)
    };
    let mut socket = tungstenite::accept_hdr(stream, on_request).unwrap();
    while let Ok(frame) = socket.read() {
        match frame {
            Frame::Close(close) => code = close.map(|close| close.code.into()),
            Frame::Text(_) | Frame::Binary(_) => {
                messages += 1;
                // This fails if the device has closed the connection.
                let _ = socket.send(frame);
            }
            _ => {}
        }
    }
    (path, messages, code)
}

#[test]
fn each_websocket_message_is_counted_once() {
    let server = Server::start(echo);
    let ops = vec![
        Op::Connect { step: 0 },
        send_websocket(1, true, "number ${device}, κόσμε"),
        Op::Expect { step: 2, checks: containing("κόσμε") },
        // This message is larger than one read.
        send_websocket(3, false, "${hex:300000}"),
        Op::Expect { step: 4, checks: Box::default() },
        send(5, Message::WebSocketPing),
        send(6, Message::WebSocketClose(CloseFrame::new(4000, "done").unwrap())),
        Op::Next,
    ];
    let steps = run(vec![kind(server.address, websocket(), 3, ops)], 60 * SECOND_NS, Some(2));
    assert_eq!(done(&steps), [6, 6, 6, 6, 6, 6, 6, 0]);
    assert_eq!(steps[2].received_bytes, 6 * "number 0, κόσμε".len() as u64);
    assert_eq!(steps[4].received_bytes, 6 * 300_000);
    let mut connections = server.stop();
    connections.sort_unstable();
    let expected = ["/device/0", "/device/1", "/device/2"].map(|path| (path.to_owned(), 2, Some(4000)));
    assert_eq!(connections, expected.into_iter().flat_map(|one| [one.clone(), one]).collect::<Vec<_>>());
}

#[test]
fn a_closing_device_sends_a_close_frame() {
    let server = Server::start(echo);
    let ops = vec![
        Op::Connect { step: 0 },
        send_websocket(1, true, "x"),
        Op::Expect { step: 2, checks: Box::default() },
        Op::Close,
        Op::Next,
    ];
    let steps = run(vec![kind(server.address, websocket(), 1, ops)], 60 * SECOND_NS, Some(3));
    assert_eq!(done(&steps), [3, 3, 3, 0, 0, 0, 0, 0]);
    assert_eq!(server.stop(), vec![("/device/0".to_owned(), 1, Some(1000)); 3]);
}

#[test]
fn a_close_frame_of_the_server_fails_the_waiting_step() {
    let server = Server::start(|stream| {
        let mut socket = tungstenite::accept(stream).unwrap();
        socket.send(Frame::Ping(vec![1].into())).unwrap();
        socket.send(Frame::text("not this")).unwrap();
        socket.close(Some(ServerCloseFrame { code: 1011.into(), reason: "out of order".into() })).unwrap();
        let mut received = Vec::new();
        while let Ok(frame) = socket.read() {
            received.push(frame);
        }
        received
    });
    let ops =
        vec![Op::Connect { step: 0 }, Op::Expect { step: 1, checks: containing("only this") }, Op::Next];
    let fields = [("Host".to_owned(), text("localhost"))];
    let protocol = Protocol::WebSocket(Arc::new(Upgrade::new(&text("/"), &fields, Vec::new())));
    let steps = run(vec![kind(server.address, protocol, 1, ops)], 60 * SECOND_NS, Some(1));
    let errors: Vec<_> = steps[1].errors.iter().collect();
    assert_eq!(errors, [(ErrorKind::Closed, 1, "the server closed with code 1011: out of order")]);
    let [received] = &server.stop()[..] else { panic!("one connection") };
    assert_eq!(received[0], Frame::Pong(vec![1].into()));
    assert!(
        matches!(&received[1], Frame::Close(Some(close)) if u16::from(close.code) == 1011),
        "{received:?}"
    );
}

#[test]
fn a_refused_upgrade_is_an_error_of_the_connect_step() {
    let server = Server::start(|mut stream| {
        let mut head = BufReader::new(stream.try_clone().unwrap()).lines();
        while head.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
        stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno").unwrap();
    });
    let ops = vec![Op::Connect { step: 0 }, send_websocket(1, true, "x"), Op::Next];
    let steps = run(vec![kind(server.address, websocket(), 2, ops)], 60 * SECOND_NS, Some(1));
    let errors: Vec<_> = steps[0].errors.iter().collect();
    assert_eq!(errors, [(ErrorKind::Status, 2, "the upgrade was answered with status 403")]);
    assert_eq!(steps[1].done(), 0);
    server.stop();
}

fn lines() -> Arc<Framing> {
    Arc::new(Framing::delimiter(b"\n").unwrap())
}

fn raw(step: usize, framing: &Arc<Framing>, payload: &str, is_answered: bool) -> Op {
    send(step, Message::Raw(Box::new(RawMessage::new(text(payload), framing, is_answered).unwrap())))
}

/// Echoes lines, and the line `twice` two times. Returns the number of lines.
fn echo_lines(mut stream: TcpStream) -> u64 {
    stream.set_nodelay(true).unwrap();
    let mut count = 0;
    for line in BufReader::new(stream.try_clone().unwrap()).lines() {
        let Ok(line) = line else { break };
        count += 1;
        let times = if line == "twice" { 2 } else { 1 };
        let _ = stream.write_all(format!("{line}\n").repeat(times).as_bytes());
    }
    count
}

#[test]
fn answers_and_other_messages_on_tcp_are_checked() {
    let server = Server::start(echo_lines);
    let framing = lines();
    let checked = |step, payload, part| match raw(step, &framing, payload, true) {
        Op::Send { step, message, .. } => Op::Send { step, message, checks: containing(part) },
        other => other,
    };
    let ops = vec![
        Op::Connect { step: 0 },
        checked(1, "number ${device}", "number"),
        checked(2, "always the same", "something else"),
        // The first echo is the answer; the second is a message.
        raw(3, &framing, "twice", true),
        Op::Expect { step: 4, checks: containing("twice") },
        raw(5, &framing, "unanswered ${count}", false),
        Op::Expect { step: 6, checks: containing("unanswered") },
        Op::Next,
    ];
    let steps =
        run(vec![kind(server.address, Protocol::Raw(framing.clone()), 4, ops)], 60 * SECOND_NS, Some(5));
    let errors: Vec<_> = steps[2].errors.iter().collect();
    assert_eq!(errors, [(ErrorKind::Check, 20, "the answer does not contain \"something else\"")]);
    let mut others = steps.clone();
    others.remove(2);
    assert_eq!(done(&others), [4, 20, 20, 20, 20, 20, 0]);
    assert_eq!(server.stop(), [20; 4]);
}

#[test]
fn an_expect_step_is_due_together_with_the_send_before_it() {
    // At 20 ms per line, one device can send 50 lines per second, but 100 are due.
    let server = Server::start(|mut stream| {
        for line in BufReader::new(stream.try_clone().unwrap()).lines() {
            let Ok(line) = line else { break };
            std::thread::sleep(Duration::from_millis(20));
            stream.write_all(format!("{line}\n").as_bytes()).unwrap();
        }
    });
    let framing = lines();
    let ops = vec![
        Op::Connect { step: 0 },
        raw(1, &framing, "x", false),
        Op::Expect { step: 2, checks: containing("x") },
        Op::Next,
    ];
    let profile = Profile { per_second: 100.0, ramp_ns: 0, sustain_ns: SECOND_NS };
    let model = Model::Open { profile, spacing: Spacing::Fixed };
    let steps = run_model(vec![kind(server.address, Protocol::Raw(framing), 1, ops)], model);
    server.stop();
    assert_eq!(done(&steps), [1, 100, 100, 0, 0, 0, 0, 0]);
    let max_ns = |times: &Times| times.histogram().max();
    let lag_ns = max_ns(&steps[1].lag);
    assert!(lag_ns > SECOND_NS / 2, "{lag_ns}");
    let [response_ns, service_ns] = [&steps[2].response, &steps[2].service].map(max_ns);
    assert!(response_ns > lag_ns, "{response_ns} {lag_ns}");
    assert!(service_ns < response_ns, "{service_ns} {response_ns}");
}

#[test]
fn a_device_that_never_waits_does_not_starve_others() {
    let server = Server::start(echo_lines);
    let framing = lines();
    let protocol = Protocol::Raw(framing.clone());
    let greedy = vec![Op::Connect { step: 0 }, raw(1, &framing, "on and on", false), Op::Next];
    let polite = vec![Op::Connect { step: 2 }, raw(3, &framing, "and me?", true), Op::Next];
    let kinds =
        vec![kind(server.address, protocol.clone(), 1, greedy), kind(server.address, protocol, 1, polite)];
    // The number of turns is unlimited, so the run ends when its time is over.
    let counts = done(&run(kinds, SECOND_NS / 2, None));
    assert!(counts[1] > 64 && counts[3] > 1, "{counts:?}");
    let received = server.stop();
    assert!(received.contains(&counts[3]), "{received:?} {counts:?}");
    // Lines in the socket buffer may be lost when the device closes the connection.
    assert!(received.iter().all(|count| *count <= counts[1].max(counts[3])), "{received:?} {counts:?}");
}

#[test]
fn a_large_message_is_done_when_it_is_sent_completely() {
    let server = Server::start(|mut stream| {
        let mut count = 0;
        let mut length = [0; 4];
        while stream.read_exact(&mut length).is_ok() {
            let bytes = u64::from(u32::from_be_bytes(length));
            count += std::io::copy(&mut (&stream).take(bytes), &mut std::io::sink()).unwrap();
        }
        count
    });
    let framing = Arc::new(Framing::length_prefix(4, false).unwrap());
    let payload = "x".repeat(15 << 20);
    let ops = vec![Op::Connect { step: 0 }, raw(1, &framing, &payload, false), Op::Close, Op::Next];
    let steps = run(vec![kind(server.address, Protocol::Raw(framing), 1, ops)], 60 * SECOND_NS, Some(2));
    assert_eq!(done(&steps)[..2], [2, 2]);
    assert_eq!(server.stop(), [15 << 20; 2]);
}

#[test]
fn a_peer_that_does_not_read_causes_a_timeout() {
    // The kernel accepts connections, but no process reads from them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let framing = Arc::new(Framing::length_prefix(4, false).unwrap());
    let ops = vec![Op::Connect { step: 0 }, raw(1, &framing, &"x".repeat(15 << 20), false), Op::Next];
    let mut kind = kind(listener.local_addr().unwrap(), Protocol::Raw(framing), 1, ops);
    kind.timeout_ns = SECOND_NS / 10;
    let steps = run(vec![kind], 60 * SECOND_NS, Some(1));
    let errors: Vec<_> = steps[1].errors.iter().collect();
    assert_eq!(errors, [(ErrorKind::Timeout, 1, "the peer did not read the message in time")]);
    assert_eq!(steps[1].done(), 0);
}

#[test]
fn a_server_that_pings_forever_and_never_reads_is_dropped() {
    let server = Server::start(|stream| {
        let mut stream = tungstenite::accept(stream).unwrap().get_ref().try_clone().unwrap();
        let pings = [&[0x89, 125][..], &[b'x'; 125]].concat().repeat(100);
        let mut sent = 0;
        while stream.write_all(&pings).is_ok() {
            sent += pings.len();
        }
        sent
    });
    let ops = vec![
        Op::Connect { step: 0 },
        Op::Expect { step: 1, checks: containing("what never comes") },
        Op::Next,
    ];
    let fields = [("Host".to_owned(), text("localhost"))];
    let protocol = Protocol::WebSocket(Arc::new(Upgrade::new(&text("/"), &fields, Vec::new())));
    let steps = run(vec![kind(server.address, protocol, 1, ops)], 60 * SECOND_NS, Some(1));
    let errors: Vec<_> = steps[1].errors.iter().collect();
    let message = "the peer keeps sending requests (such as pings) and reads no replies";
    assert_eq!(errors, [(ErrorKind::Unsendable, 1, message)]);
    // The rest is in socket buffers.
    let sent = server.stop()[0];
    assert!((16 << 20..64 << 20).contains(&sent), "{sent}");
}
