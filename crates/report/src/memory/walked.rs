//! Data requested by options: carriers by size and utilization, tagged blocks, code by application.

use beamtune_model::{CarrierRow, Metric, Period, metrics};

use crate::table::{Align::*, Table};
use crate::text::{self, Style};

/// Classes of carrier utilization: upper limit in tenths, and title.
const CLASSES: [(i64, &str); 4] = [(0, "<10 %"), (4, "<50 %"), (8, "<90 %"), (10, "90+ %")];

pub fn render(period: &Period, max_rows: usize, style: Style) -> String {
    let sections = [
        carriers(period, max_rows, style),
        allocations(period, max_rows, style),
        code(period, max_rows, style),
    ];
    sections.iter().filter(|section| !section.is_empty()).map(String::as_str).collect::<Vec<_>>().join("\n")
}

fn carriers(period: &Period, max_rows: usize, style: Style) -> String {
    let mut columns =
        vec![("carriers", Left), ("", Left), ("size from", Right), ("count", Right), ("total", Right)];
    columns.extend(CLASSES.iter().map(|(_, title)| (*title, Right)));
    columns.extend([("blocks", Right), ("largest free block", Right)]);
    let mut table = Table::new(&columns);
    // Merges rows of the same allocator, set and size that differ only in utilization.
    let mut lines: Vec<(&CarrierRow, Vec<&CarrierRow>)> = Vec::new();
    for row in period.carriers.iter().filter(|row| row.skipped.is_none()) {
        let key = |row: &CarrierRow| (row.allocator.clone(), row.in_pool, row.single, row.size_log2);
        match lines.iter_mut().find(|(first, _)| key(first) == key(row)) {
            Some((_, rows)) => rows.push(row),
            None => lines.push((row, vec![row])),
        }
    }
    lines.sort_by_key(|(_, rows)| std::cmp::Reverse(sum(rows, |row| row.bytes)));
    for (first, rows) in &lines {
        let set = match (first.single, first.in_pool) {
            (true, _) => "singleblock",
            (false, true) => "in the pool",
            (false, false) => "multiblock",
        };
        let size = first.size_log2.and_then(|log2| 1_u64.checked_shl(u32::try_from(log2).ok()?));
        let mut cells = vec![
            text::clean(&first.allocator),
            set.to_owned(),
            size.map_or(String::new(), |bytes| text::bytes(bytes as f64)),
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
    let mut out = table.first(max_rows, style);
    for row in period.carriers.iter().take(1_000).filter(|row| row.skipped.is_some()) {
        let why = match row.skipped.as_deref().unwrap_or_default() {
            "limit" => "out of time",
            "pool" => "a walk would corrupt the VM's counts (before OTP 27.1)",
            "many" => "too many",
            "no_answer" => "no answer in time",
            "refused" => "refused by the VM",
            "rows" => "too many different carriers",
            other => other,
        };
        out.push_str(&format!(
            "{} carriers of {} ({}) skipped: {}\n",
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

fn allocations(period: &Period, max_rows: usize, style: Style) -> String {
    let mut table =
        Table::new(&[("allocated by", Left), ("type", Left), ("blocks", Right), ("size, estimated", Right)]);
    for row in period.allocations.iter().filter(|row| row.skipped.is_none()) {
        table.row([
            text::clean(&row.origin),
            text::clean(&row.kind),
            text::decimal(row.blocks as f64),
            text::bytes(row.bytes as f64),
        ]);
    }
    table.first(max_rows, style)
}

fn code(period: &Period, max_rows: usize, style: Style) -> String {
    let mut table =
        Table::new(&[("code of", Left), ("modules", Right), ("size", Right), ("old code", Right)]);
    for row in &period.code {
        table.row([
            text::clean(row.application.as_deref().unwrap_or("no application")),
            text::decimal(row.modules as f64),
            text::bytes(row.bytes as f64),
            if row.old_bytes > 0 { text::bytes(row.old_bytes as f64) } else { String::new() },
        ]);
    }
    let mut out = table.first(max_rows, style);
    let last = |metric: &Metric| period.stat(metric, "").ok().map(|stat| stat.last.value as f64);
    if let Some((count, bytes)) = last(&metrics::PERSISTENT_TERMS).zip(last(&metrics::PERSISTENT_TERMS_SIZE))
    {
        out.push_str(&format!("{} persistent terms take {}\n", text::decimal(count), text::bytes(bytes)));
    }
    out
}
