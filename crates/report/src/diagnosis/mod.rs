//! A diagnosis as text: the node, the findings with the worst first, the CPU account, how many checks passed, and what to type next.
//!
//! A page with [`Verbosity::Brief`] fits on one screen of [`MAX_LINES`]; findings that do not fit are counted. `-v`, `-vv` and
//! `beamtune explain` show everything else.

mod checks;
mod finding;
mod heading;
#[cfg(test)]
mod tests;

use beamtune_model::diagnosis::WARNING;
use beamtune_model::{Chain, CpuUse, Diagnosis, Finding, Level, Outcome, Period, Signal, Subject};

use crate::account;
use crate::kinds;
use crate::text::{self, Style};
pub use heading::{extent, heading, node_title};

/// Maximum number of lines of a brief page.
pub const MAX_LINES: usize = 60;
/// Maximum number of lines of a brief page without a warning or a critical finding.
pub const MAX_HEALTHY_LINES: usize = 24;
/// Lines of a brief page reserved for everything except findings: heading, CPU, checks, known defects, and what to type next.
const OTHER_LINES: usize = 16;
/// Maximum number of lines of the first finding.
pub const FIRST_LINES: usize = 10;
/// Maximum number of lines of each further finding that is at least a warning.
pub const FURTHER_LINES: usize = 6;

/// If all findings are notices: maximum number of lines of the first one, and of all together.
const LEAD_LINES: usize = 6;
const NOTICE_LINES: usize = 9;

/// How much detail a page has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Verbosity {
    /// One screen.
    #[default]
    Brief,
    /// `-v`: all evidence, counter-evidence, remedies and risks.
    Evidence,
    /// `-vv`: also each check that passed, with its numbers, and each check that was not possible.
    Checks,
}

impl Verbosity {
    /// Returns the verbosity for a number of `-v` options.
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
    /// Amount of detail.
    pub verbosity: Verbosity,
    /// The command that was run; if set, the page says what to type next.
    pub invocation: Option<Invocation<'a>>,
    /// For a recording: when it was made, for the heading, `2026-11-20 02:50 (+01:00)`.
    pub recorded_at: Option<&'a str>,
}

/// The command that shows this page: `beamtune doctor shop@web1`.
#[derive(Debug, Clone, Copy)]
pub struct Invocation<'a> {
    /// `doctor` or `diagnose`.
    pub command: &'a str,
    /// A node or a recording.
    pub target: &'a str,
}

impl View<'_> {
    /// One screen, without colours and without a next command.
    pub const PLAIN: View<'static> =
        View { style: Style::PLAIN, verbosity: Verbosity::Brief, invocation: None, recorded_at: None };

    fn is_brief(&self) -> bool {
        self.verbosity == Verbosity::Brief
    }
}

/// Renders the page of `doctor` and `diagnose`.
pub fn render(period: &Period, diagnosis: &Diagnosis, view: &View<'_>) -> String {
    // Only for imported text: for a node or a crash dump, `beamtune memory` shows more.
    let is_text = period.is_imported() && !period.is_crash_dump();
    let kinds = Some(kinds::render(period, view.style)).filter(|kinds| is_text && !kinds.is_empty());
    let kinds = kinds.map_or(String::new(), |kinds| format!("{kinds}\n"));
    format!(
        "{}\n{kinds}{}{}{}",
        heading::heading_at(period, view.recorded_at, view.style),
        verdicts(period, diagnosis, view),
        checks::not_measured(period, view),
        next(period, diagnosis, view)
    )
}

/// Renders the findings, the CPU account, and how many checks passed.
pub fn verdicts(period: &Period, diagnosis: &Diagnosis, view: &View<'_>) -> String {
    let chains = diagnosis.chains();
    let shown: Vec<&Chain<'_>> = chains
        .iter()
        .filter(|chain| !view.is_brief() || !is_said_by_account(chain, &chains, diagnosis))
        .collect();
    let is_lead = has_lead(&chains);
    let mut out = match summary(&shown, is_lead, diagnosis, view.style) {
        Some(line) => format!("{line}\n\n"),
        None => String::new(),
    };
    out.push_str(&match view.is_brief() {
        true => brief_findings(period, &shown, is_lead, view),
        false => chains.iter().map(|chain| full_chain(period, chain, view.style)).collect(),
    });
    if let Some(cpu) = &diagnosis.cpu {
        out.push_str(&match view.is_brief() {
            true => account::bar(cpu, alone(&chains).as_deref(), view.style),
            false => format!("{}\n", account::render(cpu, view.style)),
        });
    }
    out.push_str(&checks::render(diagnosis, !shown.is_empty(), view));
    format!("{}\n", out.trim_end())
}

/// Returns the reason for unused CPU if the finding reports one.
fn idle_for(finding: &Finding) -> Option<CpuUse> {
    finding.signals.iter().find_map(|signal| match signal {
        Signal::Unused(why) => Some(*why),
        _ => None,
    })
}

/// Returns the name of the single busy process if it keeps the node from using its other CPUs.
fn alone(chains: &[Chain<'_>]) -> Option<String> {
    let finding = chains
        .iter()
        .flat_map(Chain::findings)
        .find(|finding| idle_for(finding) == Some(CpuUse::SerialProcess))?;
    match finding.subject.as_ref()? {
        Subject::Process { name: Some(name), .. } => Some(text::sentence(name)),
        Subject::Process { pid, .. } => Some(text::clean(pid)),
        _ => None,
    }
}

/// Whether a notice may point to a problem. It does if its severity is that of a warning, though uncertain, or if it says why the node
/// cannot use idle CPU.
fn has_lead(chains: &[Chain<'_>]) -> bool {
    let is_lead = |finding: &Finding| {
        finding.severity >= WARNING || idle_for(finding).is_some_and(|why| why != CpuUse::NoRunnable)
    };
    chains.iter().any(|chain| is_lead(chain.cause))
}

/// Whether a notice only repeats the CPU account, and another finding is worse or has the same subject. A notice about a node without
/// work is always redundant.
fn is_said_by_account(chain: &Chain<'_>, chains: &[Chain<'_>], diagnosis: &Diagnosis) -> bool {
    let Some(why) = idle_for(chain.cause).filter(|_| chain.level() == Level::Notice) else { return false };
    let is_in_account =
        diagnosis.cpu.as_ref().is_some_and(|cpu| cpu.shares.iter().any(|share| share.what == why));
    let is_other = |other: &Chain<'_>| {
        let is_same = chain.cause.subject.as_ref().is_some_and(|subject| other.cause.is_about(subject));
        other.level() > Level::Notice || is_same && !std::ptr::eq(other.cause, chain.cause)
    };
    is_in_account && (why == CpuUse::NoRunnable || chains.iter().any(is_other))
}

/// Renders the outcome of one rule, with all evidence.
pub fn of_rule(period: &Period, diagnosis: &Diagnosis, code: &str, style: Style) -> String {
    let verdict = diagnosis.verdicts.iter().find(|verdict| verdict.code.0 == code);
    let line = |words: String| format!("{}\n", text::wrap(&words, style.width, "  "));
    let said = match verdict.map(|verdict| &verdict.outcome) {
        Some(Outcome::Found(found)) => {
            found.iter().map(|one| finding::full(period, one, one.level, true, style)).collect()
        }
        Some(Outcome::Healthy(sentence)) => line(format!("{code} passed: {}", text::sentence(sentence))),
        Some(Outcome::NotJudged { reason, next }) => {
            line(format!("{code} not evaluated: {}; next: {}", text::sentence(reason), text::sentence(next)))
        }
        None => format!("{code} was not asked\n"),
    };
    format!("{}\n{said}", heading(period, style))
}

/// Returns the first line of a page without warnings and critical findings; `None` for other pages.
fn summary(chains: &[&Chain<'_>], has_lead: bool, diagnosis: &Diagnosis, style: Style) -> Option<String> {
    if chains.iter().any(|chain| chain.level() > Level::Notice) {
        return None;
    }
    let (passed, missing) = checks::count(diagnosis);
    if passed == 0 && missing > 0 && chains.is_empty() {
        return Some("Nothing could be evaluated.".to_owned());
    }
    Some(match chains.is_empty() {
        true if passed + missing == 0 => style.good("Nothing found."),
        true => style.good(&format!("No problem found: {}.", checks::count_text(passed, missing))),
        false if has_lead => style.bold("No certain problem found. Worth a look:"),
        false => style.good("No problem found. For information:"),
    })
}

/// Whether the remedies of a finding are shown. They are not if its cause has the same or a worse level and should be fixed first.
fn is_advised(finding: &Finding, chain: &Chain<'_>) -> bool {
    let follows = finding.follows.as_ref();
    let cause = follows.and_then(|follows| chain.findings().find(|one| one.code == follows.code));
    std::ptr::eq(finding, chain.cause) || cause.is_none_or(|cause| cause.level < finding.level)
}

fn full_chain(period: &Period, chain: &Chain<'_>, style: Style) -> String {
    let cause = finding::full(period, chain.cause, chain.level(), true, style);
    let effect = |one: &&Finding| {
        format!("{}\n", finding::full(period, one, one.level, is_advised(one, chain), style))
    };
    let effects: String = chain.effects.iter().map(effect).collect();
    format!("{cause}\n{effects}")
}

/// Renders findings until the page is full; consequences are part of the lines of their cause.
fn brief_findings(period: &Period, chains: &[&Chain<'_>], has_lead: bool, view: &View<'_>) -> String {
    let is_healthy = chains.iter().all(|chain| chain.level() == Level::Notice);
    let (mut left, first_lines) = match is_healthy {
        true => (NOTICE_LINES, LEAD_LINES),
        false => (MAX_LINES - OTHER_LINES, FIRST_LINES),
    };
    let mut out = String::new();
    let mut shown = 0;
    // A notice takes one line, unless it comes first and may point to a problem.
    let is_line = |index: usize, chain: &Chain<'_>| {
        let is_lead =
            has_lead && index == 0 && !(chain.cause.remedies.is_empty() && chain.effects.is_empty());
        chain.level() == Level::Notice && !is_lead
    };
    for (index, chain) in chains.iter().enumerate() {
        let text = match index {
            _ if is_line(index, chain) => finding::line(chain.cause, view.style),
            0 => finding::brief(period, chain, first_lines, view),
            _ => finding::brief(period, chain, FURTHER_LINES, view),
        };
        // A blank line separates blocks, but not consecutive notices.
        let is_last_line =
            chains.get(index + 1).is_none_or(|next| !is_line(index, chain) || !is_line(index + 1, next));
        let block = if is_last_line { format!("{text}\n") } else { text };
        let count = block.lines().count();
        if count > left {
            break;
        }
        left -= count;
        shown += 1;
        out.push_str(&block);
    }
    match chains.len() - shown {
        0 => out,
        more => format!("{out}{more} more: -v\n\n"),
    }
}

/// Shorter periods do not show slow growth (judgement: a leak of some kB per second becomes visible after minutes).
const SHORT_SECONDS: f64 = 60.0;

/// Renders the commands to type next: for more detail, and for a longer recording if nothing was found in a short one.
fn next(period: &Period, diagnosis: &Diagnosis, view: &View<'_>) -> String {
    let Some(Invocation { command, target }) = view.invocation else { return String::new() };
    let more = match view.verbosity {
        Verbosity::Brief => Some(("-v", "all evidence and remedies".to_owned())),
        Verbosity::Evidence => Some(("-vv", "every check with its numbers".to_owned())),
        Verbosity::Checks => None,
    };
    let is_healthy = diagnosis.findings().iter().all(|finding| finding.level == Level::Notice);
    let is_short = command == "doctor" && is_healthy && period.seconds() < SHORT_SECONDS;
    let seconds = period.seconds();
    let longer = is_short.then(|| ("--for 5m", format!("slow growth does not show in {seconds:.0} s")));
    let line = |(label, (option, what)): (&str, (&str, String))| {
        let command = text::clean_words(&format!("beamtune {command} {target} {option}"));
        // A command that wraps could not be copied, so the description is left out if both do not fit on a line.
        let fits = format!("{label}{command}    {what}").chars().count() <= view.style.width;
        let what = if fits { format!("    {what}") } else { String::new() };
        format!("{label}{}{what}\n", view.style.bold(&command))
    };
    let lines: String =
        ["Next: ", "      "].into_iter().zip(more.into_iter().chain(longer)).map(line).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}
