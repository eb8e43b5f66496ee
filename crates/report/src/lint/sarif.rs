//! Findings as SARIF 2.1.0 (OASIS, "Static Analysis Results Interchange Format"), which code hosts and editors read.
//!
//! Paths are written as URIs relative to the directory in which beamtune was started; in CI, this is the root of the repository. The help
//! text of a rule contains the path of its page in beamtune's repository. If the package metadata has the repository's address, `helpUri`
//! is the address of the page.

use std::ops::Range;

use beamtune_flags::lint::{Finding, Level, Rule, rules};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::{Report, Told, message};
use crate::json::pretty;

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// Renders the findings as a SARIF log with one run.
pub fn render(report: &Report<'_>) -> String {
    let descriptors: Vec<Value> = rules().iter().map(descriptor).collect();
    let notifications: Vec<Value> = report
        .unread
        .iter()
        .map(|unread| {
            let mut location = json!({ "artifactLocation": { "uri": uri(&unread.name) } });
            if let Some(at) = unread.at {
                location["region"] = json!({ "startLine": at.line, "startColumn": at.column });
            }
            json!({
                "level": "error",
                "message": { "text": unread.message },
                "locations": [{ "physicalLocation": location }],
            })
        })
        .collect();
    pretty(&Log {
        schema: SCHEMA,
        runs: [Run {
            column_kind: "unicodeCodePoints",
            invocations: json!([{
                "executionSuccessful": report.unread.is_empty(),
                "toolExecutionNotifications": notifications,
            }]),
            results: Results(Told::of(report)),
            tool: json!({
                "driver": {
                    "name": "beamtune",
                    "version": env!("CARGO_PKG_VERSION"),
                    "semanticVersion": env!("CARGO_PKG_VERSION"),
                    "rules": descriptors,
                },
            }),
        }],
        version: "2.1.0",
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Log<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    runs: [Run<'a>; 1],
    version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Run<'a> {
    column_kind: &'static str,
    invocations: Value,
    results: Results<'a>,
    tool: Value,
}

/// The results, each created when it is written: for a large file, all results together would take gigabytes.
struct Results<'a>(Told<'a>);

impl Serialize for Results<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.report.findings.iter().filter_map(|finding| result(&self.0, finding)))
    }
}

fn descriptor(rule: &Rule) -> Value {
    let mut descriptor = json!({
        "id": rule.code.as_str(),
        "name": rule.name,
        "shortDescription": { "text": rule.description },
        "help": { "text": format!("{} See {} of beamtune.", rule.description, rule.page()) },
        "defaultConfiguration": { "level": level(rule.level) },
    });
    let repository = env!("CARGO_PKG_REPOSITORY");
    if !repository.is_empty() {
        descriptor["helpUri"] =
            json!(format!("{}/blob/main/{}", repository.trim_end_matches('/'), rule.page()));
    }
    descriptor
}

fn result(told: &Told<'_>, finding: &Finding) -> Option<Value> {
    let report = told.report;
    let mut text = message(report, finding);
    for more in [&finding.reason, &finding.remedy] {
        if !more.is_empty() {
            text.push_str(&format!("\n{more}"));
        }
    }
    let mut result = json!({
        "ruleId": finding.code.as_str(),
        "level": level(finding.level),
        "message": { "text": text },
        "locations": [location(told, finding.file, &finding.span)?],
        "properties": { "flag": finding.flag, "releases": finding.releases },
    });
    if let Some(index) = rules().iter().position(|rule| rule.code == finding.code) {
        result["ruleIndex"] = json!(index);
    }
    let related: Vec<Value> = finding
        .related
        .iter()
        .filter_map(|(file, span, message)| {
            let mut location = location(told, *file, span)?;
            location["message"] = json!({ "text": message });
            Some(location)
        })
        .collect();
    if !related.is_empty() {
        result["relatedLocations"] = json!(related);
    }
    let linted = report.linted.get(finding.file)?;
    // Programs that show fixes apply them at a click, so the log contains only safe fixes of files.
    if let Some(fix) = finding.fix.as_ref().filter(|fix| fix.safe && linted.is_file) {
        let replacements: Option<Vec<Value>> = fix
            .edits
            .iter()
            .map(|edit| {
                Some(json!({
                    "deletedRegion": region(told, finding.file, &edit.span)?,
                    "insertedContent": { "text": edit.replacement },
                }))
            })
            .collect();
        result["fixes"] = json!([{
            "description": { "text": fix.what },
            "artifactChanges": [{
                "artifactLocation": { "uri": uri(linted.name) },
                "replacements": replacements?,
            }],
        }]);
    }
    Some(result)
}

fn location(told: &Told<'_>, file: usize, span: &Range<usize>) -> Option<Value> {
    let linted = told.report.linted.get(file)?;
    if !linted.is_file {
        // The arguments of a node are not in a file.
        return Some(json!({ "logicalLocations": [{ "fullyQualifiedName": linted.name }] }));
    }
    Some(json!({
        "physicalLocation": {
            "artifactLocation": { "uri": uri(linted.name) },
            "region": region(told, file, span)?,
        },
    }))
}

fn region(told: &Told<'_>, file: usize, span: &Range<usize>) -> Option<Value> {
    let place = told.place(file, span)?;
    Some(json!({
        "startLine": place.begin.line,
        "startColumn": place.begin.column,
        "endLine": place.end.line,
        "endColumn": place.end.column,
        "byteOffset": span.start,
        "byteLength": span.len(),
    }))
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Note => "note",
    }
}

/// Converts a path to a URI (RFC 3986); relative paths stay relative.
fn uri(path: &str) -> String {
    let mut written = String::new();
    if path.starts_with('/') {
        written.push_str("file://");
    }
    for byte in path.trim_start_matches("./").bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                written.push(char::from(byte));
            }
            byte => written.push_str(&format!("%{byte:02X}")),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_written_as_a_uri() {
        let check = |path: &str, expect: &str| assert_eq!(uri(path), expect);
        check("rel/vm.args", "rel/vm.args");
        check("./a b/é#?%.args", "a%20b/%C3%A9%23%3F%25.args");
        check("/etc/vm.args", "file:///etc/vm.args");
        check("c:x", "c%3Ax");
    }
}
