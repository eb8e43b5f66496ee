//! Estimators, confidence intervals and tests: the statistics behind beamtune's answers.
//!
//! A method is here if no maintained crate has it in the form that beamtune needs. Each module cites its paper
//! and is tested by properties or by simulation. The crate knows nothing of the BEAM.

pub mod daily;
pub mod finite;
pub mod gaussian;
mod median;
pub mod paired;
pub mod sequential;
pub mod step;
pub mod trend;

pub use daily::{Daily, daily};
pub use finite::total;
pub use median::{SD_OF_MAD, median};
pub use step::{Step, step};
pub use trend::{Trend, trend};
