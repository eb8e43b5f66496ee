//! Labs in both variants on real VMs: only the fault of the sick variant is found, with its subject.
//!
//! `beamtune lab evaluate` runs and grades the labs. These tests run the labs that do not need an idle host, each on a single release,
//! which differs from lab to lab. `make labs` runs all labs on all releases, and third-party software.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{TIMEOUT, beamtune, folder, run_for};
use serde_json::Value;

/// Some labs of each kind that do not need an idle host.
const LABS: &str = "atom-leak,dirty-io-saturated,dirty-io-saturated-and-port-leak,frozen-peer,healthy-idle,healthy-memory,large-heaps,\
                    nif-malloc-leak,port-leak,scattered-survivors,unread-messages";

/// Returns a command that evaluates these labs and writes the results to `rows`.
fn evaluate(rows: &Path, more: &[&str]) -> Command {
    let mut command = beamtune();
    command.args(["lab", "evaluate", "--quick", "--robust", "--labs", LABS, "-o"]).arg(rows).args(more);
    command
}

fn lines(rows: &Path) -> Vec<Value> {
    let text = fs::read_to_string(rows).expect("results");
    text.lines().map(|line| serde_json::from_str(line).expect("a result")).collect()
}

#[test]
fn faults_are_found_in_sick_labs_and_not_in_healthy_ones() {
    if common::all_otps().is_empty() {
        return;
    }
    let folder = folder();
    let rows = folder.path().join("rows.jsonl");
    let output = run_for(&mut evaluate(&rows, &[]), 20 * TIMEOUT);
    // The output contains the master seed, with which a failure can be reproduced, and the skipped runs.
    eprint!("{}{}", output.stderr, output.stdout);
    assert_eq!(output.status, Some(0), "a lab was diagnosed wrongly");
    let first = lines(&rows);
    let count = |setting: &str| first.iter().filter(|row| row["setting"] == setting).count();
    assert!(
        count("sick") > 0 && count("healthy") > 0 && count("sick") == count("cured"),
        "{} runs",
        first.len()
    );

    let output = run_for(&mut evaluate(&rows, &[]), TIMEOUT);
    assert_eq!(output.status, Some(2), "results are not overwritten without --fresh");
    assert!(output.stderr.contains("--resume") && output.stderr.contains("--fresh"), "{}", output.stderr);

    // As if beamtune had been killed while it was writing the last row.
    let mut kept = first[..first.len() - 1].iter().map(|row| format!("{row}\n")).collect::<String>();
    kept.push_str(r#"{"case":"#);
    fs::write(&rows, kept).expect("the file");
    let output = run_for(&mut evaluate(&rows, &["--resume"]), 5 * TIMEOUT);
    assert!(output.stderr.contains("; 1 runs"), "{}", output.stderr);
    let (resumed, last) = (lines(&rows), &first[first.len() - 1]);
    assert_eq!(resumed.len(), first.len());
    let is_last = |row: &&Value| {
        ["case", "release", "setting", "seed", "master"].iter().all(|key| row[key] == last[key])
    };
    assert!(resumed.iter().any(|row| is_last(&row)), "other seeds after --resume: {resumed:#?}");
}
