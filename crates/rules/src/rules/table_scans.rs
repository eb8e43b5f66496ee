//! BT058: processes search whole ETS tables.
//!
//! A search by anything but the key, or by a pattern whose key is not bound, visits all objects of a table. That is fast only while the
//! table is small. The VM interrupts such a search every thousand objects. So samples of a searching process show it there, and its stack
//! names the caller. Searches by many processes, none of which does much, show in random samples of running processes.

use beamtune_model::{
    Account, Code, Cost, Evidence, Group, Missing, Period, ProcessActivity, Scale, Signal, Subject, TableRow,
    Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::counts::listed;
use crate::signals::searches::{LARGE_OBJECTS, Searches};
use crate::signals::{hot_code, memory, mnesia, stack};
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT058"),
    name: "table-scans",
    question: "Do processes search whole tables?",
    confirm: "time the search with timer:tc, and with twice as many objects: it takes twice as long; a lookup by key does not",
    needs: &[&metrics::SCAN_REDUCTIONS, &metrics::SCHEDULER_ACTIVE],
    account: Account::CpuUsed,
    judge,
    thresholds: &[SHARE],
    ..Rule::COMMON
};

const SHARE: Threshold = Threshold::new(
    "table-scans.search_share",
    "searches of whole tables, share of the schedulers' active time",
    Scale {
        notice: 0.05,
        warning: 0.15,
        critical: 0.70,
        source: "judgement: a lookup by key takes a microsecond",
    },
);

/// A search that takes fewer cores is not worth a change (judgement).
const MIN_CORES: f64 = 0.05;

/// Minimum number of samples of a process in a search: a single one may be chance.
const MIN_SAMPLES: i64 = 2;

/// Maximum number of processes, and of candidate tables, that a finding names.
const MAX_NAMED: usize = 3;

/// Single processes are reported if they do at least this share of the sampled searches (judgement: half).
const MIN_BY_PROCESSES: f64 = 0.5;

/// A table with this many times the objects of every other candidate is likely the searched one (judgement).
const CLEAR_FACTOR: i64 = 10;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let total = view::all_reductions(period)?;
    let active = view::activity(period, kind::SCHEDULER)?.cores();
    let mut searches: Vec<Search<'_>> =
        period.processes.iter().filter_map(|process| Search::of(process, total)).collect();
    searches.sort_by(|a, b| b.share.total_cmp(&a.share));
    let share: f64 = searches.iter().map(|search| search.share).sum();
    let spread = Searches::of(period).filter(|spread| share < MIN_BY_PROCESSES * spread.share());
    if let Some(draft) = spread.map(|spread| by_many(period, &spread, active)).transpose()?.flatten() {
        return Ok(Judgement::found(draft));
    }
    // A single process may have no running sample. But if no process has a stack, searches cannot be found either.
    let mut rows = period.processes.iter().filter_map(|process| process.row.as_ref()).peekable();
    if rows.peek().is_some() && rows.all(|row| row.stack.is_empty()) {
        return Err(period.missing_group(Group::Processes, "call stacks of the busiest processes"));
    }
    let Some((first, severity)) = searches.first().zip(SHARE.of(period).severity(share)) else {
        return Ok(Judgement::Healthy("no busy process searches a whole table".to_owned()));
    };
    // No process uses more than one core.
    let cores = (share.min(1.0) * active).min(searches.len() as f64);
    let of_all = Evidence::number("share of scheduler activity, estimated", share.min(1.0), Unit::Ratio);
    let draft = describe(period, severity, &searches, first, cores);
    Ok(Judgement::found(draft.evidence(of_all.against_scale(SHARE.of(period)))))
}

/// Drafts the finding about searches by many processes; `None` if they are not worth reporting.
fn by_many(period: &Period, searches: &Searches<'_>, active: f64) -> Result<Option<Draft>, Missing> {
    let used = hot_code::cores(period)?;
    let cores = searches.share() * used;
    // The lower bound of their share of the schedulers' time.
    let at_least = searches.interval.0 * used / active.max(f64::MIN_POSITIVE);
    let Some(severity) = SHARE.of(period).severity(at_least.min(1.0)).filter(|_| cores >= MIN_CORES) else {
        return Ok(None);
    };
    let tables_text = tables_text(searches.in_mnesia);
    let kinds = || searches.kinds.iter().take(MAX_NAMED).map(|(kind, _)| *kind);
    let caller = searches.caller().map(stack::without_fun);
    let of_cpu_time = format!("{:.0} % of CPU time", searches.share() * 100.0);
    let title = match (&caller, kinds().next()) {
        (Some(caller), _) => format!("{caller} searches {tables_text}: {of_cpu_time}"),
        (None, Some(kind)) => format!("{} search {tables_text}: {of_cpu_time}", text::processes(kind)),
        (None, None) => format!("Searches of {tables_text} take {of_cpu_time}"),
    };
    let subject = match caller {
        Some(name) => Some(Subject::Function { name }),
        None => kinds().next().map(Subject::kind),
    };
    let (within, all) = searches.samples;
    let (low, high) = searches.interval;
    let samples = format!("{within} of {all} samples [{:.0}, {:.0}] %", low * 100.0, high * 100.0);
    let draft = Draft::new(severity, title)
        .detail(format!("{} cores", text::cores(cores)))
        .detail(&samples)
        .detail(format!("most in {}", searches.function))
        .inferred_if(!searches.is_long)
        .about(subject)
        .signals(kinds().map(|kind| Signal::RunBy(Subject::kind(kind))))
        .costs(Cost::CpuCores(cores))
        .evidence(
            Evidence::number("samples of running processes", searches.share(), Unit::Ratio)
                .with_text(samples),
        )
        .evidence(
            Evidence::number("share of scheduler activity, at least", at_least.min(1.0), Unit::Ratio)
                .against_scale(SHARE.of(period)),
        )
        .evidence(Evidence::text("most of them in", searches.function))
        .because_some(
            (!searches.callers.is_empty())
                .then(|| Evidence::text("callers, with samples", listed(&searches.callers, MAX_NAMED))),
        )
        .because_some(
            (!searches.kinds.is_empty())
                .then(|| Evidence::text("processes, with samples", listed(&searches.kinds, MAX_NAMED))),
        );
    Ok(Some(with_advice(period, draft, &Scanned::of(period, None, searches.function, searches.in_mnesia))))
}

fn tables_text(in_mnesia: bool) -> &'static str {
    if in_mnesia { "whole Mnesia tables" } else { "whole ETS tables" }
}

/// A process that searches.
struct Search<'p> {
    process: &'p ProcessActivity,
    /// The function of `ets` in most of its samples, and its caller.
    function: &'p str,
    caller: Option<&'p str>,
    in_mnesia: bool,
    /// Number of samples in a search, and of all samples running or runnable.
    samples: (i64, i64),
    /// Its share of the reductions of all processes, multiplied by the share of its samples in a search.
    share: f64,
}

impl<'p> Search<'p> {
    fn of(process: &'p ProcessActivity, total: f64) -> Option<Search<'p>> {
        let (mut searching, mut running): (i64, i64) = (0, 0);
        let mut most: Option<((&'p str, Option<&'p str>), i64)> = None;
        let mut in_mnesia: i64 = 0;
        for (stack, count) in &process.run_stacks {
            running = running.saturating_add(*count);
            if let Some(search) = stack::of_search(stack) {
                searching = searching.saturating_add(*count);
                if stack::is_in_mnesia(stack) {
                    in_mnesia = in_mnesia.saturating_add(*count);
                }
                most = most.filter(|(_, before)| before >= count).or(Some((search, *count)));
            }
        }
        let ((function, caller), _) = most?;
        if searching < MIN_SAMPLES || total <= 0.0 {
            return None;
        }
        Some(Search {
            process,
            function,
            caller,
            in_mnesia: 2 * in_mnesia > searching,
            samples: (searching, running),
            share: process.reductions as f64 / total * (searching as f64 / running as f64),
        })
    }

    fn evidence(&self) -> Evidence {
        let by = self.caller.map_or_else(String::new, |caller| format!(", called by {caller}"));
        let (searching, running) = self.samples;
        Evidence::number(
            format!("reductions of {} in searches", text::name(&self.process.subject())),
            self.share.min(1.0),
            Unit::Ratio,
        )
        .with_text(format!("{}{by}, in {searching} of {running} samples", self.function))
    }
}

fn describe(
    period: &Period,
    severity: f64,
    searches: &[Search<'_>],
    first: &Search<'_>,
    cores: f64,
) -> Draft {
    let subject = first.process.subject();
    let name = text::name(&subject);
    let in_mnesia = first.in_mnesia;
    let tables_text = tables_text(in_mnesia);
    let cost = format!("about {} cores", text::cores(cores));
    let title = match searches.len() {
        1 => format!("{name} searches {tables_text}: {cost}"),
        count => format!("{name} and {} more search {tables_text}: {cost}", count - 1),
    };
    let run_by = searches.iter().take(MAX_NAMED).filter_map(|search| search.process.row.as_ref());
    let run_by = run_by.filter_map(|row| row.name.as_deref().or(row.initial_call.as_deref()));
    let draft = Draft::new(severity, title)
        .detail(text::pid(&subject))
        .detail(first.caller.map_or_else(String::new, |caller| format!("called by {caller}")))
        .detail(format!("{} in {} of {} samples", first.function, first.samples.0, first.samples.1))
        .minor_if(cores < MIN_CORES)
        .about(subject)
        .signals(run_by.map(|kind| Signal::RunBy(Subject::kind(kind))))
        .costs(Cost::CpuCores(cores));
    let draft =
        searches.iter().take(MAX_NAMED).fold(draft, |draft, search| draft.evidence(search.evidence()));
    with_advice(period, draft, &Scanned::of(period, Some(first.process), first.function, in_mnesia))
}

/// Purpose of a search, by its function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Delete,
    Count,
    /// All objects are wanted, or a fun visits all of them.
    All,
    Find,
}

impl Purpose {
    fn of(function: &str) -> Purpose {
        if stack::begins(function, &["ets:select_delete", "ets:match_delete"]) {
            Purpose::Delete
        } else if stack::begins(function, &["ets:select_count"]) {
            Purpose::Count
        } else if stack::is_of_all_objects(function) {
            Purpose::All
        } else {
            Purpose::Find
        }
    }

    /// Returns the change, and why it helps.
    fn advice(self) -> (&'static str, &'static str) {
        match self {
            Purpose::Delete => (
                "to expire objects, keep an ordered_set with keys {Time, Key} beside the table and delete from its beginning (ets:first/1 \
                 up to the oldest time to keep); or scan on a timer, not per message",
                "a delete by pattern visits all objects, however few it deletes; from the beginning of an ordered_set it visits only those",
            ),
            Purpose::Count => (
                "keep the count: ets:info(T, size) for all objects, else counters or ets:update_counter/3 at each insert and delete",
                "a count by pattern visits all objects; a counter is read in less than a microsecond",
            ),
            Purpose::All => (
                "keep what is computed from the table (counts, sums, the largest) up to date at each change, or compute it on a timer for all \
                 callers",
                "the time grows with the number of objects",
            ),
            Purpose::Find => (
                "add a second table from the searched value to the key (written together with the first), or begin the key of an \
                 ordered_set with that value",
                "a lookup by key takes a microsecond at any size; in an ordered_set only the part below a bound prefix of the key is visited",
            ),
        }
    }
}

/// Tables that may be the searched one: first those of the process, then by number of objects.
struct Scanned<'p> {
    period: &'p Period,
    process: Option<&'p ProcessActivity>,
    purpose: Purpose,
    in_mnesia: bool,
    tables: Vec<&'p TableRow>,
}

impl<'p> Scanned<'p> {
    fn of(period: &'p Period, process: Option<&'p ProcessActivity>, function: &str, in_mnesia: bool) -> Self {
        let purpose = Purpose::of(function);
        let is_own = |table: &TableRow| process.is_some_and(|process| table.owner == process.pid);
        // A process may read tables of others unless they are private, and may delete from public ones.
        let is_allowed = |table: &TableRow| match purpose {
            Purpose::Delete if process.is_some() => {
                is_own(table) || !["protected", "private"].contains(&&*table.protection)
            }
            _ => process.is_none() || is_own(table) || table.protection != "private",
        };
        let is_candidate = |table: &&TableRow| {
            table.objects >= LARGE_OBJECTS
                && is_allowed(table)
                && (!in_mnesia || table.owner_name.as_deref() == Some(mnesia::TABLES_OWNER))
        };
        let mut tables: Vec<&TableRow> = period.tables.iter().filter(is_candidate).collect();
        tables.sort_by_key(|table| (!is_own(table), std::cmp::Reverse(table.objects)));
        Scanned { period, process, purpose, in_mnesia, tables }
    }

    /// Returns the first table, if it has far more objects than all others.
    fn likely(&self) -> Option<&'p TableRow> {
        let (first, others) = self.tables.split_first()?;
        let is_clear = |other: &&TableRow| first.objects >= CLEAR_FACTOR.saturating_mul(other.objects);
        others.iter().all(is_clear).then_some(*first)
    }

    /// Formats the table with its size, or the tables that may be the searched one.
    fn detail(&self) -> String {
        let sized = |table: &TableRow| {
            let objects = text::counted(table.objects as f64, "object", "objects");
            let growth =
                memory::table_growth_bytes(self.period, table) as f64 / self.period.seconds().max(1.0);
            match growth >= MIN_GROWTH_BYTES_PER_S {
                true => format!("`{}` ({objects}, growing by {}/s)", table.name, text::bytes(growth)),
                false => format!("`{}` ({objects})", table.name),
            }
        };
        match (self.likely(), &self.tables[..]) {
            (Some(table), _) => format!("likely table {}", sized(table)),
            (None, []) => "which table is not recorded".to_owned(),
            (None, tables) => {
                let tables: Vec<String> = tables.iter().map(|table| sized(table)).collect();
                format!("candidate tables: {}", text::names(&tables, MAX_NAMED))
            }
        }
    }

    fn candidates(&self) -> Option<Evidence> {
        let named = self.tables.iter().take(MAX_NAMED).map(|table| {
            let is_own = self.process.is_some_and(|process| table.owner == process.pid);
            let whose = if is_own { ", its own" } else { "" };
            format!("{} ({}, {} objects{whose})", table.name, table.kind, table.objects)
        });
        let named = named.collect::<Vec<_>>().join(", ");
        (!named.is_empty()).then(|| Evidence::text("tables with many objects", named))
    }
}

/// A table that grows more slowly is not called growing (judgement).
const MIN_GROWTH_BYTES_PER_S: f64 = 10e3;

/// Adds the remedies, and the tables that may be the searched one.
fn with_advice(period: &Period, draft: Draft, scanned: &Scanned<'_>) -> Draft {
    let table = scanned.likely();
    let (change, why) = scanned.purpose.advice();
    draft
        .detail(scanned.detail())
        .signals(table.map(|table| Signal::Member(Subject::table(&table.name))))
        .because_some(scanned.candidates())
        .counter_evidence("the table and the number of objects found are not recorded: a search that needs all objects is not wasteful")
        .fix_if(scanned.in_mnesia, || {
            let table = table.map_or("TABLE", |table| table.name.as_str());
            remedy::of(
                period,
                "code.mnesia_index",
                &format!(
                    "mnesia:add_table_index({table}, FIELD) for the field searched for, then mnesia:dirty_index_read/3, \
                     dirty_index_match_object/2 or, in transactions, index_read/3"
                ),
                "an index visits only the records that match; dirty_read/2, or a pattern with the key bound, just one",
                "reductions and CPU per request stay the same with twice as many records",
            )
        })
        .fix_if(!scanned.in_mnesia, || {
            remedy::of(
                period,
                "code.table_index",
                change,
                why,
                "reductions and CPU per request stay the same with twice as many objects",
            )
        })
}
