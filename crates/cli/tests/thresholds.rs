//! `--thresholds FILE` and `beamtune thresholds`.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{beamtune, folder, run};

/// Returns a recording of a node that spends most of its CPU time on garbage collection.
fn recording() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings/gc-share.beamtune")
}

#[test]
fn changed_thresholds_change_the_diagnosis_and_are_reported() {
    let folder = folder();
    let file = folder.path().join("my.toml");
    let diagnose = |format: &[&str]| {
        run(beamtune().arg("diagnose").arg(recording()).arg("--thresholds").arg(&file).args(format))
    };
    let level = |format: &[&str]| {
        let output = run(beamtune().arg("diagnose").arg(recording()).arg("--json").args(format));
        let document = output.json();
        let found = document["findings"].as_array().expect("findings").clone();
        found.into_iter().find(|found| found["code"] == "BT011").map(|found| found["level"].clone())
    };
    assert_eq!(level(&[]).expect("found"), "warning");

    fs::write(&file, "[gc-share]\ngc_share = { notice = 0.7, warning = 0.8, critical = 0.9 }\n")
        .expect("written");
    let output = diagnose(&[]);
    let line = format!("1 threshold changed by {}", file.display());
    assert!(output.stdout.lines().any(|out| out == line), "{}", output.stdout);
    let output = diagnose(&["--json"]);
    let document = output.json();
    assert_eq!(document["thresholds"]["changed"], serde_json::json!(["gc-share.gc_share"]));
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/diagnosis.schema.json");
    let schema = serde_json::from_str(&fs::read_to_string(schema).expect("the schema")).expect("JSON");
    let schema = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<_> = schema.iter_errors(&document).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    assert_eq!(level(&["--thresholds", file.to_str().expect("UTF-8")]), None);
}

#[test]
fn invalid_thresholds_file_is_refused_before_the_recording_is_read() {
    let folder = folder();
    let file = folder.path().join("my.toml");
    fs::write(&file, "[gc-share]\ngc_shar = { notice = 0.2 }\n").expect("written");
    let output = run(beamtune().arg("diagnose").arg("no-such-file").arg("--thresholds").arg(&file));
    assert_eq!(output.status, Some(2), "{}", output.stderr);
    let message = format!("{}:2: unknown threshold \"gc_shar\"; did you mean gc_share?", file.display());
    assert!(output.stderr.contains(&message), "{}", output.stderr);
}

#[test]
fn list_of_all_thresholds_is_a_valid_thresholds_file() {
    let folder = folder();
    let file = folder.path().join("all.toml");
    let all = run(beamtune().arg("thresholds"));
    assert!(all.stdout.contains("\n[gc-share]\n# BT011: GC, share of scheduler work\n"), "{}", all.stdout);
    fs::write(&file, all.stdout.replace("[gc-share]", "[gc-share] # mine")).expect("written");
    let again = run(beamtune().arg("thresholds").arg(&file));
    assert_eq!(again.stdout, all.stdout);
}
