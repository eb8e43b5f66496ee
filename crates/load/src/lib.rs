//! The load generator. Devices send requests of HTTP and other protocols to a target on a fixed schedule, which the target cannot delay.
//! Results are measured against this schedule.
//!
//! Users write a [`scenario::Scenario`]. It is compiled for the [`addresses`] of its targets into a [`program::Plan`], which defines what the devices do and when. Each thread
//! runs its share of the plan in an [`engine`], which counts into a [`tally`]. [`collect`] adds up the threads' tallies, second by second.

pub mod addresses;
pub mod clock;
pub mod collect;
pub mod engine;
mod error;
pub mod import;
pub mod limits;
pub mod log;
pub mod program;
pub mod protocol;
pub mod run;
pub mod scenario;
pub mod schedule;
pub mod tally;
pub mod template;
pub mod times;
pub mod tls;
pub mod wheel;

pub use error::LoadError;
