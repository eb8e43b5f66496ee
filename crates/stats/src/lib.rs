//! The statistical methods of beamtune: estimators, confidence intervals and tests.
//!
//! A method is implemented here if no maintained crate has it in the form that beamtune needs. Each module cites the
//! paper with the method and is tested by properties or by simulation. The crate does not depend on the BEAM.

pub mod daily;
pub mod finite;
pub mod gaussian;
mod median;
pub mod paired;
pub mod proportion;
pub mod sequential;
pub mod step;
pub mod trend;

pub use daily::{Daily, daily};
pub use finite::estimate_total;
pub use median::{SD_OF_MAD, median};
pub use step::{Step, step};
pub use trend::{Trend, trend};
