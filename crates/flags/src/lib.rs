//! What is known of the Erlang VM, per OTP release, as data.
//!
//! An [`Entry`] describes one thing that can be set: an emulator flag, an environment variable, an option of
//! a process, a table or a socket, what the host grants, or a change of the program that a rule may name. It
//! says what values the setting takes in which release ([`Entry::check`]), and [`changes`] tells what an
//! upgrade changes. Beside the settings stand the classes of locks, the microstates and the allocators, by
//! which lock counting, msacc and `erlang:system_info({allocator, A})` name what they measure.
//!
//! The data stands in `data/*.toml` and is embedded. Flags and variables are checked by starts on OTP 23, 25,
//! 27 and 29 (`make check-flags`); for other releases the data says what release notes and source tell.
//!
//! Besides, this crate reads the flags that an emulator was started with ([`parse_emu_args`]) and tells for
//! each where it came from ([`parse_with_environment`]), since the last of several wins and some come
//! from variables that nobody looks at.

mod allocators;
pub mod args;
mod arguments;
mod catalog;
mod changes;
mod entry;
mod environment;
mod init_flags;
pub mod lint;
mod locks;
mod msacc;
pub mod source;
mod takes;
mod version;

pub use allocators::{Allocator, DefaultOption, allocator, allocators};
pub use arguments::{
    Earlier, Origin, Setting, effective, emulator_words, init_words, parse_emu_args, stays_beside,
};
pub use catalog::{entries, entry};
pub use changes::{Change, What, changes};
pub use entry::{Argument, DefaultFrom, Entry, Evidence, Formerly, Kind, News, Probe, WhereAbsent};
pub use environment::{in_effect, parse_with_environment};
pub use init_flags::is_init_flag;
pub use locks::{KindFrom, LOOKED_AT, LockClass, LockKind, lock_class, lock_classes};
pub use msacc::{Microstate, ThreadType, microstate, microstates, thread_types};
pub use takes::{
    Above, Altered, Below, Depends, Fatal, Form, Integer, Machine, Otherwise, Question, Reads, Rounds, Takes,
    Verdict,
};
pub use version::{OtpVersion, release_runs};
