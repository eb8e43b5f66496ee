//! Runs trials: starts the target with a setting, waits until it is ready, applies the load, records, and ends all processes.
//!
//! ```text
//! Setup, TrialOrder --trial--> target ready --drive, command or job--> LoadRun --gate--> FinishedTrial
//! ```
//!
//! The target's files are not changed: flags reach its VM through ERL_ZFLAGS, variables through the environment. A candidate that
//! does not boot or kills the VM is a result. All processes are children of a [`guard`], which ends them no matter how beamtune ends.
//! The guard is the running program itself, started again with the command `guard`.
//!
//! The crate `trial` decides which trial is next, and what the results mean. This crate does not print.

mod command;
mod drive;
pub mod guard;
mod job;
pub mod preset;
pub mod process;
mod ready;
mod setup;
mod trial;
mod usage;

pub use command::LoadCommand;
pub use ready::Ready;
pub use setup::{Load, Pins, Setup};
pub use trial::{FinishedTrial, run};
