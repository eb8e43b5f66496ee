//! Names from which rules infer what a process does: `data/names.toml`.

use std::sync::LazyLock;

use serde::Deserialize;

use super::data;

/// The lists of `data/names.toml`, where comments explain each of them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Names {
    pub calls: Vec<String>,
    pub ways: Vec<String>,
    pub starts: Vec<String>,
    pub loops: Vec<String>,
    pub system: Vec<String>,
    pub machinery: Vec<String>,
    pub supervisors: Vec<String>,
    pub searches: Vec<String>,
    pub faults: Vec<String>,
    pub answers: Vec<String>,
    /// Prefixes of traps, each with the function that it stands for.
    pub traps: Vec<(String, String)>,
    pub mnesia: Vec<String>,
    pub through_all: Vec<String>,
    pub logger: Vec<String>,
    pub ends: Vec<String>,
    pub sockets: Vec<String>,
    pub files: Vec<String>,
    pub callbacks: Vec<String>,
    pub takes: Vec<String>,
    pub pools: Vec<String>,
    pub metrics_tables: Vec<String>,
    pub otp_owners: Vec<String>,
    pub reads: Vec<String>,
    pub clients: Vec<String>,
    pub servers: Vec<String>,
}

/// The lists, parsed once.
pub(crate) static NAMES: LazyLock<Names> =
    LazyLock::new(|| data("names", include_str!("../../data/names.toml")));
