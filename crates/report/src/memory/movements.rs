//! Changes of memory over time, one line per kind of memory that changed.

use beamtune_model::memory::Movement;
use beamtune_model::{Nanos, Period};

use crate::table::{Align::*, Table};
use crate::text::{self, Style};

/// Minimum length of a period for a trend, in seconds (judgement).
const LONG_ENOUGH_S: f64 = 60.0;

/// Maximum number of lines in a brief page.
const MAX_BRIEF: usize = 4;

/// Renders kinds of memory that grow or shrink significantly, one line each.
pub fn brief(period: &Period, movements: &[Movement], style: Style) -> String {
    if period.seconds() < LONG_ENOUGH_S {
        return String::new();
    }
    let over = text::seconds(period.seconds());
    let mut table = Table::new(&[("", Left), ("", Right), ("", Left)]);
    let sure = movements.iter().filter(|movement| movement.is_significant);
    for (movement, (slope, low, high)) in
        sure.filter_map(|movement| Some((movement, movement.per_hour?))).take(MAX_BRIEF)
    {
        let from = format!("{} to {} in {over}", text::bytes(movement.first), text::bytes(movement.last));
        table.row([
            text::clean(&movement.what),
            format!("{}/h", signed(slope)),
            format!("[{}, {}]  {from}", signed(low), signed(high)),
        ]);
    }
    match table.is_empty() {
        true => format!("No growth in {over}.\n"),
        false => table.body(style),
    }
}

fn signed(bytes: f64) -> String {
    let sign = if bytes > 0.0 { "+" } else { "" };
    format!("{sign}{}", text::bytes(bytes))
}

/// Renders all kinds of memory that changed, with sudden changes of level and daily cycles.
pub fn render(period: &Period, movements: &[Movement], style: Style) -> String {
    if period.seconds() < LONG_ENOUGH_S {
        return String::new();
    }
    let heading = format!("over {}", text::seconds(period.seconds()));
    let mut table = Table::new(&[
        (heading.as_str(), Left),
        ("first", Right),
        ("last", Right),
        ("per hour", Right),
        ("95 % interval", Left),
        ("", Left),
    ]);
    let moved =
        |movement: &&Movement| movement.is_significant || movement.step.is_some() || movement.daily.is_some();
    for movement in movements.iter().filter(moved) {
        let sure = movement.per_hour.filter(|_| movement.is_significant);
        table.row([
            text::clean(&movement.what),
            text::bytes(movement.first),
            text::bytes(movement.last),
            sure.map_or(String::new(), |(slope, ..)| signed(slope)),
            sure.map_or(String::new(), |(_, low, high)| format!("{} to {}", signed(low), signed(high))),
            notes(period, movement).join("; "),
        ]);
    }
    if table.is_empty() {
        return format!("No growth or change of level in {}.\n", text::seconds(period.seconds()));
    }
    table.render(style)
}

fn notes(period: &Period, movement: &Movement) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(step) = &movement.step {
        let with =
            step.with.as_ref().map_or(String::new(), |with| format!(", with {}", text::sentence(with)));
        notes.push(format!(
            "from {} to {} {}{with}",
            text::bytes(step.before),
            text::bytes(step.after),
            after(period, step.at)
        ));
    }
    if let Some(daily) = movement.daily {
        notes.push(format!(
            "daily cycle of {}, peak at {:02}:00 UTC",
            text::bytes(daily.swing),
            daily.peak_hour
        ));
    }
    notes
}

fn after(period: &Period, at: Nanos) -> String {
    format!("after {}", text::seconds(at.saturating_sub(period.begin) as f64 / 1e9))
}
