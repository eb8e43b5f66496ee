//! Tables of lock counts, and of sampled waits.

use beamtune_model::units::seconds;
use beamtune_model::{Nanos, Period};

use super::length;
use super::lines::{By, Line, View, lines};
use crate::table::{Align::*, Table};
use crate::text::{self, Style};

/// Maximum number of rows of sampled waits.
const MAX_WAITS: usize = 15;
/// Maximum number of functions of a stack that are shown, from the innermost one.
const MAX_FUNCTIONS: usize = 4;

/// Renders what was counted, and at which cost.
pub fn session(period: &Period, style: Style) -> String {
    let Some(session) = &period.lock_session else { return String::new() };
    let number = |count: i64| text::decimal(count as f64);
    let counted = match length(period) {
        Some(length) => format!("Locks were counted for {:.3} s", seconds(length)),
        None => "Locks were counted".to_owned(),
    };
    let mut words = vec![format!(
        "{counted}: {} locks, {} of them listed individually.",
        number(session.locks),
        number(session.single_locks)
    )];
    if !session.categories.is_empty() {
        words.push(format!("Categories: {}.", session.categories.join(", ")));
    }
    if let Some(reductions) = session.reductions {
        words.push(format!("{} reductions in this time.", number(reductions)));
    }
    if let Some(cost) = session.cost_bytes {
        words.push(format!("Reading the counts used {} of memory on the node.", text::bytes(cost as f64)));
    }
    format!("{}\n", text::wrap(&text::sentence(&words.join(" ")), style.width, ""))
}

/// Renders the counts of a view, and how many lines it leaves out.
pub fn counted(period: &Period, view: &View, style: Style) -> String {
    if period.lock_session.is_none() && period.locks.is_empty() {
        return String::new();
    }
    let heading = match view.by {
        By::Class => "by class",
        By::Lock => "by lock",
        By::Place => "by place in the source",
    };
    let shown = lines(period, view);
    let all = lines(period, &View { most: usize::MAX, ..view.clone() }).len();
    let known = lines(period, &View::all(view.by)).len();
    if shown.is_empty() {
        let why = if known == 0 { "none" } else { "no lock passes the filter" };
        return format!("{} {why}\n", style.bold(&format!("Locks {heading}:")));
    }
    let mut table = Table::new(&columns(view));
    let length = length(period);
    for line in &shown {
        table.row(cells(line, view, length));
    }
    let mut out = format!("{}\n{}", style.bold(&format!("Locks {heading}")), table.render(style));
    let (more, filtered) = (all - shown.len(), known - all);
    if more > 0 || filtered > 0 {
        let more = (more > 0).then(|| format!("{} more", text::decimal(more as f64)));
        let filtered = (filtered > 0).then(|| format!("{} filtered out", text::decimal(filtered as f64)));
        let rest: Vec<_> = more.into_iter().chain(filtered).collect();
        out.push_str(&format!("{}\n", style.dim(&rest.join(", "))));
    }
    if shown.iter().any(|line| !line.is_whole) {
        out.push_str(&style.dim("≥: only the listed locks of the class are known\n"));
    }
    out
}

fn columns(view: &View) -> Vec<(&'static str, crate::table::Align)> {
    let mut columns = vec![("lock", Left)];
    match view.by {
        By::Class => columns.push(("locks", Right)),
        By::Lock => columns.extend([("name", Left), ("locks", Right)]),
        By::Place => columns.push(("place", Left)),
    }
    columns.extend([
        ("tries", Right),
        ("collisions", Right),
        ("collisions %", Right),
        ("waited µs", Right),
        ("duration %", Right),
    ]);
    if view.histogram {
        columns.push(("histogram of waits, doubling from 1 ns to 0.5 s", Left));
    }
    columns
}

fn cells(line: &Line, view: &View, length: Option<Nanos>) -> Vec<String> {
    let number = |count: i64| text::decimal(count as f64);
    let locks = if line.locks == 0 { String::new() } else { number(line.locks) };
    let mut cells = vec![text::clean(&line.class)];
    match view.by {
        By::Class => cells.push(if line.is_whole { locks } else { format!("≥ {locks}") }),
        By::Lock => cells.extend([which(line), locks]),
        By::Place => cells.push(match &line.place {
            Some((file, line)) => format!("{}:{line}", text::clean(file)),
            None => "unknown".to_owned(),
        }),
    }
    cells.extend([
        number(line.tries),
        number(line.collisions),
        format!("{:.4}", line.collision_pct()),
        number(line.waited_us()),
        line.duration_pct(length).map_or_else(String::new, |percent| format!("{percent:.4}")),
    ]);
    if view.histogram {
        cells.push(bars(&line.histogram));
    }
    cells
}

/// Formats the name of a lock, with the entity that it belongs to.
fn which(line: &Line) -> String {
    let id = line.id.as_deref().unwrap_or_default();
    match line.entity.as_deref().filter(|entity| *entity != id) {
        Some(entity) => format!("{} ({})", text::sentence(id), text::sentence(entity)),
        None => text::sentence(id),
    }
}

/// Renders a histogram: one mark per doubling of the length, higher for more waits. The lowest mark means at least one wait.
pub fn bars(histogram: &[i64]) -> String {
    const MARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = histogram.iter().copied().max().unwrap_or(0);
    let mark = |count: &i64| match *count {
        count if count <= 0 => ' ',
        count => {
            let height = (count as f64 / most as f64 * MARKS.len() as f64).ceil() as usize;
            MARKS.get(height.saturating_sub(1)).copied().unwrap_or('█')
        }
    };
    histogram.iter().map(mark).collect::<String>().trim_end().to_owned()
}

/// Renders the sampled waits of a VM that does not count locks.
pub fn waits(period: &Period, style: Style) -> String {
    let length = period.lock_sampling_length().unwrap_or(0);
    if period.lock_waits.is_empty() {
        return match length {
            0 => String::new(),
            length => {
                format!("{} none in {}\n", style.bold("Sampled lock waits:"), text::seconds(seconds(length)))
            }
        };
    }
    let mut table = Table::new(&[
        ("threads", Left),
        ("how", Left),
        ("samples", Right),
        ("waited", Right),
        ("% of time", Right),
        ("function, callers", Left),
    ]);
    for row in period.lock_waits.iter().take(MAX_WAITS) {
        let share = (length > 0).then(|| row.waited as f64 / length as f64 * 100.0);
        let stack: Vec<_> =
            row.stack.iter().take(MAX_FUNCTIONS).map(|function| text::clean(function)).collect();
        table.row([
            text::clean(&row.thread.replace('_', " ")),
            text::clean(&row.how),
            text::decimal(row.samples as f64),
            text::seconds(seconds(row.waited)),
            share.map_or_else(String::new, |share| format!("{share:.1}")),
            if stack.is_empty() { "no stack".to_owned() } else { stack.join(" ← ") },
        ]);
    }
    let mut out = format!("{}\n{}", style.bold("Sampled lock waits"), table.render(style));
    if period.lock_waits.len() > MAX_WAITS {
        out.push_str(&format!("{}\n", style.dim(&format!("{} more", period.lock_waits.len() - MAX_WAITS))));
    }
    out
}
