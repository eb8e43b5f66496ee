//! Attaching to a node: the distribution client, and the sessions of the agent.
//!
//! A *node* is a running Erlang VM that listens for other nodes. This crate connects to one as a hidden node
//! of a made-up name, without an Erlang VM on our side, puts the agent there and asks it for samples:
//!
//! ```text
//! TARGET --target, locate, epmd--> address --tls--> --handshake (cookie)--> Connection --call--> term
//!                                                                               |
//!                                        Sample <--sample-- NodeSource <-- Session (agent)
//! ```
//!
//! The protocols are pure: [`etf`] (terms), [`epmd`], [`handshake`], [`frame`], [`message`] and [`agent`]
//! turn bytes into values and back, know no socket and no clock, and treat all they read as hostile: every
//! length, count and depth is bounded before memory is taken. [`locate`], [`tls`] and [`connection`] join them to
//! blocking sockets, where every step has a deadline; [`network`] says in which network those are opened. [`session`]
//! is the agent on one connection; [`source`] is what a recorder sees of it, over lost connections and restarts of the
//! VM. [`explicit`] are the items that somebody has to ask for by name. Nothing here reads `/proc` of a node's process, but to enter its network: what is known of it comes in as plain
//! data ([`process`], [`cookie`]).

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
