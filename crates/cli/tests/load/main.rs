//! `beamtune load` from its command line to its result, with real targets: nginx, mosquitto, and small servers that the tests start.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

#[path = "../common/mod.rs"]
mod common;

mod faults;
mod honesty;
mod import;
mod overlay;
mod processes;
mod protocols;
mod secure;
mod servers;

use std::path::Path;
use std::process::Command;

use beamtune_model::load::{LoadResult, LoadStep};
use common::{Output, Process, beamtune, run};

/// Returns a `beamtune load` command with JSON output.
fn load(args: &[&str]) -> Command {
    let mut command = beamtune();
    command.arg("load").args(args).arg("--json");
    command
}

/// Parses the result of a load that ran, with or without errors, and checks it against the schema.
#[track_caller]
fn result_of(output: &Output) -> LoadResult {
    assert!(matches!(output.status, Some(0 | 1)), "{:?}\n{}", output.status, output.stderr);
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../../docs/load-result.schema.json")).expect("a schema");
    let result = output.json();
    let faults: Vec<String> = jsonschema::validator_for(&schema)
        .expect("a schema of JSON")
        .iter_errors(&result)
        .map(|fault| format!("{}: {fault}", fault.instance_path()))
        .collect();
    assert!(faults.is_empty(), "{faults:#?}");
    serde_json::from_value(result).unwrap_or_else(|error| panic!("{error}\n{}", output.stdout))
}

/// Waits for a load to end, and returns its result.
#[track_caller]
fn wait_for_result(mut process: Process) -> LoadResult {
    let status = process.wait().code();
    let lines: Vec<String> = process.lines.take().expect("output").iter().collect();
    result_of(&Output { status, stdout: lines.join("\n"), stderr: String::new() })
}

/// Runs a load that must have no errors, and returns its result.
#[track_caller]
fn clean(command: &mut Command) -> LoadResult {
    let result = result_of(&run(command));
    let errors: Vec<_> = result.steps.iter().map(|step| (&step.name, &step.errors)).collect();
    assert_eq!(result.errors(), 0, "{errors:?}");
    result
}

#[track_caller]
fn step<'r>(result: &'r LoadResult, name: &str) -> &'r LoadStep {
    let names: Vec<_> = result.steps.iter().map(|step| &step.name).collect();
    result.steps.iter().find(|step| step.name == name).unwrap_or_else(|| panic!("no {name:?} in {names:?}"))
}

/// Counts the requests that were due in the whole run.
fn arrivals(result: &LoadResult) -> u64 {
    result.seconds.iter().map(|second| second.due.unwrap_or(0)).sum()
}

/// Copies an example of fixtures/load to a folder, with changes that adapt it to a test. Returns its path.
#[track_caller]
fn example(folder: &Path, name: &str, changes: &[(&str, &str)]) -> String {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/load");
    let mut text = std::fs::read_to_string(examples.join(name)).expect("an example");
    for (from, to) in changes {
        assert!(text.contains(from), "no {from:?} in {name}");
        text = text.replace(from, to);
    }
    std::fs::copy(examples.join("users.csv"), folder.join("users.csv")).expect("a table");
    let file = folder.join(name);
    std::fs::write(&file, text).expect("written");
    common::text(&file)
}
