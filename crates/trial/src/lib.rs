//! Studies: which trial to run next, which trials count, and the verdict.
//!
//! Nothing here starts a target or reads a clock. The next trial is a function of the question and of the trials that have ended
//! ([`compare`], [`tune`]). The measures of a trial come from its recording ([`measure`]); whether it counts depends on the host, the
//! load generator and the clock ([`gate`], [`steady`]).

pub mod advice;
mod blocks;
pub mod compare;
#[cfg(test)]
mod fixtures;
pub mod gate;
pub mod knobs;
pub mod measure;
pub mod search;
pub mod space;
pub mod steady;
pub mod told;
pub mod tune;
