//! Tests whole sessions with nodes that stop in the middle, never stop sending, or send wrong data.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use beamtune_attach::AttachError;
use beamtune_attach::agent::{Answer, Item, SessionOptions};
use beamtune_attach::connection::{Connection, Settings};
use beamtune_attach::error::Step;
use beamtune_attach::etf::{Limits, Value};
use beamtune_attach::locate::locate;
use beamtune_attach::session::Session;

use super::answers::usual_answer;
use super::common::{COOKIE, PATIENCE, eventually, found, on_release, soon};
use super::peer::{
    Cut, NAME, Server, frame, packet, pid, read_packet, repeat, send, serve_agent, shake_hands,
};

fn connect(port: u16, settings: Settings) -> Result<Connection, AttachError> {
    let located = locate(&format!("127.0.0.1:{port}").parse()?, 1, PATIENCE)?;
    Connection::open(&located, &found(COOKIE), None, settings)
}

fn named(item: &str) -> &'static Item {
    Item::named(item).expect("an item")
}

/// Connects, injects the agent, requests a sample, and ends the session.
fn visit(port: u16, settings: Settings) -> Result<Answer, AttachError> {
    let mut session = Session::start(connect(port, settings)?, SessionOptions::default())?;
    session.request(1, &["facts", "memory"].map(named), &[])?;
    let answer = session.collect(1, soon())?;
    session.leave(soon())?;
    Ok(answer)
}

/// Starts a node that closes the connection after it has sent `after` bytes.
fn node_that_stops(after: usize, written: Arc<AtomicUsize>) -> Server {
    Server::start(move |stream| {
        let mut stream = Cut { stream, left: after, written: Arc::clone(&written) };
        let _ = shake_hands(&mut stream, NAME.as_bytes()).and_then(|()| {
            serve_agent(&mut stream, |to, seq, items| usual_answer(to, seq, items, |_, value| value))
        });
    })
}

#[test]
fn connection_lost_at_any_byte_is_an_error() {
    let written = Arc::new(AtomicUsize::new(0));
    let whole = node_that_stops(usize::MAX, Arc::clone(&written));
    visit(whole.port, Settings::default()).unwrap();
    drop(whole);
    let length = written.load(Ordering::Relaxed);
    assert!((500..10_000).contains(&length), "{length} bytes");
    for after in 0..length {
        let node = node_that_stops(after, Arc::default());
        let error = visit(node.port, Settings::default()).expect_err("it is cut off");
        assert!(
            matches!(
                error,
                AttachError::ClosedDuringHandshake { .. }
                    | AttachError::Protocol { .. }
                    | AttachError::WrongCookie { .. }
                    | AttachError::Lost { .. }
            ),
            "after {after} bytes: {error:?}"
        );
    }
}

#[test]
fn connection_lost_to_a_real_node_is_an_error() {
    on_release(25, |otp| {
        let node = otp.start();
        let located = locate(&node.name.parse().unwrap(), 4369, PATIENCE).unwrap();
        let address = located.addresses[0];
        // Starts a proxy that forwards at most `max` bytes from the node.
        let proxy = |max: usize, passed: Arc<AtomicUsize>| {
            Server::start(move |client| {
                let node = TcpStream::connect(address).expect("the node");
                let (mut from, mut to) = (client.try_clone().unwrap(), node.try_clone().unwrap());
                let upstream = thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
                let mut back =
                    Cut { stream: client.try_clone().unwrap(), left: max, written: Arc::clone(&passed) };
                let _ = std::io::copy(&mut &node, &mut back);
                let _ = client.shutdown(std::net::Shutdown::Both);
                let _ = upstream.join();
            })
        };
        let passed = Arc::new(AtomicUsize::new(0));
        let whole = proxy(usize::MAX, Arc::clone(&passed));
        visit(whole.port, Settings::default()).unwrap();
        drop(whole);
        let length = passed.load(Ordering::Relaxed);
        for part in 0..20 {
            let cut = proxy(length * part / 20, Arc::default());
            let error = visit(cut.port, Settings::default()).expect_err("it is cut off");
            // The error must be reported when the connection ends, not at the deadline.
            assert!(!matches!(error, AttachError::TimedOut { .. }), "after {part}/20: {error:?}");
        }
        // The node is unaffected.
        visit(proxy(usize::MAX, Arc::default()).port, Settings::default()).unwrap();
    });
}

/// Time limit for a handshake that never ends.
const SHORT: Duration = Duration::from_millis(400);

/// Returns the error of a handshake with a scripted peer.
fn handshake_error(setup_timeout: Duration, serve: impl FnMut(TcpStream) + Send + 'static) -> AttachError {
    let server = Server::start(serve);
    let settings = Settings { setup_timeout, ..Settings::default() };
    connect(server.port, settings).unwrap_err()
}

#[test]
fn endless_handshake_is_an_error() {
    // Repeated status packets, although the challenge must follow after the first one.
    let error = handshake_error(PATIENCE, |mut stream| {
        let _ = read_packet(&mut stream);
        repeat(&mut stream, &packet(b"sok"), || {});
    });
    assert!(matches!(error, AttachError::TooOld { .. } | AttachError::Protocol { .. }), "{error:?}");
    // Empty packets.
    let error = handshake_error(PATIENCE, |mut stream| {
        let _ = read_packet(&mut stream);
        repeat(&mut stream, &packet(b""), || {});
    });
    assert!(matches!(error, AttachError::Protocol { .. }), "{error:?}");
    for status in ["nok", "alive"] {
        // The node is always busy, or always has a connection with our name.
        let error = handshake_error(PATIENCE, move |mut stream| {
            let _ = read_packet(&mut stream);
            let _ = stream.write_all(&packet(format!("s{status}").as_bytes()));
        });
        let said = error.to_string();
        let is_timeout = matches!(error, AttachError::TimedOut { .. });
        assert!(said.contains("try again") && !is_timeout, "{status}: {said}");
    }
    // A correct handshake, sent slowly in single bytes.
    let error = handshake_error(SHORT, |mut stream| {
        let _ = read_packet(&mut stream);
        let honest = packet(b"sok");
        let _ = stream.write_all(&honest[..1]);
        repeat(&mut stream, &honest[1..2], || thread::sleep(Duration::from_millis(150)));
    });
    assert!(matches!(error, AttachError::TimedOut { step: Step::Handshake, .. }), "{error:?}");
    // A status packet, and then nothing.
    let error = handshake_error(SHORT, |mut stream| {
        let _ = read_packet(&mut stream);
        let _ = stream.write_all(&packet(b"sok"));
        super::wait_for_end(stream);
    });
    assert!(matches!(error, AttachError::TimedOut { step: Step::Handshake, .. }), "{error:?}");
}

#[test]
fn invalid_node_name_is_rejected_and_shown_without_control_characters() {
    for name in ["n\u{1b}[2J@h", "n@h\u{9b}2J", "n\u{202e}@h", "n@h\u{200f}", "@h", "n@", "n", "n@h@i"] {
        let server = Server::start(move |mut stream| {
            let _ = shake_hands(&mut stream, name.as_bytes());
        });
        let error = connect(server.port, Settings::default()).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("the invalid node name"), "{name:?}: {said}");
        assert!(!said.chars().any(beamtune_model::text::is_hidden), "{said:?}");
    }
}

/// Returns the error of a session in which the node calls `flood` as soon as a sample is requested.
fn flooded(flood: impl Fn(&beamtune_attach::etf::Pid, &mut TcpStream) + Send + 'static) -> AttachError {
    let server = Server::start(move |stream| {
        let mut spray = stream.try_clone().unwrap();
        let mut stream = Cut::never(stream);
        let _ = shake_hands(&mut stream, NAME.as_bytes()).and_then(|()| {
            serve_agent(&mut stream, |to, _, _| {
                flood(to, &mut spray);
                Vec::new()
            })
        });
    });
    let limits = Limits { bytes: 1 << 20, ..Limits::default() };
    let connection = connect(server.port, Settings { limits, ..Settings::default() }).unwrap();
    let mut session = Session::start(connection, SessionOptions::default()).unwrap();
    session.request(1, &[named("memory")], &[]).unwrap();
    let error = session.collect(1, Instant::now() + Duration::from_millis(300)).unwrap_err();
    // Further calls must time out as well. If a call ignored its deadline, it would run until the flood and the connection end.
    let again = session.collect(1, Instant::now() + Duration::from_millis(100)).unwrap_err();
    assert!(matches!(again, AttachError::TimedOut { .. }), "{again:?}");
    let _ = session.leave(Instant::now() + Duration::from_millis(100)).unwrap_err();
    error
}

#[test]
fn flood_does_not_delay_a_session_beyond_the_deadline() {
    let term = |value: Value<'_>| value.to_bytes().unwrap();
    // Messages to another pid; unknown messages to our pid; and answers to our pid that belong to another request.
    let stale =
        Value::tuple([Value::atom("beamtune"), Value::atom("busy"), Value::from(9u64), Value::from(9u64)]);
    let unknown = Value::tuple([Value::atom("beamtune"), Value::atom("news")]);
    for (ours, payload) in [(false, term(Value::atom("x"))), (true, term(unknown)), (true, term(stale))] {
        let error = flooded(move |to, stream| {
            let to = if ours { to.clone() } else { pid(5) };
            let frames = send(&to, &payload).repeat(1_000);
            repeat(stream, &frames, || {});
        });
        assert!(matches!(error, AttachError::TimedOut { step: Step::Receive, .. }), "{error:?}");
    }
}

#[test]
fn ticks_are_not_an_answer() {
    let error = flooded(|_, stream| {
        let mut answers = stream.try_clone().unwrap();
        let reader = thread::spawn(move || std::io::copy(&mut answers, &mut std::io::sink()));
        repeat(stream, &[0; 4], || thread::sleep(Duration::from_millis(1)));
        let _ = reader.join();
    });
    assert!(matches!(error, AttachError::TimedOut { step: Step::Receive, .. }), "{error:?}");
}

#[test]
fn unread_tick_answers_do_not_block() {
    let error = flooded(|_, stream| repeat(stream, &[0; 65_536], || {}));
    assert!(
        matches!(
            error,
            AttachError::TimedOut { step: Step::Receive | Step::Send, .. } | AttachError::Lost { .. }
        ),
        "{error:?}"
    );
}

#[test]
fn kept_messages_are_limited_by_their_memory() {
    // An empty list within a list takes 1 byte on the wire, and 16 bytes in memory.
    let (written, all) = (Arc::new(AtomicUsize::new(0)), 100);
    let counter = Arc::clone(&written);
    let server = Server::start(move |mut stream| {
        let _ = shake_hands(&mut stream, NAME.as_bytes());
        let mut list = vec![131, b'l'];
        list.extend(100_000u32.to_be_bytes());
        list.extend([b'j'; 100_001]);
        let message = send(&pid(5), &list);
        for _ in 0..all {
            let _ = stream.write_all(&message);
            counter.fetch_add(1, Ordering::Relaxed);
        }
        let _ = stream.write_all(&frame(&[]));
        super::wait_for_end(stream);
    });
    let limits = Limits { bytes: 4 << 20, ..Limits::default() };
    let mut connection = connect(server.port, Settings { limits, ..Settings::default() }).unwrap();
    eventually("all messages written", || {
        connection.pump(Instant::now() + Duration::from_millis(100)).unwrap();
        written.load(Ordering::Relaxed) == all
    });
    let kept = std::iter::from_fn(|| connection.receive(Instant::now()).ok()).take(200).count();
    // Each takes 1.7 to 2.3 MB, and the limit is 8 MB.
    assert!((1..=5).contains(&kept), "{kept}");
}
