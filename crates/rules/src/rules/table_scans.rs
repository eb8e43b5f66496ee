//! BT058: processes go through whole ETS tables.
//!
//! A lookup by anything but the key, or by a pattern whose key is not bound, visits all objects of a table. That is fast as long as the table
//! is small. The VM interrupts such a search every thousand objects, so a process that is busy with one stands there when it is looked at,
//! and its stack names the function that asked. Searches by many processes, none of which does much, show in samples of whatever runs.

use beamtune_model::{
    Account, Code, Cost, Evidence, Group, Missing, Period, ProcessUse, Scale, Signal, Subject, TableRow,
    Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::counts::listed;
use crate::signals::kinds;
use crate::signals::searches::{LARGE_OBJECTS, Searches};
use crate::signals::{hot_code, mnesia, stack};
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT058"),
    name: "table-scans",
    question: "Do processes search whole tables?",
    confirm: "timer:tc of the search, and of the same with twice as many objects: it takes twice as long; a lookup by key does not",
    needs: &[&metrics::SCAN_REDUCTIONS, &metrics::SCHEDULER_ACTIVE],
    account: Account::CpuUsed,
    judge,
    thresholds: &[SHARE],
    ..Rule::COMMON
};

/// Searching, as a share of the time in which schedulers are active.
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

/// Below this nobody would win anything by a change (judgement).
const WORTH_CORES: f64 = 0.05;

/// A process must have been seen searching so often: one look may be by chance.
const MIN_LOOKS: i64 = 2;

/// So many processes, and tables that may be meant, are told.
const MOST_NAMED: usize = 3;

/// Of what samples show, single busy processes must do at least this share to be named in place of it (judgement: half).
const BY_PROCESSES: f64 = 0.5;

/// A table with at least so many times the objects of the next one is most likely the one (judgement).
const STANDS_OUT: i64 = 10;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let total = view::all_reductions(period)?;
    let active = view::activity(period, kind::SCHEDULER)?.cores();
    let mut searches: Vec<Search<'_>> =
        period.processes.iter().filter_map(|process| Search::of(process, total)).collect();
    searches.sort_by(|a, b| b.share.total_cmp(&a.share));
    let share: f64 = searches.iter().map(|search| search.share).sum();
    let spread = Searches::of(period).filter(|spread| share < BY_PROCESSES * spread.share());
    if let Some(draft) = spread.map(|spread| by_many(period, &spread, active)).transpose()?.flatten() {
        return Ok(Judgement::found(draft));
    }
    // Who runs in none of the looks has run nowhere; but a recording that holds no stacks at all does not hold these either.
    let mut rows = period.processes.iter().filter_map(|process| process.row.as_ref()).peekable();
    if rows.peek().is_some() && rows.all(|row| row.stack.is_empty()) {
        return Err(period.missing_group(Group::Processes, "where they run"));
    }
    let Some((first, severity)) = searches.first().zip(SHARE.of(period).severity(share)) else {
        return Ok(Judgement::Healthy(
            "no busy process was seen again and again in a search of a whole table".to_owned(),
        ));
    };
    // Nor does any of them use more than one.
    let cores = (share.min(1.0) * active).min(searches.len() as f64);
    let of_all = Evidence::number("of the schedulers' activity, about", share.min(1.0), Unit::Ratio);
    let draft = describe(period, severity, &searches, first, cores);
    Ok(Judgement::found(draft.because(of_all.against_scale(SHARE.of(period)))))
}

/// Searches by whatever processes run, where they are worth reporting.
fn by_many(period: &Period, searches: &Searches<'_>, active: f64) -> Result<Option<Draft>, Missing> {
    let used = hot_code::cores(period)?;
    let cores = searches.share() * used;
    // How much of the schedulers' time they take at least.
    let at_least = searches.interval.0 * used / active.max(f64::MIN_POSITIVE);
    let Some(severity) = SHARE.of(period).severity(at_least.min(1.0)).filter(|_| cores >= WORTH_CORES) else {
        return Ok(None);
    };
    let whose = if searches.in_mnesia { "whole Mnesia tables" } else { "whole tables" };
    let names = || searches.kinds.iter().take(MOST_NAMED).map(|(kind, _)| *kind);
    let place = match (searches.caller(), names().next()) {
        (Some(caller), _) => format!(", called by {}", stack::without_fun(caller)),
        (None, Some(kind)) => format!(", by {}", kinds::in_words(kind)),
        (None, None) => String::new(),
    };
    let subject = match searches.caller() {
        Some(caller) => Some(Subject::Function { name: stack::without_fun(caller) }),
        None => names().next().map(Subject::kind),
    };
    let (within, all) = searches.samples;
    let (low, high) = searches.interval;
    let draft = Draft::new(
        severity,
        format!(
            "{:.0} % of the CPU time of processes goes into searches of {whose}{place}",
            searches.share() * 100.0
        ),
    )
    .inferred_if(!searches.is_long)
    .about(subject)
    .signals(names().map(|kind| Signal::RunBy(Subject::kind(kind))))
    .costs(Cost::CpuCores(cores))
    .because(
        Evidence::number("samples of running processes in such a search", searches.share(), Unit::Ratio)
            .with_text(format!(
                "{within} of {all}, 95 % interval {:.0} to {:.0} %",
                low * 100.0,
                high * 100.0
            )),
    )
    .because(
        Evidence::number("of the schedulers' activity, at least", at_least.min(1.0), Unit::Ratio)
            .against_scale(SHARE.of(period)),
    )
    .because(Evidence::text("most of them in", searches.function))
    .because_some(
        (!searches.callers.is_empty())
            .then(|| Evidence::text("called by, with samples", listed(&searches.callers, MOST_NAMED))),
    )
    .because_some((!searches.kinds.is_empty()).then(|| {
        Evidence::text("processes that searched, with samples", listed(&searches.kinds, MOST_NAMED))
    }));
    let tables = large_tables(period, None, searches.in_mnesia);
    Ok(Some(with_advice(period, draft, &tables, None, searches.in_mnesia)))
}

/// A process that searches.
struct Search<'p> {
    process: &'p ProcessUse,
    /// The function of `ets` that it was mostly seen in, and who called that.
    function: &'p str,
    caller: Option<&'p str>,
    /// Whether that table is one of Mnesia's.
    in_mnesia: bool,
    /// Looks at which it did so, and all in which it ran or wanted to.
    seen: (i64, i64),
    /// Of the reductions of all processes, those that it may have searched with.
    share: f64,
}

impl<'p> Search<'p> {
    fn of(process: &'p ProcessUse, total: f64) -> Option<Search<'p>> {
        let mut seen: (i64, i64) = (0, 0);
        let mut most: Option<((&'p str, Option<&'p str>), i64)> = None;
        let mut in_mnesia: i64 = 0;
        for (stack, looks) in &process.ran {
            seen.1 = seen.1.saturating_add(*looks);
            if let Some(search) = stack::of_search(stack) {
                seen.0 = seen.0.saturating_add(*looks);
                if stack::is_in_mnesia(stack) {
                    in_mnesia = in_mnesia.saturating_add(*looks);
                }
                most = most.filter(|(_, before)| before >= looks).or(Some((search, *looks)));
            }
        }
        let ((function, caller), _) = most?;
        let part = seen.0 as f64 / seen.1 as f64;
        if seen.0 < MIN_LOOKS || total <= 0.0 {
            return None;
        }
        Some(Search {
            process,
            function,
            caller,
            in_mnesia: 2 * in_mnesia > seen.0,
            seen,
            share: process.reductions as f64 / total * part,
        })
    }

    fn evidence(&self) -> Evidence {
        let by = self.caller.map_or_else(String::new, |caller| format!(", called by {caller}"));
        Evidence::number(
            format!("reductions of {}, as long as it was seen searching", self.process.title()),
            self.share.min(1.0),
            Unit::Ratio,
        )
        .with_text(format!("{}{by}, in {} of {} looks", self.function, self.seen.0, self.seen.1))
    }
}

fn describe(
    period: &Period,
    severity: f64,
    searches: &[Search<'_>],
    first: &Search<'_>,
    cores: f64,
) -> Draft {
    let who = match searches.len() {
        1 => first.process.title(),
        count => format!("{} and {} more", first.process.title(), count - 1),
    };
    let verb = if searches.len() == 1 { "goes" } else { "go" };
    let by = first.caller.map_or_else(String::new, |caller| format!(", in {caller}"));
    let in_mnesia = first.in_mnesia;
    let run_by = searches.iter().take(MOST_NAMED).filter_map(|search| search.process.row.as_ref());
    let run_by = run_by.filter_map(|row| row.name.as_deref().or(row.initial_call.as_deref()));
    let draft =
        Draft::new(severity, format!("{who} {verb} through whole tables{by}: about {cores:.2} cores"))
            .minor_if(cores < WORTH_CORES)
            .about(first.process.subject())
            .signals(run_by.map(|kind| Signal::RunBy(Subject::kind(kind))))
            .costs(Cost::CpuCores(cores));
    let draft =
        searches.iter().take(MOST_NAMED).fold(draft, |draft, search| draft.because(search.evidence()));
    let tables = large_tables(period, Some(first.process), in_mnesia);
    with_advice(period, draft, &tables, Some(first.process), in_mnesia)
}

/// What there is to do, and which tables may be meant.
fn with_advice(
    period: &Period,
    draft: Draft,
    tables: &[&TableRow],
    process: Option<&ProcessUse>,
    in_mnesia: bool,
) -> Draft {
    draft
        .signals(likely(tables).map(|table| Signal::Member(Subject::table(&table.name))))
        .because_some(candidates(tables, process))
        .but("which table it is, and how many objects it finds, is not recorded: a search that finds all that it visits is no waste")
        .fix_if(in_mnesia, || {
            let table = likely(tables).map_or("TABLE", |table| table.name.as_str());
            remedy::of(
                period,
                "code.mnesia_index",
                &format!(
                    "mnesia:add_table_index({table}, FIELD) for the field that is searched for, and mnesia:dirty_index_read/3, \
                     dirty_index_match_object/2 or, in transactions, index_read/3"
                ),
                "with an index only the records that match are visited; with the key bound in the pattern, or by dirty_read/2, just one",
                "reductions and CPU per request with twice as many records: as before",
            )
        })
        .fix_if(!in_mnesia, || {
            remedy::of(
                period,
                "code.table_index",
                "a second table from what is searched for to the key (kept by who writes the first one), or a key that begins with it in an \
                 ordered_set; counts in counters, or ets:info(T, size)",
                "a lookup by key takes a microsecond whatever the size; of an ordered_set only the part below a bound beginning of the key is visited",
                "reductions and CPU per request with twice as many objects: as before",
            )
        })
}

/// Tables that may be meant, those with the most objects first, and before them those of the process itself.
fn large_tables<'p>(period: &'p Period, process: Option<&ProcessUse>, in_mnesia: bool) -> Vec<&'p TableRow> {
    let is_meant = |table: &&TableRow| {
        table.objects >= LARGE_OBJECTS
            && (!in_mnesia || table.owner_name.as_deref() == Some(mnesia::TABLES_OWNER))
    };
    let mut large: Vec<&TableRow> = period.tables.iter().filter(is_meant).collect();
    let is_other = |table: &TableRow| process.is_none_or(|process| table.owner != process.pid);
    large.sort_by_key(|table| (is_other(table), std::cmp::Reverse(table.objects)));
    large
}

/// The one that has by far the most objects.
fn likely<'p>(tables: &[&'p TableRow]) -> Option<&'p TableRow> {
    let (first, others) = tables.split_first()?;
    others.iter().all(|other| first.objects >= STANDS_OUT.saturating_mul(other.objects)).then_some(*first)
}

fn candidates(tables: &[&TableRow], process: Option<&ProcessUse>) -> Option<Evidence> {
    let told = tables.iter().take(MOST_NAMED).map(|table| {
        let is_own = process.is_some_and(|process| table.owner == process.pid);
        let whose = if is_own { ", its own" } else { "" };
        format!("{} ({}, {} objects{whose})", table.name, table.kind, table.objects)
    });
    let told = told.collect::<Vec<_>>().join(", ");
    (!told.is_empty()).then(|| Evidence::text("tables with many objects", told))
}
