//! Emulators that match an installation of Erlang (with lock counting, or configured differently), and commands started with one.
//!
//! An emulator is a single executable, `beam.smp`. Another build can replace it if ERTS version, machine and C library are the same; the rest
//! of the installation stays. So only that executable is built ([`build`], by a [`recipe`] that is a pure function) and cached ([`cache`]).
//! For one command it replaces the installation's own, through a private mount ([`mount`]) or a folder of links ([`overlay`]). Only
//! [`install`](mod@install) writes into an installation.

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
pub use work::Watch;
