//! Attaches to a node: the distribution client, and sessions with the agent.
//!
//! This crate connects to a running Erlang node as a hidden node, without an Erlang VM of its own. It injects the agent into the
//! node and requests samples from it:
//!
//! ```text
//! TARGET --target, locate, epmd--> address --tls--> --handshake (cookie)--> Connection --call--> term
//!                                                                               |
//!                                        Sample <--sample-- NodeSource <-- Session (agent)
//! ```
//!
//! The protocols are pure: [`etf`] (terms), [`epmd`], [`handshake`], [`frame`], [`message`] and [`agent`] convert between bytes
//! and values, without sockets or clocks. They treat all input as hostile: every length, count and depth is limited before memory
//! is allocated. [`locate`], [`tls`] and [`connection`] run the protocols over blocking sockets, where every step has a deadline.
//! [`network`] selects the network namespace of the sockets. [`session`] is a session with the agent on one connection.
//! [`source`] is the recorder's view of a node, across lost connections and restarts of the VM. [`explicit`] defines the items
//! that are read only on request. This crate reads `/proc` of a node's process only to enter its network namespace. The caller
//! passes everything else about the process as plain data ([`process`], [`cookie`]).

pub mod agent;
pub mod call;
pub mod connection;
pub mod cookie;
mod deadline;
pub mod epmd;
pub mod error;
pub mod etf;
pub mod explicit;
pub mod frame;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod handshake;
pub mod locate;
pub mod message;
pub mod network;
pub mod process;
mod sample;
pub mod session;
pub mod source;
mod stream;
pub mod target;
pub mod tls;
mod wall;

pub use connection::{Connection, Settings};
pub use error::AttachError;
pub use network::Network;
pub use target::Target;
