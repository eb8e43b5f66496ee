//! How values become bytes: the content of the blobs in `chunk` and `hot`.
//!
//! Each layer knows only the one below it: [`bits`] (varints, bit streams), [`column`] (the values of
//! one series), [`chunk`] (the columns of one group over some minutes), [`hot`] (a group's values at one
//! tick), [`busiest`] (the processes that stood out), [`packed`] (check sum and compression). `docs/recording-format.md` describes the same bytes for readers in other
//! languages, and a test runs the Python reader that stands there.
//!
//! What a file holds is outside input: every count and length is checked against what is there, and
//! whatever makes no sense is [`Garbled`], never a panic.

pub(crate) mod bits;
pub(crate) mod busiest;
pub(crate) mod chunk;
pub(crate) mod column;
pub(crate) mod hot;
pub(crate) mod packed;

use bits::Bytes;

/// Reads a series id that is stored as its distance from the one after the last.
fn next_id(expected: &mut u32, bytes: &mut Bytes<'_>) -> Result<u32, Garbled> {
    let id = u32::try_from(bytes.uvarint()?)
        .ok()
        .and_then(|distance| expected.checked_add(distance))
        .filter(|&id| id < u32::MAX)
        .ok_or(Garbled("a series id is out of range"))?;
    *expected = id + 1;
    Ok(id)
}

/// Bytes that are not what a writer could have written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Garbled(pub &'static str);
