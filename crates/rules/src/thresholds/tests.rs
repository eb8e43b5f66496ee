use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use beamtune_model::{Level, Outcome};

use super::*;
use crate::diagnose;

fn invalid(text: &str) -> String {
    parse("my.toml", text).expect_err(text).to_string()
}

/// Returns the source files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let below = |path: PathBuf| if path.is_dir() { sources(&path) } else { vec![path] };
    entries.flat_map(below).filter(|path| !path.to_string_lossy().contains("test")).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_threshold_in_the_source_is_listed_once_and_belongs_to_a_rule() {
    let mut written = BTreeSet::new();
    for path in sources(&root().join("src")) {
        let text = std::fs::read_to_string(&path).expect("its text");
        let bare =
            text.lines().find(|line| [": Scale = Scale", ": Scale {"].iter().any(|bare| line.contains(bare)));
        assert_eq!(
            bare,
            None,
            "{}: a threshold needs a name (Threshold::new), so that users can change it",
            path.display()
        );
        for (index, _) in text.match_indices("Threshold::new(") {
            let name = text[index..].split('"').nth(1).expect("a name").to_owned();
            assert!(written.insert(name.clone()), "{name} is defined twice");
        }
    }
    let listed: Vec<_> = all().iter().map(|(threshold, _)| threshold.name.to_owned()).collect();
    assert_eq!(
        listed.iter().cloned().collect::<BTreeSet<_>>(),
        written,
        "each is listed in Rule::thresholds"
    );
    assert_eq!(listed.len(), written.len());
}

#[test]
fn names_are_toml_keys_and_each_section_occurs_once() {
    let mut sections = Vec::new();
    for (threshold, rules) in all() {
        let (section, key) = split(threshold.name);
        assert!(!key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{key}");
        let is_of_rule = rules.iter().any(|rule| rule.name == section) || section == "near-limit";
        assert!(is_of_rule, "{}", threshold.name);
        if sections.last() != Some(&section) {
            assert!(!sections.contains(&section), "{section}");
            sections.push(section);
        }
        assert!(
            !threshold.default_scale().source.is_empty() && !threshold.what.ends_with('.'),
            "{}",
            threshold.name
        );
    }
}

#[test]
fn the_listing_is_a_valid_file_without_changes() {
    let text = listing(&Thresholds::default());
    let read = parse("all.toml", &text).expect("valid");
    assert_eq!(read.names().len(), 0);
    let text =
        text.replace("notice = 0.15, warning = 0.3, critical = 0.6 }", "notice = 0.15, warning = 0.5 }");
    let read = parse("all.toml", &text).expect("valid");
    assert!(read.names().any(|name| name == "gc-share.gc_share"));
    assert_eq!(
        parse("again.toml", &listing(&read)).map(|again| again.names().count()),
        Ok(read.names().len())
    );
}

#[test]
fn errors_are_reported_with_their_line_and_the_nearest_name() {
    assert_eq!(
        invalid("[gc-shares]\ngc_share = { notice = 1 }\n"),
        "my.toml:1: unknown section \"gc-shares\"; did you mean gc-share?"
    );
    assert_eq!(
        invalid("\n[overload]\ndelay_second = { notice = 1 }\n"),
        "my.toml:3: unknown threshold \"delay_second\"; did you mean delay_seconds?"
    );
    assert_eq!(
        invalid("[overload]\nqueue = { notice = 1 }\n"),
        "my.toml:2: unknown threshold \"queue\"; known: delay_seconds, runnable_per_scheduler"
    );
    assert_eq!(
        invalid("[gc-share]\ngc_share = { warn = 0.2 }\n"),
        "my.toml:2: unknown level \"warn\"; known: notice, warning, critical"
    );
    assert_eq!(invalid("gc-share = 0.3\n"), "my.toml:1: gc-share must be a section: [gc-share]");
    assert_eq!(
        invalid("[gc-share]\ngc_share = 0.3\n"),
        "my.toml:2: gc_share needs levels: gc_share = { warning = NUMBER }"
    );
    for value in ["\"0.3\"", "-1", "nan", "true"] {
        let text = format!("[gc-share]\ngc_share = {{ warning = {value} }}\n");
        assert_eq!(invalid(&text), "my.toml:2: warning must be a number of at least 0", "{value}");
    }
    assert_eq!(
        invalid("[gc-share]\n\ngc_share = { notice = 0.5 }\n"),
        "my.toml:3: gc-share.gc_share must rise from notice to critical, but is 0.5, 0.3, 0.6"
    );
    assert_eq!(
        invalid("[restart-loop]\nlife_seconds = { critical = 700 }\n"),
        "my.toml:2: restart-loop.life_seconds must fall from notice to critical, but is 3600, 600, 700"
    );
    // All errors at once.
    assert_eq!(invalid("[a]\n[b]\n").lines().count(), 2);
    assert!(invalid("[gc-share\n").starts_with("my.toml:1: "), "{}", invalid("[gc-share\n"));
}

#[test]
fn a_changed_threshold_changes_the_level_and_the_evidence_says_so() {
    let mut period =
        beamtune_synthetic::node().with(|n| (n.utilization, n.cpu, n.gc) = (0.8, 0.8, 0.5)).period();
    let gc_share = |period: &beamtune_model::Period| {
        let verdicts = diagnose(&Arc::new(period.clone())).verdicts;
        verdicts.into_iter().find(|verdict| verdict.code.0 == "BT011").expect("its rule").outcome
    };
    let found = |outcome| match outcome {
        Outcome::Found(mut found) => found.remove(0),
        other => panic!("{other:?}"),
    };
    let usual = found(gc_share(&period));
    assert!(usual.level > Level::Notice, "{usual:?}");
    let share = usual.evidence.iter().find(|evidence| evidence.what == "GC share of busy time");
    let share = share.and_then(|share| share.value).expect("its share");
    let above = (share + 1.0) / 2.0;
    let set = |notice: f64| {
        let text = format!("[gc-share]\ngc_share = {{ notice = {notice}, warning = {above}, critical = 1 }}");
        parse("my.toml", &text).expect("valid")
    };
    period.thresholds = set(share / 2.0);
    let changed = found(gc_share(&period));
    assert_eq!(changed.level, Level::Notice);
    let source = |evidence: &beamtune_model::Evidence| evidence.source.as_deref() == Some(CHANGED);
    assert!(changed.evidence.iter().any(source), "{:#?}", changed.evidence);
    period.thresholds = set(above);
    assert!(matches!(gc_share(&period), Outcome::Healthy(_)));
}

/// Parses a number of a page into the unit of the code; `None` for words.
fn number(cell: &str) -> Option<f64> {
    let end = cell.find(|c: char| !(c.is_ascii_digit() || ".,".contains(c))).unwrap_or(cell.len());
    let number: f64 = cell[..end].trim_end_matches(',').replace(',', "").parse().ok()?;
    let unit = cell[end..].trim().split(',').next().unwrap_or_default();
    let factor = match unit {
        "%" => 0.01,
        "ms" => 1e-3,
        "min" => 60.0,
        "h" => 3_600.0,
        "MB" => 1e6,
        "GB" => 1e9,
        "a minute" => 1.0 / 60.0,
        "" | "s" | "a second" => 1.0,
        _ => return None,
    };
    Some(number * factor)
}

#[test]
fn the_pages_have_the_thresholds_of_the_code() {
    for (threshold, rules) in all() {
        for rule in rules {
            let path = root().join(format!("../../docs/rules/{}.md", rule.name));
            let page = std::fs::read_to_string(&path).expect("its page");
            let table = page.split("## Thresholds").nth(1).expect("its thresholds");
            let table = table.split("\n## ").next().unwrap_or_default();
            let rows: Vec<Vec<&str>> = table
                .lines()
                .filter(|line| line.starts_with('|'))
                .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
                .collect();
            let scale = threshold.default_scale();
            let levels = [("notice", scale.notice), ("warning", scale.warning), ("critical", scale.critical)];
            let head = rows.first().expect("a head");
            let agrees = |row: &Vec<&str>| {
                let numbers = levels.iter().filter_map(|(level, value)| {
                    let column = head.iter().position(|name| name == level)?;
                    Some((number(row.get(column)?)?, value))
                });
                let numbers: Vec<_> = numbers.collect();
                !numbers.is_empty()
                    && numbers.iter().all(|(page, code)| (page - *code).abs() <= 1e-6 * code.abs())
            };
            assert!(
                rows.iter().skip(2).any(agrees),
                "{}: no row of {} has {scale:?}",
                threshold.name,
                path.display()
            );
        }
    }
}
