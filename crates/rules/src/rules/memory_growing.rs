//! BT027: a kind of memory grows steadily: which, how fast, who has it, and when there is no more.

use beamtune_model::{
    Code, Cost, Evidence, Group, Missing, Period, Rank, Scale, Unit, metrics, units::SECOND_NS,
};
use beamtune_stats::Trend;

use super::limits::growth;
use crate::memory::{self, Room, megabytes};
use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT027"),
    name: "memory-growing",
    question: "Does some kind of memory grow, and how long can it?",
    confirm: "a recording of an hour or more: growth that follows the load up and down is no leak",
    needs: &[&metrics::RSS],
    since: 21,
    judge,
};

/// Time until there is no more room, in seconds.
const LEFT: Scale = Scale {
    notice: 604_800.0,
    warning: 86_400.0,
    critical: 3_600.0,
    source: "judgement: a day is enough to act, an hour is not",
};

/// Where no limit is known, growth as a share of what is there, per hour.
const RATE: Scale = Scale { notice: 0.05, warning: 0.5, critical: 10.0, source: "judgement" };

/// Growth within the period that is not noise, in bytes.
const WORTH_BYTES: f64 = 4e6;

/// A period this short can see a peak being built as well as a leak …
const SHORT_SECONDS: f64 = 300.0;
/// … so it is never critical. Where the end is so many times farther than what was seen, it stands behind what has been
/// measured: it may be one tooth of a saw, as of binaries between two collections …
const MOST_IN_SHORT: f64 = 74.0;
const FAR: f64 = 50.0;
const MOST_WHERE_FAR: f64 = 40.0;
const MOST_OUTSIDE: f64 = 20.0;
/// … and a node that works moves so much up and down within seconds, in bytes.
const WORTH_BYTES_IN_SHORT: f64 = 16e6;
/// … nor does it go on, if so much less comes in its second half than in its first.
const LEAST_GOING_ON: f64 = 0.4;

/// Kinds of `erlang:memory/0` that are looked at. Atoms have a rule of their own.
const KINDS: [&str; 4] = ["processes", "binary", "ets", "code"];

struct Growing {
    kind: &'static str,
    now: f64,
    trend: Trend,
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    if period.is_imported() {
        // Whatever tools have printed of memory is of one instant.
        return Err(period.missing_group(Group::Memory, "how memory has changed"));
    }
    let resident = period.stat(&metrics::RSS, "")?;
    let Some(total) = period.find(Group::Memory, "", "total") else {
        return Err(period.missing_group(Group::Memory, "what the VM uses (erlang:memory(total))"));
    };
    let room = memory::room(period);
    let mut found = Vec::new();
    for kind in KINDS {
        if let Some(stat) = period.find(Group::Memory, "", kind)
            && let Some(trend) = steady(&view::trend_points(&stat.trace))
        {
            found.push(Growing { kind, now: stat.last.value as f64, trend });
        }
    }
    // What the system has given beyond what the VM uses. It also becomes more when the VM uses less: only what goes on
    // growing as a whole counts.
    let outside = difference(resident.trace.points(), total.trace.points());
    if steady(&view::trend_points(&resident.trace)).is_some()
        && let Some(trend) = steady(&outside)
        && let Some(&(_, now)) = outside.last()
        && found.iter().all(|growing| growing.trend.slope < trend.slope)
    {
        found.push(Growing { kind: "outside", now, trend });
    }
    let mut drafts: Vec<Draft> = Vec::new();
    for growing in &found {
        let score = match room {
            Some(room) => LEFT.score(room.bytes / growing.trend.slope.max(1e-9)),
            None => RATE.score(growing.trend.slope * 3600.0 / growing.now.max(1.0)),
        };
        if let Some(score) = score {
            drafts.push(draft(period, score, growing, room));
        }
    }
    Ok(Judgement::found_or_healthy(
        drafts,
        format!(
            "{} resident and {} used by the VM, neither growing steadily",
            megabytes(resident.last.value as f64),
            megabytes(total.last.value as f64)
        ),
    ))
}

fn steady(points: &[(f64, f64)]) -> Option<Trend> {
    let trend = growth(points, f64::INFINITY)?;
    let (first, last) = (points.first()?, points.last()?);
    let length = last.0 - first.0;
    let is_short = length < SHORT_SECONDS;
    let worth = if is_short { WORTH_BYTES_IN_SHORT } else { WORTH_BYTES };
    (trend.slope * length >= worth && (!is_short || goes_on(points, first.0 + length / 2.0))).then_some(trend)
}

/// Whether as much comes in the second half as in the first, about: a node that has just got work takes what that needs, and then no more.
fn goes_on(points: &[(f64, f64)], middle: f64) -> bool {
    let half = points.partition_point(|(t, _)| *t < middle);
    let rise = |from: usize, to: usize| Some(points.get(to)?.1 - points.get(from)?.1);
    let rises = rise(0, half).zip(rise(half, points.len().saturating_sub(1)));
    rises.is_none_or(|(before, after)| after >= LEAST_GOING_ON * before)
}

/// One trace minus another, each point with the nearest one in time.
fn difference(of: &[(i64, i64)], minus: &[(i64, i64)]) -> Vec<(f64, f64)> {
    of.iter()
        .filter_map(|&(t, value)| {
            let after = minus.partition_point(|&(other, _)| other < t);
            let near = [after.checked_sub(1), Some(after)]
                .into_iter()
                .flatten()
                .filter_map(|place| minus.get(place));
            let &(_, taken) = near.min_by_key(|&&(other, _)| other.abs_diff(t))?;
            Some((t as f64 / SECOND_NS as f64, value as f64 - taken as f64))
        })
        .collect()
}

/// Who has most of a kind, or has got most of it: name, and the evidence.
fn owner(period: &Period, kind: &str) -> Option<(String, Evidence)> {
    let largest = |rank: Rank, bytes: fn(&beamtune_model::ProcessRow) -> Option<i64>| {
        let rows = period.processes.iter().filter_map(|process| {
            let row = process.row.as_ref().filter(|row| row.ranks.contains(&rank))?;
            Some((process.title(), bytes(row)?))
        });
        rows.max_by_key(|(_, bytes)| *bytes)
    };
    let (name, bytes, what) = match kind {
        "ets" => {
            let grown = |table: &beamtune_model::TableRow| {
                let first = period.tables_first.get(&table.id).map_or(0, |&(_, bytes)| bytes);
                table.memory_bytes.saturating_sub(first)
            };
            let table = period.tables.iter().max_by_key(|table| (grown(table), table.memory_bytes))?;
            (
                table.name.clone(),
                table.memory_bytes,
                format!(
                    "{} objects, owner {}",
                    table.objects,
                    table.owner_name.as_deref().unwrap_or(&table.owner)
                ),
            )
        }
        "processes" => {
            let (name, bytes) = largest(Rank::Memory, |row| Some(row.memory_bytes))?;
            (name, bytes, "heap and stack".to_owned())
        }
        "binary" => {
            let (name, bytes) = largest(Rank::Binary, |row| row.binary_bytes)?;
            (name, bytes, "binaries that it refers to".to_owned())
        }
        _ => return None,
    };
    let evidence =
        Evidence::number(format!("the largest: {name}"), bytes as f64, Unit::Bytes).with_text(what);
    Some((name, evidence))
}

fn draft(period: &Period, score: f64, growing: &Growing, room: Option<Room>) -> Draft {
    let Growing { kind, now, trend } = growing;
    let title = match *kind {
        "processes" => "memory of processes",
        "binary" => "memory of binaries",
        "ets" => "memory of ETS tables",
        "code" => "memory of code",
        _ => "memory beyond what the VM uses (NIFs, drivers, malloc, carriers)",
    };
    let short = period.seconds() < SHORT_SECONDS;
    let left = room.map(|room| room.bytes / trend.slope.max(1e-9));
    let is_far = left.is_none_or(|left| left > FAR * period.seconds());
    let until = left.zip(room).map_or(String::new(), |(left, room)| {
        format!("; {} is used up in {}", room.of, view::duration_text(left))
    });
    let owner = owner(period, kind);
    let draft = Draft::new(
        match short {
            // Pages of carriers that are used for the first time look the same.
            true if is_far && *kind == "outside" => score.min(MOST_OUTSIDE),
            true if is_far => score.min(MOST_WHERE_FAR),
            true => score.min(MOST_IN_SHORT),
            false => score,
        },
        format!("{title} grows by {} a second and is at {}{until}", megabytes(trend.slope), megabytes(*now)),
    )
    .about(owner.as_ref().map_or_else(|| (*kind).to_owned(), |(name, _)| name.clone()))
    .costs(left.map(Cost::EndSeconds))
    .because(Evidence::number("now", *now, Unit::Bytes))
    .because(Evidence::number("growth in a second", trend.slope, Unit::Bytes).with_text(format!(
        "95 % interval {} to {}, seen for {}",
        megabytes(trend.low),
        megabytes(trend.high),
        view::duration_text(period.seconds())
    )))
    .because_some(left.map(|left| {
        Evidence::number("time until there is no more", left, Unit::Seconds).against(LEFT.warning, LEFT.source)
    }))
    .because_some(room.map(|room| Evidence::number(format!("left of {}", room.of), room.bytes, Unit::Bytes)))
    .because_some(owner.map(|(_, evidence)| evidence))
    .but_if(short, "it was seen for a short time only: a peak that is being built looks the same (record for hours: beamtune record --keep 6h)");
    let prove = "beamtune memory --for 10m: the growth must end under the same load";
    match *kind {
        "ets" => draft
            .fix(remedy::of(
                period,
                "code.bounded_table",
                "delete what is old: by a time stamp and ets:select_delete/2, or a new table for each period of time",
                "a table keeps what it is given until somebody deletes it",
                prove,
            ))
            .fix(remedy::of(
                period,
                "ets.compressed",
                "ets:new(…, [compressed]), where its objects are large and seldom read",
                "it only makes the growth slower: the objects then take about half",
                prove,
            )),
        "binary" => draft.fix(remedy::of(
            period,
            "code.binary_copy",
            "binary:copy/1 what is kept of larger binaries; let idle holders hibernate",
            "a part of a binary keeps the whole of it, and so does a process that is not collected",
            prove,
        )),
        "processes" => draft.fix(remedy::of(
            period,
            "code.back_pressure",
            "bound what processes hold: their state, their message queues (BT006), their number (BT007)",
            "a heap grows with what is alive in it",
            prove,
        )),
        "code" => draft.fix(remedy::of(
            period,
            "code.no_code_at_run_time",
            "do not compile or load modules in the course of work",
            "each module's code and literals stay until it is purged",
            prove,
        )),
        _ => draft.fix(remedy::of(
            period,
            "code.native_memory",
            "run beamtune memory as root: which lines grow tells whether it is malloc (NIFs), carriers, or cached segments",
            "what the VM did not allocate, it cannot free",
            prove,
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_less_and_less_is_no_steady_growth() {
        let points = |seconds: i32, bytes: fn(f64) -> f64| {
            (0..=seconds).map(|t| (f64::from(t), 100e6 + bytes(f64::from(t)))).collect::<Vec<_>>()
        };
        assert!(steady(&points(11, |t| 3e6 * t)).is_some());
        // A load that has just begun.
        assert!(steady(&points(11, |t| 60e6 * (1.0 - (-t / 2.5).exp()))).is_none());
        // Faster and faster.
        assert!(steady(&points(11, |t| 0.4e6 * t * t)).is_some());
        // In so long a time it is told, whatever it does at the end.
        assert!(steady(&points(400, |t| 60e6 * (1.0 - (-t / 90.0).exp()))).is_some());
    }
}
