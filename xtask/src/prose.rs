//! Finds phrases that docs/glossary.md replaces, in comments, strings, names and docs.
//!
//! `tidy` reports each phrase as `file:line: phrase; use X`. A folder that still contains many has a ceiling in xtask/prose-exceptions.txt.
//! The ceiling must equal the number of phrases found there, so that it can only decrease. The same file lists the lines that keep a
//! phrase, each with a reason. `prose` lists the findings in some paths and lowers the ceilings.

mod exceptions;
mod phrases;

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::repository;
use exceptions::Exceptions;

/// Command line of the subcommand.
pub const USAGE: &str = "cargo run -p xtask -- prose [--lower] [--base REV] [PATH…]";

/// File of exceptions and ceilings, relative to the root of the repository.
const EXCEPTIONS: &str = "xtask/prose-exceptions.txt";

/// Endings of the names of files that are checked.
const CHECKED: [&str; 9] = [".rs", ".erl", ".ex", ".md", ".toml", ".sh", ".escript", ".eval", "Makefile"];

/// Folders of test data and build output, at any depth.
const SKIPPED_FOLDERS: [&str; 5] = ["fixtures", "corpus", "heldout", "target", "prebuilt"];

/// A phrase that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Path of the file, relative to the root of the repository.
    path: String,
    /// Line number, from 1.
    line: usize,
    /// The whole line; exceptions are compared with it.
    text: String,
    /// The phrase, as written in the file.
    phrase: String,
    /// What to write instead.
    instead: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { path, line, phrase, instead, .. } = self;
        write!(f, "{path}:{line}: {phrase}; use {instead}")
    }
}

/// Options of the subcommand.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    /// Lower the ceilings if fewer phrases are found.
    lower: bool,
    /// Report only lines that were added since this commit.
    base: Option<String>,
    /// Files and folders, relative to the root; empty: all.
    paths: Vec<String>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Options> {
        let mut options = Options::default();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--lower" => options.lower = true,
                "--base" => options.base = Some(arguments.next()?),
                option if option.starts_with('-') => return None,
                path => options.paths.push(path.trim_end_matches('/').to_owned()),
            }
        }
        Some(options)
    }

    fn includes(&self, path: &str) -> bool {
        let is_below = |folder: &String| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        self.paths.is_empty() || self.paths.iter().any(|wanted| path == wanted || is_below(wanted))
    }
}

/// Returns the faults for `tidy`.
pub fn check() -> Result<Vec<String>> {
    let root = repository::root()?;
    Ok(exceptions(root)?.faults(findings(root)?))
}

/// Runs the subcommand.
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let Some(options) = Options::parse(arguments) else {
        eprintln!("usage: {USAGE}");
        return ExitCode::from(2);
    };
    match list(&options) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("prose could not run: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Prints the findings that no exception covers, and returns their number.
fn list(options: &Options) -> Result<usize> {
    let root = repository::root()?;
    let exceptions = exceptions(root)?;
    let mut findings = findings(root)?;
    findings.retain(|finding| !exceptions.allow(finding));
    if options.lower {
        let path = root.join(EXCEPTIONS);
        let text = std::fs::read_to_string(&path)?;
        std::fs::write(&path, exceptions.lowered(&text, &findings)).context(EXCEPTIONS)?;
    }
    findings.retain(|finding| options.includes(&finding.path));
    if let Some(base) = &options.base {
        let diff = repository::git(&["diff", "--unified=0", "--no-prefix", base])?;
        let added = added_lines(&diff);
        findings.retain(|finding| added.contains(&(finding.path.as_str(), finding.line)));
    }
    for finding in &findings {
        println!("{finding}");
    }
    println!("{} phrases", findings.len());
    Ok(findings.len())
}

/// Returns all findings in the repository, including those that an exception covers.
fn findings(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for path in repository::files()? {
        if !is_checked(&path) {
            continue;
        }
        // A deleted file is listed until the deletion is committed.
        let Ok(bytes) = std::fs::read(root.join(&path)) else { continue };
        findings.extend(phrases::find(&path, &String::from_utf8_lossy(&bytes)));
    }
    Ok(findings)
}

fn exceptions(root: &Path) -> Result<Exceptions> {
    let text = std::fs::read_to_string(root.join(EXCEPTIONS)).context(EXCEPTIONS)?;
    match Exceptions::parse(&text) {
        Ok(exceptions) => Ok(exceptions),
        Err(line) => bail!("{EXCEPTIONS}:{line}: write FILE<tab>TEXT<tab>REASON or FOLDER NUMBER"),
    }
}

fn is_checked(path: &str) -> bool {
    let folders = path.rsplit_once('/').map_or("", |(folders, _)| folders);
    let is_skipped = folders.split('/').any(|folder| SKIPPED_FOLDERS.contains(&folder));
    !is_skipped && CHECKED.iter().any(|ending| path.ends_with(ending))
}

/// Returns file and number of each line that a diff adds. The diff must have no context and no prefixes.
fn added_lines(diff: &str) -> HashSet<(&str, usize)> {
    let mut added = HashSet::new();
    let (mut path, mut number, mut is_header) = ("", 0, true);
    for line in diff.lines() {
        if line.starts_with("diff ") {
            is_header = true;
        } else if is_header && let Some(name) = line.strip_prefix("+++ ") {
            path = name;
        } else if let Some(range) = line.strip_prefix("@@ -") {
            // `12,3 +14,2 @@ …`: the number after the `+` is that of the first added line.
            let start = range.split_once(" +").map_or("", |(_, rest)| rest);
            let digits = start.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
            number = digits.parse().unwrap_or(0);
            is_header = false;
        } else if !is_header && line.starts_with('+') {
            added.insert((path, number));
            number += 1;
        }
    }
    added
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed_or_rejected() {
        let parse = |line: &str| Options::parse(line.split_whitespace().map(str::to_owned));
        assert_eq!(parse(""), Some(Options::default()));
        let paths = vec!["docs".to_owned(), "xtask/src/main.rs".to_owned()];
        let expect = Options { lower: true, base: Some("main".into()), paths };
        assert_eq!(parse("--lower --base main docs/ xtask/src/main.rs"), Some(expect));
        assert_eq!(parse("--base"), None);
        assert_eq!(parse("--top 3"), None);
    }

    #[test]
    fn a_path_includes_the_files_below_it() {
        let options = Options { paths: vec!["crates/load".into()], ..Options::default() };
        assert!(options.includes("crates/load/src/lib.rs"));
        assert!(!options.includes("crates/loader/src/lib.rs"));
        assert!(Options::default().includes("README.md"));
    }

    #[test]
    fn test_data_and_other_kinds_of_files_are_skipped() {
        assert!(is_checked("Makefile") && is_checked("docs/load.md") && is_checked("agent/src/keeper.eval"));
        assert!(!is_checked("agent/prebuilt/README.md") && !is_checked("crates/x/fixtures/a/b.toml"));
        assert!(!is_checked("docs/schema/x.json") && !is_checked("Cargo.lock"));
    }

    #[test]
    fn the_lines_that_a_diff_adds_are_found() {
        let diff = "diff --git a.rs a.rs\n--- a.rs\n+++ a.rs\n@@ -3,0 +4,2 @@ fn x()\n+one\n+++ two\n@@ -9 +11 @@\n-old\n\
                    +new\ndiff --git b.md b.md\n--- b.md\n+++ b.md\n@@ -1 +1 @@\n-x\n+y\n";
        let mut added: Vec<_> = added_lines(diff).into_iter().collect();
        added.sort_unstable();
        assert_eq!(added, [("a.rs", 4), ("a.rs", 5), ("a.rs", 11), ("b.md", 1)]);
    }

    #[test]
    fn a_finding_names_the_place_and_the_term() {
        let finding = Finding {
            path: "a.rs".into(),
            line: 3,
            text: "// x".into(),
            phrase: "x".into(),
            instead: "y or z",
        };
        assert_eq!(finding.to_string(), "a.rs:3: x; use y or z");
    }

    #[test]
    fn the_exceptions_of_the_repository_can_be_parsed() {
        let root = repository::root().expect("a root");
        exceptions(root).expect("exceptions that parse");
    }
}
