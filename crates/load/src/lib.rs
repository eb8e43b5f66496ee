//! The load generator: devices that speak HTTP and other protocols to a target, on a schedule that it cannot bend, and honest
//! numbers of what came back.
//!
//! A [`scenario::Scenario`] is what people write. A [`program::Plan`] is made from it, and says what devices do and when.
//! [`engine`] runs a share of it in one thread, and counts into [`tally`]; what the threads counted is added up second by
//! second.

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
