//! The kinds of `erlang:memory/0`, each with its largest owners.

use beamtune_model::{Group, Period, Rank, metrics};

use crate::table::{Align::*, Table};
use crate::text::{self, Style};

/// Maximum number of owners named per kind.
const MAX_OWNERS: usize = 3;

/// A kind of memory, as counted by the VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// `processes`, `binary`, `ets`, `code`, `atom`, or `other`, which is the rest of `system`.
    pub name: String,
    /// Size in bytes.
    pub bytes: i64,
    /// The largest known owners, the largest first.
    pub owners: Vec<Owner>,
}

/// An owner of memory of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Registered name, label, initial call or table name; otherwise the pid.
    pub name: String,
    /// The pid; for a table, its owner.
    pub pid: String,
    /// Size in bytes. For binaries: the size of those that it refers to; other processes may refer to the same ones.
    pub bytes: i64,
}

/// Returns the kinds with their owners, the largest first; empty if the VM did not report them.
pub fn kinds(period: &Period) -> Vec<Kind> {
    let value = |name: &str| period.find(Group::Memory, "", name).map(|stat| stat.last.value.max(0));
    let Some(system) = value("system") else { return Vec::new() };
    let mut parts = Vec::new();
    let mut named: i64 = 0;
    for (name, stat) in period.family(&metrics::MEMORY, "") {
        // The excluded kinds are sums or parts of others.
        if !matches!(name, "total" | "system" | "processes_used" | "atom_used") {
            let bytes = stat.last.value.max(0);
            if name != "processes" {
                named = named.saturating_add(bytes);
            }
            parts.push(Kind { name: name.to_owned(), bytes, owners: owners(period, name) });
        }
    }
    let other = system.saturating_sub(named).max(0);
    parts.push(Kind { name: "other".to_owned(), bytes: other, owners: Vec::new() });
    parts.sort_by_key(|kind| std::cmp::Reverse(kind.bytes));
    parts
}

fn owners(period: &Period, kind: &str) -> Vec<Owner> {
    let mut owners: Vec<Owner> = match kind {
        "processes" => of_processes(period, Rank::Memory, |row| Some(row.memory_bytes)),
        "binary" => of_processes(period, Rank::Binary, |row| row.binary_bytes),
        "ets" => period
            .tables
            .iter()
            .map(|table| Owner {
                name: table.name.clone(),
                pid: table.owner_name.clone().unwrap_or_else(|| table.owner.clone()),
                bytes: table.memory_bytes,
            })
            .collect(),
        _ => Vec::new(),
    };
    owners.retain(|owner| owner.bytes > 0);
    owners.sort_by_key(|owner| std::cmp::Reverse(owner.bytes));
    owners
}

fn of_processes(
    period: &Period,
    rank: Rank,
    bytes: impl Fn(&beamtune_model::ProcessRow) -> Option<i64>,
) -> Vec<Owner> {
    let rows = period.processes.iter().filter_map(|process| process.row.as_ref());
    rows.filter(|row| row.ranks.contains(&rank))
        .filter_map(|row| {
            let name = row.title().unwrap_or(&row.pid).to_owned();
            Some(Owner { name, pid: row.pid.clone(), bytes: bytes(row)? })
        })
        .collect()
}

pub fn render(period: &Period, style: Style) -> String {
    let mut table = Table::new(&[("erlang:memory()", Left), ("size", Right), ("largest owners", Left)]);
    for kind in kinds(period) {
        let shown = kind.owners.iter().take(MAX_OWNERS).map(|owner| {
            format!("{} {}", super::who(&owner.name, &owner.pid), text::bytes(owner.bytes as f64))
        });
        table.row([
            text::clean(&kind.name),
            text::bytes(kind.bytes as f64),
            shown.collect::<Vec<_>>().join(", "),
        ]);
    }
    let total = period.find(Group::Memory, "", "total");
    if let Some(total) = total {
        table.row(["total".to_owned(), text::bytes(total.last.value as f64), String::new()]);
    }
    if table.is_empty() { missing(period, style) } else { table.render(style) }
}

/// Renders why there are no kinds; empty if there are some, or if the VM was not read.
pub fn missing(period: &Period, style: Style) -> String {
    if period.vm_ticks == 0 || !kinds(period).is_empty() {
        return String::new();
    }
    let missing = period.missing_group(Group::Memory, "erlang:memory()");
    let words = format!("{} is unknown: {}", missing.what, text::sentence(&missing.why));
    format!("{}\n", text::wrap(&words, style.width, ""))
}
