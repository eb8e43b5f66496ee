//! What is known of the Erlang VM's settings, per OTP release, as data.
//!
//! An [`Entry`] describes one thing that can be set: an emulator flag, an environment variable, an option of
//! a process or a table, what the host grants, or a change of the program that a rule may name. The entries
//! stand in `data/*.toml` and are embedded; they were checked on OTP 23, 25, 27 and 29, and say for other
//! releases what release notes and source tell.
//!
//! Besides, this crate reads the flags that an emulator was started with ([`parse_emu_args`]) and tells for
//! each where it came from ([`parse_with_environment`]), since the last of several wins and some come
//! from variables that nobody looks at.

mod arguments;
mod catalog;
mod entry;
mod environment;
mod version;

pub use arguments::{Earlier, Origin, Setting, effective, parse_emu_args};
pub use catalog::{entries, entry};
pub use entry::{Argument, DefaultFrom, Entry, Evidence, Kind};
pub use environment::{in_effect, parse_with_environment};
pub use version::OtpVersion;
