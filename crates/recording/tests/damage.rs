//! Tests with damaged, truncated, foreign and hostile files: the result is a clear message or the readable part, never a panic.

#![allow(clippy::expect_used, clippy::panic, reason = "an unexpected value must end a test")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use beamtune_model::{Group, Sample, TroubleKind, metrics};
use beamtune_recording::{APPLICATION_ID, Error, FORMAT, Reader, Selection};
use common::{Random, assert_same, recorded, replayed};
use flate2::Crc;
use rusqlite::Connection;
use tempfile::TempDir;

/// Creates a finished recording of some seconds in its own directory.
fn recording(seconds: i64) -> (TempDir, PathBuf, Vec<Sample>) {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a.btr");
    let samples = recorded(&path, seconds);
    (directory, path, samples)
}

fn change(path: &Path, sql: &str) {
    Connection::open(path).and_then(|connection| connection.execute_batch(sql)).expect("changed");
}

fn message(path: &Path) -> String {
    Reader::open(path).expect_err("cannot be opened").to_string().replace(&path.display().to_string(), "FILE")
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// Reads all data, which must not panic, and returns the readable samples.
fn read_all(path: &Path) -> Result<Vec<Sample>, Error> {
    let reader = Reader::open(path)?;
    let samples = reader.samples().collect();
    for life in reader.recorded_incarnations()? {
        let _ = reader.facts(life.id)?;
        let _ = reader.period(&Selection { incarnation: Some(life.id), ..Selection::default() })?;
    }
    samples
}

const NOT_SQLITE: &str =
    "FILE is not a recording: it is not an SQLite database; beamtune import reads text and crash dumps";

#[test]
fn other_files_are_identified() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("FILE");
    let check = |content: &[u8], expect: &str| {
        fs::write(&path, content).expect("written");
        assert_eq!(message(&path), expect);
    };
    check(b"", "FILE is not a recording: it is empty");
    check(b"Erlang crash dump, and so on, for many lines", NOT_SQLITE);
    check(&[0; 10_000], NOT_SQLITE);
    let beginning = "FILE is not a recording: it is only the beginning of an SQLite database: copy it again from its origin";
    check(b"SQLite form", beginning);
    check(b"SQLite format 3\0\x10\0\x01\x01", beginning);

    fs::remove_file(&path).expect("removed");
    assert!(message(&path).starts_with("FILE: No such file"), "{}", message(&path));
    assert!(message(directory.path()).ends_with("is not a regular file"), "{}", message(directory.path()));
    change(&path, "CREATE TABLE bookmarks(url)");
    assert_eq!(message(&path), "FILE is not a recording: it is an SQLite database of another application");
    change(&path, "PRAGMA journal_mode = WAL");
    assert_eq!(message(&path), "FILE is not a recording: it is an SQLite database of another application");
}

#[test]
fn a_newer_format_is_rejected_with_the_version_that_wrote_it() {
    let (_directory, path, _) = recording(3);
    change(&path, "PRAGMA user_version = 2; UPDATE meta SET value = 'beamtune 9.1' WHERE key = 'written_by'");
    let expect = "FILE was written by a newer beamtune (beamtune 9.1): upgrade beamtune (file format 2, this version reads 1)";
    assert_eq!(message(&path), expect);
    change(&path, "DROP TABLE meta");
    assert!(
        message(&path).starts_with("FILE was written by a newer beamtune: upgrade"),
        "{}",
        message(&path)
    );
}

#[test]
fn additions_of_newer_versions_are_ignored() {
    let (_directory, path, mut samples) = recording(400);
    change(
        &path,
        "CREATE TABLE quanta(id INTEGER PRIMARY KEY, spin);
         ALTER TABLE tick ADD COLUMN mood TEXT;
         INSERT INTO series VALUES (1000, 'quantum', 'q', 'spin', 'count', 'gauge');
         INSERT INTO series VALUES (1001, 'vm', '', 'flavour', 'quarks', 'gauge');
         INSERT INTO chunk SELECT 1000 + id, 'quantum', t0, t1, codec, crc, blob FROM chunk WHERE grp = 'vm';
         UPDATE text SET string = '[\"memory\",\"charm\"]' WHERE string = '[\"memory\",\"queue\"]'",
    );
    for sample in &mut samples {
        sample.processes.iter_mut().for_each(|row| row.ranks.truncate(1));
    }
    assert_same(&replayed(&Reader::open(&path).expect("opened")), &samples);
}

#[test]
fn data_missing_in_older_versions_are_not_damage() {
    let (_directory, path, mut samples) = recording(400);
    change(&path, "DROP TABLE carrier; DROP TABLE allocation; DROP TABLE code; DROP TABLE holder; DROP TABLE collection;
         DROP TABLE collected; DROP TABLE lock_session; DROP TABLE lock; DROP TABLE lock_wait; DROP TABLE profile;
         ALTER TABLE process DROP COLUMN total_bytes; ALTER TABLE process DROP COLUMN fragment_bytes;
         ALTER TABLE process DROP COLUMN stack_text; ALTER TABLE process DROP COLUMN priority_text");
    assert!(samples.iter().any(|sample| !sample.processes.is_empty()));
    samples.iter_mut().for_each(|sample| {
        for row in &mut sample.processes {
            (row.total_bytes, row.fragment_bytes) = (None, None);
            row.stack.clear();
            row.priority = None;
        }
        sample.carriers.clear();
        sample.allocations.clear();
        sample.code.clear();
        sample.holders.clear();
        sample.collections.clear();
        sample.collected.clear();
        sample.lock_sessions.clear();
        sample.locks.clear();
        sample.lock_waits.clear();
        sample.profiles.clear();
    });
    let reader = Reader::open(&path).expect("opened");
    assert_same(&replayed(&reader), &samples);
    let period = reader.period(&Selection::default()).expect("readable");
    assert!(period.carriers.is_empty() && period.gaps.iter().all(|gap| gap.kind != TroubleKind::Garbled));
    // A view with the name of the missing table is not read.
    change(
        &path,
        "CREATE VIEW carrier AS WITH RECURSIVE more(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM more) SELECT id FROM more",
    );
    assert_same(&replayed(&Reader::open(&path).expect("opened")), &samples);
}

#[test]
fn a_table_with_a_damaged_definition_is_a_gap_and_the_rest_is_read() {
    let (_directory, path, expect) = recording(30);
    let sql = "UPDATE sqlite_schema SET sql = replace(sql, 'objects', 'subjects') WHERE name = 'ets'";
    change(&path, &format!("PRAGMA writable_schema = 1; {sql}"));
    let found = read_all(&path).expect("readable");
    let mut reasons = found.iter().flat_map(|sample| &sample.gaps).map(|gap| gap.reason.as_str());
    let expect_reason = "the recording is damaged here: rows of the table ets cannot be read";
    assert!(reasons.any(|reason| reason == expect_reason));
    let readings = |samples: &[Sample]| samples.iter().map(|sample| sample.readings.len()).sum::<usize>();
    assert_eq!((found.len(), readings(&found)), (expect.len(), readings(&expect)));
}

#[test]
fn a_garbled_chunk_is_a_gap_and_the_rest_is_read() {
    // Two chunks of each group.
    let (_directory, path, expect) = recording(400);
    let checks = [
        "UPDATE chunk SET blob = zeroblob(100)",
        "UPDATE chunk SET crc = crc + 1",
        "UPDATE chunk SET codec = 9",
        "UPDATE chunk SET blob = 'text'",
        "UPDATE chunk SET crc = 'text'",
    ];
    for sql in checks {
        let garbled = path.with_file_name("garbled.btr");
        fs::copy(&path, &garbled).expect("copied");
        change(&garbled, &format!("{sql} WHERE grp = 'msacc' AND t0 = 0"));
        let reader = Reader::open(&garbled).expect("opened");
        let table = reader.series().expect("readable");
        let mut found = replayed(&reader);
        let gap = found[0].gaps.pop().expect("a gap");
        let what = (gap.source.as_str(), gap.kind, gap.begin, gap.end);
        assert_eq!(what, ("vm.msacc", TroubleKind::Garbled, 0, expect[299].tick.t), "{sql}");
        assert!(gap.reason.starts_with("the recording is damaged here: "), "{}", gap.reason);
        let mut expect = expect.clone();
        for sample in &mut expect[..300] {
            let group = |id| table.get(id).map(|series| series.group);
            sample.readings.retain(|(id, _)| group(*id) != Some(Group::Msacc));
        }
        assert_same(&found, &expect);

        let period = reader.period(&Selection::default()).expect("readable");
        let gaps: Vec<_> = period.gaps.iter().filter(|gap| gap.kind == TroubleKind::Garbled).collect();
        assert_eq!(gaps.len(), 1);
        assert_eq!(period.find(Group::Msacc, "scheduler/1", "gc").map(|stat| stat.samples), Some(100));
        assert_eq!(period.stat(&metrics::REDUCTIONS, "").map(|stat| stat.samples), Ok(400));
    }
}

#[test]
fn garbled_content_with_a_valid_checksum_does_not_panic() {
    let (_directory, path, _) = recording(400);
    let connection = Connection::open(&path).expect("opened");
    let ids: Vec<i64> = connection
        .prepare("SELECT id FROM chunk")
        .and_then(|mut all| all.query_map([], |row| row.get(0))?.collect())
        .expect("listed");
    let mut random = Random(5);
    let mut gaps = 0;
    for _ in 0..60 {
        let id = ids[random.below(ids.len() as u64) as usize];
        let read = "SELECT blob FROM chunk WHERE id = ?1";
        let whole: Vec<u8> = connection.query_row(read, [id], |row| row.get(0)).expect("read");
        let mut blob = whole.clone();
        for _ in 0..=random.below(4) {
            // Changes the front more often, since it has the most important bytes.
            let front = 1 << random.below(14);
            let at = random.below(blob.len().min(front) as u64) as usize;
            blob[at] = random.bits() as u8;
        }
        let write = "UPDATE chunk SET blob = ?2, crc = ?3 WHERE id = ?1";
        connection.execute(write, (id, &blob, crc(&blob))).expect("written");
        let samples = read_all(&path).expect("readable");
        assert_eq!(samples.len(), 400);
        gaps += samples.iter().flat_map(|s| &s.gaps).filter(|gap| gap.kind == TroubleKind::Garbled).count();
        connection.execute(write, (id, &whole, crc(&whole))).expect("written");
    }
    assert!(gaps > 10, "{gaps} of 60 changes were detected");
}

#[test]
fn only_the_garbled_row_is_lost() {
    let (_directory, path, mut expect) = recording(400);
    change(
        &path,
        "UPDATE process SET memory_bytes = 'much' WHERE tick = 50000000000;
         UPDATE ets SET name_text = 12345 WHERE tick = 60000000000;
         UPDATE gap SET kind = 'tired' WHERE tick = 70000000000;
         UPDATE snapshot SET crc = 1 WHERE tick = 80000000000;
         UPDATE tick SET late = 'very' WHERE t = 90000000000;
         UPDATE tick SET vm_t1 = 9223372036854775807 WHERE t = 91000000000",
    );
    let found = replayed(&Reader::open(&path).expect("opened"));
    let damage: Vec<_> = found
        .iter()
        .flat_map(|sample| &sample.gaps)
        .filter(|gap| gap.kind == TroubleKind::Garbled)
        .map(|gap| gap.reason.trim_start_matches("the recording is damaged here: "))
        .collect();
    let rows = ["snapshot", "process", "ets", "gap"]
        .map(|table| format!("rows of the table {table} cannot be read"));
    assert_eq!(damage, [vec!["ticks cannot be read".to_owned()], rows.to_vec()].concat());

    expect[50].processes.clear();
    expect[60].tables.clear();
    expect[70].gaps.clear();
    expect[80].snapshots.clear();
    expect.drain(90..=91);
    let mut found = found;
    found.iter_mut().for_each(|sample| sample.gaps.retain(|gap| gap.kind != TroubleKind::Garbled));
    assert_same(&found, &expect);
}

#[test]
fn a_truncated_file_is_read_with_a_gap() {
    let (_directory, path, expect) = recording(900);
    let whole = fs::read(&path).expect("read");
    let cut = path.with_file_name("cut.btr");
    let mut random = Random(u64::from(std::process::id()));
    println!("seed {}", std::process::id());
    let mut offsets: Vec<usize> = (0..50).map(|_| random.below(whole.len() as u64) as usize).collect();
    offsets.extend([1, 15, 16, 99, 100, 101, 4_095, 4_096, 4_097, 8_192, whole.len() - 1]);
    let mut max = 0;
    for offset in offsets {
        fs::write(&cut, &whole[..offset]).expect("written");
        match Reader::open(&cut) {
            Ok(reader) => {
                assert_eq!(reader.missing_bytes(), Some((whole.len() - offset) as u64), "cut at {offset}");
                let samples = read_all(&cut).expect("the readable part");
                assert!(!samples.is_empty(), "cut at {offset}");
                max = max.max(samples.len());
                // One tick may be wrong: a row at the cut may have lost its last bytes, and SQLite has no checksums of rows.
                let known = samples.iter().filter(|s| expect.iter().any(|e| e.tick == s.tick)).count();
                assert!(known + 1 >= samples.len(), "cut at {offset}: ticks that were never written");
                let period = reader.period(&Selection::default()).expect("readable");
                let why = format!("the file is truncated, {} bytes are missing", whole.len() - offset);
                assert!(period.gaps.iter().any(|gap| gap.reason.contains(&why)), "cut at {offset}");
            }
            Err(Error::Truncated { missing_bytes, .. }) => {
                assert_eq!(missing_bytes, (whole.len() - offset) as u64);
            }
            Err(Error::NotARecording { what, .. }) => {
                assert!(offset < 512 && what.starts_with("is only the beginning"), "cut at {offset}: {what}");
            }
            Err(error) => panic!("cut at {offset}: {error}"),
        }
    }
    assert!(max > 300, "at best {max} of 900 samples");
}

#[test]
fn only_the_content_of_a_damaged_page_is_lost() {
    let (_directory, path, expect) = recording(900);
    let whole = fs::read(&path).expect("read");
    let pages = whole.len() / 4_096;
    let damaged = path.with_file_name("damaged.btr");
    let mut random = Random(9);
    let (mut opened, mut kept) = (0, 0);
    for page in 0..pages {
        let mut bytes = whole.clone();
        let content = &mut bytes[page * 4_096..][..4_096];
        // A bad sector is read as zeros, or as other data.
        if page % 2 == 0 {
            content.fill(0);
        } else {
            content.iter_mut().for_each(|byte| *byte = random.bits() as u8);
        }
        fs::write(&damaged, bytes).expect("written");
        match read_all(&damaged) {
            Ok(samples) => {
                opened += 1;
                kept += samples.len();
                let known = samples.iter().filter(|s| expect.iter().any(|e| e.tick == s.tick)).count();
                assert_eq!(known, samples.len(), "page {page}: ticks that were never written");
            }
            Err(error) => println!("page {page}: {error}"),
        }
    }
    println!("{opened} of {pages} could be opened, with {} samples on average", kept / opened.max(1));
    // Everything may be lost only if the page is the first one, part of the schema, or the root page of an essential table.
    assert!(opened + 8 >= pages, "{opened} of {pages}");
    assert!(kept > opened * 700, "{} samples on average", kept / opened);
}

#[test]
fn flipped_bytes_never_panic() {
    let (_directory, path, _) = recording(200);
    let whole = fs::read(&path).expect("read");
    let damaged = path.with_file_name("damaged.btr");
    let mut random = Random(u64::from(std::process::id()));
    println!("seed {}", std::process::id());
    for _ in 0..150 {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(8) {
            // Changes the first pages more often, since they have more essential data.
            let range = if random.below(3) == 0 { 8_192 } else { bytes.len() as u64 };
            bytes[random.below(range) as usize] = random.bits() as u8;
        }
        fs::write(&damaged, bytes).expect("written");
        let _ = read_all(&damaged);
    }
}

#[test]
fn a_hostile_database_is_rejected() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("FILE");
    let pragmas = format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT};");
    change(&path, &pragmas);
    assert_eq!(
        message(&path),
        "FILE is damaged and unreadable (the table meta is missing); copy it again from its origin"
    );

    // An endless view in place of a table.
    let (_directory, path, _) = recording(3);
    change(
        &path,
        "DROP TABLE tick; CREATE VIEW tick AS
         WITH RECURSIVE more(t) AS (SELECT 1 UNION ALL SELECT t + 1 FROM more)
         SELECT t, 0 AS inc, 0 AS vm_t0, 0 AS vm_t1, 0 AS host_t0, 0 AS host_t1, 0 AS late FROM more",
    );
    assert!(message(&path).contains("the table tick is missing"), "{}", message(&path));
}
