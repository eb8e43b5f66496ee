//! The opening handshake: the upgrade request and its reply (RFC 6455, section 4).

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand_core::Rng;

use super::WebSocketFault;
use crate::protocol::http::{self, MAX_FIELDS, MAX_HEAD_BYTES};
use crate::template::{Template, Values};

/// The text that is appended to the key before hashing (RFC 6455, 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Size of a key: 16 bytes in Base64.
const KEY_BYTES: usize = 24;
/// Size of a hash: 20 bytes in Base64.
const ACCEPT_BYTES: usize = 28;

/// An upgrade request.
#[derive(Debug, Clone)]
pub struct Upgrade {
    /// The request without the key.
    head: Template,
    subprotocols: Vec<String>,
}

impl Upgrade {
    /// Creates a request with this path (with query), these header fields (name and value, including `Host`) and the offered subprotocols
    /// in order of preference. Adds WebSocket's own header fields.
    pub fn new(path: &Template, fields: &[(String, Template)], subprotocols: Vec<String>) -> Self {
        let mut head = http::head("GET", path, fields);
        head.push_literal(b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n");
        if !subprotocols.is_empty() {
            head.push_literal(format!("Sec-WebSocket-Protocol: {}\r\n", subprotocols.join(", ")).as_bytes());
        }
        Self { head, subprotocols }
    }
}

/// A pending upgrade.
#[derive(Debug)]
pub struct Opening {
    upgrade: Arc<Upgrade>,
    /// The expected `Sec-WebSocket-Accept`.
    accept: [u8; ACCEPT_BYTES],
}

impl Opening {
    /// Appends the request to `out`.
    pub fn start(upgrade: &Arc<Upgrade>, values: &mut Values<'_>, out: &mut Vec<u8>) -> Self {
        let mut nonce = [0; 16];
        values.random.fill_bytes(&mut nonce);
        let mut key = [0; KEY_BYTES];
        encode(&nonce, &mut key);
        upgrade.head.render(values, out);
        out.extend_from_slice(b"Sec-WebSocket-Key: ");
        out.extend_from_slice(&key);
        out.extend_from_slice(b"\r\n\r\n");
        Self { upgrade: Arc::clone(upgrade), accept: accept(&key) }
    }

    /// Reads the reply. Returns the number of bytes used, and whether the reply is complete.
    pub fn read(&self, input: &[u8]) -> Result<(usize, bool), WebSocketFault> {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            if rest.is_empty() {
                return Ok((used, false));
            }
            let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
            let mut response = httparse::Response::new(&mut fields);
            let length = match response.parse(rest) {
                Ok(httparse::Status::Complete(length)) if length <= MAX_HEAD_BYTES => length,
                Ok(httparse::Status::Partial) if rest.len() < MAX_HEAD_BYTES => return Ok((used, false)),
                Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(WebSocketFault::LongHead),
                Err(_) => return Err(WebSocketFault::Head),
            };
            used += length;
            match response.code {
                Some(101) => {
                    self.check(response.headers)?;
                    return Ok((used, true));
                }
                // This is an interim response; the final one follows.
                Some(100..200) => {}
                Some(status) => return Err(WebSocketFault::Status(status)),
                None => return Err(WebSocketFault::Head),
            }
        }
    }

    /// Checks the header fields of a reply with status 101.
    fn check(&self, fields: &[httparse::Header<'_>]) -> Result<(), WebSocketFault> {
        let values = |name: &'static str| {
            let named = fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
            named.flat_map(|field| field.value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
        };
        if !values("Upgrade").any(|value| value.eq_ignore_ascii_case(b"websocket"))
            || !values("Connection").any(|value| value.eq_ignore_ascii_case(b"upgrade"))
        {
            return Err(WebSocketFault::Upgrade);
        }
        if !values("Sec-WebSocket-Accept").eq([&self.accept[..]]) {
            return Err(WebSocketFault::Accept);
        }
        if values("Sec-WebSocket-Extensions").any(|value| !value.is_empty()) {
            return Err(WebSocketFault::Extension);
        }
        // A server that supports none of the offered subprotocols may continue without one.
        let mut chosen = values("Sec-WebSocket-Protocol");
        let is_offered = |value: &[u8]| self.upgrade.subprotocols.iter().any(|name| name.as_bytes() == value);
        if chosen.next().is_some_and(|value| !is_offered(value)) || chosen.next().is_some() {
            return Err(WebSocketFault::Subprotocol);
        }
        Ok(())
    }
}

/// Returns the `Sec-WebSocket-Accept` for a key.
fn accept(key: &[u8; KEY_BYTES]) -> [u8; ACCEPT_BYTES] {
    let mut hash = sha1_smol::Sha1::new();
    hash.update(key);
    hash.update(GUID);
    let mut accept = [0; ACCEPT_BYTES];
    encode(&hash.digest().bytes(), &mut accept);
    accept
}

/// Encodes `bytes` as Base64 into `text`, which must have the exact length.
fn encode(bytes: &[u8], text: &mut [u8]) {
    let written = STANDARD.encode_slice(bytes, text);
    debug_assert_eq!(written, Ok(bytes.len().div_ceil(3) * 4));
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;
    use rand_xoshiro::Xoroshiro128PlusPlus;

    use super::*;

    fn start(upgrade: Upgrade) -> (Opening, String) {
        let mut random = Xoroshiro128PlusPlus::seed_from_u64(3);
        let mut values = Values { device: 7, turn: 0, count: &mut 0, random: &mut random, now_ns: 0 };
        let mut out = Vec::new();
        let opening = Opening::start(&Arc::new(upgrade), &mut values, &mut out);
        (opening, String::from_utf8(out).unwrap())
    }

    fn chat() -> Upgrade {
        let path = Template::parse("/socket?device=${device}", None).unwrap();
        let fields = [
            ("Host".to_owned(), Template::literal("example.org")),
            ("X-Number".to_owned(), Template::parse("n${device}", None).unwrap()),
        ];
        Upgrade::new(&path, &fields, vec!["chat.2".to_owned(), "chat.1".to_owned()])
    }

    /// Reads a reply, both whole and cut at every position. `ACCEPT` in the reply is replaced by the expected value.
    fn reply(text: &str) -> Result<(usize, bool), WebSocketFault> {
        let (opening, _) = start(chat());
        let text = text.replace("ACCEPT", std::str::from_utf8(&opening.accept).unwrap());
        let whole = opening.read(text.as_bytes());
        for cut in 0..text.len() {
            match opening.read(&text.as_bytes()[..cut]) {
                Ok((used, false)) => {
                    assert_eq!(
                        opening.read(&text.as_bytes()[used..]).map(|(more, is)| (used + more, is)),
                        whole
                    );
                }
                early => assert_eq!(early, whole, "after {cut} bytes"),
            }
        }
        whole
    }

    #[test]
    fn the_example_of_the_standard_is_reproduced() {
        // RFC 6455, 1.3.
        assert_eq!(&accept(b"dGhlIHNhbXBsZSBub25jZQ=="), b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn the_request_has_all_required_fields() {
        let (opening, text) = start(chat());
        let (head, key) = text.split_once("Sec-WebSocket-Key: ").unwrap();
        assert_eq!(
            head,
            "GET /socket?device=7 HTTP/1.1\r\nHost: example.org\r\nX-Number: n7\r\nUpgrade: websocket\r\n\
             Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: chat.2, chat.1\r\n"
        );
        let key = key.strip_suffix("\r\n\r\n").unwrap();
        assert_eq!(STANDARD.decode(key).unwrap().len(), 16);
        assert_eq!(accept(key.as_bytes().try_into().unwrap()), opening.accept);
    }

    #[test]
    fn valid_replies_are_accepted_in_any_spelling() {
        for text in [
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ACCEPT\r\n\r\n",
            "HTTP/1.1 101 \r\nUPGRADE: WebSocket\r\nconnection: keep-alive, upgrade\r\nsec-websocket-accept:  ACCEPT \r\nSec-WebSocket-Extensions:\r\nSec-WebSocket-Protocol: chat.1\r\n\r\n",
            "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 101 OK\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ACCEPT\r\n\r\n",
        ] {
            let (_, is_reply) = reply(text).unwrap();
            assert!(is_reply, "{text}");
        }
    }

    #[test]
    fn bytes_after_the_reply_are_not_used() {
        let (opening, _) = start(chat());
        let accept = std::str::from_utf8(&opening.accept).unwrap();
        let text = format!(
            "HTTP/1.1 101 OK\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        assert_eq!(opening.read(format!("{text}\u{1}").as_bytes()), Ok((text.len(), true)));
    }

    #[test]
    fn invalid_replies_are_refused_with_the_reason() {
        let with = |fields: &str| format!("HTTP/1.1 101 OK\r\n{fields}\r\n");
        let good = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ACCEPT\r\n";
        for (text, fault) in [
            ("HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\n".to_owned(), WebSocketFault::Status(403)),
            ("HTTP/1.1 200 OK\r\n\r\n".to_owned(), WebSocketFault::Status(200)),
            ("220 smtp ready\r\n".to_owned(), WebSocketFault::Head),
            (with(&good.replace("websocket", "h2c")), WebSocketFault::Upgrade),
            (with(&good.replace("Connection: Upgrade", "Connection: close")), WebSocketFault::Upgrade),
            (with(&good.replace("ACCEPT", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")), WebSocketFault::Accept),
            (with(&good.replace("Sec-WebSocket-Accept: ACCEPT\r\n", "")), WebSocketFault::Accept),
            (with(&format!("{good}Sec-WebSocket-Accept: ACCEPT\r\n")), WebSocketFault::Accept),
            (
                with(&format!("{good}Sec-WebSocket-Extensions: permessage-deflate\r\n")),
                WebSocketFault::Extension,
            ),
            (with(&format!("{good}Sec-WebSocket-Protocol: mqtt\r\n")), WebSocketFault::Subprotocol),
            (with(&format!("{good}Sec-WebSocket-Protocol: chat.1, chat.2\r\n")), WebSocketFault::Subprotocol),
            (format!("HTTP/1.1 101 OK\r\nX: {}\r\n\r\n", "y".repeat(66_000)), WebSocketFault::LongHead),
            (with(&"X: y\r\n".repeat(200)), WebSocketFault::LongHead),
        ] {
            let (opening, _) = start(chat());
            let text = text.replace("ACCEPT", std::str::from_utf8(&opening.accept).unwrap());
            assert_eq!(opening.read(text.as_bytes()), Err(fault), "{text:.200}");
        }
    }
}
