//! BT010: the number of ETS tables grows.
//!
//! There is no limit: since OTP 21 only memory bounds the number of tables, and `system_info(ets_limit)` is a hint for the size of a hash
//! table. A count that only grows is still a leak.

use beamtune_model::{
    Account, Code, Evidence, Limit, MemoryKind, Missing, Period, Scale, Signal, Subject, TableRow, Threshold,
    Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule, Topic};
use crate::signals::counts::largest_first;
use crate::signals::limits::{FrequentKind, frequent_kind, grows_by_new_ones, growth};
use crate::signals::memory::{self, format_bytes};
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT010"),
    name: "ets-tables-growing",
    question: "Does the number of ETS tables grow?",
    confirm: "check ets:info(Table, owner) of some new tables: one owner, or one place in the code, creates them",
    needs: &[&metrics::ETS_COUNT],
    account: Account::HeadRoom,
    role: Role::Symptom,
    topics: &[Topic::Memory],
    needs_minutes: true,
    judge,
    thresholds: &[RATE],
    ..Rule::COMMON
};

const RATE: Threshold = Threshold::new(
    "ets-tables-growing.new_tables_per_s",
    "tables created minus tables deleted, per second",
    Scale {
        notice: 0.2,
        warning: 1.0,
        critical: 500.0,
        source: "judgement: an empty table takes 2 kB or more",
    },
);

/// Growth below this number of tables is not reported: a quiet node has as many.
const MIN_TABLES: i64 = 200;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let stat = period.stat(&metrics::ETS_COUNT, "")?;
    let now = stat.last.value;
    let healthy = || {
        Ok(Judgement::Healthy(format!(
            "{}, not growing",
            text::counted(now as f64, "ETS table", "ETS tables")
        )))
    };
    let Some(trend) = growth(&view::trend_points(&stat.trace), f64::INFINITY) else { return healthy() };
    if now < MIN_TABLES {
        return healthy();
    }
    let Some(severity) = RATE.of(period).severity(trend.slope) else { return healthy() };
    let maker = frequent_kind(period, "ets");
    let ets = period.find(beamtune_model::Group::Memory, "", "ets");
    let title = format!("ETS tables grow by {}/s, {} now", text::rate(trend.slope), text::number(now as f64));
    Ok(Judgement::found(
        Draft::new(severity, title)
            .detail(maker.as_ref().map_or_else(String::new, |maker| most_are(period, maker)))
            .detail(memory_text(period, now as f64))
            .about(maker.as_ref().map_or(Subject::limit(Limit::EtsTables), |maker| Subject::Table {
                name: maker.kind.clone(),
                owner: maker.by.clone(),
            }))
            .signals(
                grows_by_new_ones(period, "ets", now as f64, trend.slope)
                    .then_some(Signal::Grows(MemoryKind::Ets)),
            )
            .evidence(Evidence::number("ETS tables", now as f64, Unit::Count))
            .evidence(
                Evidence::number("growth", trend.slope, Unit::PerSecond)
                    .against_scale(RATE.of(period))
                    .with_text(format!("95 % interval {:.1} to {:.1}", trend.low, trend.high)),
            )
            .because_some(
                ets.map(|stat| Evidence::number("memory of all tables", stat.last.value as f64, Unit::Bytes)),
            )
            .because_some(maker.map(|maker| maker.evidence))
            .counter_evidence("since OTP 21 the number of tables is not limited; memory runs out instead")
            .remedy(remedy::of(
                period,
                "code.delete_tables",
                "ets:delete(Table) when its work is done, or keep one table for all of this work, with the id of each piece of work in the key",
                "a table exists until its owner exits or deletes it",
                "the table count stops growing under the same load",
            )),
    ))
}

/// Name that stands for all tables: a running node reports how many tables each owner has, but not their names. A crash dump has both.
const ANY_NAME: &str = "table";

/// Maximum number of table names.
const MAX_NAMES: usize = 3;

/// Describes what most tables have in common.
fn most_are(period: &Period, maker: &FrequentKind) -> String {
    let named = (maker.kind != ANY_NAME).then(|| format!("named `{}`", maker.kind));
    let owned = maker.by.as_ref().map(|owner| format!("owned by {}", owner_text(period, owner)));
    let facts: Vec<String> = named.iter().cloned().chain(owned).collect();
    if facts.is_empty() {
        return String::new();
    }
    let names = match (&maker.by, named) {
        (Some(owner), None) => names_of_owner(period, owner),
        _ => String::new(),
    };
    format!("most are {}{names}", facts.join(" and "))
}

/// Names that several of an owner's largest tables share, as tables of one kind usually do: `, such as `a` and `b``.
fn names_of_owner(period: &Period, owner: &str) -> String {
    let is_owners = |table: &&TableRow| table.owner == owner || table.owner_name.as_deref() == Some(owner);
    let names = period.tables.iter().filter(is_owners).filter(|table| !table.name.is_empty());
    let several = largest_first(names.map(|table| (table.name.as_str(), 1)))
        .into_iter()
        .filter(|(_, tables)| *tables > 1);
    let names: Vec<String> = several.map(|(name, _)| format!("`{name}`")).collect();
    if names.is_empty() { String::new() } else { format!(", such as {}", text::names(&names, MAX_NAMES)) }
}

/// Describes the owner: a process by its registered name and pid, else by its initial call.
fn owner_text(period: &Period, owner: &str) -> String {
    match period.process_named(owner) {
        Some(process) => format!("process {}", process.title()),
        None if owner.contains(':') => format!("processes started with {owner}"),
        None => format!("process {owner}"),
    }
}

/// Describes the memory of the tables, and when the remaining memory is used up at the present rate. The number of tables has no limit.
fn memory_text(period: &Period, tables: f64) -> String {
    let Some(stat) = period.find(beamtune_model::Group::Memory, "", "ets") else { return String::new() };
    let all = stat.last.value as f64;
    let used = format!("{} in total", format_bytes(all));
    let Some(trend) = growth(&view::trend_points(&stat.trace), f64::INFINITY) else {
        return format!(
            "{used}, {} each; the number of tables is not limited",
            text::bytes(all / tables.max(1.0))
        );
    };
    let pace = format!("{used}, +{}/s", text::bytes(trend.slope));
    match memory::room(period) {
        Some(room) => {
            let left = view::duration_text(room.bytes / trend.slope);
            format!("{pace}: no limit but memory, {} in {left} at this rate", room.end.sentence())
        }
        None => format!("{pace}; no limit but memory"),
    }
}
