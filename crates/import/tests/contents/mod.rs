//! Helpers for tests: convert the data of a text to a form that is easy to compare.
#![allow(dead_code, reason = "each test file uses only a part of this module")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use beamtune_import::{ImportedText, read};
use beamtune_model::{Period, PeriodBuilder, SeriesTable};

/// Values by series, facts by key, and rows as debug text.
pub type Contents = BTreeMap<String, String>;

pub fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tools")
}

pub fn fixture(name: &str) -> String {
    fs::read_to_string(folder().join(format!("{name}.txt"))).expect("a fixture")
}

pub fn fixtures() -> Vec<(String, String)> {
    let mut all: Vec<_> = fs::read_dir(folder())
        .expect("the fixtures")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| {
            (
                path.file_stem().expect("a name").to_string_lossy().into_owned(),
                fs::read_to_string(&path).expect("text"),
            )
        })
        .collect();
    all.sort();
    all
}

pub fn contents(reading: ImportedText) -> Contents {
    let mut table = SeriesTable::default();
    let mut contents = Contents::new();
    for sample in reading.samples("a test", &mut table) {
        for (id, value) in &sample.readings {
            let series = table.get(*id).expect("a series");
            contents.insert(format!("{}.{} {}", series.group, series.name, series.entity), value.to_string());
        }
        contents.extend(sample.facts);
        for (n, row) in sample.carriers.iter().enumerate() {
            contents.insert(format!("carrier {n}"), format!("{row:?}"));
        }
        for (n, row) in sample.allocations.iter().enumerate() {
            contents.insert(format!("allocation {n}"), format!("{row:?}"));
        }
    }
    contents
}

pub fn import(text: &str) -> Contents {
    contents(read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}")))
}

pub fn check(contents: &Contents, expect: &[(&str, &str)]) {
    for (key, value) in expect {
        assert_eq!(contents.get(*key).map(String::as_str), Some(*value), "{key} of {contents:#?}");
    }
}

pub fn reasons(text: &str) -> Vec<(usize, usize, String)> {
    let unread = read(text.as_bytes()).map(|reading| reading.unread).unwrap_or_default();
    unread.into_iter().map(|unread| (unread.line, unread.column, unread.reason)).collect()
}

pub fn period(text: &str) -> Period {
    let mut table = SeriesTable::default();
    let samples = read(text.as_bytes()).expect("a reading").samples("a test", &mut table);
    let mut facts = beamtune_model::Facts::default();
    samples.iter().flat_map(|sample| &sample.facts).for_each(|(key, value)| facts.set(key, value.as_str()));
    let mut builder = PeriodBuilder::new(None, facts, 1);
    samples.iter().for_each(|sample| builder.sample(sample, &table));
    builder.finish()
}

/// Number of ways in which [`mangled`] changes a text, without the last two, which drop line breaks.
pub const WAYS: u32 = 7;
/// Number of all ways in which [`mangled`] changes a text.
pub const ALL_WAYS: u32 = 9;

/// Changes a text as if it had been copied from a mail, a web page or a terminal.
pub fn mangled(text: &str, how: u32) -> String {
    match how {
        0 => text.lines().map(|line| format!("> {line}\n")).collect(),
        1 => text.lines().map(str::trim).collect::<Vec<_>>().join(" "),
        2 => text.replace(' ', "\u{a0}"),
        3 => text.lines().map(|line| format!("\x1b[32m{line}\x1b[0m\r\n")).collect(),
        4 => text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect(),
        5 => format!(
            "Hello,\nthis is what we saw [see above] on {{web1}} when it hung:\n\n```\n{text}```\nAny ideas? 100% CPU…\n"
        ),
        6 => text.lines().map(|line| format!("    {line}\n\n")).collect(),
        7 => text.lines().collect::<String>() + "\n",
        _ => text.lines().map(str::trim).collect::<String>() + "\n",
    }
}
