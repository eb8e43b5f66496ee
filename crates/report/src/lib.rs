//! Output for people and programs: terminal text and JSON, rendered from periods and diagnoses.
//!
//! This crate neither prints nor checks whether there is a terminal; the caller does. Every name from a node, a process or a file is
//! passed through [`text::clean`] before it reaches a terminal.

pub mod account;
pub mod args;
pub mod diagnosis;
pub mod diff;
pub mod flags;
pub mod json;
pub mod kinds;
pub mod lint;
pub mod load;
pub mod locks;
pub mod memory;
pub mod overlay;
pub mod page;
pub mod profile;
pub mod show;
pub mod study;
pub mod table;
pub mod text;
pub mod tuning;

pub use text::Style;
