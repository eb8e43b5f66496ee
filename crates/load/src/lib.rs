//! The load generator: devices that send HTTP and other protocols to a target on a fixed schedule, which the target cannot delay, and
//! the measured results.
//!
//! Users write a [`scenario::Scenario`]. It is compiled into a [`program::Plan`], which holds what the devices do and when. [`engine`]
//! runs a share of the plan in one thread and counts into a [`tally`]; [`collect`] adds up the threads' tallies second by second.

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
