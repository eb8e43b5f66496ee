//! Tests with killed writers, concurrent readers, and full and read-only disks.

#![allow(clippy::expect_used, clippy::panic, reason = "an unexpected value must end a test")]

mod common;

use std::cell::Cell;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use beamtune_model::units::SECOND_NS;
use beamtune_model::{
    Clock, Nanos, SampleBuilder, SampleRequest, Series, Source, SourceTrouble, Span, TroubleKind, metrics,
};
use beamtune_recording::{
    EndReason, Error, Existing, Plan, Reader, Selection, Sources, Stop, Writer, record,
};
use rusqlite::Connection;

use common::{Disk, Random, assert_same, recorded, replayed, samples};

/// Environment variable: file that the helper process writes to.
const HELPER_FILE: &str = "BEAMTUNE_TEST_RECORD_INTO";
/// Second at which the helper stops even if the test has died and does not kill it.
const HELPER_SECONDS: i64 = 3_000;

/// Not a test, but the process that the tests below start and kill. It prints each second that it has stored.
#[test]
fn helper_that_records_until_it_is_killed() {
    let Some(path) = std::env::var_os(HELPER_FILE) else { return };
    let mut table = beamtune_model::SeriesTable::default();
    let mut writer = Writer::create(Path::new(&path), Existing::Refuse).expect("created");
    for second in 0..HELPER_SECONDS {
        let sample = common::sample(second, &mut table);
        writer.append(&sample, &table).expect("stored");
        println!("stored {second}");
    }
    // Reached only if the test has died.
}

/// The helper process; dropping this value kills it.
struct Helper {
    process: Child,
    output: BufReader<ChildStdout>,
    stored: i64,
}

impl Helper {
    fn start(path: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "helper_that_records_until_it_is_killed", "--nocapture", "--test-threads=1"])
            .env(HELPER_FILE, path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        Helper { process, output, stored: -1 }
    }

    /// Waits until the helper has stored a second.
    fn wait_for(&mut self, second: i64) {
        while self.stored < second && self.read_line() {}
        assert!(self.stored >= second, "the helper has ended at {}", self.stored);
    }

    fn read_line(&mut self) -> bool {
        let mut line = String::new();
        let more = self.output.read_line(&mut line).expect("readable") > 0;
        if let Some(second) = line.trim().strip_prefix("stored ") {
            self.stored = second.parse().expect("a number");
        }
        more
    }

    /// Kills the helper like `kill -9`; returns the last second that it has reported as stored.
    fn kill(mut self) -> i64 {
        self.process.kill().expect("killed");
        self.process.wait().expect("ended");
        while self.read_line() {}
        self.stored
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Creates the files of a killed writer: the recording, the log and its index. Returns the path and the last second reported as stored.
fn killed(directory: &Path, second: i64) -> (PathBuf, i64) {
    let path = directory.join("killed.btr");
    let mut helper = Helper::start(&path);
    helper.wait_for(second);
    (path, helper.kill())
}

#[test]
fn a_killed_writer_loses_no_stored_sample() {
    let mut random = Random(u64::from(std::process::id()));
    println!("seed {}", std::process::id());
    let (expect, _) = samples(HELPER_SECONDS);
    let mut kept_more = 0;
    for _ in 0..24 {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("killed.btr");
        let mut helper = Helper::start(&path);
        helper.wait_for(random.below(700) as i64);
        thread::sleep(Duration::from_micros(random.below(5_000)));
        let stored = helper.kill();

        let reader = Reader::open(&path).expect("opened");
        assert!(!reader.is_closed());
        let found = replayed(&reader);
        // One more sample may have been stored than was reported.
        let reported = stored as usize + 1;
        assert!(
            (reported..=reported + 1).contains(&found.len()),
            "{} samples, {reported} reported",
            found.len()
        );
        assert_same(&found, &expect[..found.len()]);
        kept_more += found.len() - reported;
        let period =
            reader.period(&Selection { incarnation: Some(0), ..Selection::default() }).expect("readable");
        assert_eq!(period.ticks as usize, found.len().min(500));
    }
    println!("{kept_more} of 24 were killed between storing and reporting");
}

#[test]
fn a_recording_can_be_read_while_another_process_writes_it() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("live.btr");
    let (expect, _) = samples(HELPER_SECONDS);
    let mut helper = Helper::start(&path);
    helper.wait_for(0);
    let follower = Reader::open(&path).expect("opened");
    let mut following = follower.samples();
    let mut followed = Vec::new();
    // This range includes the ends of two segments.
    for second in (50..750).step_by(70) {
        helper.wait_for(second);
        let reported = helper.stored as usize + 1;
        let reader = Reader::open(&path).expect("opened");
        let found = replayed(&reader);
        assert!(found.len() >= reported, "{} of {reported}", found.len());
        assert_same(&found, &expect[..found.len()]);
        let period =
            reader.period(&Selection { incarnation: Some(0), ..Selection::default() }).expect("readable");
        assert!(period.gaps.iter().all(|gap| gap.source == "vm.ets"), "{:?}", period.gaps);
        assert!(period.ticks as usize >= reported.min(500));

        followed.extend(following.by_ref().map(|sample| sample.expect("readable")));
        assert!(followed.len() >= reported);
        assert_same(&followed, &expect[..followed.len()]);
    }
    helper.kill();
}

#[test]
fn only_one_writer_can_write_to_a_file() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("busy.btr");
    let mut helper = Helper::start(&path);
    helper.wait_for(3);
    let refused = Writer::create(&path, Existing::Refuse).expect_err("it exists").to_string();
    assert!(refused.ends_with("busy.btr already exists: choose another name, or remove it"), "{refused}");
    let refused = Writer::create(&path, Existing::Replace).expect_err("it is being written").to_string();
    assert!(refused.contains("busy.btr is being recorded by another beamtune"), "{refused}");
    helper.wait_for(6);
    let stored = helper.kill();

    // A dead writer does not exclude other writers. Its log must not become part of the new recording.
    assert!(stored >= 6);
    assert!(path.with_extension("btr-wal").exists(), "the log of the killed writer");
    let (samples, table) = samples(2);
    let mut writer = Writer::create(&path, Existing::Replace).expect("replaced");
    samples.iter().for_each(|sample| writer.append(sample, &table).expect("stored"));
    assert_same(&replayed(&writer.finish().expect("finished")), &samples);
    assert_eq!(names(directory.path()), ["busy.btr"]);
}

#[test]
fn an_orphaned_log_does_not_become_part_of_a_new_recording() {
    let directory = tempfile::tempdir().expect("directory");
    let (path, _) = killed(directory.path(), 20);
    fs::remove_file(&path).expect("removed");
    let (samples, table) = samples(2);
    let mut writer = Writer::create(&path, Existing::Refuse).expect("created");
    samples.iter().for_each(|sample| writer.append(sample, &table).expect("stored"));
    assert_same(&replayed(&writer.finish().expect("finished")), &samples);
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("listed");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("listed").file_name().into_string().expect("text")).collect();
    names.sort_unstable();
    names
}

#[test]
fn a_short_finished_recording_is_one_small_file() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a.btr");
    recorded(&path, 11);
    assert_eq!(names(directory.path()), ["a.btr"]);
    let size = fs::metadata(&path).expect("there").len();
    // A page of 4 KiB for each table and index, and at most five more pages for their content.
    let database = Connection::open(&path).expect("opened");
    let count = "SELECT count(*) FROM sqlite_schema WHERE rootpage > 0";
    let used: i64 = database.query_row(count, [], |row| row.get(0)).expect("counted");
    drop(database);
    assert!(size <= 4_096 * (used as u64 + 5), "{size} bytes for ten seconds in {used} tables and indices");
    replayed(&Reader::open(&path).expect("opened"));
    assert_eq!(names(directory.path()), ["a.btr"], "reading leaves nothing behind");
}

#[test]
fn a_recording_that_cannot_be_created_leaves_nothing_behind() {
    let directory = tempfile::tempdir().expect("directory");
    let missing = directory.path().join("no/such/directory/a.btr");
    let error = Writer::create(&missing, Existing::Refuse).expect_err("no directory");
    assert!(matches!(error, Error::Io { .. }), "{error}");
    let error = Writer::create(directory.path(), Existing::Replace).expect_err("a directory");
    assert!(matches!(error, Error::Exists { .. }), "{error}");
    assert_eq!(names(directory.path()), Vec::<String>::new());
}

#[test]
fn finish_completes_the_file_while_a_reader_is_open() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a.btr");
    let (samples, table) = samples(5);
    let mut writer = Writer::create(&path, Existing::Refuse).expect("created");
    samples.iter().for_each(|sample| writer.append(sample, &table).expect("stored"));
    let reader = Reader::open(&path).expect("opened");
    let mut reading = reader.samples();
    assert!(reading.next().is_some());
    assert_same(&replayed(&writer.finish().expect("finished")), &samples);
    assert_eq!(reading.count(), 4);

    let alone = directory.path().join("alone.btr");
    fs::copy(&path, &alone).expect("copied");
    assert_same(&replayed(&Reader::open(&alone).expect("opened")), &samples);
}

#[test]
fn recording_of_a_killed_writer_can_be_read_in_a_read_only_directory() {
    let directory = tempfile::tempdir().expect("directory");
    let (path, stored) = killed(directory.path(), 330);
    for with_index in [true, false] {
        let disk = match Disk::of(20_000) {
            Ok(disk) => disk,
            Err(why) => return println!("skipped, because no tmpfs can be mounted here ({why})"),
        };
        for suffix in ["", "-wal", "-shm"] {
            if suffix != "-shm" || with_index {
                let name = format!("killed.btr{suffix}");
                fs::copy(path.with_file_name(&name), disk.path().join(&name)).expect("copied");
            }
        }
        disk.make_read_only();
        let reader = Reader::open(&disk.path().join("killed.btr")).expect("opened");
        let found = replayed(&reader);
        assert!(found.len() as i64 > stored, "{} samples, {stored} stored, index: {with_index}", found.len());
        assert_same(&found, &samples(HELPER_SECONDS).0[..found.len()]);
    }
}

#[test]
fn a_finished_recording_can_be_read_in_a_read_only_directory() {
    let disk = match Disk::of(5_000) {
        Ok(disk) => disk,
        Err(why) => return println!("skipped, because no tmpfs can be mounted here ({why})"),
    };
    let path = disk.path().join("a b?.btr");
    let samples = recorded(&path, 11);
    disk.make_read_only();
    assert_same(&replayed(&Reader::open(&path).expect("opened")), &samples);
}

/// A clock that moves only during sleeps, and calls `what` at instant `at`.
struct Scene<'a> {
    now: Cell<Nanos>,
    at: Nanos,
    what: &'a dyn Fn(),
}

impl Clock for Scene<'_> {
    fn now(&self) -> Nanos {
        self.now.get()
    }

    fn wall(&self) -> i64 {
        self.now.get()
    }

    fn sleep_until(&self, until: Nanos) {
        if self.now.get() < self.at && until >= self.at {
            (self.what)();
        }
        self.now.set(until);
    }
}

/// A source with samples of 20 kB.
struct Wide(Random);

impl Source for Wide {
    fn name(&self) -> &'static str {
        "host"
    }

    fn request(&mut self, _ask: SampleRequest, _clock: &dyn Clock) -> Result<(), SourceTrouble> {
        Ok(())
    }

    fn collect(
        &mut self,
        _: Nanos,
        clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) -> Result<Span, SourceTrouble> {
        for thread in 0..2_000 {
            out.metric(&metrics::THREAD_CPU, &format!("other/x/{thread}"), self.0.bits() as i64);
        }
        Ok(Span { begin: clock.now(), end: clock.now() })
    }
}

#[test]
fn on_a_full_disk_the_recording_ends_with_a_message_and_stays_readable() {
    let disk = match Disk::of(3_000) {
        Ok(disk) => disk,
        Err(why) => return println!("skipped, because no tmpfs can be mounted here ({why})"),
    };
    let path = disk.path().join("full.btr");
    let clock = Scene { now: Cell::new(0), at: Nanos::MAX, what: &|| () };
    let mut writer = Writer::create(&path, Existing::Refuse).expect("created");
    let mut last_reported = None;
    let mut stored = 0;
    let error = record(
        &Plan::default(),
        Sources { vm: None, host: Some(&mut Wide(Random(1))) },
        &clock,
        &Stop::default(),
        &mut writer,
        |progress| {
            stored = progress.samples;
            last_reported = progress.trouble.map(str::to_owned);
        },
    )
    .expect_err("no room");
    assert!(
        error.to_string().contains("full.btr: the disk is full; earlier samples stay readable"),
        "{error}"
    );
    assert_eq!(last_reported, Some(error.to_string()));
    assert!(stored > 10, "{stored} samples");
    let expect = stored as usize;
    assert_eq!(replayed(&Reader::open(&path).expect("opened while it is open for writing")).len(), expect);
    match writer.finish() {
        Ok(reader) => assert_eq!(replayed(&reader).len(), expect),
        Err(error) => assert!(matches!(error, Error::DiskFull { .. }), "{error}"),
    }
    let reader = Reader::open(&path).expect("opened");
    assert_eq!(replayed(&reader).len(), expect);
    assert!(reader.period(&Selection::default()).expect("readable").gaps.is_empty());
}

#[test]
fn the_recording_continues_with_a_gap_once_the_disk_has_space_again() {
    let disk = match Disk::of(6_000) {
        Ok(disk) => disk,
        Err(why) => return println!("skipped, because no tmpfs can be mounted here ({why})"),
    };
    let path = disk.path().join("full.btr");
    let other = disk.path().join("other");
    fs::write(&other, vec![0; 4_700_000]).expect("written");
    let make_room = || fs::remove_file(&other).expect("removed");
    let clock = Scene { now: Cell::new(0), at: 60 * SECOND_NS, what: &make_room };
    let mut writer = Writer::create(&path, Existing::Refuse).expect("created");
    let plan = Plan { length: Some(70 * SECOND_NS), wait_for_room: 60 * SECOND_NS, ..Plan::default() };
    let outcome = record(
        &plan,
        Sources { vm: None, host: Some(&mut Wide(Random(1))) },
        &clock,
        &Stop::default(),
        &mut writer,
        |_| (),
    )
    .expect("continued");
    assert_eq!(outcome.end, EndReason::Elapsed);
    assert!((20..71).contains(&outcome.samples), "{} samples", outcome.samples);
    let trouble = outcome.last_trouble.expect("reported");
    assert_eq!(trouble.kind, TroubleKind::Recorder);
    let reader = writer.finish().expect("finished");
    let samples = replayed(&reader);
    assert_eq!(samples.len() as u64, outcome.samples);
    let gaps: Vec<_> = samples.iter().flat_map(|sample| &sample.gaps).collect();
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert_eq!((gaps[0].source.as_str(), gaps[0].end), ("recorder", 60 * SECOND_NS));
    assert_eq!((gaps[0].end - gaps[0].begin) / SECOND_NS, 71 - outcome.samples as i64);
    assert!(gaps[0].reason.contains("the disk is full"));
    assert!(reader.facts(0).expect("readable").get("recorded_by").is_some());
    let series: Vec<Series> =
        reader.series().expect("readable").iter().map(|(_, series)| series.clone()).collect();
    assert_eq!(series.len(), 2_000);
}
