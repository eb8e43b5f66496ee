//! Network input: handshakes, frames, terms, EPMD's answers; and files of TLS options.

use std::fmt::Write;

use beamtune_attach::cookie::Cookie;
use beamtune_attach::etf::{Document, Limits, Term};
use beamtune_attach::frame::{Frame, Splitter};
use beamtune_attach::handshake::{Expected, Handshake, Lengths, OwnName, Parameters};
use beamtune_attach::message::Message;
use beamtune_attach::{epmd, fuzzing};

use super::assert_harmless;

const LIMITS: Limits = Limits { bytes: 1 << 20, terms: 1 << 16, depth: 256 };

/// Maximum memory of a document per byte of input: 16 bytes on the tape, in a vector that doubles, plus the growth of
/// Latin-1 text.
const MAX_MEMORY_PER_BYTE: usize = 40;

/// The node's side of a handshake. The first byte selects the client's parameters.
pub fn handshake(bytes: &[u8]) {
    let Some((&choice, heard)) = bytes.split_first() else { return };
    // The network may split it anywhere.
    assert_eq!(shake_hands(choice, heard, heard.len().max(1)), shake_hands(choice, heard, 1));
}

/// The client's result for a handshake that arrives in pieces.
fn shake_hands(choice: u8, heard: &[u8], piece: usize) -> String {
    let Ok(cookie) = Cookie::new("secret", "a test") else { return String::new() };
    let mut handshake = Handshake::new(Parameters {
        peer: "n (127.0.0.1:1)".to_owned(),
        expected: match choice >> 2 & 3 {
            0 => Expected::Name("n".to_owned()),
            1 => Expected::FullName("n@h.i".to_owned()),
            _ => Expected::Any,
        },
        own: if choice & 2 == 0 {
            OwnName::Ours { name: "beamtune_1".to_owned(), creation: 5 }
        } else {
            OwnName::OfNode
        },
        host: "h.i".to_owned(),
        lengths: if choice & 1 == 0 { Lengths::Two } else { Lengths::Four },
        cookie,
        cookie_origin: "a test".to_owned(),
        challenge: 7,
    });
    let mut written = handshake.take_output().len();
    for (index, bytes) in heard.chunks(piece).enumerate() {
        let answer = handshake.receive(bytes);
        written += handshake.take_output().len();
        // The client sends its name and one reply, whatever it receives.
        assert!(written < 200, "{written} bytes");
        match answer {
            Ok(None) => {}
            Ok(Some((established, mut rest))) => {
                assert_harmless(&established.node);
                assert_harmless(&established.own_name);
                rest.extend(heard.chunks(piece).skip(index + 1).flatten());
                return format!("{established:?} {rest:?}");
            }
            Err(error) => {
                assert_harmless(&error.to_string());
                return error.to_string();
            }
        }
    }
    let end = handshake.closed().to_string();
    assert_harmless(&end);
    end
}

/// The stream after the handshake; the first byte selects how it is split.
pub fn frames(bytes: &[u8]) {
    let Some((&cut, stream)) = bytes.split_first() else { return };
    let whole = split(stream, stream.len().max(1));
    assert_eq!(whole, split(stream, usize::from(cut) + 1));
    for frame in whole.into_iter().flatten() {
        let Frame::Message(content) = frame else { continue };
        let (bytes, mut shown) = (content.len(), String::new());
        match Message::decode(content, LIMITS) {
            Ok(message) => {
                let max_bytes = MAX_MEMORY_PER_BYTE * bytes + 1024;
                assert!(
                    message.memory_bytes() <= max_bytes,
                    "{bytes} bytes became {}",
                    message.memory_bytes()
                );
                let _ = write!(shown, "{message:?}");
                if let Message::Unlink { acknowledgement } = message {
                    let answer = split(&acknowledgement, acknowledgement.len());
                    assert!(matches!(answer.as_slice(), [Ok(Frame::Message(_))]), "{answer:?}");
                }
            }
            Err(error) => assert_harmless(&error.to_string()),
        }
    }
}

/// The frames of a stream that arrives in pieces, and the error that ends it, if any.
fn split(stream: &[u8], piece: usize) -> Vec<Result<Frame, usize>> {
    let mut splitter = Splitter::new(LIMITS.bytes);
    let mut found = Vec::new();
    for mut bytes in stream.chunks(piece) {
        loop {
            match splitter.next(&mut bytes) {
                Ok(Some(frame)) => found.push(Ok(frame)),
                Ok(None) => break,
                Err(too_long) => {
                    found.push(Err(too_long.bytes));
                    return found;
                }
            }
        }
        assert!(bytes.is_empty());
    }
    found
}

/// A term: it is printed, all accessors are called, and a value that can be encoded is decoded unchanged.
pub fn term(bytes: &[u8]) {
    let (document, end) = match Document::decode_prefix(bytes.to_vec(), 0, LIMITS) {
        Ok(decoded) => decoded,
        Err(error) => return assert_harmless(&error.to_string()),
    };
    assert!((1..=bytes.len()).contains(&end));
    let max_bytes = MAX_MEMORY_PER_BYTE * bytes.len() + 1024;
    assert!(document.memory_bytes() <= max_bytes, "{} bytes became {}", bytes.len(), document.memory_bytes());
    let shown = document.root().to_string();
    assert!(shown.chars().count() < 500, "{shown}");
    assert_harmless(&shown);
    ask(document.root());
    let Ok(value) = document.root().to_value() else { return };
    let again = value.to_bytes().expect("a decoded term can be encoded");
    // A byte string becomes a list of numbers: more terms, and one more level.
    let limits = Limits { bytes: 1 << 24, terms: 1 << 22, depth: LIMITS.depth + 1 };
    let again = Document::decode(again, 0, limits).expect("an encoded term can be decoded");
    assert_eq!(again.root().to_value().as_ref(), Ok(&value));
}

/// Calls all accessors of a term.
fn ask(term: Term<'_>) {
    let _ = (term.as_i128(), term.as_i64(), term.as_u64(), term.as_f64(), term.as_bool(), term.as_bytes());
    let _ = (term.as_str(), term.as_pid(), term.as_reference(), term.get("key"), term.tuple_of::<3>());
    if let Ok(name) = term.as_atom() {
        assert!(name.chars().count() <= 255);
    }
    if let Ok(pairs) = term.map() {
        pairs.for_each(|(key, value)| {
            ask(key);
            ask(value);
        });
    }
    term.tuple().into_iter().flatten().for_each(ask);
    term.list().into_iter().flatten().for_each(ask);
}

/// EPMD's answers: the port of one node, possibly incomplete, and the list of all nodes.
pub fn epmd(bytes: &[u8]) {
    for node in epmd::parse_names(bytes).into_iter().flatten() {
        assert_harmless(&node.name);
        assert!(!node.name.is_empty() && node.name.chars().count() <= 255);
    }
    let whole = epmd::parse_port(bytes);
    for end in 0..bytes.len().min(16) {
        match epmd::parse_port(&bytes[..end]) {
            Ok(None) => {}
            early => assert_eq!(early, whole, "after {end} bytes"),
        }
    }
}

/// A node's TLS options file; the first line is the node's command line.
pub fn tls_options(bytes: &[u8]) {
    let line = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
    let (line, file) = bytes.split_at(line);
    for remark in fuzzing::tls_remarks(&String::from_utf8_lossy(line), file) {
        assert_harmless(&remark);
    }
}
