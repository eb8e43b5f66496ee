//! Tests of the linter's findings in all output formats.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

use std::ops::Range;

use beamtune_flags::lint::{Finding, Fix, Level, Rule, rules};
use beamtune_flags::source::{Edit, Position};
use beamtune_report::Style;
use beamtune_report::lint::{Linted, Report, Unread, github, json, sarif, text};
use serde_json::{Value, json};

const FILE: &str = "# é\n\t+K true +P 日本\n+Q 1\n";
const OTHER: &str = "ERL_FLAGS=+Q 2\n";

fn rule() -> &'static Rule {
    rules().first().expect("a rule")
}

fn finding(level: Level, file: usize, span: Range<usize>) -> Finding {
    Finding {
        code: rule().code,
        level,
        file,
        span,
        flag: "+K".to_owned(),
        releases: vec![25, 27],
        message: "the flag says nothing".to_owned(),
        reason: "It was \x1b[31mseen.".to_owned(),
        remedy: "Remove it.".to_owned(),
        fix: None,
        related: Vec::new(),
    }
}

fn at(part: &str) -> Range<usize> {
    let begin = FILE.find(part).expect("an occurrence");
    begin..begin + part.len()
}

/// Findings in two files, one of each level.
fn findings() -> Vec<Finding> {
    let edit = Edit { span: at("+K true "), replacement: String::new() };
    let fix = |safe| Some(Fix { what: "Remove `+K true`.".to_owned(), safe, edits: vec![edit.clone()] });
    vec![
        Finding { fix: fix(true), ..finding(Level::Warning, 0, at("+K true")) },
        Finding { fix: fix(false), releases: vec![25], ..finding(Level::Error, 0, at("+P 日本")) },
        Finding {
            related: vec![(0, at("+Q 1"), "loses".to_owned())],
            message: "wins, in OTP 27 only".to_owned(),
            releases: vec![27],
            reason: String::new(),
            ..finding(Level::Note, 1, 10..14)
        },
    ]
}

fn told(render: impl Fn(&Report<'_>) -> String) -> String {
    let linted = [
        Linted { name: "rel/vm.args", text: FILE, is_file: true },
        Linted { name: "./a b.env", text: OTHER, is_file: true },
    ];
    let unread = [Unread {
        name: "bad.args".to_owned(),
        at: Some(Position { offset: 7, line: 2, column: 3 }),
        message: "100 % broken:\na quote".to_owned(),
    }];
    render(&Report { linted: &linted, findings: &findings(), unread: &unread, releases: &[25, 27] })
}

#[test]
fn text_has_the_line_with_a_mark_and_the_remedy() {
    let (code, name) = (rule().code, rule().name);
    let expect = format!(
        "\
rel/vm.args:2:2: warning {code} {name}
    the flag says nothing
    2 |     +K true +P 日本
      |     ^^^^^^^
    why  It was \\u{{1b}}[31mseen.
    do   Remove it.
    fix  Remove `+K true` (applied by --fix)

rel/vm.args:2:10: error {code} {name}
    the flag says nothing (OTP 25)
    2 |     +K true +P 日本
      |             ^^^^^^^
    why  It was \\u{{1b}}[31mseen.
    do   Remove it.
    fix  Remove `+K true` (not applied by --fix: it changes the behaviour of the VM)

./a b.env:1:11: note {code} {name}
    wins, in OTP 27 only
    1 | ERL_FLAGS=+Q 2
      |           ^^^^
    do   Remove it.
    see  rel/vm.args:3:1 loses

1 error, 1 warning, 1 note in 2 of 2 files, for OTP 25, 27; --fix removes 1 of them; 1 file could not be read
"
    );
    assert_eq!(told(|report| text(report, Style::PLAIN)), expect);
}

#[test]
fn only_findings_in_files_are_reported_as_fixable() {
    let linted = ["stdin", "shop@host"].map(|name| Linted { name, text: FILE, is_file: false });
    let report = Report { linted: &linted, findings: &findings(), unread: &[], releases: &[25, 27] };
    assert_eq!(report.count().fixable, 0);
    let text = text(&report, Style::PLAIN);
    assert!(text.contains("fix  Remove `+K true`\n") && !text.contains("--fix"), "{text}");
}

#[test]
fn text_without_colours_equals_plain_text() {
    let coloured = told(|report| text(report, Style { colour: true, ..Style::PLAIN }));
    assert!(coloured.contains("\x1b["));
    let mut plain = String::new();
    for (index, part) in coloured.split("\x1b[").enumerate() {
        plain.push_str(if index == 0 { part } else { part.split_once('m').expect("a colour").1 });
    }
    assert_eq!(plain, told(|report| text(report, Style::PLAIN)));
}

#[test]
fn absence_of_findings_is_reported() {
    let linted = [Linted { name: "vm.args", text: "", is_file: true }];
    let report = Report { linted: &linted, findings: &[], unread: &[], releases: &[23, 24, 25] };
    assert_eq!(text(&report, Style::PLAIN), "nothing found in 1 file, for OTP 23 to 25\n");
}

#[test]
fn json_has_places_in_lines_and_in_bytes() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lint-output.schema.json");
    let schema = serde_json::from_str(&std::fs::read_to_string(path).expect("the schema")).expect("JSON");
    let schema = jsonschema::validator_for(&schema).expect("a schema");
    let value: Value = serde_json::from_str(&told(json)).expect("JSON");
    let errors: Vec<_> =
        schema.iter_errors(&value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    let first = &value["findings"][0];
    assert_eq!((&first["line"], &first["column"], &first["end_column"]), (&json!(2), &json!(2), &json!(9)));
    assert_eq!((&first["offset_bytes"], &first["length_bytes"]), (&json!(6), &json!(7)));
    assert_eq!(first["fix"]["edits"][0], json!({ "offset_bytes": 6, "length_bytes": 8, "replacement": "" }));
    assert_eq!(value["findings"][1]["end_column"], 15, "columns count characters");
    assert_eq!(value["findings"][2]["related"][0]["line"], 3);
    assert_eq!(
        value["unread"][0],
        json!({
            "file": "bad.args", "line": 2, "column": 3, "message": "100 % broken:\na quote"
        })
    );
    assert_eq!(
        value["summary"],
        json!({
            "files": 2, "errors": 1, "warnings": 1, "notes": 1, "fixable": 1, "unread": 1
        })
    );
}

#[test]
fn each_finding_is_one_workflow_command() {
    let (code, name) = (rule().code, rule().name);
    let expect = format!(
        "\
::warning file=rel/vm.args,line=2,endLine=2,col=2,endColumn=9,title={code} {name}::the flag says nothing%0AIt was \x1b[31mseen.%0ARemove it.
::error file=rel/vm.args,line=2,endLine=2,col=10,endColumn=15,title={code} {name}::the flag says nothing (OTP 25)%0AIt was \x1b[31mseen.%0ARemove it.
::notice file=a b.env,line=1,endLine=1,col=11,endColumn=15,title={code} {name}::wins, in OTP 27 only%0ARemove it.
::error file=bad.args,line=2,col=3,title=not linted::100 %25 broken:%0Aa quote
"
    );
    assert_eq!(told(github), expect);
}

#[test]
fn sarif_has_only_safe_fixes() {
    let log: Value = serde_json::from_str(&told(sarif)).expect("JSON");
    let results = &log["runs"][0]["results"];
    let region = &results[1]["locations"][0]["physicalLocation"]["region"];
    assert_eq!(
        region,
        &json!({
            "startLine": 2, "startColumn": 10, "endLine": 2, "endColumn": 15, "byteOffset": 14, "byteLength": 9
        })
    );
    let replacement = &results[0]["fixes"][0]["artifactChanges"][0]["replacements"][0];
    assert_eq!(replacement["insertedContent"]["text"], "");
    assert_eq!(replacement["deletedRegion"]["byteLength"], 8);
    assert_eq!(results[1]["fixes"], Value::Null);
    assert_eq!(results[2]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], "a%20b.env");
    assert_eq!(results[2]["relatedLocations"][0]["message"]["text"], "loses");
    assert_eq!(results[2]["level"], "note");
}

#[test]
fn findings_in_a_node_have_no_file() {
    let linted = [Linted { name: "shop@web1", text: "-K true", is_file: false }];
    let found = [finding(Level::Warning, 0, 0..7)];
    let report = Report { linted: &linted, findings: &found, unread: &[], releases: &[25, 27] };
    assert!(text(&report, Style::PLAIN).starts_with("shop@web1:1:1: warning"));
    assert!(!github(&report).contains("file="), "{}", github(&report));
    let log: Value = serde_json::from_str(&sarif(&report)).expect("JSON");
    let location = &log["runs"][0]["results"][0]["locations"][0];
    assert_eq!(location["logicalLocations"][0]["fullyQualifiedName"], "shop@web1");
    assert_eq!(location["physicalLocation"], Value::Null);
}
