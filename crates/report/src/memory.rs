//! Memory as text: the breakdown of resident memory by use.
//!
//! Three kinds of sizes must not be confused: resident memory (counted pages), mapped memory (address space), and memory in use
//! (blocks counted by the VM or by malloc). Data that were not measured have no row.

mod collected;
mod json;
mod movements;
mod owners;
mod uses;
mod walked;
mod waterfall;

use beamtune_model::memory::{MemoryBreakdown, Movement, Reclaimable, allocators};
use beamtune_model::{Diagnosis, Group, Period};

use crate::diagnosis::{self, Verbosity, View};
use crate::text::{self, Style};

pub use json::render as json;
pub use owners::{Kind, Owner, kinds};

/// Maximum number of rows of a table in a brief page; `-v` shows all rows.
const MAX_BRIEF_ROWS: usize = 12;

/// Renders the page of `beamtune memory`: what resident memory is used for, data requested by options, how memory changed, and findings.
/// `returns` is the estimate from the last requested garbage collection of a sample of processes. `-v` adds all parts with their resident,
/// mapped and used sizes. `-vv` adds the kernel's mappings, and how the numbers were measured.
pub fn render(
    period: &Period,
    movements: &[Movement],
    returns: Option<Reclaimable>,
    verdicts: &Diagnosis,
    view: &View<'_>,
) -> String {
    let style = view.style;
    let bridge = MemoryBreakdown::of(period);
    let allocators = allocators(period);
    let is_brief = view.verbosity == Verbosity::Brief;
    let max_rows = if is_brief { MAX_BRIEF_ROWS } else { usize::MAX };
    let mut sections = vec![uses::render(period, &bridge, &allocators, style)];
    if is_brief {
        sections.push(owners::missing(period, style));
        sections.push(movements::brief(period, movements, style));
    } else {
        sections.push(waterfall::render(&bridge, &allocators, style));
        sections.push(owners::render(period, style));
        sections.push(movements::render(period, movements, style));
    }
    if view.verbosity == Verbosity::Checks {
        sections.push(waterfall::mappings(&bridge, style));
        sections.push(waterfall::sources(period, &bridge, &allocators, style));
    }
    sections.push(walked::render(period, max_rows, style));
    sections.push(collected::render(period, returns, max_rows, style));
    let mut out = diagnosis::heading(period, style);
    out.push_str(&headline(period, &bridge, style));
    for section in sections.iter().filter(|section| !section.is_empty()) {
        out.push('\n');
        out.push_str(section);
    }
    out.push('\n');
    out.push_str(&diagnosis::verdicts(period, verdicts, view));
    out
}

/// Formats a name followed by the pid, or only the pid if there is no name.
fn who(name: &str, pid: &str) -> String {
    match name == pid {
        true => text::clean(pid),
        false => format!("{} {}", text::sentence(name), text::clean(pid)),
    }
}

/// Renders how much memory is resident, and how much of it is not explained.
fn headline(period: &Period, bridge: &MemoryBreakdown, style: Style) -> String {
    let Some(resident) = bridge.resident else {
        let missing = period.missing_group(Group::HostProcess, "resident memory");
        let words = format!(
            "Resident memory is unknown: {}. {}.\n",
            text::sentence(&missing.why),
            next(&missing.next_step)
        );
        return text::wrap(&words, style.width, "");
    };
    let size = style.bold(&format!("{} resident", text::bytes(resident as f64)));
    let swapped = bridge.total(|mapping| mapping.swap);
    let swapped = match swapped > 0 {
        true => format!("; {} more swapped out", text::bytes(swapped as f64)),
        false => String::new(),
    };
    match bridge.unexplained() {
        Some(unexplained) if unexplained <= 0 => format!("{size}, all explained{swapped}\n"),
        Some(unexplained) => {
            format!("{size}, all but {} explained{swapped}\n", text::bytes(unexplained as f64))
        }
        None => {
            let missing = period.missing_group(Group::HostContent, "the contents of its pages");
            let words = format!(
                "Its pages were not read: {}. {}.",
                text::sentence(&missing.why),
                next(&missing.next_step)
            );
            format!("{size}{swapped}\n{}\n", text::wrap(&words, style.width, ""))
        }
    }
}

/// Formats a next step as a separate sentence.
fn next(step: &str) -> String {
    let mut letters = step.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
