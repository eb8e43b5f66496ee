//! Tests malicious peers: a scripted node that knows the cookie, and a scripted EPMD. They send wrong data, stall, or flood us
//! with data.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test code")]

mod answers;
#[path = "../common/mod.rs"]
mod common;
mod conversation;
mod peer;
mod terms;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use beamtune_attach::AttachError;
use beamtune_attach::agent::SessionOptions;
use beamtune_attach::connection::{Connection, Settings};
use beamtune_attach::error::Step;
use beamtune_attach::etf::{Limits, Pid, Value};
use beamtune_attach::locate::{Located, locate};
use beamtune_attach::message;
use beamtune_attach::session::Session;
use common::{COOKIE, PATIENCE, connect, eventually, found, soon};
use peer::{NAME, Request, challenge, frame, packet, read_packet, repeat, shake_hands, wait_for_end};

/// Starts a server that passes one connection to `serve`.
fn server(serve: impl FnOnce(TcpStream) + Send + 'static) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (port, thread::spawn(move || serve(listener.accept().unwrap().0)))
}

/// Starts a server that performs the handshake of an OTP 25 node, and then runs `play`.
fn node(play: impl FnOnce(TcpStream) + Send + 'static) -> (u16, JoinHandle<()>) {
    server(|mut stream| {
        shake_hands(&mut stream, NAME.as_bytes()).unwrap();
        play(stream);
    })
}

fn attach(port: u16) -> Connection {
    let connection = connect(&format!("127.0.0.1:{port}"), 1, COOKIE).unwrap();
    assert_eq!(&**connection.node(), NAME);
    connection
}

/// Builds a message to the client's first pid.
fn to_client(payload: &Value<'_>) -> Vec<u8> {
    let from = Pid { node: "n@h.i".into(), id: 1, serial: 0, creation: 9 };
    let to = Pid { node: "X@h.i".into(), id: 1, serial: 0, creation: 5 };
    message::send(&from, &to, payload).unwrap()
}

#[test]
fn protocol_violation_makes_the_connection_unusable() {
    fn check(says: Vec<u8>, expect: &str) {
        let (port, peer) = node(move |mut stream| {
            let _ = stream.write_all(&says);
            wait_for_end(stream);
        });
        let mut connection = attach(port);
        let error = connection.receive(soon()).unwrap_err();
        assert!(matches!(error, AttachError::Protocol { .. }), "{error:?}");
        assert!(error.to_string().contains(expect), "{error}\ninstead of {expect}");
        // The connection stays unusable.
        assert!(matches!(connection.receive(soon()), Err(AttachError::Lost { .. })));
        drop(connection);
        peer.join().unwrap();
    }
    check(vec![0xFF; 8], "a message of 4294967295 bytes");
    check(frame(&[131, 68, 0]), "a distribution header, which was not negotiated");
    check(frame(&[112, 131, 104, 255]), "is truncated");
    let mut tower = vec![112, 131, 104, 3, 97, 22];
    tower.extend([104, 1].repeat(100_000));
    tower.push(106);
    check(frame(&tower), "nested deeper than the 256 levels");
    let mut many = vec![112, 131, 108];
    many.extend(5_000_000u32.to_be_bytes());
    many.extend(vec![106; 5_000_001]);
    check(frame(&many), "more than the 4194304 subterms");
}

#[test]
fn closed_connection_is_an_error_at_any_point() {
    for says in [&b""[..], b"\0\0", b"\0\0\0\x09half"] {
        let (port, peer) = node(move |mut stream| stream.write_all(says).unwrap());
        let error = attach(port).receive(soon()).unwrap_err();
        assert!(matches!(error, AttachError::Lost { .. }), "{error:?}");
        peer.join().unwrap();
    }
}

#[test]
fn ticks_are_answered() {
    let (port, peer) = node(|mut stream| {
        stream.write_all(&[0; 8]).unwrap();
        let mut answer = [1; 8];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [0; 8]);
    });
    let mut connection = attach(port);
    let error = connection.receive(soon()).unwrap_err();
    assert!(matches!(error, AttachError::Lost { .. }), "{error:?}");
    peer.join().unwrap();
}

#[test]
fn deadline_and_memory_limit_hold_in_a_flood_of_messages() {
    const FLOOD: usize = 100;
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let (port, peer) = node(move |mut stream| {
        let flood = to_client(&Value::binary(vec![0; 1 << 20]));
        repeat(&mut stream, &flood, || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
    });
    let target = format!("127.0.0.1:{port}").parse().unwrap();
    let located = locate(&target, 1, PATIENCE).unwrap();
    let limits = Limits { bytes: 8 << 20, ..Limits::default() };
    let mut connection =
        Connection::open(&located, &found(COOKIE), None, Settings { limits, ..Settings::default() }).unwrap();
    let start = Instant::now();
    eventually("a flood", || {
        let soon = Instant::now() + Duration::from_millis(100);
        let error = connection.call("erlang", "node", vec![], soon).unwrap_err();
        assert!(matches!(error, AttachError::TimedOut { step: Step::Receive, .. }), "{error:?}");
        sent.load(Ordering::Relaxed) >= FLOOD
    });
    // The latest messages are kept, up to 16 MB.
    let kept = std::iter::from_fn(|| connection.receive(start).ok()).take(FLOOD).count();
    assert!((7..=16).contains(&kept), "{kept}");
    drop(connection);
    peer.join().unwrap();
}

#[test]
fn slowly_sending_peer_times_out() {
    let (port, peer) = server(|mut stream| {
        // Sends a packet that never ends, in single bytes, each before the deadline.
        let _ = stream.write_all(&[0xFF, 0xFF]);
        repeat(&mut stream, b"s", || thread::sleep(Duration::from_millis(20)));
    });
    let target = format!("127.0.0.1:{port}").parse().unwrap();
    let located: Located = locate(&target, 1, PATIENCE).unwrap();
    let settings = Settings { setup_timeout: Duration::from_millis(300), ..Settings::default() };
    let error = Connection::open(&located, &found(COOKIE), None, settings).unwrap_err();
    assert!(matches!(error, AttachError::TimedOut { step: Step::Handshake, .. }), "{error:?}");
    peer.join().unwrap();
}

#[test]
fn impostor_without_the_cookie_is_recognized() {
    let (port, peer) = server(|mut stream| {
        read_packet(&mut stream).unwrap();
        stream.write_all(&packet(b"sok")).unwrap();
        stream.write_all(&packet(&challenge(NAME.as_bytes()))).unwrap();
        read_packet(&mut stream).unwrap();
        stream.write_all(&packet(&[b"a", &[0; 16][..]].concat())).unwrap();
        wait_for_end(stream);
    });
    let error = connect(&format!("127.0.0.1:{port}"), 1, COOKIE).unwrap_err();
    assert!(matches!(error, AttachError::Impostor { .. }), "{error:?}");
    peer.join().unwrap();
}

#[test]
fn node_with_nonsensical_answers_gets_no_agent() {
    // Answers each call with an exit signal whose reason is not the result of the call.
    let (port, peer) = node(|mut stream| {
        while let Ok(Request::Call { from, .. }) = Request::read(&mut stream) {
            let reason = Value::atom("nonsense").to_bytes().unwrap();
            stream.write_all(&peer::ended(&from, &reason)).unwrap();
        }
    });
    let error = Session::start(attach(port), SessionOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "erlang:system_info/1 on n@h.i failed: nonsense");
    peer.join().unwrap();
}

#[test]
fn malicious_or_stalled_epmd_is_an_error() {
    fn check_within(
        timeout: Duration,
        serve: impl FnOnce(TcpStream) + Send + 'static,
        expect: impl Fn(&AttachError) -> bool,
    ) {
        let (port, epmd) = server(serve);
        let error = locate(&"a@127.0.0.1".parse().unwrap(), port, timeout).unwrap_err();
        assert!(expect(&error), "{error:?}");
        epmd.join().unwrap();
    }
    check_within(Duration::from_millis(500), wait_for_end, |error| {
        matches!(error, AttachError::TimedOut { step: Step::Epmd, .. })
    });
    fn check(serve: impl FnOnce(TcpStream) + Send + 'static, expect: impl Fn(&AttachError) -> bool) {
        check_within(PATIENCE, serve, expect);
    }
    let say = |what: &'static [u8]| {
        move |mut stream: TcpStream| {
            stream.write_all(what).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            wait_for_end(stream);
        }
    };
    check(say(b"HTTP/1.1 400"), |error| matches!(error, AttachError::NotEpmd { .. }));
    check(say(b""), |error| matches!(error, AttachError::NotEpmd { .. }));
    check(say(&[119, 0, 1]), |error| matches!(error, AttachError::NotEpmd { .. }));
    check(say(&[119, 0, 1, 1, 77, 0, 0, 5, 0, 5]), |error| matches!(error, AttachError::TooOld { .. }));
    // Sends single bytes without end.
    let drip = |mut stream: TcpStream| {
        repeat(&mut stream, &[119], || thread::sleep(Duration::from_millis(20)));
    };
    let (port, epmd) = server(drip);
    let error =
        beamtune_attach::locate::registered("127.0.0.1", port, Duration::from_millis(300)).unwrap_err();
    assert!(matches!(error, AttachError::TimedOut { step: Step::Epmd, .. }), "{error:?}");
    epmd.join().unwrap();
}
