//! Studies: what is tried in which order, what of it counts, and what follows.
//!
//! Nothing here starts a target or reads a clock: what is to be run next follows from a question and from the trials that have
//! ended ([`compare`]). What a trial has measured comes from a recording of it ([`measure`]), and whether it counts from the machine
//! that it ran on ([`gate`], [`steady`]).

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
