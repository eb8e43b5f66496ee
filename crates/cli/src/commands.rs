//! The subcommands.

pub mod diagnose;
pub mod diff;
pub mod doctor;
pub mod lab;
pub mod nodes;
pub mod record;
pub mod show;
