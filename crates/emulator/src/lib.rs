//! Emulators that match an installation of Erlang, and how a program is started with one: lock-counting ones, and such as are
//! configured in another way.
//!
//! An emulator is one program, `beam.smp`. Another one can take its place if it is of the very same version of ERTS, for the same machine and
//! the same C library; all else of the installation stays as it is. So only that one program is built ([`build`], by a [`recipe`] that is a
//! pure function), kept in a cache ([`cache`]), and put in the place of the installation's for one command: by a mount that nobody else sees
//! ([`mount`]), or by a folder of links ([`overlay`]). Only [`install`](mod@install) writes into an installation.

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
