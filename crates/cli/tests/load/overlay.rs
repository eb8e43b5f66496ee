//! `beamtune show --load`: shows the result of a load next to a recording, second by second.

use std::path::Path;

use beamtune_model::units::SECOND_NS;
use beamtune_model::{Incarnation, SampleBuilder, SeriesTable, Span, Tick, metrics};
use beamtune_recording::{Existing, Writer};

use crate::common::{Output, beamtune, folder, run};

/// 2026-11-20T00:00:00Z.
const MIDNIGHT_S: i64 = 1_795_132_800;

/// Records one sample per second for a minute, each half a second after a full second of the wall clock. In second 10, CPU time and queue
/// length are higher.
fn record_minute(file: &Path) {
    let mut table = SeriesTable::default();
    let mut writer = Writer::create(file, Existing::Refuse).expect("created");
    let wall0 = MIDNIGHT_S * SECOND_NS + SECOND_NS / 2;
    writer.set_wall_at_zero(wall0).expect("stored");
    let mut used = 0;
    for second in 0..60 {
        let t = second * SECOND_NS;
        let span = Some(Span { begin: t, end: t + 1_000_000 });
        let tick = Tick { t, incarnation: 0, vm: span, host: span, late: 0 };
        let mut out = SampleBuilder::new(&mut table, tick);
        if second == 0 {
            let (node, boot) = ("shop@web1".to_owned(), "0".to_owned());
            out.sample.incarnation =
                Some(Incarnation { id: 0, node, os_pid: Some(7), boot, mono0: 0, wall0 });
        }
        used += if second == 10 { SECOND_NS } else { SECOND_NS / 2 };
        out.metric(&metrics::PROCESS_USER, "", used);
        out.metric(&metrics::PROCESS_SYSTEM, "", 0);
        out.metric(&metrics::RUN_QUEUE, "scheduler/1", if second == 10 { 40 } else { 1 });
        out.metric(&metrics::RUN_QUEUE, "scheduler/2", 2);
        let sample = out.sample;
        writer.append(&sample, &table).expect("stored");
    }
    writer.finish().expect("finished");
}

/// Writes the result of a load of three seconds that began 9.5 s after midnight.
fn write_load_result(file: &Path, began_s: Option<f64>) {
    let second = |number: i64, p99_ns: u64, bound: Option<&str>| {
        serde_json::json!({"second": number, "asked": 100, "done": 99, "errors": 1, "connected": 5, "waiting": 0,
            "p50_ns": 1_000_000, "p99_ns": p99_ns, "cores": 0.1, "bound": bound})
    };
    let result = serde_json::json!({"version": 1, "tool": "beamtune 0.1.0", "targets": ["http://127.0.0.1/"],
        "began_unix_s": began_s, "began_monotonic_ns": null, "length_s": 3.0,
        "asked": {"model": "open", "per_second": 100.0, "devices": 5}, "seed": 1, "is_interrupted": false,
        "generator": {"processes": 1, "threads": 1, "cpu_s": 0.3, "own_lag": null, "bound_seconds": 1,
            "judged_seconds": 3},
        "unfinished": 0, "traffic": null, "steps": [],
        "seconds": [second(0, 2_000_000, None), second(1, 250_000_000, None), second(2, 2_000_000, Some("late"))],
        "remarks": []});
    std::fs::write(file, result.to_string()).expect("written");
}

fn show(file: &Path, load: &Path, part: &[&str]) -> Output {
    run(beamtune().env("TZ", "UTC-1").arg("show").arg(file).arg("--load").arg(load).args(part))
}

#[test]
fn each_second_of_a_load_is_shown_with_the_nodes_values() {
    let folder = folder();
    let (file, load) = (folder.path().join("night.btr"), folder.path().join("load.json"));
    record_minute(&file);
    write_load_result(&load, Some(MIDNIGHT_S as f64 + 9.5));
    let output = show(&file, &load, &[]);
    assert_eq!(output.status, Some(0), "{}", output.stderr);
    let cells = |time: &str| -> Vec<String> {
        let line = output
            .stdout
            .lines()
            .find(|line| line.starts_with(time))
            .unwrap_or_else(|| panic!("{}", output.stdout));
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    assert_eq!(cells("01:00:09"), ["01:00:09", "100", "99", "1", "1 ms", "2 ms", "1.00", "42"]);
    assert_eq!(cells("01:00:10"), ["01:00:10", "100", "99", "1", "1 ms", "250 ms", "0.50", "42"]);
    assert_eq!(
        cells("01:00:11"),
        ["01:00:11", "100", "99", "1", "1 ms", "2 ms", "0.50", "3", "generator-bound: late"]
    );
    for words in ["2026-11-20 (+01:00)", "Generator-bound in 1 of 3 seconds", "run queue is the maximum"] {
        assert!(output.stdout.contains(words), "{words}: {}", output.stdout);
    }
    let part = show(&file, &load, &["--from", "01:00:10", "--to", "01:00:10"]);
    assert!(part.stdout.contains("\n01:00:10  "), "{}{}", part.stdout, part.stderr);
    assert!(!part.stdout.contains("\n01:00:09  "), "{}", part.stdout);
}

#[test]
fn load_outside_the_recording_is_refused_with_both_times() {
    let folder = folder();
    let (file, load) = (folder.path().join("night.btr"), folder.path().join("load.json"));
    record_minute(&file);
    write_load_result(&load, Some(MIDNIGHT_S as f64 + 3600.0));
    let times = ["from 2026-11-20 02:00:00 to 2026-11-20 02:00:03", "from 2026-11-20 01:00:00 to 01:00:59"];
    show(&file, &load, &[]).assert_refused(&times);
    write_load_result(&load, None);
    show(&file, &load, &[]).assert_refused(&["load.json does not contain the time at which the load began"]);
    show(&file, &file, &[]).assert_refused(&["night.btr: not recognised"]);
}
