//! BT027: a kind of memory grows steadily: which, how fast, who has it, and when there is no more.

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Group, MemoryKind, Metric, Missing, Period, Rank, Scale,
    Signal, Subject, TableRow, Threshold, Unit, metrics, units::SECOND_NS,
};
use beamtune_stats::{Trend, trend};

use crate::remedy;
use crate::rule::{Draft, FAR_SECONDS, Judgement, Role, Rule, SOON_SECONDS, SOON_SOURCE, Topic};
use crate::signals::limits::{self, MEMORY_REACH, SHORT_SECONDS, goes_on, growth, pace};
use crate::signals::memory::{self, End, Room, megabytes};
use crate::signals::port_queues;
use crate::signals::table_binaries::TableBinaries;
use crate::signals::watermark;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT027"),
    name: "memory-growing",
    question: "Does some kind of memory grow, and how long can it?",
    confirm: "a recording of an hour or more: growth that follows the load up and down is no leak",
    needs: &[&metrics::RSS],
    account: Account::Memory,
    role: Role::Symptom,
    topics: &[Topic::Memory],
    needs_minutes: true,
    judge,
    thresholds: &[RATE],
    ..Rule::COMMON
};

/// Where no limit is known, growth as a share of what is there, per hour.
const RATE: Threshold = Threshold::new(
    "memory-growing.growth_per_hour",
    "growth per hour, share of what there is, where no limit is known",
    Scale { notice: 0.05, warning: 0.5, critical: 10.0, source: "judgement" },
);

/// Growth within the period that is not noise, in bytes.
const WORTH_BYTES: f64 = 4e6;

/// Carriers that are used for the first time look like memory outside of the VM that grows. In a short period that is likely where the end
/// is farther than so many times what was seen (judgement).
const FAR: f64 = 50.0;
/// A node that works moves so much up and down within seconds, in bytes.
const WORTH_BYTES_IN_SHORT: f64 = 16e6;

/// From fewer samples nothing follows (judgement).
const MIN_POINTS: usize = 4;

/// Where resident memory rises by less than this share of what a kind grows by, that fills carriers which the VM has already (judgement).
const LEAST_RISE: f64 = 0.25;

/// Kinds of `erlang:memory/0` that are looked at. Atoms have a rule of their own.
const KINDS: [&str; 4] = ["processes", "binary", "ets", "code"];

/// All of it, where nothing is known of its kinds.
const RESIDENT: &str = "resident";

/// One that holds so much of what grows is named with it (judgement: half).
const MOST_OF_IT: f64 = 0.5;

struct Growing {
    kind: &'static str,
    now: f64,
    trend: Trend,
    /// What of it is carried forward, in bytes a second.
    pace: f64,
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    if period.is_imported() {
        // Whatever tools have printed of memory is of one instant.
        return Err(period.missing_group(Group::Memory, "how memory has changed"));
    }
    let resident = period.stat(&metrics::RSS, "")?;
    let room = memory::room(period);
    let Some(total) = period.find(Group::Memory, "", "total") else {
        return resident_alone(period, room);
    };
    let mut found = Vec::new();
    for kind in KINDS {
        let Some(stat) = period.find(Group::Memory, "", kind) else { continue };
        let points = view::trend_points(&stat.trace);
        if let Some(trend) = steady(&points) {
            found.push(Growing {
                kind,
                now: stat.last.value as f64,
                trend,
                pace: pace(&points, trend.slope),
            });
        }
    }
    // What the system has given beyond what the VM uses. It also becomes more when the VM uses less: only what goes on
    // growing as a whole counts.
    let outside = difference(resident.trace.points(), total.trace.points());
    let resident_points = view::trend_points(&resident.trace);
    if steady(&resident_points).is_some()
        && let Some(trend) = steady(&outside)
        && let Some(&(_, now)) = outside.last()
        && found.iter().all(|growing| growing.trend.slope < trend.slope)
        && !fills_carriers(period, trend.slope)
    {
        found.push(Growing { kind: "outside", now, trend, pace: pace(&outside, trend.slope) });
    }
    // What is swapped out meanwhile was needed, too.
    let swapped =
        period.stat(&metrics::SWAP, "").map(|stat| stat.trace.points().to_vec()).unwrap_or_default();
    let rise = trend(&with(&resident_points, &swapped)).filter(|rise| rise.p < 0.01 && rise.low > 0.0);
    let mut drafts: Vec<Draft> = Vec::new();
    for growing in &found {
        let rises = rise.is_some_and(|rise| rise.slope >= LEAST_RISE * growing.trend.slope);
        let fills = growing.kind != "outside" && !rises;
        // What needs no more of the system comes to no limit of it.
        let room = room.filter(|_| !fills);
        let severity = match room {
            Some(room) => (room.bytes / growing.pace.max(1e-9) < FAR_SECONDS).then_some(0.0),
            None => RATE.of(period).severity(growing.pace * 3600.0 / growing.now.max(1.0)),
        };
        let Some(severity) = severity else { continue };
        let draft = draft(period, severity, growing, room);
        drafts.push(match fills {
            true => draft.confidence(Confidence::Guess).but(
                "resident memory does not rise with it: so far it fills carriers that the VM has already, as after a peak",
            ),
            false => draft,
        });
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

/// The VM told nothing: whether it grows shows from outside, and not what.
fn resident_alone(period: &Period, room: Option<Room>) -> Result<Judgement, Missing> {
    let resident = period.stat(&metrics::RSS, "")?;
    let points = view::trend_points(&resident.trace);
    let Some(trend) = steady(&points) else {
        let Some(rise) = climb(&points) else {
            return Err(period.missing_group(Group::Memory, "what the VM uses (erlang:memory(total))"));
        };
        let seconds = period.seconds();
        let draft = Draft::new(
            0.0,
            format!("resident memory rose with each sample, by {} in {seconds:.0} s", megabytes(rise)),
        )
        .confidence(Confidence::Guess)
        .because(Evidence::number("now", resident.last.value as f64, Unit::Bytes))
        .because(Evidence::number("growth in a second", rise / seconds.max(1.0), Unit::Bytes))
        .but("too few samples to tell a trend: look for longer (--for 30s)")
        .but("what of it grows, only the VM can tell");
        return Ok(Judgement::found(draft));
    };
    let growing =
        Growing { kind: RESIDENT, now: resident.last.value as f64, trend, pace: pace(&points, trend.slope) };
    let draft = draft(period, 0.0, &growing, room);
    Ok(Judgement::found(draft.but("what of it grows, only the VM can tell")))
}

/// By how much it rose, if it did at each step: of too few points for a trend.
fn climb(points: &[(f64, f64)]) -> Option<f64> {
    let (first, last) = (points.first()?, points.last()?);
    let rises = points.len() >= MIN_POINTS && points.windows(2).all(|pair| pair[1].1 > pair[0].1);
    Some(last.1 - first.1).filter(|rise| rises && *rise >= WORTH_BYTES_IN_SHORT)
}

/// In a short period: whether most of that growth is of carriers, with room for what the VM frees and takes again. A leak beside the VM is in
/// no carrier.
fn fills_carriers(period: &Period, per_second: f64) -> bool {
    if period.seconds() >= SHORT_SECONDS {
        return false;
    }
    let of = |metric: &Metric| -> f64 {
        let entities = period.entities(metric.group);
        let grown = |entity: &&str| {
            period.stat(metric, entity).ok().map(|stat| (stat.last.value - stat.first.value) as f64)
        };
        entities.iter().filter_map(grown).sum()
    };
    let grown = of(&metrics::MBCS_CARRIERS_SIZE) + of(&metrics::SBCS_CARRIERS_SIZE);
    grown >= MOST_OF_IT * per_second * period.seconds()
}

fn steady(points: &[(f64, f64)]) -> Option<Trend> {
    let trend = growth(points, f64::INFINITY)?;
    let (first, last) = (points.first()?, points.last()?);
    let length = last.0 - first.0;
    let worth = if length < SHORT_SECONDS { WORTH_BYTES_IN_SHORT } else { WORTH_BYTES };
    (trend.slope * length >= worth && goes_on(points, first.0 + length / 2.0)).then_some(trend)
}

/// Points, by seconds, and at each the last one of a trace before or at it; the points alone where that has none.
fn with(points: &[(f64, f64)], trace: &[(i64, i64)]) -> Vec<(f64, f64)> {
    let at = |t: f64| {
        let after = trace.partition_point(|&(other, _)| other as f64 / SECOND_NS as f64 <= t);
        after.checked_sub(1).and_then(|place| trace.get(place)).or_else(|| trace.first())
    };
    points.iter().map(|&(t, value)| (t, value + at(t).map_or(0.0, |&(_, more)| more as f64))).collect()
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

/// Who has most of a kind, or has got most of it, and the evidence.
fn owner(period: &Period, kind: &str) -> Option<(Subject, Evidence)> {
    let largest = |rank: Rank, bytes: fn(&beamtune_model::ProcessRow) -> Option<i64>| {
        let rows = period.processes.iter().filter_map(|process| {
            let row = process.row.as_ref().filter(|row| row.ranks.contains(&rank))?;
            Some((process.subject(), bytes(row)?))
        });
        rows.max_by_key(|(_, bytes)| *bytes)
    };
    let (subject, bytes, what) = match kind {
        "ets" => {
            let by = |table: &&TableRow| (memory::table_growth_bytes(period, table), table.memory_bytes);
            let table = period.tables.iter().max_by_key(by)?;
            let what = format!("{} objects, owner {}", table.objects, table.owner_title());
            (table.subject(), table.memory_bytes, what)
        }
        "processes" => {
            let (subject, bytes) = largest(Rank::Memory, |row| Some(row.memory_bytes))?;
            (subject, bytes, "heap and stack".to_owned())
        }
        "binary" if let Some(waiting) = port_queues::most_binaries(period) => (
            port_queues::subject(period),
            waiting as i64,
            "what waits in driver queues to be sent".to_owned(),
        ),
        "binary" if let Some(table) = memory::binaries_of_table(period) => {
            let (objects, owner) = (table.objects, table.owner_title());
            let what = format!("{objects} objects, owner {owner}; no process holds the new binaries");
            (table.subject(), table.memory_bytes, what)
        }
        "binary" => {
            let (subject, bytes) = largest(Rank::Binary, |row| row.binary_bytes)?;
            (subject, bytes, "binaries that it refers to".to_owned())
        }
        _ => return None,
    };
    let evidence =
        Evidence::number(format!("the largest: {subject}"), bytes as f64, Unit::Bytes).with_text(what);
    Some((subject, evidence))
}

/// The table whose binaries become more was seen to hold them whole.
fn is_held_whole(period: &Period) -> bool {
    let Some(table) = memory::binaries_of_table(period) else { return false };
    let all = TableBinaries::all(period);
    all.iter().any(|seen| seen.id == table.id && seen.count > 0.0 && !seen.has_parts())
}

fn memory_kind(kind: &str) -> MemoryKind {
    MemoryKind::from_text(kind).unwrap_or(MemoryKind::Outside)
}

fn draft(period: &Period, severity: f64, growing: &Growing, room: Option<Room>) -> Draft {
    let Growing { kind, now, trend, pace } = growing;
    let title = match *kind {
        "processes" => "memory of processes",
        "binary" => "memory of binaries",
        "ets" => "memory of ETS tables",
        "code" => "memory of code",
        RESIDENT => "resident memory",
        _ => "memory beyond what the VM uses (NIFs, drivers, malloc, carriers)",
    };
    let short = period.seconds() < SHORT_SECONDS;
    let left = room.map(|room| room.bytes / pace.max(1e-9));
    let is_farther = |times: f64| left.is_some_and(|left| left > times * period.seconds());
    let is_far = left.is_none() || is_farther(FAR);
    let resident = memory::resident(period).unwrap_or(0.0);
    let used_share = room.map_or(0.0, |room| resident / (resident + room.bytes).max(1.0));
    let confidence = match left {
        _ if short && is_far && matches!(*kind, "outside" | RESIDENT) => Confidence::Guess,
        Some(left) => limits::confidence_of_end(left, period.seconds(), used_share, MEMORY_REACH),
        None if short => Confidence::Inferred,
        None => Confidence::Measured,
    };
    let until = left.zip(room).map_or(String::new(), |(left, room)| {
        format!("; {} in {}", room.end.sentence(), view::duration_text(left))
    });
    let owner = owner(period, kind);
    let most = owner.as_ref().and_then(|(subject, evidence)| {
        let bytes = evidence.value.filter(|bytes| *bytes >= MOST_OF_IT * now)?;
        Some(format!(", {} of it in {subject}", megabytes(bytes)))
    });
    let most = most.unwrap_or_default();
    let draft = Draft::new(
        severity,
        format!("{title} grows by {} a second and is at {}{most}{until}", megabytes(*pace), megabytes(*now)),
    )
    .confidence(confidence)
    .about(owner.as_ref().map(|(subject, _)| subject.clone()))
    .signals((*kind != RESIDENT).then(|| Signal::Grows(memory_kind(kind))))
    .costs(left.map(Cost::EndSeconds))
    .because(Evidence::number("now", *now, Unit::Bytes))
    .because(Evidence::number("growth in a second", trend.slope, Unit::Bytes).with_text(format!(
        "95 % interval {} to {}, seen for {}",
        megabytes(trend.low),
        megabytes(trend.high),
        view::duration_text(period.seconds())
    )))
    .because_some(
        (*pace < trend.slope).then(|| Evidence::number("growth in a second, in the last third", *pace, Unit::Bytes)),
    )
    .because_some(left.map(|left| {
        Evidence::number("time until there is no more", left, Unit::Seconds).against(SOON_SECONDS, SOON_SOURCE)
    }))
    .because_some(room.map(|room| Evidence::number(format!("left until {}", room.end.sentence()), room.bytes, Unit::Bytes)))
    .because_some(owner.map(|(_, evidence)| evidence))
    .but_if(short, "it was seen for a short time only: a peak that is being built looks the same (record for hours: beamtune record --keep 6h)");
    let draft = match room.map(|room| room.end) {
        Some(End::Watermark { unsure: Some(but) }) => draft.confidence(Confidence::Inferred).but(but),
        _ => draft,
    };
    let prove = "beamtune memory --for 10m: the growth must end under the same load";
    match *kind {
        // Its own code is not what its operators can change.
        "processes" | "binary" if watermark::version(period).is_some() => draft.fix(remedy::of(
            period,
            "code.back_pressure",
            "consumers that keep up (more of them, a larger prefetch); a limit for the queues that grow: max-length with overflow reject-publish, or message-ttl",
            "what is published and not consumed waits in queues: rabbitmqctl list_queues name messages consumers tells where",
            prove,
        )),
        "ets" if watermark::version(period).is_some() => draft.fix(remedy::of(
            period,
            "code.back_pressure",
            "see what becomes more: rabbitmqctl list_queues, list_connections, list_channels, list_bindings; delete what nobody uses (expires, \
             auto-delete), and limit them for a virtual host or a user (set_vhost_limits, set_user_limits)",
            "its tables have a row for each queue, connection, channel and binding, and for the metrics of these",
            prove,
        )),
        "code" if watermark::version(period).is_some() => draft,
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
        "binary" if port_queues::most_binaries(period).is_some() => draft.fix(port_queues::slow_peers(period, prove)),
        "binary" if is_held_whole(period) => draft.fix(remedy::of(
            period,
            "code.bounded_table",
            "delete what is old: by a time stamp and ets:select_delete/2, or a new table for each period of time",
            "a table keeps what it is given until somebody deletes it; its binaries are whole, so copies save nothing",
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
        RESIDENT => draft,
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
        // What saturates is not told in a longer time either.
        assert!(steady(&points(400, |t| 60e6 * (1.0 - (-t / 90.0).exp()))).is_none());
        assert!(steady(&points(310, |t| 200e6 * (1.0 - (-t / 60.0).exp()))).is_none());
        assert!(steady(&points(400, |t| 0.1e6 * t)).is_some());
    }

    #[test]
    fn of_few_samples_only_a_rise_at_each_step_counts() {
        let points = |values: &[f64]| -> Vec<(f64, f64)> {
            values.iter().enumerate().map(|(t, mb)| (t as f64, mb * 1e6)).collect()
        };
        assert_eq!(climb(&points(&[100.0, 118.0, 137.0, 155.0])), Some(55e6));
        assert_eq!(climb(&points(&[100.0, 118.0, 117.0, 155.0])), None);
        assert_eq!(climb(&points(&[100.0, 101.0, 102.0, 103.0])), None);
        assert_eq!(climb(&points(&[100.0, 155.0])), None);
    }

    #[test]
    fn what_is_swapped_out_meanwhile_counts_as_resident() {
        let second = |t: i64| t * SECOND_NS;
        let resident: Vec<(f64, f64)> = (0..10).map(|t| (f64::from(t), 2e9)).collect();
        let swapped: Vec<(i64, i64)> = (0..10).map(|t| (second(t), 5_000_000 * t)).collect();
        assert!(trend(&resident).is_none_or(|rise| rise.slope == 0.0));
        assert_eq!(trend(&with(&resident, &swapped)).map(|rise| rise.slope), Some(5e6));
        // Read each ten seconds only, and not at all.
        assert_eq!(with(&resident, &[(second(3), 7)]).iter().map(|point| point.1).sum::<f64>(), 20e9 + 70.0);
        assert_eq!(with(&resident, &[]), resident);
    }

    #[test]
    fn growth_that_becomes_slower_is_carried_forward_as_it_was_in_the_end() {
        let paced = |seconds: i32, bytes: fn(f64) -> f64| {
            let points: Vec<_> = (0..=seconds).map(|t| (f64::from(t), bytes(f64::from(t)))).collect();
            let slope = steady(&points).expect("growth").slope;
            (slope, pace(&points, slope))
        };
        // Half as fast from the middle on.
        let slower = |t: f64| 100e6 + if t < 200.0 { 1e6 * t } else { 200e6 + 0.5e6 * (t - 200.0) };
        let (slope, pace) = paced(400, slower);
        assert!(slope > 0.6e6 && (pace - 0.5e6).abs() < 1e3, "{slope} {pace}");
        // Nothing is carried forward faster than it was on the whole.
        let (slope, pace) = paced(400, |t| 100e6 + 500.0 * t * t);
        assert_eq!(slope, pace);
        // Of a short recording a third is too little.
        let (slope, pace) = paced(60, |t| 100e6 + if t < 30.0 { 2e6 * t } else { 60e6 + 1e6 * (t - 30.0) });
        assert_eq!(slope, pace);
    }
}
