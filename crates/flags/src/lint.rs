//! Finds what is wrong with flags before a VM is started with them.
//!
//! [`lint`] takes the words of all files of one node, as the [readers](crate::source) return them, and judges for each requested release
//! what a VM makes of them: reject them, crash, ignore them, or do something other than what is written. The knowledge of flags comes from
//! the catalogue ([`Entry::judge`](crate::Entry::judge) and its data); a rule decides what to check and how to report it.
//!
//! Unknown values are not judged: of a word with a template or a variable only the flag counts, and a conditional word makes nothing
//! overridden or missing.

mod case;
mod comment;
mod deployment;
mod fixes;
mod hazards;
mod node;
mod outcome;
mod release_tool;
mod rules;
mod secret;
mod term;
mod words;

use std::fmt;
use std::ops::Range;

pub use self::secret::{holds_secret, secrets};
use crate::Machine;
use crate::source::{Edit, Fragment};

/// The releases that are checked by default: all supported ones.
pub const RELEASES: std::ops::RangeInclusive<u32> = 23..=29;

/// The code of a rule: `BF001`. A released code is never reused for another rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(&'static str);

impl Code {
    /// `BF001`.
    pub fn as_str(self) -> &'static str {
        self.0
    }

    /// The page of the rule, relative to the repository: `docs/lint/BF001.md`.
    pub fn page(self) -> String {
        format!("docs/lint/{}.md", self.0)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Worth knowing.
    Note,
    /// The VM starts, but a flag does nothing or something else, or is a trap.
    Warning,
    /// The VM does not start, crashes or hangs, in at least one of the requested releases.
    Error,
}

/// A change of the file that resolves the finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fix {
    /// The change as an imperative: "Remove `+K true`".
    pub what: String,
    /// It does not change what a VM that boots does today, or only makes the obvious intention effective.
    pub safe: bool,
    /// Edits of the finding's file, for [`apply`](crate::source::apply).
    pub edits: Vec<Edit>,
}

/// A problem, or something worth knowing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub code: Code,
    /// The severity.
    pub level: Level,
    /// Index of the file among those given to [`lint`].
    pub file: usize,
    /// The bytes of the file that the finding is about.
    pub span: Range<usize>,
    /// The flag or variable that the finding is about, as written in the file, or the one that is missing.
    pub flag: String,
    /// The requested releases that it applies to; ascending, never empty.
    pub releases: Vec<u32>,
    /// The problem, in one sentence.
    pub message: String,
    /// The reason, with its source.
    pub reason: String,
    /// What to do.
    pub remedy: String,
    /// Edits that do so.
    pub fix: Option<Fix>,
    /// Related places: file, bytes, and a description.
    pub related: Vec<(usize, Range<usize>, String)>,
}

/// A file, parsed by [`source::read`](crate::source::read).
#[derive(Debug, Clone, Copy)]
pub struct File<'a> {
    /// The parsed fragments.
    pub fragments: &'a [Fragment],
}

/// The environment that the flags are checked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// OTP releases, ascending.
    pub releases: Vec<u32>,
    /// The host of the node, if known.
    pub machine: Option<Machine>,
}

impl Default for Target {
    fn default() -> Target {
        Target { releases: RELEASES.collect(), machine: None }
    }
}

/// A rule of the linter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Its code.
    pub code: Code,
    /// Its name in words joined by dashes: `unknown-flag`.
    pub name: &'static str,
    /// What it finds, as a noun phrase.
    pub finds: &'static str,
    /// The level of most of its findings.
    pub level: Level,
}

impl Rule {
    /// The page of the rule, relative to the repository.
    pub fn page(&self) -> String {
        self.code.page()
    }
}

/// The findings in the files of one node, sorted by file, place and code. The order of the files does not affect the findings.
pub fn lint(files: &[File<'_>], target: &Target) -> Vec<Finding> {
    rules::run(files, target)
}

/// All rules, sorted by code.
pub fn rules() -> &'static [Rule] {
    rules::all()
}
