//! Findings of the linter, for people (text), for programs (JSON, SARIF) and for a CI's pages (GitHub's annotations).
//!
//! Lines and columns count from 1, columns in characters, as editors show them; spans are also given in bytes where the format has room for
//! them. Every format also lists files that could not be read: silence about them would look like "nothing is wrong".

mod github;
mod json;
mod sarif;
mod snippet;
mod text;

use std::ops::Range;

use beamtune_flags::lint::{Finding, Level, Rule, rules};
use beamtune_flags::release_runs;
use beamtune_flags::source::{Lines, Position};

/// Something that was linted.
#[derive(Debug, Clone, Copy)]
pub struct Linted<'a> {
    /// The path as the user wrote it; `stdin`; or the name of a node.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
    /// Whether `name` is the path of a file.
    pub is_file: bool,
}

/// A file that could not be linted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// As of [`Linted`].
    pub name: String,
    /// Where in it, if that is known.
    pub at: Option<Position>,
    /// Why, without the place.
    pub message: String,
}

/// Everything to report.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// What was linted.
    pub linted: &'a [Linted<'a>],
    /// What was found; `file` is an index into `linted`.
    pub findings: &'a [Finding],
    /// What could not be linted.
    pub unread: &'a [Unread],
    /// The OTP releases that were asked for.
    pub releases: &'a [u32],
}

/// How many findings there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// The VM does not start.
    pub errors: usize,
    /// It starts, but not as meant.
    pub warnings: usize,
    /// Worth knowing.
    pub notes: usize,
    /// Of all these, those that `--fix` removes.
    pub fixable: usize,
}

pub use github::render as github;
pub use json::{VERSION, render as json};
pub use sarif::render as sarif;
pub use text::render as text;

impl Report<'_> {
    /// How many findings there are of each kind.
    pub fn count(&self) -> Count {
        let of = |level: Level| self.findings.iter().filter(|finding| finding.level == level).count();
        Count {
            errors: of(Level::Error),
            warnings: of(Level::Warning),
            notes: of(Level::Note),
            fixable: self.findings.iter().filter(|finding| self.is_fixable(finding)).count(),
        }
    }

    /// Whether `--fix` removes it. Only files are changed.
    fn is_fixable(&self, finding: &Finding) -> bool {
        let is_file = self.linted.get(finding.file).is_some_and(|linted| linted.is_file);
        is_file && finding.fix.as_ref().is_some_and(|fix| fix.safe)
    }
}

/// A report with the lines of its texts, which every finding needs.
struct Told<'a> {
    report: &'a Report<'a>,
    /// In the order of what was linted.
    lines: Vec<Lines<'a>>,
}

impl<'a> Told<'a> {
    fn of(report: &'a Report<'a>) -> Told<'a> {
        Told { report, lines: report.linted.iter().map(|linted| Lines::of(linted.text)).collect() }
    }

    /// A finding's place; `None` if there is no file of this index.
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
    /// After the last character.
    end: Position,
}

/// What is wrong, with the releases for which it holds unless these are all that were requested.
fn message(report: &Report<'_>, finding: &Finding) -> String {
    // Most messages name them already.
    if finding.releases.len() == report.releases.len() || finding.message.contains("OTP") {
        return finding.message.clone();
    }
    format!("{} (OTP {})", finding.message, releases(&finding.releases))
}

/// The rule of a finding. Every code comes from a rule; if one does not, only the code is reported.
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

/// Releases for people: `23 to 25, 27`.
pub fn releases(list: &[u32]) -> String {
    release_runs(list).join(", ")
}

/// `1 file`, `2 files`.
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
