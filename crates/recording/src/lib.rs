//! Recordings: the file format, and the sampling loop that writes it.
//!
//! A recording contains everything that was measured on one node in one period, as raw data, so every finding can be derived
//! from it again. It is an SQLite database; `docs/recording-format.md` describes the format. Readings are stored as compressed
//! columns instead of rows; otherwise a day of a large node would take gigabytes.
//!
//! - [`Writer`] appends samples. Once `append` returns, the sample survives the end of the process. A [`Ring`] drops the oldest
//!   data, and continues the file of an earlier process.
//! - [`Reader`] reads a recording in any state, even a damaged one: as samples, or as a [`beamtune_model::Period`], in memory
//!   that does not grow with the recording.
//! - [`record`] is the sampling loop over a VM and its host.
//!
//! ```
//! use beamtune_model::{SampleBuilder, SeriesTable, Span, Tick, metrics};
//! use beamtune_recording::{Selection, Writer};
//!
//! # fn main() -> Result<(), beamtune_recording::Error> {
//! let mut table = SeriesTable::default();
//! let mut writer = Writer::in_memory()?;
//! for second in 0..3 {
//!     let t = second * 1_000_000_000;
//!     let span = Some(Span { begin: t, end: t + 2_000_000 });
//!     let tick = Tick { t, incarnation: 0, vm: span, host: None, late: 0 };
//!     let mut out = SampleBuilder::new(&mut table, tick);
//!     out.metric(&metrics::REDUCTIONS, "", second * 500);
//!     let sample = out.sample;
//!     writer.append(&sample, &table)?;
//! }
//! let period = writer.finish()?.period(&Selection::default())?;
//! assert_eq!(period.rate(&metrics::REDUCTIONS, ""), Ok(500.0));
//! # Ok(())
//! # }
//! ```

mod clock;
mod codec;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod reader;
mod recorder;
mod redact;
mod rows;
mod schema;
mod writer;

pub use clock::{Stop, SystemClock};
pub use error::Error;
pub use reader::{Reader, RecordedIncarnation, ResumePoint, Samples, Selection};
pub use recorder::{EndReason, Outcome, Plan, Progress, Sources, record};
pub use redact::{Redaction, redact};
pub use schema::{APPLICATION_ID, FORMAT};
pub use writer::{Existing, Ring, Writer};
