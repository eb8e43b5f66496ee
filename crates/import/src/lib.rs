//! Text that the VM's own tools have printed, as rows of a recording.
//!
//! What somebody has pasted into a ticket, a mail or a page is often all that is left of a measurement. [`lcnt`] reads the tables of
//! lock counting's tool `lcnt`: `conflicts` by class and by single lock, `inspect` and `histogram`, `locations`, `information`. Nothing
//! is guessed: a row counts only if each of its cells is what its column holds and the shares in it follow from the numbers beside
//! them, and whatever was not read is named with its place ([`Unread`]).
//!
//! How the tables are made is the same from OTP 18 to 29 (lib/tools/src/lcnt.erl): each column is as wide as its widest cell, at most
//! 80 characters, right-aligned, and what is longer is cut and touches the cell before it; times are whole microseconds, shares have
//! four digits behind the point. So text that has lost its line breaks, its alignment or some of its spaces can still be told apart.

mod call;
pub mod crash_dump;
mod head;
mod join;
mod made;
mod row;
mod text;
mod walk;

use beamtune_model::{LockRow, LockSession};

/// The most that is read: all locks of a large node are some 30 MB.
pub const MAX_BYTES: usize = 64 << 20;

/// What was read of a text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Imported {
    /// The time for which locks were counted. Its `length` is 0 where neither `information` nor the shares in the tables tell it, its
    /// `locks` are at least those that the tables tell of; its `remark` says what is not exact.
    pub session: LockSession,
    /// What was counted. `locks` is 0 where it was not printed how many locks a row is of, `waits` where nobody printed a histogram,
    /// and `kind` is empty where it was not printed.
    pub rows: Vec<LockRow>,
    /// What was not read.
    pub unread: Vec<Unread>,
    /// What the shell's banner tells of the VM, where it is there.
    pub banner: Banner,
}

/// The first line that a VM prints: `Erlang/OTP 27 [erts-15.0] [64-bit] [smp:8:4] …`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Banner {
    /// The OTP release: `27`.
    pub release: Option<String>,
    /// The version of ERTS: `15.0`.
    pub erts: Option<String>,
    /// Normal schedulers, and how many of them were online.
    pub schedulers: Option<(i64, i64)>,
}

/// A part of the text that was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// Its line, from 1.
    pub line: usize,
    /// Its column in characters, from 1.
    pub column: usize,
    /// Its beginning.
    pub text: String,
    /// Why it was not read, and of how much of the text that holds.
    pub why: String,
}

/// Why nothing was read at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The text is larger than [`MAX_BYTES`].
    #[error("the text has {bytes} bytes, and at most {MAX_BYTES} are read: cut what is not a table of lcnt")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// There is no table of `lcnt` in it.
    #[error(
        "there is no table of lcnt in it: copy what lcnt:conflicts(), lcnt:inspect(Lock), lcnt:locations() or lcnt:information() \
         print, with the line of headings"
    )]
    Nothing,
    /// A crash dump in an archive.
    #[error("it is compressed: gunzip -c FILE | beamtune import -")]
    Compressed,
    /// It does not begin as a crash dump does.
    #[error("it is no crash dump: its first line begins with =erl_crash_dump:")]
    NoDump,
    /// The file or the pipe could not be read to its end.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

/// Reads what `lcnt` has printed. Text that is no UTF-8 is read with marks in the place of what is wrong.
///
/// # Errors
/// If it is too large, or holds no table.
pub fn lcnt(bytes: &[u8]) -> Result<Imported, ImportError> {
    if bytes.len() > MAX_BYTES {
        return Err(ImportError::TooLarge { bytes: bytes.len() });
    }
    let text = String::from_utf8_lossy(bytes);
    let found = walk::walk(&text);
    if found.tables.is_empty() && found.told.is_empty() {
        return Err(ImportError::Nothing);
    }
    Ok(join::join(found))
}
