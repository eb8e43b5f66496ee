//! All parts of resident memory, and the kernel's mappings.

use std::collections::BTreeMap;

use beamtune_model::memory::{Allocator, Carriers, ContentPart, MemoryBreakdown, content};
use beamtune_model::{Group, Period, metrics};

use crate::table::{Align::*, Table};
use crate::text::{self, Style};

/// Parts with a smaller share of resident memory are added up.
const WORTH_A_LINE: f64 = 0.005;

/// A line of the breakdown; sizes in bytes.
#[derive(Debug, Clone, Default)]
struct Line {
    name: String,
    count: i64,
    resident: Option<i64>,
    mapped: i64,
    in_use: Option<i64>,
}

impl Line {
    fn of(name: &str, part: &ContentPart) -> Line {
        Line {
            name: name.to_owned(),
            count: part.count,
            resident: Some(part.resident),
            mapped: part.size,
            in_use: part.in_use,
        }
    }

    fn add(&mut self, other: &Line) {
        self.count = self.count.saturating_add(other.count);
        self.mapped = self.mapped.saturating_add(other.mapped);
        self.resident = plus(self.resident, other.resident);
        self.in_use = plus(self.in_use, other.in_use);
    }

    fn weight(&self) -> i64 {
        self.resident.unwrap_or(self.mapped)
    }
}

fn plus(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    }
}

/// Renders all parts of resident memory, with the sizes that are mapped and in use.
pub fn render(bridge: &MemoryBreakdown, allocators: &[Allocator], style: Style) -> String {
    let mut table = Table::new(&[
        ("part", Left),
        ("count", Right),
        ("resident", Right),
        ("share", Right),
        ("mapped", Right),
        ("in use", Right),
        ("used", Right),
    ]);
    let whole = bridge.resident.filter(|whole| *whole > 0);
    let mut row = |depth: usize, line: &Line| {
        let share = line.resident.zip(whole).map(|(part, whole)| part as f64 / whole as f64);
        let used = line.in_use.filter(|_| line.mapped > 0).map(|used| used as f64 / line.mapped as f64);
        table.row([
            format!("{}{}", "  ".repeat(depth), line.name),
            if line.count > 1 { text::decimal(line.count as f64) } else { String::new() },
            line.resident.map_or(String::new(), |bytes| text::bytes(bytes as f64)),
            text::share(share),
            if line.mapped > 0 { text::bytes(line.mapped as f64) } else { String::new() },
            line.in_use.map_or(String::new(), |bytes| text::bytes(bytes as f64)),
            text::share(used),
        ]);
    };
    let (all, single) = carriers(bridge, allocators);
    let worth = (whole.unwrap_or(all.weight()) as f64 * WORTH_A_LINE) as i64;
    row(0, &all);
    let mut small = Line { name: "other allocators".to_owned(), ..Line::default() };
    for (allocator, sets) in &single {
        if allocator.weight() < worth {
            small.add(allocator);
            continue;
        }
        row(1, allocator);
        // If there is only one set, it has the same numbers as its allocator.
        for set in sets.iter().filter(|set| sets.len() > 1 && set.weight() >= worth) {
            row(2, set);
        }
    }
    if small.count > 0 {
        row(1, &small);
    }
    let mut rest = Line { name: "other parts".to_owned(), ..Line::default() };
    for part in bridge.parts.iter().filter(|part| content::as_carriers(&part.entity).is_none()) {
        let line = Line::of(&described(part), part);
        if line.weight() < worth || line.resident == Some(0) {
            rest.add(&line);
        } else {
            row(0, &line);
        }
    }
    if rest.weight() > 0 {
        // These parts are of different kinds, so their total number and the size in use are meaningless.
        row(0, &Line { in_use: None, count: 0, ..rest });
    }
    if let Some(unexplained) = bridge.unexplained() {
        let unknown = bridge.unknown.as_ref().map_or(0, |unknown| unknown.resident);
        let mapped = bridge.unknown.as_ref().map_or(0, |unknown| unknown.size);
        let line = |name: &str, resident| Line {
            name: name.to_owned(),
            resident: Some(resident),
            mapped: if resident == unknown { mapped } else { 0 },
            ..Line::default()
        };
        // The kernel's sums and the pages are read one after the other, so memory may have changed in between.
        let moved = unexplained.saturating_sub(unknown);
        if moved.saturating_abs() > worth {
            row(0, &line("not explained", unknown));
            row(0, &line("changed while reading", moved));
        } else {
            row(0, &line("not explained", unexplained.max(0)));
        }
    }
    if let Some(resident) = bridge.resident {
        let mapped = bridge.total(|mapping| mapping.size);
        row(0, &Line { name: "all".to_owned(), resident: Some(resident), mapped, ..Line::default() });
    }
    table.render(style)
}

/// Renders how the numbers were measured, and why columns differ.
pub fn sources(period: &Period, bridge: &MemoryBreakdown, allocators: &[Allocator], style: Style) -> String {
    let line = |note: String| format!("{}\n", style.dim(&text::wrap(&note, style.width, "  ")));
    notes(period, bridge, allocators).into_iter().map(line).collect()
}

/// Returns a line for all carriers, and a line per allocator with those of its sets. Resident and mapped sizes come from the pages, if
/// these were scanned; sizes in use come from the VM.
fn carriers(bridge: &MemoryBreakdown, allocators: &[Allocator]) -> (Line, Vec<(Line, Vec<Line>)>) {
    let mut found: BTreeMap<&str, BTreeMap<&str, &ContentPart>> = BTreeMap::new();
    for part in &bridge.parts {
        if let Some((allocator, set)) = content::as_carriers(&part.entity) {
            found.entry(allocator).or_default().insert(set, part);
        }
    }
    let looked = bridge.explained().is_some();
    let mut names: Vec<&str> = allocators.iter().map(|allocator| allocator.name.as_str()).collect();
    names.extend(found.keys().filter(|name| !allocators.iter().any(|allocator| allocator.name == **name)));
    let mut lines = Vec::new();
    let mut all = Line { name: "all carriers".to_owned(), ..Line::default() };
    for name in names {
        let reported = allocators.iter().find(|allocator| allocator.name == name);
        let sets = [
            (content::MBCS, "multiblock", reported.map(|allocator| allocator.mbcs)),
            (content::POOL, "multiblock, pool", reported.map(|allocator| allocator.pool)),
            (content::SBCS, "singleblock", reported.map(|allocator| allocator.sbcs)),
        ];
        let mut of_allocator = Line { name: text::clean(name), ..Line::default() };
        let mut of_sets = Vec::new();
        for (set, title, reported) in sets {
            let part = found.get(name).and_then(|sets| sets.get(set)).copied();
            let line = one_set(title, part, reported, looked);
            of_allocator.add(&line);
            if line.count > 0 {
                of_sets.push(line);
            }
        }
        all.add(&of_allocator);
        if of_allocator.count > 0 {
            lines.push((of_allocator, of_sets));
        }
    }
    lines.sort_by_key(|(line, _)| std::cmp::Reverse(line.weight()));
    (all, lines)
}

fn one_set(title: &str, part: Option<&ContentPart>, reported: Option<Carriers>, looked: bool) -> Line {
    let mut line = match part {
        Some(part) => Line::of(title, part),
        None => Line {
            name: title.to_owned(),
            count: if looked { 0 } else { reported.map_or(0, |reported| reported.count) },
            resident: looked.then_some(0),
            mapped: if looked { 0 } else { reported.map_or(0, |reported| reported.size) },
            in_use: None,
        },
    };
    line.in_use = reported.map(|reported| reported.blocks_size);
    line
}

/// Returns the name of a part for output.
fn described(part: &ContentPart) -> String {
    let (kind, of) = part.entity.split_once('/').unwrap_or((&part.entity, ""));
    match part.entity.as_str() {
        content::MSEG_CACHE => "segment cache".to_owned(),
        content::SUPER_CARRIER => "super carrier, unused".to_owned(),
        content::LITERAL_AREA => "literal area, unused".to_owned(),
        content::JIT => "JIT code".to_owned(),
        content::EMULATOR => "emulator".to_owned(),
        content::LIBRARIES => "shared libraries".to_owned(),
        content::FILES => "mapped files".to_owned(),
        content::SHARED => "shared memory".to_owned(),
        content::KERNEL => "kernel pages".to_owned(),
        content::MALLOC_HEAP => "malloc: main arena".to_owned(),
        content::MALLOC_ARENAS => "malloc: other arenas".to_owned(),
        content::MALLOC_MAPPED => "malloc: large chunks".to_owned(),
        _ if kind == content::STACKS => format!("stacks: {}", text::clean(of).replace('_', " ")),
        other => text::clean(other),
    }
}

/// Returns remarks that explain differences between the columns.
fn notes(period: &Period, bridge: &MemoryBreakdown, allocators: &[Allocator]) -> Vec<String> {
    let mut notes = vec![
        "Resident: pages, counted (/proc/PID/pagemap). Mapped: address space. In use: blocks (system_info({allocator, A}))."
            .to_owned(),
    ];
    let looked = bridge.explained().is_some();
    let reported: i64 = allocators.iter().fold(0, |sum, allocator| sum.saturating_add(allocator.all().size));
    let found = bridge.parts_of(content::CARRIERS).fold(0, |sum: i64, part| sum.saturating_add(part.size));
    if looked && reported > 0 {
        let share = found as f64 / reported as f64;
        notes.push(format!(
            "The VM reports carriers of {}; {} of them were found in its pages.",
            text::bytes(reported as f64),
            text::share(Some(share))
        ));
    } else if looked {
        notes.push("Sizes in use are unknown: the VM was not read.".to_owned());
    } else if reported > 0 {
        notes.push("Mapped and in use: as reported by the VM. Resident: unknown.".to_owned());
    }
    let lazy = bridge.total(|mapping| mapping.lazy_free);
    if lazy > 0 {
        notes.push(format!(
            "{} are freed (MADV_FREE), and resident until the kernel reclaims them.",
            text::bytes(lazy as f64)
        ));
    }
    let huge = bridge.total(|mapping| mapping.huge_pages);
    if huge > 0 {
        notes.push(format!("{} are in transparent huge pages.", text::bytes(huge as f64)));
    }
    let swapped = bridge.total(|mapping| mapping.swap);
    if swapped > 0 {
        notes.push(format!("{} more are swapped out.", text::bytes(swapped as f64)));
    }
    let foreign = allocators.iter().fold(0, |sum: i64, allocator| sum.saturating_add(allocator.foreign));
    if foreign > 0 {
        notes.push(format!(
            "{} of the blocks are in carriers of another allocator (OTP 22 and 23 share one pool).",
            text::bytes(foreign as f64)
        ));
    }
    if let Some(cost) = period.find(Group::HostContent, "", metrics::CONTENT_COST.name) {
        notes.push(format!(
            "The scan of the pages took {}, outside the VM.",
            text::seconds(cost.last.value as f64 / 1e9)
        ));
    }
    notes
}

/// Renders the kernel's sizes by kind of mapping.
pub fn mappings(bridge: &MemoryBreakdown, style: Style) -> String {
    let mut table = Table::new(&[
        ("mappings", Left),
        ("count", Right),
        ("resident", Right),
        ("PSS", Right),
        ("swapped", Right),
        ("MADV_FREE", Right),
        ("huge pages", Right),
        ("mapped", Right),
    ]);
    let size = |bytes: i64| if bytes == 0 { String::new() } else { text::bytes(bytes as f64) };
    for mapping in bridge.mappings.iter().filter(|mapping| mapping.resident > 0 || mapping.swap > 0) {
        table.row([
            text::clean(&mapping.kind),
            text::decimal(mapping.count as f64),
            size(mapping.resident),
            size(mapping.pss),
            size(mapping.swap),
            size(mapping.lazy_free),
            size(mapping.huge_pages),
            size(mapping.size),
        ]);
    }
    table.render(style)
}
