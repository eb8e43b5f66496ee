//! The operating system's view of an Erlang VM: which VMs run on a host, and what the kernel knows about one.
//!
//! ```text
//! discover ──> Vm ──pid──> HostSource ──Sample──> recorder
//! ```
//!
//! [`discovery`] lists the VMs of this host with what is known without asking them. [`HostSource`] samples one of them and its host
//! repeatedly. Both read all files through a [`tree::FileTree`], so tests can provide a fake host, and the host of a remote node can be read
//! through the agent.
//!
//! All content is untrusted, and any process may end at any time: reads are bounded, parsers return a value or a reason, and an ended process is
//! data ([`HostError::Ended`]). Nothing is ever written, and only processes that beamtune itself started are ended ([`family`]).
//!
//! Times are in nanoseconds and sizes in bytes, whatever the kernel's unit.

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
