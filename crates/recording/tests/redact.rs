//! Tests that a redacted copy contains none of the replaced texts in any form.

#![allow(clippy::expect_used, clippy::panic, reason = "an unexpected value must end a test")]

mod common;

use std::fs;
use std::path::Path;

use beamtune_model::{FrameKind, Sample, SampleBuilder, Snapshot, metrics};
use beamtune_recording::{Existing, Reader, Redaction, Selection, Writer, redact};
use common::{replayed, sample};
use proptest::prelude::*;

/// Returns a sample that contains a secret in each text.
fn marked(second: i64, table: &mut beamtune_model::SeriesTable, secret: &str) -> Sample {
    let plain = sample(second, table);
    let mut out = SampleBuilder::new(table, plain.tick);
    out.metric(&metrics::DIST_QUEUE, &format!("{secret}@{secret}.example"), 1);
    out.metric(&metrics::THREAD_CPU, &format!("other/{secret}/77"), 1);
    let more = out.sample.readings;
    let mut sample = plain;
    sample.readings.extend(more);
    sample.readings.sort_unstable_by_key(|(id, _)| *id);
    let all = format!("{secret}@{secret}");
    if let Some(life) = &mut sample.incarnation {
        (life.node, life.boot) = (all.clone(), all.clone());
    }
    for (key, value) in [
        ("node_name", all.clone()),
        ("host_name", secret.to_owned()),
        ("product", format!("{secret} 1.0")),
        ("emu_args", format!("[\"-sbwt\",\"none\",\"-root\",\"/usr/{secret}\",\"{secret}\"]")),
        ("init_args", format!("[\"-setcookie {secret}\"]")),
        ("command_line", format!("{secret}, no JSON")),
        ("environment", format!("{{\"ERL_FLAGS\":\"-setcookie {secret}\",\"{secret}\":\"{secret}\"}}")),
        ("applications", format!("{{\"{secret}\":\"{secret}\",\"kernel\":\"8.5\"}}")),
        ("cgroup_path", format!("/{secret}/a")),
        ("native_libraries", format!("[\"/usr/lib/{secret}/priv/{secret}.so\"]")),
        ("a_key_of_tomorrow", secret.to_owned()),
        (secret, secret.to_owned()),
    ] {
        sample.facts.push((key.to_owned(), value));
    }
    sample.busiest[0].pid = secret.into();
    for row in &mut sample.processes {
        row.name = Some(secret.to_owned());
        row.label = Some(format!("{{{secret}, 7}}"));
        row.initial_call = Some(format!("{secret}:{secret}/1"));
        row.current_function = Some(format!("shop:-{secret}/2-fun-0-/7"));
        row.stack = vec![secret.to_owned(), format!("{secret}:{secret}/1")];
        row.application = Some(secret.to_owned());
        row.parent = Some(secret.to_owned());
        row.status = Some(secret.to_owned());
        row.message_queue_data = Some(secret.to_owned());
        row.pid = secret.to_owned();
    }
    for row in &mut sample.tables {
        for text in [&mut row.id, &mut row.name, &mut row.owner, &mut row.kind, &mut row.protection] {
            *text = secret.to_owned();
        }
        row.owner_name = Some(secret.to_owned());
        row.options = vec![secret.to_owned(), format!("heir={secret}")];
    }
    for row in &mut sample.ports {
        (row.id, row.name) = (secret.to_owned(), format!("/bin/{secret} --{secret}"));
        row.connected = Some(secret.to_owned());
    }
    for row in &mut sample.spawns {
        (row.what, row.kind) = (secret.to_owned(), secret.to_owned());
        row.creator = Some(secret.to_owned());
    }
    for row in &mut sample.wait_samples {
        (row.pid, row.status) = (Some(secret.to_owned()), secret.to_owned());
        row.stack = vec![secret.to_owned(), format!("{secret}:{secret}/1")];
        row.targets =
            vec![(secret.to_owned(), 1), (format!("{secret}@{secret}"), 1), (format!("{secret}:80"), 1)];
    }
    for row in &mut sample.run_samples {
        (row.pid, row.stack) = (secret.to_owned(), vec![secret.to_owned(), format!("{secret}:{secret}/1")]);
    }
    for row in &mut sample.exits {
        for text in [&mut row.parent, &mut row.parent_name, &mut row.parent_call, &mut row.name] {
            *text = Some(secret.to_owned());
        }
        for text in [&mut row.call, &mut row.reason, &mut row.callee] {
            *text = Some(secret.to_owned());
        }
        row.stack = vec![(format!("{secret}:{secret}/1"), 7)];
    }
    sample.messages.iter_mut().for_each(|row| row.pid = Some(secret.to_owned()));
    for row in &mut sample.carriers {
        row.allocator = secret.to_owned();
        row.skipped = Some(secret.to_owned());
        row.blocks.iter_mut().for_each(|sum| sum.allocator = secret.to_owned());
    }
    for row in &mut sample.allocations {
        (row.origin, row.kind) = (secret.to_owned(), secret.to_owned());
        row.skipped = Some(secret.to_owned());
    }
    sample.code.iter_mut().for_each(|row| row.application = Some(secret.to_owned()));
    for row in &mut sample.holders {
        row.pid = secret.to_owned();
        for text in [&mut row.name, &mut row.label, &mut row.skipped] {
            *text = Some(secret.to_owned());
        }
        row.initial_call = Some(format!("{secret}:{secret}/1"));
    }
    for row in &mut sample.collected {
        row.pid = secret.to_owned();
        (row.name, row.label) = (Some(secret.to_owned()), Some(secret.to_owned()));
        row.initial_call = Some(format!("{secret}:{secret}/1"));
    }
    for row in &mut sample.collections {
        (row.selection, row.stopped) = (secret.to_owned(), secret.to_owned());
    }
    for session in &mut sample.lock_sessions {
        session.categories = vec![secret.to_owned()];
        session.remark = format!("as {secret} says");
    }
    for row in &mut sample.locks {
        (row.class, row.kind) = (format!("{secret}_lock"), secret.to_owned());
        (row.id, row.entity) = (Some(secret.to_owned()), Some(format!("{secret} of {secret}:init/1")));
        row.file = Some(format!("/home/{secret}/erts/emulator/beam/erl_db.c"));
    }
    for row in &mut sample.lock_waits {
        (row.thread, row.how) = (secret.to_owned(), secret.to_owned());
        row.stack = vec!["ets_insert_2".to_owned(), format!("{secret}_lock"), secret.to_owned()];
    }
    for row in &mut sample.profiles {
        for frame in &mut row.profile.frames {
            frame.name = match frame.kind {
                FrameKind::Erlang => format!("{secret}:{secret}/1"),
                _ => secret.to_owned(),
            };
        }
        row.profile.threads.iter_mut().for_each(|thread| {
            (thread.kind, thread.name) = (secret.to_owned(), secret.to_owned());
        });
        row.profile.processes.values_mut().for_each(|name| *name = secret.to_owned());
        row.profile.remarks = vec![format!("as {secret} says")];
    }
    for event in &mut sample.events {
        (event.kind, event.subject) = (secret.to_owned(), all.clone());
        event.detail = format!("after {secret}");
    }
    for gap in &mut sample.gaps {
        (gap.source, gap.reason) = (format!("vm.{secret}"), format!("no answer from {all}"));
    }
    sample.snapshots = vec![Snapshot { t: 0, kind: secret.to_owned(), blob: secret.repeat(50).into_bytes() }];
    sample
}

/// Returns all data that a reader can get from a file, and its raw bytes.
fn content(path: &Path) -> Vec<String> {
    let reader = Reader::open(path).expect("opened");
    let mut samples = reader.samples();
    let mut all: Vec<String> =
        samples.by_ref().map(|sample| format!("{:?}", sample.expect("readable"))).collect();
    all.extend(samples.table().iter().map(|(_, series)| format!("{series:?}")));
    all.push(String::from_utf8_lossy(&fs::read(path).expect("readable")).into_owned());
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn no_secret_remains_in_any_form(
        secret in "[a-z]{4}[a-z0-9_]{5,20}|[A-Z][a-z]{9}|[a-z]{4}\\.[a-z]{5}|fe80::[1-9a-f]{4}:[1-9a-f]{4}|10\\.77\\.[1-9][0-9]\\.[1-9][0-9]",
        seconds in 1_i64..40,
    ) {
        let directory = tempfile::tempdir().expect("directory");
        let (from, to) = (directory.path().join("a.btr"), directory.path().join("b.btr"));
        let mut table = beamtune_model::SeriesTable::default();
        let mut writer = Writer::create(&from, Existing::Refuse).expect("created");
        for second in 0..seconds {
            let sample = marked(second, &mut table, &secret);
            writer.append(&sample, &table).expect("stored");
        }
        let reader = writer.finish().expect("finished");
        prop_assert!(content(&from).iter().any(|text| text.contains(&secret)));
        redact(&reader, &to, Redaction { modules: true }).expect("copied");
        for text in content(&to) {
            prop_assert!(!text.contains(&secret), "{secret} in {text}");
        }
        let names: Vec<_> = fs::read_dir(directory.path()).expect("listed").map(|e| e.expect("listed").file_name()).collect();
        prop_assert_eq!(names.len(), 2, "no log remains: {:?}", names);
    }
}

/// Replaces a text, or all strings in it if it is a JSON list.
fn hidden(text: &str, by: &str) -> String {
    fn hide(value: &mut serde_json::Value, by: &str) {
        match value {
            serde_json::Value::Array(list) => list.iter_mut().for_each(|value| hide(value, by)),
            serde_json::Value::String(text) => *text = by.to_owned(),
            _ => {}
        }
    }
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(mut list @ serde_json::Value::Array(_)) => {
            hide(&mut list, by);
            list.to_string()
        }
        _ => by.to_owned(),
    }
}

#[test]
fn texts_of_all_columns_are_replaced() {
    let directory = tempfile::tempdir().expect("directory");
    let (from, to) = (directory.path().join("a.btr"), directory.path().join("b.btr"));
    common::recorded(&from, 60);
    let connection = rusqlite::Connection::open(&from).expect("opened");
    connection.execute("INSERT INTO text(id, string) VALUES (1000, 'hidden')", []).expect("inserted");
    let sql = r"SELECT tables.name, columns.name, columns.type = 'TEXT'
        FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns
        WHERE tables.type = 'table' AND (columns.type = 'TEXT' OR columns.name LIKE '%\_text' ESCAPE '\')
        AND tables.name NOT IN ('meta', 'series', 'chunk', 'hot') AND (tables.name, columns.name) <> ('gap', 'kind')";
    let columns: Vec<(String, String, bool)> = {
        let mut columns = connection.prepare(sql).expect("prepared");
        let columns = columns.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        columns.expect("listed").collect::<Result<_, _>>().expect("listed")
    };
    assert!(columns.len() > 80, "{columns:?}");
    for (table, column, is_text) in columns {
        let by = if is_text { "'hidden'" } else { "1000" };
        let sql = format!("UPDATE {table} SET {column} = {by} WHERE {column} IS NULL");
        connection.execute(&sql, []).expect("updated");
        if is_text {
            let mut rows =
                connection.prepare(&format!("SELECT rowid, {column} FROM {table}")).expect("prepared");
            let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("listed");
            let rows: Vec<(i64, String)> = rows.collect::<Result<_, _>>().expect("rows");
            for (id, text) in rows {
                let sql = format!("UPDATE {table} SET {column} = ?2 WHERE rowid = ?1");
                connection.execute(&sql, (id, hidden(&text, &format!("hidden{id}")))).expect("updated");
            }
        }
    }
    connection.close().expect("closed");
    redact(&Reader::open(&from).expect("opened"), &to, Redaction { modules: true }).expect("copied");
    for text in content(&to) {
        assert!(!text.contains("hidden"), "{text}");
    }
}

#[test]
fn numbers_are_kept_and_equal_texts_stay_equal() {
    let directory = tempfile::tempdir().expect("directory");
    let (from, to) = (directory.path().join("a.btr"), directory.path().join("b.btr"));
    let before = common::recorded(&from, 700);
    let reader = Reader::open(&from).expect("opened");
    redact(&reader, &to, Redaction::default()).expect("copied");
    let copy = Reader::open(&to).expect("opened");
    assert!(copy.is_closed());
    let after = replayed(&copy);
    assert_eq!(after.len(), before.len());
    for (after, before) in after.iter().zip(&before) {
        assert_eq!((after.tick, &after.readings), (before.tick, &before.readings));
        assert_eq!(after.busiest, before.busiest);
        for (after, before) in after.processes.iter().zip(&before.processes) {
            assert_eq!(after.name.as_deref(), Some("name1"), "rabbit_reader");
            assert_eq!((after.reductions, &after.initial_call), (before.reductions, &before.initial_call));
        }
    }
    let period = copy.period(&Selection::default()).expect("readable");
    assert_eq!(period.rate(&metrics::REDUCTIONS, ""), Ok(1_000_000.0));
    assert_eq!(period.incarnation.map(|life| life.node).as_deref(), Some("node1@host1"));
    assert!(matches!(
        redact(&reader, &to, Redaction::default()),
        Err(beamtune_recording::Error::Exists { .. })
    ));
}
