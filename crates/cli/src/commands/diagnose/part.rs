//! The options `--from` and `--to`, which select a part of a recording by wall-clock time.

use anyhow::{Result, bail};
use beamtune_model::units::{self, Nanos, SECOND_NS};
use beamtune_model::{Event, Period};
use beamtune_recording::{Reader, Selection};
use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use crate::terminal;

/// A part of a recording. Times of day are in the local time zone.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct PartArgs {
    /// Begin: 02:50, 2026-11-20T02:50:00+01:00, or -20m before the end
    ///
    /// A time of day without a date refers to the last 24 hours of the recording.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse)]
    from: Option<Moment>,
    /// End, in the same formats
    ///
    /// A time of day without a date refers to the first such time after --from.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse)]
    to: Option<Moment>,
}

/// A time on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// A time of day.
    Time(Time),
    /// A date and time in the local time zone.
    Local(DateTime),
    Absolute(Timestamp),
    /// Nanoseconds before the end of the recording.
    BeforeEnd(Nanos),
}

fn parse(text: &str) -> Result<Moment, String> {
    if let Some(length) = text.strip_prefix('-') {
        let length = terminal::parse_duration(length)?;
        return Ok(Moment::BeforeEnd(units::nanos(length)));
    }
    let time = text.len() <= 8 && text.contains(':');
    if time && let Ok(time) = text.parse() {
        return Ok(Moment::Time(time));
    }
    if let Ok(absolute) = text.parse() {
        return Ok(Moment::Absolute(absolute));
    }
    if !time && let Ok(local) = text.parse() {
        return Ok(Moment::Local(local));
    }
    Err("write 02:50, 2026-11-20T02:50:00+01:00, or -20m for 20 minutes before the end".to_owned())
}

/// The wall-clock times that a recording covers.
struct Covered {
    begin: Timestamp,
    end: Timestamp,
}

impl PartArgs {
    /// True if neither option is given.
    pub fn is_all(&self) -> bool {
        self.from.is_none() && self.to.is_none()
    }

    /// Returns the selected part, and its description.
    pub fn select(&self, reader: &Reader) -> Result<(Selection, String)> {
        let path = reader.path().display();
        let lives = reader.recorded_incarnations()?;
        let (Some(first), Some(last)) = (lives.first(), lives.last()) else {
            bail!("{path} contains no sample");
        };
        let (Some(begin), Some(end)) = (reader.wall_at(first.begin), reader.wall_at(last.end)) else {
            bail!("{path} contains no wall-clock times: omit --from and --to");
        };
        let zone = TimeZone::system();
        let covered = Covered { begin: stamp(begin)?, end: stamp(end)? };
        let (from, to) = self.resolve(&covered, &zone)?;
        let covers = || {
            let whole = span(covered.begin, covered.end, &zone);
            format!("{path} covers {}", whole.trim_start_matches("from "))
        };
        if to < covered.begin || from > covered.end {
            bail!("nothing was recorded at that time: {}", covers());
        }
        if from >= to {
            bail!("--from is not before --to ({}); {}", span(from, to, &zone), covers());
        }
        let instant = |at: Timestamp| reader.instant_of(nanos(at));
        // --to 02:50 includes the samples within that second.
        let selection = Selection {
            incarnation: None,
            from: self.from.and_then(|_| instant(from)),
            to: self.to.and_then(|_| instant(to)).map(|to| to.saturating_add(SECOND_NS - 1)),
        };
        let description = span(from.max(covered.begin), to.min(covered.end), &zone);
        let samples = reader.ticks_in(&selection)?;
        if samples == 0 {
            bail!("no sample {description}: the recorder did not run; {}", covers());
        }
        Ok((selection, description))
    }

    fn resolve(&self, covered: &Covered, zone: &TimeZone) -> Result<(Timestamp, Timestamp)> {
        let from = match self.from {
            None => covered.begin,
            Some(Moment::Time(time)) => last_before(time, covered.end, zone)?,
            Some(other) => other.fixed(covered.end, zone)?,
        };
        let to = match self.to {
            None => covered.end,
            Some(Moment::Time(time)) if self.from.is_some() => next_after(time, from, zone)?,
            Some(Moment::Time(time)) => last_before(time, covered.end, zone)?,
            Some(other) => other.fixed(covered.end, zone)?,
        };
        Ok((from, to))
    }
}

impl Moment {
    fn fixed(self, end: Timestamp, zone: &TimeZone) -> Result<Timestamp> {
        Ok(match self {
            Moment::Absolute(at) => at,
            Moment::Local(local) => local.to_zoned(zone.clone())?.timestamp(),
            Moment::BeforeEnd(length) => stamp(nanos(end).saturating_sub(length))?,
            Moment::Time(time) => last_before(time, end, zone)?,
        })
    }
}

/// Returns the last occurrence of a time of day up to `end`.
fn last_before(time: Time, end: Timestamp, zone: &TimeZone) -> Result<Timestamp> {
    let end = end.to_zoned(zone.clone());
    let today = on(&end, time)?;
    Ok(if today <= end { today } else { on(&end.yesterday()?, time)? }.timestamp())
}

/// Returns the first occurrence of a time of day after `begin`.
fn next_after(time: Time, begin: Timestamp, zone: &TimeZone) -> Result<Timestamp> {
    let begin = begin.to_zoned(zone.clone());
    let today = on(&begin, time)?;
    Ok(if today > begin { today } else { on(&begin.tomorrow()?, time)? }.timestamp())
}

fn on(day: &Zoned, time: Time) -> Result<Zoned> {
    Ok(day.date().to_datetime(time).to_zoned(day.time_zone().clone())?)
}

/// Converts nanoseconds since 1970 to a wall-clock time.
pub fn stamp(wall: i64) -> Result<Timestamp> {
    Ok(Timestamp::from_nanosecond(wall.into())?)
}

fn nanos(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX)
}

/// Returns when a period began, in the local time zone; `None` for imports, which have no time.
pub fn recorded_at(reader: &Reader, period: &Period) -> Option<String> {
    let at = reader.wall_at(period.begin).filter(|_| !period.is_imported())?;
    Some(stamp(at).ok()?.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M (%:z)").to_string())
}

/// Describes the triggers of a period, one line each: when the recorder saw something begin, and what.
pub fn triggers(reader: &Reader, period: &Period) -> Vec<String> {
    let zone = TimeZone::system();
    let line = |event: &Event| {
        let at = stamp(reader.wall_at(event.t)?).ok()?.to_zoned(zone.clone());
        let text =
            format!("{}  trigger: {} {}", at.strftime("%Y-%m-%d %H:%M:%S"), event.subject, event.detail);
        Some(beamtune_report::text::clean(&text))
    };
    period.events.iter().filter(|event| event.kind == "trigger").filter_map(line).collect()
}

/// Formats a time span: `from 2026-11-20 02:50:00 to 03:10:00 (+01:00)`.
fn span(from: Timestamp, to: Timestamp, zone: &TimeZone) -> String {
    let (from, to) = (from.to_zoned(zone.clone()), to.to_zoned(zone.clone()));
    let end = if from.date() == to.date() { "%H:%M:%S (%:z)" } else { "%Y-%m-%d %H:%M:%S (%:z)" };
    format!("from {} to {}", from.strftime("%Y-%m-%d %H:%M:%S"), to.strftime(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_formats_of_times_are_parsed() {
        let time = |hour, minute, second| Ok(Moment::Time(Time::constant(hour, minute, second, 0)));
        assert_eq!(parse("02:50"), time(2, 50, 0));
        assert_eq!(parse("23:59:58"), time(23, 59, 58));
        assert_eq!(parse("-20m"), Ok(Moment::BeforeEnd(1_200 * SECOND_NS)));
        let absolute = Timestamp::constant(1_795_139_400, 0);
        assert_eq!(parse("2026-11-20T02:50:00+01:00"), Ok(Moment::Absolute(absolute)));
        assert_eq!(parse("2026-11-20T01:50:00Z"), Ok(Moment::Absolute(absolute)));
        let local = DateTime::constant(2026, 11, 20, 2, 50, 0, 0);
        assert_eq!(parse("2026-11-20T02:50"), Ok(Moment::Local(local)));
        assert_eq!(parse("2026-11-20 02:50:00"), Ok(Moment::Local(local)));
        for wrong in ["25:00", "soon", "", "-", "-3y", "20m", "2026-13-01T00:00:00Z"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_of_day_refer_to_the_last_day_of_the_recording() {
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let covered =
            Covered { begin: at("2026-11-19T20:00:00+01:00"), end: at("2026-11-20T08:00:00+01:00") };
        let check = |from: Option<&str>, to: Option<&str>, expect: (&str, &str)| {
            let moment = |text: &str| parse(text).expect("understood");
            let part = PartArgs { from: from.map(moment), to: to.map(moment) };
            let found = part.resolve(&covered, &zone).expect("resolved");
            assert_eq!(found, (at(expect.0), at(expect.1)), "{from:?} {to:?}");
        };
        let (early, late) = ("2026-11-20T02:50:00+01:00", "2026-11-20T03:10:00+01:00");
        check(Some("02:50"), Some("03:10"), (early, late));
        check(Some("23:50"), Some("00:10"), ("2026-11-19T23:50:00+01:00", "2026-11-20T00:10:00+01:00"));
        // The first 08:10 after --from may be after the end of the recording.
        check(Some("07:50"), Some("08:10"), ("2026-11-20T07:50:00+01:00", "2026-11-20T08:10:00+01:00"));
        check(None, Some("03:10"), ("2026-11-19T20:00:00+01:00", late));
        check(Some("21:00"), None, ("2026-11-19T21:00:00+01:00", "2026-11-20T08:00:00+01:00"));
        check(Some("-20m"), None, ("2026-11-20T07:40:00+01:00", "2026-11-20T08:00:00+01:00"));
        check(Some("-20m"), Some("-10m"), ("2026-11-20T07:40:00+01:00", "2026-11-20T07:50:00+01:00"));
        check(Some("2026-11-20T01:50:00Z"), Some("2026-11-20T03:10"), (early, late));
        assert_eq!(span(at(early), at(late), &zone), "from 2026-11-20 02:50:00 to 03:10:00 (+01:00)");
    }
}
