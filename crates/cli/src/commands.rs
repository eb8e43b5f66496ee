//! The subcommands.

pub mod args;
pub mod compare;
pub mod diagnose;
pub mod diff;
pub mod doctor;
pub mod flags;
pub mod guard;
pub mod lab;
pub mod lint;
pub mod load;
pub mod memory;
pub mod nodes;
pub mod record;
pub mod redact;
pub mod show;
pub mod study;
