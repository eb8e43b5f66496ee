//! Generates tables in lcnt's format. A column is as wide as its widest cell plus one, but at least as wide as its minimum width, and at
//! most 80. Cells are right-aligned and truncated at the end. Headings and a line of dashes precede the rows. Times are whole microseconds,
//! and percentages have four decimals.

use beamtune_import::{Banner, Unread};
use beamtune_model::{LockRow, LockSession};

/// A row with its counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    pub name: String,
    pub id: String,
    pub kind: String,
    pub place: String,
    pub tries: i64,
    pub collisions: i64,
    pub time_us: i64,
    pub bins: Vec<i64>,
}

pub fn counted(name: &str, id: &str, tries: i64, collisions: i64, time_us: i64) -> Counted {
    Counted {
        name: name.to_owned(),
        id: id.to_owned(),
        kind: "mutex".to_owned(),
        place: "undefined:0".to_owned(),
        tries,
        collisions,
        time_us,
        bins: vec![0; 30],
    }
}

impl Counted {
    pub fn at(self, place: &str) -> Counted {
        Counted { place: place.to_owned(), ..self }
    }
}

/// Values of the option `print`, with the minimum width and the heading of each column.
const COLUMNS: [(&str, usize, &str); 10] = [
    ("name", 6, "lock"),
    ("id", 4, "id"),
    ("type", 5, "type"),
    ("entry", 5, "location"),
    ("tries", 8, "#tries"),
    ("colls", 13, "#collisions"),
    ("ratio", 16, "collisions [%]"),
    ("time", 11, "time [us]"),
    ("duration", 14, "duration [%]"),
    ("histogram", 20, "histogram [log2(us)]"),
];

pub const CONFLICTS: &str = "name,id,tries,colls,ratio,time,duration";
pub const INSPECT: &str = "name,id,tries,colls,ratio,time,duration,histogram";
pub const LOCATIONS: &str = "name,entry,tries,colls,ratio,time,duration";
pub const PLACES: &str = "entry,tries,colls,ratio,time,duration,histogram";

pub fn percent(part: i64, whole: i64) -> String {
    format!("{:.4}", if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 })
}

fn marks(bins: &[i64]) -> String {
    let max = bins.iter().copied().max().unwrap_or(0);
    let mark = |count: &i64| match *count as f64 / max.max(1) as f64 {
        0.0 => ' ',
        share if share > 0.66 => 'X',
        share if share > 0.33 => 'x',
        _ => '.',
    };
    format!("|{}|", bins.iter().map(mark).collect::<String>())
}

fn cell(column: &str, row: &Counted, length_us: i64) -> String {
    match column {
        "name" => row.name.clone(),
        "id" => row.id.clone(),
        "type" => row.kind.clone(),
        "entry" => row.place.clone(),
        "tries" => row.tries.to_string(),
        "colls" => row.collisions.to_string(),
        "ratio" => percent(row.collisions, row.tries),
        "time" => row.time_us.to_string(),
        "duration" => percent(row.time_us, length_us),
        _ => marks(&row.bins),
    }
}

/// Returns a table with headings.
pub fn table(columns: &str, rows: &[Counted], length_us: i64) -> String {
    let columns: Vec<_> = columns
        .split(',')
        .map(|name| COLUMNS.iter().find(|column| column.0 == name).expect("a column"))
        .collect();
    let widths: Vec<usize> = columns
        .iter()
        .map(|(name, min, _)| {
            let cells = rows.iter().map(|row| cell(name, row, length_us).chars().count() + 1);
            cells.max().unwrap_or(0).max(*min).min(80)
        })
        .collect();
    let line = |cells: Vec<String>| {
        let mut line = String::new();
        for ((cell, width), (name, _, _)) in cells.iter().zip(&widths).zip(&columns) {
            if *name == "histogram" {
                line.push_str(&format!(" {cell:<rest$}", rest = width.saturating_sub(1)));
            } else {
                let cut: String = cell.chars().take(*width).collect();
                line.push_str(&format!("{cut:>width$}"));
            }
        }
        line + "\n"
    };
    let mut text = line(columns.iter().map(|(_, _, heading)| (*heading).to_owned()).collect());
    text += &line(columns.iter().map(|(_, _, heading)| "-".repeat(heading.len() + 1)).collect());
    for row in rows {
        text += &line(columns.iter().map(|(name, _, _)| cell(name, row, length_us)).collect());
    }
    text
}

/// Returns the output of `lcnt:information()`.
pub fn information(locks: i64, length_us: i64, rows: &[Counted]) -> String {
    let sum = |count: fn(&Counted) -> i64| rows.iter().map(count).sum::<i64>();
    let time = sum(|row| row.time_us);
    let lines = [
        ("#locks", locks.to_string()),
        ("duration", format!("{length_us} us ({:.4} s)", length_us as f64 / 1e6)),
        ("", String::new()),
        ("#tries", sum(|row| row.tries).to_string()),
        ("#colls", sum(|row| row.collisions).to_string()),
        ("wait time", format!("{time} us ( {:.4} s)", time as f64 / 1e6)),
        ("percent of duration", format!("{} %", percent(time, length_us))),
    ];
    let mut text = "information:\n".to_owned();
    for (key, value) in lines {
        text +=
            &if key.is_empty() { "\nsummated stats:\n".to_owned() } else { format!("{key:>20} : {value}\n") };
    }
    text
}

/// Returns a histogram with counts, as in the output of `lcnt:histogram(Lock)`.
pub fn full_histogram(bins: &[i64]) -> String {
    let max = bins.iter().copied().max().unwrap_or(0).max(1);
    let line = |(index, count): (usize, &i64)| {
        let bar = "#".repeat((60 * count / max) as usize);
        let number = if count.to_string().len() > 8 { "*".repeat(8) } else { format!("{count:8}") };
        format!("{index:2} = log2 : {number} | {bar}").trim_end().to_owned() + "\n"
    };
    bins.iter().enumerate().map(line).collect()
}

/// The result of importing a text that contains only output of lcnt.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    pub session: LockSession,
    pub rows: Vec<LockRow>,
    pub unread: Vec<Unread>,
    pub banner: Banner,
}

pub fn read(text: &str) -> Imported {
    let reading = beamtune_import::read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert!(reading.tools.iter().all(|tool| *tool == "lcnt"), "{:?}\n{text}", reading.tools);
    let (session, rows) = reading.locks.unwrap_or_default();
    Imported { session, rows, unread: reading.unread, banner: reading.banner }
}

/// Reads a text, and asserts that no part was left unread.
pub fn read_all(text: &str) -> Imported {
    let imported = read(text);
    assert!(imported.unread.is_empty(), "{:#?}\n{text}", imported.unread);
    imported
}

pub fn reasons(imported: &Imported) -> Vec<(usize, &str, &str)> {
    imported.unread.iter().map(|unread| (unread.line, unread.text.as_str(), unread.reason.as_str())).collect()
}

/// Returns the numbers of a row, in the units of the text.
pub fn numbers(row: &LockRow) -> (&str, Option<&str>, i64, i64, i64, i64) {
    (&row.class, row.id.as_deref(), row.locks, row.tries, row.collisions, row.wait_time / 1_000)
}

/// Returns sums over rows: tries, collisions, microseconds.
pub fn sum<'a>(rows: impl Iterator<Item = &'a LockRow>) -> [i64; 3] {
    rows.fold([0; 3], |sum, row| {
        [sum[0] + row.tries, sum[1] + row.collisions, sum[2] + row.wait_time / 1_000]
    })
}
