//! Finds a node, connects to it with the right cookie, TLS settings and network namespace, and records it.
//!
//! ```text
//! TARGET --target, local_vms--> LiveTarget --access--> NodeSource --record--> recording
//! ```
//!
//! [`target`] resolves what the user named: a recording, a process on this host, or a node on another host. [`local_vms`] lists the VMs on
//! this host with the names that their EPMDs know. [`access`] completes the user's options by the environment and by the VM's own files.
//! [`mod@record`] attaches, samples VM and host, and detaches.
//!
//! [`profiling`] takes CPU profiles while a VM is recorded.
//!
//! This crate does not print. Messages for the user, such as the cost of what was requested, go to a [`Printer`] of the caller, and the
//! progress of a recording to a callback.

pub mod access;
pub mod local_vms;
pub mod profiling;
pub mod record;
pub mod target;

/// Prints a message for the user, which consists of whole lines.
///
/// It is a plain function, so that threads and destructors can keep it.
pub type Printer = fn(&str);
