//! Recordings: the file format, and the loop that fills it.

mod clock;
mod codec;
mod error;
mod reader;
mod recorder;
mod rows;
mod schema;
mod writer;

pub use clock::{Stop, SystemClock};
pub use error::Error;
pub use reader::{Life, Reader, Samples, Selection};
pub use recorder::{End, Outcome, Plan, Progress, Sources, record};
pub use schema::{APPLICATION_ID, FORMAT};
pub use writer::{Existing, Writer};
