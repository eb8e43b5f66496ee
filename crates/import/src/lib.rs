//! Imports text that the VM's own tools have printed, as the rows of a recording.
//!
//! Text in a ticket, a mail or a web page is often the only trace of a measurement. [`read`] finds the output of `msacc`,
//! `erlang:memory()`, `scheduler:utilization`, `recon_alloc`, `instrument` and `rabbitmq-diagnostics` (`find`). In the remaining text, it
//! finds the tables of lock counting (`lcnt`, `join`): `conflicts` by class and by single lock, `inspect`, `histogram`, `locations` and
//! `information`.
//!
//! Nothing is guessed. A row is accepted only if every cell is valid for its column and its percentages follow from its counts. A term is
//! accepted only if it is complete and has the form that its function returns. Everything else is reported with its position ([`Unread`]).
//!
//! The layout of lcnt's tables is the same from OTP 18 to 29 (lib/tools/src/lcnt.erl). A column is right-aligned and as wide as its widest
//! cell, up to 80 characters; longer cells are truncated and touch the previous cell. Times are whole microseconds, and percentages have
//! four decimals. Therefore, text that has lost line breaks, alignment or some spaces can still be parsed.

mod answers;
mod banner;
mod call;
mod counted;
pub mod crash_dump;
mod find;
mod head;
mod instrument;
mod join;
mod lcnt;
mod msacc;
mod part;
mod rabbitmq;
mod row;
mod sample;
mod statement;
mod term;
mod text;

pub use banner::Banner;
pub use sample::ImportedText;

/// Maximum size of a text, in bytes. The table of all locks of a large node has some 30 MB.
pub const MAX_BYTES: usize = 64 << 20;

/// A part of the text that was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The beginning of the part.
    pub text: String,
    /// The reason, and the number of lines if the part has more than one.
    pub reason: String,
}

/// Why nothing was imported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The text is larger than [`MAX_BYTES`].
    #[error(
        "the text has {bytes} bytes, the limit is {MAX_BYTES}: remove everything but the output of the VM's tools"
    )]
    TooLarge {
        /// Size of the text.
        bytes: usize,
    },
    /// The text contains no output of a known tool.
    #[error(
        "no output of a known tool found: copy the output of lcnt:conflicts(), msacc:print(), erlang:memory(), \
         recon_alloc:fragmentation(current), scheduler:utilization(1) or rabbitmq-diagnostics status, with headings and calls"
    )]
    NothingFound,
    /// A crash dump within other text.
    #[error("it contains a crash dump, which must be in a separate file: beamtune import erl_crash.dump")]
    EmbeddedCrashDump,
    /// The input is a gzip file.
    #[error("it is compressed: gunzip -c FILE | beamtune import -")]
    Compressed,
    /// The file does not begin like a crash dump.
    #[error("not a crash dump: the first line must begin with =erl_crash_dump:")]
    NotACrashDump,
    /// Reading the file or the pipe failed.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

/// Maximum number of unread parts that are listed. Further parts are only counted.
const MAX_UNREAD: usize = 1_000;

/// Maximum number of characters of an unread part that are quoted.
const MAX_QUOTED_CHARS: usize = 120;

const DUMP: &str = "a crash dump must be in a separate file: beamtune import erl_crash.dump";

/// Reads the output of all known tools in a text. Invalid UTF-8 is replaced by U+FFFD.
///
/// # Errors
/// If the text is too large, or contains no output of a known tool.
pub fn read(bytes: &[u8]) -> Result<ImportedText, ImportError> {
    let text = as_text(bytes)?;
    let found = find::find(&text);
    let has_parts = !found.parts.is_empty();
    let (mut reading, mut refused) = sample::join(&text, found.parts, found.banner);
    let dump = crash_dump::find_in_text(&text);
    refused.extend(dump.map(|(begin, end)| (begin, end, DUMP.to_owned())));
    refused.sort_by_key(|(begin, ..)| *begin);
    let mut more = refused.len().saturating_sub(MAX_UNREAD);
    reading.unread = locate(&text, refused);
    let locks = lcnt::parse(&found.rest);
    let has_locks = !(locks.tables.is_empty() && locks.information.is_empty());
    if !has_parts && !has_locks {
        return Err(if dump.is_some() { ImportError::EmbeddedCrashDump } else { ImportError::NothingFound });
    }
    more += match has_locks {
        true => {
            let (imported, more) = join::join(locks);
            reading.add_locks(imported);
            more
        }
        false => {
            let (unread, more) = locks.unread.finish();
            reading.unread.extend(unread);
            more
        }
    };
    limit(&mut reading.unread, more);
    Ok(reading)
}

/// Sorts unread parts by position and keeps [`MAX_UNREAD`]. The last entry contains the number of those that are not listed, which includes
/// the `more` parts that were dropped before.
fn limit(unread: &mut Vec<Unread>, more: usize) {
    unread.sort_by_key(|unread| (unread.line, unread.column));
    let more = more + unread.len().saturating_sub(MAX_UNREAD);
    unread.truncate(MAX_UNREAD);
    if more > 0 {
        let (line, column) = unread.last().map_or((1, 1), |last| (last.line, last.column));
        let why = format!("{more} more parts of the text were not read");
        unread.push(Unread { line, column, text: String::new(), reason: why });
    }
}

fn as_text(bytes: &[u8]) -> Result<std::borrow::Cow<'_, str>, ImportError> {
    match bytes.len() {
        0..=MAX_BYTES => Ok(String::from_utf8_lossy(bytes)),
        bytes => Err(ImportError::TooLarge { bytes }),
    }
}

/// Converts sorted byte ranges of the text to lines and columns.
fn locate(text: &str, refused: Vec<(usize, usize, String)>) -> Vec<Unread> {
    let (mut line, mut line_begin, mut at) = (1, 0, 0);
    let mut unread = Vec::new();
    for (begin, end, why) in refused.into_iter().take(MAX_UNREAD) {
        for (n, _) in text[at..begin].match_indices('\n') {
            (line, line_begin) = (line + 1, at + n + 1);
        }
        at = begin;
        let first = text[begin..end].lines().next().unwrap_or_default();
        let column = text[line_begin..begin].chars().count() + 1;
        unread.push(Unread {
            line,
            column,
            text: first.chars().take(MAX_QUOTED_CHARS).collect(),
            reason: why,
        });
    }
    unread
}
