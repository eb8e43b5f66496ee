//! A load second by second, with data of the VM and its host in the same seconds.

use beamtune_model::load::LoadSecond;
use beamtune_model::{Group, Metric, Period, metrics};

use crate::table::{Align::*, Table};
use crate::text::{self, Style};

/// A second of a load, with the recorded data of this second.
#[derive(Debug)]
pub struct Row<'a> {
    /// Wall-clock time at which the second began.
    pub at: String,
    /// Result of the load in this second.
    pub second: &'a LoadSecond,
    /// Period between the samples around this second; `None` if there was no sample.
    pub period: Option<Period>,
}

/// Renders one line per second, and remarks needed to understand them.
pub fn render(rows: &[Row<'_>], style: Style) -> String {
    let mut table = Table::new(&[
        ("time", Left),
        ("due", Right),
        ("done", Right),
        ("errors", Right),
        ("p50", Right),
        ("p99", Right),
        ("CPU", Right),
        ("active", Right),
        ("waited", Right),
        ("run queue", Right),
        ("GC", Right),
        ("RSS", Right),
        ("", Left),
    ]);
    for Row { at, second, period } in rows {
        let optional = |value: Option<u64>, text: &dyn Fn(f64) -> String| {
            value.map_or(String::new(), |value| text(value as f64))
        };
        let time = |nanoseconds: f64| text::seconds(nanoseconds / 1e9);
        let mut cells = vec![
            at.clone(),
            optional(second.due, &text::decimal),
            text::decimal(second.done as f64),
            text::decimal(second.errors as f64),
            optional(second.p50_ns, &time),
            optional(second.p99_ns, &time),
        ];
        cells.extend(period.as_ref().map_or_else(Default::default, node));
        let bound = second.bound.as_deref().map(|why| format!("generator-bound: {}", text::clean(why)));
        cells.push(bound.unwrap_or_default());
        table.row(cells);
    }
    let bound = rows.iter().filter(|row| row.second.bound.is_some()).count();
    let mut out = String::new();
    if bound > 0 {
        let head = format!(
            "Generator-bound in {bound} of {} seconds: the generator or its host was the bottleneck, not the node.",
            rows.len()
        );
        out.push_str(&format!("{}\n", style.bold(&head)));
    }
    out.push_str(&table.render(style));
    let words = "Columns up to p99 are results of the load generator. CPU, active and waited are in cores: active = schedulers of \
        all kinds that were not idle; waited = threads of the VM that were runnable without a CPU. The node's columns are means \
        between the samples around each second; run queue is the maximum total length.";
    out.push_str(&format!("\n{}\n", text::wrap(words, style.width, "")));
    out
}

/// Formats the data of the node: CPU, active, waited, run queue, garbage collections, RSS.
fn node(period: &Period) -> [String; 6] {
    let cores = |value: Option<f64>| value.map_or(String::new(), |cores| format!("{cores:.2}"));
    let sum = |group: Group, value: &dyn Fn(&str) -> Option<f64>| {
        period.entities(group).into_iter().filter_map(value).reduce(|sum, next| sum + next)
    };
    let of_process = |metric: &Metric| period.cores(metric, "").ok();
    let used = of_process(&metrics::PROCESS_USER).zip(of_process(&metrics::PROCESS_SYSTEM));
    let active = sum(Group::SchedulerTime, &|scheduler| {
        let rate = |metric| period.rate(metric, scheduler).ok();
        let total = rate(&metrics::SCHEDULER_TOTAL).filter(|total| *total > 0.0)?;
        Some(rate(&metrics::SCHEDULER_ACTIVE)? / total)
    });
    let waited = sum(Group::HostThread, &|thread| period.cores(&metrics::THREAD_WAIT, thread).ok());
    let queue = sum(Group::RunQueue, &|queue| Some(period.stat(&metrics::RUN_QUEUE, queue).ok()?.max as f64));
    let collections = period.rate(&metrics::GARBAGE_COLLECTIONS, "").ok();
    let rss = period.stat(&metrics::RSS, "").ok();
    [
        cores(used.map(|(user, system)| user + system)),
        cores(active),
        cores(waited),
        queue.map_or(String::new(), text::decimal),
        collections.map_or(String::new(), |rate| format!("{}/s", text::decimal(rate))),
        rss.map_or(String::new(), |rss| text::bytes(rss.mean())),
    ]
}
