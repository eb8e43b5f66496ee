//! BT058: processes go through whole ETS tables.
//!
//! A lookup by anything but the key, or by a pattern whose key is not bound, visits all objects of a table. That is fast as long as the table
//! is small. The VM interrupts such a search every thousand objects, so a process that is busy with one stands there when it is looked at,
//! and its stack names the function that asked.

use beamtune_model::{
    Account, Code, Cost, Evidence, Group, Missing, Period, ProcessUse, Scale, TableRow, Threshold, Unit,
    metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::stack;
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

/// Tables of fewer objects are searched in one go, some tens of microseconds (ETS visits a thousand before it lets others run).
const LARGE_OBJECTS: i64 = 1_000;

/// So many processes, and tables that may be meant, are told.
const MOST_NAMED: usize = 3;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let total = period.stat(&metrics::SCAN_REDUCTIONS, "")?.delta as f64;
    let active = view::activity(period, kind::SCHEDULER)?.cores();
    // Who runs in none of the looks has run nowhere; but a recording that holds no stacks at all does not hold these either.
    let mut rows = period.processes.iter().filter_map(|process| process.row.as_ref()).peekable();
    if rows.peek().is_some() && rows.all(|row| row.stack.is_empty()) {
        return Err(period.missing_group(Group::Processes, "where they run"));
    }
    let mut searches: Vec<Search<'_>> =
        period.processes.iter().filter_map(|process| Search::of(process, total)).collect();
    searches.sort_by(|a, b| b.share.total_cmp(&a.share));
    let share: f64 = searches.iter().map(|search| search.share).sum();
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

/// A process that searches.
struct Search<'p> {
    process: &'p ProcessUse,
    /// The function of `ets` that it was mostly seen in, and who called that.
    function: &'p str,
    caller: Option<&'p str>,
    /// Looks at which it did so, and all in which it ran or wanted to.
    seen: (i64, i64),
    /// Of the reductions of all processes, those that it may have searched with.
    share: f64,
}

impl<'p> Search<'p> {
    fn of(process: &'p ProcessUse, total: f64) -> Option<Search<'p>> {
        let mut seen: (i64, i64) = (0, 0);
        let mut most: Option<((&'p str, Option<&'p str>), i64)> = None;
        for (stack, looks) in &process.ran {
            seen.1 = seen.1.saturating_add(*looks);
            if let Some(search) = stack::of_search(stack) {
                seen.0 = seen.0.saturating_add(*looks);
                most = most.filter(|(_, before)| before >= looks).or(Some((search, *looks)));
            }
        }
        let ((function, caller), _) = most?;
        let part = seen.0 as f64 / seen.1 as f64;
        if seen.0 < MIN_LOOKS || total <= 0.0 {
            return None;
        }
        Some(Search { process, function, caller, seen, share: process.reductions as f64 / total * part })
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
    let draft =
        Draft::new(severity, format!("{who} {verb} through whole tables{by}: about {cores:.2} cores"))
            .minor_if(cores < WORTH_CORES)
            .about(first.process.subject())
            .costs(Cost::CpuCores(cores));
    searches
        .iter()
        .take(MOST_NAMED)
        .fold(draft, |draft, search| draft.because(search.evidence()))
        .because_some(candidates(period, first.process))
        .but("which table it is, and how many objects it finds, is not recorded: a search that finds all that it visits is no waste")
        .fix(remedy::of(
            period,
            "code.table_index",
            "a second table from what is searched for to the key (kept by who writes the first one), or a key that begins with it in an \
             ordered_set; counts in counters, or ets:info(T, size)",
            "a lookup by key takes a microsecond whatever the size; of an ordered_set only the part below a bound beginning of the key is visited",
            "reductions and CPU per request with twice as many objects: as before",
        ))
}

/// Tables that may be meant, those with the most objects first, and before them those of the process itself.
fn candidates(period: &Period, process: &ProcessUse) -> Option<Evidence> {
    let mut large: Vec<&TableRow> =
        period.tables.iter().filter(|table| table.objects >= LARGE_OBJECTS).collect();
    large.sort_by_key(|table| (table.owner != process.pid, std::cmp::Reverse(table.objects)));
    let told = large.iter().take(MOST_NAMED).map(|table| {
        let whose = if table.owner == process.pid { ", its own" } else { "" };
        format!("{} ({}, {} objects{whose})", table.name, table.kind, table.objects)
    });
    let told = told.collect::<Vec<_>>().join(", ");
    (!told.is_empty()).then(|| Evidence::text("tables with many objects", told))
}
