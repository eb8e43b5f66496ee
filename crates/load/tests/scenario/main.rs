//! Tests scenarios: the examples and the reference against the parser and the schema, positions and texts of faults, and compiled plans.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "these are tests")]

mod faulty;
mod plan;
mod quick;
mod reference;

use std::io;
use std::path::PathBuf;

use beamtune_load::scenario::{Faults, Scenario};

/// A path in the repository.
fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the files that the scenarios of these tests name.
fn files(name: &str) -> io::Result<Vec<u8>> {
    match name {
        "users.csv" => std::fs::read(repository("fixtures/load/users.csv")),
        "ca.pem" => Ok(b"-----BEGIN CERTIFICATE-----".to_vec()),
        "twice.csv" => Ok(b"a,a\n1,2\n".to_vec()),
        _ => Err(io::Error::new(io::ErrorKind::NotFound, "no such file")),
    }
}

fn parse(text: &str) -> Result<Scenario, Faults> {
    Scenario::parse("a.toml", text, &files)
}

/// Names and texts of the examples in fixtures/load.
fn examples() -> Vec<(String, String)> {
    let folder = std::fs::read_dir(repository("fixtures/load")).expect("fixtures/load exists");
    let names = folder.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
    let examples: Vec<_> = names
        .filter(|name| name.ends_with(".toml"))
        .map(|name| (read(&format!("fixtures/load/{name}")), name))
        .map(|(text, name)| (name, text))
        .collect();
    assert!(examples.len() >= 5, "{examples:?}");
    examples
}
