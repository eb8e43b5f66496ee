//! What resident memory is used for: the largest use first, each with its largest owners. The rows add up to resident memory.
//!
//! The use of blocks is determined by their allocator (erts_alloc(3)), not by `erlang:memory/0`. The kinds of the latter do not include
//! free memory in carriers, and its `processes` includes the process table.

use std::collections::{BTreeMap, BTreeSet};

use beamtune_model::memory::{Allocator, MemoryBreakdown, content};
use beamtune_model::{Period, metrics};

use super::owners::{self, Owner};
use crate::table::{Align::*, Table, fitting};
use crate::text::{self, Style};

/// Number of processes that are named; all others are summed up.
const MAX_PROCESSES: usize = 2;
/// Width of the columns for title, size and share, with separators.
const NUMBERS_WIDTH: usize = 39;
/// Minimum share of resident memory for a row of unexplained memory (judgement); the headline always contains this memory.
const MIN_UNEXPLAINED_SHARE: f64 = 0.005;

/// A use of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Heaps,
    Tables,
    Binaries,
    Code,
    Internal,
    Free,
    Outside,
    Unexplained,
}

impl Use {
    const ALL: [Use; 8] = [
        Use::Heaps,
        Use::Tables,
        Use::Binaries,
        Use::Code,
        Use::Internal,
        Use::Free,
        Use::Outside,
        Use::Unexplained,
    ];

    fn title(self) -> &'static str {
        match self {
            Use::Heaps => "process heaps",
            Use::Tables => "ETS tables",
            Use::Binaries => "binaries",
            Use::Code => "code, atoms, literals",
            Use::Internal => "other VM data",
            Use::Free => "free, kept by the VM",
            Use::Outside => "outside allocators",
            Use::Unexplained => "not explained",
        }
    }

    /// Returns the use of an allocator's blocks.
    fn of_allocator(name: &str) -> Use {
        match name {
            "eheap_alloc" => Use::Heaps,
            "ets_alloc" => Use::Tables,
            "binary_alloc" => Use::Binaries,
            "ll_alloc" | "literal_alloc" | "exec_alloc" => Use::Code,
            _ => Use::Internal,
        }
    }

    /// Returns the use of a kind of `erlang:memory/0`.
    fn of_kind(name: &str) -> Use {
        match name {
            "processes" => Use::Heaps,
            "ets" => Use::Tables,
            "binary" => Use::Binaries,
            "code" | "atom" => Use::Code,
            _ => Use::Internal,
        }
    }
}

/// A part of a use: an allocator, malloc, the emulator.
struct Part {
    what: Use,
    name: String,
    /// `41 % used`.
    remark: String,
    bytes: i64,
}

/// Renders the rows; empty if nothing is known.
pub fn render(period: &Period, bridge: &MemoryBreakdown, allocators: &[Allocator], style: Style) -> String {
    let parts = parts(period, bridge, allocators);
    let whole = bridge.resident.unwrap_or(0).max(sum(parts.iter())).max(1);
    let of_use = |what| (what, sum(parts.iter().filter(|part| part.what == what)));
    let mut rows: Vec<(Use, i64)> = Use::ALL.into_iter().map(of_use).collect();
    rows.retain(|(_, bytes)| *bytes > 0);
    rows.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let kinds = owners::kinds(period);
    let owners = |kind: &str| kinds.iter().find(|one| one.name == kind).map_or(&[][..], |one| &one.owners);
    let room = style.width.saturating_sub(NUMBERS_WIDTH);
    let mut table = Table::new(&[("", Left), ("", Right), ("", Right), ("", Left)]);
    for (what, bytes) in rows {
        let items = match what {
            Use::Heaps => processes(owners("processes"), bytes, period, room),
            Use::Tables => tables(owners("ets")),
            Use::Binaries => binaries(owners("binary"), period),
            _ => named(&parts, what),
        };
        table.row([
            what.title().to_owned(),
            text::bytes(bytes as f64),
            share(bytes, whole),
            fitting(&items, room),
        ]);
    }
    table.body(style)
}

fn share(part: i64, whole: i64) -> String {
    let percent = part as f64 / whole as f64 * 100.0;
    if percent < 0.5 { "<1 %".to_owned() } else { format!("{percent:.0} %") }
}

fn sum<'p>(parts: impl Iterator<Item = &'p Part>) -> i64 {
    parts.fold(0, |sum, part| sum.saturating_add(part.bytes))
}

/// Returns the parts of resident memory. If the pages were not scanned, these are the sizes that the VM counts.
fn parts(period: &Period, bridge: &MemoryBreakdown, allocators: &[Allocator]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut add = |what: Use, name: &str, bytes: i64, remark: String| {
        if bytes > 0 {
            parts.push(Part { what, name: name.to_owned(), remark, bytes });
        }
    };
    let is_scanned = bridge.explained().is_some();
    if allocators.is_empty() && !is_scanned {
        for kind in owners::kinds(period) {
            add(Use::of_kind(&kind.name), &kind.name, kind.bytes, String::new());
        }
        return parts;
    }
    let scanned = bridge.parts.iter().filter_map(|part| Some(content::as_carriers(&part.entity)?.0));
    let names: BTreeSet<&str> = allocators.iter().map(|one| one.name.as_str()).chain(scanned).collect();
    for name in names {
        let reported = allocators.iter().find(|one| one.name == name).map(Allocator::all);
        let size = match is_scanned {
            true => bridge.resident_of(&format!("{}/{name}", content::CARRIERS)),
            false => reported.map_or(0, |carriers| carriers.size),
        };
        // Without counts from the VM, carriers are assumed to be in use entirely. Blocks can be in pages that are not resident, so their
        // size is limited.
        let used = reported.map_or(size, |carriers| carriers.blocks_size.min(size));
        add(Use::of_allocator(name), name, used, String::new());
        let utilization = format!("{:.0} % used", used as f64 / size.max(1) as f64 * 100.0);
        add(Use::Free, name, size.saturating_sub(used), utilization);
    }
    for part in bridge.parts.iter().filter(|part| content::as_carriers(&part.entity).is_none()) {
        let (what, name) = outside(&part.entity);
        add(what, name, part.resident, String::new());
    }
    match (bridge.resident, bridge.unexplained()) {
        (Some(resident), Some(bytes)) if bytes as f64 >= MIN_UNEXPLAINED_SHARE * resident as f64 => {
            add(Use::Unexplained, "", bytes, String::new());
        }
        _ => {}
    }
    parts
}

/// Returns use and name of a content outside carriers.
fn outside(entity: &str) -> (Use, &str) {
    match entity {
        content::MSEG_CACHE => (Use::Free, "segment cache"),
        content::SUPER_CARRIER => (Use::Free, "super carrier"),
        content::LITERAL_AREA => (Use::Free, "literal area"),
        content::JIT => (Use::Code, "JIT code"),
        content::EMULATOR => (Use::Outside, "emulator"),
        content::MALLOC_HEAP | content::MALLOC_ARENAS | content::MALLOC_MAPPED => (Use::Outside, "malloc"),
        content::KERNEL => (Use::Outside, "kernel"),
        other => (Use::Outside, other.split_once('/').map_or(other, |(kind, _)| kind)),
    }
}

/// Formats the parts of a use, the largest first; parts of the same name are added up.
fn named(parts: &[Part], what: Use) -> Vec<String> {
    let mut sums: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for part in parts.iter().filter(|part| part.what == what && !part.name.is_empty()) {
        let sum = sums.entry((&part.name, &part.remark)).or_default();
        *sum = sum.saturating_add(part.bytes);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    sums.into_iter().map(|((name, remark), bytes)| item(name, bytes, remark)).collect()
}

/// Formats an item: `sessions 98 MB (session_store)`.
fn item(name: &str, bytes: i64, remark: &str) -> String {
    let remark = if remark.is_empty() { String::new() } else { format!(" ({})", text::sentence(remark)) };
    format!("{} {}{remark}", text::sentence(name), text::bytes(bytes as f64))
}

fn tables(owners: &[Owner]) -> Vec<String> {
    owners.iter().map(|owner| item(&owner.name, owner.bytes, &owner.pid)).collect()
}

/// Formats the largest processes, and the rest for all others. Names fewer processes if the line would be too long.
fn processes(owners: &[Owner], bytes: i64, period: &Period, room: usize) -> Vec<String> {
    let count = period.stat(&metrics::PROCESS_COUNT, "").map_or(0, |stat| stat.last.value);
    let items = |named: &[Owner]| {
        let mut items: Vec<String> = named.iter().map(|owner| item(&owner.name, owner.bytes, "")).collect();
        let left = named.iter().fold(bytes, |left, owner| left.saturating_sub(owner.bytes));
        let others = count.saturating_sub(named.len() as i64);
        if left > 0 && others > 0 {
            items.push(item(&format!("{} others", text::decimal(others as f64)), left, ""));
        }
        items
    };
    let all = items(&owners[..owners.len().min(MAX_PROCESSES)]);
    match all.join(", ").chars().count() <= room {
        true => all,
        false => items(&owners[..owners.len().min(1)]),
    }
}

/// Formats processes with the size of the binaries that they refer to. Several processes may refer to the same binary.
fn binaries(owners: &[Owner], period: &Period) -> Vec<String> {
    let references = |pid: &str| {
        let holder = period.holders.iter().find(|holder| holder.pid == pid && holder.skipped.is_none())?;
        Some(format!("{} references", text::decimal(holder.references as f64)))
    };
    owners
        .iter()
        .map(|owner| item(&owner.name, owner.bytes, &references(&owner.pid).unwrap_or_default()))
        .collect()
}
