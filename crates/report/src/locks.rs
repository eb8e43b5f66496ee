//! Lock contention as text: whether there is any, for which locks, and which waits would remain without the most contended locks. With
//! `-v` also the counts by class, by single lock or by place in the source, and the sampled waits.
//!
//! Counts are printed as by `lcnt`: times in whole microseconds, percentages with four digits, and the share of the duration for all
//! threads together.

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

/// The waits that would remain if the most contended locks did not exist. A lower bound: threads that do not wait for one lock reach the
/// next one sooner.
#[derive(Debug, Clone, PartialEq)]
pub struct Remains {
    /// The lock that is assumed not to exist, in addition to those in the entries before.
    pub without: String,
    /// Remaining wait time, summed over all threads.
    pub waited: Nanos,
    /// The lock that is then the most contended one, and its wait time.
    pub next: Option<(String, Nanos)>,
}

/// Data for the page of `beamtune locks`, in addition to the period.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// Whether there is contention; `None` if unknown.
    pub look: Option<&'a Look>,
    /// What threads waited for, the longest wait first.
    pub contended: &'a [Contended],
    /// The tables of counts to show, in this order.
    pub views: &'a [View],
    /// Waits that would remain without the most contended locks.
    pub remains: &'a [Remains],
    /// The outcomes of the rules about locks.
    pub verdicts: &'a Diagnosis,
}

/// Renders the page.
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
    // Without findings, the outcomes of the rules add nothing to the answer.
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

/// Minimum wait time, in percent of the duration, for an entry in the list of remaining waits (judgement).
const MIN_LISTED_PCT: f64 = 0.1;

/// How long locks were counted; `None` if unknown.
fn length(period: &Period) -> Option<Nanos> {
    period.lock_session.as_ref().map(|session| session.length).filter(|length| *length > 0)
}

/// Calculates wait time as a percentage of the duration, as `lcnt` prints it.
fn of_duration(waited: Nanos, length: Option<Nanos>) -> Option<f64> {
    // Like lcnt, uses whole microseconds for both.
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
    let mut out = format!("{}\n", style.bold("Remaining lock waits (lower bound)"));
    for (index, rest) in remains.iter().enumerate() {
        let also = if index == 0 { "without" } else { "and without" };
        let is_little = of_duration(rest.waited, length).is_some_and(|percent| percent < MIN_LISTED_PCT);
        let next = match &rest.next {
            Some(_) if is_little => "almost no wait".to_owned(),
            Some((next, waited)) => format!(
                "{}, most of it for {} ({})",
                share(rest.waited),
                text::sentence(next),
                share(*waited)
            ),
            None => "no other waits".to_owned(),
        };
        let line = format!("{also} {}: {next}", text::sentence(&rest.without));
        out.push_str(&format!("  {}\n", text::wrap(&line, style.width.saturating_sub(4), "    ")));
        if is_little {
            break;
        }
    }
    out
}
