//! The differences between two recordings.
//!
//! Two recordings rarely have the same load, so counters are compared per unit of work. The unit of work is a reduction, the VM's own
//! measure; if reductions are unknown, counters are compared per second.

mod locks;

use beamtune_model::{Group, Kind, Period, Unit, metrics, units::SECOND_NS};

use crate::diagnosis::{extent, node_title};
use crate::table::{Align::*, Table};
use crate::text::{self, Style};

pub use locks::{Measure, Moved, moved};

/// Smaller relative changes are not shown.
const MIN_CHANGE: f64 = 0.05;
/// Maximum number of rows of a comparison.
const ROWS: usize = 40;

/// One series in both periods.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// `group.name`, with the entity if there is one.
    pub name: String,
    /// In A: rate of a counter per second, or mean of a gauge.
    pub a: f64,
    /// The same value in B.
    pub b: f64,
    /// Ratio b / a, for counters per unit of work; `None` if a is zero.
    pub ratio: Option<f64>,
    unit: Unit,
    kind: Kind,
}

/// Returns all series that both periods have, the largest change first. Leaves out single threads, allocator instances and the series about
/// beamtune itself, which differ at random.
pub fn changes(a: &Period, b: &Period) -> Vec<Change> {
    let work = |period: &Period| period.rate(&metrics::REDUCTIONS, "").ok().filter(|rate| *rate > 0.0);
    let scale = match (work(a), work(b)) {
        (Some(a), Some(b)) => b / a,
        _ => 1.0,
    };
    let mut changes = Vec::new();
    for (series, stat_a) in a.series() {
        let single = !series.entity.is_empty()
            && series.group != Group::HostCgroup
            && series.group != Group::HostPressure;
        if single || series.group == Group::Agent {
            continue;
        }
        let Some(stat_b) = b.find(series.group, &series.entity, &series.name) else { continue };
        let values = match series.kind {
            Kind::Gauge => Some((stat_a.mean(), stat_b.mean())),
            Kind::Counter => stat_a.rate().zip(stat_b.rate()),
        };
        let Some((value_a, value_b)) = values else { continue };
        let expected = if series.kind == Kind::Counter { value_a * scale } else { value_a };
        let ratio = (expected != 0.0).then(|| value_b / expected);
        let entity = if series.entity.is_empty() { String::new() } else { format!(" ({})", series.entity) };
        changes.push(Change {
            name: format!("{}.{}{entity}", series.group, series.name),
            a: value_a,
            b: value_b,
            ratio,
            unit: series.unit,
            kind: series.kind,
        });
    }
    changes.retain(|change| change.a != change.b);
    let size = |change: &Change| change.ratio.filter(|r| *r > 0.0).map_or(f64::INFINITY, |r| r.ln().abs());
    changes.sort_by(|x, y| size(y).total_cmp(&size(x)).then_with(|| x.name.cmp(&y.name)));
    changes
}

/// Renders the comparison as text.
pub fn render(a: &Period, b: &Period, style: Style) -> String {
    let mut out = format!(
        "A  {} · {}\nB  {} · {}\n",
        style.bold(&text::clean(node_title(a))),
        extent(a),
        style.bold(&text::clean(node_title(b))),
        extent(b),
    );
    let mut different = Vec::new();
    let keys: std::collections::BTreeSet<&str> =
        a.facts.iter().chain(b.facts.iter()).map(|(key, _)| key).collect();
    for key in keys {
        if a.facts.get(key) != b.facts.get(key) && !ALWAYS_DIFFERENT.contains(&key) {
            different.push((text::clean(key), fact(a, b, key), fact(b, a, key)));
        }
    }
    let mut facts = Table::new(&[("fact", Left), ("A", Left), ("B", Left)]);
    let key_width = different.iter().map(|(key, ..)| key.chars().count()).max().unwrap_or(0);
    let room = style.width.saturating_sub(key_width + 4) / 2;
    for (key, left, right) in different {
        let cut = |value: &str| text::lines(value, room, 1).pop().unwrap_or_default();
        facts.row([key, cut(&left), cut(&right)]);
    }
    let mut sections = vec![facts.render(style)];
    // Imported text may have no series; then "no difference" would be misleading.
    if a.series().next().is_some() && b.series().next().is_some() {
        sections.push(series(a, b, style));
    }
    sections.push(locks::render(a, b, style));
    for section in sections.iter().filter(|section| !section.is_empty()) {
        out.push_str(&format!("\n{section}"));
    }
    out
}

/// Formats the value of a fact; for a list, only the elements that the other period lacks.
fn fact(period: &Period, other: &Period, key: &str) -> String {
    let value = match (period.facts.list(key), other.facts.list(key)) {
        (Some(list), Some(others)) => {
            list.into_iter().filter(|one| !others.contains(one)).collect::<Vec<_>>().join(" ")
        }
        _ => period.facts.get(key).unwrap_or_default().to_owned(),
    };
    if value.is_empty() { "–".to_owned() } else { text::clean_words(&value) }
}

/// Renders the differences between the series of both periods.
fn series(a: &Period, b: &Period, style: Style) -> String {
    let work = |period: &Period| {
        period.rate(&metrics::REDUCTIONS, "").map(|rate| text::value(rate, Unit::PerSecond))
    };
    let mut out = match (work(a), work(b)) {
        (Ok(work_a), Ok(work_b)) => format!(
            "Work done: {work_a} reductions in A, {work_b} in B. The change of rates is per unit of work.\n\n"
        ),
        _ => "Reductions are unknown in A or B: the change of rates is per second.\n\n".to_owned(),
    };
    let mut table = Table::new(&[("", Left), ("A", Right), ("B", Right), ("change", Right)]);
    let relevant = |change: &Change| change.ratio.is_none_or(|ratio| (ratio - 1.0).abs() >= MIN_CHANGE);
    let all = changes(a, b);
    let shown: Vec<_> = all.iter().filter(|change| relevant(change)).collect();
    for change in shown.iter().take(ROWS) {
        let value = |value: f64| match (change.kind, change.unit) {
            (Kind::Counter, Unit::Nanoseconds) => text::value(value / SECOND_NS as f64, Unit::Cores),
            (Kind::Counter, Unit::Bytes) => format!("{}/s", text::bytes(value)),
            (Kind::Counter, _) => text::value(value, Unit::PerSecond),
            (Kind::Gauge, unit) => text::value(value, unit),
        };
        let ratio = match change.ratio {
            None => "new".to_owned(),
            Some(ratio) if ratio >= 2.0 => format!("× {ratio:.1}"),
            Some(ratio) => format!("{:+.0} %", (ratio - 1.0) * 100.0),
        };
        table.row([text::clean(&change.name), value(change.a), value(change.b), ratio]);
    }
    if table.is_empty() {
        out.push_str("No series differs by 5 % or more.\n");
    } else {
        out.push_str(&table.render(style));
        if shown.len() > ROWS {
            out.push_str(&format!("and {} more\n", shown.len() - ROWS));
        }
        out.push_str("These differences may have several causes. To test one, run beamtune compare.\n");
    }
    out
}

/// Facts that differ with each start of the VM or of the recording, so that a difference means nothing.
const ALWAYS_DIFFERENT: &[&str] =
    &["start_time", "creation", "os_pid", "host_pid", "recorded_by", "locks_watched"];

#[cfg(test)]
mod tests {
    use super::*;
    use beamtune_model::{PeriodBuilder, SampleBuilder, SeriesTable, Span, Tick};

    /// A period of ten seconds, with this number of reductions and garbage collections per second.
    fn period(reductions: i64, collections: i64, processes: i64) -> Period {
        let mut table = SeriesTable::default();
        let mut builder = PeriodBuilder::default();
        for second in 0..=10 {
            let t = second * SECOND_NS;
            let span = Some(Span { begin: t, end: t });
            let tick = Tick { t, incarnation: 0, vm: span, host: span, late: 0 };
            let mut out = SampleBuilder::new(&mut table, tick);
            out.metric(&metrics::REDUCTIONS, "", second * reductions);
            out.metric(&metrics::GARBAGE_COLLECTIONS, "", second * collections);
            out.metric(&metrics::PROCESS_COUNT, "", processes);
            let sample = out.sample;
            builder.sample(&sample, &table);
        }
        builder.finish()
    }

    fn ratio(changes: &[Change], name: &str) -> Option<f64> {
        changes.iter().find(|change| change.name == name).and_then(|change| change.ratio)
    }

    #[test]
    fn cost_per_unit_of_work_is_unchanged_if_only_the_work_doubles() {
        let changes = changes(&period(1_000, 50, 7), &period(2_000, 100, 7));
        assert_eq!(ratio(&changes, "vm.garbage_collections"), Some(1.0));
        assert_eq!(ratio(&changes, "vm.process_count"), None, "equal gauges are not listed");
    }

    #[test]
    fn more_expensive_work_is_a_change() {
        let changes = changes(&period(1_000, 50, 7), &period(2_000, 300, 14));
        assert_eq!(ratio(&changes, "vm.garbage_collections"), Some(3.0));
        assert_eq!(ratio(&changes, "vm.process_count"), Some(2.0));
        assert_eq!(changes[0].name, "vm.garbage_collections", "the largest change comes first");
    }

    #[test]
    fn lists_show_elements_that_the_other_lacks_and_long_values_are_cut() {
        let with = |args: &str, model: &str| {
            let mut period = period(1_000, 50, 7);
            period.facts.set(beamtune_model::facts::EMU_ARGS, args);
            period.facts.set("cpu_model", model);
            period
        };
        let (a, b) = (with(r#"["beam","-S","2:2"]"#, &"x".repeat(90)), with(r#"["beam"]"#, "y"));
        let text = render(&a, &b, Style { width: 60, ..Style::PLAIN });
        let line = |key: &str| text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
        assert_eq!(
            line("emu_args").split_whitespace().collect::<Vec<_>>(),
            ["emu_args", "-S", "2:2", "–"],
            "{text}"
        );
        assert!(line("cpu_model").chars().count() <= 60 && line("cpu_model").contains("x…"), "{text}");
    }

    #[test]
    fn equal_recordings_have_no_differences() {
        let text = render(&period(1_000, 50, 7), &period(1_000, 50, 7), Style::PLAIN);
        assert!(text.contains("No series differs"), "{text}");
    }
}
