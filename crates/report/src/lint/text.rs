//! Findings as text. Each begins with its place, so that editors and terminals can jump to it.

use std::collections::BTreeMap;
use std::ops::Range;

use beamtune_flags::lint::{Finding, Level, secrets};

use super::snippet::{Source, snippet};
use super::{Count, Report, Told, counted, level_name, message, releases, rule_of};
use crate::Style;
use crate::text::{clean_path, clean_words, wrap};

/// Renders the findings in the given order, then a summary in one line. Does not list files that could not be read: the caller reports
/// them on standard error.
pub fn render(report: &Report<'_>, style: Style) -> String {
    let told = Told::of(report);
    let mut hidden: BTreeMap<usize, Vec<Range<usize>>> = BTreeMap::new();
    let mut out = String::new();
    for finding in report.findings {
        let text = report.linted.get(finding.file).map_or("", |linted| linted.text);
        let hidden = hidden.entry(finding.file).or_insert_with(|| secrets(text));
        one(&mut out, &told, hidden, finding, style);
    }
    out.push_str(&style.bold(&summary(report)));
    out.push('\n');
    out
}

fn one(out: &mut String, told: &Told<'_>, hidden: &[Range<usize>], finding: &Finding, style: Style) {
    let report = told.report;
    let (Some(place), Some(linted), Some(lines)) = (
        told.place(finding.file, &finding.span),
        report.linted.get(finding.file),
        told.lines.get(finding.file),
    ) else {
        return;
    };
    let rule = rule_of(finding).map(|rule| format!(" {}", rule.name)).unwrap_or_default();
    out.push_str(&format!(
        "{}:{}: {} {}{}\n",
        clean_path(place.name),
        place.begin,
        painted(style, finding.level, level_name(finding.level)),
        finding.code,
        style.dim(&rule),
    ));
    let indent = "    ";
    let wrapped = |text: &str, label: &str| {
        let text = format!("{label}{}", clean_words(text));
        let below = " ".repeat(indent.len() + label.chars().count());
        format!("{indent}{}\n", wrap(&text, style.width.saturating_sub(below.len()), &below))
    };
    out.push_str(&wrapped(&message(report, finding), ""));

    let number = place.begin.line.to_string();
    let gutter = " ".repeat(number.len());
    let source = Source { text: linted.text, lines, hidden };
    let shown = snippet(&source, &finding.span, style.width.saturating_sub(indent.len() + number.len() + 3));
    let bar = style.dim("|");
    out.push_str(&format!("{indent}{} {bar} {}\n", style.dim(&number), shown.line));
    out.push_str(&format!("{indent}{gutter} {bar} {}\n", painted(style, finding.level, &shown.marks)));

    if !finding.reason.is_empty() {
        out.push_str(&wrapped(&finding.reason, "why  "));
    }
    if !finding.remedy.is_empty() {
        out.push_str(&wrapped(&finding.remedy, "do   "));
    }
    if let Some(fix) = &finding.fix {
        let how = if report.is_fixable(finding) {
            " (applied by --fix)"
        } else if linted.is_file {
            " (not applied by --fix: it changes the behaviour of the VM)"
        } else {
            ""
        };
        out.push_str(&wrapped(&format!("{}{how}", fix.what.trim_end_matches('.')), "fix  "));
    }
    for (file, span, what) in &finding.related {
        if let Some(other) = told.place(*file, span) {
            out.push_str(&wrapped(&format!("{}:{} {what}", clean_path(other.name), other.begin), "see  "));
        }
    }
    out.push('\n');
}

/// Returns the summary: `2 errors, 1 warning in 1 of 5 files, for OTP 23 to 29; --fix removes 1 of them`.
fn summary(report: &Report<'_>) -> String {
    let Count { errors, warnings, notes, fixable } = report.count();
    let mut with_findings: Vec<usize> = report.findings.iter().map(|finding| finding.file).collect();
    with_findings.sort_unstable();
    with_findings.dedup();
    let all = counted(report.linted.len(), "file");
    let all =
        if report.linted.iter().all(|linted| linted.is_file) { all } else { all.replace("file", "source") };
    let kinds: Vec<String> = [(errors, "error"), (warnings, "warning"), (notes, "note")]
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| counted(number, what))
        .collect();
    let asked = format!("for OTP {}", releases(report.releases));
    let mut text = if kinds.is_empty() {
        format!("nothing found in {all}, {asked}")
    } else {
        format!("{} in {} of {all}, {asked}", kinds.join(", "), with_findings.len())
    };
    if fixable > 0 {
        text.push_str(&format!("; --fix removes {fixable} of them"));
    }
    if !report.unread.is_empty() {
        text.push_str(&format!("; {} could not be read", counted(report.unread.len(), "file")));
    }
    text
}

fn painted(style: Style, level: Level, text: &str) -> String {
    use beamtune_model::Level as Colour;
    let colour = match level {
        Level::Error => Colour::Critical,
        Level::Warning => Colour::Warning,
        Level::Note => Colour::Notice,
    };
    style.level(colour, text)
}
