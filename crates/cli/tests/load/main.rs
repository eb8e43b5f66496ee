//! `beamtune load` from its command line to its result, against real targets: nginx, mosquitto, and small servers of our own.
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
use common::{Running, Said, beamtune, run};

/// A load whose result is read.
fn load(args: &[&str]) -> Command {
    let mut command = beamtune();
    command.arg("load").args(args).arg("--json");
    command
}

/// The result of a load that could be put on, whether or not all went well.
#[track_caller]
fn result_of(said: &Said) -> LoadResult {
    assert!(matches!(said.status, Some(0 | 1)), "{:?}\n{}", said.status, said.stderr);
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../../docs/load-result.schema.json")).expect("a schema");
    let result = said.json();
    let faults: Vec<String> = jsonschema::validator_for(&schema)
        .expect("a schema of JSON")
        .iter_errors(&result)
        .map(|fault| format!("{}: {fault}", fault.instance_path()))
        .collect();
    assert!(faults.is_empty(), "{faults:#?}");
    serde_json::from_value(result).unwrap_or_else(|error| panic!("{error}\n{}", said.stdout))
}

/// The result of a load that was started and ends now.
#[track_caller]
fn ended(mut running: Running) -> LoadResult {
    let status = running.wait().code();
    let lines: Vec<String> = running.lines.take().expect("output").iter().collect();
    result_of(&Said { status, stdout: lines.join("\n"), stderr: String::new() })
}

/// The result of a load in which nothing may go wrong.
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

/// Arrivals of the whole run.
fn asked(result: &LoadResult) -> u64 {
    result.seconds.iter().map(|second| second.asked.unwrap_or(0)).sum()
}

/// An example of fixtures/load, changed so that it fits a test, in a folder with what it names.
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
