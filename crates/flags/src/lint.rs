//! Finds what is wrong with flags before a VM is started with them.
//!
//! [`lint`] takes the words that the [readers](crate::source) found, of all files of one node together, and says for each
//! release asked for what a VM would make of them: refuse them, crash, do nothing, or do something else than what is
//! written. What it knows of flags comes from the catalogue ([`Entry::judge`](crate::Entry::judge) and its data); a rule only says when to ask and how
//! to tell it.
//!
//! What is not known is not judged: a word with a template or a variable in it is never held against its text, and a word that stands in a
//! condition makes nothing overridden or missing.

mod case;
mod comment;
mod fixes;
mod hazards;
mod maker;
mod node;
mod outcome;
mod rules;
mod secret;
mod surroundings;
mod term;
mod words;

use std::fmt;
use std::ops::Range;

pub use self::secret::{holds_secret, secrets};
use crate::Machine;
use crate::source::{Edit, Fragment};

/// The releases that are linted for when nothing else is asked for: all that are supported.
pub const RELEASES: std::ops::RangeInclusive<u32> = 23..=29;

/// The code of a rule: `BF001`. One that was released is never given to another rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(&'static str);

impl Code {
    /// `BF001`.
    pub fn as_str(self) -> &'static str {
        self.0
    }

    /// Its page, from the root of the repository: `docs/lint/BF001.md`.
    pub fn page(self) -> String {
        format!("docs/lint/{}.md", self.0)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Worth knowing.
    Note,
    /// The VM starts, but a flag does nothing, something else, or is a trap.
    Warning,
    /// The VM does not start, crashes or hangs, in at least one of the releases asked for.
    Error,
}

/// A change of the file that takes the finding away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fix {
    /// What it does, as an order: "Remove `+K true`".
    pub what: String,
    /// It does not change what a VM that boots does today, or only makes happen what was plainly meant.
    pub safe: bool,
    /// To make with [`apply`](crate::source::apply), on the file of the finding.
    pub edits: Vec<Edit>,
}

/// Something that is wrong, or worth knowing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub code: Code,
    /// How bad it is.
    pub level: Level,
    /// Index of the file among those given to [`lint`].
    pub file: usize,
    /// The bytes of the file that it is about.
    pub span: Range<usize>,
    /// The flag or the variable that it is about, as it stands there, or the one that is missing.
    pub flag: String,
    /// Of the releases asked for, those in which it holds; in rising order, never empty.
    pub releases: Vec<u32>,
    /// What is wrong, in one sentence.
    pub message: String,
    /// Why, and how that is known.
    pub reason: String,
    /// What to write instead.
    pub remedy: String,
    /// Edits that do it.
    pub fix: Option<Fix>,
    /// Other places that play a part: file, bytes, and what they are.
    pub related: Vec<(usize, Range<usize>, String)>,
}

/// A file, as [`source::read`](crate::source::read) read it.
#[derive(Debug, Clone, Copy)]
pub struct File<'a> {
    /// Its words.
    pub fragments: &'a [Fragment],
}

/// What the flags are to work with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// OTP releases, in rising order.
    pub releases: Vec<u32>,
    /// The machine that the node runs on, if it is known.
    pub machine: Option<Machine>,
}

impl Default for Target {
    fn default() -> Target {
        Target { releases: RELEASES.collect(), machine: None }
    }
}

/// What a rule looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Its code.
    pub code: Code,
    /// Its name in a few words with dashes: `unknown-flag`.
    pub name: &'static str,
    /// What it finds, in one sentence.
    pub finds: &'static str,
    /// The level that most of its findings have.
    pub level: Level,
}

impl Rule {
    /// Its page, from the root of the repository.
    pub fn page(&self) -> String {
        self.code.page()
    }
}

/// What is found in the files of one node, sorted by file, place and code. The order of the files does not matter for what is
/// found.
pub fn lint(files: &[File<'_>], target: &Target) -> Vec<Finding> {
    rules::run(files, target)
}

/// All rules, sorted by code.
pub fn rules() -> &'static [Rule] {
    rules::all()
}
