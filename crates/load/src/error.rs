use std::io;

use thiserror::Error;

/// Why a load cannot be put on.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A call of the system that ought to succeed did not.
    #[error("{what}: {source}")]
    System {
        /// The call.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
}
