//! Tests that `docs/recording-format.md` matches the code: its schema, its tables of metrics and facts, and its Python reader.

#![allow(clippy::expect_used, clippy::panic, reason = "an unexpected value must end a test")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use beamtune_model::{Sample, SeriesTable, facts, metrics};
use beamtune_recording::{APPLICATION_ID, Existing, FORMAT, Reader, Writer};
use common::{recorded, samples};

/// Environment variable; if set, the tests write the generated parts to the document instead of comparing them.
const REGENERATE: &str = "BEAMTUNE_REGENERATE_DOCS";

fn document() -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recording-format.md");
    let text = fs::read_to_string(&path).expect("docs/recording-format.md");
    (path, text)
}

/// Returns the text between two marks.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("no {begin:?} in the document"));
    rest.split_once(end).unwrap_or_else(|| panic!("no {end:?} after {begin:?}")).0
}

/// Renders the table of all metrics and families.
fn metrics_table() -> String {
    let mut table = "| group | name | unit | kind | what |\n|---|---|---|---|---|\n".to_owned();
    let mut row = |group: &dyn std::fmt::Display, name: &str, unit, kind, what: &str| {
        let what = what.replace('|', "\\|");
        table.push_str(&format!("| `{group}` | {name} | {unit} | {kind} | {what} |\n"));
    };
    for family in metrics::FAMILIES {
        row(&family.group, "(the VM's)", family.unit, family.kind, family.what);
    }
    for metric in metrics::METRICS {
        row(&metric.group, &format!("`{}`", metric.name), metric.unit, metric.kind, metric.description);
    }
    table
}

fn facts_table() -> String {
    let mut table = "| key | what |\n|---|---|\n".to_owned();
    for (key, what) in facts::KEYS {
        table.push_str(&format!("| `{key}` | {} |\n", what.trim().replace('|', "\\|")));
    }
    table
}

/// Returns the statements that create a recording: those of `schema.sql` with their comments, and one per typed table.
fn schema() -> String {
    let by_hand = include_str!("../src/schema.sql");
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("empty.btr");
    Writer::create(&path, Existing::Refuse).expect("created").finish().expect("finished");
    let connection = rusqlite::Connection::open(&path).expect("opened");
    let sql = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid";
    let mut all = connection.prepare(sql).expect("prepared");
    let statements = all.query_map([], |row| row.get::<_, String>(0)).expect("listed");
    let statements = statements.map(|sql| sql.expect("text")).filter(|sql| !by_hand.contains(sql));
    statements.fold(format!("```sql\n{by_hand}"), |text, sql| text + &wrapped(&sql) + ";\n") + "```\n"
}

/// Wraps a statement into lines of at most 110 characters.
fn wrapped(sql: &str) -> String {
    let mut lines = vec![String::new()];
    for (index, part) in sql.split(", ").enumerate() {
        let line = lines.last_mut().expect("a line");
        match (index, line.len() + part.len() < 108) {
            (0, _) => line.push_str(part),
            (_, true) => line.push_str(&format!(", {part}")),
            (_, false) => lines.push(format!("  {part}")),
        }
    }
    lines.join(",\n")
}

#[test]
fn generated_parts_of_the_document_match_the_code() {
    let (path, mut text) = document();
    for (name, table) in [("schema", schema()), ("metrics", metrics_table()), ("facts", facts_table())] {
        let (begin, end) = (format!("<!-- {name}: generated -->\n"), format!("<!-- end of {name} -->"));
        let found = between(&text, &begin, &end).to_owned();
        if std::env::var_os(REGENERATE).is_some() {
            text = text.replace(&format!("{begin}{found}{end}"), &format!("{begin}{table}{end}"));
            fs::write(&path, &text).expect("written");
        } else {
            assert!(
                found == table,
                "the {name} in docs/recording-format.md and in the code differ; regenerate the document with\n    \
                 {REGENERATE}=1 cargo test -p beamtune-recording --test format_doc"
            );
        }
    }
}

#[test]
fn numbers_in_the_document_match_the_code() {
    let (_, text) = document();
    assert!(text.contains(&format!("application id {APPLICATION_ID}, user version {FORMAT}")));
    assert!(text.contains(&format!("`application_id` is {APPLICATION_ID:#x}")));
}

/// Runs the Python reader of the document, and returns the readings of one series.
fn python(reader: &Path, file: &Path, series: [&str; 3]) -> Vec<(i64, i64)> {
    let output = Command::new("python3").arg(reader).arg(file).args(series).output().expect("python3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let number = |field: &str| field.parse().expect("a number");
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(t, value)| (number(t), number(value)))
        .collect()
}

fn expected(samples: &[Sample], table: &SeriesTable, [group, entity, name]: [&str; 3]) -> Vec<(i64, i64)> {
    let group = beamtune_model::Group::from_text(group).expect("a group");
    let wanted = table.find(group, entity, name).expect("a series");
    let of = |sample: &Sample| {
        let found = sample.readings.iter().find(|(id, _)| *id == wanted);
        found.map(|(_, value)| (sample.tick.t, *value))
    };
    samples.iter().filter_map(of).collect()
}

#[test]
fn python_reader_in_the_document_reads_recordings() {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("skipped, because python3 is not installed");
        return;
    }
    let directory = tempfile::tempdir().expect("directory");
    let reader = directory.path().join("reader.py");
    let (_, text) = document();
    fs::write(&reader, between(&text, "```python\n", "```")).expect("written");

    let closed = directory.path().join("closed.btr");
    recorded(&closed, 700);
    // An unfinished recording, with its last minutes in `hot`.
    let open = directory.path().join("open.btr");
    let (samples, table) = samples(700);
    let mut writer = Writer::create(&open, Existing::Refuse).expect("created");
    samples.iter().for_each(|sample| writer.append(sample, &table).expect("stored"));

    let series = [
        ["msacc", "scheduler/1", "gc"],
        ["vm", "", "reductions"],
        ["vm", "", "process_count"],
        ["vm", "", "schedulers_online"],
        ["host_thread", "scheduler/8", "cpu"],
        ["allocator", "eheap_alloc/3", "mbcs_carriers_size"],
    ];
    for series in series {
        let expect = expected(&samples, &table, series);
        assert!(expect.len() >= 70, "{series:?}");
        assert_eq!(python(&reader, &closed, series), expect, "{series:?}, closed");
        assert_eq!(python(&reader, &open, series), expect, "{series:?}, still open");
    }
    drop(writer);
    assert!(!Reader::open(&open).expect("opened").is_closed());
}
