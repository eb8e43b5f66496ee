//! Operating system data about Erlang VMs: finds the VMs of a host, and samples one of them and its host.
//!
//! ```text
//! discover ──> Vm ──pid──> HostSource ──Sample──> recorder
//! ```
//!
//! [`discovery`] lists the VMs of this host without connecting to them. [`HostSource`] samples one VM and its host repeatedly.
//! Both read all files through a [`tree::FileTree`]: tests provide a fake host, and the host of a remote node is read through the agent.
//!
//! All content is untrusted, so reads are bounded, and parsers return a value or a reason. Any process may end at any time, so this is an
//! expected result ([`HostError::Ended`]). Nothing is ever written. beamtune terminates only processes that it started ([`family`]).
//!
//! Times are in nanoseconds and sizes in bytes, whatever unit the kernel uses.

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

pub use discovery::{Access, Discovery, Isolation, Vm, discover, inspect};
pub use error::HostError;
pub use remote::RemoteHost;
pub use source::{AnnouncedBy, HostSource, MemoryBudget};
pub use text::Garble;
pub use tree::{FileTree, LocalTree};
