//! Checks the content of files.

use anyhow::Result;

use crate::repository;

/// Maximum length of a source file, in lines.
const MAX_LINES: usize = 700;

/// Crates that must not read files or clocks (ARCHITECTURE.md).
const PURE: &[&str] = &["model", "flags", "stats", "rules", "report"];

/// Uses of I/O or clocks, which pure crates must not contain.
const IMPURE: &[&str] =
    &["std::fs", "std::net", "std::process", "std::thread", "SystemTime", "Instant::now", "std::env::"];

/// The only file of a pure crate that may use threads: it enforces the deadline of rules.
const DEADLINE: (&str, &str) = ("crates/rules/src/guard.rs", "std::thread");

/// Returns the faults in the files of the repository.
pub fn check() -> Result<Vec<String>> {
    let root = repository::root()?;
    let files = repository::files()?;
    let labs = lab_names(&files);
    let mut faults = Vec::new();
    for path in &files {
        // A deleted file is listed until the deletion is committed; a binary file contains no text to check.
        let Ok(text) = std::fs::read_to_string(root.join(path)) else { continue };
        faults.extend(check_file(path, &text, &labs));
    }
    Ok(faults)
}

/// Returns the names of the labs: folders in `lab/` with a manifest.
fn lab_names(files: &[String]) -> Vec<String> {
    let names = files
        .iter()
        .filter_map(|path| path.strip_prefix("lab/")?.strip_suffix("/lab.toml"))
        .map(str::to_owned);
    names.collect()
}

fn check_file(path: &str, text: &str, labs: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    let code = [".rs", ".erl", ".hrl", ".sh", ".ts"].iter().any(|ending| path.ends_with(ending));
    if code && !path.contains("/prebuilt/") {
        let lines = text.lines().count();
        if lines > MAX_LINES
            && !path.ends_with("tests.rs")
            && !path.contains("/tests/")
            && !path.contains("/test/")
        {
            faults.push(format!("{path}: {lines} lines, the limit is {MAX_LINES}; split it by topic"));
        }
    }
    let part = path.strip_prefix("crates/").and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let in_source = path.contains("/src/") && path.ends_with(".rs");
    for (index, line) in text.lines().enumerate() {
        let at = format!("{path}:{}", index + 1);
        if code && line.ends_with([' ', '\t']) {
            faults.push(format!("{at}: trailing white space"));
        }
        if path.ends_with(".rs") && !path.starts_with("xtask/") {
            for word in ["todo!(", "unimplemented!(", "dbg!("] {
                if line.contains(word) {
                    faults.push(format!("{at}: {word}…) must not be committed"));
                }
            }
        }
        if in_source && PURE.contains(&part) && !line.trim_start().starts_with("//") {
            for word in IMPURE {
                if line.contains(word) && !path.contains("tests") && (path, *word) != DEADLINE {
                    faults.push(format!("{at}: `{part}` must not use {word}: it is a pure crate"));
                }
            }
        }
        if in_source && part == "rules" && !path.contains("tests") {
            faults.extend(rule_faults(path, line).map(|fault| format!("{at}: {fault}")));
        }
        if in_source && part == "rules" {
            for lab in labs {
                // Only quoted names are checked: a rule and a lab may have the same name.
                if line.contains(&format!("\"lab_{}", lab.replace('-', "_"))) {
                    faults.push(format!("{at}: a rule must not name the lab {lab}"));
                }
            }
        }
    }
    faults
}

/// Returns faults of the crate `rules`: rules that import rules, and decisions based on a finding's text.
fn rule_faults(path: &str, line: &str) -> Option<&'static str> {
    let is_rule = path.contains("/rules/src/rules/");
    let is_below = is_rule || path.contains("/rules/src/signals/") || path.contains("/rules/src/account");
    let imports_rule =
        line.contains("crate::rules::") || (is_rule && line.trim_start().starts_with("use super::"));
    let is_test = line.trim() == "use super::*;";
    if is_below && imports_rule && !is_test {
        Some("rules must not import rules: move what several need to a signal (crates/rules/src/signals)")
    } else if [".title.contains", ".title.starts", ".title.ends", ".detail.contains"]
        .iter()
        .any(|read| line.contains(read))
    {
        Some("distinguish findings by code, subject and signals, never by text")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_import_signals_and_never_rules() {
        assert_eq!(faults("crates/rules/src/rules/x.rs", "use crate::rules::busy_waiting;"), 1);
        assert_eq!(faults("crates/rules/src/rules/x.rs", "use super::busy_waiting::Spinning;"), 1);
        assert_eq!(faults("crates/rules/src/signals/x.rs", "use crate::rules::busy_waiting;"), 1);
        assert_eq!(faults("crates/rules/src/rules/x.rs", "use crate::signals::busy_wait;"), 0);
        assert_eq!(faults("crates/rules/src/rules/x.rs", "    use super::*;"), 0);
        assert_eq!(faults("crates/rules/src/relations.rs", "finding.title.contains(\"spent\")"), 1);
        assert_eq!(faults("crates/rules/src/tests/x.rs", "finding.title.contains(\"spent\")"), 0);
    }

    fn faults(path: &str, text: &str) -> usize {
        check_file(path, text, &["gc-share".to_owned()]).len()
    }

    #[test]
    fn pure_crates_must_not_read_clocks_or_files() {
        assert_eq!(faults("crates/rules/src/rules/x.rs", "let t = Instant::now();"), 1);
        assert_eq!(faults("crates/host/src/x.rs", "let t = Instant::now();"), 0);
        assert_eq!(faults("crates/rules/src/guard.rs", "use std::thread::Builder;"), 0);
        assert_eq!(faults("crates/rules/src/x.rs", "use std::thread::Builder;"), 1);
        assert_eq!(faults("crates/rules/src/rules/x.rs", "// Instant::now() is for others"), 0);
    }

    #[test]
    fn rules_must_not_name_labs() {
        assert_eq!(faults("crates/rules/src/rules/x.rs", "if name == \"lab_gc_share_worker\" {}"), 1);
        assert_eq!(faults("crates/rules/src/rules/x.rs", "name: \"gc-share\","), 0);
    }

    #[test]
    fn long_files_are_reported() {
        assert_eq!(faults("crates/host/src/x.rs", &"x\n".repeat(MAX_LINES + 1)), 1);
        assert_eq!(faults("crates/host/src/tests.rs", &"x\n".repeat(MAX_LINES + 1)), 0);
        assert_eq!(faults("agent/src/parts/x.hrl", &"x\n".repeat(MAX_LINES + 1)), 1);
    }

    #[test]
    fn unfinished_code_is_reported() {
        assert_eq!(faults("crates/host/src/x.rs", &format!("    {}", "todo!()")), 1);
    }
}
