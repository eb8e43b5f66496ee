//! Data about the Erlang VM per OTP release: flags, settings, locks, microstates and allocators.
//!
//! An [`Entry`] describes one setting: an emulator flag, an environment variable, or an option of a process, a
//! table or a socket. Host settings and code changes that a rule may recommend are entries, too.
//! [`Entry::check`] tells whether a release accepts a value; [`changes`] lists what an upgrade changes. The
//! catalogues of lock classes, microstates and allocators explain the names that lock counting, msacc and
//! `erlang:system_info({allocator, A})` report.
//!
//! The data in `data/*.toml` is embedded in the binary. `make check-flags` verifies flags and variables by starting
//! VMs of OTP 23, 25, 27 and 29; data for other releases comes from release notes and source code.
//!
//! This crate also parses the arguments that an emulator was started with ([`parse_emu_args`]), and finds out where
//! each one comes from, such as an environment variable ([`parse_with_environment`]). If a flag is repeated, the
//! last one takes effect.

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
    Origin, OverriddenValue, Setting, both_take_effect, effective_value, emulator_words, init_words,
    parse_emu_args,
};
pub use catalog::{entries, entry};
pub use changes::{Change, ChangeKind, changes};
pub use entry::{
    AbsentBehavior, Argument, DefaultSince, EffectChange, Entry, Evidence, FormerSpelling, Kind, Probe,
};
pub use environment::{effective_settings, parse_with_environment};
pub use init_flags::is_init_flag;
pub use locks::{
    Alternative, INSPECTED_RELEASES, LockClass, LockKind, LockKindSince, lock_class, lock_classes,
};
pub use msacc::{Microstate, ThreadType, microstate, microstates, thread_types};
pub use takes::{
    AboveMax, AcceptedValues, BelowMin, FatalValues, Form, HostCpus, HostDependent, Integer, NumberParsing,
    OtherValues, Rounding, SilentChange, ValueQuery, Verdict,
};
pub use version::{OtpVersion, release_runs};
