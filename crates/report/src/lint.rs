//! Findings of the linter, for people (text), for programs (JSON, SARIF) and for the web pages of a CI service (GitHub annotations).
//!
//! Lines and columns count from 1, columns in characters, as in editors. Formats that support it also have spans in bytes. Every format
//! also lists files that could not be read: without this list, such a file would appear to have no problems.

mod github;
mod json;
mod sarif;
mod snippet;
mod text;

use std::ops::Range;

use beamtune_flags::lint::{Finding, Level, Rule, rules};
use beamtune_flags::release_runs;
use beamtune_flags::source::{Lines, Position};

/// A text that was linted.
#[derive(Debug, Clone, Copy)]
pub struct Linted<'a> {
    /// The path as the user wrote it, `stdin`, or the name of a node.
    pub name: &'a str,
    /// The text.
    pub text: &'a str,
    /// Whether `name` is the path of a file.
    pub is_file: bool,
}

/// A file that could not be linted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// Name, as in [`Linted::name`].
    pub name: String,
    /// Position of the problem in the file, if known.
    pub at: Option<Position>,
    /// Description of the problem, without its position.
    pub message: String,
}

/// The result of a linter run.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// The linted texts.
    pub linted: &'a [Linted<'a>],
    /// The findings; their `file` is an index into `linted`.
    pub findings: &'a [Finding],
    /// Files that could not be linted.
    pub unread: &'a [Unread],
    /// The requested OTP releases.
    pub releases: &'a [u32],
}

/// Numbers of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Errors: the VM does not start.
    pub errors: usize,
    /// Warnings: the VM starts, but not as intended.
    pub warnings: usize,
    /// Notes: information.
    pub notes: usize,
    /// Findings of any level that `--fix` removes.
    pub fixable: usize,
}

pub use github::render as github;
pub use json::{VERSION, render as json};
pub use sarif::render as sarif;
pub use text::render as text;

impl Report<'_> {
    /// Counts the findings.
    pub fn count(&self) -> Count {
        let of = |level: Level| self.findings.iter().filter(|finding| finding.level == level).count();
        Count {
            errors: of(Level::Error),
            warnings: of(Level::Warning),
            notes: of(Level::Note),
            fixable: self.findings.iter().filter(|finding| self.is_fixable(finding)).count(),
        }
    }

    /// Whether `--fix` removes the finding. Only files are changed.
    fn is_fixable(&self, finding: &Finding) -> bool {
        let is_file = self.linted.get(finding.file).is_some_and(|linted| linted.is_file);
        is_file && finding.fix.as_ref().is_some_and(|fix| fix.safe)
    }
}

/// A report with the line index of each text, which every finding needs.
struct Told<'a> {
    report: &'a Report<'a>,
    /// In the order of `Report::linted`.
    lines: Vec<Lines<'a>>,
}

impl<'a> Told<'a> {
    fn of(report: &'a Report<'a>) -> Told<'a> {
        Told { report, lines: report.linted.iter().map(|linted| Lines::of(linted.text)).collect() }
    }

    /// Returns the place of a span; `None` if there is no text of this index.
    fn place(&self, file: usize, span: &Range<usize>) -> Option<Place<'a>> {
        let (linted, lines) = (self.report.linted.get(file)?, self.lines.get(file)?);
        Some(Place {
            name: linted.name,
            begin: lines.position(span.start),
            end: lines.position(span.end.max(span.start)),
        })
    }
}

/// A span of a file.
struct Place<'a> {
    name: &'a str,
    begin: Position,
    /// Position after the last character.
    end: Position,
}

/// Returns the message of a finding. Adds the affected releases unless all requested releases are affected.
fn message(report: &Report<'_>, finding: &Finding) -> String {
    // Most messages already name the releases.
    if finding.releases.len() == report.releases.len() || finding.message.contains("OTP") {
        return finding.message.clone();
    }
    format!("{} (OTP {})", finding.message, releases(&finding.releases))
}

/// Returns the rule of a finding; `None` if no rule has its code, which should not happen.
fn rule_of(finding: &Finding) -> Option<&'static Rule> {
    rules().iter().find(|rule| rule.code == finding.code)
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Note => "note",
    }
}

/// Formats a list of releases for people: `23 to 25, 27`.
pub fn releases(list: &[u32]) -> String {
    release_runs(list).join(", ")
}

/// Formats a number with a noun: `1 file`, `2 files`.
fn counted(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_grouped_into_ranges() {
        let check = |list: &[u32], expect: &str| assert_eq!(releases(list), expect);
        check(&[], "");
        check(&[25], "25");
        check(&[25, 26], "25, 26");
        check(&[23, 24, 25, 27, 29], "23 to 25, 27, 29");
        check(&[23, 24, 25, 26, 27, 28, 29], "23 to 29");
    }
}
