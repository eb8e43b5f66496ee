//! Memory over time: how each kind changed, its largest step and what happened then, and its daily pattern.

use beamtune_model::memory::{Daily, LevelChange, Movement, content};
use beamtune_model::period::Trace;
use beamtune_model::units::SECOND_NS;
use beamtune_model::{Group, Metric, Nanos, Period, metrics};
use std::collections::BTreeMap;

use crate::view;

/// Kinds that never reached this size are left out, in bytes.
const WORTH_BYTES: f64 = 8e6;

/// Steps below this share of the level are left out.
const WORTH_STEP: f64 = 0.05;

/// Events within this time of a step may relate to it, in nanoseconds; or within two readings, if these are farther apart.
const NEAR_NS: Nanos = 30 * SECOND_NS;

/// Returns how each kind of memory changed, largest growth first.
pub fn movements(period: &Period) -> Vec<Movement> {
    let mut found: Vec<Movement> = series(period)
        .into_iter()
        .filter_map(|(what, points)| movement(period, what, &points))
        .filter(|movement| movement.range.1 >= WORTH_BYTES)
        .collect();
    let grown = |movement: &Movement| movement.last - movement.first;
    found.sort_by(|a, b| grown(b).total_cmp(&grown(a)).then_with(|| a.what.cmp(&b.what)));
    found
}

/// Returns the memory series, as (seconds, bytes).
fn series(period: &Period) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut all = Vec::new();
    let mut push = |what: String, trace: &Trace| all.push((what, view::trend_points(trace)));
    if let Ok(stat) = period.stat(&metrics::RSS, "") {
        push("resident".to_owned(), &stat.trace);
    }
    for (name, stat) in period.family(&metrics::MEMORY, "") {
        if !matches!(name, "system" | "processes_used" | "atom_used") {
            push(if name == "total" { "used by the VM".to_owned() } else { name.to_owned() }, &stat.trace);
        }
    }
    for entity in period.entities(Group::HostContent) {
        let what = match entity {
            content::MSEG_CACHE => "cached segments",
            content::MALLOC_HEAP => "malloc: first arena",
            content::MALLOC_ARENAS => "malloc: arenas of threads",
            content::MALLOC_MAPPED => "malloc: large chunks",
            content::UNKNOWN => "unexplained",
            // Carriers are recorded per allocator; the other contents hardly change.
            _ => continue,
        };
        if let Ok(stat) = period.stat(&metrics::CONTENT_RESIDENT, entity) {
            push(what.to_owned(), &stat.trace);
        }
    }
    for (what, sum) in [("carriers", CARRIERS), ("blocks", BLOCKS)] {
        for (allocator, points) in by_allocator(period, sum) {
            all.push((format!("{allocator}: {what}"), points));
        }
    }
    all
}

/// Metrics that add up to the size of an allocator's carriers, and of its blocks.
const CARRIERS: [&Metric; 3] =
    [&metrics::MBCS_CARRIERS_SIZE, &metrics::POOL_CARRIERS_SIZE, &metrics::SBCS_CARRIERS_SIZE];
const BLOCKS: [&Metric; 3] =
    [&metrics::MBCS_BLOCKS_SIZE, &metrics::POOL_BLOCKS_SIZE, &metrics::SBCS_BLOCKS_SIZE];

/// Sums over all instances of an allocator, at each instant at which all of their series were read.
fn by_allocator<'p>(period: &'p Period, sum: [&Metric; 3]) -> BTreeMap<&'p str, Vec<(f64, f64)>> {
    /// Number of series, and for each instant the number of series read and their sum.
    type Sums = (usize, BTreeMap<Nanos, (usize, i64)>);
    let mut sums: BTreeMap<&str, Sums> = BTreeMap::new();
    for entity in period.entities(Group::Allocator) {
        let Some((allocator, _)) = entity.split_once('/') else { continue };
        let (count, instants) = sums.entry(allocator).or_default();
        for metric in sum {
            let Some(stat) = period.find(metric.group, entity, metric.name) else { continue };
            *count += 1;
            for &(t, value) in stat.trace.points() {
                let (seen, sum) = instants.entry(t).or_default();
                *seen += 1;
                *sum = sum.saturating_add(value);
            }
        }
    }
    let whole = |(count, instants): Sums| {
        let whole = instants.into_iter().filter(|(_, (seen, _))| *seen == count);
        whole.map(|(t, (_, sum))| (t as f64 / SECOND_NS as f64, sum as f64)).collect()
    };
    sums.into_iter().map(|(allocator, sums)| (allocator, whole(sums))).collect()
}

/// Describes how a series changed; `None` without readings.
fn movement(period: &Period, what: String, points: &[(f64, f64)]) -> Option<Movement> {
    let (&(_, first), &(_, last)) = (points.first()?, points.last()?);
    let values = || points.iter().map(|point| point.1);
    let trend = beamtune_stats::trend(points);
    let worth = |before: f64, after: f64| {
        (after - before).abs() >= (WORTH_STEP * before.abs().max(after.abs())).max(WORTH_BYTES / 8.0)
    };
    let step = beamtune_stats::step(points).filter(|step| worth(step.before, step.after)).map(|step| {
        let at = (step.at * SECOND_NS as f64) as Nanos;
        LevelChange { at, before: step.before, after: step.after, with: happened(period, at, points) }
    });
    let per_hour = |slope: f64| slope * 3_600.0;
    Some(Movement {
        what,
        first,
        last,
        range: (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max)),
        per_hour: trend.map(|trend| (per_hour(trend.slope), per_hour(trend.low), per_hour(trend.high))),
        is_significant: trend.is_some_and(|trend| trend.p < 0.01 && trend.low * trend.high > 0.0),
        step,
        daily: daily(period, points),
    })
}

/// Describes an event near this time. An event of a rare kind says more than one of a frequent kind.
fn happened(period: &Period, at: Nanos, points: &[(f64, f64)]) -> Option<String> {
    let apart = period.end.saturating_sub(period.begin) / points.len().max(1) as i64;
    let near = NEAR_NS.max(apart.saturating_mul(2));
    let of_kind = |kind: &str| period.events.iter().filter(|event| event.kind == kind).count();
    let event = period
        .events
        .iter()
        .filter(|event| event.t.abs_diff(at) <= near.unsigned_abs())
        .min_by_key(|event| (of_kind(&event.kind), event.t.abs_diff(at)))?;
    let detail = if event.detail.is_empty() { String::new() } else { format!(" ({})", event.detail) };
    Some(format!("{} {}{detail}", event.kind, event.subject))
}

/// Finds a daily pattern, if there is one.
fn daily(period: &Period, points: &[(f64, f64)]) -> Option<Daily> {
    let life = period.incarnation.as_ref()?;
    // In wall-clock time, so that hours are hours of the day.
    let wall0 = life.wall0.saturating_sub(life.mono0) as f64 / SECOND_NS as f64;
    let on_wall: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x + wall0, *y)).collect();
    let found = beamtune_stats::daily(&on_wall)?;
    Some(Daily { swing: found.swing, peak_hour: found.peak_hour, share: found.share })
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamtune_model::window::Point;
    use beamtune_model::{Event, Facts, Incarnation, PeriodBuilder, Series, Tick};

    const MB: i64 = 1_000_000;
    const HOUR_S: i64 = 3_600;

    /// Metric, entity, and the metric's value at a given minute.
    type Made<'a> = (&'a Metric, &'a str, &'a dyn Fn(i64) -> i64);

    /// A recording with a reading each minute.
    fn recorded(minutes: i64, series: &[Made<'_>], events: &[(i64, &str)]) -> Period {
        let life = Incarnation {
            id: 0,
            node: String::new(),
            os_pid: None,
            boot: String::new(),
            mono0: 0,
            wall0: 1_699_920_000 * SECOND_NS,
        };
        let mut builder = PeriodBuilder::new(Some(life), Facts::default(), 1);
        for (metric, entity, value) in series {
            let Metric { group, name, unit, kind, .. } = **metric;
            let series = Series { group, entity: (*entity).into(), name: name.into(), unit, kind };
            let at = |minute: i64| minute * 60 * SECOND_NS;
            let points =
                (0..minutes).map(|minute| Point { t: at(minute), incarnation: 0, value: value(minute) });
            builder.column(&series, points);
        }
        for t in [0, minutes * 60 * SECOND_NS] {
            builder.tick(&Tick { t, incarnation: 0, vm: None, host: None, late: 0 });
        }
        for &(minute, kind) in events {
            let t = minute * 60 * SECOND_NS;
            builder.event(Event {
                t,
                kind: kind.to_owned(),
                subject: "shop".to_owned(),
                detail: String::new(),
            });
        }
        builder.finish()
    }

    #[test]
    fn growth_has_an_interval_and_the_largest_growth_comes_first() {
        let period = recorded(
            120,
            &[
                (&metrics::RSS, "", &|minute| 500 * MB + minute * MB),
                (&metrics::CONTENT_RESIDENT, content::MALLOC_ARENAS, &|minute| 10 * MB + minute * 2 * MB),
                (&metrics::CONTENT_RESIDENT, "stacks/aux", &|_| MB),
            ],
            &[],
        );
        let found = movements(&period);
        let names: Vec<&str> = found.iter().map(|movement| movement.what.as_str()).collect();
        assert_eq!(names, ["malloc: arenas of threads", "resident"]);
        let (slope, low, high) = found[1].per_hour.expect("enough readings");
        assert!([slope, low, high].iter().all(|value| (value - 60e6).abs() < 1.0), "{slope} {low} {high}");
        assert!(found[1].is_significant && found[1].step.is_none());
    }

    #[test]
    fn a_step_is_reported_with_what_happened_then() {
        let level = |minute: i64| if minute < 50 { 200 * MB } else { 300 * MB } + minute % 3;
        let events = [(5, "long_gc"), (20, "long_gc"), (49, "long_gc"), (51, "code_loaded"), (90, "long_gc")];
        let period = recorded(120, &[(&metrics::RSS, "", &level)], &events);
        let step = movements(&period).remove(0).step.expect("a step");
        assert!((49 * 60..=51 * 60).contains(&(step.at / SECOND_NS)), "{step:?}");
        assert_eq!(step.with.as_deref(), Some("code_loaded shop"), "the rarest kind of event near the step");
    }

    #[test]
    fn a_daily_pattern_is_reported_with_its_peak_hour() {
        let wave = |minute: i64| {
            let hour = minute as f64 / 60.0;
            (500e6 + 100e6 * ((hour - 6.0) / 24.0 * std::f64::consts::TAU).sin()) as i64
        };
        let period = recorded(3 * 24 * 60, &[(&metrics::RSS, "", &wave)], &[]);
        let daily = movements(&period).remove(0).daily.expect("a pattern");
        assert!((11..=12).contains(&daily.peak_hour), "{daily:?}: the recording begins at midnight");
    }

    #[test]
    fn instances_are_added_up_only_if_all_were_read() {
        let each = |_: i64| 20 * MB;
        let mut all: Vec<Made<'_>> = Vec::new();
        for entity in ["eheap_alloc/0", "eheap_alloc/1"] {
            all.extend(CARRIERS.map(|metric| (metric, entity, &each as &dyn Fn(i64) -> i64)));
        }
        let found = movements(&recorded(2 * HOUR_S / 60, &all, &[]));
        let carriers =
            found.iter().find(|movement| movement.what == "eheap_alloc: carriers").expect("its carriers");
        assert_eq!((carriers.first, carriers.last), (120e6, 120e6));
    }
}
