//! Checks that every rule has a page, and that every page belongs to a rule.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use beamtune_flags::lint::rules;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_rule_has_a_page_and_a_row_in_the_table() {
    let readme =
        std::fs::read_to_string(repository().join("docs/lint/README.md")).expect("docs/lint/README.md");
    for rule in rules() {
        let page = std::fs::read_to_string(repository().join(rule.page()))
            .unwrap_or_else(|error| panic!("{}: {error}", rule.page()));
        let title = format!("# {}: {}\n", rule.code, rule.name);
        assert!(page.starts_with(&title), "{} begins with {title:?}", rule.page());
        assert!(page.contains(rule.description), "{}: {}", rule.page(), rule.description);
        for part in ["\n## Why\n", "\n## Example\n", "\n## What to do\n", "\n## Source\n"] {
            assert!(page.contains(part), "{}: {part:?}", rule.page());
        }
        let line = format!("| [{code}]({code}.md) | {} |", rule.name, code = rule.code);
        assert!(readme.contains(&line), "{line}");
    }
}

#[test]
fn every_page_belongs_to_a_rule() {
    let known: BTreeSet<String> =
        rules().iter().map(|rule| format!("{}.md", rule.code)).chain(["README.md".to_owned()]).collect();
    for entry in std::fs::read_dir(repository().join("docs/lint")).expect("docs/lint") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        assert!(known.contains(&name), "{name}");
    }
}
