//! Estimators, intervals and tests: the statistics that beamtune's answers stand on.
//!
//! Each is here because no kept crate has it in the form that is needed; its paper is cited where it
//! stands, and it is tested by properties or simulation. The crate knows nothing of BEAM.

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
