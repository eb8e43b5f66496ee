use std::io;

use thiserror::Error;

use crate::scenario::Faults;

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
    /// A scenario is not right.
    #[error("{0}")]
    Scenario(#[from] Faults),
    /// What the quick form was given is not right.
    #[error("{what} {given}: {why}")]
    Quick {
        /// Which of it: `target`, `rate`, ….
        what: &'static str,
        /// What was given.
        given: String,
        /// What about it is wrong, and what would be right.
        why: String,
    },
    /// A device has to connect from an address that cannot reach the target's.
    #[error(
        "devices.{kind}: {source_ip} cannot connect to {address}; give sources of the target's IP version"
    )]
    SourceFamily {
        /// The kind of devices.
        kind: String,
        /// From where.
        source_ip: std::net::IpAddr,
        /// To where.
        address: std::net::SocketAddr,
    },
    /// What a step or a protocol's option says cannot be done.
    #[error("devices.{kind}: {what}: {why}")]
    Unfit {
        /// The kind of devices.
        kind: String,
        /// The step's name, or the option.
        what: String,
        /// A sentence's end that says why.
        why: String,
    },
    /// A protocol that can be written down, and not yet be spoken.
    #[error("devices.{kind}: {scheme} cannot be spoken yet")]
    NotYet {
        /// The kind of devices.
        kind: String,
        /// The target's scheme.
        scheme: &'static str,
    },
}
