//! Everything except findings: known defects of the release, checks that passed, checks that were not possible, and gaps in the recording.

use std::collections::HashMap;

use beamtune_model::{Diagnosis, Finding, Outcome, Period};

use super::{Verbosity, View};
use crate::text::{self, Style};

/// Maximum number of lines of a brief page for known defects, and for gaps.
const BRIEF_LINES: usize = 2;
/// Minimum number of rules that lack the same data for a brief page to say what to do. On a usual node at most two rules do (measured on
/// 53 recordings of labs).
const MIN_ALIKE: usize = 4;

/// Returns how many checks passed, and how many were not possible.
pub(super) fn count(diagnosis: &Diagnosis) -> (usize, usize) {
    let of = |is_meant: fn(&Outcome) -> bool| {
        diagnosis.verdicts.iter().filter(|verdict| is_meant(&verdict.outcome)).count()
    };
    (
        of(|outcome| matches!(outcome, Outcome::Healthy(_))),
        of(|outcome| matches!(outcome, Outcome::NotJudged { .. })),
    )
}

/// Formats both counts: `84 checks passed, 3 not evaluated`.
pub(super) fn count_text(passed: usize, missing: usize) -> String {
    let checks = if passed == 1 { "check" } else { "checks" };
    let missing = if missing > 0 { format!(", {missing} not evaluated") } else { String::new() };
    format!("{passed} {checks} passed{missing}")
}

/// Renders known defects, checks that passed, and checks that were not possible. A page without findings already begins with their counts.
pub(super) fn render(diagnosis: &Diagnosis, has_findings: bool, view: &View<'_>) -> String {
    let passed: Vec<(&str, &str)> = diagnosis
        .verdicts
        .iter()
        .filter_map(|verdict| match &verdict.outcome {
            Outcome::Healthy(sentence) => Some((verdict.code.0, sentence.as_str())),
            _ => None,
        })
        .collect();
    let not_judged = not_judged(diagnosis);
    let known_defects = |finding: &Finding| match view.is_brief() {
        true => brief_defects(finding, view.style),
        false => defects(finding, view.style),
    };
    let latent: String = diagnosis.latent().into_iter().map(known_defects).collect();
    let checks = match view.verbosity {
        Verbosity::Checks => all(&passed, &not_judged, view.style),
        Verbosity::Evidence => counts(passed.len(), &not_judged, view.style),
        Verbosity::Brief => brief_counts(passed.len(), &not_judged, has_findings, view.style),
    };
    format!("{latent}{checks}")
}

/// Rules without data that need the same next step.
struct NotJudged<'d> {
    /// Code and name of each rule.
    rules: Vec<(&'d str, &'d str)>,
    reason: &'d str,
    next: &'d str,
}

/// Groups rules without data by the next step. The group with the fewest rules comes first, since it is the most specific.
fn not_judged(diagnosis: &Diagnosis) -> Vec<NotJudged<'_>> {
    let mut all: Vec<NotJudged<'_>> = Vec::new();
    for verdict in &diagnosis.verdicts {
        let Outcome::NotJudged { reason, next } = &verdict.outcome else { continue };
        let rule = (verdict.code.0, verdict.rule);
        match all.iter_mut().find(|known| known.next == next) {
            Some(known) => known.rules.push(rule),
            None => all.push(NotJudged { rules: vec![rule], reason, next }),
        }
    }
    all.sort_by_key(|one| one.rules.len());
    all
}

/// Renders how many checks passed, and the next step if many other checks lack the same data.
fn brief_counts(passed: usize, not_judged: &[NotJudged<'_>], has_findings: bool, style: Style) -> String {
    let missing: usize = not_judged.iter().map(|one| one.rules.len()).sum();
    let counted = count_text(passed, missing);
    let hint = if missing > 0 { " (-vv)" } else { "" };
    let counted =
        if has_findings && passed + missing > 0 { format!("{counted}{hint}\n") } else { String::new() };
    let most = not_judged.last().filter(|most| most.rules.len() >= MIN_ALIKE);
    let why = most.map_or(String::new(), |most| {
        format!("To evaluate {} of the {missing}: {}", most.rules.len(), text::sentence(most.next))
    });
    let why: String = text::clauses(&why, style.width, 1).iter().map(|line| format!("{line}\n")).collect();
    format!("{counted}{why}")
}

/// Renders how many checks passed, and the next step for each check that was not possible.
fn counts(passed: usize, not_judged: &[NotJudged<'_>], style: Style) -> String {
    let missing: usize = not_judged.iter().map(|one| one.rules.len()).sum();
    let why: Vec<String> = not_judged
        .iter()
        .map(|one| {
            let names: Vec<&str> = one.rules.iter().map(|(_, name)| *name).collect();
            format!("{}: {}", names.join(", "), text::sentence(one.next))
        })
        .collect();
    let why = if missing > 0 { format!(" ({})", why.join("; ")) } else { String::new() };
    let out = format!("{}{why}", count_text(passed, missing));
    let lines = if passed + missing > 0 { text::lines(&out, style.width, usize::MAX) } else { Vec::new() };
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

/// Renders each check with its numbers.
fn all(passed: &[(&str, &str)], not_judged: &[NotJudged<'_>], style: Style) -> String {
    let body = style.width.saturating_sub(8).max(40);
    let mut out = String::new();
    let mut section = |title: String, lines: Vec<String>| {
        if !lines.is_empty() {
            out.push_str(&format!("{title}\n"));
            for line in lines {
                out.push_str(&format!("  {}\n", text::wrap(&line, body, "        ")));
            }
        }
    };
    let passed =
        passed.iter().map(|(code, sentence)| format!("{code} {}", text::sentence(sentence))).collect();
    section(style.good("Passed"), passed);
    let not_judged = not_judged
        .iter()
        .map(|one| {
            let names: Vec<String> = one.rules.iter().map(|(code, name)| format!("{code} {name}")).collect();
            format!(
                "{}: {}; next: {}",
                names.join(", "),
                text::sentence(one.reason),
                text::sentence(one.next)
            )
        })
        .collect();
    section(style.bold("Not evaluated"), not_judged);
    out
}

/// Renders the known defects in a few lines.
fn brief_defects(finding: &Finding, style: Style) -> String {
    let words = format!("{}: {}", finding.code, finding.title);
    let lines = text::clauses(&text::sentence(&words), style.width, BRIEF_LINES);
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

/// Renders one line per known defect, and the release that fixes all of them.
fn defects(finding: &Finding, style: Style) -> String {
    let body = style.width.saturating_sub(4).max(40);
    let title = text::wrap(&text::sentence(&finding.title), body, "");
    let mut out = format!("{}\n", style.bold(&title));
    let mut add = |line: String| out.push_str(&format!("  {}\n", text::wrap(&line, body, "      ")));
    for evidence in &finding.evidence {
        let value = evidence.text.as_deref().map_or(String::new(), text::sentence);
        add(format!("{}: {value}", text::sentence(&evidence.what)));
    }
    finding.against.iter().for_each(|against| add(format!("but {}", text::sentence(against))));
    for remedy in &finding.remedies {
        add(format!("fix {} ({} {})", text::sentence(&remedy.change), finding.code, finding.rule));
    }
    format!("{out}\n")
}

/// Renders what was not measured, and why; on a brief page in at most two lines.
pub(super) fn not_measured(period: &Period, view: &View<'_>) -> String {
    let gaps: Vec<String> = gaps(period).iter().map(Gap::text).collect();
    if gaps.is_empty() {
        return String::new();
    }
    let max_lines = if view.is_brief() { BRIEF_LINES } else { usize::MAX };
    let words = format!("Not measured: {}", gaps.join("; "));
    text::clauses(&words, view.style.width, max_lines).into_iter().map(|line| format!("{line}\n")).collect()
}

/// A source without data for some time.
struct Gap<'p> {
    source: &'p str,
    reason: &'p str,
    seconds: f64,
}

impl Gap<'_> {
    fn text(&self) -> String {
        let length =
            if self.seconds > 0.0 { format!(" ({})", text::seconds(self.seconds)) } else { String::new() };
        format!("{}{length}: {}", text::clean(self.source), text::sentence(self.reason))
    }
}

/// Merges gaps by source and reason, in the order of their first occurrence.
fn gaps(period: &Period) -> Vec<Gap<'_>> {
    let (mut gaps, mut places) = (Vec::<Gap<'_>>::new(), HashMap::new());
    for gap in &period.gaps {
        let place = *places.entry((&gap.source, &gap.reason)).or_insert_with(|| {
            gaps.push(Gap { source: &gap.source, reason: &gap.reason, seconds: 0.0 });
            gaps.len() - 1
        });
        if let Some(known) = gaps.get_mut(place) {
            known.seconds += gap.end.saturating_sub(gap.begin) as f64 / 1e9;
        }
    }
    gaps
}
