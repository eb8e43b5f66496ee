//! Encoding: the content of the blobs in the tables `chunk` and `hot`.
//!
//! The layers, from the innermost to the outermost:
//!
//! - [`bits`]: varints and bit streams;
//! - [`column`]: the values of one series;
//! - [`chunk`]: the columns of one group over some minutes;
//! - [`hot`]: the values of a group at one tick;
//! - [`busiest`]: the busiest processes;
//! - [`packed`]: checksum and compression.
//!
//! `docs/recording-format.md` describes the same bytes for programs in other languages. A test runs the Python reader that this document
//! contains.
//!
//! Files are untrusted input: every count and length is checked against the remaining bytes, and malformed data give the error
//! [`Garbled`], never a panic.

pub(crate) mod bits;
pub(crate) mod busiest;
pub(crate) mod chunk;
pub(crate) mod column;
pub(crate) mod hot;
pub(crate) mod packed;

use bits::Bytes;

/// Reads a series id, which is stored as its distance from `expected`, the previous id plus one.
fn next_id(expected: &mut u32, bytes: &mut Bytes<'_>) -> Result<u32, Garbled> {
    let id = u32::try_from(bytes.uvarint()?)
        .ok()
        .and_then(|distance| expected.checked_add(distance))
        .filter(|&id| id < u32::MAX)
        .ok_or(Garbled("series id out of range"))?;
    *expected = id + 1;
    Ok(id)
}

/// Bytes that no writer could have produced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Garbled(pub &'static str);
