//! The limits of beamtune's effects on a node, and that nothing hangs. These tests measure the figures of docs/safety.md.
//!
//! They run with small counts in `make test`, and with those of the page in `make safety` ([`figures::count`]). The assertions are the same,
//! except that times have tight bounds only in `make safety`, where nothing else runs.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

#[path = "../common/mod.rs"]
mod common;

mod attaches;
mod disk;
mod figures;
mod frozen;
mod kills;
mod network;
mod node;
mod recordings;
mod restarts;
mod users;
