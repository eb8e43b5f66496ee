//! Memory over time, a line for each kind that has moved.

use beamtune_model::memory::Movement;
use beamtune_model::{Nanos, Period};

use crate::table::{Align::*, Table};
use crate::text::{self, Style};

/// Recordings shorter than this show what a node does, not where it goes.
const LONG_ENOUGH_S: f64 = 60.0;

/// Lines that are shown.
const MOST: usize = 16;

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
        |movement: &&Movement| movement.is_sure || movement.step.is_some() || movement.daily.is_some();
    for movement in movements.iter().filter(moved).take(MOST) {
        let sure = movement.per_hour.filter(|_| movement.is_sure);
        let signed = |bytes: f64| {
            let sign = if bytes > 0.0 { "+" } else { "" };
            format!("{sign}{}", text::bytes(bytes))
        };
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
        return format!(
            "Over {} nothing has grown, or changed its level.\n",
            text::seconds(period.seconds())
        );
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
            "each day {} up and down, most at {:02}:00 UTC",
            text::bytes(daily.swing),
            daily.peak_hour
        ));
    }
    notes
}

fn after(period: &Period, at: Nanos) -> String {
    format!("after {}", text::seconds(at.saturating_sub(period.begin) as f64 / 1e9))
}
