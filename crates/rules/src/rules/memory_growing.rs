//! BT027: a kind of memory grows steadily: which one, how fast, who holds it, and when a limit is reached.

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Group, MemoryKind, Metric, Missing, Period, Rank, Scale,
    Signal, Subject, TableRow, Threshold, Unit, metrics, units::SECOND_NS,
};
use beamtune_stats::{Trend, trend};

use crate::remedy;
use crate::rule::{Draft, FAR_SECONDS, Judgement, Role, Rule, SOON_SECONDS, SOON_SOURCE, Topic};
use crate::signals::limits::{
    self, MAX_MEMORY_EXTRAPOLATION, MIN_LEAK_SECONDS, expected_growth, growth, is_continuing,
};
use crate::signals::memory::{self, End, Room};
use crate::signals::port_queues;
use crate::signals::table_binaries::TableBinaries;
use crate::signals::watermark;
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT027"),
    name: "memory-growing",
    question: "Does memory grow, and when does it reach a limit?",
    confirm: "record for an hour or more: growth that follows the load up and down is no leak",
    needs: &[&metrics::RSS],
    account: Account::Memory,
    role: Role::Symptom,
    topics: &[Topic::Memory],
    needs_minutes: true,
    judge,
    thresholds: &[RATE],
    ..Rule::COMMON
};

const RATE: Threshold = Threshold::new(
    "memory-growing.growth_per_hour",
    "growth per hour, as a share of the present size, if no limit is known",
    Scale { notice: 0.05, warning: 0.5, critical: 10.0, source: "judgement" },
);

/// Less growth within the period is noise.
const MIN_GROWTH_BYTES: f64 = 4e6;
/// The same for a short period: memory of a busy node rises and falls by this much within seconds.
const MIN_GROWTH_SHORT_BYTES: f64 = 16e6;

/// If the end is more than this many periods away, it is far (judgement). In a short period, first use of carriers looks like growth
/// outside the VM, which is likely if the end is far.
const FAR_PERIODS: f64 = 50.0;

/// Fewer samples show nothing (judgement).
const MIN_POINTS: usize = 4;

/// If resident memory rises by less than this share of the growth, the growth fills existing carriers of the VM (judgement).
const MIN_RISE_SHARE: f64 = 0.25;

/// Kinds of `erlang:memory/0` that are judged. Atoms have their own rule.
const KINDS: [&str; 4] = ["processes", "binary", "ets", "code"];

/// Name for all memory, if its kinds are unknown.
const RESIDENT: &str = "resident";

/// A holder of this share of the growing memory is named in the title (judgement).
const MAJORITY: f64 = 0.5;

struct Growing {
    kind: &'static str,
    now: f64,
    trend: Trend,
    /// Slope that is extrapolated, in bytes per second.
    pace: f64,
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    if period.is_imported() {
        // Imported text has the memory at one instant only.
        return Err(period.missing_group(Group::Memory, "memory over time"));
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
                pace: expected_growth(&points, trend.slope),
            });
        }
    }
    // Resident memory beyond what the VM uses. This also grows when the VM uses less, so resident memory must grow, too.
    let outside = difference(resident.trace.points(), total.trace.points());
    let resident_points = view::trend_points(&resident.trace);
    if steady(&resident_points).is_some()
        && let Some(trend) = steady(&outside)
        && let Some(&(_, now)) = outside.last()
        && found.iter().all(|growing| growing.trend.slope < trend.slope)
        && !fills_carriers(period, trend.slope)
    {
        found.push(Growing { kind: "outside", now, trend, pace: expected_growth(&outside, trend.slope) });
    }
    // Memory that was swapped out in the period counts as resident.
    let swapped =
        period.stat(&metrics::SWAP, "").map(|stat| stat.trace.points().to_vec()).unwrap_or_default();
    let rise = trend(&with(&resident_points, &swapped)).filter(|rise| rise.p < 0.01 && rise.low > 0.0);
    let mut drafts: Vec<Draft> = Vec::new();
    for growing in &found {
        let rises = rise.is_some_and(|rise| rise.slope >= MIN_RISE_SHARE * growing.trend.slope);
        let fills = growing.kind != "outside" && !rises;
        // Growth within existing carriers reaches no limit of the host.
        let room = room.filter(|_| !fills);
        let severity = match room {
            Some(room) => (room.bytes / growing.pace.max(1e-9) < FAR_SECONDS).then_some(0.0),
            None => RATE.of(period).severity(growing.pace * 3600.0 / growing.now.max(1.0)),
        };
        let Some(severity) = severity else { continue };
        let draft = draft(period, severity, growing, room);
        drafts.push(match fills {
            true => draft.confidence(Confidence::Guess).counter_evidence(
                "resident memory does not rise with it: it fills existing carriers, as after a peak",
            ),
            false => draft,
        });
    }
    Ok(Judgement::found_or_healthy(
        drafts,
        format!(
            "{} resident, {} used by the VM: no steady growth",
            text::bytes(resident.last.value as f64),
            text::bytes(total.last.value as f64)
        ),
    ))
}

/// Judges resident memory alone, if the VM was not sampled: it shows growth, but not of which kind.
fn resident_alone(period: &Period, room: Option<Room>) -> Result<Judgement, Missing> {
    let resident = period.stat(&metrics::RSS, "")?;
    let points = view::trend_points(&resident.trace);
    let Some(trend) = steady(&points) else {
        let Some(rise) = climb(&points) else {
            return Err(period.missing_group(Group::Memory, "erlang:memory(total)"));
        };
        let seconds = period.seconds();
        let draft =
            Draft::new(0.0, format!("Resident memory rose by {} in {seconds:.0} s", text::bytes(rise)))
                .detail("with each sample")
                .detail(format!("{} now", text::bytes(resident.last.value as f64)))
                .confidence(Confidence::Guess)
                .evidence(Evidence::number("resident memory", resident.last.value as f64, Unit::Bytes))
                .evidence(Evidence::number("growth per second", rise / seconds.max(1.0), Unit::Bytes))
                .counter_evidence("too few samples for a trend: record for longer (--for 30s)")
                .counter_evidence("only the VM knows which kind grows");
        return Ok(Judgement::found(draft));
    };
    let growing = Growing {
        kind: RESIDENT,
        now: resident.last.value as f64,
        trend,
        pace: expected_growth(&points, trend.slope),
    };
    let draft = draft(period, 0.0, &growing, room);
    Ok(Judgement::found(draft.counter_evidence("only the VM knows which kind grows")))
}

/// Returns the rise in bytes, if memory rose in each step: used if there are too few points for a trend.
fn climb(points: &[(f64, f64)]) -> Option<f64> {
    let (first, last) = (points.first()?, points.last()?);
    let rises = points.len() >= MIN_POINTS && points.windows(2).all(|pair| pair[1].1 > pair[0].1);
    Some(last.1 - first.1).filter(|rise| rises && *rise >= MIN_GROWTH_SHORT_BYTES)
}

/// Whether most of this growth is in carriers, in a short period: they have free space for later use. A leak outside the VM is in no
/// carrier.
fn fills_carriers(period: &Period, per_second: f64) -> bool {
    if period.seconds() >= MIN_LEAK_SECONDS {
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
    grown >= MAJORITY * per_second * period.seconds()
}

fn steady(points: &[(f64, f64)]) -> Option<Trend> {
    let trend = growth(points, f64::INFINITY)?;
    let (first, last) = (points.first()?, points.last()?);
    let length = last.0 - first.0;
    let min_growth = if length < MIN_LEAK_SECONDS { MIN_GROWTH_SHORT_BYTES } else { MIN_GROWTH_BYTES };
    (trend.slope * length >= min_growth && is_continuing(points, first.0 + length / 2.0)).then_some(trend)
}

/// Adds to each point (in seconds) the last value of a trace at or before it. Returns the points unchanged if the trace is empty.
fn with(points: &[(f64, f64)], trace: &[(i64, i64)]) -> Vec<(f64, f64)> {
    let at = |t: f64| {
        let after = trace.partition_point(|&(other, _)| other as f64 / SECOND_NS as f64 <= t);
        after.checked_sub(1).and_then(|place| trace.get(place)).or_else(|| trace.first())
    };
    points.iter().map(|&(t, value)| (t, value + at(t).map_or(0.0, |&(_, more)| more as f64))).collect()
}

/// Subtracts one trace from another, at the nearest point in time.
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

/// Returns the largest holder of a kind of memory (of tables, the one that has grown most), with its evidence.
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
        "binary" if let Some(waiting) = port_queues::most_binaries(period) => {
            (port_queues::subject(period), waiting as i64, "data in driver queues".to_owned())
        }
        "binary" if let Some(table) = memory::binaries_of_table(period) => {
            let (objects, owner) = (table.objects, table.owner_title());
            let what = format!("{objects} objects, owner {owner}; no process refers to the new binaries");
            (table.subject(), table.memory_bytes, what)
        }
        "binary" => {
            let (subject, bytes) = largest(Rank::Binary, |row| row.binary_bytes)?;
            (subject, bytes, "binaries that it refers to".to_owned())
        }
        _ => return None,
    };
    let evidence = Evidence::number(format!("largest: {subject}"), bytes as f64, Unit::Bytes).with_text(what);
    Some((subject, evidence))
}

/// Whether sampled objects of the table whose binaries grow have whole binaries, not parts of larger ones.
fn is_held_whole(period: &Period) -> bool {
    let Some(table) = memory::binaries_of_table(period) else { return false };
    let all = TableBinaries::all(period);
    all.iter().any(|seen| seen.id == table.id && seen.count > 0.0 && !seen.has_parts())
}

fn memory_kind(kind: &str) -> MemoryKind {
    MemoryKind::from_text(kind).unwrap_or(MemoryKind::Outside)
}

/// Returns the name of a holder for a title: a table or a port without its owner, a process without its pid.
fn short_name(subject: &Subject) -> String {
    match subject {
        Subject::Table { name, .. } | Subject::Port { name, .. } => name.clone(),
        process => text::name(process),
    }
}

/// Formats the end for a title; the detail has the sentence.
fn short_end(end: End) -> &'static str {
    match end {
        End::ControlGroup => "memory limit",
        End::Host => "host full",
        End::Watermark { .. } => "publishers blocked",
    }
}

fn draft(period: &Period, severity: f64, growing: &Growing, room: Option<Room>) -> Draft {
    let Growing { kind, now, trend, pace } = growing;
    let (noun, grows) = match *kind {
        "processes" => ("Process memory", "grows"),
        "binary" => ("Binaries", "grow"),
        "ets" => ("ETS tables", "grow"),
        "code" => ("Code", "grows"),
        RESIDENT => ("Resident memory", "grows"),
        _ => ("Memory outside the VM", "grows"),
    };
    let short = period.seconds() < MIN_LEAK_SECONDS;
    let left = room.map(|room| room.bytes / pace.max(1e-9));
    let is_farther = |times: f64| left.is_some_and(|left| left > times * period.seconds());
    let is_far = left.is_none() || is_farther(FAR_PERIODS);
    let resident = memory::resident(period).unwrap_or(0.0);
    let used_share = room.map_or(0.0, |room| resident / (resident + room.bytes).max(1.0));
    let confidence = match left {
        _ if short && is_far && matches!(*kind, "outside" | RESIDENT) => Confidence::Guess,
        Some(left) => limits::confidence_of_end(left, period.seconds(), used_share, MAX_MEMORY_EXTRAPOLATION),
        None if short => Confidence::Inferred,
        None => Confidence::Measured,
    };
    let end = left.zip(room).map(|(left, room)| (room.end, view::duration_text(left)));
    let owner = owner(period, kind);
    let holder = owner.as_ref().and_then(|(subject, evidence)| Some((subject, evidence.value?)));
    let mostly = holder.filter(|(_, bytes)| *bytes >= MAJORITY * now);
    let mostly = mostly.map_or(String::new(), |(subject, _)| format!(", mostly {},", short_name(subject)));
    let until = end.as_ref().map_or(String::new(), |(end, left)| format!(", {} in {left}", short_end(*end)));
    let draft = Draft::new(severity, format!("{noun}{mostly} {grows} by {}/s{until}", text::bytes(*pace)))
        .detail(format!("{} now", text::bytes(*now)))
        .detail(
            holder.map_or(String::new(), |(subject, bytes)| format!("{} in {subject}", text::bytes(bytes))),
        )
        .detail(end.map_or(String::new(), |(end, left)| format!("{} in {left}", end.sentence())))
        .confidence(confidence)
        .about(owner.as_ref().map(|(subject, _)| subject.clone()))
        .signals((*kind != RESIDENT).then(|| Signal::Grows(memory_kind(kind))))
        .costs(left.map(Cost::EndSeconds))
        .evidence(Evidence::number("size now", *now, Unit::Bytes))
        .evidence(Evidence::number("growth per second", trend.slope, Unit::Bytes).with_text(format!(
            "[{}, {}] in {}",
            text::bytes(trend.low),
            text::bytes(trend.high),
            view::duration_text(period.seconds())
        )))
        .because_some(
            (*pace < trend.slope)
                .then(|| Evidence::number("growth per second in the last third", *pace, Unit::Bytes)),
        )
        .because_some(left.map(|left| {
            Evidence::number("time left", left, Unit::Seconds).against(SOON_SECONDS, SOON_SOURCE)
        }))
        .because_some(room.map(|room| {
            Evidence::number(format!("left until {}", short_end(room.end)), room.bytes, Unit::Bytes)
        }))
        .because_some(owner.map(|(_, evidence)| evidence))
        .but_if(short, "a peak that builds up looks the same in so short a time (beamtune record --keep 6h)");
    let draft = match room.map(|room| room.end) {
        Some(End::Watermark { unsure: Some(but) }) => {
            draft.confidence(Confidence::Inferred).counter_evidence(but)
        }
        _ => draft,
    };
    let prove = "beamtune memory --for 10m: the growth ends under the same load";
    match *kind {
        // Operators cannot change the code of RabbitMQ.
        "processes" | "binary" if watermark::version(period).is_some() => draft.remedy(remedy::of(
            period,
            "code.back_pressure",
            "add consumers or a larger prefetch; limit the queues that grow: max-length with overflow reject-publish, or message-ttl",
            "messages that are published and not consumed stay in queues: see rabbitmqctl list_queues name messages consumers",
            prove,
        )),
        "ets" if watermark::version(period).is_some() => draft.remedy(remedy::of(
            period,
            "code.back_pressure",
            "see what grows: rabbitmqctl list_queues, list_connections, list_channels, list_bindings; delete unused ones (expires, \
             auto-delete), and limit them per virtual host or user (set_vhost_limits, set_user_limits)",
            "its tables have an object for each queue, connection, channel and binding, and for their metrics",
            prove,
        )),
        "code" if watermark::version(period).is_some() => draft,
        "ets" => draft
            .remedy(remedy::of(
                period,
                "code.bounded_table",
                "delete old objects: by a time stamp and ets:select_delete/2, or with a new table for each period of time",
                "a table keeps its objects until they are deleted",
                prove,
            ))
            .remedy(remedy::of(
                period,
                "ets.compressed",
                "ets:new(…, [compressed]), if its objects are large and seldom read",
                "objects then take about half, which only slows the growth",
                prove,
            )),
        "binary" if port_queues::most_binaries(period).is_some() => draft.remedy(port_queues::slow_peers(period, prove)),
        "binary" if is_held_whole(period) => draft.remedy(remedy::of(
            period,
            "code.bounded_table",
            "delete old objects: by a time stamp and ets:select_delete/2, or with a new table for each period of time",
            "a table keeps its objects until they are deleted; its binaries are whole, so copies save nothing",
            prove,
        )),
        "binary" => draft.remedy(remedy::of(
            period,
            "code.binary_copy",
            "copy the parts that you keep with binary:copy/1; hibernate idle holders",
            "a sub-binary keeps the whole binary alive, and so does a process without GC",
            prove,
        )),
        "processes" => draft.remedy(remedy::of(
            period,
            "code.back_pressure",
            "limit the state of processes, their message queues (BT006) and their number (BT007)",
            "a heap grows with its live data",
            prove,
        )),
        "code" => draft.remedy(remedy::of(
            period,
            "code.no_code_at_run_time",
            "do not compile or load modules at run time",
            "code and literals of a module stay until it is purged",
            prove,
        )),
        RESIDENT => draft,
        _ => draft.remedy(remedy::of(
            period,
            "code.native_memory",
            "run beamtune memory as root: its growing lines show whether it is malloc (NIFs), carriers or cached segments",
            "the VM cannot free what it did not allocate",
            prove,
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_that_levels_off_is_not_steady() {
        let points = |seconds: i32, bytes: fn(f64) -> f64| {
            (0..=seconds).map(|t| (f64::from(t), 100e6 + bytes(f64::from(t)))).collect::<Vec<_>>()
        };
        assert!(steady(&points(11, |t| 3e6 * t)).is_some());
        // A load that just began.
        assert!(steady(&points(11, |t| 60e6 * (1.0 - (-t / 2.5).exp()))).is_none());
        // Growth that accelerates.
        assert!(steady(&points(11, |t| 0.4e6 * t * t)).is_some());
        // Growth that levels off is not steady over a longer time either.
        assert!(steady(&points(400, |t| 60e6 * (1.0 - (-t / 90.0).exp()))).is_none());
        assert!(steady(&points(310, |t| 200e6 * (1.0 - (-t / 60.0).exp()))).is_none());
        assert!(steady(&points(400, |t| 0.1e6 * t)).is_some());
    }

    #[test]
    fn few_samples_must_rise_at_each_step() {
        let points = |values: &[f64]| -> Vec<(f64, f64)> {
            values.iter().enumerate().map(|(t, mb)| (t as f64, mb * 1e6)).collect()
        };
        assert_eq!(climb(&points(&[100.0, 118.0, 137.0, 155.0])), Some(55e6));
        assert_eq!(climb(&points(&[100.0, 118.0, 117.0, 155.0])), None);
        assert_eq!(climb(&points(&[100.0, 101.0, 102.0, 103.0])), None);
        assert_eq!(climb(&points(&[100.0, 155.0])), None);
    }

    #[test]
    fn swapped_out_memory_counts_as_resident() {
        let second = |t: i64| t * SECOND_NS;
        let resident: Vec<(f64, f64)> = (0..10).map(|t| (f64::from(t), 2e9)).collect();
        let swapped: Vec<(i64, i64)> = (0..10).map(|t| (second(t), 5_000_000 * t)).collect();
        assert!(trend(&resident).is_none_or(|rise| rise.slope == 0.0));
        assert_eq!(trend(&with(&resident, &swapped)).map(|rise| rise.slope), Some(5e6));
        // In this order: swap was sampled only every ten seconds; it was not sampled.
        assert_eq!(with(&resident, &[(second(3), 7)]).iter().map(|point| point.1).sum::<f64>(), 20e9 + 70.0);
        assert_eq!(with(&resident, &[]), resident);
    }

    #[test]
    fn slowing_growth_is_extrapolated_at_its_last_pace() {
        let paced = |seconds: i32, bytes: fn(f64) -> f64| {
            let points: Vec<_> = (0..=seconds).map(|t| (f64::from(t), bytes(f64::from(t)))).collect();
            let slope = steady(&points).expect("growth").slope;
            (slope, expected_growth(&points, slope))
        };
        // Growth slows to half in the middle.
        let slower = |t: f64| 100e6 + if t < 200.0 { 1e6 * t } else { 200e6 + 0.5e6 * (t - 200.0) };
        let (slope, pace) = paced(400, slower);
        assert!(slope > 0.6e6 && (pace - 0.5e6).abs() < 1e3, "{slope} {pace}");
        // Accelerating growth is extrapolated at its overall slope.
        let (slope, pace) = paced(400, |t| 100e6 + 500.0 * t * t);
        assert_eq!(slope, pace);
        // A third of a short recording is too short for a trend.
        let (slope, pace) = paced(60, |t| 100e6 + if t < 30.0 { 2e6 * t } else { 60e6 + 1e6 * (t - 30.0) });
        assert_eq!(slope, pace);
    }
}
