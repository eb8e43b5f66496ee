//! Whole conversations, up to samples, with nodes that stop in the middle, never stop, or say something else.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use beamtune_attach::AttachError;
use beamtune_attach::agent::{Answer, Item, Terms};
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

/// Connects, puts the agent there, asks for a sample and takes leave.
fn visit(port: u16, settings: Settings) -> Result<Answer, AttachError> {
    let mut session = Session::start(connect(port, settings)?, Terms::default())?;
    session.request(1, &[Item::Facts, Item::Memory], &[])?;
    let answer = session.collect(1, soon())?;
    session.leave(soon())?;
    Ok(answer)
}

/// A node that stops after so many bytes, whatever it was just saying.
fn node_that_stops(after: usize, written: Arc<AtomicUsize>) -> Server {
    Server::start(move |stream| {
        let mut stream = Cut { stream, left: after, written: Arc::clone(&written) };
        let _ = shake_hands(&mut stream, NAME.as_bytes()).and_then(|()| {
            serve_agent(&mut stream, |to, seq, items| usual_answer(to, seq, items, |_, value| value))
        });
    })
}

#[test]
fn a_conversation_that_breaks_off_is_told_wherever_it_does() {
    let written = Arc::new(AtomicUsize::new(0));
    let whole = node_that_stops(usize::MAX, Arc::clone(&written));
    visit(whole.port, Settings::default()).unwrap();
    drop(whole);
    let length = written.load(Ordering::Relaxed);
    assert!((500..10_000).contains(&length), "{length} bytes");
    for after in 0..length {
        let node = node_that_stops(after, Arc::default());
        let error = visit(node.port, Settings::default()).expect_err("it breaks off");
        assert!(
            matches!(
                error,
                AttachError::ClosedEarly { .. }
                    | AttachError::Protocol { .. }
                    | AttachError::WrongCookie { .. }
                    | AttachError::Lost { .. }
            ),
            "after {after} bytes: {error:?}"
        );
    }
}

#[test]
fn a_real_node_that_is_cut_off_is_told_too() {
    on_release(25, |otp| {
        let node = otp.start();
        let located = locate(&node.name.parse().unwrap(), 4369, PATIENCE).unwrap();
        let address = located.addresses[0];
        // What stands between, and lets so many bytes of the node's pass.
        let between = |most: usize, passed: Arc<AtomicUsize>| {
            Server::start(move |client| {
                let node = TcpStream::connect(address).expect("the node");
                let (mut from, mut to) = (client.try_clone().unwrap(), node.try_clone().unwrap());
                let upstream = thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
                let mut back =
                    Cut { stream: client.try_clone().unwrap(), left: most, written: Arc::clone(&passed) };
                let _ = std::io::copy(&mut &node, &mut back);
                let _ = client.shutdown(std::net::Shutdown::Both);
                let _ = upstream.join();
            })
        };
        let passed = Arc::new(AtomicUsize::new(0));
        let whole = between(usize::MAX, Arc::clone(&passed));
        visit(whole.port, Settings::default()).unwrap();
        drop(whole);
        let length = passed.load(Ordering::Relaxed);
        for part in 0..20 {
            let cut = between(length * part / 20, Arc::default());
            let error = visit(cut.port, Settings::default()).expect_err("it is cut off");
            // Told by the end of the connection, and not by a deadline.
            assert!(!matches!(error, AttachError::TimedOut { .. }), "after {part}/20: {error:?}");
        }
        // The node itself is none the worse.
        visit(between(usize::MAX, Arc::default()).port, Settings::default()).unwrap();
    });
}

/// For a handshake that only time ends.
const SHORT: Duration = Duration::from_millis(400);

/// Why a handshake is given up; a timeout if only time has ended it.
fn hangs(setup_timeout: Duration, serve: impl FnMut(TcpStream) + Send + 'static) -> AttachError {
    let server = Server::start(serve);
    let settings = Settings { setup_timeout, ..Settings::default() };
    connect(server.port, settings).unwrap_err()
}

#[test]
fn a_handshake_without_end_is_given_up() {
    // A status again and again: only one is a status, the next must be the challenge.
    let error = hangs(PATIENCE, |mut stream| {
        let _ = read_packet(&mut stream);
        repeat(&mut stream, &packet(b"sok"), || {});
    });
    assert!(matches!(error, AttachError::TooOld { .. } | AttachError::Protocol { .. }), "{error:?}");
    // One of those that say nothing.
    let error = hangs(PATIENCE, |mut stream| {
        let _ = read_packet(&mut stream);
        repeat(&mut stream, &packet(b""), || {});
    });
    assert!(matches!(error, AttachError::Protocol { .. }), "{error:?}");
    for status in ["nok", "alive"] {
        // It is always busy, or has always a node of our name.
        let error = hangs(PATIENCE, move |mut stream| {
            let _ = read_packet(&mut stream);
            let _ = stream.write_all(&packet(format!("s{status}").as_bytes()));
        });
        let said = error.to_string();
        let is_timeout = matches!(error, AttachError::TimedOut { .. });
        assert!(said.contains("try again") && !is_timeout, "{status}: {said}");
    }
    // A byte at a time, of an honest handshake.
    let error = hangs(SHORT, |mut stream| {
        let _ = read_packet(&mut stream);
        let honest = packet(b"sok");
        let _ = stream.write_all(&honest[..1]);
        repeat(&mut stream, &honest[1..2], || thread::sleep(Duration::from_millis(150)));
    });
    assert!(matches!(error, AttachError::TimedOut { step: Step::Handshake, .. }), "{error:?}");
    // Accepted, and then nothing.
    let error = hangs(SHORT, |mut stream| {
        let _ = read_packet(&mut stream);
        let _ = stream.write_all(&packet(b"sok"));
        super::wait_for_end(stream);
    });
    assert!(matches!(error, AttachError::TimedOut { step: Step::Handshake, .. }), "{error:?}");
}

#[test]
fn the_names_of_nodes_hold_nothing_that_commands_a_terminal() {
    for name in ["n\u{1b}[2J@h", "n@h\u{9b}2J", "n\u{202e}@h", "n@h\u{200f}", "@h", "n@", "n", "n@h@i"] {
        let server = Server::start(move |mut stream| {
            let _ = shake_hands(&mut stream, name.as_bytes());
        });
        let error = connect(server.port, Settings::default()).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("a name that no node can have"), "{name:?}: {said}");
        assert!(!said.chars().any(beamtune_model::text::is_hidden), "{said:?}");
    }
}

/// A session with a node that floods it with `flood` as soon as a sample is asked for.
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
    let mut session = Session::start(connection, Terms::default()).unwrap();
    session.request(1, &[Item::Memory], &[]).unwrap();
    let error = session.collect(1, Instant::now() + Duration::from_millis(300)).unwrap_err();
    // Once more, and the farewell, too. If one did not end with its deadline, the flood would end before, and with it the connection.
    let again = session.collect(1, Instant::now() + Duration::from_millis(100)).unwrap_err();
    assert!(matches!(again, AttachError::TimedOut { .. }), "{again:?}");
    let _ = session.leave(Instant::now() + Duration::from_millis(100)).unwrap_err();
    error
}

#[test]
fn whoever_floods_a_session_does_not_hold_it() {
    let term = |value: Value<'_>| value.to_bytes().unwrap();
    // To somebody else, to us, and as if it were the agent's, but of another request.
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
fn ticks_alone_are_no_answer() {
    let error = flooded(|_, stream| {
        let mut answers = stream.try_clone().unwrap();
        let reader = thread::spawn(move || std::io::copy(&mut answers, &mut std::io::sink()));
        repeat(stream, &[0; 4], || thread::sleep(Duration::from_millis(1)));
        let _ = reader.join();
    });
    assert!(matches!(error, AttachError::TimedOut { step: Step::Receive, .. }), "{error:?}");
}

#[test]
fn ticks_that_nobody_reads_the_answers_of_do_not_block() {
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
fn small_messages_of_many_terms_are_kept_by_the_memory_that_they_take() {
    // A list of empty lists takes a byte of the wire for each of them, and sixteen here.
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
    eventually("all of them", || {
        connection.pump(Instant::now() + Duration::from_millis(100)).unwrap();
        written.load(Ordering::Relaxed) == all
    });
    let kept = std::iter::from_fn(|| connection.receive(Instant::now()).ok()).take(200).count();
    // 1.7 to 2.3 MB each, in 8 MB.
    assert!((1..=5).contains(&kept), "{kept}");
}
