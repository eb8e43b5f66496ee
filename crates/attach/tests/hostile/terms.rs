//! Tests terms that no honest node sends: wrong lengths, deep nesting, unusual atoms, huge numbers.

use beamtune_attach::connection::Connection;
use beamtune_attach::etf::{Document, Value};
use beamtune_attach::{AttachError, Settings};

use super::answers::huge;
use super::common::{PATIENCE, soon};
use super::peer::{Request, Server, ended, frame, returned, serve_agent, shake_hands};
use super::{COOKIE, NAME, found, locate};

/// Calls a function on a scripted node that returns these bytes as the result.
fn call(value: Vec<u8>) -> Result<Document, AttachError> {
    let server = Server::start(move |mut stream| {
        let _ = shake_hands(&mut stream, NAME.as_bytes());
        while let Ok(request) = Request::read(&mut stream) {
            let Request::Call { from, result, .. } = request else { continue };
            let value = [&[131][..], &value].concat();
            let answer = returned(&from, &result, Value::Encoded(value.into()));
            let _ = std::io::Write::write_all(&mut stream, &answer);
        }
    });
    let located = locate(&format!("127.0.0.1:{}", server.port).parse().unwrap(), 1, PATIENCE).unwrap();
    let mut connection = Connection::open(&located, &found(COOKIE), None, Settings::default()).unwrap();
    connection.call("m", "f", vec![], soon())
}

#[test]
fn length_of_four_gigabytes_is_rejected_immediately() {
    let lengths = [
        (&b"l"[..], "a list"),
        (b"i", "a tuple"),
        (b"t", "a map"),
        (b"m", "a binary"),
        (b"o", "a bignum"),
        (b"M", "a bit string"),
        (b"p", "a fun"),
    ];
    for (tag, what) in lengths {
        let error = call([tag, &[0xFF; 4], &[0, 0, 0]].concat()).unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, AttachError::Protocol { .. }), "{what}: {error:?}");
        assert!(said.contains("is truncated") || said.contains("malformed"), "{what}: {said}");
    }
}

#[test]
fn ten_million_levels_of_nesting_are_rejected() {
    for level in [&[104u8, 1][..], &[108, 0, 0, 0, 1], &[116, 0, 0, 0, 1, 106]] {
        let error = call(level.repeat(10_000_000)).unwrap_err();
        assert!(error.to_string().contains("nested deeper than the 256 levels"), "{error}");
    }
}

#[test]
fn atoms_of_all_encodings_are_read_or_rejected() {
    let atom = |tag: u8, text: &[u8]| {
        let length = match tag {
            b's' | b'w' => vec![text.len() as u8],
            _ => (text.len() as u16).to_be_bytes().to_vec(),
        };
        [&[tag][..], &length, text].concat()
    };
    let wide = "中".repeat(255);
    for (bytes, expect) in [
        (atom(b's', b"caf\xE9"), "café"),
        (atom(b'd', b"caf\xE9"), "café"),
        (atom(b'w', "café".as_bytes()), "café"),
        (atom(b'v', wide.as_bytes()), &wide),
        (atom(b'd', &[b'a'; 255]), &"a".repeat(255)),
        (atom(b'w', b""), ""),
    ] {
        let answer = call(bytes).unwrap();
        assert_eq!(answer.root().as_atom(), Ok(expect));
        assert!(answer.root().to_string().chars().count() < 500);
    }
    for (bytes, expect) in [
        (atom(b'w', b"\xC3"), "an atom that is not UTF-8"),
        (atom(b'v', b"\xED\xA0\x80"), "an atom that is not UTF-8"),
        (atom(b'd', &[b'a'; 256]), "an atom of more than 255 characters"),
        (atom(b'v', "中".repeat(256).as_bytes()), "an atom of more than 255 characters"),
        // This is an atom cache reference, which was not negotiated.
        (vec![82, 0], "unknown tag 82"),
    ] {
        let error = call(bytes).unwrap_err();
        assert!(error.to_string().contains(expect), "{error}\ninstead of {expect}");
    }
}

#[test]
fn huge_number_is_rejected() {
    let answer = call(match huge() {
        Value::Encoded(bytes) => bytes[1..].to_vec(),
        other => panic!("{other:?}"),
    })
    .unwrap();
    assert!(answer.root().as_i64().is_err() && answer.root().as_f64().is_err());
    let shown = answer.root().to_string();
    assert!(shown.starts_with("16#7F7F") && shown.len() < 500, "{shown}");
    for float in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let error = call([&b"F"[..], &float.to_be_bytes()].concat()).unwrap_err();
        assert!(error.to_string().contains("a float that is not finite"), "{error}");
    }
}

#[test]
fn exit_reason_is_shown_without_control_characters() {
    let server = Server::start(|mut stream| {
        let _ = shake_hands(&mut stream, NAME.as_bytes());
        while let Ok(request) = Request::read(&mut stream) {
            let Request::Call { from, .. } = request else { continue };
            let reason = Value::tuple([
                Value::atom("\u{1b}[2J"),
                Value::binary("\u{9b}31m\u{202e}".as_bytes()),
                Value::binary(b"\x1b]0;x\x07".as_slice()),
            ]);
            let frame = ended(&from, &reason.to_bytes().unwrap());
            let _ = std::io::Write::write_all(&mut stream, &frame);
        }
    });
    let located = locate(&format!("127.0.0.1:{}", server.port).parse().unwrap(), 1, PATIENCE).unwrap();
    let mut connection = Connection::open(&located, &found(COOKIE), None, Settings::default()).unwrap();
    let said = connection.call("m", "f", vec![], soon()).unwrap_err().to_string();
    assert!(!said.chars().any(beamtune_model::text::is_hidden), "{said:?}");
    assert!(said.contains("m:f/0 on n@h.i failed: {'\\u{1b}[2J'"), "{said}");
}

#[test]
fn unknown_operation_is_ignored() {
    let server = Server::start(|mut stream| {
        let _ = shake_hands(&mut stream, NAME.as_bytes());
        let _ = std::io::Write::write_all(&mut stream, &frame(&[112, 131, 104, 1, 97, 99, 1, 2, 3]));
        let _ = serve_agent(&mut stream, |_, _, _| Vec::new());
    });
    let located = locate(&format!("127.0.0.1:{}", server.port).parse().unwrap(), 1, PATIENCE).unwrap();
    let mut connection = Connection::open(&located, &found(COOKIE), None, Settings::default()).unwrap();
    // The payload, which is not even a term, is ignored, too.
    assert!(connection.receive(soon()).is_ok());
}
