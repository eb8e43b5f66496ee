//! BT084: the number of objects in an ETS table grows steadily.
//!
//! The agent counts the objects of single tables each second. In tables that grow, it searches a sample of the objects for pids of
//! processes that have ended: nothing will delete those objects any more.

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Group, MemoryKind, Missing, Period, Remedy, Scale, Signal,
    Subject, TableRow, Threshold, Unit, metrics,
};
use beamtune_stats::{Trend, trend};

use crate::remedy;
use crate::rule::{Draft, FAR_SECONDS, Judgement, Rule, SOON_SECONDS, SOON_SOURCE, Topic};
use crate::signals::limits::{
    self, MAX_MEMORY_EXTRAPOLATION, MIN_LEAK_SECONDS, expected_growth, growth, is_continuing,
};
use crate::signals::lock_suspects;
use crate::signals::memory;
use crate::signals::mnesia;
use crate::signals::products::{self, Whose};
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT084"),
    name: "table-rows-growing",
    question: "Does the number of objects in one ETS table grow steadily?",
    confirm: "call ets:info(Table, size) twice, an hour apart, under the same load: it has grown; a full cache has not",
    needs: &[&metrics::TABLES_WATCHED],
    account: Account::Memory,
    // The growth may be intended, but it still explains growing memory.
    explains_as_notice: true,
    topics: &[Topic::Memory],
    needs_minutes: true,
    judge,
    thresholds: &[ENDED, BYTES],
    ..Rule::COMMON
};

const ENDED: Threshold = Threshold::new(
    "table-rows-growing.rows_of_ended_share",
    "share of the sampled objects with a pid whose process has ended, in a table that grows",
    Scale {
        notice: 0.2,
        warning: 0.5,
        critical: 1_000_000.0,
        source: "judgement: a program that monitors its processes deletes their objects within milliseconds",
    },
);

const BYTES: Threshold = Threshold::new(
    "table-rows-growing.bytes_per_s",
    "growth of a table in bytes per second, if nothing is known about its objects",
    Scale {
        notice: 10_000.0,
        warning: f64::INFINITY,
        critical: f64::INFINITY,
        source: "judgement: 0.9 GB a day; the level follows from the time until memory is used up",
    },
);

/// The share of ended processes is known from this many sampled objects on …
const MIN_SAMPLED: f64 = 20.0;
/// … if this share of them has a pid in the same place (judgement).
const MIN_WITH_PID: f64 = 0.5;

/// Growth must be at least 1 % of the objects of a table. If it is certain, 1 % of this number is enough. It is certain if the objects
/// belong to ended processes, or if each reading has more objects and there are far more objects than processes.
const LARGE_OBJECTS: f64 = 2_000.0;
/// Slower growth, in objects per second, is ignored (judgement: 40,000 a day).
const MIN_OBJECTS_PER_S: f64 = 0.5;

/// A table that has not grown in this many last readings may be full.
const LAST_READINGS: usize = 3;

/// If processes grow by this many per new object, their number explains the growth of the table (judgement: half).
const MIN_PROCESSES_PER_OBJECT: f64 = 0.5;

/// If there are more objects per process of the node, they do not all belong to live processes (judgement).
const MAX_OBJECTS_PER_PROCESS: f64 = 10.0;

/// A table with this share of the growth of a kind of memory explains it (judgement: half).
const MIN_EXPLAINED: f64 = 0.5;

/// Maximum number of reported tables: those that grow by the most bytes.
const MAX_TABLES: usize = 3;

/// Prefix of Mnesia's own tables (mnesia_monitor.erl, mnesia_recover.erl, mnesia_locker.erl).
const MNESIA_PREFIX: &str = "mnesia_";

const CONFIRM_ENDED: &str =
    "call is_process_alive/1 for the pids in the table: false for most of them; after the fix for hardly any";

const PROVE: &str = "beamtune doctor --for 1m: the number of objects stays the same under the same load";

/// Results for the sampled objects of a table.
#[derive(Clone, Copy)]
struct Sampled {
    objects: f64,
    pid_place: i64,
    with_pid: f64,
    ended: f64,
}

impl Sampled {
    /// Returns the share of ended processes; `None` if too few objects have a pid.
    fn share(&self) -> Option<f64> {
        let is_known = self.objects >= MIN_SAMPLED && self.with_pid >= MIN_WITH_PID * self.objects;
        is_known.then(|| self.ended / self.with_pid.max(1.0))
    }

    fn pid_place(&self) -> &'static str {
        match self.pid_place {
            metrics::PID_IS_KEY => "as the key",
            metrics::PID_IN_KEY => "in the key",
            _ => "in an element",
        }
    }
}

/// A table that grows.
struct Growing<'p> {
    id: &'p str,
    objects: f64,
    bytes: f64,
    trend: Trend,
    objects_per_s: f64,
    bytes_per_s: f64,
    /// The part of `bytes_per_s` that is binaries to which its objects refer.
    binaries_per_s: f64,
    sampled: Option<Sampled>,
    row: Option<&'p TableRow>,
    /// `None` on a node without a product.
    whose: Option<Whose<'p>>,
}

impl<'p> Growing<'p> {
    fn of(period: &'p Period, id: &'p str) -> Option<Self> {
        let objects = period.stat(&metrics::TABLE_ROWS, id).ok()?;
        let bytes = period.stat(&metrics::TABLE_MEMORY, id).ok()?;
        let last = |metric| period.stat(metric, id).ok().map(|stat| stat.last.value);
        let sampled = last(&metrics::TABLE_SAMPLED).map(|objects| Sampled {
            objects: objects as f64,
            pid_place: last(&metrics::TABLE_PID_PLACE).unwrap_or(metrics::NO_PID),
            with_pid: last(&metrics::TABLE_WITH_PID).unwrap_or(0) as f64,
            ended: last(&metrics::TABLE_ENDED).unwrap_or(0) as f64,
        });
        let points = view::trend_points(&objects.trace);
        let is_certain = match sampled.and_then(|sampled| sampled.share()) {
            Some(share) if is_leak(period, share) => true,
            Some(_) if fits_processes(period, objects.last.value as f64) => false,
            _ => always_rises(&points),
        };
        let trend = growth(&points, if is_certain { LARGE_OBJECTS } else { f64::INFINITY })?;
        let (first, end) = (points.first()?.0, points.last()?.0);
        if trend.slope < MIN_OBJECTS_PER_S
            || !is_continuing(&points, first.midpoint(end))
            || !still_grows(&points)
        {
            return None;
        }
        let byte_points = view::trend_points(&bytes.trace);
        let table_bytes_per_s =
            slope_of(&byte_points).map_or(0.0, |slope| expected_growth(&byte_points, slope));
        let row = period.tables.iter().find(|table| table.id == id);
        let keeps_binaries = memory::binaries_of_table(period).is_some_and(|table| table.id == id);
        let binaries = period.find(Group::Memory, "", "binary").filter(|_| keeps_binaries);
        let binaries_per_s =
            binaries.and_then(|stat| slope_of(&view::trend_points(&stat.trace))).unwrap_or(0.0).max(0.0);
        Some(Growing {
            id,
            objects: objects.last.value as f64,
            bytes: bytes.last.value as f64,
            trend,
            objects_per_s: expected_growth(&points, trend.slope),
            bytes_per_s: table_bytes_per_s.max(0.0) + binaries_per_s,
            binaries_per_s,
            sampled,
            row,
            whose: products::is_of_others(period)
                .then(|| products::owner_of_table(period, id, row.map_or(id, |row| &row.name))),
        })
    }

    fn name(&self) -> &str {
        self.row.map_or(self.id, |row| &row.name)
    }

    fn subject(&self) -> Subject {
        self.row.map_or_else(|| Subject::table(self.id), TableRow::subject)
    }

    fn is_of_kind(&self, kind: &str) -> bool {
        self.row.is_some_and(|row| row.kind == kind)
    }

    fn is_of_mnesia(&self) -> bool {
        self.row.is_some_and(|row| row.owner_name.as_deref() == Some(mnesia::TABLES_OWNER))
    }

    /// Returns owner, type, and which processes may write.
    fn owner(&self) -> Option<Evidence> {
        let row = self.row?;
        let writers = match row.protection.as_str() {
            "public" => "any process may write",
            _ => "only its owner writes",
        };
        let text = if self.is_of_mnesia() { "a Mnesia table" } else { writers };
        let owner = row.owner_title();
        Some(Evidence::text("owner", format!("{owner}; {}, {}: {text}", row.kind, row.protection)))
    }
}

fn slope_of(points: &[(f64, f64)]) -> Option<f64> {
    trend(points).map(|trend| trend.slope)
}

/// Whether so many objects may all belong to live processes of the node.
fn fits_processes(period: &Period, objects: f64) -> bool {
    let processes = period.stat(&metrics::PROCESS_COUNT, "").map_or(f64::INFINITY, |count| count.mean());
    objects <= MAX_OBJECTS_PER_PROCESS * processes
}

/// Whether each reading has more objects than the one before, as in a table from which nothing is deleted.
fn always_rises(points: &[(f64, f64)]) -> bool {
    points.iter().zip(points.iter().skip(1)).all(|(before, after)| after.1 > before.1)
}

fn still_grows(points: &[(f64, f64)]) -> bool {
    let before = points.len().checked_sub(LAST_READINGS).and_then(|place| points.get(place));
    before.zip(points.last()).is_none_or(|(before, last)| last.1 > before.1)
}

fn is_leak(period: &Period, share: f64) -> bool {
    ENDED.of(period).severity(share).is_some()
}

/// Whether it is neither a table of OTP nor of the agent, which a program cannot change.
fn is_of_program(period: &Period, id: &str) -> bool {
    let row = period.tables.iter().find(|table| table.id == id);
    let name = row.map_or(id, |row| &row.name);
    !name.starts_with(MNESIA_PREFIX)
        && (row.is_none() || lock_suspects::of_program(period).any(|table| table.id == id))
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let followed = period.stat(&metrics::TABLES_WATCHED, "")?.last.value;
    let is_product = products::is_of_others(period);
    let tables = period.entities(Group::Table).into_iter().filter(|id| !id.is_empty());
    let mut growing: Vec<Growing<'_>> =
        tables.filter(|id| is_of_program(period, id)).filter_map(|id| Growing::of(period, id)).collect();
    if is_product {
        growing.retain(|table| !matches!(table.whose, Some(Whose::Product | Whose::NotRecorded)));
    }
    growing.sort_by(|a, b| b.bytes_per_s.total_cmp(&a.bytes_per_s));
    let drafts: Vec<Draft> =
        growing.iter().filter_map(|table| draft(period, table)).take(MAX_TABLES).collect();
    let healthy = match is_product {
        true => format!("{followed} tables watched, none of the operator's own grows steadily"),
        false => format!("{followed} tables watched, none grows steadily"),
    };
    Ok(Judgement::found_or_healthy(drafts, healthy))
}

fn draft(period: &Period, table: &Growing<'_>) -> Option<Draft> {
    let share = table.sampled.and_then(|sampled| sampled.share());
    let leak = share.and_then(|share| ENDED.of(period).severity(share));
    // A pid outside the key may only name the process that wrote the object.
    let is_of_ended =
        leak.is_some() && table.sampled.is_some_and(|sampled| sampled.pid_place != metrics::PID_IN_OBJECT);
    // Growth is a notice unless memory runs out soon.
    let severity = leak.or_else(|| BYTES.of(period).severity(table.bytes_per_s))?;
    let is_unknown = table.whose == Some(Whose::Unknown);
    let severity = if is_of_ended && !is_unknown { severity } else { 0.0 };
    let seconds = period.seconds();
    let is_short = seconds < MIN_LEAK_SECONDS;
    let room = memory::room(period);
    let left = room.map(|room| room.bytes / table.bytes_per_s.max(1e-9));
    let left = left.filter(|left| *left < FAR_SECONDS.min(MAX_MEMORY_EXTRAPOLATION * seconds));
    let resident = memory::resident(period).unwrap_or(0.0);
    let used = room.map_or(0.0, |room| resident / (resident + room.bytes).max(1.0));
    let end = left.map(|left| limits::confidence_of_end(left, seconds, used, MAX_MEMORY_EXTRAPOLATION));
    let new_processes = new_processes_per_s(period, table).filter(|_| leak.is_none());
    let is_of_live = share.is_some() && leak.is_none() && fits_processes(period, table.objects);
    let confidence = match end {
        // A periodic sweep leaves such objects until its next run.
        _ if is_of_ended && is_short => Confidence::Inferred,
        _ if is_of_ended => Confidence::Measured,
        _ if is_of_live || new_processes.is_some() => Confidence::Guess,
        // A cache that fills may have a limit.
        Some(Confidence::Measured) => Confidence::Inferred,
        _ if is_short => Confidence::Guess,
        _ => Confidence::Inferred,
    };
    let draft = Draft::new(
        severity,
        format!(
            "ETS table `{}` grows by {} objects/s ({}/s)",
            table.name(),
            text::rate(table.objects_per_s),
            text::bytes(table.bytes_per_s),
        ),
    )
    .detail(table.sampled.filter(|_| leak.is_some()).map_or(String::new(), |sampled| {
        format!(
            "{:.0} of {:.0} sampled objects belong to processes that have ended",
            sampled.ended, sampled.with_pid
        )
    }))
    .detail(left.zip(room).map_or(String::new(), |(left, room)| {
        format!("at this rate {} in {}", room.end.sentence(), view::duration_text(left))
    }))
    .detail(format!("{} objects now, {}", text::number(table.objects), text::bytes(table.bytes)))
    .confidence(confidence)
    .about(table.subject())
    .signals(explained(period, table))
    .costs(left.map(Cost::EndSeconds))
    .evidence(Evidence::number("objects now", table.objects, Unit::Count))
    .evidence(Evidence::number("growth in objects", table.trend.slope, Unit::PerSecond).with_text(format!(
        "[{:.1}, {:.1}], over {}",
        table.trend.low,
        table.trend.high,
        view::duration_text(seconds)
    )))
    .evidence(Evidence::number("memory of the table", table.bytes, Unit::Bytes))
    .evidence(Evidence::number("growth of its memory per second", table.bytes_per_s, Unit::Bytes))
    .because_some((table.binaries_per_s > 0.0).then(|| {
        Evidence::number("part of it: binaries that its objects refer to", table.binaries_per_s, Unit::Bytes)
    }))
    .because_some(table.owner())
    .because_some(module_of(period, table))
    .because_some(sampled_evidence(period, table))
    .because_some(left.map(|left| {
        Evidence::number("time until memory is used up", left, Unit::Seconds)
            .against(SOON_SECONDS, SOON_SOURCE)
            .with_text("by this table alone")
    }))
    .but_if(
        is_unknown,
        "it may be the product's own and grow by design: neither its name nor its owner shows who created it",
    );
    let draft = counter_evidence(draft, table, is_of_ended, is_of_live, is_short, new_processes);
    Some(match (leak.is_some(), is_of_ended) {
        (_, true) => draft
            .confirmed_by(CONFIRM_ENDED)
            .remedy(delete_at_end(period, table))
            .remedy(limit(period, table)),
        (true, false) => draft
            .counter_evidence("the pid in its objects may only name the process that wrote them")
            .remedy(limit(period, table))
            .remedy(delete_at_end(period, table)),
        (false, false) => draft.remedy(limit(period, table)),
    })
}

fn counter_evidence(
    draft: Draft,
    table: &Growing<'_>,
    is_of_ended: bool,
    is_of_live: bool,
    is_short: bool,
    new_processes: Option<f64>,
) -> Draft {
    draft
        .but_if(
            is_of_ended && is_short,
            "a periodic sweep leaves such objects until its next run: record for longer than its interval",
        )
        .but_if(is_of_live, "the processes of nearly all sampled objects are alive: it grows with their number")
        .but_if(
            new_processes.is_some(),
            format!(
                "the node gains {:.1} processes/s: objects of new users may disappear with them",
                new_processes.unwrap_or(0.0)
            ),
        )
        .but_if(
            !is_of_ended && is_short,
            "a cache that fills looks the same until it is full: record for the lifetime of its objects (beamtune record --keep 6h)",
        )
        .but_if(
            table.sampled.is_none(),
            match table.row {
                Some(row) if row.kind == "ordered_set" => "its objects were not sampled: it is an ordered_set",
                Some(row) if row.kind.ends_with("bag") => "its objects were not sampled: it is a bag",
                Some(row) if row.protection == "private" => "its objects were not sampled: it is private",
                _ => "its objects were not sampled for ended processes",
            },
        )
}

/// Returns the module that created a table of the operator, on a node that runs a product.
fn module_of(period: &Period, table: &Growing<'_>) -> Option<Evidence> {
    let product = products::name(period).unwrap_or("the product");
    let Some(Whose::Operator { module, application }) = &table.whose else { return None };
    let application = match application {
        Some(application) => format!("of the application {application}, not part of {product}"),
        None => format!("of no application, not part of {product}"),
    };
    Some(Evidence::text("created by module", format!("{module}, {application}")))
}

fn sampled_evidence(period: &Period, table: &Growing<'_>) -> Option<Evidence> {
    let sampled = table.sampled?;
    Some(match sampled.share() {
        Some(share) => Evidence::number("sampled objects of ended processes", share, Unit::Ratio)
            .against_scale(ENDED.of(period))
            .with_text(format!(
                "{:.0} of {:.0} with a pid {}; {:.0} sampled",
                sampled.ended,
                sampled.with_pid,
                sampled.pid_place(),
                sampled.objects
            )),
        None => Evidence::number("sampled objects with a pid", sampled.with_pid, Unit::Count)
            .with_text(format!("of {:.0}: not known which process they belong to", sampled.objects)),
    })
}

/// Returns a signal for each kind of memory whose growth is mostly this table.
fn explained(period: &Period, table: &Growing<'_>) -> Vec<Signal> {
    let is_most = |kind: &str, bytes_per_s: f64| {
        let stat = period.find(Group::Memory, "", kind);
        let slope = stat.and_then(|stat| slope_of(&view::trend_points(&stat.trace)));
        slope.is_some_and(|slope| slope > 0.0 && bytes_per_s >= MIN_EXPLAINED * slope)
    };
    let own = table.bytes_per_s - table.binaries_per_s;
    let ets = is_most("ets", own).then_some(Signal::Grows(MemoryKind::Ets));
    let binaries = is_most("binary", table.binaries_per_s).then_some(Signal::Grows(MemoryKind::Binary));
    ets.into_iter().chain(binaries).collect()
}

/// Returns the growth of the number of processes per second, if it explains the new objects.
fn new_processes_per_s(period: &Period, table: &Growing<'_>) -> Option<f64> {
    let stat = period.stat(&metrics::PROCESS_COUNT, "").ok()?;
    let trend = growth(&view::trend_points(&stat.trace), f64::INFINITY)?;
    (trend.slope >= MIN_PROCESSES_PER_OBJECT * table.objects_per_s).then_some(trend.slope)
}

fn delete_at_end(period: &Period, table: &Growing<'_>) -> Option<Remedy> {
    let change = match table.is_of_mnesia() {
        true => format!(
            "monitor each process with a record in {0} from one process, and call mnesia:dirty_delete({0}, Key) at 'DOWN'; or sweep \
             records whose process is not alive",
            table.name()
        ),
        false => format!(
            "monitor the process when its object is inserted into {}, and delete the object at 'DOWN'; or sweep objects whose process \
             is not alive",
            table.name()
        ),
    };
    remedy::of(
        period,
        "code.delete_rows_of_ended",
        &change,
        "terminate/2 does not run when a process is killed, or ends by a signal that it does not trap, and code at its end is not \
         reached after a crash",
        PROVE,
    )
}

fn limit(period: &Period, table: &Growing<'_>) -> Option<Remedy> {
    let change = if table.is_of_mnesia() {
        "delete old records by a timestamp in them: run mnesia:dirty_select/2 and mnesia:dirty_delete/2 in portions, from a process"
    } else if table.is_of_kind("ordered_set") {
        "delete from its old end (ets:first/1 and ets:delete/2 while the key is too old), or limit the number of objects"
    } else if table.is_of_kind("duplicate_bag") || table.is_of_kind("bag") {
        "use a set, if one object per key is meant: a bag keeps the earlier ones; else delete old objects (ets:select_delete/2), or \
         use a new table for each period of time"
    } else {
        "delete old objects by a timestamp (ets:select_delete/2), limit their number, or use a new table for each period of time"
    };
    let why = "a table keeps every object until it is deleted";
    remedy::of(period, "code.bounded_table", change, why, PROVE)
}
