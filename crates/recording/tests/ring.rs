//! Tests of rings: dropped data, maximum size, and continuation after any kind of end.

#![allow(clippy::expect_used, clippy::panic, reason = "an unexpected value must end a test")]

mod common;

use std::cell::Cell;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use beamtune_model::units::SECOND_NS;
use beamtune_model::{
    Clock, Incarnation, Nanos, Sample, SampleBuilder, SampleRequest, SeriesTable, Source, SourceTrouble,
    Span, Tick, metrics,
};
use beamtune_recording::{Error, Existing, Plan, Reader, Ring, Selection, Sources, Stop, Writer, record};
use common::{Disk, Random, assert_same, recorded, replayed, sample, samples};

const NODE: &str = "rabbit@host";

fn ring(keep_seconds: i64) -> Ring {
    Ring { keep: keep_seconds * SECOND_NS, max_bytes: 50_000_000 }
}

/// Returns the size of file and log together.
fn size(path: &Path) -> u64 {
    let length = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
    length(path) + length(&path.with_extension("btr-wal"))
}

/// Runs a query with Python's `sqlite3`, for data that the reader does not expose.
fn count(path: &Path, sql: &str) -> i64 {
    let code = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchone()[0])";
    let output = Command::new("python3").args(["-c", code]).arg(path).arg(sql).output().expect("python3");
    String::from_utf8(output.stdout).expect("text").trim().parse().expect("a number")
}

#[test]
fn a_ring_equals_a_recording_that_began_at_its_first_sample() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a.btr");
    let (all, table) = samples(2_500);
    let mut writer = Writer::ring(&path, ring(900), NODE).expect("created");
    let follower_file = Reader::open(&path).expect("opened");
    let mut follower = follower_file.samples();
    let mut followed = Vec::new();
    for sample in &all {
        writer.append(sample, &table).expect("stored");
        // Follows with a delay, even while data are dropped.
        if sample.tick.t % (70 * SECOND_NS) == 0 {
            followed.extend(follower.by_ref().map(|sample| sample.expect("readable")));
        }
    }
    let reader = Reader::open(&path).expect("opened while it is written");
    let found = replayed(&reader);
    let first = found[0].tick.t / SECOND_NS;
    // The last segment was sealed at 2,400 s. The 900 s before it are kept, with the whole segment in which they begin.
    assert_eq!(first, 1_500);
    // Earlier data that still apply are part of the first sample.
    let mut expect: Vec<Sample> = all[1_500..].to_vec();
    expect[0].incarnation.clone_from(&all[500].incarnation);
    expect[0].facts.clone_from(&all[500].facts);
    assert_same(&found, &expect);
    assert_same(&followed, &all[..followed.len()]);
    assert!(followed.len() > 2_400);

    let lives = reader.recorded_incarnations().expect("readable");
    assert_eq!(lives.len(), 1, "the ticks of the first incarnation were dropped");
    assert_eq!((lives[0].id, lives[0].begin), (1, 1_500 * SECOND_NS));
    let period = reader.period(&Selection::default()).expect("readable");
    assert_eq!((period.begin, period.ticks), (1_500 * SECOND_NS, 1_000));
    assert_eq!(period.facts.get("otp_release"), Some("27"));
    assert_eq!(period.rate(&metrics::REDUCTIONS, ""), Ok(1_000_000.0));
    drop(reader);
    drop(writer);
    for table in ["process", "ets", "port", "spawn", "snapshot", "event"] {
        assert_eq!(count(&path, &format!("SELECT count(*) FROM {table} WHERE tick < 1500000000000")), 0);
    }
    assert_eq!(count(&path, "SELECT count(*) FROM incarnation"), 1);
    assert_eq!(count(&path, "SELECT count(*) FROM fact WHERE inc = 0"), 0);
}

#[test]
fn missing_tables_and_columns_are_added_to_a_ring_of_an_older_version() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a.btr");
    let (all, table) = samples(40);
    let (before, after) = all.split_at(15);
    let mut writer = Writer::ring(&path, ring(900), NODE).expect("created");
    before.iter().for_each(|sample| writer.append(sample, &table).expect("stored"));
    drop(writer);
    count(&path, "SELECT count(*) FROM carrier");
    let sql = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(\
         'DROP TABLE carrier; ALTER TABLE process DROP COLUMN total_bytes')";
    let dropped = Command::new("python3").args(["-c", sql]).arg(&path).status().expect("python3");
    assert!(dropped.success());
    let mut writer = Writer::ring(&path, ring(900), NODE).expect("continued");
    after.iter().for_each(|sample| writer.append(sample, &table).expect("stored"));
    let found = replayed(&writer.finish().expect("finished"));
    let carriers = |samples: &[Sample]| samples.iter().map(|sample| sample.carriers.len()).sum::<usize>();
    assert_eq!(carriers(&found), carriers(after));
    assert!(carriers(after) > 0 && carriers(before) > 0);
    let with_total_bytes = |samples: &[Sample]| -> usize {
        samples.iter().flat_map(|sample| &sample.processes).filter(|row| row.total_bytes.is_some()).count()
    };
    assert_eq!(with_total_bytes(&found), with_total_bytes(after));
    assert!(with_total_bytes(after) > 0 && with_total_bytes(before) > 0);
}

#[test]
fn a_lasting_gap_is_kept_with_the_data_that_it_explains() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a.btr");
    let mut table = SeriesTable::default();
    let mut writer = Writer::ring(&path, ring(300), NODE).expect("created");
    for second in 0..1_500 {
        let mut out = SampleBuilder::new(&mut table, common::tick(second, 0));
        out.metric(&metrics::REDUCTIONS, "", second);
        if second == 5 {
            out.sample.gaps.push(common::gap(5 * SECOND_NS, 6 * SECOND_NS, "vm.memory"));
            out.sample.gaps.push(common::gap(5 * SECOND_NS, 6 * SECOND_NS, "vm.ets"));
        }
        let sample = out.sample;
        if second > 5 {
            writer.prolong_gap("vm.memory", 5 * SECOND_NS, second * SECOND_NS);
        }
        writer.append(&sample, &table).expect("stored");
    }
    let reader = writer.finish().expect("finished");
    let found = replayed(&reader);
    assert!(found[0].tick.t > 600 * SECOND_NS);
    let sources = |sample: &Sample| sample.gaps.iter().map(|gap| gap.source.clone()).collect::<Vec<_>>();
    assert_eq!(sources(&found[0]), ["vm.memory"]);
    let period = reader.period(&Selection::default()).expect("readable");
    assert_eq!(period.gaps.len(), 1);
    assert_eq!(period.gaps[0].end, 1_499 * SECOND_NS);
    let part = Selection { from: Some(1_400 * SECOND_NS), ..Selection::default() };
    assert_eq!(reader.period(&part).expect("readable").gaps.len(), 1, "the gap extends into every part");
}

#[test]
fn unreferenced_texts_are_deleted() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a.btr");
    let mut writer = Writer::ring(&path, ring(300), NODE).expect("created");
    let mut table = SeriesTable::default();
    for second in 0..1_300 {
        let mut sample = sample(second * 10, &mut table);
        sample.tick = Tick { t: second * SECOND_NS, incarnation: 0, ..sample.tick };
        sample.incarnation = None;
        for (place, row) in (0..).zip((0..20).map(|_| sample.processes[0].clone()).collect::<Vec<_>>()) {
            let name = Some(format!("worker {second} {place}"));
            sample.processes.push(beamtune_model::ProcessRow { name, ..row });
        }
        writer.append(&sample, &table).expect("stored");
    }
    drop(writer);
    let texts = count(&path, "SELECT count(*) FROM text");
    assert!((6_000..20_000).contains(&texts), "{texts} texts, of 26,000 in total");
    let missing = "SELECT count(*) FROM process WHERE name_text NOT IN (SELECT id FROM text)";
    assert_eq!(count(&path, missing), 0);
}

/// Returns a sample of 9 kB, with noise in 1,000 series.
fn wide(second: i64, random: &mut Random, table: &mut SeriesTable) -> Sample {
    let t = second * SECOND_NS;
    let span = Some(Span { begin: t, end: t + 1_000_000 });
    let mut out = SampleBuilder::new(table, Tick { t, incarnation: 0, vm: None, host: span, late: 0 });
    for thread in 0..1_000 {
        out.metric(&metrics::THREAD_CPU, &format!("other/x/{thread}"), random.bits() as i64);
    }
    out.sample
}

#[test]
fn a_ring_never_exceeds_its_size_and_reports_once_that_it_keeps_less() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a.btr");
    let max_bytes = 14_000_000;
    let bounds = Ring { keep: 86_400 * SECOND_NS, max_bytes };
    let mut writer = Writer::ring(&path, bounds, NODE).expect("created");
    let (mut random, mut table) = (Random(7), SeriesTable::default());
    let mut notices = Vec::new();
    let mut largest = 0;
    for second in 0..1_500 {
        writer.append(&wide(second, &mut random, &mut table), &table).expect("stored");
        largest = largest.max(size(&path));
        notices.extend(writer.take_notices());
    }
    assert!(largest <= max_bytes, "{largest} bytes");
    assert!(largest > max_bytes * 3 / 4, "{largest} bytes: the space is not used");
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(
        notices[0].starts_with("14 MB are enough for ") && notices[0].contains("of this node, not 1440"),
        "{notices:?}"
    );
    let found = replayed(&Reader::open(&path).expect("opened"));
    assert_eq!(found.last().map(|sample| sample.tick.t), Some(1_499 * SECOND_NS));
    assert!(found.len() > 500, "{} samples", found.len());
    assert!(found.iter().all(|sample| sample.readings.len() == 1_000));
    drop(writer);

    // A smaller size after a restart shrinks the file.
    let bounds = Ring { max_bytes: 10_000_000, ..bounds };
    let mut writer = Writer::ring(&path, bounds, NODE).expect("continued");
    for second in 1_500..1_600 {
        writer.append(&wide(second, &mut random, &mut table), &table).expect("stored");
    }
    let reader = writer.finish().expect("finished");
    assert!(size(&path) <= 10_000_000, "{} bytes", size(&path));
    assert_eq!(replayed(&reader).last().map(|sample| sample.tick.t), Some(1_599 * SECOND_NS));
}

#[test]
fn a_reader_that_keeps_a_transaction_open_does_not_let_a_ring_exceed_its_size() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a.btr");
    let bounds = Ring { keep: 86_400 * SECOND_NS, max_bytes: 14_000_000 };
    let mut writer = Writer::ring(&path, bounds, NODE).expect("created");
    let (mut random, mut table) = (Random(7), SeriesTable::default());
    let mut store = |writer: &mut Writer, second| {
        let sample = wide(second, &mut random, &mut table);
        writer.append(&sample, &table)
    };
    for second in 0..20 {
        store(&mut writer, second).expect("stored");
    }
    // A user inspects the file with another tool, and leaves a transaction open.
    let code = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None); db.execute('BEGIN'); \
                db.execute('SELECT count(*) FROM tick').fetchone(); print('reading', flush=True); sys.stdin.read()";
    let mut other = Command::new("python3")
        .args(["-c", code])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let mut line = String::new();
    BufReader::new(other.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
    let mut refused = 0;
    for second in 20..700 {
        match store(&mut writer, second) {
            Ok(()) => {}
            Err(Error::BlockedByReader { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(size(&path) <= 14_000_000, "{} bytes at {second} s", size(&path));
    }
    assert!(refused > 100, "{refused}");
    drop(other.stdin.take());
    other.wait().expect("ended");
    store(&mut writer, 700).expect("stored again");
}

/// Environment variable: file that the helper process writes to.
const HELPER_FILE: &str = "BEAMTUNE_TEST_RING";
/// Environment variable: second at which the helper begins.
const HELPER_FROM: &str = "BEAMTUNE_TEST_RING_FROM";

/// Not a test, but the process that the test below starts and kills. It prints each second that it has stored.
#[test]
fn helper_that_goes_on_in_a_ring_until_it_is_killed() {
    let Some(path) = std::env::var_os(HELPER_FILE) else { return };
    let from: i64 = std::env::var(HELPER_FROM).expect("set").parse().expect("a number");
    let mut writer = Writer::ring(Path::new(&path), ring(100_000), NODE).expect("continued");
    let mut table = SeriesTable::default();
    for second in 0..from {
        sample(second, &mut table);
    }
    for second in from..100_000 {
        let sample = sample(second, &mut table);
        writer.append(&sample, &table).expect("stored");
        println!("stored {second}");
    }
}

#[test]
fn a_ring_continues_after_a_killed_writer() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a.btr");
    let mut random = Random(u64::from(std::process::id()));
    println!("seed {}", std::process::id());
    let mut next = 0;
    for _ in 0..12 {
        let mut helper = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "helper_that_goes_on_in_a_ring_until_it_is_killed", "--nocapture"])
            .env(HELPER_FILE, &path)
            .env(HELPER_FROM, next.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut output = BufReader::new(helper.stdout.take().expect("piped")).lines();
        let until = next + 1 + random.below(400) as i64;
        let mut stored = next - 1;
        let mut take = |line: Option<std::io::Result<String>>| {
            let line = line?.expect("readable");
            if let Some((_, second)) = line.rsplit_once("stored ") {
                stored = second.trim().parse().expect("a number");
            }
            Some(stored)
        };
        while take(output.next()).expect("the helper is still running") < until {}
        helper.kill().expect("killed");
        helper.wait().expect("ended");
        while take(output.next()).is_some() {}
        // One more sample may have been stored than was reported.
        let found = Reader::open(&path).expect("opened").samples().count() as i64;
        assert!((stored + 1..=stored + 2).contains(&found), "{found} samples, {stored} reported");
        next = found;
    }
    let reader = Writer::ring(&path, ring(100_000), NODE).expect("continued").finish().expect("finished");
    let (expect, _) = samples(next);
    assert_same(&replayed(&reader), &expect);
    // A ring also continues after a finished recording.
    let mut writer = Writer::ring(&path, ring(100_000), NODE).expect("continued");
    let (more, table) = samples(next + 5);
    more[next as usize..].iter().for_each(|sample| writer.append(sample, &table).expect("stored"));
    assert!(!Reader::open(&path).expect("opened").is_closed());
    assert_same(&replayed(&writer.finish().expect("finished")), &more);
}

#[test]
fn a_file_other_than_a_ring_of_this_node_is_rejected_with_the_next_step() {
    let directory = tempfile::tempdir().expect("directory");
    let check = |name: &str, node: &str, expect: &str| {
        let before = fs::read(directory.path().join(name)).expect("there");
        let error = Writer::ring(&directory.path().join(name), ring(900), node).expect_err("refused");
        assert!(error.to_string().contains(expect), "{error}");
        assert_eq!(fs::read(directory.path().join(name)).expect("there"), before, "the file is unchanged");
    };
    recorded(&directory.path().join("plain.btr"), 11);
    check(
        "plain.btr",
        NODE,
        "plain.btr cannot be continued: it is a plain recording, not made with --keep; \
        choose another file with -o, or move this one away",
    );
    let mut writer = Writer::ring(&directory.path().join("ring.btr"), ring(900), NODE).expect("created");
    let (samples, table) = samples(3);
    samples.iter().for_each(|sample| writer.append(sample, &table).expect("stored"));
    check("ring.btr", NODE, "is being recorded by another beamtune");
    writer.finish().expect("finished");
    check(
        "ring.btr",
        "other@host",
        "it is a recording of rabbit@host, not of other@host; choose another file",
    );
    fs::write(directory.path().join("notes.txt"), "no recording").expect("written");
    check("notes.txt", NODE, "is not an SQLite database");
    let error = Writer::create(&directory.path().join("ring.btr"), Existing::Refuse).expect_err("exists");
    assert!(matches!(error, Error::Exists { .. }));
}

#[test]
fn on_a_full_disk_a_ring_drops_data_and_continues() {
    let disk = match Disk::of(12_000) {
        Ok(disk) => disk,
        Err(why) => {
            return println!("skipped, because no tmpfs can be mounted here, which needs root ({why})");
        }
    };
    let path = disk.path().join("a.btr");
    let bounds = Ring { keep: 86_400 * SECOND_NS, max_bytes: 100_000_000 };
    let mut writer = Writer::ring(&path, bounds, NODE).expect("created");
    let (mut random, mut table) = (Random(7), SeriesTable::default());
    let mut notices = Vec::new();
    for second in 0..1_500 {
        writer.append(&wide(second, &mut random, &mut table), &table).expect("stored");
        notices.extend(writer.take_notices());
    }
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].starts_with("the disk is nearly full: the ring does not grow beyond "), "{notices:?}");
    let found = replayed(&Reader::open(&path).expect("opened"));
    assert_eq!(found.last().map(|sample| sample.tick.t), Some(1_499 * SECOND_NS));
    assert!((100..1_500).contains(&found.len()), "{} samples", found.len());

    // Another program takes all free space; the ring reuses its own space.
    let other = disk.path().join("other");
    let filled = fs::write(&other, vec![0; 12_000_000]).expect_err("full");
    assert_eq!(filled.kind(), std::io::ErrorKind::StorageFull);
    for second in 1_500..2_000 {
        writer.append(&wide(second, &mut random, &mut table), &table).expect("stored on the full disk");
    }
    let found = replayed(&writer.finish().expect("finished on the full disk"));
    assert_eq!(found.last().map(|sample| sample.tick.t), Some(1_999 * SECOND_NS));
    assert!(found.len() > 100, "{} samples", found.len());
}

/// A clock that moves only during sleeps, with a wall clock that can be set.
struct Scene {
    now: Cell<Nanos>,
    wall_ahead: Cell<i64>,
}

impl Clock for Scene {
    fn now(&self) -> Nanos {
        self.now.get()
    }

    fn wall(&self) -> i64 {
        self.now.get() + self.wall_ahead.get()
    }

    fn sleep_until(&self, until: Nanos) {
        self.now.set(until.max(self.now.get()));
    }
}

/// A host with one metric, which announces an incarnation.
struct Host<'a> {
    boot: &'a str,
    announced: bool,
}

impl Source for Host<'_> {
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
        if !std::mem::replace(&mut self.announced, true) {
            let (node, boot) = (NODE.to_owned(), self.boot.to_owned());
            let (mono0, wall0) = (clock.now(), clock.wall());
            out.sample.incarnation = Some(Incarnation { id: 0, node, os_pid: Some(7), boot, mono0, wall0 });
        }
        out.metric(&metrics::RSS, "", clock.now());
        Ok(Span { begin: clock.now(), end: clock.now() })
    }
}

#[test]
fn a_restarted_recorder_continues_the_incarnation_with_a_gap() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a.btr");
    let noon = 1_700_000_000 * SECOND_NS;
    let run = |wall: i64, boot: &str| {
        let mut writer = Writer::ring(&path, ring(90_000), NODE).expect("opened");
        let begin = writer.first_instant(wall);
        let clock = Scene { now: Cell::new(begin), wall_ahead: Cell::new(wall - begin) };
        let plan = Plan { length: Some(20 * SECOND_NS), ..Plan::default() };
        let sources = Sources { vm: None, host: Some(&mut Host { boot, announced: false }) };
        record(&plan, sources, &clock, &Stop::default(), &mut writer, |_| ()).expect("recorded");
        begin / SECOND_NS
        // The writer is dropped, so the file is left as after a kill.
    };
    assert_eq!(run(noon, "boot 1"), 0);
    assert_eq!(run(noon + 3_600 * SECOND_NS, "boot 1"), 3_600);
    // The wall clock was set back between the two runs.
    assert_eq!(run(noon + 600 * SECOND_NS, "boot 1"), 3_621);
    assert_eq!(run(noon + 4_000 * SECOND_NS, "boot 2"), 3_641 + 3_380);

    let reader = Reader::open(&path).expect("opened");
    let lives: Vec<_> =
        reader.recorded_incarnations().expect("readable").iter().map(|life| (life.id, life.ticks)).collect();
    assert_eq!(lives, [(0, 63), (1, 21)]);
    let gaps: Vec<_> = replayed(&reader)
        .iter()
        .flat_map(|sample| sample.gaps.clone())
        .map(|gap| (gap.begin / SECOND_NS, gap.end / SECOND_NS, gap.source, gap.reason.contains("set back")))
        .collect();
    let recorder = || "recorder".to_owned();
    assert_eq!(
        gaps,
        [(20, 3_600, recorder(), false), (3_620, 3_621, recorder(), true), (3_641, 7_021, recorder(), false)]
    );
    let restarts =
        replayed(&reader).iter().flat_map(|s| s.events.clone()).filter(|e| e.kind == "restart").count();
    assert_eq!(restarts, 1);
    // Instants and the wall clock.
    let at = |second: i64| reader.wall_at(second * SECOND_NS).map(|wall| (wall - noon) / SECOND_NS);
    assert_eq!((at(0), at(20), at(3_610)), (Some(0), Some(20), Some(3_610)));
    assert_eq!((at(3_621), at(3_641), at(7_021)), (Some(600), Some(620), Some(4_000)));
    let instant = |second: i64| reader.instant_of(noon + second * SECOND_NS).map(|t| t / SECOND_NS);
    assert_eq!(instant(610), Some(3_631), "the later one of two instants");
    assert_eq!(instant(10), Some(10));
    assert_eq!(instant(4_010), Some(7_031));
}
