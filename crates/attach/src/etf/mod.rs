//! Decoder and encoder of Erlang's external term format.
//!
//! Data from a node is untrusted and may be large: the allocator tables of a 64-core node take about 700 kB in 50,000 small
//! terms. So the decoder
//! - makes a single pass over the bytes, without recursion, and checks each length against the available bytes before it stores
//!   anything. A count of 4 billion costs nothing, and a million nested lists are an error;
//! - leaves the bytes in place and records 16 bytes per term on a *tape* (the terms in order, each with the end of its subtree).
//!   So no atom or binary is copied to the heap;
//! - returns a [`Term`], a cheap view whose errors say what was expected, what was found, and where.
//!
//! The encoder uses [`Value`], a plain tree, because the terms that we send are small and trusted.
//!
//! Source: "External Term Format" in the ERTS User's Guide. The decoder supports all tags that OTP 23 to 29 use on a connection
//! without an atom cache. The following are not supported, because our handshake flags rule them out: tags with a one-byte
//! creation (`PID_EXT`, `PORT_EXT`, `REFERENCE_EXT`, `NEW_REFERENCE_EXT`), floats as text, atom cache references, compressed
//! terms.

mod decode;
mod encode;
mod id;
mod show;
mod term;

pub use decode::{Document, Limits};
pub use encode::{EncodeError, Value};
pub use id::{Pid, Reference};
pub use term::{Elements, Pairs, Term};

use std::fmt;

/// The first byte of every term (`VERSION_MAGIC`, erts/emulator/beam/external.h).
pub const VERSION: u8 = 131;

/// The tags, as erts/emulator/beam/external.h names them.
mod tag {
    pub const SMALL_INTEGER: u8 = b'a';
    pub const INTEGER: u8 = b'b';
    pub const ATOM_LATIN1: u8 = b'd';
    pub const SMALL_ATOM_LATIN1: u8 = b's';
    pub const ATOM_UTF8: u8 = b'v';
    pub const SMALL_ATOM_UTF8: u8 = b'w';
    pub const NEW_FLOAT: u8 = b'F';
    pub const NEWER_REFERENCE: u8 = b'Z';
    pub const NEW_PORT: u8 = b'Y';
    pub const V4_PORT: u8 = b'x';
    pub const NEW_PID: u8 = b'X';
    pub const SMALL_TUPLE: u8 = b'h';
    pub const LARGE_TUPLE: u8 = b'i';
    pub const NIL: u8 = b'j';
    pub const STRING: u8 = b'k';
    pub const LIST: u8 = b'l';
    pub const BINARY: u8 = b'm';
    pub const BIT_BINARY: u8 = b'M';
    pub const SMALL_BIG: u8 = b'n';
    pub const LARGE_BIG: u8 = b'o';
    pub const NEW_FUN: u8 = b'p';
    pub const EXPORT: u8 = b'q';
    pub const MAP: u8 = b't';
}

/// The type of a term. Lists of bytes and lists of terms have the same type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An integer of any size.
    Integer,
    /// A float.
    Float,
    /// An atom.
    Atom,
    /// A tuple.
    Tuple,
    /// A list, possibly empty or improper.
    List,
    /// A map.
    Map,
    /// A binary of whole bytes.
    Binary,
    /// A bit string that ends in a partial byte.
    BitString,
    /// A process identifier.
    Pid,
    /// A port identifier.
    Port,
    /// A reference.
    Reference,
    /// A `fun M:F/A`.
    Export,
    /// Any other fun; its content is skipped.
    Fun,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Integer => "an integer",
            Kind::Float => "a float",
            Kind::Atom => "an atom",
            Kind::Tuple => "a tuple",
            Kind::List => "a list",
            Kind::Map => "a map",
            Kind::Binary => "a binary",
            Kind::BitString => "a bit string",
            Kind::Pid => "a pid",
            Kind::Port => "a port",
            Kind::Reference => "a reference",
            Kind::Export | Kind::Fun => "a fun",
        })
    }
}

/// A term cannot be decoded, or does not have the expected form. Offsets are in bytes from the start of the decoded buffer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TermError {
    /// The bytes end inside a term.
    #[error("the term is truncated at byte {offset}")]
    Truncated {
        /// Where more bytes are needed.
        offset: usize,
    },
    /// The input has more bytes than [`Limits::bytes`].
    #[error("the term has {bytes} bytes, more than the {limit} accepted")]
    TooManyBytes {
        /// Size of the buffer.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The term has more subterms than [`Limits::terms`].
    #[error("the term has more than the {limit} subterms accepted")]
    TooManyTerms {
        /// The limit.
        limit: usize,
    },
    /// The term is nested deeper than [`Limits::depth`].
    #[error("the term is nested deeper than the {limit} levels accepted, at byte {offset}")]
    TooDeep {
        /// The limit.
        limit: usize,
        /// Where the limit is exceeded.
        offset: usize,
    },
    /// An unsupported tag.
    #[error("unknown tag {tag} at byte {offset}")]
    UnknownTag {
        /// The tag.
        tag: u8,
        /// Where it is.
        offset: usize,
    },
    /// The input contains bytes that no Erlang node writes.
    #[error("malformed at byte {offset}: {what}")]
    Malformed {
        /// What is wrong.
        what: &'static str,
        /// Where.
        offset: usize,
    },
    /// A well-formed term has another type than expected.
    #[error("expected {expected} at byte {offset}, found {found}")]
    Unexpected {
        /// The type expected.
        expected: &'static str,
        /// The type found.
        found: Kind,
        /// Where.
        offset: usize,
    },
    /// A tuple has another size than expected.
    #[error("expected a tuple of {expected} elements at byte {offset}, found one of {found}")]
    Arity {
        /// Number of elements expected.
        expected: usize,
        /// Number of elements found.
        found: usize,
        /// Where.
        offset: usize,
    },
    /// A value is out of range.
    #[error("expected {expected} at byte {offset}, found a value out of range")]
    OutOfRange {
        /// The range expected.
        expected: &'static str,
        /// Where.
        offset: usize,
    },
    /// A map lacks a mandatory key.
    #[error("the map at byte {offset} has no key {key}")]
    MissingKey {
        /// The key, an atom.
        key: &'static str,
        /// Where the map begins.
        offset: usize,
    },
}

#[cfg(test)]
mod tests;
