//! The limits of the page that `diagnose` prints.

use beamtune_model::{Diagnosis, Level, Period};
use beamtune_report::diagnosis::{
    self, FIRST_LINES, FURTHER_LINES, Invocation, MAX_HEALTHY_LINES, MAX_LINES, View,
};
use beamtune_report::text;

/// Renders the page of a recording, as it would be written to a file.
pub fn page(period: &Period, diagnosis: &Diagnosis) -> String {
    let invocation = Some(Invocation { command: "diagnose", target: "lab.beamtune" });
    diagnosis::render(period, diagnosis, &View { invocation, ..View::PLAIN })
}

/// Lists the limits that a page exceeds. `worst` is the level of its worst finding.
pub fn broken(page: &str, worst: Option<Level>) -> Vec<String> {
    let is_healthy = worst.is_none_or(|level| level == Level::Notice);
    let mut broken = Vec::new();
    let mut check = |lines: usize, most: usize, what: &str| {
        if lines > most {
            broken.push(format!("{lines} lines{what} (limit {most})"));
        }
    };
    check(page.lines().count(), if is_healthy { MAX_HEALTHY_LINES } else { MAX_LINES }, "");
    let is_finding = |block: &&str| ["CRITICAL", "WARNING"].iter().any(|level| block.starts_with(level));
    for (index, block) in page.split("\n\n").filter(is_finding).enumerate() {
        let (most, what) = match index {
            0 => (FIRST_LINES, " for the first finding"),
            _ => (FURTHER_LINES, " for a further finding"),
        };
        check(block.lines().count(), most, what);
    }
    let widest = page.lines().map(text::width).max().unwrap_or(0);
    if widest > View::PLAIN.style.width {
        broken.push(format!("{widest} columns (limit {})", View::PLAIN.style.width));
    }
    if page.lines().any(|line| line.trim_end().ends_with('…')) {
        broken.push("truncated text".to_owned());
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_checked() {
        let check =
            |page: &str, worst: Option<Level>, expect: &[&str]| assert_eq!(broken(page, worst), expect);
        let lines = |count: usize| "x\n".repeat(count);
        check(&lines(60), Some(Level::Warning), &[]);
        check(&lines(61), Some(Level::Warning), &["61 lines (limit 60)"]);
        check(&lines(25), Some(Level::Notice), &["25 lines (limit 24)"]);
        let page = format!("node\n\nWARNING a\n{}\nCRITICAL b\n{}\n", lines(9), lines(6));
        check(&page, Some(Level::Critical), &["7 lines for a further finding (limit 6)"]);
        check(&format!("{}\ncut…\n", "x".repeat(101)), None, &["101 columns (limit 100)", "truncated text"]);
    }
}
