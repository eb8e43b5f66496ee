//! What was asked for by name: carriers by size and use, tagged blocks, code by application.

use beamtune_model::{CarrierRow, Metric, Period, metrics};

use crate::table::{Align::*, Table};
use crate::text::{self, Style};

/// Lines of each table.
const MOST: usize = 24;

/// How far carriers are used, in tenths: the last of each class, and its title.
const CLASSES: [(i64, &str); 4] = [(0, "below 10 %"), (4, "to 50 %"), (8, "to 90 %"), (10, "fuller")];

pub fn render(period: &Period, style: Style) -> String {
    let sections = [carriers(period, style), allocations(period, style), code(period, style)];
    sections.iter().filter(|section| !section.is_empty()).map(String::as_str).collect::<Vec<_>>().join("\n")
}

fn carriers(period: &Period, style: Style) -> String {
    let mut columns = vec![("carriers", Left), ("", Left), ("of", Right), ("number", Right), ("size", Right)];
    columns.extend(CLASSES.iter().map(|(_, title)| (*title, Right)));
    columns.extend([("blocks", Right), ("largest hole, at least", Right)]);
    let mut table = Table::new(&columns);
    // Rows of the same allocator, set and size stand in one line, whatever their use.
    let mut lines: Vec<(&CarrierRow, Vec<&CarrierRow>)> = Vec::new();
    for row in period.carriers.iter().filter(|row| row.skipped.is_none()) {
        let key = |row: &CarrierRow| (row.allocator.clone(), row.in_pool, row.single, row.size_log2);
        match lines.iter_mut().find(|(first, _)| key(first) == key(row)) {
            Some((_, rows)) => rows.push(row),
            None => lines.push((row, vec![row])),
        }
    }
    lines.sort_by_key(|(_, rows)| std::cmp::Reverse(sum(rows, |row| row.bytes)));
    for (first, rows) in lines.iter().take(MOST) {
        let set = match (first.single, first.in_pool) {
            (true, _) => "single-block",
            (false, true) => "in the pool",
            (false, false) => "multiblock",
        };
        let size = first.size_log2.and_then(|log2| 1_u64.checked_shl(u32::try_from(log2).ok()?));
        let mut cells = vec![
            text::clean(&first.allocator),
            set.to_owned(),
            size.map_or(String::new(), |bytes| format!("{} and more", text::bytes(bytes as f64))),
            text::decimal(sum(rows, |row| row.carriers) as f64),
            text::bytes(sum(rows, |row| row.bytes) as f64),
        ];
        let mut above = -1;
        for (last, _) in CLASSES {
            let of_class = |row: &CarrierRow| {
                let used = row.used_tenths.unwrap_or(-1);
                if used > above && used <= last { row.carriers } else { 0 }
            };
            let count = sum(rows, of_class);
            cells.push(if count > 0 { text::decimal(count as f64) } else { String::new() });
            above = last;
        }
        let blocks = rows
            .iter()
            .flat_map(|row| &row.blocks)
            .fold(0_i64, |sum, blocks| sum.saturating_add(blocks.count));
        let hole = rows.iter().flat_map(|row| &row.free).map(|free| free.from).max();
        cells.push(text::decimal(blocks as f64));
        cells.push(hole.map_or(String::new(), |bytes| text::bytes(bytes as f64)));
        table.row(cells);
    }
    let mut out = table.render(style);
    for row in period.carriers.iter().take(1_000).filter(|row| row.skipped.is_some()) {
        let why = match row.skipped.as_deref().unwrap_or_default() {
            "limit" => "the time did not suffice",
            "pool" => "walking them would leave the VM's own counts wrong (before OTP 27.1)",
            "many" => "there are too many",
            "no_answer" => "their thread did not answer in time",
            "refused" => "the VM did not do it",
            "rows" => "too unlike the others to be told one by one",
            other => other,
        };
        out.push_str(&format!(
            "{} carriers of {} ({}) are left out: {}\n",
            text::decimal(row.carriers as f64),
            text::clean(&row.allocator),
            text::bytes(row.bytes as f64),
            text::sentence(why)
        ));
    }
    out
}

fn sum(rows: &[&CarrierRow], of: impl Fn(&CarrierRow) -> i64) -> i64 {
    rows.iter().fold(0, |sum, row| sum.saturating_add(of(row)))
}

fn allocations(period: &Period, style: Style) -> String {
    let mut table = Table::new(&[("allocated by", Left), ("for", Left), ("blocks", Right), ("about", Right)]);
    for row in period.allocations.iter().filter(|row| row.skipped.is_none()).take(MOST) {
        table.row([
            text::clean(&row.origin),
            text::clean(&row.kind),
            text::decimal(row.blocks as f64),
            text::bytes(row.bytes as f64),
        ]);
    }
    table.render(style)
}

fn code(period: &Period, style: Style) -> String {
    let mut table =
        Table::new(&[("code of", Left), ("modules", Right), ("size", Right), ("old code", Right)]);
    for row in period.code.iter().take(MOST) {
        table.row([
            text::clean(row.application.as_deref().unwrap_or("no application")),
            text::decimal(row.modules as f64),
            text::bytes(row.bytes as f64),
            if row.old_bytes > 0 { text::bytes(row.old_bytes as f64) } else { String::new() },
        ]);
    }
    let mut out = table.render(style);
    let last = |metric: &Metric| period.stat(metric, "").ok().map(|stat| stat.last.value as f64);
    if let Some((count, bytes)) = last(&metrics::PERSISTENT_TERMS).zip(last(&metrics::PERSISTENT_TERMS_SIZE))
    {
        out.push_str(&format!("{} persistent terms take {}\n", text::decimal(count), text::bytes(bytes)));
    }
    out
}
