//! Finds mistakes in the flags of a node before the node is started.
//!
//! [`lint`] takes the words of all files of one node, as the [readers](crate::source) return them. For each requested release, it checks
//! whether a VM rejects a flag, crashes, ignores the flag, or interprets it differently from what is written. The data about flags come
//! from the catalogue ([`Entry::judge`](crate::Entry::judge)); a rule decides what to check and how to report it.
//!
//! Unknown values are not checked: if the value of a flag is a template or a variable, only the flag is checked. A conditional word does
//! not override anything, and because of it nothing is reported as missing.

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

pub use self::secret::{contains_secret, secrets};
use crate::HostCpus;
use crate::source::{Edit, Fragment};

/// The releases that are checked by default: all supported releases.
pub const RELEASES: std::ops::RangeInclusive<u32> = 23..=29;

/// The code of a rule: `BF001`. A released code is never reused for another rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(&'static str);

impl Code {
    /// Returns the code as text: `BF001`.
    pub fn as_str(self) -> &'static str {
        self.0
    }

    /// Returns the path of the rule's page, relative to the repository: `docs/lint/BF001.md`.
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
    /// Information that is worth knowing.
    Note,
    /// The VM starts, but a flag has no effect, an unintended effect, or a hidden risk.
    Warning,
    /// The VM does not start, crashes or hangs in at least one of the requested releases.
    Error,
}

/// A change of the file that resolves the finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fix {
    /// The change as an imperative: "Remove `+K true`".
    pub what: String,
    /// Whether the fix has no effect on a VM that currently starts, or only achieves what was obviously intended.
    pub safe: bool,
    /// Edits of the file with the finding, for [`apply`](crate::source::apply).
    pub edits: Vec<Edit>,
}

/// A problem in a file, or information about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub code: Code,
    /// The severity.
    pub level: Level,
    /// Index of the file in the input of [`lint`].
    pub file: usize,
    /// The byte range of the file that the finding is about.
    pub span: Range<usize>,
    /// The flag or variable that the finding is about, as written in the file, or the missing one.
    pub flag: String,
    /// The requested releases that are affected; ascending, never empty.
    pub releases: Vec<u32>,
    /// The problem, in one sentence.
    pub message: String,
    /// The reason, with its source.
    pub reason: String,
    /// What to do.
    pub remedy: String,
    /// The remedy as edits of the file, if the edits can be computed.
    pub fix: Option<Fix>,
    /// Related places: index of the file, byte range, and description.
    pub related: Vec<(usize, Range<usize>, String)>,
}

/// A file, parsed by [`source::read`](crate::source::read).
#[derive(Debug, Clone, Copy)]
pub struct File<'a> {
    /// The parsed fragments.
    pub fragments: &'a [Fragment],
}

/// The environment for which the flags are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// OTP releases, ascending.
    pub releases: Vec<u32>,
    /// The host of the node, if known.
    pub machine: Option<HostCpus>,
}

impl Default for Target {
    fn default() -> Target {
        Target { releases: RELEASES.collect(), machine: None }
    }
}

/// A rule of the linter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The code.
    pub code: Code,
    /// The name, with words joined by dashes: `unknown-flag`.
    pub name: &'static str,
    /// A noun phrase that describes the findings.
    pub description: &'static str,
    /// The level of most findings.
    pub level: Level,
}

impl Rule {
    /// Returns the path of the rule's page, relative to the repository.
    pub fn page(&self) -> String {
        self.code.page()
    }
}

/// Checks the files of one node, and returns findings sorted by file, position and code. The order of the files does not affect which
/// findings there are.
pub fn lint(files: &[File<'_>], target: &Target) -> Vec<Finding> {
    rules::run(files, target)
}

/// Returns all rules, sorted by code.
pub fn rules() -> &'static [Rule] {
    rules::all()
}
