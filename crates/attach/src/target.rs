//! TARGET: the node that a command is pointed at, as the user writes it.

use std::fmt;
use std::str::FromStr;

use crate::error::{AttachError, printable};

/// A node by name or by address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A node by its name. Without a host part, it is a node on this host.
    Node {
        /// The part before the `@`, which is registered with EPMD.
        name: String,
        /// The part after it.
        host: Option<String>,
    },
    /// A node by the address of its distribution port. EPMD is not needed.
    Address {
        /// Host name or address; an IPv6 address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
}

impl FromStr for Target {
    type Err = AttachError;

    /// Parses `NAME@HOST`, `NAME`, `HOST:PORT` or `[IPV6]:PORT`.
    fn from_str(text: &str) -> Result<Target, AttachError> {
        let bad = |reason| AttachError::BadTarget { text: printable(text), reason };
        if text.is_empty() {
            return Err(bad("it is empty"));
        }
        // A node name is an atom, and an atom has at most 255 characters.
        if text.chars().count() > 255 {
            return Err(bad("it is longer than 255 characters"));
        }
        if text.chars().any(|character| character.is_control() || character.is_whitespace()) {
            return Err(bad("it has white space or control characters"));
        }
        if text.contains('/') {
            return Err(bad("it looks like the path of a file"));
        }
        if let Some((name, host)) = text.split_once('@') {
            return match (name, host) {
                ("", _) => Err(bad("no name before the @")),
                (_, "") => Err(bad("no host after the @")),
                (_, host) if host.contains('@') => Err(bad("it has more than one @")),
                _ => Ok(Target::Node { name: name.to_owned(), host: Some(host.to_owned()) }),
            };
        }
        let Some((host, port)) = text.rsplit_once(':') else {
            return Ok(Target::Node { name: text.to_owned(), host: None });
        };
        let port = match port.parse() {
            Ok(port) if port > 0 => port,
            _ => return Err(bad("the port is not a number from 1 to 65535")),
        };
        let host = match host.strip_prefix('[') {
            Some(host) => host.strip_suffix(']').ok_or(bad("the closing bracket is missing"))?,
            None if host.contains(':') => return Err(bad("an IPv6 address needs brackets")),
            None => host,
        };
        if host.is_empty() {
            return Err(bad("no host before the colon"));
        }
        Ok(Target::Address { host: host.to_owned(), port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Node { name, host: Some(host) } => write!(f, "{name}@{host}"),
            Target::Node { name, host: None } => f.write_str(name),
            Target::Address { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Target::Address { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_form_of_target_is_recognized() {
        fn node(name: &str, host: Option<&str>) -> Target {
            Target::Node { name: name.to_owned(), host: host.map(str::to_owned) }
        }
        fn address(host: &str, port: u16) -> Target {
            Target::Address { host: host.to_owned(), port }
        }
        fn check(text: &str, expect: Target) {
            assert_eq!(text.parse::<Target>().unwrap(), expect, "{text}");
            assert_eq!(expect.to_string(), text);
        }
        check("rabbit", node("rabbit", None));
        check("rabbit@web-1", node("rabbit", Some("web-1")));
        check("app@10.0.0.7", node("app", Some("10.0.0.7")));
        check("app@host.example.org", node("app", Some("host.example.org")));
        check("app@::1", node("app", Some("::1")));
        check("127.0.0.1:9100", address("127.0.0.1", 9100));
        check("localhost:9100", address("localhost", 9100));
        check("[::1]:9100", address("::1", 9100));
    }

    #[test]
    fn invalid_target_is_an_error_with_the_reason() {
        fn check(text: &str, expect: &str) {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
            assert!(error.ends_with("give NAME@HOST, NAME or HOST:PORT"), "{error}");
        }
        check("", "it is empty");
        check("@host", "no name before the @");
        check("name@", "no host after the @");
        check("a@b@c", "it has more than one @");
        check("host:0", "the port is not a number from 1 to 65535");
        check("host:http", "the port is not a number");
        check("host:65536", "the port is not a number");
        check(":9100", "no host before the colon");
        check("::1:9100", "an IPv6 address needs brackets");
        check("[::1:9100", "the closing bracket is missing");
        check("./file.rec", "it looks like the path of a file");
        check("a b", "it has white space");
        check("a\u{1b}[2J", "invalid target \"a\\u{1b}[2J\" (it has white space or control characters)");
        check(&"a".repeat(256), "it is longer than 255 characters");
    }

    proptest! {
        #[test]
        fn any_text_is_a_target_or_an_error(text in "\\PC*") {
            if let Ok(target) = text.parse::<Target>() {
                prop_assert_eq!(target.to_string(), text);
            }
        }
    }
}
