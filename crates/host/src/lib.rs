//! The operating system's view of an Erlang VM: which VMs there are, and what the kernel knows of one.
//!
//! ```text
//! discover ──> Vm ──pid──> HostSource ──Sample──> recorder
//! ```
//!
//! [`discovery`] lists the VMs of this host with what can be said of them without asking them. [`HostSource`] reads one
//! of them and the machine again and again. Both take every file from a [`tree::FileTree`], so tests bring a
//! made-up host, and a node on another host can be read through the agent.
//!
//! All content is taken for hostile and all processes for mortal: reads are bounded, parsers give a value or a
//! reason, and a process that has ended is data ([`HostError::Ended`]). Nothing is ever written, and only processes that beamtune has
//! started itself are ever ended ([`family`]).
//!
//! Times are nanoseconds and sizes bytes, whatever the kernel counts in.

pub mod cgroup;
pub mod command_line;
pub mod container;
pub mod cpus;
pub mod discovery;
pub mod distribution;
pub mod error;
mod facts;
#[cfg(test)]
mod fake;
pub mod family;
pub mod installation;
pub mod machine;
pub mod memory;
mod netlink;
pub mod pressure;
pub mod process;
pub mod product;
pub mod remote;
pub mod sockets;
pub mod source;
mod text;
pub mod threads;
pub mod tree;

pub use discovery::{Access, Discovery, Isolation, Vm, discover, look_at};
pub use error::HostError;
pub use remote::RemoteHost;
pub use source::{Announce, HostSource, MemoryBudget};
pub use text::Garble;
pub use tree::{FileTree, LocalTree};
