//! Labs, sick and cured, on real VMs: what must be found is found, the culprit is named, and nothing else is.
//!
//! `beamtune lab evaluate` runs and judges them. Here those run that do not depend on a quiet machine, each on one release,
//! a different one from lab to lab; `make labs` runs all labs on all releases, and software that others have written.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{PATIENCE, beamtune, folder, run_for};
use serde_json::Value;

/// Of those that do not depend on a quiet machine, some of each kind.
const LABS: &str = "atom-leak,dirty-io-saturated,dirty-io-saturated-and-port-leak,frozen-peer,healthy-idle,healthy-memory,large-heaps,\
                    nif-malloc-leak,port-leak,scattered-survivors,unread-messages";

/// The evaluation of these labs, with its results in this file.
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
fn labs_are_found_sick_and_not_found_cured() {
    if common::all_otps().is_empty() {
        return;
    }
    let folder = folder();
    let rows = folder.path().join("rows.jsonl");
    let said = run_for(&mut evaluate(&rows, &[]), 20 * PATIENCE);
    // With the master seed, by which a failure can be repeated, and what was skipped.
    eprint!("{}{}", said.stderr, said.stdout);
    assert_eq!(said.status, Some(0), "not all is right");
    let first = lines(&rows);
    let of = |setting: &str| first.iter().filter(|row| row["setting"] == setting).count();
    assert!(of("sick") > 0 && of("healthy") > 0 && of("sick") == of("cured"), "{} runs", first.len());

    let said = run_for(&mut evaluate(&rows, &[]), PATIENCE);
    assert_eq!(said.status, Some(2), "results are not overwritten unless that is asked for");
    assert!(said.stderr.contains("--resume") && said.stderr.contains("--fresh"), "{}", said.stderr);

    // As if it had been ended before the last one was done, and while it was written.
    let mut kept = first[..first.len() - 1].iter().map(|row| format!("{row}\n")).collect::<String>();
    kept.push_str(r#"{"case":"#);
    fs::write(&rows, kept).expect("the file");
    let said = run_for(&mut evaluate(&rows, &["--resume"]), 5 * PATIENCE);
    assert!(said.stderr.contains("; 1 runs"), "{}", said.stderr);
    let (again, last) = (lines(&rows), &first[first.len() - 1]);
    assert_eq!(again.len(), first.len());
    let is_last = |row: &&Value| {
        ["case", "release", "setting", "seed", "master"].iter().all(|key| row[key] == last[key])
    };
    assert!(again.iter().any(|row| is_last(&row)), "it goes on with the same seeds: {again:#?}");
}
