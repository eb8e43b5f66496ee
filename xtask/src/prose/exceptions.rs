//! Reads xtask/prose-exceptions.txt: lines that keep a phrase, and how many phrases a folder may still contain.

use std::collections::{BTreeMap, HashSet};

use super::{EXCEPTIONS, Finding};

/// The parsed exceptions file.
#[derive(Debug, Default)]
pub struct Exceptions {
    lines: Vec<Exception>,
    /// Number of phrases by folder or file.
    ceilings: BTreeMap<String, usize>,
}

/// An exception: lines that keep their phrases.
#[derive(Debug)]
struct Exception {
    /// Line number in the exceptions file.
    line: usize,
    /// A file, or a folder if it ends with `/`.
    path: String,
    /// A part of the line, or `*` for any line.
    text: String,
}

impl Exception {
    fn allows(&self, finding: &Finding) -> bool {
        let is_there = match self.path.ends_with('/') {
            true => finding.path.starts_with(&self.path),
            false => finding.path == self.path,
        };
        is_there && (self.text == "*" || finding.text.contains(&self.text))
    }
}

/// A parsed line of the file.
enum Line<'l> {
    /// An empty line, or a comment.
    Nothing,
    Exception {
        path: &'l str,
        text: &'l str,
    },
    Ceiling {
        folder: &'l str,
        count: usize,
    },
}

impl Line<'_> {
    /// Parses a line; `None` if it has none of these forms.
    fn parse(line: &str) -> Option<Line<'_>> {
        if line.is_empty() || line.starts_with('#') {
            return Some(Line::Nothing);
        }
        if line.contains('\t') {
            let columns: Vec<_> = line.split('\t').collect();
            let [path, text, reason] = columns[..] else { return None };
            let is_whole = ![path, text, reason].iter().any(|column| column.trim().is_empty());
            return is_whole.then_some(Line::Exception { path, text });
        }
        let (folder, count) = line.split_once(' ')?;
        Some(Line::Ceiling { folder, count: count.parse().ok()? })
    }
}

impl Exceptions {
    /// Parses the file; the error is the number of the invalid line.
    pub fn parse(text: &str) -> Result<Exceptions, usize> {
        let mut exceptions = Exceptions::default();
        for (index, line) in text.lines().enumerate() {
            match Line::parse(line).ok_or(index + 1)? {
                Line::Nothing => {}
                Line::Exception { path, text } => exceptions.lines.push(Exception {
                    line: index + 1,
                    path: path.to_owned(),
                    text: text.to_owned(),
                }),
                Line::Ceiling { folder, count } => {
                    exceptions.ceilings.insert(folder.trim_end_matches('/').to_owned(), count);
                }
            }
        }
        Ok(exceptions)
    }

    /// Whether an exception covers the finding.
    pub fn allow(&self, finding: &Finding) -> bool {
        self.lines.iter().any(|exception| exception.allows(finding))
    }

    /// Returns findings beyond exceptions and ceilings, ceilings that are too high, and unused exceptions.
    pub fn faults(&self, findings: Vec<Finding>) -> Vec<String> {
        let mut used = HashSet::new();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let mut faults = Vec::new();
        for finding in &findings {
            let allowing: Vec<_> = self.lines.iter().filter(|exception| exception.allows(finding)).collect();
            if !allowing.is_empty() {
                used.extend(allowing.iter().map(|exception| exception.line));
            } else if let Some(folder) = self.folder_of(&finding.path) {
                *counts.entry(folder).or_default() += 1;
            } else {
                faults.push(finding.to_string());
            }
        }
        for (folder, &ceiling) in &self.ceilings {
            let count = counts.get(folder.as_str()).copied().unwrap_or(0);
            if count > ceiling {
                faults.push(format!(
                    "{folder}: {count} phrases, the ceiling is {ceiling}: list them with `cargo run -p xtask -- prose {folder}`"
                ));
            } else if count < ceiling || ceiling == 0 {
                faults.push(format!(
                    "{EXCEPTIONS}: {folder} has {count} phrases, lower its ceiling of {ceiling} with `cargo run -p xtask -- prose --lower`"
                ));
            }
        }
        let unused = self.lines.iter().filter(|exception| !used.contains(&exception.line));
        faults.extend(unused.map(|exception| {
            format!("{EXCEPTIONS}:{}: no phrase in {} needs this exception", exception.line, exception.path)
        }));
        faults
    }

    /// Returns the file's text with ceilings lowered to the number of findings; ceilings of 0 are removed.
    pub fn lowered(&self, text: &str, findings: &[Finding]) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for folder in findings.iter().filter_map(|finding| self.folder_of(&finding.path)) {
            *counts.entry(folder).or_default() += 1;
        }
        let mut out = String::with_capacity(text.len());
        for line in text.lines() {
            match Line::parse(line) {
                Some(Line::Ceiling { folder, count }) => {
                    let found = counts.get(folder.trim_end_matches('/')).copied().unwrap_or(0);
                    if found > 0 && count > 0 {
                        out.push_str(&format!("{folder} {}\n", count.min(found)));
                    }
                }
                _ => out.push_str(&format!("{line}\n")),
            }
        }
        out
    }

    /// Returns the longest path with a ceiling that contains a file.
    fn folder_of(&self, path: &str) -> Option<&str> {
        let holds = |folder: &&String| {
            path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.ceilings.keys().filter(holds).max_by_key(|folder| folder.len()).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str =
        "# reasons\n\na/b.md\tkey => [\ta key of the protocol\nquotes/\t*\tquoted\na 2\na/deep 1\n";

    fn at(path: &str, text: &str) -> Finding {
        Finding { path: path.into(), line: 7, text: text.into(), phrase: "x".into(), instead: "y" }
    }

    fn faults(findings: &[(&str, &str)]) -> Vec<String> {
        let exceptions = Exceptions::parse(FILE).expect("a file");
        exceptions.faults(findings.iter().map(|(path, text)| at(path, text)).collect())
    }

    /// The number of findings that the ceilings require, and a finding for each exception.
    const GOOD: [(&str, &str); 5] =
        [("a/b.md", "#{key => [x]}"), ("quotes/c.rs", "x"), ("a/b.md", "x"), ("a/c", "x"), ("a/deep/d", "x")];

    #[test]
    fn exact_exceptions_and_ceilings_are_not_faults() {
        assert_eq!(faults(&GOOD), [""; 0]);
    }

    #[test]
    fn a_folder_without_a_ceiling_may_contain_no_phrase() {
        let findings = [&GOOD[..], &[("ab/c.rs", "x")]].concat();
        assert_eq!(faults(&findings), ["ab/c.rs:7: x; use y"]);
    }

    #[test]
    fn the_number_of_phrases_must_equal_the_ceiling() {
        let more = [&GOOD[..], &[("a/b.md", "x")]].concat();
        assert!(faults(&more)[0].starts_with("a: 3 phrases, the ceiling is 2"), "{:?}", faults(&more));
        let fewer = faults(&GOOD[..4]);
        assert!(fewer[0].contains("a/deep has 0 phrases, lower its ceiling of 1"), "{fewer:?}");
    }

    #[test]
    fn an_unused_exception_is_a_fault() {
        let unused = faults(&GOOD[1..]);
        assert_eq!(unused.len(), 1);
        assert!(unused[0].starts_with(&format!("{EXCEPTIONS}:3: ")), "{unused:?}");
    }

    #[test]
    fn ceilings_are_lowered_and_never_raised() {
        let exceptions = Exceptions::parse(FILE).expect("a file");
        let findings = [at("a/c", "x"), at("b/c", "x")];
        let lowered = exceptions.lowered(FILE, &findings);
        assert_eq!(lowered, FILE.replace("a 2\na/deep 1\n", "a 1\n"));
        let findings = vec![at("a/c", "x"); 9];
        assert!(exceptions.lowered(FILE, &findings).contains("\na 2\n"));
    }

    #[test]
    fn an_invalid_line_is_reported_with_its_number() {
        assert_eq!(Exceptions::parse("a 1\na/b.md\ttext without a reason\n").expect_err("a fault"), 2);
        assert_eq!(Exceptions::parse("a/b.md\ttext\t\n").expect_err("a fault"), 1);
        assert_eq!(Exceptions::parse("crates/rules many\n").expect_err("a fault"), 1);
    }
}
