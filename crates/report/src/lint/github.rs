//! Findings as GitHub workflow commands; GitHub shows them next to the changed lines.
//!
//! A finding is one line: `::error file=…,line=…::…`. Characters that have a meaning in such a line are escaped as in a URL; otherwise
//! the content of a file could inject commands into the log (docs.github.com, "Workflow commands for GitHub Actions").

use beamtune_flags::lint::Level;

use super::{Report, Told, message, rule_of};

/// Renders one line per finding and per file that could not be read.
pub fn render(report: &Report<'_>) -> String {
    let told = Told::of(report);
    let mut out = String::new();
    for finding in report.findings {
        let Some(place) = told.place(finding.file, &finding.span) else { continue };
        let is_file = report.linted.get(finding.file).is_some_and(|linted| linted.is_file);
        let command = match finding.level {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Note => "notice",
        };
        let rule = rule_of(finding).map(|rule| format!(" {}", rule.name)).unwrap_or_default();
        let mut properties = Vec::new();
        // A line number is meaningless without a file.
        if is_file {
            properties.push(format!("file={}", property(place.name.trim_start_matches("./"))));
            properties.push(format!("line={}", place.begin.line));
            properties.push(format!("endLine={}", place.end.line));
            if place.begin.line == place.end.line {
                properties.push(format!("col={}", place.begin.column));
                properties.push(format!("endColumn={}", place.end.column));
            }
        }
        properties.push(format!("title={}", property(&format!("{}{rule}", finding.code))));
        let mut message = message(report, finding);
        for more in [&finding.reason, &finding.remedy] {
            if !more.is_empty() {
                message.push_str(&format!("\n{more}"));
            }
        }
        out.push_str(&format!("::{command} {}::{}\n", properties.join(","), data(&message)));
    }
    for unread in report.unread {
        let mut properties = vec![format!("file={}", property(unread.name.trim_start_matches("./")))];
        if let Some(at) = unread.at {
            properties.push(format!("line={}", at.line));
            properties.push(format!("col={}", at.column));
        }
        properties.push("title=not linted".to_owned());
        out.push_str(&format!("::error {}::{}\n", properties.join(","), data(&unread.message)));
    }
    out
}

/// Escapes a message.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes the value of a property.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_end_the_command_or_begin_another() {
        assert_eq!(data("a%b\r\n::error::x"), "a%25b%0D%0A::error::x");
        assert_eq!(property("a,line=1::x\n"), "a%2Cline=1%3A%3Ax%0A");
    }
}
