//! Locks: what was counted of them, by class, by single lock or by place in the source; on a VM that does not count, whether its threads
//! wait and in what; and what would remain if the first ones were gone.
//!
//! The numbers are those that lock counting's own tool prints for the same counts: time in whole microseconds, shares with four digits,
//! the share of the duration of all threads together.

mod json;
mod lines;
mod look;
mod tables;

use beamtune_model::{Diagnosis, Nanos, Period};

use crate::diagnosis;
use crate::text::{self, Style};

pub use json::render as json;
pub use lines::{By, Filter, Line, Sort, View, lines};
pub use look::{Answer, Blocked, Look};

/// What would still be waited for if the first locks were gone, one after the other. It is at least that: whoever does not wait for one
/// lock any more comes to the next one sooner.
#[derive(Debug, Clone, PartialEq)]
pub struct Remains {
    /// What is gone, together with those before it.
    pub without: String,
    /// What would still be waited, of all threads together.
    pub waited: Nanos,
    /// The next one, and its own waited time.
    pub next: Option<(String, Nanos)>,
}

/// What the page of `beamtune locks` is made of, beside the period.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// Whether threads wait, as far as that is seen from outside; `None` where nobody looked.
    pub look: Option<&'a Look>,
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
    let mut out = diagnosis::heading(period, style);
    let mut sections = vec![
        page.look.map_or_else(String::new, |look| look::render(look, style)),
        tables::session(period, style),
    ];
    sections.extend(page.views.iter().map(|view| tables::counted(period, view, style)));
    sections.push(tables::waits(period, style));
    sections.push(remains(period, page.remains, style));
    for section in sections.iter().filter(|section| !section.is_empty()) {
        out.push('\n');
        out.push_str(section);
    }
    out.push('\n');
    out.push_str(&diagnosis::verdicts(period, page.verdicts, view));
    out
}

/// What is waited for less than this, in percent of the duration, is not told one by one.
const LITTLE_PCT: f64 = 0.1;

/// How long locks were counted; `None` where that is not known.
fn length(period: &Period) -> Option<Nanos> {
    period.lock_session.as_ref().map(|session| session.length).filter(|length| *length > 0)
}

/// Time waited as lock counting prints it: a share of the duration in percent.
fn of_duration(waited: Nanos, length: Option<Nanos>) -> Option<f64> {
    // Both in whole microseconds, as lock counting has them.
    length.map(|length| (waited / 1_000) as f64 / (length / 1_000).max(1) as f64 * 100.0)
}

fn remains(period: &Period, remains: &[Remains], style: Style) -> String {
    if remains.is_empty() {
        return String::new();
    }
    let length = length(period);
    let told = |waited: Nanos| match of_duration(waited, length) {
        Some(percent) => format!("{percent:.1} % of the duration"),
        None => text::seconds(waited as f64 / 1e9),
    };
    let mut out = format!("{}\n", style.bold("What would remain, at least"));
    for (index, rest) in remains.iter().enumerate() {
        let also = if index == 0 { "without" } else { "also without" };
        let is_little = of_duration(rest.waited, length).is_some_and(|percent| percent < LITTLE_PCT);
        let next = match &rest.next {
            Some(_) if is_little => "hardly anything else is waited for".to_owned(),
            Some((next, waited)) => format!(
                "{} waited, most of it for {} ({})",
                told(rest.waited),
                text::sentence(next),
                told(*waited)
            ),
            None => "nothing else is waited for".to_owned(),
        };
        let line = format!("{also} {}: {next}", text::sentence(&rest.without));
        out.push_str(&format!("  {}\n", text::wrap(&line, style.width.saturating_sub(4), "    ")));
        if is_little {
            break;
        }
    }
    out
}
