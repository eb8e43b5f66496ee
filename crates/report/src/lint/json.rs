//! Findings as JSON. `docs/lint-output.schema.json` defines the format. New fields may be added within a version.

use std::ops::Range;

use beamtune_flags::lint::Finding;
use serde::Serialize;

use super::{Report, Told, Unread, level_name, rule_of};
use crate::json::pretty;

/// Version of the format; increased when a field changes its meaning or is removed.
pub const VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    releases: &'a [u32],
    summary: Summary,
    findings: Vec<FindingDocument<'a>>,
    unread: Vec<UnreadDocument<'a>>,
}

#[derive(Serialize)]
struct Summary {
    files: usize,
    errors: usize,
    warnings: usize,
    notes: usize,
    fixable: usize,
    unread: usize,
}

#[derive(Serialize)]
struct FindingDocument<'a> {
    code: &'static str,
    rule: Option<&'static str>,
    level: &'static str,
    #[serde(flatten)]
    place: PlaceDocument<'a>,
    flag: &'a str,
    releases: &'a [u32],
    message: &'a str,
    reason: &'a str,
    remedy: &'a str,
    page: String,
    fix: Option<FixDocument<'a>>,
    related: Vec<Related<'a>>,
}

/// Lines and columns count from 1, columns in characters; the end is after the last character. Offsets are in bytes and count from 0.
#[derive(Serialize)]
struct PlaceDocument<'a> {
    file: &'a str,
    line: usize,
    column: usize,
    end_line: usize,
    end_column: usize,
    offset_bytes: usize,
    length_bytes: usize,
}

#[derive(Serialize)]
struct FixDocument<'a> {
    what: &'a str,
    safe: bool,
    edits: Vec<EditDocument<'a>>,
}

#[derive(Serialize)]
struct EditDocument<'a> {
    offset_bytes: usize,
    length_bytes: usize,
    replacement: &'a str,
}

#[derive(Serialize)]
struct Related<'a> {
    #[serde(flatten)]
    place: PlaceDocument<'a>,
    message: &'a str,
}

#[derive(Serialize)]
struct UnreadDocument<'a> {
    file: &'a str,
    line: Option<usize>,
    column: Option<usize>,
    message: &'a str,
}

/// Renders the findings as a JSON document, indented, with a final newline.
pub fn render(report: &Report<'_>) -> String {
    let (count, told) = (report.count(), Told::of(report));
    let document = Document {
        version: VERSION,
        releases: report.releases,
        summary: Summary {
            files: report.linted.len(),
            errors: count.errors,
            warnings: count.warnings,
            notes: count.notes,
            fixable: count.fixable,
            unread: report.unread.len(),
        },
        findings: report.findings.iter().filter_map(|finding| document(&told, finding)).collect(),
        unread: report.unread.iter().map(unread).collect(),
    };
    pretty(&document)
}

fn document<'a>(told: &Told<'a>, finding: &'a Finding) -> Option<FindingDocument<'a>> {
    Some(FindingDocument {
        code: finding.code.as_str(),
        rule: rule_of(finding).map(|rule| rule.name),
        level: level_name(finding.level),
        place: place(told, finding.file, &finding.span)?,
        flag: &finding.flag,
        releases: &finding.releases,
        message: &finding.message,
        reason: &finding.reason,
        remedy: &finding.remedy,
        page: finding.code.page(),
        fix: finding.fix.as_ref().map(|fix| FixDocument {
            what: &fix.what,
            safe: fix.safe,
            edits: fix
                .edits
                .iter()
                .map(|edit| EditDocument {
                    offset_bytes: edit.span.start,
                    length_bytes: edit.span.len(),
                    replacement: &edit.replacement,
                })
                .collect(),
        }),
        related: finding
            .related
            .iter()
            .filter_map(|(file, span, message)| Some(Related { place: place(told, *file, span)?, message }))
            .collect(),
    })
}

fn place<'a>(told: &Told<'a>, file: usize, span: &Range<usize>) -> Option<PlaceDocument<'a>> {
    let place = told.place(file, span)?;
    Some(PlaceDocument {
        file: place.name,
        line: place.begin.line,
        column: place.begin.column,
        end_line: place.end.line,
        end_column: place.end.column,
        offset_bytes: span.start,
        length_bytes: span.len(),
    })
}

fn unread(unread: &Unread) -> UnreadDocument<'_> {
    UnreadDocument {
        file: &unread.name,
        line: unread.at.map(|at| at.line),
        column: unread.at.map(|at| at.column),
        message: &unread.message,
    }
}
