//! The distribution handshake, without I/O.
//!
//! This is version 6 (OTP 23 and later) from the connecting side, which is a *hidden* node. Over TLS, only the length fields
//! differ.
//!
//! ```text
//! we                                   the node
//! name (flags, our name or host)  ->
//!                         <-------     status (ok, or our name)
//!                         <-------     challenge (flags, its name)
//! reply (digest, our challenge)  -->
//!                         <-------     acknowledgement (digest)
//! ```
//!
//! Both sides prove that they know the cookie. We send only an MD5 digest of the cookie and the node's challenge, and only after
//! the node has given the expected name. Source: "Distribution Protocol" in the ERTS User's Guide, section "Distribution
//! Handshake"; lib/kernel/src/dist_util.erl.

use std::sync::Arc;

use beamtune_model::text::is_hidden;
use md5::{Digest, Md5};

use crate::cookie::Cookie;
use crate::error::{AttachError, printable};

/// Capability flags, erts/emulator/beam/dist.h.
mod flag {
    pub const EXTENDED_REFERENCES: u64 = 0x4;
    pub const DIST_MONITOR: u64 = 0x8;
    pub const FUN_TAGS: u64 = 0x10;
    pub const DIST_MONITOR_NAME: u64 = 0x20;
    pub const NEW_FUN_TAGS: u64 = 0x80;
    pub const EXTENDED_PIDS_PORTS: u64 = 0x100;
    pub const EXPORT_PTR_TAG: u64 = 0x200;
    pub const BIT_BINARIES: u64 = 0x400;
    pub const NEW_FLOATS: u64 = 0x800;
    pub const SMALL_ATOM_TAGS: u64 = 0x4000;
    pub const UTF8_ATOMS: u64 = 0x10000;
    pub const MAP_TAG: u64 = 0x20000;
    pub const BIG_CREATION: u64 = 0x40000;
    pub const SEND_SENDER: u64 = 0x80000;
    pub const EXIT_PAYLOAD: u64 = 0x400000;
    pub const HANDSHAKE_23: u64 = 0x1000000;
    pub const UNLINK_ID: u64 = 0x2000000;
    // OTP 25's manual says bit 36, but its code uses this bit.
    pub const MANDATORY_25_DIGEST: u64 = 0x4000000;
    pub const SPAWN: u64 = 1 << 32;
    pub const NAME_ME: u64 = 1 << 33;
    pub const V4_NC: u64 = 1 << 34;
    pub const ALIAS: u64 = 1 << 35;
}

/// Capability flags that we offer. Left out are:
/// - `PUBLISHED`: we stay hidden, so we do not appear in `nodes()` and do not join `global`'s cluster;
/// - `DIST_HDR_ATOM_CACHE` and `FRAGMENTS`: without both, each message is one frame, and decoding it needs no state from earlier
///   messages.
const OFFERED: u64 = flag::EXTENDED_REFERENCES
    | flag::FUN_TAGS
    | flag::NEW_FUN_TAGS
    | flag::EXTENDED_PIDS_PORTS
    | flag::EXPORT_PTR_TAG
    | flag::BIT_BINARIES
    | flag::NEW_FLOATS
    | flag::UTF8_ATOMS
    | flag::MAP_TAG
    | flag::BIG_CREATION
    | flag::HANDSHAKE_23
    | flag::MANDATORY_25_DIGEST
    // Mandatory since OTP 26.
    | flag::V4_NC
    | flag::UNLINK_ID
    // Without both flags, we are never notified when a monitored process exits.
    | flag::DIST_MONITOR
    | flag::DIST_MONITOR_NAME
    | flag::SMALL_ATOM_TAGS
    | flag::SEND_SENDER
    | flag::EXIT_PAYLOAD
    | flag::SPAWN
    | flag::ALIAS;

/// Maximum size of a handshake packet: the largest that a 2-byte length can express.
const MAX_PACKET_BYTES: usize = 0xFFFF;

/// Our node name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnName {
    /// A name that we choose.
    Ours {
        /// The name before the `@`.
        name: String,
        /// Our incarnation, not 0.
        creation: u32,
    },
    /// A "dynamic name" that the node chooses. For the first such name of a host, the node needs a random number from `crypto`.
    /// If that module is not loaded yet, `net_kernel` waits for the code server, and all connecting nodes wait for `net_kernel`.
    /// On a node with long run queues, this took longer than 10 s.
    OfNode,
}

/// The node that is expected at the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// Any node, because only the address is known.
    Any,
    /// A node with this name before the `@`.
    Name(String),
    /// The node with this full name.
    FullName(String),
}

/// Size of the length field of handshake packets, in bytes. (After the handshake, it is always 4.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lengths {
    /// Over TCP (lib/kernel/src/inet_tcp_dist.erl, `gen_listen/3`).
    Two,
    /// Over TLS (lib/ssl/src/inet_tls_dist.erl, `accept_one/3`).
    Four,
}

/// Input of a handshake.
#[derive(Debug)]
pub struct Parameters {
    /// The peer's name in error messages.
    pub peer: String,
    /// The node that we expect.
    pub expected: Expected,
    /// Which node name we use.
    pub own: OwnName,
    /// The part of our name after the `@`. The node's own host is the best choice. If the node's list of allowed hosts accepts
    /// any host, it accepts this one. It is always the same, so it needs no new atom.
    pub host: String,
    /// Size of the length fields.
    pub lengths: Lengths,
    /// The shared secret.
    pub cookie: Cookie,
    /// Where the cookie was found, for the error if it is rejected.
    pub cookie_origin: String,
    /// Our challenge, a random number.
    pub challenge: u32,
}

/// The result of a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Established {
    /// The node's full name.
    pub node: Arc<str>,
    /// The node's incarnation, which changes with each start of a node with this name.
    pub creation: u32,
    /// Our full name.
    pub own_name: Arc<str>,
    /// Our incarnation.
    pub own_creation: u32,
}

/// The state of a handshake.
#[derive(Debug)]
pub struct Handshake {
    parameters: Parameters,
    state: State,
    input: Vec<u8>,
    output: Vec<u8>,
}

#[derive(Debug)]
enum State {
    Status,
    Challenge { own_name: Arc<str>, own_creation: u32 },
    Acknowledgement(Established),
    Done(Established),
}

impl Handshake {
    /// Starts a handshake. The first bytes to send are in the output.
    pub fn new(parameters: Parameters) -> Handshake {
        let (flags, creation, own_name) = match &parameters.own {
            OwnName::Ours { name, creation } => (OFFERED, *creation, format!("{name}@{}", parameters.host)),
            OwnName::OfNode => (OFFERED | flag::NAME_ME, 0, parameters.host.clone()),
        };
        let mut name = vec![b'N'];
        name.extend(flags.to_be_bytes());
        name.extend(creation.to_be_bytes());
        name.extend((own_name.len() as u16).to_be_bytes());
        name.extend(own_name.as_bytes());
        let mut handshake =
            Handshake { parameters, state: State::Status, input: Vec::new(), output: Vec::new() };
        handshake.send(&name);
        handshake
    }

    /// Takes the bytes that must now be written to the peer.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Processes bytes from the peer. When the handshake is complete, returns its result and the bytes that followed it,
    /// which belong to the first messages.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Option<(Established, Vec<u8>)>, AttachError> {
        self.input.extend_from_slice(bytes);
        // A TLS alert record: type 21, version 3.x. As the length of a handshake packet, these bytes would mean 5,379.
        let plain = self.parameters.lengths == Lengths::Two;
        if plain && matches!(self.state, State::Status) && matches!(*self.input, [0x15, 0x03, 0..=4, ..]) {
            return Err(AttachError::TlsNeeded { peer: self.parameters.peer.clone() });
        }
        loop {
            if let State::Done(established) = &self.state {
                return Ok(Some((established.clone(), std::mem::take(&mut self.input))));
            }
            let Some((length, rest)) = self.parameters.lengths.split_off(&self.input) else {
                return Ok(None);
            };
            if length > MAX_PACKET_BYTES {
                return Err(self.broken(&format!("a packet of {length} bytes in the handshake")));
            }
            let Some(packet) = rest.get(..length) else { return Ok(None) };
            let packet = packet.to_vec();
            self.input.drain(..self.input.len() - rest.len() + length);
            self.packet(&packet)?;
        }
    }

    /// Returns the error to report if the peer closes the connection now.
    pub fn closed(&self) -> AttachError {
        let peer = self.parameters.peer.clone();
        match &self.state {
            State::Status if self.input.is_empty() => AttachError::ClosedDuringHandshake {
                peer,
                over_tls: self.parameters.lengths == Lengths::Four,
            },
            State::Acknowledgement(established) => self.wrong_cookie(established),
            _ => self.broken("it closed the connection in the middle of the handshake"),
        }
    }

    fn packet(&mut self, packet: &[u8]) -> Result<(), AttachError> {
        let state = std::mem::replace(&mut self.state, State::Status);
        self.state = match state {
            State::Status => self.status(packet)?,
            State::Challenge { own_name, own_creation } => self.challenge(packet, own_name, own_creation)?,
            State::Acknowledgement(established) => self.acknowledgement(packet, established)?,
            State::Done(established) => State::Done(established),
        };
        Ok(())
    }

    fn status(&mut self, packet: &[u8]) -> Result<State, AttachError> {
        let peer = || self.parameters.peer.clone();
        let Some((b's', status)) = packet.split_first() else {
            return Err(self.broken("a packet that is not a status"));
        };
        if let Some(named) = status.strip_prefix(b"named:")
            && self.parameters.own == OwnName::OfNode
        {
            let (name, rest) = text_with_length(named)
                .ok_or_else(|| self.broken("the packet with our node name is truncated"))?;
            let creation = rest
                .first_chunk()
                .ok_or_else(|| self.broken("the packet with our node name is truncated"))?;
            self.check_name(&name)?;
            return Ok(State::Challenge {
                own_name: name.into(),
                own_creation: u32::from_be_bytes(*creation),
            });
        }
        if let (b"ok" | b"ok_simultaneous", OwnName::Ours { name, creation }) = (status, &self.parameters.own)
        {
            return Ok(State::Challenge {
                own_name: format!("{name}@{}", self.parameters.host).into(),
                own_creation: *creation,
            });
        }
        Err(match status {
            b"not_allowed" => AttachError::NotAllowed { peer: peer() },
            b"alive" => AttachError::NameTaken { peer: peer() },
            b"nok" => AttachError::Busy { peer: peer() },
            // The node took our host for our name.
            b"ok" | b"ok_simultaneous" => {
                AttachError::TooOld { peer: peer(), missing: "no dynamic node names" }
            }
            other => self.broken(&format!("the unknown status {:?}", String::from_utf8_lossy(other))),
        })
    }

    fn challenge(
        &mut self,
        packet: &[u8],
        own_name: Arc<str>,
        own_creation: u32,
    ) -> Result<State, AttachError> {
        let broken = || self.broken("a malformed challenge");
        let Some((b'N', rest)) = packet.split_first() else {
            return Err(AttachError::TooOld {
                peer: self.parameters.peer.clone(),
                missing: "no distribution handshake version 6",
            });
        };
        let (&flags, rest) = rest.split_first_chunk().ok_or_else(broken)?;
        let (&challenge, rest) = rest.split_first_chunk().ok_or_else(broken)?;
        let (&creation, rest) = rest.split_first_chunk().ok_or_else(broken)?;
        let (node, _) = text_with_length(rest).ok_or_else(broken)?;
        self.check_name(&node)?;
        if u64::from_be_bytes(flags) & flag::SPAWN == 0 {
            return Err(AttachError::TooOld {
                peer: self.parameters.peer.clone(),
                missing: "no distributed spawn requests",
            });
        }
        let found = match &self.parameters.expected {
            Expected::Any => true,
            Expected::Name(wanted) => node.split('@').next() == Some(wanted),
            Expected::FullName(wanted) => node == *wanted,
        };
        if !found {
            let (Expected::Name(wanted) | Expected::FullName(wanted)) = &self.parameters.expected else {
                return Err(broken());
            };
            return Err(AttachError::NameMismatch { wanted: wanted.clone(), found: node });
        }
        let mut reply = vec![b'r'];
        reply.extend(self.parameters.challenge.to_be_bytes());
        reply.extend(self.digest(u32::from_be_bytes(challenge)));
        self.send(&reply);
        Ok(State::Acknowledgement(Established {
            node: node.into(),
            creation: u32::from_be_bytes(creation),
            own_name,
            own_creation,
        }))
    }

    fn acknowledgement(&self, packet: &[u8], established: Established) -> Result<State, AttachError> {
        match packet.split_first() {
            Some((b'a', digest)) if digest == self.digest(self.parameters.challenge) => {
                Ok(State::Done(established))
            }
            Some((b'a', digest)) if digest.len() == 16 => {
                Err(AttachError::Impostor { node: established.node.to_string() })
            }
            _ => Err(self.broken("a malformed acknowledgement")),
        }
    }

    fn digest(&self, challenge: u32) -> [u8; 16] {
        let mut md5 = Md5::new();
        md5.update(self.parameters.cookie.secret());
        md5.update(challenge.to_string());
        md5.finalize().into()
    }

    /// Checks that a node's name has the form `name@host` and is a valid atom, since it becomes part of pids.
    fn check_name(&self, name: &str) -> Result<(), AttachError> {
        let mut parts = name.split('@').map(str::len);
        let two_parts = parts.next().is_some_and(|part| part > 0)
            && parts.next().is_some_and(|part| part > 0)
            && parts.next().is_none();
        if two_parts && name.chars().count() <= 255 && !name.chars().any(is_hidden) {
            return Ok(());
        }
        Err(self.broken(&format!("the invalid node name {name:?}")))
    }

    fn send(&mut self, packet: &[u8]) {
        match self.parameters.lengths {
            Lengths::Two => self.output.extend((packet.len() as u16).to_be_bytes()),
            Lengths::Four => self.output.extend((packet.len() as u32).to_be_bytes()),
        }
        self.output.extend_from_slice(packet);
    }

    fn wrong_cookie(&self, established: &Established) -> AttachError {
        AttachError::WrongCookie {
            node: established.node.to_string(),
            origin: self.parameters.cookie_origin.clone(),
        }
    }

    fn broken(&self, what: &str) -> AttachError {
        AttachError::Protocol { peer: self.parameters.peer.clone(), what: printable(what) }
    }
}

impl Lengths {
    /// Splits off the length field at the start of `bytes`.
    fn split_off(self, bytes: &[u8]) -> Option<(usize, &[u8])> {
        match self {
            Lengths::Two => {
                bytes.split_first_chunk().map(|(length, rest)| (u16::from_be_bytes(*length).into(), rest))
            }
            Lengths::Four => {
                bytes.split_first_chunk().map(|(length, rest)| (u32::from_be_bytes(*length) as usize, rest))
            }
        }
    }
}

/// Splits off a text that is preceded by its length in 2 bytes. Nodes write names in Latin-1 or UTF-8.
fn text_with_length(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (&length, rest) = bytes.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(length)))?;
    let text = match std::str::from_utf8(text) {
        Ok(text) => text.to_owned(),
        Err(_) => text.iter().map(|&byte| char::from(byte)).collect(),
    };
    Some((text, rest))
}

#[cfg(test)]
mod tests;
