//! Tests that beamtune's effects on a node are limited, and that nothing hangs. They measure the figures of docs/safety.md.
//!
//! `make test` runs them with small counts, `make safety` with those of the page ([`figures::count`]). The assertions are the same, except
//! that time limits are tight only in `make safety`, where nothing else runs.
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
