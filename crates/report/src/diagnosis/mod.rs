//! A diagnosis as text: what node it is, findings worst first, where the CPU went, how many checks passed, and what to type next.
//!
//! [`Verbosity::Brief`] fits on one screen: at most [`MAX_LINES`], and what does not fit is counted. Everything else is behind `-v`, `-vv`
//! and `beamtune explain`.

mod checks;
mod finding;
mod heading;
#[cfg(test)]
mod tests;

use beamtune_model::{Diagnosis, Finding, Level, Outcome, Period, Verdict};

use crate::account;
use crate::kinds;
use crate::text::{self, Style};
pub use heading::{extent, heading, node_title};

/// Lines of a brief page.
pub const MAX_LINES: usize = 60;
/// Lines of a brief page without findings above notice.
pub const MAX_HEALTHY_LINES: usize = 24;
/// Lines that a brief page keeps for what is not a finding: the heading, CPU, checks, known defects, and what to type next.
const OTHER_LINES: usize = 16;
/// Lines of the first finding, and of each other one that is at least a warning.
const FIRST_LINES: usize = 10;
const FURTHER_LINES: usize = 6;

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Verbosity {
    /// One screen.
    #[default]
    Brief,
    /// `-v`: all evidence, counter-evidence, remedies and risks.
    Evidence,
    /// `-vv`: each check that passed, with its numbers, and each one that was not possible.
    Checks,
}

impl Verbosity {
    /// From how often `-v` was given.
    pub fn of(count: u8) -> Self {
        match count {
            0 => Verbosity::Brief,
            1 => Verbosity::Evidence,
            _ => Verbosity::Checks,
        }
    }
}

/// How a diagnosis is shown.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// Colours and width.
    pub style: Style,
    /// How much.
    pub verbosity: Verbosity,
    /// With it, the page says what to type next.
    pub invocation: Option<Invocation<'a>>,
}

/// What shows this page: `beamtune doctor shop@web1`.
#[derive(Debug, Clone, Copy)]
pub struct Invocation<'a> {
    /// `doctor` or `diagnose`.
    pub command: &'a str,
    /// A node or a recording.
    pub target: &'a str,
}

impl View<'_> {
    /// One screen without colours, and without what to type next.
    pub const PLAIN: View<'static> =
        View { style: Style::PLAIN, verbosity: Verbosity::Brief, invocation: None };

    fn is_brief(&self) -> bool {
        self.verbosity == Verbosity::Brief
    }
}

/// The page of `doctor` and `diagnose`.
pub fn render(period: &Period, diagnosis: &Diagnosis, view: &View<'_>) -> String {
    // A node's memory is better described by `beamtune memory`.
    let is_text = period.is_imported() && !period.is_crash_dump();
    let kinds = Some(kinds::render(period, view.style)).filter(|kinds| is_text && !kinds.is_empty());
    let kinds = kinds.map_or(String::new(), |kinds| format!("{kinds}\n"));
    format!(
        "{}\n{kinds}{}{}{}",
        heading(period, view.style),
        verdicts(period, diagnosis, view),
        checks::not_measured(period, view),
        next(view)
    )
}

/// Findings, where the CPU went, and how many checks passed.
pub fn verdicts(period: &Period, diagnosis: &Diagnosis, view: &View<'_>) -> String {
    let findings = diagnosis.findings();
    let mut out = match findings.is_empty() {
        true => format!("{}\n\n", nothing_found(diagnosis, view.style)),
        false if view.is_brief() => brief_findings(period, &findings, view),
        false => full_findings(period, &findings, view.style),
    };
    if let Some(cpu) = &diagnosis.cpu {
        out.push_str(&match view.is_brief() {
            true => account::bar(cpu, view.style),
            false => format!("{}\n", account::render(cpu, view.style)),
        });
    }
    out.push_str(&checks::render(diagnosis, view));
    format!("{}\n", out.trim_end())
}

/// What one rule says of a node, with all evidence.
pub fn of_rule(period: &Period, diagnosis: &Diagnosis, code: &str, style: Style) -> String {
    let verdict = diagnosis.verdicts.iter().find(|verdict| verdict.code.0 == code);
    let line = |words: String| format!("{}\n", text::wrap(&words, style.width, "  "));
    let said = match verdict.map(|verdict| &verdict.outcome) {
        Some(Outcome::Found(found)) => {
            found.iter().map(|one| finding::full(period, one, true, style)).collect()
        }
        Some(Outcome::Healthy(sentence)) => line(format!("{code} passed: {}", text::sentence(sentence))),
        Some(Outcome::NotJudged { reason, next }) => {
            line(format!("{code} not judged: {}; next: {}", text::sentence(reason), text::sentence(next)))
        }
        None => format!("{code} was not asked\n"),
    };
    format!("{}\n{said}", heading(period, style))
}

fn nothing_found(diagnosis: &Diagnosis, style: Style) -> String {
    let is_judged = |verdict: &Verdict| !matches!(verdict.outcome, Outcome::NotJudged { .. });
    match diagnosis.verdicts.is_empty() || diagnosis.verdicts.iter().any(is_judged) {
        true => style.good("Nothing found."),
        false => "Nothing could be judged.".to_owned(),
    }
}

/// The finding that one follows from, if it was found.
fn cause<'f>(finding: &Finding, findings: &[&'f Finding]) -> Option<&'f Finding> {
    let follows = finding.follows.as_ref()?;
    findings.iter().find(|one| one.code == follows.code).copied()
}

/// Whether a finding has a remedy of its own: not where its cause is worse or equal, and is to be removed first.
fn is_advised(finding: &Finding, findings: &[&Finding]) -> bool {
    cause(finding, findings).is_none_or(|cause| cause.level < finding.level)
}

/// The finding that has a remedy of its own and that one follows from, over any number of steps.
fn root<'f>(finding: &'f Finding, findings: &[&'f Finding]) -> &'f Finding {
    let mut root = finding;
    // Findings that follow from each other in a circle have no root.
    for _ in findings {
        match cause(root, findings) {
            Some(cause) if !is_advised(root, findings) => root = cause,
            _ => break,
        }
    }
    root
}

fn full_findings(period: &Period, findings: &[&Finding], style: Style) -> String {
    let full = |one: &&Finding| format!("{}\n", finding::full(period, one, is_advised(one, findings), style));
    findings.iter().map(full).collect()
}

/// One after the other until the page is full; what a finding explains stands in its own lines.
fn brief_findings(period: &Period, findings: &[&Finding], view: &View<'_>) -> String {
    let own: Vec<&Finding> = findings.iter().copied().filter(|one| is_advised(one, findings)).collect();
    let mut left = MAX_LINES - OTHER_LINES;
    let mut out = String::new();
    let mut shown = 0;
    for (index, one) in own.iter().enumerate() {
        let is_consequence =
            |other: &&Finding| !is_advised(other, findings) && root(other, findings).code == one.code;
        let consequences: Vec<&Finding> = findings.iter().copied().filter(is_consequence).collect();
        let is_first_of_code = own.iter().take(index).all(|before| before.code != one.code);
        let consequences: &[&Finding] = if is_first_of_code { &consequences } else { &[] };
        // A notice takes one line, unless it is the best lead that there is.
        let is_lead = index == 0 && !(one.remedies.is_empty() && consequences.is_empty());
        let is_notice = one.level == Level::Notice && !is_lead;
        let text = match index {
            _ if is_notice => finding::line(one, view.style),
            0 => finding::brief(period, one, consequences, FIRST_LINES, view),
            _ => finding::brief(period, one, consequences, FURTHER_LINES, view),
        };
        // A blank line separates blocks; notices follow each other.
        let is_next_block = own.get(index + 1).is_none_or(|next| !is_notice || next.level != Level::Notice);
        let block = if is_next_block { format!("{text}\n") } else { text };
        let count = block.lines().count();
        if count > left {
            break;
        }
        left -= count;
        shown += 1;
        out.push_str(&block);
    }
    match own.len() - shown {
        0 => out,
        more => format!("{out}{more} more: -v\n\n"),
    }
}

/// What to type for more.
fn next(view: &View<'_>) -> String {
    let Some(Invocation { command, target }) = view.invocation else { return String::new() };
    let (option, what) = match view.verbosity {
        Verbosity::Brief => (" -v", "all evidence and remedies"),
        Verbosity::Evidence => (" -vv", "every check with its numbers"),
        Verbosity::Checks => return String::new(),
    };
    let command = text::clean_words(&format!("beamtune {command} {target}{option}"));
    // A line that wraps could not be copied.
    let fits = format!("Next: {command}    {what}").chars().count() <= view.style.width;
    let what = if fits { format!("    {what}") } else { String::new() };
    format!("\nNext: {}{what}\n", view.style.bold(&command))
}
