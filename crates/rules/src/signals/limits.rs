//! What the rules on limits (processes, ports, atoms) have in common: how full a table is, and when it
//! will be if it goes on growing like this.

use std::collections::HashMap;

use beamtune_model::{
    Confidence, Cost, Evidence, Level, Metric, Missing, Period, Scale, SeriesStat, SpawnRow, Threshold, Unit,
};
use beamtune_stats::{Trend, trend};

use crate::rule::{Draft, FAR_SECONDS, SOON_SECONDS, SOON_SOURCE, WARNING};
use crate::view;

/// Share of a limit that is in use.
pub const FULL: Threshold = Threshold::new(
    "near-limit.used_share",
    "used share of the limit of processes, ports, descriptors or atoms",
    Scale {
        notice: 0.70,
        warning: 0.80,
        critical: 0.95,
        source: "80–85 % is where operators of large nodes set their alarms",
    },
);

/// Growth that could be chance is not carried forward: what grew must be at least this much of what is there, or
/// of what is left until the limit.
const MIN_GROWTH: f64 = 0.01;

/// Growth by a few large steps (code that is loaded, users that come at once) is not carried forward either: this share of
/// all steps must go up.
const MIN_STEPS_UP: f64 = 0.5;

/// How far a growth is carried forward: so many times the time observed. Ten seconds tell of an hour, not of days.
const REACH: f64 = 360.0;

/// A period this short can see a peak being built as well as a leak, in seconds.
pub const SHORT_SECONDS: f64 = 300.0;
/// Beyond so many times the time observed nothing follows of when there is no more: a minute says something of a day, ten seconds do not
/// (judgement).
pub const MEMORY_REACH: f64 = 1_440.0;
/// Growth does not go on, if so much less comes in its second half than in its first.
const LEAST_GOING_ON: f64 = 0.4;

/// An end is measured if so much of the limit is in use, or if it comes within so many times the time observed. Otherwise it is inferred: users
/// who come back after a fail-over grow as fast as a leak, and stop (judgement).
const MUCH_IN_USE: f64 = 0.5;
const WITHIN: f64 = 10.0;

/// How sure it is that growth which was observed for so long goes on until its end. It is carried forward for `reach` times that at most.
pub fn confidence_of_end(
    left_seconds: f64,
    observed_seconds: f64,
    used_share: f64,
    reach: f64,
) -> Confidence {
    if left_seconds > reach * observed_seconds {
        Confidence::Guess
    } else if used_share >= MUCH_IN_USE || left_seconds <= WITHIN * observed_seconds {
        Confidence::Measured
    } else {
        Confidence::Inferred
    }
}

/// A count with its limit.
pub struct Filling {
    /// The count at the end.
    pub now: f64,
    /// The limit.
    pub limit: f64,
    /// Growth, where it is beyond doubt.
    pub growth: Option<Trend>,
    /// How long it was observed.
    pub observed_seconds: f64,
    /// How much of the limit is too much.
    pub full: Scale,
}

impl Filling {
    /// Reads it from a period.
    pub fn of(period: &Period, count: &Metric, limit: f64) -> Result<Filling, Missing> {
        let stat = period.stat(count, "")?;
        let now = stat.last.value as f64;
        let growth = growth(&view::trend_points(&stat.trace), (limit - now).max(0.0));
        Ok(Filling { now, limit, growth, observed_seconds: period.seconds(), full: FULL.of(period) })
    }

    /// Share of the limit that is used.
    pub fn share(&self) -> f64 {
        self.now / self.limit
    }

    /// Whether a higher limit would help: what only grows fills that one as well, some time later.
    pub fn needs_room(&self) -> bool {
        self.growth.is_none() || self.full.severity(self.share()).is_some()
    }

    /// Seconds until the limit, if it grows.
    pub fn left_seconds(&self) -> Option<f64> {
        self.growth.map(|trend| (self.limit - self.now).max(0.0) / trend.slope)
    }

    /// How full it is, as a severity; `None` where neither that matters nor how soon it will be full.
    pub fn severity(&self) -> Option<f64> {
        let ends = self.left_seconds().is_some_and(|left| left < FAR_SECONDS);
        self.full.severity(self.share()).or(ends.then_some(0.0))
    }

    /// Which of two limits matters more: by level, then by how full they are.
    pub fn urgency(&self) -> Option<(Level, f64)> {
        let severity = self.severity()?;
        let confidence = self.confidence(severity);
        Some((Level::of(severity, self.left_seconds(), confidence), self.share()))
    }

    /// How full it is was counted; only the time left can be unsure.
    fn confidence(&self, severity: f64) -> Confidence {
        let left = self.left_seconds().filter(|_| severity < WARNING);
        left.map_or(Confidence::Measured, |left| {
            confidence_of_end(left, self.observed_seconds, self.share(), REACH)
        })
    }

    /// "12 % of 262144", and how long it lasts.
    pub fn sentence(&self, what: &str) -> String {
        let used = format!(
            "{:.0} {what}, {:.1} % of the limit of {:.0}",
            self.now,
            self.share() * 100.0,
            self.limit
        );
        match (self.growth, self.left_seconds()) {
            (Some(trend), Some(left)) => {
                format!(
                    "{used}; {:.0} more each second, the limit is reached in {}",
                    trend.slope,
                    view::duration_text(left)
                )
            }
            _ => used,
        }
    }

    /// A finding with the numbers that all limits have.
    pub fn draft(&self, severity: f64, what: &str) -> Draft {
        self.draft_of(severity, self.sentence(what), what)
    }

    /// The same with words of its own.
    pub fn draft_of(&self, severity: f64, title: String, what: &str) -> Draft {
        Draft::new(severity, title)
            .confidence(self.confidence(severity))
            .costs(self.left_seconds().map(Cost::EndSeconds))
            .share(self.share())
            .because(Evidence::number(format!("{what} now"), self.now, Unit::Count))
            .because(Evidence::number("limit", self.limit, Unit::Count))
            .because(Evidence::number("share used", self.share(), Unit::Ratio).against_scale(self.full))
            .because_some(self.growth.map(|trend| {
                Evidence::number("growth", trend.slope, Unit::PerSecond)
                    .with_text(format!("95 % interval {:.1} to {:.1}", trend.low, trend.high))
            }))
            .because_some(self.left_seconds().map(|left| {
                Evidence::number("time to the limit", left, Unit::Seconds).against(SOON_SECONDS, SOON_SOURCE)
            }))
    }
}

/// How long it takes until what is `left` is gone, if a gauge grows steadily; `None` where that is farther than what was observed can show.
pub fn time_left(period: &Period, stat: &SeriesStat, left: f64) -> Option<Cost> {
    let seconds = growth(&view::trend_points(&stat.trace), left).map(|trend| left / trend.slope)?;
    (seconds <= REACH * period.seconds()).then_some(Cost::EndSeconds(seconds))
}

/// Steady growth that matters, measured by what is there or by what is `left` until a limit; or `None`.
pub fn growth(points: &[(f64, f64)], left: f64) -> Option<Trend> {
    let (first, last) = (points.first()?, points.last()?);
    let trend = trend(points)?;
    let grown = trend.slope * (last.0 - first.0);
    let matters = grown >= MIN_GROWTH * last.1.max(1.0).min(left.max(1.0));
    let up = points.windows(2).filter(|pair| pair[1].1 > pair[0].1).count();
    let steady = up as f64 >= MIN_STEPS_UP * (points.len() - 1) as f64;
    (trend.p < 0.01 && trend.low > 0.0 && matters && steady).then_some(trend)
}

/// Whether as much comes in the second half as in the first, about: a node that has just got work takes what that needs, and then no more.
pub fn goes_on(points: &[(f64, f64)], middle: f64) -> bool {
    let half = points.partition_point(|(t, _)| *t < middle);
    let rise = |from: usize, to: usize| {
        let (first, last) = (points.get(from)?, points.get(to)?);
        // Of few points no slope can be had; of many their ends say little.
        let slope = points.get(from..=to).and_then(trend).map(|trend| trend.slope * (last.0 - first.0));
        Some(slope.unwrap_or(last.1 - first.1))
    };
    let rises = rise(0, half).zip(rise(half, points.len().saturating_sub(1)));
    rises.is_none_or(|(before, after)| after >= LEAST_GOING_ON * before)
}

/// How fast it grows from now on, in bytes a second: of a long recording no faster than in its last third, since a load that has begun in
/// it may soon have what it needs.
pub fn pace(points: &[(f64, f64)], slope: f64) -> f64 {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return slope };
    let length = last.0 - first.0;
    if length < SHORT_SECONDS {
        return slope;
    }
    let late = points.partition_point(|(t, _)| *t < last.0 - length / 3.0);
    points.get(late..).and_then(trend).map_or(slope, |late| late.slope.min(slope))
}

/// What most of some things are, and who makes them.
#[derive(Debug, Clone)]
pub struct Maker {
    /// What they are, or were started with.
    pub kind: String,
    /// Who makes most of them, where that is known.
    pub by: Option<String>,
    /// The same in words.
    pub evidence: Evidence,
}

/// Who makes processes, tables or ports (`process`, `ets`, `port`), as evidence: of the most frequent kind, who made
/// most of those whose maker is known.
pub fn maker(period: &Period, what: &str) -> Option<Maker> {
    let rows: Vec<&SpawnRow> = period.spawns.iter().filter(|row| row.what == what).collect();
    let mut kinds = HashMap::<&str, i64>::new();
    for row in &rows {
        let count = kinds.entry(&row.kind).or_default();
        *count = count.saturating_add(row.count);
    }
    let all = kinds.values().fold(0_i64, |sum, count| sum.saturating_add(*count));
    let (kind, count) = kinds.into_iter().max_by_key(|&(kind, count)| (count, kind))?;
    let known = rows.iter().filter(|row| row.kind == kind && row.maker.is_some());
    let looked_at = known.clone().fold(0_i64, |sum, row| sum.saturating_add(row.count));
    let best = known.max_by_key(|row| row.count).and_then(|row| Some((row.maker.as_ref()?, row.count)));
    // Processes are met as they come; tables and ports are all counted, and all of a crash dump is.
    let label =
        if what == "process" && !period.is_crash_dump() { "the newest are mostly" } else { "most are" };
    // Shares, because tables and ports are looked at again and again.
    let percent = |part: i64, of: i64| format!("{:.0} %", 100.0 * part as f64 / of.max(1) as f64);
    let by = best.map(|(maker, _)| maker.clone());
    let (name, text) = match best {
        Some((maker, made)) if count == looked_at => {
            let name = format!("{kind} made by {maker}");
            (name.clone(), format!("{name}: {} of those looked at", percent(made, all)))
        }
        Some((maker, made)) => {
            let name = format!("{kind} made by {maker}");
            let (kinds, makers) = (percent(count, all), percent(made, looked_at));
            let text = format!("{kind}: {kinds}; {makers} of those whose maker was looked at are by {maker}");
            (name, text)
        }
        None => (kind.to_owned(), format!("{kind}: {} of those looked at", percent(count, all))),
    };
    Some(Maker { kind: kind.to_owned(), by, evidence: Evidence::text(label, name).with_text(text) })
}

#[cfg(test)]
mod tests {
    use beamtune_model::PeriodBuilder;

    use super::*;
    use crate::rule::Totals;

    fn line(seconds: usize, start: f64, slope: f64) -> Vec<(f64, f64)> {
        (0..=seconds).map(|s| (s as f64, start + slope * s as f64)).collect()
    }

    #[test]
    fn growth_counts_only_when_it_is_steady_and_matters() {
        let far = f64::INFINITY;
        assert!(growth(&line(10, 1_000.0, 100.0), far).is_some());
        assert!(growth(&line(10, 1_000_000.0, 10.0), far).is_none(), "0.01 % in ten seconds may be anything");
        assert!(growth(&line(10, 1_000_000.0, 10.0), 2_000.0).is_some(), "but not where so little is left");
        assert!(growth(&line(10, 1_000.0, 0.0), far).is_none());
        let saw: Vec<_> = (0..=10).map(|s| (f64::from(s), f64::from(s % 2) * 500.0 + 500.0)).collect();
        assert!(growth(&saw, far).is_none());
        let step: Vec<_> = (0..=10).map(|s| (f64::from(s), if s < 5 { 100.0 } else { 900.0 })).collect();
        assert!(growth(&step, far).is_none(), "one step, as when code is loaded");
    }

    #[test]
    fn who_makes_most_is_told_as_far_as_it_is_known() {
        let check = |rows: &[(&str, &str, Option<&str>, i64)], expect: Option<(&str, &str)>| {
            let mut builder = PeriodBuilder::default();
            for &(what, kind, maker, count) in rows {
                let (what, kind) = (what.to_owned(), kind.to_owned());
                let maker = maker.map(str::to_owned);
                builder.spawn(SpawnRow { t: 0, what, kind, maker, count, of: 100, bytes: None });
            }
            let found = maker(&builder.finish(), "port");
            let texts = found.map(|found| {
                let name = found.by.map_or(found.kind.clone(), |by| format!("{} made by {by}", found.kind));
                (name, found.evidence.text.unwrap_or_default())
            });
            assert_eq!(texts.as_ref().map(|(name, text)| (name.as_str(), text.as_str())), expect);
        };
        check(&[("process", "a:b/1", None, 5)], None);
        // Two looks at one owner.
        check(
            &[("port", "tcp", Some("web"), 3), ("port", "tcp", Some("web"), 3), ("port", "fd", None, 2)],
            Some(("tcp made by web", "tcp made by web: 75 % of those looked at")),
        );
        // A large owner of one kind is not the maker of the many of another.
        check(
            &[
                ("port", "udp", Some("dns"), 500),
                ("port", "tcp", Some("web"), 1),
                ("port", "tcp", None, 9_000),
            ],
            Some(("tcp made by web", "tcp: 95 %; 100 % of those whose maker was looked at are by web")),
        );
        check(&[("port", "fd", None, 2)], Some(("fd", "fd: 100 % of those looked at")));
    }

    #[test]
    fn a_table_that_fills_is_judged_by_the_time_left() {
        let filling = |now, growth, observed_seconds| Filling {
            now,
            limit: 262_144.0,
            growth,
            observed_seconds,
            full: FULL.usual(),
        };
        let grows = |slope| growth(&line(10, 10_000.0, slope), 200_000.0);
        let level = |filling: Filling| {
            let severity = filling.severity()?;
            let rule = crate::rule("BT007").expect("a rule");
            Some(filling.draft(severity, "processes").finish(rule, &Totals::default()).level)
        };
        assert_eq!(level(filling(20_000.0, None, 10.0)), None);
        assert_eq!(
            level(filling(20_000.0, grows(1_000.0), 60.0)),
            Some(Level::Critical),
            "four minutes, seen for one"
        );
        // Users who come back: ten seconds of them tell less, unless half is in use, or the end is as near.
        assert_eq!(level(filling(20_000.0, grows(1_000.0), 10.0)), Some(Level::Warning));
        assert_eq!(level(filling(140_000.0, grows(1_000.0), 10.0)), Some(Level::Critical), "half full");
        assert_eq!(level(filling(20_000.0, grows(4_000.0), 10.0)), Some(Level::Critical), "a minute is near");
        assert_eq!(
            level(filling(20_000.0, grows(20.0), 60.0)),
            Some(Level::Warning),
            "three hours, seen for a minute"
        );
        assert_eq!(
            level(filling(20_000.0, grows(20.0), 10.0)),
            Some(Level::Notice),
            "three hours, seen for ten seconds"
        );
        assert_eq!(level(filling(260_000.0, None, 10.0)), Some(Level::Critical), "nearly full");
    }
}
