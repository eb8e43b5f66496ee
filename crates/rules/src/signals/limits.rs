//! How full a limited table (processes, ports, file descriptors, atoms) is, and when it will be full if it keeps growing.

use std::collections::HashMap;

use beamtune_model::{
    Confidence, Cost, Evidence, Group, Level, Metric, Missing, Period, Scale, SeriesStat, SpawnRow,
    Threshold, Unit,
};
use beamtune_stats::{Trend, trend};

use crate::rule::{Draft, FAR_SECONDS, SOON_SECONDS, SOON_SOURCE, WARNING};
use crate::text;
use crate::view;

/// Used share of a limit.
pub const FULL: Threshold = Threshold::new(
    "near-limit.used_share",
    "used share of the limit of processes, ports, descriptors or atoms",
    Scale {
        notice: 0.70,
        warning: 0.80,
        critical: 0.95,
        source: "operators of large nodes set their alarms at 80 to 85 %",
    },
);

/// Growth within the period below this share of the count, or of what is left until the limit, may be chance.
const MIN_GROWTH_SHARE: f64 = 0.01;

/// At least this share of the steps must go up: a few large steps (loaded code, users who arrive at once) are not a trend.
const MIN_STEPS_UP_SHARE: f64 = 0.5;

/// Growth is extrapolated to at most this multiple of the period: ten seconds say something about an hour, not about days.
const REACH: f64 = 360.0;

/// In a period shorter than this, in seconds, a peak that builds up looks like a leak.
pub const MIN_LEAK_SECONDS: f64 = 300.0;
/// Memory growth is extrapolated to at most this multiple of the period: a minute says something about a day, ten seconds do not
/// (judgement).
pub const MAX_MEMORY_EXTRAPOLATION: f64 = 1_440.0;
/// Growth has ended if its second half is less than this share of its first half.
const MIN_SECOND_HALF_SHARE: f64 = 0.4;

/// The confidence of the time left is `Measured` if this share of the limit is used …
const HALF_USED: f64 = 0.5;
/// … or if the time left is at most this multiple of the period. Otherwise it is `Inferred` (judgement): users who return after a failover
/// increase as fast as a leak, and then stop.
const NEAR_END_PERIODS: f64 = 10.0;

/// Returns the confidence that growth, observed for this long, continues until the limit is reached. Growth is extrapolated to at most
/// `reach` times the period.
pub fn confidence_of_end(
    left_seconds: f64,
    observed_seconds: f64,
    used_share: f64,
    reach: f64,
) -> Confidence {
    if left_seconds > reach * observed_seconds {
        Confidence::Guess
    } else if used_share >= HALF_USED || left_seconds <= NEAR_END_PERIODS * observed_seconds {
        Confidence::Measured
    } else {
        Confidence::Inferred
    }
}

/// At or above this used share, the limit is reached now and then (judgement). If samples show six of 300 descriptors free, the limit is
/// reached in between.
const EXHAUSTED_SHARE: f64 = 0.98;

/// A count with its limit.
pub struct LimitUsage {
    /// The count at the end.
    pub now: f64,
    /// The limit.
    pub limit: f64,
    /// Growth, if it is significant and steady.
    pub growth: Option<Trend>,
    /// Length of the period.
    pub observed_seconds: f64,
    /// The thresholds of the used share.
    pub thresholds: Scale,
}

impl LimitUsage {
    /// Computes the usage of a limit from a period.
    pub fn of(period: &Period, count: &Metric, limit: f64) -> Result<LimitUsage, Missing> {
        let stat = period.stat(count, "")?;
        let now = stat.last.value as f64;
        let growth = growth(&view::trend_points(&stat.trace), (limit - now).max(0.0));
        Ok(LimitUsage { now, limit, growth, observed_seconds: period.seconds(), thresholds: FULL.of(period) })
    }

    /// Used share of the limit.
    pub fn share(&self) -> f64 {
        self.now / self.limit
    }

    /// Whether new entries may already be refused: at the limit, each one that ends makes room for only one.
    pub fn is_exhausted(&self) -> bool {
        self.share() >= EXHAUSTED_SHARE
    }

    /// Whether a higher limit would help. A leak fills a higher limit too, some time later.
    pub fn needs_room(&self) -> bool {
        self.growth.is_none() || self.thresholds.severity(self.share()).is_some()
    }

    /// Returns the seconds until the limit is reached, if the count grows.
    pub fn left_seconds(&self) -> Option<f64> {
        self.growth.map(|trend| (self.limit - self.now).max(0.0) / trend.slope)
    }

    /// Returns the seconds until the limit is reached, if it is not reached yet and near enough to matter.
    pub fn near_end_seconds(&self) -> Option<f64> {
        self.left_seconds().filter(|left| *left < FAR_SECONDS && self.now < self.limit)
    }

    /// Returns the severity of the used share; `None` if neither the share nor the time left matters.
    pub fn severity(&self) -> Option<f64> {
        let ends = self.left_seconds().is_some_and(|left| left < FAR_SECONDS);
        self.thresholds.severity(self.share()).or(ends.then_some(0.0))
    }

    /// Returns the key by which limits are ordered: the level, then the used share.
    pub fn urgency(&self) -> Option<(Level, f64)> {
        let severity = self.severity()?;
        let confidence = self.confidence(severity);
        Some((Level::of(severity, self.left_seconds(), confidence), self.share()))
    }

    /// Returns the confidence of the time left. The used share itself was counted, so it is certain.
    fn confidence(&self, severity: f64) -> Confidence {
        let left = self.left_seconds().filter(|_| severity < WARNING);
        left.map_or(Confidence::Measured, |left| {
            confidence_of_end(left, self.observed_seconds, self.share(), REACH)
        })
    }

    /// Formats the usage: `912 of 2,048 ports, +7.1/s [6.8, 7.4]`.
    pub fn sentence(&self, what: &str) -> String {
        let used = format!("{} of {} {what}", text::number(self.now), text::number(self.limit));
        match &self.growth {
            Some(trend) => format!("{used}, {}", text::growth(trend)),
            None => used,
        }
    }

    /// Formats the title: `Port limit reached in 3 min (912 of 2,048)`, or `Ports at 82 % of the limit` if the count does not grow or the
    /// end is far.
    pub fn title(&self, severity: f64, what: &str) -> String {
        let mut letters = what.chars();
        let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
        let what = format!("{first}{}", letters.as_str());
        match self.near_end_seconds() {
            Some(left) => format!(
                "{} limit{} reached in {} ({} of {})",
                one_of(&what),
                self.certainty(severity),
                view::duration_text(left),
                text::number(self.now),
                text::number(self.limit)
            ),
            None => format!("{what} at {:.0} % of the limit", 100.0 * self.share()),
        }
    }

    /// Returns the adverb for a title if the time left is not measured: ` likely`, ` possibly`.
    fn certainty(&self, severity: f64) -> &'static str {
        match self.confidence(severity) {
            Confidence::Measured => "",
            Confidence::Inferred => " likely",
            Confidence::Guess => " possibly",
        }
    }

    /// Formats what happens at the limit, and for how long a restart helps, if the end is near: `then spawn fails; a restart buys at most 5
    /// min`.
    pub fn consequence(&self, then: &str) -> String {
        match self.near_end_seconds().zip(self.growth).filter(|(left, _)| *left < SOON_SECONDS) {
            Some((_, trend)) => {
                let lasts = view::duration_text(self.limit / trend.slope);
                format!("then {then}; a restart buys at most {lasts}")
            }
            None => String::new(),
        }
    }

    /// Drafts a finding with the numbers that all limits have in common.
    pub fn draft(&self, severity: f64, what: &str) -> Draft {
        self.draft_of(severity, self.title(severity, what), what)
    }

    /// Drafts the same finding with another title.
    pub fn draft_of(&self, severity: f64, title: String, what: &str) -> Draft {
        Draft::new(severity, title)
            .detail(self.sentence(what))
            .confidence(self.confidence(severity))
            .costs(self.left_seconds().map(Cost::EndSeconds))
            .share(self.share())
            .evidence(Evidence::number(format!("{what} now"), self.now, Unit::Count))
            .evidence(Evidence::number("limit", self.limit, Unit::Count))
            .evidence(
                Evidence::number("share used", self.share(), Unit::Ratio).against_scale(self.thresholds),
            )
            .because_some(self.growth.map(|trend| {
                Evidence::number("growth", trend.slope, Unit::PerSecond)
                    .with_text(format!("95 % interval {:.1} to {:.1}", trend.low, trend.high))
            }))
            .because_some(self.left_seconds().map(|left| {
                Evidence::number("time to the limit", left, Unit::Seconds).against(SOON_SECONDS, SOON_SOURCE)
            }))
    }
}

/// Returns the singular of a plural: `process`, `port`.
fn one_of(plural: &str) -> &str {
    plural.strip_suffix("sses").map_or_else(|| plural.trim_end_matches('s'), |_| &plural[..plural.len() - 2])
}

/// Returns the time until a steadily growing gauge has used up `left`; `None` if that is further away than the period can show.
pub fn time_left(period: &Period, stat: &SeriesStat, left: f64) -> Option<Cost> {
    let seconds = growth(&view::trend_points(&stat.trace), left).map(|trend| left / trend.slope)?;
    (seconds <= REACH * period.seconds()).then_some(Cost::EndSeconds(seconds))
}

/// Returns the trend of the points if it is steady, significant and relevant, compared with the value or with what is `left` until a limit.
pub fn growth(points: &[(f64, f64)], left: f64) -> Option<Trend> {
    let (first, last) = (points.first()?, points.last()?);
    let trend = trend(points)?;
    let grown = trend.slope * (last.0 - first.0);
    let matters = grown >= MIN_GROWTH_SHARE * last.1.max(1.0).min(left.max(1.0));
    let up = points.windows(2).filter(|pair| pair[1].1 > pair[0].1).count();
    let steady = up as f64 >= MIN_STEPS_UP_SHARE * (points.len() - 1) as f64;
    (trend.p < 0.01 && trend.low > 0.0 && matters && steady).then_some(trend)
}

/// Ratios of the memory growth per new process or table to the mean size. Within this range, the new ones explain the growth (judgement:
/// the mean over many kinds is rough).
const ABOUT_AS_LARGE: std::ops::RangeInclusive<f64> = 0.25..=4.0;

/// Whether a kind of memory (`processes`, `ets`) grows as much as new processes or tables of mean size would make it grow. There are
/// `count` of them now.
pub fn grows_by_new_ones(period: &Period, kind: &str, count: f64, new_per_s: f64) -> bool {
    let Some(stat) = period.find(Group::Memory, "", kind) else { return false };
    let mean = stat.last.value as f64 / count.max(1.0);
    growth(&view::trend_points(&stat.trace), f64::INFINITY)
        .is_some_and(|trend| ABOUT_AS_LARGE.contains(&(trend.slope / new_per_s / mean)))
}

/// Whether the second half of the period grows about as much as the first. A node that just got work grows until it has what the work
/// needs, and then stops.
pub fn is_continuing(points: &[(f64, f64)], middle: f64) -> bool {
    let half = points.partition_point(|(t, _)| *t < middle);
    let rise = |from: usize, to: usize| {
        let (first, last) = (points.get(from)?, points.get(to)?);
        // A few points have no trend, so their difference is used. Of many points, the first and the last alone say little.
        let slope = points.get(from..=to).and_then(trend).map(|trend| trend.slope * (last.0 - first.0));
        Some(slope.unwrap_or(last.1 - first.1))
    };
    let rises = rise(0, half).zip(rise(half, points.len().saturating_sub(1)));
    rises.is_none_or(|(before, after)| after >= MIN_SECOND_HALF_SHARE * before)
}

/// Returns the expected growth from now on, in bytes per second. In a long recording, it is at most the growth of the last third. A load
/// that began within the recording may soon have what it needs.
pub fn expected_growth(points: &[(f64, f64)], slope: f64) -> f64 {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return slope };
    let length = last.0 - first.0;
    if length < MIN_LEAK_SECONDS {
        return slope;
    }
    let late = points.partition_point(|(t, _)| *t < last.0 - length / 3.0);
    points.get(late..).and_then(trend).map_or(slope, |late| late.slope.min(slope))
}

/// The most frequent kind of new processes, tables or ports, and what creates it.
#[derive(Debug, Clone)]
pub struct FrequentKind {
    /// Initial call, table name or port driver.
    pub kind: String,
    /// What creates most of them, if known.
    pub by: Option<String>,
    /// Kind and creator as evidence.
    pub evidence: Evidence,
}

/// With fewer processes of a kind sampled again, nothing is estimated for the others (judgement).
pub const MIN_SAMPLED_AGAIN: i64 = 5;

/// Estimates how many of `count` new ones of a kind are still alive seconds later, if some were sampled again. A kind that ends is not what
/// grows.
fn staying(period: &Period, what: &str, kind: &str, count: i64) -> i64 {
    let sampled = period.wait_samples.new_processes.iter().filter(|_| what == "process");
    match sampled.filter(|new| new.sampled >= MIN_SAMPLED_AGAIN).find(|new| new.kind == kind) {
        Some(new) => (count as f64 * (new.sampled - new.ended) as f64 / new.sampled as f64).round() as i64,
        None => count,
    }
}

/// Returns the kind of processes, tables or ports (`process`, `ets`, `port`) with the most new ones that stay. Its creator is the most
/// frequent one among those known.
pub fn frequent_kind(period: &Period, what: &str) -> Option<FrequentKind> {
    let rows: Vec<&SpawnRow> = period.spawns.iter().filter(|row| row.what == what).collect();
    let mut kinds = HashMap::<&str, i64>::new();
    for row in &rows {
        let count = kinds.entry(&row.kind).or_default();
        *count = count.saturating_add(row.count);
    }
    let all = kinds.values().fold(0_i64, |sum, count| sum.saturating_add(*count));
    let (kind, count) =
        kinds.into_iter().max_by_key(|&(kind, count)| (staying(period, what, kind, count), count, kind))?;
    let known = rows.iter().filter(|row| row.kind == kind && row.creator.is_some());
    let sampled = known.clone().fold(0_i64, |sum, row| sum.saturating_add(row.count));
    let best = known.max_by_key(|row| row.count).and_then(|row| Some((row.creator.as_ref()?, row.count)));
    // Only new processes are sampled; tables and ports are all counted, and so is everything in a crash dump.
    let label = if what == "process" && !period.is_crash_dump() {
        "most frequent new kind"
    } else {
        "most frequent kind"
    };
    let verb = match what {
        "process" => "spawned",
        "port" => "opened",
        _ => "created",
    };
    // Shares rather than counts, because tables and ports are sampled more than once.
    let percent = |part: i64, of: i64| format!("{:.0} %", 100.0 * part as f64 / of.max(1) as f64);
    let by = best.map(|(maker, _)| maker.clone());
    let text = match best {
        Some((maker, made)) if count == sampled => {
            format!("{kind} {verb} by {maker}: {} of those sampled", percent(made, all))
        }
        Some((maker, made)) => {
            let (kinds, makers) = (percent(count, all), percent(made, sampled));
            format!("{kind}: {kinds}; {makers} of those sampled {verb} by {maker}")
        }
        None => format!("{kind}: {} of those sampled", percent(count, all)),
    };
    Some(FrequentKind { kind: kind.to_owned(), by, evidence: Evidence::text(label, text) })
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
    fn growth_is_reported_only_if_it_is_steady_and_relevant() {
        let far = f64::INFINITY;
        assert!(growth(&line(10, 1_000.0, 100.0), far).is_some());
        assert!(growth(&line(10, 1_000_000.0, 10.0), far).is_none(), "0.01 % in ten seconds may be chance");
        assert!(growth(&line(10, 1_000_000.0, 10.0), 2_000.0).is_some(), "5 % of what is left");
        assert!(growth(&line(10, 1_000.0, 0.0), far).is_none());
        let saw: Vec<_> = (0..=10).map(|s| (f64::from(s), f64::from(s % 2) * 500.0 + 500.0)).collect();
        assert!(growth(&saw, far).is_none());
        let step: Vec<_> = (0..=10).map(|s| (f64::from(s), if s < 5 { 100.0 } else { 900.0 })).collect();
        assert!(growth(&step, far).is_none(), "a single step, as when code is loaded");
    }

    #[test]
    fn the_most_frequent_kind_is_named_with_its_creator() {
        let check = |rows: &[(&str, &str, Option<&str>, i64)], expect: Option<(&str, &str)>| {
            let mut builder = PeriodBuilder::default();
            for &(what, kind, maker, count) in rows {
                let (what, kind) = (what.to_owned(), kind.to_owned());
                let maker = maker.map(str::to_owned);
                builder.spawn(SpawnRow {
                    t: 0,
                    what,
                    kind,
                    creator: maker,
                    count,
                    sample_size: 100,
                    bytes: None,
                });
            }
            let found = frequent_kind(&builder.finish(), "port");
            let texts = found.map(|found| {
                let name = found.by.map_or(found.kind.clone(), |by| format!("{} by {by}", found.kind));
                (name, found.evidence.text.unwrap_or_default())
            });
            assert_eq!(texts.as_ref().map(|(name, text)| (name.as_str(), text.as_str())), expect);
        };
        check(&[("process", "a:b/1", None, 5)], None);
        // Two samples of one owner.
        check(
            &[("port", "tcp", Some("web"), 3), ("port", "tcp", Some("web"), 3), ("port", "fd", None, 2)],
            Some(("tcp by web", "tcp opened by web: 75 % of those sampled")),
        );
        // An owner of many ports of one kind does not open those of another.
        check(
            &[
                ("port", "udp", Some("dns"), 500),
                ("port", "tcp", Some("web"), 1),
                ("port", "tcp", None, 9_000),
            ],
            Some(("tcp by web", "tcp: 95 %; 100 % of those sampled opened by web")),
        );
        check(&[("port", "fd", None, 2)], Some(("fd", "fd: 100 % of those sampled")));
    }

    #[test]
    fn titles_have_the_time_left_or_the_used_share() {
        let title = |filling: LimitUsage, what: &str| filling.title(filling.severity().unwrap_or(0.0), what);
        let grows = |slope| Some(Trend { slope, low: slope, high: slope, p: 0.001 });
        assert_eq!(
            title(filling(20_000.0, grows(1_000.0), 60.0), "ports"),
            "Port limit reached in 4 min (20,000 of 262,144)"
        );
        assert_eq!(
            title(filling(20_000.0, grows(20.0), 60.0), "ports"),
            "Port limit likely reached in 3.4 h (20,000 of 262,144)"
        );
        assert_eq!(
            title(filling(20_000.0, grows(20.0), 10.0), "atoms"),
            "Atom limit possibly reached in 3.4 h (20,000 of 262,144)"
        );
        let processes = title(filling(20_000.0, grows(1_000.0), 60.0), "processes");
        assert_eq!(processes, "Process limit reached in 4 min (20,000 of 262,144)");
        let full = filling(262_144.0, grows(20.0), 10.0);
        assert_eq!(title(full, "file descriptors"), "File descriptors at 100 % of the limit");
        assert_eq!(title(filling(220_000.0, None, 10.0), "ports"), "Ports at 84 % of the limit");
        let grown = filling(912.0, grows(7.04), 10.0);
        assert_eq!(grown.sentence("ports"), "912 of 262,144 ports, +7.0/s [7.0, 7.0]");
    }

    fn filling(now: f64, growth: Option<Trend>, observed_seconds: f64) -> LimitUsage {
        LimitUsage { now, limit: 262_144.0, growth, observed_seconds, thresholds: FULL.default_scale() }
    }

    #[test]
    fn a_growing_table_is_judged_by_the_time_left() {
        let grows = |slope| growth(&line(10, 10_000.0, slope), 200_000.0);
        let level = |filling: LimitUsage| {
            let severity = filling.severity()?;
            let rule = crate::rule("BT007").expect("a rule");
            Some(filling.draft(severity, "processes").finish(rule, &Totals::default()).level)
        };
        assert_eq!(level(filling(20_000.0, None, 10.0)), None);
        assert_eq!(
            level(filling(20_000.0, grows(1_000.0), 60.0)),
            Some(Level::Critical),
            "four minutes, after one minute"
        );
        // Returning users increase, too: ten seconds prove less, unless half is used or the end is similarly near. A likely end within an
        // hour is critical all the same.
        assert_eq!(filling(20_000.0, grows(1_000.0), 10.0).confidence(0.0), Confidence::Inferred);
        assert_eq!(level(filling(20_000.0, grows(1_000.0), 10.0)), Some(Level::Critical));
        assert_eq!(filling(140_000.0, grows(1_000.0), 10.0).confidence(0.0), Confidence::Measured);
        assert_eq!(level(filling(140_000.0, grows(1_000.0), 10.0)), Some(Level::Critical), "half used");
        assert_eq!(level(filling(20_000.0, grows(4_000.0), 10.0)), Some(Level::Critical), "a minute is near");
        assert_eq!(
            level(filling(20_000.0, grows(20.0), 60.0)),
            Some(Level::Warning),
            "three hours, after a minute"
        );
        assert_eq!(
            level(filling(20_000.0, grows(20.0), 10.0)),
            Some(Level::Notice),
            "three hours, after ten seconds"
        );
        assert_eq!(level(filling(260_000.0, None, 10.0)), Some(Level::Critical), "nearly full");
    }
}
