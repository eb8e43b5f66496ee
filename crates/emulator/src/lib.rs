//! Builds emulators that match an installation of Erlang, with lock counting or other options, and starts commands with them.
//!
//! An emulator is a single executable, `beam.smp`. Another build can replace it if ERTS version, architecture and C library are
//! the same; the rest of the installation stays unchanged. So only this executable is built ([`build`], following a [`recipe`],
//! which is a pure function) and cached ([`cache`]). It replaces the installation's own emulator for one command, through a
//! private mount ([`mount`]) or a folder of links ([`overlay`]). Only [`install`](mod@install) writes into an installation.

pub mod build;
pub mod cache;
mod check;
mod debian;
pub mod error;
pub mod install;
pub mod installation;
pub mod kind;
pub mod mount;
pub mod needs;
pub mod overlay;
pub mod program;
pub mod recipe;
pub mod source;
mod work;

pub use debian::version_of as debian_version_of;
pub use error::Error;
pub use installation::Installation;
pub use kind::{Flavor, Identity, Options, Type, Variant};
pub use work::BuildObserver;
