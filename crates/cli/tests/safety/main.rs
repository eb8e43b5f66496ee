//! What beamtune does to a node, at most, and that nothing hangs: docs/safety.md, whose figures these tests measure.
//!
//! They run twice: in `make test` with small counts, and in `make safety` with those that the page shows
//! ([`figures::count`]). What they assert is the same, but that times are bounded closely only where nothing else runs: in `make safety`.
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
