//! Names of MQTT reason codes and return codes.

use std::fmt;

use super::Version;
use super::packet::Kind;

/// Reason codes of MQTT 5 from this value on are failures; it is also the failure code of a 3.1.1 SUBACK.
pub const FAILURES: u8 = 0x80;
/// The only reason code that the client sends.
pub const PACKET_IDENTIFIER_NOT_FOUND: u8 = 0x92;

/// A reason code with its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason {
    /// MQTT version of the code.
    pub version: Version,
    /// The kind of the packet that contained the code.
    pub kind: Kind,
    /// A reason code of MQTT 5, or a return code of 3.1.1.
    pub code: u8,
}

impl Reason {
    fn name(self) -> Option<&'static str> {
        Some(match (self.version, self.kind, self.code) {
            (Version::V311, Kind::CONNACK, code) => match code {
                1 => "unacceptable protocol version",
                2 => "identifier rejected",
                3 => "server unavailable",
                4 => "bad user name or password",
                5 => "not authorized",
                _ => return None,
            },
            (Version::V311, _, FAILURES) => "failure",
            (Version::V311, ..) => return None,
            (Version::V5, _, code) => name_5(code)?,
        })
    }
}

/// Returns the name of a reason code (MQTT 5.0, 2.4).
fn name_5(code: u8) -> Option<&'static str> {
    Some(match code {
        0x00 => "success",
        0x04 => "disconnect with will message",
        0x10 => "no matching subscribers",
        0x11 => "no subscription existed",
        0x80 => "unspecified error",
        0x81 => "malformed packet",
        0x82 => "protocol error",
        0x83 => "implementation specific error",
        0x84 => "unsupported protocol version",
        0x85 => "client identifier not valid",
        0x86 => "bad user name or password",
        0x87 => "not authorized",
        0x88 => "server unavailable",
        0x89 => "server busy",
        0x8a => "banned",
        0x8b => "server shutting down",
        0x8c => "bad authentication method",
        0x8d => "keep alive timeout",
        0x8e => "session taken over",
        0x8f => "topic filter invalid",
        0x90 => "topic name invalid",
        0x91 => "packet identifier in use",
        0x92 => "packet identifier not found",
        0x93 => "receive maximum exceeded",
        0x94 => "topic alias invalid",
        0x95 => "packet too large",
        0x96 => "message rate too high",
        0x97 => "quota exceeded",
        0x98 => "administrative action",
        0x99 => "payload format invalid",
        0x9a => "retain not supported",
        0x9b => "QoS not supported",
        0x9c => "use another server",
        0x9d => "server moved",
        0x9e => "shared subscriptions not supported",
        0x9f => "connection rate exceeded",
        0xa0 => "maximum connect time",
        0xa1 => "subscription identifiers not supported",
        0xa2 => "wildcard subscriptions not supported",
        _ => return None,
    })
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, code, .. } = self;
        match self.name() {
            Some(name) => write!(f, "{kind}: {name} (0x{code:02x})"),
            None => write!(f, "{kind}: unknown reason 0x{code:02x}"),
        }
    }
}
