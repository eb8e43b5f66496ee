//! Lock contention for rules and the CPU account: how much wait time matters, and which tables and processes are suspects if locks were not
//! counted.

use std::collections::HashMap;

use beamtune_model::{Evidence, Period, ProcessActivity, Remedy, Scale, TableRow, Threshold, Unit};

use crate::contention::verdict;
use crate::contention::{self, ContendedLocks};
use crate::remedy;
use crate::rule::Draft;
use crate::signals::names::NAMES;
use crate::signals::stack;
use crate::view;

/// Wait time for a lock, as a share of all schedulers' time.
pub(crate) const WAITED: Threshold = Threshold::new(
    "contended-locks.waited_share",
    "waiting for a lock, share of all schedulers' time",
    Scale {
        notice: verdict::MAX_UNCONTENDED_SHARE,
        // At or above this share, `beamtune locks` reports lock contention.
        warning: verdict::MIN_CONTENDED_SHARE,
        critical: 0.75,
        source: "measured on OTP 25 with 2 schedulers and one table that 32 processes write: 0.87–0.98 by default, 0.10–0.13 with write_concurrency auto",
    },
);

/// Minimum wait time for one table, as a share of the duration, that operators investigate whatever the number of schedulers. In practice,
/// a table with 11.8 % was sharded, which left 0.17 %.
const OF_TABLE: f64 = 0.10;

/// Severity of such a wait if it is a small share of the time of all schedulers.
const LOOKED_INTO: f64 = 10.0;

/// Maximum number of candidate tables that are named.
const MOST_CANDIDATES: usize = 5;

/// A shorter queue does not show that many processes send at the same time (judgement).
const MANY_MESSAGES: i64 = 100;

/// Returns the name of the lock with the longest wait, if locks were counted and the wait is long enough for a finding.
pub(crate) fn most_waited(period: &Period) -> Option<String> {
    let first = contention::contended_locks(period, &contention::lock_classes(period)).into_iter().next()?;
    Schedulers::of(period).severity_of(&first)?;
    Some(first.name)
}

/// The schedulers that lose time to lock waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedulers {
    /// Normal schedulers online; `None` if unknown.
    online: Option<f64>,
    waited: Scale,
}

impl Schedulers {
    pub(crate) fn of(period: &Period) -> Self {
        Schedulers { online: view::schedulers_online(period).ok(), waited: WAITED.of(period) }
    }

    /// Converts wait time as a share of the duration to a share of all schedulers' time.
    pub(crate) fn part(self, share: f64) -> f64 {
        share / self.online.unwrap_or(1.0).max(1.0)
    }

    pub(crate) fn severity(self, share: f64) -> Option<f64> {
        self.waited.severity(self.part(share))
    }

    /// Returns the severity for one lock. A table is worth a notice even if its wait is a small share of the time of many schedulers.
    pub(crate) fn severity_of(self, thing: &ContendedLocks) -> Option<f64> {
        let share = thing.share?;
        let is_looked_into = thing.class.starts_with("db_") && thing.id.is_some() && share >= OF_TABLE;
        self.severity(share).or(is_looked_into.then_some(LOOKED_INTO))
    }

    /// Adds what the severity refers to, or that it is uncertain.
    pub(crate) fn told(self, draft: Draft, share: f64) -> Draft {
        let of_all = self.online.map(|count| {
            Evidence::number(format!("of the time of {count:.0} schedulers"), self.part(share), Unit::Ratio)
                .against_scale(self.waited)
        });
        draft.inferred_if(self.online.is_none()).because_some(of_all).but_if(
            self.online.is_none(),
            "the number of schedulers is unknown: with many, this is a small share",
        )
    }
}

/// True for the name of a metrics table.
pub(crate) fn is_of_metrics(table: &str) -> bool {
    NAMES.metrics_tables.iter().any(|name| table.starts_with(name))
}

/// Returns the remedy for a metrics table that all processes write.
pub(crate) fn metrics_by_scheduler(period: &Period) -> Option<Remedy> {
    remedy::of(
        period,
        "code.metrics_by_scheduler",
        "use a library that keeps one part of each metric per scheduler and sums them on read (peep for Elixir), or counters with \
         write_concurrency instead of ETS objects",
        "all processes that update the same metric write the same object, whatever lock it has",
        "time waited for it as a share of the duration (beamtune locks) and throughput, under the same load",
    )
}

/// Returns the process with the longest queue, a suspect if many processes send to it.
pub(crate) fn receiver(period: &Period) -> Option<Evidence> {
    let process = period.processes.iter().max_by_key(|process| process.queue_max)?;
    (process.queue_max >= MANY_MESSAGES).then(|| {
        let text = format!("{}: up to {} messages", process.title(), process.queue_max);
        Evidence::text("process with the longest queue (each sender takes its lock)", text)
    })
}

/// Returns the candidate tables, largest first: public ones with one lock. Several may have the same name.
pub(crate) fn candidates(period: &Period) -> Option<Evidence> {
    let mut names: Vec<(&TableRow, usize)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for table in all_write(period) {
        let place = *places.entry(table.name.as_str()).or_insert_with(|| {
            names.push((table, 0));
            names.len() - 1
        });
        if let Some((_, tables)) = names.get_mut(place) {
            *tables += 1;
        }
    }
    let told = names.iter().take(MOST_CANDIDATES).map(|(table, tables)| match (&table.owner_name, tables) {
        (Some(owner), 1) => format!("{} of {owner}", table.name),
        (None, 1) => table.name.clone(),
        (_, several) => format!("{} ({several} tables)", table.name),
    });
    (!names.is_empty()).then(|| {
        let names = told.collect::<Vec<_>>().join(", ");
        Evidence::text("largest public tables without write_concurrency", names)
    })
}

/// In a bag with fewer objects no key can have many (judgement).
const MANY_IN_BAG: i64 = 10_000;

/// Returns the program's bags with many objects, largest first. A write visits all objects of its key and holds the lock meanwhile.
pub(crate) fn bags(period: &Period) -> Vec<&TableRow> {
    let is_bag = |table: &&TableRow| table.kind == "bag" && table.objects >= MANY_IN_BAG;
    let mut bags: Vec<&TableRow> = of_program(period).filter(is_bag).collect();
    bags.sort_by_key(|table| std::cmp::Reverse(table.objects));
    bags
}

/// Returns the remedy for such a bag.
pub(crate) fn keyed(period: &Period, bag: &TableRow) -> Option<Remedy> {
    remedy::of(
        period,
        "code.keyed_objects",
        &format!("make {} a set or an ordered_set with the object in its key: {{{{Key, Object}}}}", bag.name),
        "ets:insert/2 and delete_object/2 on a bag visit all objects of the key while they hold the table's lock",
        "duration of ets:insert/2 (timer:tc) and throughput under the same load",
    )
}

/// Returns the public metrics tables. An object that all processes update acts as one lock, however many locks its table has.
pub(crate) fn metrics(period: &Period) -> Option<Evidence> {
    let names: Vec<&str> =
        of_metrics(period).map(|table| table.name.as_str()).take(MOST_CANDIDATES).collect();
    (!names.is_empty()).then(|| Evidence::text("public metrics tables", names.join(", ")))
}

/// Returns the remedy for public metrics tables, if there are any.
pub(crate) fn metrics_candidates(period: &Period) -> Option<Remedy> {
    of_metrics(period).next().and_then(|_| metrics_by_scheduler(period))
}

fn of_metrics(period: &Period) -> impl Iterator<Item = &TableRow> {
    public(period).filter(|table| is_of_metrics(&table.name))
}

/// Returns the public tables with one lock.
fn all_write(period: &Period) -> impl Iterator<Item = &TableRow> {
    let has_one_lock =
        |options: &[String]| !options.iter().any(|option| option.starts_with("write_concurrency"));
    public(period).filter(move |table| has_one_lock(&table.options))
}

/// Returns the program's tables, those with most memory first.
pub(crate) fn of_program(period: &Period) -> impl Iterator<Item = &TableRow> {
    let is_otps = |table: &TableRow| {
        table.owner_name.as_deref().is_some_and(|owner| NAMES.otp_owners.iter().any(|own| own == owner))
    };
    period.tables.iter().filter(move |table| !is_otps(table))
}

/// At or above this mean object size, the copy dominates a lookup (judgement; the same as for messages).
pub(crate) const LARGE_OBJECT_BYTES: f64 = 32_768.0;

/// Returns the program's tables with such objects, largest mean object size first, with that size in bytes.
pub(crate) fn of_large_objects(period: &Period) -> Vec<(&TableRow, f64)> {
    let mut tables: Vec<(&TableRow, f64)> = of_program(period)
        .filter(|table| table.objects > 0)
        .map(|table| (table, table.memory_bytes as f64 / table.objects as f64))
        .filter(|(_, each)| *each >= LARGE_OBJECT_BYTES)
        .collect();
    tables.sort_by(|a, b| b.1.total_cmp(&a.1));
    tables
}

/// Returns the table whose large objects a process most likely copies. With it come the mean object size in bytes, the number of samples in
/// which the process copied objects, and that of all samples. `None` if copying objects is not most of what it does. Tables that it owns
/// come before those of others.
pub(crate) fn copied_by<'p>(
    period: &'p Period,
    process: &ProcessActivity,
) -> Option<(&'p TableRow, f64, (i64, i64))> {
    let (copies, all) = stack::copies_objects(process)?;
    let mut tables = of_large_objects(period);
    tables.retain(|(table, _)| table.owner == process.pid || table.protection != "private");
    tables.sort_by_key(|(table, _)| table.owner != process.pid);
    let (table, each) = tables.into_iter().next().filter(|_| 2 * copies >= all)?;
    Some((table, each, (copies, all)))
}

/// Returns the program's public tables.
fn public(period: &Period) -> impl Iterator<Item = &TableRow> {
    of_program(period).filter(|table| table.protection == "public")
}
