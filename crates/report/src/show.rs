//! Tables that Erlang users know: microstates as in `msacc:print/0`, allocators as in recon and instrument, top lists as in etop and
//! observer_cli.

mod alloc;

use std::collections::{BTreeMap, BTreeSet};

use beamtune_flags::Origin;
use beamtune_model::{Group, Metric, Period, Rank, cpu, facts, metrics, units::SECOND_NS};

use crate::diagnosis::heading;
use crate::table::{Align::*, Table};
use crate::text::{self, Style};

/// Maximum number of states that are shown. A VM configured with `--with-microstate-accounting=extra` has 15.
const MOST_STATES: usize = 64;

/// The views of `beamtune show`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Facts and the main rates.
    Summary,
    /// Microstate accounting.
    Msacc,
    /// Allocators.
    Alloc,
    /// Allocators, instance by instance.
    Instances,
    /// Emulator flags in effect, each with its source.
    Flags,
    /// Processes.
    Processes,
    /// ETS tables.
    Ets,
    /// Schedulers, with data from the VM and from the operating system.
    Schedulers,
    /// Data from the operating system.
    Host,
}

/// Renders one view of a period.
pub fn render(period: &Period, view: View, style: Style) -> String {
    let body = match view {
        View::Summary => summary(period, style),
        View::Msacc => msacc(period, style),
        View::Alloc => alloc::allocators(period, style),
        View::Instances => alloc::instances(period, style),
        View::Flags => flags(period, style),
        View::Processes => processes(period, style),
        View::Ets => ets(period, style),
        View::Schedulers => schedulers(period, style),
        View::Host => host(period, style),
    };
    let body = if body.is_empty() { "not recorded\n".to_owned() } else { body };
    format!("{}\n{body}", heading(period, style))
}

/// Sorts threads by kind, schedulers first, and by number within a kind.
fn in_order(mut entities: Vec<&str>) -> Vec<&str> {
    const KINDS: [&str; 6] =
        ["scheduler", "dirty_cpu_scheduler", "dirty_io_scheduler", "poll", "aux", "async"];
    entities.sort_by_cached_key(|entity| {
        let (kind, number) = entity.rsplit_once('/').unwrap_or((entity, ""));
        let rank = KINDS.iter().position(|known| *known == kind).unwrap_or(KINDS.len());
        (rank, kind.to_owned(), number.parse::<u64>().unwrap_or(u64::MAX))
    });
    entities
}

/// Formats the value of a metric: rate of a counter, or mean of a gauge.
fn cell(period: &Period, metric: &Metric, entity: &str) -> Option<String> {
    let stat = period.find(metric.group, entity, metric.name)?;
    use beamtune_model::{Kind, Unit};
    match stat.kind {
        Kind::Gauge => Some(text::value(stat.mean(), stat.unit)),
        Kind::Counter => {
            let rate = stat.rate()?;
            Some(match stat.unit {
                Unit::Nanoseconds => text::value(rate / SECOND_NS as f64, Unit::Cores),
                Unit::Bytes => format!("{}/s", text::bytes(rate)),
                _ => text::value(rate, Unit::PerSecond),
            })
        }
    }
}

/// Renders rows `name value` of the metrics that were recorded.
fn list(period: &Period, rows: &[(&str, &Metric, &str)], style: Style) -> String {
    let mut table = Table::new(&[("", Left), ("", Right)]);
    for (name, metric, entity) in rows {
        if let Some(value) = cell(period, metric, entity) {
            table.row([(*name).to_owned(), value]);
        }
    }
    let text = table.render(style);
    // Removes the line of the headings, which are empty.
    text.split_once('\n').map_or(String::new(), |(_, rows)| rows.to_owned())
}

fn summary(period: &Period, style: Style) -> String {
    let mut out = list(
        period,
        &[
            ("CPU, user", &metrics::PROCESS_USER, ""),
            ("CPU, system", &metrics::PROCESS_SYSTEM, ""),
            ("RSS", &metrics::RSS, ""),
            ("reductions", &metrics::REDUCTIONS, ""),
            ("processes scheduled in", &metrics::CONTEXT_SWITCHES, ""),
            ("garbage collections", &metrics::GARBAGE_COLLECTIONS, ""),
            ("port input", &metrics::IO_INPUT, ""),
            ("port output", &metrics::IO_OUTPUT, ""),
            ("processes", &metrics::PROCESS_COUNT, ""),
            ("ports", &metrics::PORT_COUNT, ""),
            ("ETS tables", &metrics::ETS_COUNT, ""),
            ("atoms", &metrics::ATOM_COUNT, ""),
            ("messages in queues", &metrics::SCAN_QUEUED, ""),
            ("agent: time", &metrics::AGENT_COST, ""),
            ("round trip", &metrics::ROUND_TRIP, ""),
        ],
        style,
    );
    let mut memory = Table::new(&[("memory", Left), ("mean", Right)]);
    for (name, stat) in period.family(&metrics::MEMORY, "") {
        memory.row([text::clean(name), text::bytes(stat.mean())]);
    }
    out.push_str(&format!("\n{}", memory.render(style)));
    let mut table = Table::new(&[("fact", Left), ("", Left)]);
    for (key, value) in period.facts.iter() {
        if key != facts::APPLICATIONS {
            table.row([text::clean(key), text::clean(value)]);
        }
    }
    out.push_str(&format!("\n{}", table.render(style)));
    out
}

/// Renders microstates: first by kind of thread, then by thread. States are sorted by name, with `sleep` last.
fn msacc(period: &Period, style: Style) -> String {
    type Row<'p> = BTreeMap<&'p str, i64>;
    let (mut threads, mut kinds, mut states) = (Vec::new(), Vec::<(&str, Row<'_>)>::new(), BTreeSet::new());
    for entity in in_order(period.entities(Group::Msacc)) {
        let row: Row<'_> =
            period.family(&metrics::MSACC, entity).map(|(state, stat)| (state, stat.delta)).collect();
        // Like msacc, puts `sleep`, the least interesting state, last.
        states.extend(row.keys().map(|state| (*state == "sleep", *state)));
        let kind = entity.split('/').next().unwrap_or(entity);
        // Threads of a kind are adjacent.
        if kinds.last().is_none_or(|(last, _)| *last != kind) {
            kinds.push((kind, Row::new()));
        }
        if let Some((_, sums)) = kinds.last_mut() {
            for (state, delta) in &row {
                let sum = sums.entry(state).or_default();
                *sum = sum.saturating_add(*delta);
            }
        }
        threads.push((entity, row));
    }
    if threads.is_empty() {
        return String::new();
    }
    let shown = states.iter().take(MOST_STATES);
    let names: Vec<_> = shown.clone().map(|(_, state)| text::clean(state)).collect();
    let mut columns = vec![("thread", Left)];
    columns.extend(names.iter().map(|name| (name.as_str(), Right)));
    let render = |rows: &[(&str, Row<'_>)]| {
        let mut table = Table::new(&columns);
        for (name, row) in rows {
            let total = row.values().fold(0_i64, |sum, delta| sum.saturating_add(*delta));
            let share = |(_, state): &(bool, &str)| {
                row.get(state)
                    .filter(|_| total > 0)
                    .map_or(String::new(), |delta| format!("{:.2} %", *delta as f64 * 100.0 / total as f64))
            };
            table.row([text::clean(name)].into_iter().chain(shown.clone().map(share)));
        }
        table.render(style)
    };
    format!("{}\n{}", render(&kinds), render(&threads))
}

/// Renders flags: first those that are set, then those at their default.
fn flags(period: &Period, style: Style) -> String {
    let (Some(args), Some(release)) = (period.facts.list(facts::EMU_ARGS), period.facts.otp_release()) else {
        return String::new();
    };
    let environment: Vec<_> =
        period.facts.object(facts::ENVIRONMENT).unwrap_or_default().into_iter().collect();
    let mut table = Table::new(&[("flag", Left), ("value", Left), ("from", Left), ("overrides", Left)]);
    let (given, default): (Vec<_>, Vec<_>) = beamtune_flags::effective_settings(&args, &environment, release)
        .into_iter()
        .partition(|setting| setting.origin != Origin::Default);
    for setting in given.iter().chain(&default) {
        let from = match &setting.origin {
            Origin::Environment(name) => name.clone(),
            Origin::CommandLine => "command line or args file".to_owned(),
            Origin::Start => "set at start".to_owned(),
            Origin::Default => "default".to_owned(),
        };
        let overridden: Vec<_> =
            setting.overridden.iter().map(|earlier| earlier.value.as_deref().unwrap_or("(set)")).collect();
        table.row([
            text::clean(&setting.flag),
            text::clean(setting.value.as_deref().unwrap_or("")),
            text::clean(&from),
            text::clean(&overridden.join(", ")),
        ]);
    }
    table.render(style)
}

fn processes(period: &Period, style: Style) -> String {
    let total = cpu::all_reductions(period).unwrap_or(0.0);
    let mut table = Table::new(&[
        ("pid", Left),
        ("name or initial call", Left),
        ("reductions", Right),
        ("share", Right),
        ("queue", Right),
        ("memory", Right),
        ("busy", Right),
        ("current function", Left),
    ]);
    let interesting = |p: &&beamtune_model::ProcessActivity| {
        p.reductions > 0
            || p.queue_max > 0
            || p.row
                .as_ref()
                .is_some_and(|row| row.ranks.contains(&Rank::Memory) || row.ranks.contains(&Rank::Binary))
    };
    for process in period.processes.iter().filter(interesting).take(40) {
        let row = process.row.as_ref();
        let share = if total > 0.0 {
            format!("{:.1} %", (process.reductions as f64 / total).min(1.0) * 100.0)
        } else {
            String::new()
        };
        let busy = if process.status_samples > 0 {
            format!("{:.0} %", f64::from(process.runnable) * 100.0 / f64::from(process.status_samples))
        } else {
            String::new()
        };
        table.row([
            text::clean(&process.pid),
            text::sentence(row.and_then(|row| row.title()).unwrap_or("")),
            text::decimal(process.reductions as f64),
            share,
            text::decimal(process.queue_max as f64),
            row.map_or(String::new(), |row| text::bytes(row.memory_bytes as f64)),
            busy,
            text::sentence(row.and_then(|row| row.current_function.as_deref()).unwrap_or("")),
        ]);
    }
    table.render(style)
}

fn ets(period: &Period, style: Style) -> String {
    let mut table = Table::new(&[
        ("table", Left),
        ("memory", Right),
        ("objects", Right),
        ("type", Left),
        ("access", Left),
        ("options", Left),
        ("owner", Left),
    ]);
    for row in period.tables.iter().take(40) {
        table.row([
            text::sentence(&row.name),
            text::bytes(row.memory_bytes as f64),
            text::decimal(row.objects as f64),
            text::clean(&row.kind),
            text::clean(&row.protection),
            text::clean(&row.options.join(" ")),
            text::sentence(row.owner_name.as_deref().unwrap_or(&row.owner)),
        ]);
    }
    table.render(style)
}

fn schedulers(period: &Period, style: Style) -> String {
    let mut table = Table::new(&[
        ("scheduler", Left),
        ("active", Right),
        ("CPU", Right),
        ("waited for CPU", Right),
        ("voluntary", Right),
        ("preempted", Right),
        ("run queue", Right),
    ]);
    for entity in in_order(period.entities(Group::SchedulerTime)) {
        let active = period.rate(&metrics::SCHEDULER_ACTIVE, entity).ok();
        let total = period.rate(&metrics::SCHEDULER_TOTAL, entity).ok().filter(|total| *total > 0.0);
        let share = active
            .zip(total)
            .map_or(String::new(), |(active, total)| format!("{:.1} %", active * 100.0 / total));
        let percent = |metric| {
            period.cores(metric, entity).map_or(String::new(), |cores| format!("{:.1} %", cores * 100.0))
        };
        let rate = |metric| {
            period.rate(metric, entity).map_or(String::new(), |rate| format!("{}/s", text::decimal(rate)))
        };
        let queue = period
            .stat(&metrics::RUN_QUEUE, entity)
            .map_or(String::new(), |stat| format!("{:.1} (max {})", stat.mean(), stat.max));
        table.row([
            text::clean(entity),
            share,
            percent(&metrics::THREAD_CPU),
            percent(&metrics::THREAD_WAIT),
            rate(&metrics::VOLUNTARY_SWITCHES),
            rate(&metrics::INVOLUNTARY_SWITCHES),
            queue,
        ]);
    }
    table.render(style)
}

fn host(period: &Period, style: Style) -> String {
    let mut rows: Vec<(&str, &Metric, &str)> = Vec::new();
    for metric in metrics::METRICS.iter().filter(|metric| metric.group.is_host()) {
        for entity in period.entities(metric.group) {
            if metric.group != Group::HostThread && period.find(metric.group, entity, metric.name).is_some() {
                rows.push((metric.name, metric, entity));
            }
        }
    }
    let mut table = Table::new(&[("", Left), ("", Left), ("", Right)]);
    for (name, metric, entity) in rows {
        if let Some(value) = cell(period, metric, entity) {
            let of = if entity.is_empty() {
                metric.group.to_string()
            } else {
                format!("{} {entity}", metric.group)
            };
            table.row([text::clean(&of), name.replace('_', " "), value]);
        }
    }
    let threads = in_order(period.entities(Group::HostThread));
    let mut thread_table = Table::new(&[
        ("thread", Left),
        ("CPU", Right),
        ("user", Right),
        ("system", Right),
        ("waited for CPU", Right),
    ]);
    for thread in threads {
        let value = |metric: &Metric| cell(period, metric, thread).unwrap_or_default();
        thread_table.row([
            text::clean(thread),
            value(&metrics::THREAD_CPU),
            value(&metrics::THREAD_USER),
            value(&metrics::THREAD_SYSTEM),
            value(&metrics::THREAD_WAIT),
        ]);
    }
    let body = table.render(style);
    let body = body.split_once('\n').map_or(String::new(), |(_, rows)| rows.to_owned());
    if body.is_empty() && thread_table.is_empty() {
        return String::new();
    }
    format!("{body}\n{}", thread_table.render(style))
}
