//! BT084: the rows of an ETS table become more and more.
//!
//! The agent counts the rows of single tables each second, and searches a sample of the rows of those that grow for pids of processes that
//! have ended: such rows nobody will delete any more.

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Group, MemoryKind, Missing, Period, Remedy, Scale, Signal,
    Subject, TableRow, Threshold, Unit, metrics,
};
use beamtune_stats::{Trend, trend};

use crate::remedy;
use crate::rule::{Draft, FAR_SECONDS, Judgement, Rule, SOON_SECONDS, SOON_SOURCE, Topic};
use crate::signals::limits::{self, MEMORY_REACH, SHORT_SECONDS, goes_on, growth, pace};
use crate::signals::lock_suspects;
use crate::signals::memory::{self, megabytes};
use crate::signals::mnesia;
use crate::signals::products::{self, Whose};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT084"),
    name: "table-rows-growing",
    question: "Do the rows of a single ETS table become more and more?",
    confirm: "ets:info(Table, size) twice, an hour apart, under the same load: a cache has as many rows as before",
    needs: &[&metrics::TABLES_FOLLOWED],
    account: Account::Memory,
    // What grows steadily may be meant to, and is named all the same where memory grows with it.
    explains_as_notice: true,
    topics: &[Topic::Memory],
    needs_minutes: true,
    judge,
    thresholds: &[ENDED, BYTES],
    ..Rule::COMMON
};

const ENDED: Threshold = Threshold::new(
    "table-rows-growing.rows_of_ended_share",
    "share of the sampled rows with a pid whose process has ended, in a table that grows",
    Scale {
        notice: 0.2,
        warning: 0.5,
        critical: 1_000_000.0,
        source: "judgement: whoever monitors its processes deletes their rows within milliseconds",
    },
);

const BYTES: Threshold = Threshold::new(
    "table-rows-growing.bytes_per_s",
    "growth of a table in bytes a second, where nothing is known of its rows",
    Scale {
        notice: 10_000.0,
        warning: f64::INFINITY,
        critical: f64::INFINITY,
        source: "judgement: 0.9 GB a day; the level follows from the time until memory is used up",
    },
);

/// In fewer sampled rows a share says nothing; and so many of those that were sampled must have a pid in the same place (judgement).
const MIN_SAMPLED: f64 = 20.0;
const WITH_PID: f64 = 0.5;

/// Rows of ended processes are certain whatever the table's size, and so is a table that has more rows in each reading and far more than there
/// are processes: from this size on, in rows, the growth that counts grows no more.
const LARGE_ROWS: f64 = 2_000.0;
/// A slower growth is none, in rows a second (judgement: 40,000 a day).
const MIN_ROWS_PER_S: f64 = 0.5;

/// A table that has not grown in so many last readings may have filled up.
const LAST_READINGS: usize = 3;

/// Rows follow from processes that come, if these grow by so many for each row (judgement: half).
const PROCESS_PER_ROW: f64 = 0.5;

/// A table explains the growth of a kind of memory from this share on (judgement: half).
const MOST_OF_IT: f64 = 0.5;

/// So many tables are reported, those that grow by the most bytes.
const MAX_TABLES: usize = 3;

/// How the names of Mnesia's own tables begin (mnesia_monitor.erl, mnesia_recover.erl, mnesia_locker.erl).
const OF_MNESIA: &str = "mnesia_";

/// What was sampled of a table's rows.
#[derive(Clone, Copy)]
struct Sampled {
    rows: f64,
    place: i64,
    with_pid: f64,
    ended: f64,
}

impl Sampled {
    /// Share of ended processes; `None` where too few rows have a pid.
    fn share(&self) -> Option<f64> {
        let says = self.rows >= MIN_SAMPLED && self.with_pid >= WITH_PID * self.rows;
        says.then(|| self.ended / self.with_pid.max(1.0))
    }

    fn place(&self) -> &'static str {
        match self.place {
            metrics::PID_IS_KEY => "as their key",
            metrics::PID_IN_KEY => "in their key",
            _ => "in an element",
        }
    }
}

/// A table that grows.
struct Growing<'p> {
    id: &'p str,
    rows: f64,
    bytes: f64,
    trend: Trend,
    rows_per_s: f64,
    bytes_per_s: f64,
    /// What of that are binaries that its rows refer to.
    binaries_per_s: f64,
    sampled: Option<Sampled>,
    row: Option<&'p TableRow>,
    /// On a node that runs a product.
    whose: Option<Whose<'p>>,
}

impl<'p> Growing<'p> {
    fn of(period: &'p Period, id: &'p str) -> Option<Self> {
        let rows = period.stat(&metrics::TABLE_ROWS, id).ok()?;
        let bytes = period.stat(&metrics::TABLE_MEMORY, id).ok()?;
        let last = |metric| period.stat(metric, id).ok().map(|stat| stat.last.value);
        let sampled = last(&metrics::TABLE_SAMPLED).map(|rows| Sampled {
            rows: rows as f64,
            place: last(&metrics::TABLE_PID_PLACE).unwrap_or(metrics::NO_PID),
            with_pid: last(&metrics::TABLE_WITH_PID).unwrap_or(0) as f64,
            ended: last(&metrics::TABLE_ENDED).unwrap_or(0) as f64,
        });
        let points = view::trend_points(&rows.trace);
        let is_certain = match sampled.and_then(|sampled| sampled.share()) {
            Some(share) if is_leak(period, share) => true,
            Some(_) if go_with_processes(period, rows.last.value as f64) => false,
            _ => rises_always(&points),
        };
        let trend = growth(&points, if is_certain { LARGE_ROWS } else { f64::INFINITY })?;
        let (first, end) = (points.first()?.0, points.last()?.0);
        if trend.slope < MIN_ROWS_PER_S || !goes_on(&points, first.midpoint(end)) || !still_grows(&points) {
            return None;
        }
        let weights = view::trend_points(&bytes.trace);
        let by_trend = trend_of(&weights).map_or(0.0, |slope| pace(&weights, slope));
        let row = period.tables.iter().find(|table| table.id == id);
        let keeps = memory::binaries_of_table(period).is_some_and(|table| table.id == id);
        let binaries = period.find(Group::Memory, "", "binary").filter(|_| keeps);
        let binaries_per_s =
            binaries.and_then(|stat| trend_of(&view::trend_points(&stat.trace))).unwrap_or(0.0).max(0.0);
        Some(Growing {
            id,
            rows: rows.last.value as f64,
            bytes: bytes.last.value as f64,
            trend,
            rows_per_s: pace(&points, trend.slope),
            bytes_per_s: by_trend.max(0.0) + binaries_per_s,
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

    /// Owner, type, and who may write.
    fn description(&self) -> Option<Evidence> {
        let row = self.row?;
        let writers = match row.protection.as_str() {
            "public" => "any process may write",
            _ => "only its owner writes",
        };
        let text = match self.is_of_mnesia() {
            true => "a table of Mnesia",
            false => writers,
        };
        let owner = row.owner_title();
        Some(Evidence::text("owner", format!("{owner}; {}, {}: {text}", row.kind, row.protection)))
    }
}

fn trend_of(points: &[(f64, f64)]) -> Option<f64> {
    trend(points).map(|trend| trend.slope)
}

/// So many rows for each process of the node are not there for the processes that they name (judgement).
const ROWS_OF_PROCESS: f64 = 10.0;

/// Whether there may be as many rows as the processes that they name call for.
fn go_with_processes(period: &Period, rows: f64) -> bool {
    let processes = period.stat(&metrics::PROCESS_COUNT, "").map_or(f64::INFINITY, |count| count.mean());
    rows <= ROWS_OF_PROCESS * processes
}

/// Whether each reading has more rows than the one before: rows that come and go would not.
fn rises_always(points: &[(f64, f64)]) -> bool {
    points.iter().zip(points.iter().skip(1)).all(|(before, after)| after.1 > before.1)
}

fn still_grows(points: &[(f64, f64)]) -> bool {
    let before = points.len().checked_sub(LAST_READINGS).and_then(|place| points.get(place));
    before.zip(points.last()).is_none_or(|(before, last)| last.1 > before.1)
}

fn is_leak(period: &Period, share: f64) -> bool {
    ENDED.of(period).severity(share).is_some()
}

/// Tables of OTP and of the agent itself are not the program's to change.
fn is_of_program(period: &Period, id: &str) -> bool {
    let row = period.tables.iter().find(|table| table.id == id);
    let name = row.map_or(id, |row| &row.name);
    !name.starts_with(OF_MNESIA)
        && (row.is_none() || lock_suspects::of_program(period).any(|table| table.id == id))
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let followed = period.stat(&metrics::TABLES_FOLLOWED, "")?.last.value;
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
        true => format!(
            "none of the {followed} tables that were followed grows steadily and is the operator's own"
        ),
        false => format!("none of the {followed} tables that were followed grows steadily"),
    };
    Ok(Judgement::found_or_healthy(drafts, healthy))
}

fn draft(period: &Period, table: &Growing<'_>) -> Option<Draft> {
    let share = table.sampled.and_then(|sampled| sampled.share());
    let leak = share.and_then(|share| ENDED.of(period).severity(share));
    // Elsewhere in the row a pid may only say who wrote it.
    let is_theirs =
        leak.is_some() && table.sampled.is_some_and(|sampled| sampled.place != metrics::PID_IN_ROW);
    // Where memory does not end in sight, growth is a notice.
    let severity = leak.or_else(|| BYTES.of(period).severity(table.bytes_per_s))?;
    let is_unknown = table.whose == Some(Whose::Unknown);
    let severity = if is_theirs && !is_unknown { severity } else { 0.0 };
    let seconds = period.seconds();
    let is_short = seconds < SHORT_SECONDS;
    let room = memory::room(period);
    let left = room.map(|room| room.bytes / table.bytes_per_s.max(1e-9));
    let left = left.filter(|left| *left < FAR_SECONDS.min(MEMORY_REACH * seconds));
    let resident = memory::resident(period).unwrap_or(0.0);
    let used = room.map_or(0.0, |room| resident / (resident + room.bytes).max(1.0));
    let end = left.map(|left| limits::confidence_of_end(left, seconds, used, MEMORY_REACH));
    let comes = processes_that_come(period, table).filter(|_| leak.is_none());
    let lives = share.is_some() && leak.is_none() && go_with_processes(period, table.rows);
    let confidence = match end {
        // A sweep that comes seldom leaves such rows meanwhile.
        _ if is_theirs && is_short => Confidence::Inferred,
        _ if is_theirs => Confidence::Measured,
        _ if lives || comes.is_some() => Confidence::Guess,
        // What fills up may have a limit.
        Some(Confidence::Measured) => Confidence::Inferred,
        _ if is_short => Confidence::Guess,
        _ => Confidence::Inferred,
    };
    let until = left.zip(room).map_or(String::new(), |(left, room)| {
        format!("; at this rate {} in {}", room.end.sentence(), view::duration_text(left))
    });
    let of_ended = table.sampled.filter(|_| leak.is_some()).map_or(String::new(), |sampled| {
        format!("; {:.0} of {:.0} sampled rows are of ended processes", sampled.ended, sampled.with_pid)
    });
    let draft = Draft::new(
        severity,
        format!(
            "{} gains {} rows ({}) a second{of_ended}{until}",
            table.name(),
            rate_text(table.rows_per_s),
            bytes_text(table.bytes_per_s),
        ),
    )
    .confidence(confidence)
    .about(table.subject())
    .signals(explained(period, table))
    .costs(left.map(Cost::EndSeconds))
    .because(Evidence::number("rows now", table.rows, Unit::Count))
    .because(
        Evidence::number("new rows a second, less those deleted", table.trend.slope, Unit::PerSecond)
            .with_text(format!(
                "95 % interval {:.1} to {:.1}, seen for {}",
                table.trend.low,
                table.trend.high,
                view::duration_text(seconds)
            )),
    )
    .because(Evidence::number("its memory", table.bytes, Unit::Bytes))
    .because(Evidence::number("growth of its memory in a second", table.bytes_per_s, Unit::Bytes))
    .because_some((table.binaries_per_s > 0.0).then(|| {
        Evidence::number("of it, binaries that its rows refer to", table.binaries_per_s, Unit::Bytes)
    }))
    .because_some(table.description())
    .because_some(whose_it_is(period, table))
    .because_some(sampled_evidence(period, table))
    .because_some(left.map(|left| {
        Evidence::number("time until there is no more, by this table alone", left, Unit::Seconds)
            .against(SOON_SECONDS, SOON_SOURCE)
    }));
    let draft = draft.but_if(
        is_unknown,
        "it may be the product's own, and be meant to grow: neither its name nor its owner tells whose it is",
    );
    let draft = against(draft, table, is_theirs, lives, is_short, comes);
    Some(match (leak.is_some(), is_theirs) {
        (_, true) => {
            draft.confirmed_by(CONFIRM_ENDED).fix(delete_at_end(period, table)).fix(bounded(period, table))
        }
        (true, false) => draft
            .but("the pid in its rows may only say who wrote them")
            .fix(bounded(period, table))
            .fix(delete_at_end(period, table)),
        (false, false) => draft.fix(bounded(period, table)),
    })
}

const CONFIRM_ENDED: &str =
    "is_process_alive/1 is false for the pids of most rows in the table; after the change for hardly any";

/// What speaks against it.
fn against(
    draft: Draft,
    table: &Growing<'_>,
    is_theirs: bool,
    lives: bool,
    is_short: bool,
    comes: Option<f64>,
) -> Draft {
    draft
        .but_if(
            is_theirs && is_short,
            "a sweep that runs seldom leaves such rows until its next run: record for longer than its interval",
        )
        .but_if(lives, "the processes of nearly all sampled rows are alive: it grows with their number")
        .but_if(
            comes.is_some(),
            format!("{:.1} more processes each second meanwhile: rows of users who come may go with them", comes.unwrap_or(0.0)),
        )
        .but_if(
            !is_theirs && is_short,
            "a cache that fills looks the same until it is full: record for as long as its rows are to live (beamtune record --keep 6h)",
        )
        .but_if(
            table.sampled.is_none(),
            match table.row {
                Some(row) if row.kind == "ordered_set" => "its rows were not sampled: it is an ordered_set",
                Some(row) if row.kind.ends_with("bag") => "its rows were not sampled: it is a bag",
                Some(row) if row.protection == "private" => "its rows were not sampled: it is private",
                _ => "its rows were not sampled for processes that have ended",
            },
        )
}

/// Of a table of the operator's on a node of a product: which module has made it.
fn whose_it_is(period: &Period, table: &Growing<'_>) -> Option<Evidence> {
    let product = products::name(period).unwrap_or("the product");
    let Some(Whose::Operator { module, application }) = &table.whose else { return None };
    let why = match application {
        Some(application) => format!("of the application {application}, which does not come with {product}"),
        None => format!("of no application: it does not come with {product}"),
    };
    Some(Evidence::text("made by the module", format!("{module}, {why}")))
}

fn sampled_evidence(period: &Period, table: &Growing<'_>) -> Option<Evidence> {
    let sampled = table.sampled?;
    Some(match sampled.share() {
        Some(share) => Evidence::number("sampled rows of processes that have ended", share, Unit::Ratio)
            .against_scale(ENDED.of(period))
            .with_text(format!(
                "{:.0} of {:.0} that have a pid {}, of {:.0} rows",
                sampled.ended,
                sampled.with_pid,
                sampled.place(),
                sampled.rows
            )),
        None => Evidence::number("sampled rows with a pid", sampled.with_pid, Unit::Count)
            .with_text(format!("of {:.0}: whose rows they are is not known", sampled.rows)),
    })
}

/// Kinds of memory of whose growth this table is most.
fn explained(period: &Period, table: &Growing<'_>) -> Vec<Signal> {
    let is_most = |kind: &str, bytes_per_s: f64| {
        let stat = period.find(Group::Memory, "", kind);
        let slope = stat.and_then(|stat| trend_of(&view::trend_points(&stat.trace)));
        slope.is_some_and(|slope| slope > 0.0 && bytes_per_s >= MOST_OF_IT * slope)
    };
    let own = table.bytes_per_s - table.binaries_per_s;
    let ets = is_most("ets", own).then_some(Signal::Grows(MemoryKind::Ets));
    let binaries = is_most("binary", table.binaries_per_s).then_some(Signal::Grows(MemoryKind::Binary));
    ets.into_iter().chain(binaries).collect()
}

/// How many more processes there are each second, where that explains the rows.
fn processes_that_come(period: &Period, table: &Growing<'_>) -> Option<f64> {
    let stat = period.stat(&metrics::PROCESS_COUNT, "").ok()?;
    let trend = growth(&view::trend_points(&stat.trace), f64::INFINITY)?;
    (trend.slope >= PROCESS_PER_ROW * table.rows_per_s).then_some(trend.slope)
}

const PROVE: &str = "beamtune doctor --for 1m: the rows stay about as many under the same load";

fn delete_at_end(period: &Period, table: &Growing<'_>) -> Option<Remedy> {
    let change = match table.is_of_mnesia() {
        true => format!(
            "one process that monitors each process with a row in {0}, and calls mnesia:dirty_delete({0}, Key) at its 'DOWN'; or a sweep of rows \
             whose process is not alive",
            table.name()
        ),
        false => format!(
            "monitor the process where its row comes into {}, and delete the row at its 'DOWN' message; or sweep rows whose process is not alive",
            table.name()
        ),
    };
    remedy::of(
        period,
        "code.delete_rows_of_ended",
        &change,
        "nothing deletes the row when its process ends: terminate/2 does not run when a process is killed, or is told to end without trapping \
         exits, and code at the end of its work is not reached by one that crashes",
        PROVE,
    )
}

fn bounded(period: &Period, table: &Growing<'_>) -> Option<Remedy> {
    let change = if table.is_of_mnesia() {
        "delete what is old, by a time stamp in the record: a process that runs mnesia:dirty_select/2 and mnesia:dirty_delete/2 in portions"
    } else if table.is_of_kind("ordered_set") {
        "delete from its old end: ets:first/1 and ets:delete/2 while the key is too old; or a limit of rows"
    } else if table.is_of_kind("duplicate_bag") || table.is_of_kind("bag") {
        "a set, if one row for each key is meant: a bag keeps what was inserted under that key before; else delete what is old \
         (ets:select_delete/2), or a new table for each period of time"
    } else {
        "delete what is old: by a time stamp and ets:select_delete/2, a limit of rows, or a new table for each period of time"
    };
    let why = "a table keeps what it is given until somebody deletes it";
    remedy::of(period, "code.bounded_table", change, why, PROVE)
}

/// Bytes as a person says them, of slow growth in kB.
fn bytes_text(bytes: f64) -> String {
    match bytes / 1e3 {
        kb if kb < 9.95 => format!("{kb:.1} kB"),
        kb if kb < 999.5 => format!("{kb:.0} kB"),
        _ => megabytes(bytes),
    }
}

fn rate_text(per_second: f64) -> String {
    if per_second < 10.0 { format!("{per_second:.1}") } else { format!("{per_second:.0}") }
}
