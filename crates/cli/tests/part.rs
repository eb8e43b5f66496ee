//! `--from` and `--to`: select a part of a recording by wall-clock time.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

mod common;

use std::path::Path;

use beamtune_model::units::SECOND_NS;
use beamtune_model::{Event, Incarnation, SampleBuilder, SeriesTable, Span, Tick, metrics};
use beamtune_recording::{Existing, Writer};
use common::{Output, beamtune, folder, run};

/// 2026-11-20T00:00:00Z.
const MIDNIGHT: i64 = 1_795_132_800;

/// Writes a recording with one sample per minute for five hours, beginning at midnight UTC. The VM is restarted after three hours.
fn record_night(path: &Path) {
    let mut table = SeriesTable::default();
    let mut writer = Writer::create(path, Existing::Refuse).expect("created");
    writer.set_wall_at_zero(MIDNIGHT * SECOND_NS).expect("stored");
    for minute in 0..=300 {
        let t = minute * 60 * SECOND_NS;
        let span = Some(Span { begin: t, end: t + 1_000_000 });
        let id = u32::from(minute >= 180);
        let mut out =
            SampleBuilder::new(&mut table, Tick { t, incarnation: id, vm: span, host: None, late: 0 });
        if minute == 0 || minute == 180 {
            let (node, boot) = ("shop@web1".to_owned(), id.to_string());
            out.sample.incarnation = Some(Incarnation {
                id,
                node,
                os_pid: Some(7 + id),
                boot,
                mono0: t,
                wall0: MIDNIGHT * SECOND_NS + t,
            });
        }
        out.metric(&metrics::REDUCTIONS, "", minute * 60_000_000);
        if minute == 115 {
            let (kind, subject) = ("trigger".to_owned(), "run_queue".to_owned());
            out.sample.events.push(Event { t, kind, subject, detail: "41 of 8".to_owned() });
        }
        let sample = out.sample;
        writer.append(&sample, &table).expect("stored");
    }
    writer.finish().expect("finished");
}

fn run_part(command: &str, file: &Path, part: &[&str]) -> Output {
    run(beamtune().env("TZ", "UTC-1").arg(command).arg(file).args(part))
}

#[test]
fn part_is_selected_by_local_time_and_diagnosed_alone() {
    let folder = folder();
    let file = folder.path().join("night.btr");
    record_night(&file);
    for command in ["diagnose", "show"] {
        // In this time zone, one hour east of UTC, the recording covers 1:00 to 6:00.
        let output = run_part(command, &file, &["--from", "02:50", "--to", "03:10"]);
        assert!(
            output.stdout.starts_with("from 2026-11-20 02:50:00 to 03:10:00 (+01:00)\n"),
            "{}\n{}",
            output.stdout,
            output.stderr
        );
        assert!(output.stdout.contains("20 min") || output.stdout.contains("1200 s"), "{}", output.stdout);
        let same = run_part(command, &file, &["--from", "2026-11-20T01:50:00Z", "--to", "2026-11-20T03:10"]);
        assert_eq!(same.stdout, output.stdout);
    }
    let output = run_part("diagnose", &file, &["--from", "02:50", "--to", "03:10"]);
    assert!(
        output.stdout.contains("\n2026-11-20 02:55:00  trigger: run_queue 41 of 8\n"),
        "{}",
        output.stdout
    );
    let output = run_part("diagnose", &file, &["--from", "-20m"]);
    assert!(!output.stdout.contains("trigger"), "{}", output.stdout);
    assert!(output.stdout.starts_with("from 2026-11-20 05:40:00 to 06:00:00"), "{}", output.stdout);
    let json = run_part("diagnose", &file, &["--from", "-20m", "--json"]).json();
    assert_eq!(json["period"]["seconds"], 1_200.0, "{json:#}");
}

#[test]
fn part_that_was_not_recorded_is_refused_with_the_recorded_period() {
    let folder = folder();
    let file = folder.path().join("night.btr");
    record_night(&file);
    let covers = "night.btr covers 2026-11-20 01:00:00 to 06:00:00 (+01:00)";
    let check =
        |part: &[&str], words: &str| run_part("diagnose", &file, part).assert_refused(&[words, covers]);
    check(&["--from", "2026-11-21T02:50"], "nothing was recorded at that time");
    check(&["--from", "23:00", "--to", "23:10"], "nothing was recorded at that time");
    check(&["--from", "-10m", "--to", "-20m"], "--from is not before --to");
    check(&["--from", "02:50:10", "--to", "02:50:20"], "no sample from 2026-11-20 02:50:10");
    run_part("diagnose", &file, &["--from", "teatime"]).assert_refused(&["write 02:50"]);
}
