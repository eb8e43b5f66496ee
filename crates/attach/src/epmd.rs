//! The EPMD protocol, without I/O: the nodes registered on a host, and their ports.
//!
//! EPMD maps the part of a node's name before the `@` to its distribution port. It answers anyone, and anyone may register any
//! name, so an answer is only a hint. The handshake proves which node listens on the port. Source: "Distribution Protocol" in the
//! ERTS User's Guide, section "EPMD Protocol".

use beamtune_model::text::is_hidden;

use crate::error::{AttachError, printable};

/// EPMD's port, unless `ERL_EPMD_PORT` is set.
pub const DEFAULT_PORT: u16 = 4369;

/// Maximum size of an answer: room for about 20,000 names of ordinary length. EPMD writes at most 3 kB for a name.
pub const MAX_ANSWER_BYTES: usize = 1 << 20;

const NAMES_REQUEST: u8 = 110;
const PORT_REQUEST: u8 = 122;
const PORT_ANSWER: u8 = 119;

/// A node that is registered with EPMD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// The node's name before the `@`.
    pub name: String,
    /// Its distribution port.
    pub port: u16,
}

/// EPMD's answer to a [`port_request`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortAnswer {
    /// The name is not registered.
    Unknown,
    /// The name's distribution port.
    Port {
        /// The port.
        port: u16,
        /// Highest version of the distribution protocol; 6 since OTP 23.
        highest_version: u16,
    },
}

/// Returns EPMD's port, given the value of `ERL_EPMD_PORT` in our environment or in that of the node's process.
pub fn port(environment: Option<&str>) -> Result<u16, AttachError> {
    match environment {
        None | Some("") => Ok(DEFAULT_PORT),
        Some(text) => match text.trim().parse() {
            Ok(port) if port > 0 => Ok(port),
            _ => Err(AttachError::BadEpmdPort { text: printable(text) }),
        },
    }
}

/// Builds the request for all names. EPMD closes the connection after its answer.
pub fn names_request() -> Vec<u8> {
    vec![0, 1, NAMES_REQUEST]
}

/// Builds the request for the port of one name.
pub fn port_request(name: &str) -> Vec<u8> {
    // The name in a parsed target has at most 255 characters.
    let length = u16::try_from(name.len() + 1).unwrap_or(u16::MAX);
    let mut request = length.to_be_bytes().to_vec();
    request.push(PORT_REQUEST);
    request.extend(name.bytes().take(usize::from(length) - 1));
    request
}

/// Parses the complete answer to [`names_request`].
pub fn parse_names(answer: &[u8]) -> Result<Vec<Registered>, &'static str> {
    let text = answer.get(4..).ok_or("the list of names is truncated")?;
    let text = std::str::from_utf8(text).map_err(|_| "the list of names is not UTF-8")?;
    text.lines().map(|line| parse_name(line).ok_or("a line of the list names no node")).collect()
}

/// Parses `name NAME at port PORT`.
fn parse_name(line: &str) -> Option<Registered> {
    let (name, port) = line.strip_prefix("name ")?.rsplit_once(" at port ")?;
    let is_name = !name.is_empty() && name.chars().count() <= 255 && !name.chars().any(is_hidden);
    is_name.then_some(Registered { name: name.to_owned(), port: port.parse().ok()? })
}

/// Parses the bytes received so far of the answer to [`port_request`]. Returns `None` if more are needed.
pub fn parse_port(answer: &[u8]) -> Result<Option<PortAnswer>, &'static str> {
    match *answer {
        [] | [PORT_ANSWER] => Ok(None),
        [PORT_ANSWER, 0, ref rest @ ..] => match *rest {
            // Port, node type, protocol, highest and lowest version. The name and extra fields follow, and are not needed.
            [p1, p0, _, _, h1, h0, ..] => match u16::from_be_bytes([p1, p0]) {
                0 => Err("the port is 0"),
                port => Ok(Some(PortAnswer::Port { port, highest_version: u16::from_be_bytes([h1, h0]) })),
            },
            _ => Ok(None),
        },
        [PORT_ANSWER, ..] => Ok(Some(PortAnswer::Unknown)),
        _ => Err("the answer has an unknown tag"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn name_list_is_parsed_by_line() {
        fn check(text: &[u8], expect: Result<&[(&str, u16)], &'static str>) {
            let answer = [b"\0\0\x11\x11", text].concat();
            let expect = expect.map(|names| {
                let named = names.iter().map(|&(name, port)| Registered { name: name.to_owned(), port });
                named.collect()
            });
            assert_eq!(parse_names(&answer), expect);
        }
        check(b"", Ok(&[]));
        check(
            b"name rabbit at port 25672\nname a at port b at port 1\n",
            Ok(&[("rabbit", 25672), ("a at port b", 1)]),
        );
        check(b"name a at port 65536\n", Err("a line of the list names no node"));
        check(b"name a\x1b[2J at port 1\n", Err("a line of the list names no node"));
        check(b"HTTP/1.1 400 Bad Request\n", Err("a line of the list names no node"));
        check(b"name \xFF at port 1\n", Err("the list of names is not UTF-8"));
        assert_eq!(parse_names(b"\0\0"), Err("the list of names is truncated"));
    }

    #[test]
    fn port_is_parsed_as_soon_as_it_is_complete() {
        let whole = [119, 0, 0x64, 0x48, 77, 0, 0, 6, 0, 5, 0, 1, b'a', 0, 0];
        for end in 0..8 {
            assert_eq!(parse_port(&whole[..end]), Ok(None), "{end} bytes");
        }
        for end in 8..=whole.len() {
            assert_eq!(
                parse_port(&whole[..end]),
                Ok(Some(PortAnswer::Port { port: 25672, highest_version: 6 }))
            );
        }
        assert_eq!(parse_port(&[119, 1]), Ok(Some(PortAnswer::Unknown)));
        assert_eq!(parse_port(b"HTTP"), Err("the answer has an unknown tag"));
        assert_eq!(parse_port(&[119, 0, 0, 0, 77, 0, 0, 6]), Err("the port is 0"));
    }

    #[test]
    fn requests_follow_the_protocol() {
        assert_eq!(names_request(), [0, 1, 110]);
        assert_eq!(port_request("ab"), [0, 3, 122, b'a', b'b']);
    }

    #[test]
    fn epmd_port_comes_from_the_environment() {
        assert_eq!(port(None).unwrap(), 4369);
        assert_eq!(port(Some("")).unwrap(), 4369);
        assert_eq!(port(Some("4370")).unwrap(), 4370);
        for bad in ["0", "x", "65536", "-1"] {
            assert!(matches!(port(Some(bad)), Err(AttachError::BadEpmdPort { text }) if text == bad));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_answers_never_panic(answer in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (parse_names(&answer), parse_port(&answer));
            let mut tagged = vec![119, 0];
            tagged.extend(answer);
            let _ = parse_port(&tagged);
        }
    }
}
