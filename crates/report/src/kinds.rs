//! Kinds of memory from `erlang:memory()`, as text: one line per kind; the lines add up to the total. Used for imported text, which often
//! has no other data about memory. For a node, `beamtune memory` shows far more.

use beamtune_model::{Period, metrics};

use crate::text::{self, Style};

/// For a kind with a smaller share of the total, its contents are not explained.
const WORTH_A_WORD: f64 = 0.10;

/// The kinds that do not include each other, with their contents, and how to find the largest.
const KINDS: [(&str, &str); 5] = [
    ("processes", "heaps, stacks, message queues; list the largest: recon:proc_count(memory, 10)"),
    (
        "binary",
        "binaries larger than 64 bytes; find owners with recon:bin_leak(10), which garbage-collects all processes",
    ),
    ("ets", "tables; the largest: ets:i()"),
    ("code", "loaded modules; how many: length(code:all_loaded())"),
    ("atom", "names; how many: erlang:system_info(atom_count)"),
];

/// The part of `system` that no other kind covers.
const REST: (&str, &str) =
    ("rest of system", "tables of processes and ports (+P, +Q), links, monitors, timers, drivers and NIFs");

/// Renders the table with a heading; empty if the kinds are not known.
pub fn render(period: &Period, style: Style) -> String {
    let kinds: Vec<(&str, f64)> =
        period.family(&metrics::MEMORY, "").map(|(name, stat)| (name, stat.last.value as f64)).collect();
    let size = |kind: &str| kinds.iter().find(|(name, _)| *name == kind).map(|(_, size)| *size);
    let (Some(total), Some(system)) = (size("total").filter(|total| *total > 0.0), size("system")) else {
        return String::new();
    };
    let told: Vec<(&str, f64, &str)> =
        KINDS.iter().filter_map(|(kind, holds)| Some((*kind, size(kind)?, *holds))).collect();
    // All kinds but processes are parts of system.
    let named: f64 = told.iter().filter(|(kind, ..)| *kind != "processes").map(|(_, size, _)| size).sum();
    let mut lines = told;
    lines.push((REST.0, (system - named).max(0.0), REST.1));
    lines.sort_by(|a, b| b.1.total_cmp(&a.1));
    let heading = format!("Memory by kind: {} in use, without free memory in carriers", text::bytes(total));
    let mut out = format!("{}\n", style.bold(&heading));
    for (kind, size, holds) in lines {
        let share = size / total;
        let numbers = format!("  {kind:<14}  {:>8}  {:>3.0} %  ", text::bytes(size), share * 100.0);
        let column = numbers.chars().count();
        let holds = if share >= WORTH_A_WORD { holds } else { "" };
        let holds = text::wrap(holds, style.width.saturating_sub(column).max(30), &" ".repeat(column));
        out.push_str(&format!("{}\n", format!("{numbers}{}", style.dim(&holds)).trim_end()));
    }
    out
}

#[cfg(test)]
mod tests {
    use beamtune_model::window::Point;
    use beamtune_model::{Facts, PeriodBuilder, Series};

    use super::*;

    fn told(kinds: &[(&str, i64)]) -> Period {
        let mut builder = PeriodBuilder::new(None, Facts::default(), 1);
        for (name, value) in kinds {
            let family = metrics::MEMORY;
            let series = Series {
                group: family.group,
                entity: "".into(),
                name: (*name).into(),
                unit: family.unit,
                kind: family.kind,
            };
            builder.column(&series, [Point { t: 0, incarnation: 0, value: *value }]);
        }
        builder.finish()
    }

    #[test]
    fn kinds_are_sorted_by_size_and_add_up_to_the_total() {
        let kinds = [
            ("total", 100_000_000),
            ("processes", 20_000_000),
            ("processes_used", 19_000_000),
            ("system", 80_000_000),
            ("atom", 1_000_000),
            ("atom_used", 900_000),
            ("binary", 60_000_000),
            ("code", 9_000_000),
            ("ets", 4_000_000),
        ];
        let text = render(&told(&kinds), Style::PLAIN);
        let names = text.lines().skip(1).filter_map(|line| line.get(2..16).map(str::trim));
        let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
        assert_eq!(names, ["binary", "processes", "code", "rest of system", "ets", "atom"], "{text}");
        assert!(text.starts_with("Memory by kind: 100 MB in use"), "{text}");
        assert!(text.contains("60.0 MB   60 %  binaries larger than 64 bytes"), "{text}");
        assert!(text.contains("rest of system   6.00 MB    6 %\n"), "{text}");
    }

    #[test]
    fn incomplete_kinds_are_not_shown() {
        assert_eq!(render(&told(&[("code", 10), ("binary", 20)]), Style::PLAIN), "");
        assert_eq!(render(&Period::default(), Style::PLAIN), "");
    }
}
