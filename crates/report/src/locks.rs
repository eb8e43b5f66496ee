//! Lock contention: whether there is any, for which locks, and what would remain without the first ones. With `-v` the counts by class, by
//! single lock or by place in the source, and the waits that were sampled.
//!
//! The counts are those that `lcnt` prints: time in whole microseconds, shares with four digits, the share of the duration of all threads
//! together.

mod answer;
mod json;
mod lines;
mod look;
mod tables;

use beamtune_model::{Diagnosis, Nanos, Period};

use crate::diagnosis::{self, Verbosity};
use crate::text::{self, Style};

pub use answer::Contended;
pub use json::render as json;
pub use lines::{By, Filter, Line, Sort, View, lines};
pub use look::{Answer, Blocked, Look, WaitShare};

/// The waits that would remain without the first locks. A lower bound: threads that do not wait for one lock reach the next one sooner.
#[derive(Debug, Clone, PartialEq)]
pub struct Remains {
    /// What is removed, together with those before it.
    pub without: String,
    /// The remaining wait time of all threads together.
    pub waited: Nanos,
    /// The next lock, and its own wait time.
    pub next: Option<(String, Nanos)>,
}

/// What the page of `beamtune locks` shows besides the period.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// Whether there is contention; `None` if that is unknown.
    pub look: Option<&'a Look>,
    /// What threads waited for, the longest wait first.
    pub contended: &'a [Contended],
    /// The tables of counts, in this order.
    pub views: &'a [View],
    /// What would remain.
    pub remains: &'a [Remains],
    /// What is wrong.
    pub verdicts: &'a Diagnosis,
}

/// The page.
pub fn render(period: &Period, page: &Page<'_>, view: &diagnosis::View<'_>) -> String {
    let style = view.style;
    let is_brief = view.verbosity == Verbosity::Brief;
    let mut sections = vec![answer::render(period, page, !is_brief, style)];
    if !is_brief {
        sections.push(page.look.map_or_else(String::new, |look| look::render(look, style)));
        sections.push(tables::session(period, style));
    }
    sections.extend(page.views.iter().map(|view| tables::counted(period, view, style)));
    if !is_brief {
        sections.push(tables::waits(period, style));
        sections.push(remains(period, page.remains, style));
    }
    // Without findings, the answer says it all.
    if !is_brief || !page.verdicts.findings().is_empty() {
        sections.push(diagnosis::verdicts(period, page.verdicts, view));
    }
    let mut out = diagnosis::heading(period, style);
    for section in sections.iter().filter(|section| !section.is_empty()) {
        out.push('\n');
        out.push_str(section);
    }
    out
}

/// Locks with shorter waits, in percent of the duration, are not listed (judgement).
const MIN_LISTED_PCT: f64 = 0.1;

/// How long locks were counted; `None` if unknown.
fn length(period: &Period) -> Option<Nanos> {
    period.lock_session.as_ref().map(|session| session.length).filter(|length| *length > 0)
}

/// Wait time as `lcnt` prints it: a share of the duration in percent.
fn of_duration(waited: Nanos, length: Option<Nanos>) -> Option<f64> {
    // Both in whole microseconds, as in lcnt.
    length.map(|length| (waited / 1_000) as f64 / (length / 1_000).max(1) as f64 * 100.0)
}

fn remains(period: &Period, remains: &[Remains], style: Style) -> String {
    if remains.is_empty() {
        return String::new();
    }
    let length = length(period);
    let share = |waited: Nanos| match of_duration(waited, length) {
        Some(percent) => format!("{percent:.1} % of the duration"),
        None => text::seconds(waited as f64 / 1e9),
    };
    let mut out = format!("{}\n", style.bold("What would remain (a lower bound)"));
    for (index, rest) in remains.iter().enumerate() {
        let also = if index == 0 { "without" } else { "also without" };
        let is_little = of_duration(rest.waited, length).is_some_and(|percent| percent < MIN_LISTED_PCT);
        let next = match &rest.next {
            Some(_) if is_little => "almost no wait".to_owned(),
            Some((next, waited)) => format!(
                "{}, most of it for {} ({})",
                share(rest.waited),
                text::sentence(next),
                share(*waited)
            ),
            None => "no other wait".to_owned(),
        };
        let line = format!("{also} {}: {next}", text::sentence(&rest.without));
        out.push_str(&format!("  {}\n", text::wrap(&line, style.width.saturating_sub(4), "    ")));
        if is_little {
            break;
        }
    }
    out
}
