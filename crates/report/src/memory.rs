//! Memory: from what is resident to what the VM uses it for, as a waterfall.
//!
//! Three columns that must not be mixed: what is resident (pages, counted), what is mapped (address space), and what is in
//! use (blocks, as the VM or malloc counts them). A line is missing rather than made up where one was not measured.

mod collected;
mod json;
mod movements;
mod owners;
mod walked;
mod waterfall;

use beamtune_model::memory::{Bridge, Movement, Returns, allocators};
use beamtune_model::{Diagnosis, Group, Period};

use crate::diagnosis::{self, View};
use crate::text::{self, Style};

pub use json::render as json;
pub use owners::{Kind, Owner, kinds};

/// The page of `beamtune memory`: the bridge, what the VM uses it for, what was asked for by name, how memory has moved, and what is
/// wrong with it. `returns` is what follows from the last sample of collections.
pub fn render(
    period: &Period,
    movements: &[Movement],
    returns: Option<Returns>,
    verdicts: &Diagnosis,
    view: &View<'_>,
) -> String {
    let style = view.style;
    let bridge = Bridge::of(period);
    let mut out = diagnosis::heading(period, style);
    out.push('\n');
    out.push_str(&headline(period, &bridge, style));
    let sections = [
        waterfall::render(period, &bridge, &allocators(period), style),
        waterfall::mappings(&bridge, style),
        owners::render(period, style),
        walked::render(period, style),
        collected::render(period, returns, style),
        movements::render(period, movements, style),
    ];
    for section in sections.iter().filter(|section| !section.is_empty()) {
        out.push('\n');
        out.push_str(section);
    }
    out.push('\n');
    out.push_str(&diagnosis::verdicts(period, verdicts, view));
    out
}

/// A name with the pid behind it, or the pid alone where that is all.
fn who(name: &str, pid: &str) -> String {
    match name == pid {
        true => text::clean(pid),
        false => format!("{} {}", text::sentence(name), text::clean(pid)),
    }
}

/// One sentence: how much, and how much of it is explained.
fn headline(period: &Period, bridge: &Bridge, style: Style) -> String {
    let Some(resident) = bridge.resident else {
        let missing = period.missing_group(Group::HostProcess, "resident memory");
        return text::wrap(
            &format!(
                "Resident memory is not known: {}. {}.\n",
                text::sentence(&missing.why),
                next(&missing.next)
            ),
            style.width,
            "",
        );
    };
    let size = style.bold(&text::bytes(resident as f64));
    match bridge.unexplained() {
        Some(unexplained) => {
            let share = 1.0 - unexplained as f64 / resident.max(1) as f64;
            format!(
                "{size} resident; {} of it explained, {} not.\n",
                text::share(Some(share.clamp(0.0, 1.0))),
                text::bytes(unexplained.max(0) as f64)
            )
        }
        None => {
            let missing = period.missing_group(Group::HostContent, "what stands in its pages");
            let why = text::sentence(&missing.why);
            let said = format!("What stands in its pages was not looked at: {why}. {}.", next(&missing.next));
            format!("{size} resident. {}\n", text::wrap(&said, style.width, ""))
        }
    }
}

/// A next step as a sentence of its own.
fn next(step: &str) -> String {
    let mut letters = step.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
