//! Studies: decides which trial to run next, which trials are valid, and what the verdict is.
//!
//! This crate does not start targets or read clocks. The next trial is a function of the question and of the trials that have ended
//! ([`compare`], [`tune`]). The measures of a trial come from its recording ([`measure`]). Whether a trial is valid depends on the host,
//! the load generator and the clock ([`gate`], [`steady`]).

pub mod advice;
mod blocks;
pub mod compare;
#[cfg(test)]
mod fixtures;
pub mod gate;
pub mod knobs;
pub mod load_result;
pub mod measure;
pub mod search;
pub mod space;
pub mod steady;
pub mod tune;
