//! Streams from a load's target: HTTP, WebSocket, and raw TCP frames; and files for the load generator: scenarios, and
//! results of other tools.

use std::fmt::Write;
use std::sync::Arc;

use beamtune_load::import::{self, Tool};
use beamtune_load::protocol::http::HttpRequest;
use beamtune_load::protocol::raw::{Framing, RawMessage};
use beamtune_load::protocol::websocket::Upgrade;
use beamtune_load::protocol::{Checks, Message, Protocol, Received, Session};
use beamtune_load::scenario::Scenario;
use beamtune_load::template::{Template, Values};
use beamtune_report::Style;
use rand_core::SeedableRng;
use rand_xoshiro::Xoroshiro128PlusPlus;

use super::assert_harmless;

/// The reply to the upgrade; its key follows from the seed below.
const OPENED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Accept: cX8uCHDasAueM0Ta+dc6B/6DGRo=\r\n\r\n";

/// An HTTP server. The first byte selects how the network splits the stream, and whether the request is a HEAD.
pub fn http(bytes: &[u8]) {
    let Some((&choice, stream)) = bytes.split_first() else { return };
    let method = if choice & 1 == 0 { "GET" } else { "HEAD" };
    let request = HttpRequest::new(method, &Template::literal("/"), &[], None);
    let sent = [Message::Http(Box::new(request))];
    let read = |piece| read_session(&Protocol::Http, &sent, b"", stream, piece);
    assert_eq!(read(stream.len().max(1)), read(usize::from(choice >> 1) + 1));
}

/// A WebSocket server. The first byte selects how the network splits the stream, and whether the input includes the reply
/// to the upgrade.
pub fn websocket(bytes: &[u8]) {
    let Some((&choice, stream)) = bytes.split_first() else { return };
    let upgrade = Upgrade::new(&Template::literal("/"), &[], vec!["chat".to_owned()]);
    let protocol = Protocol::WebSocket(Arc::new(upgrade));
    let opened = if choice & 1 == 0 { OPENED } else { b"" };
    let read = |piece| read_session(&protocol, &[Message::WebSocketPing], opened, stream, piece);
    assert_eq!(read(stream.len().max(1)), read(usize::from(choice >> 1) + 1));
}

/// A server of raw frames. The first byte selects the framing, the second how the network splits the stream.
pub fn raw_frames(bytes: &[u8]) {
    let &[choice, cut, ref stream @ ..] = bytes else { return };
    let framing = match choice & 7 {
        0 => Framing::delimiter(b"\n"),
        1 => Framing::delimiter(b"\r\n"),
        2 => Framing::delimiter(b"aab"),
        3 => Framing::fixed(u32::from(choice >> 3) + 1),
        4 => Framing::length_prefix(1, false),
        5 => Framing::length_prefix(2, choice & 8 == 0),
        _ => Framing::length_prefix(4, choice & 8 == 0),
    };
    let framing = Arc::new(framing.expect("a valid framing"));
    let message = RawMessage::new(Template::literal("x"), &framing, cut & 1 == 0).expect("a message");
    let protocol = Protocol::Raw(framing);
    let sent = [Message::Raw(Box::new(message))];
    let read = |piece| read_session(&protocol, &sent, b"", stream, piece);
    assert_eq!(read(stream.len().max(1)), read(usize::from(cut >> 1) + 1));
}

/// A scenario, which becomes a plan or is refused with the positions of its errors.
pub fn load_scenario(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let files = |name: &str| match name {
        "users.csv" => Ok(b"user,password\nann,1\nbob,2\n".to_vec()),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    };
    match Scenario::parse("x.toml", &text, &files) {
        Ok(scenario) => {
            let address = |_: &_| ([127, 0, 0, 1], 1).into();
            if let Err(error) = scenario.compile(0, &address, &Vec::new) {
                assert!(!error.to_string().is_empty());
            }
        }
        Err(faults) => {
            assert!(!faults.faults.is_empty());
            let lines = text.lines().count().max(1);
            for fault in &faults.faults {
                assert!((1..=lines).contains(&fault.line) && fault.column > 0, "{fault:?}");
            }
            let _ = faults.to_string();
        }
    }
}

/// A file of results. Its rendering contains no control sequences, and the result can be written and read again.
pub fn load_import(bytes: &[u8]) {
    for tool in [None, Some(Tool::Wrk2)] {
        let result = match import::read_from("x", bytes, tool) {
            Ok(result) => result,
            Err(error) => {
                let _ = error.to_string();
                continue;
            }
        };
        assert_harmless(&beamtune_report::load::render(&result, Style::PLAIN));
        let written = serde_json::to_vec(&result).expect("JSON");
        let again = import::read("written", &written).unwrap_or_else(|error| panic!("{error}: {result:#?}"));
        assert_eq!((again.done(), again.errors()), (result.done(), result.errors()));
        assert_eq!(again.seconds.len(), result.seconds.len());
        let _ = import::merge(vec![("a".to_owned(), result), ("b".to_owned(), again)]);
    }
}

/// Events and output of a session that reads a stream in pieces.
fn read_session(
    protocol: &Protocol,
    sent: &[Message],
    opened: &[u8],
    stream: &[u8],
    piece: usize,
) -> (String, Vec<u8>) {
    let mut random = Xoroshiro128PlusPlus::seed_from_u64(1);
    let mut values = Values { device: 1, turn: 0, count: &mut 0, random: &mut random, now_ns: 0 };
    let checks = Checks { body: vec!["a".to_owned()], ..Checks::default() };
    let (mut session, mut out, mut heard) = (Session::new(protocol), Vec::new(), String::new());
    let mut is_ready = session.open(protocol, &mut values, &mut out).expect("its own protocol");
    if !opened.is_empty() {
        let (used, opening) = session.read(opened, &checks, &mut out).expect("a reply that opens");
        assert_eq!((used, opening), (opened.len(), Received::Ready));
        is_ready = true;
    }
    if is_ready {
        for message in sent {
            let sent = session.send(message, &checks, &mut values, &mut Vec::new(), &mut out);
            assert!(sent.is_ok());
        }
    }
    let (mut held, mut answered) = (Vec::new(), 0);
    for bytes in stream.chunks(piece) {
        held.extend_from_slice(bytes);
        while !held.is_empty() {
            let (used, is_nothing) = match session.read(&held, &checks, &mut out) {
                Ok((used, Received::Nothing)) => (used, true),
                Ok((used, event)) => {
                    answered += usize::from(matches!(event, Received::Answer(_)));
                    let _ = writeln!(heard, "{event:?}");
                    (used, false)
                }
                Err(fault) => {
                    assert_harmless(&fault.to_string());
                    let _ = writeln!(heard, "{fault:?}");
                    return (heard, out);
                }
            };
            session.release_buffer();
            held.drain(..used);
            if is_nothing {
                break;
            }
            assert!(used > 0, "endless loop");
        }
    }
    assert!(answered <= sent.len(), "{answered} answers");
    let _ = writeln!(heard, "{:?}", session.end(&held, &checks));
    (heard, out)
}
