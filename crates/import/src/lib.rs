//! Text that the VM's own tools have printed, as rows of a recording.
//!
//! What somebody has pasted into a ticket, a mail or a page is often all that is left of a measurement. [`read`] finds in it what `msacc`,
//! `erlang:memory()`, `scheduler:utilization`, `recon_alloc`, `instrument` and `rabbitmq-diagnostics` have printed (`find`), and in what is
//! left the tables of lock counting (`walk`, `join`): `conflicts` by class and by single lock, `inspect` and `histogram`, `locations`,
//! `information`. Nothing is guessed: a row counts only if each of its cells is what its column holds and the shares in it follow from the
//! numbers beside them, a term only if it is whole and of the form that its function answers in, and whatever was not read is named with
//! its place ([`Unread`]).
//!
//! How the tables of lcnt are made is the same from OTP 18 to 29 (lib/tools/src/lcnt.erl): each column is as wide as its widest cell, at most
//! 80 characters, right-aligned, and what is longer is cut and touches the cell before it; times are whole microseconds, shares have
//! four digits behind the point. So text that has lost its line breaks, its alignment or some of its spaces can still be told apart.

mod banner;
mod call;
pub mod crash_dump;
mod find;
mod head;
mod instrument;
mod join;
mod made;
mod msacc;
mod part;
mod rabbitmq;
mod row;
mod sample;
mod statement;
mod term;
mod terms;
mod text;
mod walk;

pub use banner::Banner;
pub use sample::Reading;

/// The most that is read: all locks of a large node are some 30 MB.
pub const MAX_BYTES: usize = 64 << 20;

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
    #[error(
        "the text has {bytes} bytes, and at most {MAX_BYTES} are read: cut what none of the VM's tools has printed"
    )]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Nothing in it is of a tool that is known.
    #[error(
        "no tool that is known here has printed any of it: copy what lcnt:conflicts(), msacc:print(), erlang:memory(), \
         recon_alloc:fragmentation(current), scheduler:utilization(1) or rabbitmq-diagnostics status print, with headings and calls"
    )]
    Nothing,
    /// A crash dump within other text.
    #[error("it holds a crash dump, which must be a file of its own: beamtune import erl_crash.dump")]
    DumpWithin,
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

/// Parts of the text that are named one by one. How many there are beyond these is said behind them.
const MOST_UNREAD: usize = 1_000;

/// Characters of such a part that are told.
const TOLD_CHARS: usize = 120;

const DUMP: &str = "a crash dump must be a file of its own: beamtune import erl_crash.dump";

/// Reads what any of the tools has printed. Text that is no UTF-8 is read with marks in the place of what is wrong.
///
/// # Errors
/// If it is too large, or nothing in it is of a tool that is known.
pub fn read(bytes: &[u8]) -> Result<Reading, ImportError> {
    let text = as_text(bytes)?;
    let found = find::find(&text);
    let has_parts = !found.parts.is_empty();
    let (mut reading, mut refused) = sample::join(&text, found.parts, found.banner);
    let dump = crash_dump::within(&text);
    refused.extend(dump.map(|(begin, end)| (begin, end, DUMP.to_owned())));
    refused.sort_by_key(|(begin, ..)| *begin);
    let mut more = refused.len().saturating_sub(MOST_UNREAD);
    reading.unread = named(&text, refused);
    let walked = walk::walk(&found.rest);
    let has_locks = !(walked.tables.is_empty() && walked.told.is_empty());
    if !has_parts && !has_locks {
        return Err(if dump.is_some() { ImportError::DumpWithin } else { ImportError::Nothing });
    }
    more += match has_locks {
        true => {
            let (imported, more) = join::join(walked);
            reading.add_locks(imported);
            more
        }
        false => {
            let (unread, more) = walked.unread.finish();
            reading.unread.extend(unread);
            more
        }
    };
    limit(&mut reading.unread, more);
    Ok(reading)
}

/// Brings parts into the order of the text, and says behind the last one that is named how many there are beyond it, with `more` that are
/// not among them.
fn limit(unread: &mut Vec<Unread>, more: usize) {
    unread.sort_by_key(|unread| (unread.line, unread.column));
    let more = more + unread.len().saturating_sub(MOST_UNREAD);
    unread.truncate(MOST_UNREAD);
    if more > 0 {
        let (line, column) = unread.last().map_or((1, 1), |last| (last.line, last.column));
        let why = format!("{more} more parts of the text were not read");
        unread.push(Unread { line, column, text: String::new(), why });
    }
}

fn as_text(bytes: &[u8]) -> Result<std::borrow::Cow<'_, str>, ImportError> {
    match bytes.len() {
        0..=MAX_BYTES => Ok(String::from_utf8_lossy(bytes)),
        bytes => Err(ImportError::TooLarge { bytes }),
    }
}

/// Parts of the text, by the bytes where they begin and end, with their lines and columns. They are in the order of the text.
fn named(text: &str, refused: Vec<(usize, usize, String)>) -> Vec<Unread> {
    let (mut line, mut line_begin, mut at) = (1, 0, 0);
    let mut unread = Vec::new();
    for (begin, end, why) in refused.into_iter().take(MOST_UNREAD) {
        for (n, _) in text[at..begin].match_indices('\n') {
            (line, line_begin) = (line + 1, at + n + 1);
        }
        at = begin;
        let first = text[begin..end].lines().next().unwrap_or_default();
        let column = text[line_begin..begin].chars().count() + 1;
        unread.push(Unread { line, column, text: first.chars().take(TOLD_CHARS).collect(), why });
    }
    unread
}
